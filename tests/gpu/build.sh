#!/bin/bash
# Compiles the GPU backend and the worker where CUDA's compiler is, and sees how the worker ends where
# no GPU is, what would run on eight, and that the bench of steps runs.  What needs a GPU is in
# tools/gpu.sh.  Prints TAP.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
echo 1..5
# Who has so many GPUs is told what would run there: every cut of them, each group on GPUs of its own.
what="gpu.sh plans eight GPUs as one group of eight, two of four and four of two"
plan=$(tools/gpu.sh --plan 8 full | sed -n 's/.*DEVICES=\([0-9,]*\) .* \([0-9]*\)$/\2: \1/p' | sort | paste -sd' ')
if [ "$plan" = "2: 0,1 2: 2,3 2: 4,5 2: 6,7 4: 0,1,2,3 4: 4,5,6,7 8: 0,1,2,3,4,5,6,7" ]; then
    echo "ok 1 - $what"
else
    echo "# $plan"
    echo "not ok 1 - $what"
    exit 1
fi
what="whole steps are timed, here without a GPU: the same bits twice"
tests/serve/network.sh
steps=$(build/bench-step-cpu demo build/serve/nano quick 2>&1)
if [ $? -eq 0 ] && grep -q '^  1 sequences, one token each: .*: the same bits; ' <<<"$steps"; then
    echo "ok 2 - $what"
else
    echo "# $steps"
    echo "not ok 2 - $what"
    exit 1
fi
out=$(env MAKEFLAGS= make --no-print-directory gpu 2>&1)
status=$?
if grep -q '^skipped: no nvcc' <<<"$out"; then
    echo "ok 3 - the GPU backend compiles # SKIP no nvcc"
    echo "ok 4 - the worker without a GPU # SKIP no nvcc"
    echo "ok 5 - an engine's worker without a GPU # SKIP no nvcc"
    exit 0
fi
if [ "$status" -eq 0 ]; then
    echo "ok 3 - the GPU backend compiles"
else
    tail -20 <<<"$out"
    echo "not ok 3 - the GPU backend compiles"
    exit 1
fi
what="without a GPU the worker ends with status 2 and one line that says so"
if [ -e /dev/nvidia0 ]; then
    echo "ok 4 - $what # SKIP a GPU is here"
    echo "ok 5 - an engine's worker without a GPU # SKIP a GPU is here"
    exit 0
fi
ids=$(mktemp)
trap 'rm -f "$ids"' EXIT
echo '[1, 2]' >"$ids"
err=$(build/worker logits --model rootfs/models/demo --ids "$ids" --profile official 2>&1 >/dev/null)
status=$?
if [ "$status" -eq 2 ] && [ "$(wc -l <<<"$err")" -eq 1 ] && grep -q 'GPU 0: no GPU' <<<"$err"; then
    echo "ok 4 - $what"
else
    echo "# status $status: $err"
    echo "not ok 4 - $what"
    exit 1
fi
what="an engine tells in its worker's words why that does not serve"
err=$(build/engine logits --model rootfs/models/demo --ids "$ids" --profile official --worker build/worker 2>&1 >/dev/null)
status=$?
if [ "$status" -eq 1 ] && grep -q 'engine logits: the worker .*GPU 0: no GPU' <<<"$err"; then
    echo "ok 5 - $what"
else
    echo "# status $status: $err"
    echo "not ok 5 - $what"
    exit 1
fi
