## make test-arm                     suites of the engine cross-compiled for arm64, under qemu: the NEON tier and whole models
ARM64 := build/arm64
ARM64_CC ?= aarch64-linux-gnu-gcc
ARM64_QEMU ?= qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu
ARM64_PACKAGES := gcc make gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
ARM64_CFLAGS := -std=c11 -D_GNU_SOURCE -DGGUFD_VERSION='"$(VERSION)"' -Itests/arm64 -I. -pthread -g -O2 -ffp-contract=off \
                -fno-math-errno -fno-strict-aliasing -MMD -MP $(WARNINGS)
ARM64_SUITES := base quant adding_a_format quant_kernels ops_math ops_elementwise ops_rope ops_attention kv matmul help models
ARM64_SUPPORT := encode evaluate example_format gguf_builder gguf_image model_cases suite_files tiny_model
ARM64_SOURCES := $(wildcard engine/*.c engine/*/*.c) $(ARM64_SUPPORT:%=tests/support/%.c) tests/arm64/suite.c
ARM64_PROGRAMS := $(ARM64_SUITES:%=$(ARM64)/tests/unit/test_%)

$(ARM64)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC arm64 $<"
	@$(ARM64_CC) $(ARM64_CFLAGS) -c -o $@ $<

$(ARM64)/tests/unit/test_%: $(ARM64)/tests/unit/test_%.o $(ARM64_SOURCES:%.c=$(ARM64)/%.o)
	@$(ARM64_CC) -pthread -static -o $@ $^ -lm

-include $(shell find $(ARM64) -name '*.d' 2>/dev/null)

.PHONY: test-arm
test-arm:
	@sh tests/deps.sh $(ARM64_PACKAGES)
	@$(MAKE) --no-print-directory $(ARM64_PROGRAMS)
	@for suite in $(ARM64_PROGRAMS); do \
	    GGUFD_ROOT="$(CURDIR)" GGUFD_SHARED="$${GGUFD_SHARED:-$(CURDIR)/../shared}" $(ARM64_QEMU) $$suite || exit 1; \
	done
