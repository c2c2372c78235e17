# skein's build: one plain Makefile for GNU make 3.81 (macOS) and later.
#
#   make                 build/skein
#   make demo            install what is missing, build, fetch a model, two nodes, one answer
#   make test            install what is missing, build with warnings as errors, run every test
#   make unit tidy fuzz  parts of make test; make unit M=formats runs one folder's tests
#   make SAN=address     the same with a sanitizer, in its own build folder
#   make bench MODEL=model.gguf   how fast it runs here; BENCH='--threads 1,2' adds options
#   make install PREFIX=/usr/local
#
# A folder of src/ becomes lib<folder>.a. A test or program links the archives of its folder and of
# those that src/LAYERS lets it include, nothing else, so the layers hold at link time too.

OS   := $(shell uname -s | tr A-Z a-z)
ARCH := $(shell uname -m | sed 's/^arm64$$/aarch64/')
CC      ?= cc
CLANG   ?= $(shell command -v clang-14 || command -v clang)
PREFIX  ?= /usr/local
SAN     ?=
BUILD   ?= build$(if $(SAN),/$(subst $(comma),-,$(SAN)))
comma   := ,

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FOLDERS := base formats kernels wire net comm ops model engine runner cluster node api cli

WARN   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef
CFLAGS ?= -O2 -g
CSTD   := -std=gnu17 -D_GNU_SOURCE -Isrc -fno-strict-aliasing -ffp-contract=off -pthread
ALLC    = $(CSTD) $(CFLAGS) $(WARN) $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN) \
          -fno-sanitize-recover=all -fno-omit-frame-pointer) $(DEFS)

# Packages: needed ones by folder, optional ones only where pkg-config finds them.
PKGS_base    := jansson yaml-0.1 libcrypto
PKGS_formats := libpcre2-8
PKGS_net     := libzmq libsodium libmicrohttpd libcurl
PKGS_node    := zlib
PKGS_cli     := libedit
# Without it nodes are found by --peer alone. macOS has its own.
ifeq ($(OS)-$(shell pkg-config --exists avahi-core && echo yes),linux-yes)
PKGS_net     += avahi-core
HAVE_AVAHI   := yes
endif
ifeq ($(OS),darwin)
PKGS_node    :=
PKGS_cli     :=
LIBS_base    := -framework SystemConfiguration -framework CoreFoundation
LIBS_node    := -lz
LIBS_cli     := -ledit
endif
# Its headers alone: it is loaded when it is asked for. Without them ranks have TCP and shared memory; make FABRIC=no
# builds without where it is there, too.
FABRIC ?= $(shell pkg-config --exists libfabric && echo yes)
FABRIC_CFLAGS := $(if $(filter yes,$(FABRIC)),-DHAVE_LIBFABRIC $(shell pkg-config --cflags libfabric))
PKGS := $(PKGS_base) $(PKGS_formats) $(PKGS_net) $(PKGS_node) $(PKGS_cli)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)

# Kernels: the folder is the compiler flag. Sanitizers multiply the unrolled code: a set takes minutes and
# gigabytes to compile with them. So only ref is built with them; the others are held to its bits, between guard pages
# (tests/kernels), and what calls them is checked as everything else. No fuzz target computes.
KREF           := $(if $(SAN),-O1,-O3)
KOPT           := $(KREF) $(if $(SAN),-fno-sanitize=all)
KFLAGS_ref     := $(if $(findstring fuzzer,$(SAN)),$(KOPT),$(KREF))
KFLAGS_avx2    := $(KOPT) -mavx2 -mfma -mf16c -mbmi2
KFLAGS_avx512  := $(KFLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
KFLAGS_vnni    := $(KFLAGS_avx512) -mavx512vnni
KFLAGS_amx     := $(KFLAGS_vnni) -mamx-tile -mamx-int8 -mamx-bf16
KFLAGS_neon    := $(KOPT)
KFLAGS_dotprod := $(KOPT) -march=armv8.2-a+dotprod
KFLAGS_i8mm    := $(KOPT) -march=armv8.2-a+dotprod+i8mm
ifeq ($(ARCH),x86_64)
KSETS := ref avx2 avx512 vnni amx
else
KSETS := ref neon dotprod i8mm
endif

other_os := $(if $(filter darwin,$(OS)),linux,darwin)
srcs_of = $(filter-out %_test.c %_fuzz.c %_$(other_os).c,$(wildcard src/$(1)/*.c) \
          $(if $(filter kernels,$(1)),$(foreach k,$(KSETS),$(wildcard src/kernels/$(k)/*.c))))
objs_of = $(patsubst %.c,$(BUILD)/%.o,$(filter-out src/cli/main.c,$(call srcs_of,$(1))))
lib     = $(BUILD)/lib$(1).a
# The folder itself, then what LAYERS lets it include, topmost first: the order the linker wants.
below   = $(1) $(shell awk -F: -v f=$(1) '$$1==f {n=split($$2,a," "); for(i=n;i>0;i--) print a[i]}' src/LAYERS)
libs_for = $(foreach f,$(call below,$(1)),$(call lib,$(f)))
pkgs_for = $(shell pkg-config --libs $(foreach f,$(call below,$(1)),$(PKGS_$(f))) 2>/dev/null) \
           $(foreach f,$(call below,$(1)),$(LIBS_$(f))) -lm -pthread -ldl

# A link emulator for tests and benchmarks; TAP devices are Linux's.
TOOLS := $(BUILD)/mkmodel $(BUILD)/fakepeer $(if $(filter linux,$(OS)),$(BUILD)/linkem $(BUILD)/shardbench)
all: $(BUILD)/skein $(TOOLS)

define FOLDER
$(call lib,$(1)): $(call objs_of,$(1))
	@rm -f $$@
	@ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call FOLDER,$(f))))

$(BUILD)/src/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) $(PKG_CFLAGS) $(if $(filter src/kernels/%,$<),$(KFLAGS_$(word 3,$(subst /, ,$<)))) \
	    -MMD -MP -c -o $@ $<

# The version is compiled into one file only, which is rebuilt when it changes.
$(BUILD)/src/base/version.o: DEFS = -DSKEIN_BUILD='"$(VERSION)"'
$(BUILD)/src/base/version.o: $(BUILD)/version.stamp
$(BUILD)/version.stamp: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION)' | cmp -s - $@ || echo '$(VERSION)' > $@
FORCE:

$(BUILD)/src/net/discovery_linux.o: DEFS = $(if $(HAVE_AVAHI),,-DNO_AVAHI)

# What was built with or without it is built again when that changes.
$(BUILD)/src/comm/ofi.o: DEFS = $(FABRIC_CFLAGS)
$(BUILD)/src/comm/ofi.o: $(BUILD)/fabric.stamp
$(BUILD)/fabric.stamp: FORCE
	@mkdir -p $(@D)
	@echo '$(FABRIC_CFLAGS)' | cmp -s - $@ || echo '$(FABRIC_CFLAGS)' > $@

# The web page as bytes in the program.
$(BUILD)/gen/page.c: dashboard/index.html
	@mkdir -p $(@D)
	@{ echo 'extern const unsigned char PAGE_INDEX[]; extern const unsigned PAGE_INDEX_BYTES;'; \
	  echo 'const unsigned char PAGE_INDEX[] = {'; od -An -v -tu1 $< | sed 's/[0-9][0-9]*/&,/g'; echo '0};'; \
	  echo 'const unsigned PAGE_INDEX_BYTES = sizeof PAGE_INDEX - 1;'; } > $@
$(BUILD)/gen/page.o: $(BUILD)/gen/page.c
	@$(CC) $(ALLC) -c -o $@ $<
$(call lib,api): $(BUILD)/gen/page.o

$(BUILD)/skein: $(BUILD)/src/cli/main.o $(call libs_for,cli)
	@echo "  LD $@"
	@$(CC) $(ALLC) -o $@ $^ $(call pkgs_for,cli)

$(BUILD)/shardbench: tools/shardbench.c tools/linkbench.c $(call libs_for,runner)
	@$(CC) $(ALLC) -I. $(PKG_CFLAGS) -o $@ $^ $(call pkgs_for,runner)
$(BUILD)/mkmodel: tools/mkmodel.c $(call libs_for,formats)
	@$(CC) $(ALLC) $(PKG_CFLAGS) -o $@ $^ $(call pkgs_for,formats)

$(BUILD)/fakepeer: tools/fakepeer.c $(call libs_for,net)
	@$(CC) $(ALLC) $(PKG_CFLAGS) -o $@ $(filter %.c %.a,$^) $(call pkgs_for,net)

$(BUILD)/linkem: tools/linkem.c tools/linkem_line.c tools/linkem_line.h $(call lib,base)
	@$(CC) $(ALLC) -I. $(PKG_CFLAGS) -o $@ $(filter %.c %.a,$^) $(call pkgs_for,base)

# ---- tests -----------------------------------------------------------------------------------

M ?= $(FOLDERS)
TESTS := $(patsubst %.c,$(BUILD)/%,$(foreach f,$(M),$(wildcard src/$(f)/*_test.c)))

.SECONDEXPANSION:
$(BUILD)/src/%_test: src/%_test.c $$(call libs_for,$$(firstword $$(subst /, ,$$*)))
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) $(PKG_CFLAGS) -MMD -MP -o $@ $(filter %.c %.a,$^) -lcmocka \
	    $(call pkgs_for,$(firstword $(subst /, ,$*)))

# Real models against recordings of llama.cpp, tiny ones against transformers; make golden.
GOLDEN := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/golden/*_test.c))
$(BUILD)/tests/golden/%_test: tests/golden/%_test.c $(call libs_for,model)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) $(PKG_CFLAGS) -MMD -MP -o $@ $(filter %.c %.a,$^) -lcmocka $(call pkgs_for,model)
golden: $(GOLDEN) $(BUILD)/mkmodel
	@for t in $(GOLDEN); do SKEIN_BUILD=$(BUILD) $$t || exit 1; done

# The simulated cluster, and kernels against ref/.
SIM      := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/sim/*_test.c))
KERNELS  := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/kernels/*_test.c))
SIM_SRCS := $(filter-out %_test.c,$(wildcard tests/sim/*.c))
$(BUILD)/tests/sim/%_test: tests/sim/%_test.c $(SIM_SRCS) $(call libs_for,cluster)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) -I. $(PKG_CFLAGS) -MMD -MP -o $@ $(filter %.c %.a,$^) -lcmocka $(call pkgs_for,cluster)
$(BUILD)/tests/kernels/%_test: tests/kernels/%_test.c $(call libs_for,ops)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) $(PKG_CFLAGS) -MMD -MP -o $@ $(filter %.c %.a,$^) -lcmocka $(call pkgs_for,ops)

unit: $(TESTS)
	@scripts/test unit $^
kernels: $(KERNELS)
	@scripts/test kernels $^
sim: $(SIM)
	@SEEDS=$(SEEDS) scripts/test sim $^
e2e: all
	@SKEIN_BUILD=$(BUILD) scripts/test e2e
tidy:
	@TIDY_CFLAGS='$(CSTD) $(WARN) $(PKG_CFLAGS)' scripts/tidy
unit-tests: $(TESTS)
tests: $(TESTS) $(KERNELS) $(SIM) $(GOLDEN)
list-tests:
	@echo unit $(TESTS)
	@echo kernels $(KERNELS)
	@echo sim $(SIM)
	@echo golden $(GOLDEN)
test:
	@scripts/bootstrap --test
	@scripts/test

# Fuzz targets, in a build folder of their own: every archive is compiled by clang with coverage.
FUZZ := $(patsubst %.c,$(BUILD)/%,$(foreach f,$(M),$(wildcard src/$(f)/*_fuzz.c)))
$(BUILD)/src/%_fuzz: src/%_fuzz.c $$(call libs_for,$$(firstword $$(subst /, ,$$*)))
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(ALLC) -fsanitize=fuzzer $(PKG_CFLAGS) -MMD -MP -o $@ $(filter %.c %.a,$^) \
	    $(call pkgs_for,$(firstword $(subst /, ,$*)))
fuzz-targets: $(FUZZ)
fuzz:
	@$(MAKE) --no-print-directory BUILD=build/fuzz CC=$(CLANG) SAN=fuzzer-no-link,address,undefined \
	    CFLAGS='-O1 -g' fuzz-targets
	@scripts/test fuzz $(patsubst %.c,build/fuzz/%,$(foreach f,$(M),$(wildcard src/$(f)/*_fuzz.c)))

# ---- bench, demo, install -----------------------------------------------------------------------------

# Of a model that is here, or of one written for the purpose: bench/README.md.
MODEL ?= $(BUILD)/bench.gguf
$(BUILD)/bench.gguf: $(BUILD)/mkmodel
	@echo "  MKMODEL $@"
	@$(BUILD)/mkmodel --type Q4_0 --layers 16 --dim 2048 --heads 32 --kv-heads 8 --ffn 8192 \
	    --vocab 128256 --ctx 8192 --tied $@
bench: $(BUILD)/skein $(filter $(BUILD)/bench.gguf,$(MODEL))
	@$(BUILD)/skein bench $(MODEL) $(BENCH)

demo:
	@scripts/bootstrap
	@$(MAKE) --no-print-directory -j"$$(getconf _NPROCESSORS_ONLN)" all
	@BUILD=$(BUILD) scripts/demo

install: $(BUILD)/skein
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/skein/models \
	    $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/skein $(DESTDIR)$(PREFIX)/bin/skein
	ln -sf skein $(DESTDIR)$(PREFIX)/bin/exo
	install -m 644 models/*.yaml $(DESTDIR)$(PREFIX)/share/skein/models/
	install -m 644 docs/skein.1 $(DESTDIR)$(PREFIX)/share/man/man1/skein.1
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/skein $(DESTDIR)$(PREFIX)/bin/exo
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/skein.1
	rm -rf $(DESTDIR)$(PREFIX)/share/skein
clean:
	rm -rf build

-include $(shell find $(BUILD)/src $(BUILD)/tests -name '*.d' 2>/dev/null)
.PHONY: all FORCE golden unit kernels sim e2e tidy unit-tests tests list-tests test fuzz fuzz-targets bench demo
.PHONY: install uninstall clean
