## make test-peer PEER=DIR           random models against the reference in DIR, bit for bit
.PHONY: test-peer
test-peer: $(BUILD)/tests/tools/peer_compare
	@$(BUILD)/tests/tools/peer_compare $(PEER)

## make test-clients                 the npm package openai and headless Chromium against the daemon
.PHONY: test-clients
test-clients: all
	@sh tests/clients/run.sh
