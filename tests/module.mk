## make test-peer PEER=DIR [ONLY=name]  random models against the reference in DIR, bit for bit
.PHONY: test-peer
test-peer: $(BUILD)/tests/tools/peer_compare
	@$(BUILD)/tests/tools/peer_compare $(PEER) $(ONLY)

## make test-clients                 the npm package openai and headless Chromium against the daemon
.PHONY: test-clients
test-clients: all
	@sh tests/clients/run.sh

## make soak [SOAK_SECONDS=3600] [MODEL=]   mixed load; reports memory and descriptors
.PHONY: soak
SOAK_SECONDS ?= 3600
soak: all $(BUILD)/tests/tools/soak
	@GGUFD_BINARY=$(BUILD)/ggufd $(BUILD)/tests/tools/soak $(SOAK_SECONDS) "$(MODEL)"
