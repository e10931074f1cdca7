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

## make stress [EVENTS=100000] [SEED=n] [RUN=6000]   random cancels, queues, timeouts and shutdowns; RUN: most events a life
.PHONY: stress
EVENTS ?= 100000
RUN ?= 6000
stress: all $(BUILD)/tests/tools/stress
	@GGUFD_MODE=$(MODE) GGUFD_BINARY=$(BUILD)/ggufd $(BUILD)/tests/tools/stress $(EVENTS) "$(SEED)" $(RUN)

# The daemon with faults on command: the linker leads calls through tests/faults/wrap.c.
$(BUILD)/tests/ggufd-faults: $(BUILD)/tests/faults/wrap.o $(call object,daemon/main.c) $(BUILD)/libggufd.a
	@$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $$(sh tests/faults/wrapped.sh) -o $@ $^ $(DAEMON_LIBS) -lm
$(BUILD)/tests/http/test_faults: | $(BUILD)/tests/ggufd-faults

# The suite itself stands in front of the allocator.
$(BUILD)/tests/unit/test_no_memory: LDFLAGS_ALL += \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=asprintf,--wrap=__asprintf_chk

## make coverage                      lines and branches that the tests reach; fails below the limits in tests/coverage
.PHONY: coverage
coverage: deps
	@sh tests/deps.sh python3
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=coverage CC=gcc test-build
	@sh tests/coverage/run.sh $(filter-out %/test_neon.c,$(SUITE_SOURCES))

ifeq ($(MODE),coverage)
$(SUITES) $(TOOLS) $(BENCHES) $(BUILD)/ggufd $(BUILD)/tests/ggufd-faults: $(BUILD)/tests/coverage/exit.o
# Counters of threads must not lose each other's increments: branches would come out negative.
$(call object,$(SOURCES)): CFLAGS_ALL += --coverage -fprofile-update=atomic
# Kernels unoptimized and with counters that threads share take minutes.
$(call object,$(wildcard engine/quant/*.c engine/ops/*.c)): CFLAGS_ALL += -O1 -fprofile-update=single
endif

## make fuzz [FUZZ_SECONDS=60] [FUZZ=name]   libFuzzer with ASan and UBSan over tests/fuzz/fuzz_NAME.c (needs clang)
FUZZ_SECONDS ?= 60
FUZZ_CFLAGS = $(CFLAGS_ALL) -O1 -fno-omit-frame-pointer -fno-sanitize-recover=undefined
fuzz_object = $(patsubst %.c,build/fuzz/%.o,$(1))
FUZZERS := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CHOSEN := $(if $(FUZZ),$(filter build/fuzz/fuzz_$(FUZZ),$(FUZZERS)),$(FUZZERS))
.PHONY: fuzz
fuzz: $(FUZZ_CHOSEN)
	@sh tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_CHOSEN)

FUZZ_SANITIZE := -fsanitize=fuzzer-no-link,address,undefined
# Kernels take clang more than ten minutes to instrument; their bounds are those of the tables and shapes checked before.
build/fuzz/engine/ops/tier_%.o build/fuzz/engine/quant/%.o: FUZZ_SANITIZE :=

build/fuzz/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC (fuzz) $<"
	@clang $(FUZZ_CFLAGS) $(FUZZ_SANITIZE) $(PKG_CFLAGS) -c -o $@ $<

build/fuzz/libggufd.a: $(call fuzz_object,$(LIBRARY_SOURCES))
	@rm -f $@
	@ar rcs $@ $^

build/fuzz/libsupport.a: $(call fuzz_object,$(SUPPORT_SOURCES))
	@rm -f $@
	@ar rcs $@ $^

build/fuzz/fuzz_%: build/fuzz/tests/fuzz/fuzz_%.o build/fuzz/libsupport.a build/fuzz/libggufd.a
	@clang -pthread -fsanitize=fuzzer,address,undefined -o $@ $^ $(DAEMON_LIBS) $(TEST_LIBS) -lm

-include $(shell find build/fuzz -name '*.d' 2>/dev/null)

## make test-tokenizer-long          100,000 texts a vocabulary; 500 texts a word splitter against ../shared/tools
.PHONY: test-tokenizer-long
test-tokenizer-long: $(BUILD)/tests/unit/test_tokenizer_random $(BUILD)/tests/unit/test_tokenizer_speed $(BUILD)/tests/tools/tokenize
	@GGUFD_LONG=1 sh tests/run.sh $(MODE) $(BUILD)/tests/unit/test_tokenizer_random $(BUILD)/tests/unit/test_tokenizer_speed
	@python3 tests/tokenizer_crosscheck.py $(BUILD)/tests/tools/tokenize $${GGUFD_SHARED:-../shared} 500

include tests/arm64/arm64.mk
