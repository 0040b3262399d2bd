# v4box: builds the image and everything in it; `make help` lists the targets.
#
# Two builds of the same sources:
#   build/musl  release, static musl: what ships (engine, console, init, synth)
#   build/host  glibc with ASan and UBSan: what the unit tests run
# What is not in this tree (config/packages.txt) is built once into CACHE, outside of it.
.DEFAULT_GOAL := all
SHELL := /bin/bash
JOBS := $(shell nproc)
# As many jobs as cores; -j on the command line goes first.
MAKEFLAGS += --no-builtin-rules -j$(JOBS)
# V=1 shows the commands.
Q = $(if $(V),,@echo '  $@';)

CACHE ?= $(HOME)/.cache/v4box
# Not whatever comes first on the path: numpy is Debian's.
PYTHON := /usr/bin/python3
MUSL_PREFIX := build/deps/prefix

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla \
        -Wpointer-arith -Wwrite-strings -Werror
# No contraction: a*b+c is fused only where a kernel says so, or the ISAs would differ by accident.
# Paths are relative and the folder of the build is mapped away: the same bytes from every clone.
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -I. -ffp-contract=off $(WARN) -MMD -MP -ffile-prefix-map=$(CURDIR)=.
CFLAGS_MUSL := $(CFLAGS_ALL) -O2 -g -ffunction-sections -fdata-sections -fstack-protector-strong \
               -idirafter $(MUSL_PREFIX)/kernel-headers -isystem $(MUSL_PREFIX)/include
CFLAGS_HOST := $(CFLAGS_ALL) -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS_MUSL := -static -Wl,--gc-sections -Wl,-z,relro,-z,now -L$(MUSL_PREFIX)/lib
LDFLAGS_HOST := -fsanitize=address,undefined
LIBS := -ljson-c -lmicrohttpd -lutf8proc -lsodium -lm -lpthread

# Flags by file name: the ISA variants of the CPU kernels.
ISA_FLAGS = $(if $(findstring _avx512.,$(1)),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mfma -mf16c,$(if $(findstring _avx2.,$(1)),-mavx2 -mfma -mf16c,-march=x86-64-v2))
# The arithmetic at full optimisation under the sanitizers too, or the golden tests take minutes.
HOST_OPT = $(if $(filter kernels/% engine/model/%,$(1)),-O2,-O1)

# ---- sources ------------------------------------------------------------------------------------
# Two libraries hold everything but the files with a main(); a program links what it uses of its own.
# Both have common/; else the box's own programs know nothing of the engine.  All but the updater and the
# models' link no library of others.
COMMON_SRC := $(wildcard common/*.c)
LIB_SRC := $(COMMON_SRC) $(filter-out engine/main.c,$(wildcard engine/*.c engine/*/*.c kernels/*.c kernels/cpu/*.c))
BOX_SRC := $(COMMON_SRC) $(filter-out init/init.c init/console.c init/heart.c init/updater.c init/tls.c init/kernel.c init/keeper.c init/claimant.c init/keystick.c init/clock.c init/remote.c init/models.c,$(wildcard init/*.c))
UNIT_SRC := $(wildcard tests/unit/test_*.c)
FORMAT_SRC := $(wildcard config/*.h common/*.[ch] engine/*.[ch] engine/*/*.[ch] kernels/*.[ch] kernels/*/*.[ch] \
              kernels/cuda/*.cu kernels/cuda/*.cuh \
              init/*.[ch] tools/*.[ch] tests/*/*.[ch])

MUSL_LIB := build/musl/libv4box.a
HOST_LIB := build/host/libv4box.a
MUSL_BOX := build/musl/libbox.a
HOST_BOX := build/host/libbox.a
UNIT := $(UNIT_SRC:tests/unit/%.c=build/host/unit/%)
PROGRAMS := build/engine build/console build/init build/heart build/updater build/tls build/kernel build/keeper build/claim build/keystick build/clock build/remote build/models build/bundle build/synth

.PHONY: all help image run run-disk stop serve test unit run-unit gpu test-gpu bench-gpu soak-serve audit-faults test-harness bench-tokenizer bench-model bench-mask tidy fuzz fuzz-setup clean setup FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(PROGRAMS) image ## build everything: programs and image (default)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

# ---- compiling ----------------------------------------------------------------------------------
# Objects depend on a file with their flags, rewritten only when these change.
build/musl/flags: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(CFLAGS_MUSL)' || echo '$(CFLAGS_MUSL)' >$@
build/host/flags: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(CFLAGS_HOST)' || echo '$(CFLAGS_HOST)' >$@

build/musl/%.o: %.c build/musl/flags $(MUSL_PREFIX)/packages | setup
	@mkdir -p $(@D)
	$(Q)musl-gcc $(CFLAGS_MUSL) $(call ISA_FLAGS,$<) -c $< -o $@

build/host/obj/%.o: %.c build/host/flags | setup
	@mkdir -p $(@D)
	$(Q)gcc $(CFLAGS_HOST) $(call HOST_OPT,$<) $(call ISA_FLAGS,$<) -c $< -o $@

$(MUSL_LIB): $(LIB_SRC:%.c=build/musl/%.o)
$(HOST_LIB): $(LIB_SRC:%.c=build/host/obj/%.o)
$(MUSL_BOX): $(BOX_SRC:%.c=build/musl/%.o)
$(HOST_BOX): $(BOX_SRC:%.c=build/host/obj/%.o)
# An object that comes or goes makes no other one newer: the list of them is a file, too.
build/members: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(LIB_SRC) $(BOX_SRC)' || echo '$(LIB_SRC) $(BOX_SRC)' >$@
$(MUSL_LIB) $(HOST_LIB) $(MUSL_BOX) $(HOST_BOX): build/members
	@rm -f $@
	$(Q)ar rcsD $@ $(filter %.o,$^)

# ---- programs that ship -------------------------------------------------------------------------
LINK_MUSL = $(Q)musl-gcc $(LDFLAGS_MUSL) $^ $(LIBS) -o $@

build/engine: build/musl/engine/main.o $(MUSL_LIB) ; $(LINK_MUSL)
build/console: build/musl/init/console.o $(MUSL_BOX) ; $(LINK_MUSL)
build/init: build/musl/init/init.o $(MUSL_BOX) ; $(LINK_MUSL)
build/heart: build/musl/init/heart.o $(MUSL_BOX) ; $(LINK_MUSL)
build/keystick: build/musl/init/keystick.o $(MUSL_BOX) ; $(LINK_MUSL)
build/claim: build/musl/init/claimant.o $(MUSL_BOX) ; $(LINK_MUSL)
build/clock: build/musl/init/clock.o $(MUSL_BOX) ; $(LINK_MUSL)
build/remote: build/musl/init/remote.o $(MUSL_BOX) ; $(LINK_MUSL)
build/keeper: build/musl/init/keeper.o $(MUSL_BOX) ; $(LINK_MUSL)
build/kernel: build/musl/init/kernel.o $(MUSL_BOX) ; $(LINK_MUSL)
build/models: build/musl/init/models.o $(MUSL_BOX) ; $(LINK_MUSL)
build/updater: build/musl/init/updater.o $(MUSL_BOX) ; $(LINK_MUSL)
build/tls: build/musl/init/tls.o $(MUSL_BOX)
	$(Q)musl-gcc $(LDFLAGS_MUSL) $^ -lcrypto -lpthread -o $@
build/bundle: build/musl/tools/bundle.o $(MUSL_BOX) ; $(LINK_MUSL)
build/synth: build/musl/tools/synth.o $(MUSL_LIB) ; $(LINK_MUSL)
# Does not ship, but must be built as what ships.
build/bench-tokenizer: build/musl/tools/bench_tokenizer.o $(MUSL_LIB) ; $(LINK_MUSL)
build/bench-model: build/musl/tools/bench_model.o $(MUSL_LIB) ; $(LINK_MUSL)
build/bench-mask: build/musl/tools/bench_mask.o $(MUSL_LIB) ; $(LINK_MUSL)
build/bench-serve: build/musl/tools/bench_serve.o $(MUSL_LIB) ; $(LINK_MUSL)
build/saboteur: build/musl/tests/boot/saboteur.o ; $(LINK_MUSL)
test: build/saboteur
build/schedules: build/musl/tests/serve/schedules.o $(MUSL_LIB) ; $(LINK_MUSL)
build/bench-step-cpu: build/musl/tools/bench_step.o build/musl/tests/gpu/bench_cpu.o $(MUSL_LIB) ; $(LINK_MUSL)
build/faulty: build/musl/tests/serve/faulty.o $(MUSL_LIB) ; $(LINK_MUSL)

# Its answers have no end but their length.
build/bench-api: build/musl/tools/bench_api.o $(MUSL_LIB)
	$(Q)musl-gcc $(LDFLAGS_MUSL) -Wl,--wrap=engine_submit $^ $(LIBS) -o $@
# For tests: what ships, but for who speaks.
build/engine-scripted: build/musl/tests/scripted/main.o $(MUSL_LIB)
	$(Q)musl-gcc $(LDFLAGS_MUSL) -Wl,--wrap=engine_submit -Wl,--wrap=mask_vocab_create $^ $(LIBS) -o $@
test: build/engine-scripted

# ---- the worker: the same sources for glibc, with the GPU's backend -------------------------------
# Only libcuda.so.1 (opened at run time) and glibc are dynamic.  CUDA's compiler is not in Debian:
# without it nothing here is built.  C++ without its library, so that C links it.  A thread for each kind of GPU.
NVCC := $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc))
CUDA_LIB := $(NVCC:/bin/nvcc=/lib64)
NVFLAGS := --threads 2 -std=c++20 -O3 -I. -fmad=false -Werror all-warnings -Xptxas -v \
           -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_120f,code=sm_120f \
           -Xcompiler -Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
CFLAGS_GPU := $(CFLAGS_ALL) -O2 -g -ffunction-sections -fdata-sections
CUDA_SRC := $(wildcard kernels/cuda/*.cu)
WORKER_SRC := $(wildcard kernels/worker/*.c)
GPU_PROGRAMS := build/worker build/gpu/ops build/gpu/bench build/gpu/bench-step build/gpu/ranks
gpu: $(if $(NVCC),$(GPU_PROGRAMS)) ## build the worker and its tests, if CUDA's nvcc is there
	@$(if $(NVCC),,echo "skipped: no nvcc")

build/gpu/%.o: %.c build/gpu/flags | setup
	@mkdir -p $(@D)
	$(Q)gcc $(CFLAGS_GPU) $(call ISA_FLAGS,$<) -c $< -o $@
build/gpu/%.cu.o: %.cu $(wildcard kernels/cuda/*.cuh kernels/cuda/*.h) kernels/backend.h kernels/tensor.h
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVFLAGS) -c $< -o $@ 2>$@.log || { cat $@.log; exit 1; }
build/gpu/flags: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(CFLAGS_GPU)' || echo '$(CFLAGS_GPU)' >$@
build/gpu/libv4box.a: $(patsubst %.c,build/gpu/%.o,$(filter common/% engine/base/% engine/model/% engine/precision/% kernels/%,$(LIB_SRC)))
	@rm -f $@
	$(Q)ar rcsD $@ $^
build/gpu/libcuda-kernels.a: $(CUDA_SRC:%=build/gpu/%.o)
	@rm -f $@
	$(Q)ar rcsD $@ $^
LINK_GPU = $(Q)gcc -Wl,--gc-sections -Wl,--start-group $^ -Wl,--end-group -L$(CUDA_LIB) -Wl,-Bstatic -lcudart_static -ljson-c -lsodium \
           -Wl,-Bdynamic -lm -ldl -lrt -lpthread -o $@
build/worker: $(WORKER_SRC:%.c=build/gpu/%.o) build/gpu/libv4box.a build/gpu/libcuda-kernels.a ; $(LINK_GPU)
build/gpu/ops: build/gpu/tests/gpu/ops.o build/gpu/tests/gpu/alone.o build/gpu/tests/gpu/spans.o build/gpu/tests/gpu/picks.o build/gpu/libv4box.a build/gpu/libcuda-kernels.a ; $(LINK_GPU)
build/gpu/bench: build/gpu/tools/bench_gpu.o build/gpu/libv4box.a build/gpu/libcuda-kernels.a ; $(LINK_GPU)
build/gpu/bench-step: build/gpu/tools/bench_step.o build/gpu/libv4box.a build/gpu/libcuda-kernels.a ; $(LINK_GPU)
build/gpu/tools/bench_ranks.o: CFLAGS_GPU += -I$(CUDA_LIB:/lib64=/include)
build/gpu/ranks: build/gpu/tools/bench_ranks.o build/gpu/libv4box.a build/gpu/libcuda-kernels.a ; $(LINK_GPU)

# ---- the same with sanitizers, for tests --------------------------------------------------------
LINK_HOST = $(Q)gcc $(LDFLAGS_HOST) $^ $(LIBS) -o $@

build/host/engine: build/host/obj/engine/main.o $(HOST_LIB) ; $(LINK_HOST)
build/host/console: build/host/obj/init/console.o $(HOST_BOX) ; $(LINK_HOST)
build/host/remote: build/host/obj/init/remote.o $(HOST_BOX) ; $(LINK_HOST)
build/host/clock: build/host/obj/init/clock.o $(HOST_BOX) ; $(LINK_HOST)
build/host/synth: build/host/obj/tools/synth.o $(HOST_LIB) ; $(LINK_HOST)
build/host/mask-driver: build/host/obj/tests/mask/driver.o $(HOST_LIB) ; $(LINK_HOST)
test: build/host/mask-driver
build/host/schedules: build/host/obj/tests/serve/schedules.o $(HOST_LIB) ; $(LINK_HOST)
build/host/trace: build/host/obj/tests/serve/trace.o $(HOST_LIB)
	$(Q)gcc $(LDFLAGS_HOST) $^ $(LIBS) -lcmocka -o $@
test: build/host/trace

build/host/unit/test_init_%: build/host/obj/tests/unit/test_init_%.o $(HOST_BOX)
	@mkdir -p $(@D)
	$(Q)gcc $(LDFLAGS_HOST) $^ -lsodium -lcrypto -lcmocka -o $@

# The one part of the worker that needs no GPU, and a library for it to find.
build/host/unit/test_nvml: build/host/obj/tests/unit/test_nvml.o build/host/obj/kernels/worker/nvml.o $(HOST_LIB) | build/host/unit/nvml.so
	$(Q)gcc $(LDFLAGS_HOST) $^ $(LIBS) -lcmocka -o $@
build/host/unit/nvml.so: tests/gpu/nvml.c
	@mkdir -p $(@D)
	$(Q)gcc $(CFLAGS_ALL) -shared -fPIC $< -o $@

build/host/unit/%: build/host/obj/tests/unit/%.o $(HOST_LIB)
	@mkdir -p $(@D)
	$(Q)gcc $(LDFLAGS_HOST) $^ $(LIBS) -lcmocka -o $@

# ---- fuzzing: clang for the engine that makes inputs; make test replays what it found by gcc ------
CFLAGS_FUZZ := $(CFLAGS_ALL) -g -O1 -fsanitize=fuzzer-no-link,address,undefined \
               -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ := $(patsubst tests/fuzz/target_%.c,%,$(wildcard tests/fuzz/target_*.c))
FUZZ_LIB := build/fuzz/libv4box.a
FUZZ_BOX := build/fuzz/libbox.a

build/fuzz/flags: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(CFLAGS_FUZZ)' || echo '$(CFLAGS_FUZZ)' >$@

build/fuzz/obj/%.o: %.c build/fuzz/flags | fuzz-setup
	@mkdir -p $(@D)
	$(Q)clang-14 $(CFLAGS_FUZZ) $(call ISA_FLAGS,$<) -c $< -o $@

# The arithmetic parses nothing, and clang 14 does not know all of its CPU features.
build/fuzz/obj/kernels/%.o: kernels/%.c build/fuzz/flags | fuzz-setup
	@mkdir -p $(@D)
	$(Q)gcc $(CFLAGS_ALL) -g -O1 $(call ISA_FLAGS,$<) -c $< -o $@

$(FUZZ_LIB): $(LIB_SRC:%.c=build/fuzz/obj/%.o)
$(FUZZ_BOX): $(BOX_SRC:%.c=build/fuzz/obj/%.o)
$(FUZZ_LIB) $(FUZZ_BOX): build/members
	@rm -f $@
	$(Q)ar rcsD $@ $(filter %.o,$^)

$(FUZZ:%=build/fuzz/%): build/fuzz/%: build/fuzz/obj/tests/fuzz/target_%.o $(FUZZ_LIB) $(FUZZ_BOX)
	$(Q)clang-14 -fsanitize=fuzzer,address,undefined $^ $(LIBS) -o $@

$(FUZZ:%=build/host/fuzz/%): build/host/fuzz/%: build/host/obj/tests/fuzz/target_%.o \
                             build/host/obj/tests/fuzz/replay.o $(HOST_LIB) $(HOST_BOX)
	@mkdir -p $(@D)
	$(LINK_HOST)
test: $(FUZZ:%=build/host/fuzz/%)

fuzz-setup: setup
	@tools/setup.sh config/fuzz-packages.txt

# ---- what comes from Debian ---------------------------------------------------------------------
setup: ## install the Debian packages that this machine lacks
	@tools/setup.sh

# Rewritten only when another build of a library went in.
$(MUSL_PREFIX)/packages: config/packages.txt $(wildcard tools/deps/*.sh) | setup
	@tools/deps/prefix.sh $(CACHE) $(MUSL_PREFIX)

# ---- the image ----------------------------------------------------------------------------------
ROOTFS_SRC := $(shell find rootfs -type f) config/kernel.txt tools/kernel_config.sh config/modules.list config/packages.txt config/busybox.config \
              config/dropbear.h config/front.cfg config/disk.txt config/update.pub tools/config_fs.py tools/image.sh tools/modules.sh $(wildcard tools/deps/*.sh)

image: build/v4box.img ## assemble kernel, initramfs, bill of materials and the disk

# Makes all four files; the others are never older.
build/v4box-initramfs.cpio.zst: build/engine build/console build/init build/heart build/updater build/tls build/kernel build/keeper build/claim build/keystick build/clock build/remote build/models build/driver $(if $(DRIVER),build/gpu.root) $(ROOTFS_SRC) | setup
	@tools/image.sh $(CACHE) build

# SECURE=DIR signs the system for Secure Boot with the keys in DIR; they are made when there are none.
build/secure: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(SECURE)' || echo '$(SECURE)' >$@

build/v4box.efi: build/v4box-initramfs.cpio.zst config/cmdline.txt config/version.h tools/uki.sh tools/secure.sh build/secure
	@$(if $(SECURE),tools/secure.sh $(SECURE))
	@tools/uki.sh $(CACHE) build $(SECURE)

# The secret half of config/update.pub; that of this tree is published with its tests.
UPDATE_SECRET ?= tests/data/update/development.key

# DRIVER=NVIDIA-Linux-x86_64-VERSION.run adds a GPU payload, made of it and of WORKER; without one
# there is none, also where an earlier build had one.
DRIVER_PINS ?= config/drivers.txt
WORKER ?= build/worker
build/driver: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(DRIVER) $(WORKER)' || { rm -f build/gpu.img build/gpu.root; echo '$(DRIVER) $(WORKER)' >$@; }
build/gpu.root: build/driver build/secure $(if $(DRIVER),$(DRIVER) $(DRIVER_PINS) $(WORKER) config/payload.txt tools/payload.sh tools/deps/headers.sh)
	@tools/setup.sh config/payload-host-packages.txt
	@$(if $(SECURE),tools/secure.sh $(SECURE))
	@tools/payload.sh $(CACHE) build $(DRIVER) $(DRIVER_PINS) $(WORKER) $(SECURE)

build/v4box.img: build/v4box.efi build/bundle config/disk.txt tools/disk.sh
	@tools/disk.sh build $(UPDATE_SECRET)

# With the GPU payload of a build with a driver; LEAN=1 leaves it out, for boxes that have it already.
PAYLOAD = $(if $(DRIVER),$(if $(LEAN),,--payload build/gpu.img))
build/lean: FORCE
	@mkdir -p $(@D); cmp -s $@ - <<<'$(LEAN)' || echo '$(LEAN)' >$@
build/v4box.update: build/v4box.efi build/bundle build/lean
	@build/bundle sign --secret $(UPDATE_SECRET) --program $< $(PAYLOAD) --out $@

.PHONY: update check-update test-update
update: build/v4box.update ## a signed update: ssh admin@BOX update <build/v4box.update

run: build/v4box-initramfs.cpio.zst ## boot the image in QEMU with the demo model; prints URL, key and a curl line
	@tools/run.sh run

run-disk: image ## boot build/run/disk.img, made from build/v4box.img once, by its firmware
	@mkdir -p build/run
	@[ -e build/run/disk.img ] || cp --sparse=always build/v4box.img build/run/disk.img
	@tools/run.sh run --disk build/run/disk.img

stop: ## end the box that `make run` started
	@tools/run.sh stop

serve: build/engine ## run the same engine on this machine, without QEMU
	@tools/run.sh serve

# ---- checking -----------------------------------------------------------------------------------
unit: $(UNIT) ## build the unit tests

run-unit: unit ## build and run the unit tests alone
	@tests/run.sh unit

# SUITES="name name" runs only these.
test: all unit build/host/engine build/host/console build/host/remote build/host/clock build/host/synth build/schedules build/host/schedules build/faulty build/bench-step-cpu ## run every suite of tests/suites
	@tests/run.sh $(SUITES)

# Requests through each of three networks; about ten minutes on one core.
SOAK_REQUESTS ?= 2000
soak-serve: build/schedules build/synth ## random schedules through the serving core, bit for bit
	@tests/serve/run.sh $(SOAK_REQUESTS)

# Not a suite of `make test`: memory is judged once the caches are full, so minutes say little.
SOAK_SECONDS ?= 3600
.PHONY: soak-clients
soak-clients: build/engine ## random clients over HTTP for an hour: nothing is lost, nothing is kept
	@/usr/bin/python3 tests/serve/soak_clients.py $(SOAK_SECONDS)

# Not a suite of `make test`: it needs a GPU.
test-gpu: gpu build/engine build/synth ## check the GPU backend and the worker on the GPU of this machine
	@tools/gpu.sh

# Not a suite of `make test`: a search for each of forty builds takes half an hour.
audit-faults: build/engine ## plant defects in engines of their own and see what the audit makes of them
	@/usr/bin/python3 tests/audit/planted.py --json build/audit/planted.json

# Not a suite of `make test`: an emulated processor takes its time.
.PHONY: test-audit-image
test-audit-image: all ## audits inside the booted image, on the serial line and over SSH
	@$(PYTHON) tests/audit/image.py

# Not a suite of `make test`: it fetches a browser of 64 MB.
.PHONY: test-report
test-report: build/engine ## open the page of an audit's report in a real browser
	@tools/setup.sh config/browser-packages.txt
	@$(PYTHON) tests/audit/test_page.py

# Not a suite of `make test`: it measures.
.PHONY: bench-audit
bench-audit: build/engine build/console ## what an audit beside traffic costs, and that it changes no answer
	@$(PYTHON) tests/audit/bench_box.py

# Not a suite of `make test`: it takes minutes.
.PHONY: test-load
test-load: build/engine ## hostile load on the API: 10,000 connections, slow clients, bodies of 32 MiB
	@tests/api/run.sh --part load

.PHONY: inventory
inventory: build/engine ## what eight well-known shortcuts cost and buy on the embedded model, as a table
	@$(PYTHON) tools/inventory.py

# Not a suite of `make test`: it fetches 400 MB, and takes ten minutes and more.  HARNESS_FLAGS=--slow also
# waits for longer than harnesses do, 320 s each.
HARNESS_FLAGS ?=
test-harness: build/engine build/engine-scripted ## let real agent harnesses (opencode, Claude Code) work with the box, offline
	@tests/harness/run.sh opencode.js
	@tests/harness/run.sh stories.js $(HARNESS_FLAGS)
	@tests/harness/run.sh overflow.js

bench-tokenizer: build/bench-tokenizer ## tokens a second on C sources, beside the Rust tokenizer of npm
	@tests/text/prepare.sh
	@taskset -c 0 node tests/text/bench.mjs $< build/tokenizer/v4.json $(FORMAT_SRC)

bench-mask: build/bench-mask ## time of token masks on the vocabulary of V4
	@tests/text/prepare.sh
	@taskset -c 0 $< build/tokenizer/v4.json

# One thread computes: threads that wait for each other at a step would use time that is nobody's work.
.PHONY: bench-api
bench-api: build/bench-api ## what streaming costs: 1, 16 and 128 clients against the serving core itself
	@$< rootfs/models/demo 1 2>/dev/null

bench-model: build/bench-model ## tokens a second of the network, for each instruction set
	@$< rootfs/models/demo $(JOBS)

.PHONY: bench-llama
bench-llama: build/bench-model build/engine ## our engine beside llama.cpp on the embedded model, one thread, in turns
	@[ -d tools/llama/node_modules/@node-llama-cpp ] || npm ci --prefix tools/llama --ignore-scripts --no-audit --no-fund >&2
	@$(PYTHON) tools/llama/bench.py build/engine build/bench-model rootfs/models/demo build/llama

bench-serve: build/bench-serve ## ratios of the serving core: guesses, batches, cached turns, mixed load
	@$< rootfs/models/demo tests/data/golden/demo-cases.json $(JOBS)

bench-gpu: gpu ## time of every kernel and of whole steps on the GPU at the published model's size
	@build/gpu/bench
	@build/gpu/bench-step demo
	@build/gpu/bench-step flash 37

check-image: all build/host/engine ## test the image as a file
	@tests/image/test_image.sh $(CACHE)

check-disk: all ## test the disk as a file
	@tests/image/test_disk.sh $(CACHE)

check-update: all build/saboteur ## one good update of the box and one that falls back
	@$(PYTHON) tests/boot/update.py $(CACHE)

test-update: all build/saboteur ## every way an update can end, and 20 power cuts; about half an hour
	@$(PYTHON) tests/boot/update.py $(CACHE) all

.PHONY: test-models
test-models: all ## a second model sent to the box, cut off, tried, served; five minutes
	@$(PYTHON) tests/boot/models.py serve

# Not a suite of `make test`: it builds modules, an image of its own, and boots it three times.
.PHONY: test-payload
test-payload: all ## a GPU payload of a made-up driver: built, mounted, served from, damaged; five minutes
	@tools/setup.sh config/payload-host-packages.txt
	@$(PYTHON) tests/boot/payload.py $(CACHE)

.PHONY: test-power
test-power: all build/saboteur ## 20 power cuts during key writes, and 20 during updates
	@$(PYTHON) tests/boot/disk.py power
	@$(PYTHON) tests/boot/update.py $(CACHE) cuts

# Not a suite of `make test`: ten proofs and fourteen boots of an emulated machine; an hour where two cores are free.
# PROFILE_TESTS="name name" runs only these of switch, cuts, full.
PROFILE_TESTS ?=
.PHONY: test-profiles
test-profiles: all ## nine profiles switched on the serial line of a box that serves; power cuts; a full disk
	@$(PYTHON) tests/precision/box.py $(PROFILE_TESTS)

soak-power: all ## 50 power cuts during key writes, a new seed each time
	@$(PYTHON) tests/boot/disk.py soak

# FUZZ_TARGETS="name name" fuzzes only these.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(FUZZ)
fuzz: $(FUZZ:%=build/fuzz/%) ## fuzz every parser of hostile input, FUZZ_SECONDS each, one after another
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

tidy: | setup ## check format and file lengths of all C
	@tools/tidy.sh $(FORMAT_SRC)

clean: ## remove build/ (the cache outside the tree stays)
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
