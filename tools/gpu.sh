#!/bin/bash
# Checks and times everything on the GPU of this machine:  gpu.sh [--out DIR] [STEP...]
#
#   ops        every operation against the CPU (tests/gpu/ops.c)
#   golden     the golden suites, asked of the worker
#   link       the static engine, whose steps the worker takes (tests/gpu/link.py)
#   serve      the static engine serving through the worker, which is lost in every way (tests/serve/worker.py)
#   bench      the time of every kernel at the published model's size (tools/bench_gpu.c), and of torch's products
#   steps      whole steps by the host's launches and recorded, to the same bits (tools/bench_step.c)
#   tp         ranks: what they take to give each other results, and the same bytes from one rank, several on one GPU
#              and one on each, of weights in a file and made of a seed; then one process of them is killed under load
#   full       the published model's size on all GPUs, its weights made of a seed: load, decode, prompts, power, memory; ranks
#              of every cut, two groups of them under two profiles at once; what ranks take to give each other results,
#              and NCCL; one rank killed
#   sanitize   a part of ops under compute-sanitizer: memory, races, barriers
#
# Runs programs that `make gpu` built, here or on another machine of the same kind; builds nothing.
# Each step prints TAP or a table and has a time limit; logs go to DIR.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
OUT=build/gpu/log
if [ "${1:-}" = --out ]; then
    OUT=$2
    shift 2
fi
mkdir -p "$OUT"
PYTHON=$(command -v python3)
failed=0

step() {
    local name=$1 limit=$2
    shift 2
    timeout "$limit" "$@" >"$OUT/$name.log" 2>&1
    local status=$?
    local bad
    bad=$(grep -c '^not ok' "$OUT/$name.log")
    echo "== $name: status $status, $(grep -c '^ok' "$OUT/$name.log") ok, $bad not ok, $SECONDS s"
    grep -B3 '^not ok' "$OUT/$name.log" | head -60
    if [ "$status" -ne 0 ]; then
        failed=1
        [ "$bad" -gt 0 ] || tail -15 "$OUT/$name.log"
    fi
}

# Cases of few values that together run every kernel: under the sanitizer all takes far longer.
SANITIZED=("linear fp8 small" "linear fp4" "linear bf16 rounded" "rows" "attention csa" "attention bf16 few"
           "attention split" "compressor" "selection edge" "streams" "route hash" "experts few" "linear nvfp4, one" "experts of nvfp4, one")

sanitize() {
    local tool i
    if ! command -v compute-sanitizer >/dev/null; then
        echo "== sanitize: skipped: no compute-sanitizer"
        return
    fi
    for tool in memcheck racecheck synccheck; do
        for i in "${!SANITIZED[@]}"; do
            step "$tool-$i" 120 compute-sanitizer --tool "$tool" --error-exitcode 9 build/gpu/ops "${SANITIZED[$i]}"
        done
    done
}

# What ranks take to give each other results, and NCCL.
gathers() {
    local nccl
    nccl=$("$PYTHON" -c 'import glob, site
print(*[p.rsplit("/", 1)[0] for s in site.getsitepackages() for p in glob.glob(s + "/nvidia/nccl/lib/libnccl.so.2")][:1])')
    step gathers 60 env LD_LIBRARY_PATH="$nccl" NCCL_NVLS_ENABLE=0 build/gpu/ranks "$1"
    cat "$OUT/gathers.log"
}

# A rank on each GPU of this machine; two on the first, and more than there are GPUs.
ranks() {
    local cards
    cards=$(nvidia-smi -L | grep -c '^GPU')
    gathers "$cards"
    step tp-made 60 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks "$cards,2" made
    step tp-one-card 100 env CUDA_VISIBLE_DEVICES=0 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks 2 few
    step tp-cards 150 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks "$cards,8" few
    step tp-serve 120 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks "$cards" chat killed
    grep -h '^# computes\|^ranks:' "$OUT"/tp-*.log | sort | uniq -c
}

# How many ranks a network can have: powers of two up to the GPUs, and eight, which then share the first.
cuts() {
    local n list=8
    for n in 4 2 1; do
        [ "$n" -gt "$1" ] || list="$n,$list"
    done
    echo "$list"
}

# The published model's size, its weights made of a seed, on all GPUs; and what ranks take to give each other results.
full() {
    local cards power
    cards=$(nvidia-smi -L | grep -c '^GPU')
    gathers "$cards"
    nvidia-smi --query-gpu=index,power.draw,memory.used,clocks.sm,temperature.gpu --format=csv,noheader,nounits -lms 500 \
        >"$OUT/full-power.log" 2>&1 &
    power=$!
    step full-steps 150 build/gpu/bench-step flash 43 "$cards"
    kill "$power"
    cat "$OUT/full-steps.log"
    awk -F', *' '{ n[$1]++; p[$1] += $2; if ($2 > top[$1]) top[$1] = $2; if ($3 > mem[$1]) mem[$1] = $3; if ($5 > hot[$1]) hot[$1] = $5 }
        END { for (i in n) printf "GPU %s: %.0f W on average, %.0f W at most, %.1f GiB at most, %d C\n", i, p[i] / n[i], top[i], mem[i] / 1024, hot[i] }' \
        "$OUT/full-power.log" | sort
    step full-ranks 60 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks "$(cuts "$cards")" made few
    step full-groups 40 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --gpus "$cards" groups
    step full-killed 60 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks "$cards" killed
    grep -h '^# computes\|^ranks:\|^ranks [cp]' "$OUT"/full-*.log | sort | uniq -c
}

for name in ${*:-ops golden link serve sanitize bench steps}; do
    case $name in
    ops) step ops 200 build/gpu/ops ;;
    golden) step golden 300 "$PYTHON" tests/gpu/golden.py --engine build/worker ;;
    link) step link 200 "$PYTHON" tests/gpu/link.py ;;
    serve) step serve 200 "$PYTHON" tests/serve/worker.py --worker build/worker chat killed hung load ;;
    tp) ranks ;;
    full) full ;;
    sanitize) sanitize ;;
    bench)
        step bench 200 build/gpu/bench
        step peers 90 "$PYTHON" tools/bench_gpu_peers.py
        cat "$OUT/bench.log" "$OUT/peers.log"
        ;;
    steps)
        step steps-demo 60 build/gpu/bench-step demo
        step steps-flash 120 build/gpu/bench-step flash 37 # layers that one card holds
        cat "$OUT"/steps-*.log
        ;;
    *)
        echo "gpu.sh: no step '$name'"
        exit 2
        ;;
    esac
done
exit $failed
