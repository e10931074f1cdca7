# ggufd: see README.md. `make`, `make run`, `make test`; `make help` lists the rest.
MODE ?= release
ifeq ($(origin CC),default)
CC := gcc
endif
BUILD := build/$(MODE)
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
VERSION := 0.1.0

PACKAGES := libmicrohttpd libuv libcjson check
DEBIAN_PACKAGES := gcc make pkg-config libc6-dev libmicrohttpd-dev libcjson-dev libuv1-dev check curl nginx-light

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wno-unknown-warning-option -Wno-format-truncation -Werror
HARDENING := -fstack-protector-strong -fPIE
# Bits are promised: the compiler must not fuse a multiplication and an addition. No -march: tiers are chosen at run time.
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -DGGUFD_VERSION='"$(VERSION)"' -I. -pthread -g -ffp-contract=off -fno-math-errno \
              -fno-strict-aliasing -MMD -MP $(WARNINGS) $(HARDENING)
LDFLAGS_ALL := -pie -pthread -Wl,-z,relro,-z,now,-z,noexecstack
ifeq ($(MODE),release)
CFLAGS_ALL += -O2 -D_FORTIFY_SOURCE=2
else ifeq ($(MODE),debug)
CFLAGS_ALL += -O0
else ifeq ($(MODE),asan)
CFLAGS_ALL += -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
LDFLAGS_ALL += -fsanitize=address,undefined
else ifeq ($(MODE),tsan)
CFLAGS_ALL += -O1 -fsanitize=thread -fno-omit-frame-pointer
LDFLAGS_ALL += -fsanitize=thread
else ifeq ($(MODE),coverage)
CFLAGS_ALL += -O0 -DINSTRUMENTED
LDFLAGS_ALL += --coverage -Wl,--wrap=_exit
else
$(error MODE=$(MODE): use release, debug, asan, tsan or coverage)
endif
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine 2>/dev/null)),)
CFLAGS_ALL += -fcf-protection
# Debian's crt files carry no CET note; ours is true of every object that is built here.
LDFLAGS_ALL += -Wl,-z,ibt,-z,shstk
endif

PKG_CFLAGS = $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
DAEMON_LIBS = $(shell pkg-config --libs libmicrohttpd libuv libcjson 2>/dev/null)
TEST_LIBS = $(shell pkg-config --libs check 2>/dev/null)

SOURCES := $(wildcard engine/*.c engine/*/*.c proto/*.c daemon/*.c)
LIBRARY_SOURCES := $(filter-out daemon/main.c,$(SOURCES))
SUPPORT_SOURCES := $(wildcard tests/support/*.c)
SUITE_SOURCES := $(wildcard tests/unit/test_*.c tests/http/test_*.c)
TOOL_SOURCES := $(wildcard tests/tools/*.c)
BENCH_SOURCES := $(wildcard bench/*.c)
object = $(patsubst %.c,$(BUILD)/%.o,$(1))
SUITES := $(patsubst %.c,$(BUILD)/%,$(SUITE_SOURCES))
TOOLS := $(patsubst %.c,$(BUILD)/%,$(TOOL_SOURCES))
BENCHES := $(patsubst %.c,$(BUILD)/%,$(BENCH_SOURCES))

.PHONY: all deps run test test-build test-one lint bench install deb clean help
.DEFAULT_GOAL := all
.SECONDARY:

all: $(BUILD)/ggufd
	@ln -sf $(MODE)/ggufd build/ggufd

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make [MODE=release|debug|asan|tsan|coverage] [CC=gcc|clang]   build build/MODE/ggufd (build/ggufd points to it)
## make run [MODEL=file.gguf] [ADDRESS=127.0.0.1:8080]   build and serve a model
## make test                         all tests, twice: release and with ASan+UBSan
## make test-one SUITE=name          one suite in MODE
## make bench                        benchmarks; PEER=DIR compares with a peer
## make install [DESTDIR=] [PREFIX=/usr/local]
## make deps                         install missing Debian packages
deps:
	@sh tests/deps.sh $(DEBIAN_PACKAGES)

$(BUILD)/libggufd.a: $(call object,$(LIBRARY_SOURCES))
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/ggufd: $(call object,$(wildcard daemon/main.c)) $(BUILD)/libggufd.a
	$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(DAEMON_LIBS) -lm

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CFLAGS_ALL) $(PKG_CFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(call object,$(SUPPORT_SOURCES)) $(BUILD)/libggufd.a
	@$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(TEST_LIBS) -lm

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(call object,$(SUPPORT_SOURCES)) $(BUILD)/libggufd.a
	@$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(TEST_LIBS) -lm

test-build: $(SUITES) $(TOOLS) $(if $(wildcard daemon/main.c),$(BUILD)/ggufd)

## make test-tsan                    the HTTP suites and those with threads under ThreadSanitizer: a report is a failure
TSAN_SUITES := $(wildcard tests/http/test_*.c) $(patsubst %,tests/unit/test_%.c,pool claim help session models jobs metrics log)
TSAN_SUITES := $(filter $(SUITE_SOURCES),$(TSAN_SUITES))
.PHONY: test-tsan
test-tsan: deps
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=tsan all $(patsubst %.c,build/tsan/%,$(TSAN_SUITES))
	@$$(setarch -R true 2>/dev/null && echo setarch -R) sh tests/run.sh tsan $(TSAN_SUITES)

test-one: $(filter %/test_$(SUITE),$(SUITES)) $(if $(wildcard daemon/main.c),$(BUILD)/ggufd)
	@sh tests/run.sh $(MODE) $(filter %/test_$(SUITE),$(SUITES))

test: deps
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=release all test-build
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=asan test-build
	@sh tests/run.sh "release asan" $(SUITE_SOURCES)

# The compiler may have come only with deps: everything that asks it happens in a make of its own.
run: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@sh tests/serve.sh build/ggufd $(MODEL)

bench: $(BENCHES)
	@sh bench/run.sh $(BUILD) $(PEER)

UNITS := $(wildcard systemd/*.service systemd/*.socket)
install: all
	install -Dm755 $(BUILD)/ggufd $(DESTDIR)$(PREFIX)/bin/ggufd
	install -Dm644 docs/ggufd.1 $(DESTDIR)$(PREFIX)/share/man/man1/ggufd.1
	install -Dm644 docs/ggufd.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ggufd
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/doc/ggufd README.md SECURITY.md LICENSE config.example.json
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/doc/ggufd/docs $(wildcard docs/*.md)
	for unit in $(UNITS); do sed 's|/usr/local/|$(PREFIX)/|g' $$unit | \
	    install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$$(basename $$unit) || exit 1; done
	install -Dm644 systemd/ggufd.sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/ggufd.conf
	install -Dm644 systemd/ggufd.tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/ggufd.conf

## make deb                          a Debian package build/ggufd_VERSION_ARCH.deb
DEB_ARCH = $(shell dpkg --print-architecture)
deb: all
	@rm -rf build/deb && mkdir -p build/deb/DEBIAN
	@$(MAKE) --no-print-directory install DESTDIR=build/deb PREFIX=/usr >/dev/null
	@printf '%s\n' 'Package: ggufd' 'Version: $(VERSION)' 'Architecture: $(DEB_ARCH)' 'Section: net' 'Priority: optional' \
	    'Maintainer: the ggufd developers <ggufd@localhost>' \
	    'Depends: libc6, libmicrohttpd12 | libmicrohttpd12t64, libuv1 | libuv1t64, libcjson1' \
	    'Description: bit-exact HTTP daemon for one GGUF language model' > build/deb/DEBIAN/control
	@dpkg-deb --root-owner-group --build build/deb build/ggufd_$(VERSION)_$(DEB_ARCH).deb

clean:
	rm -rf build

$(BUILD)/daemon/page.o: daemon/page.html

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
-include $(wildcard */module.mk)
