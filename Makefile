# v4box: builds the image and everything in it; `make help` lists the targets.
#
# Two builds of the same sources:
#   build/musl  release, static musl: what ships (engine, console, init, synth)
#   build/host  glibc with ASan and UBSan: what the unit tests run
.DEFAULT_GOAL := all
SHELL := /bin/bash
MAKEFLAGS += --no-builtin-rules
JOBS := $(shell nproc)

CACHE ?= $(HOME)/.cache/v4box
MUSL_PREFIX := $(CACHE)/musl/prefix

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
        -Wpointer-arith -Wwrite-strings -Werror
# No contraction: a*b+c is fused only where a kernel says so, or the ISAs would differ by accident.
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -I. -ffp-contract=off $(WARN) -MMD -MP
CFLAGS_MUSL := $(CFLAGS_ALL) -O2 -g -idirafter $(MUSL_PREFIX)/kernel-headers -isystem $(MUSL_PREFIX)/include
CFLAGS_HOST := $(CFLAGS_ALL) -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
LIBS := -ljson-c -lmicrohttpd -lutf8proc -lsodium -lm -lpthread

# Flags by file name: the ISA variants of the CPU kernels.
ISA_FLAGS = $(if $(findstring _avx512.,$(1)),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mfma -mf16c,$(if $(findstring _avx2.,$(1)),-mavx2 -mfma -mf16c,-march=x86-64-v2))

LIB_SRC := $(filter-out engine/main.c,$(wildcard engine/*.c engine/*/*.c kernels/*.c kernels/cpu/*.c))
UNIT_SRC := $(wildcard tests/unit/test_*.c)

MUSL_LIB := build/musl/libv4box.a
HOST_LIB := build/host/libv4box.a
UNIT := $(UNIT_SRC:tests/unit/%.c=build/host/unit/%)

build/musl/%.o: %.c
	@mkdir -p $(@D)
	musl-gcc $(CFLAGS_MUSL) $(call ISA_FLAGS,$<) -c $< -o $@

build/host/%.o: %.c
	@mkdir -p $(@D)
	gcc $(CFLAGS_HOST) $(call ISA_FLAGS,$<) -c $< -o $@

$(MUSL_LIB): $(LIB_SRC:%.c=build/musl/%.o)
	@rm -f $@
	ar rcsD $@ $^

$(HOST_LIB): $(LIB_SRC:%.c=build/host/%.o)
	@rm -f $@
	ar rcsD $@ $^

build/engine: build/musl/engine/main.o $(MUSL_LIB)
	musl-gcc -static $< $(MUSL_LIB) -L$(MUSL_PREFIX)/lib $(LIBS) -o $@

build/synth: build/musl/tools/synth.o $(MUSL_LIB)
	musl-gcc -static $< $(MUSL_LIB) -L$(MUSL_PREFIX)/lib $(LIBS) -o $@

# The same programs with sanitizers, for tests that feed them hostile input.
build/host/engine: build/host/engine/main.o $(HOST_LIB)
	gcc -fsanitize=address,undefined $< $(HOST_LIB) $(LIBS) -o $@

build/host/synth: build/host/tools/synth.o $(HOST_LIB)
	gcc -fsanitize=address,undefined $< $(HOST_LIB) $(LIBS) -o $@

build/host/unit/%: build/host/tests/unit/%.o $(HOST_LIB)
	@mkdir -p $(@D)
	gcc -fsanitize=address,undefined $< $(HOST_LIB) $(LIBS) -lcmocka -o $@

.PHONY: all unit clean
all: build/engine build/synth
unit: $(UNIT)
clean:
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
