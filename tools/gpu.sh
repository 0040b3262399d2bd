#!/bin/bash
# Checks and times everything on the GPUs of this machine:  gpu.sh [--out DIR] [--plan GPUS] [STEP...]
#
#   ops        every operation against the CPU (tests/gpu/ops.c)
#   golden     the golden suites, asked of the worker
#   link       the static engine, whose steps the worker takes (tests/gpu/link.py)
#   serve      the static engine serving through the worker, which is lost in every way (tests/serve/worker.py)
#   gauges     what the console says of the GPUs is what nvidia-smi says
#   bench      the time of every kernel at the published model's size (tools/bench_gpu.c), and of torch's products
#   steps      whole steps by the host's launches and recorded, to the same bits (tools/bench_step.c)
#   tp         ranks: what they take to give each other results, and NCCL; one that does not come; the same bytes from one
#              rank, several on one GPU and one on each, of weights in a file and made of a seed, and from groups of them
#              in every cut at once; two groups that serve two profiles, and two of one engine; a process of them killed under load
#   full       the published model's size, its weights made of a seed, in every cut of the GPUs: load, decode, prompts,
#              power, memory; a process of all of them killed under load
#   sanitize   a part of ops under compute-sanitizer: memory, races, barriers
#
# Runs programs that `make gpu` built, here or on another machine of the same kind; builds nothing.
# Each step prints TAP or a table and has a time limit; logs go to DIR.  --plan prints what would run on so many GPUs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
OUT=build/gpu/log
if [ "${1:-}" = --out ]; then
    OUT=$2
    shift 2
fi
PLAN=
if [ "${1:-}" = --plan ]; then
    PLAN=1 CARDS=$2
    shift 2
else
    CARDS=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
fi
mkdir -p "$OUT"
PYTHON=$(command -v python3)
failed=0

step() {
    local name=$1 limit=$2
    shift 2
    if [ -n "$PLAN" ]; then
        echo "$name: $*"
        return
    fi
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
    return "$status"
}

# The same for a table.
table() {
    step "$@"
    local status=$?
    [ -n "$PLAN" ] || cat "$OUT/$1.log"
    return "$status"
}

# Cases of few values that together run every kernel: under the sanitizer all takes far longer.
SANITIZED=("linear fp8 small" "linear fp4" "linear bf16 rounded" "linear tall" "rows" "attention csa"
           "attention bf16 few" "attention split" "compressor" "selection edge" "streams" "route hash" "experts few"
           "experts by rows, short" "linear nvfp4, one" "experts of nvfp4, one" "mixed" "picks: one block and" "picks: 77")

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
    table gathers 60 env LD_LIBRARY_PATH="$nccl" NCCL_NVLS_ENABLE=0 build/gpu/ranks "$1"
}

# A rank on each GPU of this machine and in every cut of it; two on the first, and more than there are GPUs.
ranks() {
    gathers "$CARDS"
    step missing 20 bash -c 'timeout 10 build/gpu/ranks "$0" missing 2>&1 | grep "has not come within 1000 ms" && echo "ok 1 - who does not come is named"' \
        "$CARDS"
    step tp-made 60 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks "$CARDS,2" made
    step tp-one-card 100 env CUDA_VISIBLE_DEVICES=0 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks 2 few
    step tp-cards 150 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --ranks "$({ cuts 2; echo 8; } | sort -nu | paste -sd,)" few
    step tp-groups 60 "$PYTHON" tests/golden/test_ranks.py --engine build/worker --gpus "$CARDS" groups
    step tp-profiles 60 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks $(((CARDS + 1) / 2)) --gpus "$CARDS" groups
    step tp-several 60 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks $(((CARDS + 1) / 2)) --gpus "$CARDS" several
    step tp-serve 120 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks "$CARDS" chat killed
}

# Ranks that a network can have on these GPUs, from so many on: powers of two.
cuts() {
    local n
    for ((n = $1; n <= CARDS; n *= 2)); do
        echo "$n"
    done
}

# What a group of ranks on GPUs of its own does with the published size.
size() {
    local first=$1 ranks=$2
    table "full-$ranks-at-$first" 170 env CUDA_VISIBLE_DEVICES="$(seq -s, "$first" $((first + ranks - 1)))" \
        build/gpu/bench-step flash 43 "$ranks"
}

# The published model's size, its weights made of a seed: in every cut of the GPUs, all groups of it at once.
full() {
    local ranks first pids pid power
    for ranks in $(cuts 2 | sort -rn); do
        power=$(power_begin)
        pids=()
        for ((first = 0; first < CARDS; first += ranks)); do
            size "$first" "$ranks" &
            pids+=($!)
        done
        for pid in "${pids[@]}"; do
            wait "$pid" || failed=1
        done
        power_end "$power"
    done
    step full-killed 150 "$PYTHON" tests/serve/worker.py --worker build/worker --ranks "$CARDS" --gpus "$CARDS" size
    [ -n "$PLAN" ] || grep '^#' "$OUT/full-killed.log"
}

# What all GPUs take, looked at twice a second.
power_begin() {
    [ -z "$PLAN" ] || return
    nvidia-smi --query-gpu=index,power.draw,memory.used,clocks.sm,temperature.gpu --format=csv,noheader,nounits -lms 500 \
        >"$OUT/full-power.log" 2>&1 &
    echo $!
}
power_end() {
    [ -n "$1" ] || return
    kill "$1"
    awk -F', *' '{ n[$1]++; p[$1] += $2; if ($2 > top[$1]) top[$1] = $2; if ($3 > mem[$1]) mem[$1] = $3; if ($5 > hot[$1]) hot[$1] = $5 }
        END { for (i in n) printf "GPU %s: %.0f W on average, %.0f W at most, %.1f GiB at most, %d C\n", i, p[i] / n[i], top[i], mem[i] / 1024, hot[i] }' \
        "$OUT/full-power.log" | sort
}

for name in ${*:-ops golden link serve gauges sanitize bench steps}; do
    case $name in
    ops) step ops 200 build/gpu/ops ;;
    golden) step golden 300 "$PYTHON" tests/gpu/golden.py --engine build/worker ;;
    link) step link 200 "$PYTHON" tests/gpu/link.py ;;
    serve) step serve 200 "$PYTHON" tests/serve/worker.py --worker build/worker chat killed hung load ;;
    gauges) step gauges 60 "$PYTHON" tests/serve/worker.py --worker build/worker --gpus "$CARDS" gauges ;;
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
