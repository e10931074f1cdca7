## make test-peer PEER=DIR           random models against the reference in DIR, bit for bit
.PHONY: test-peer
test-peer: $(BUILD)/tests/tools/peer_compare
	@$(BUILD)/tests/tools/peer_compare $(PEER)
