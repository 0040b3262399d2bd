#!/bin/bash
# Checks and times everything on the GPU of this machine:  gpu.sh [--out DIR] [STEP...]
#
#   ops        every operation against the CPU (tests/gpu/ops.c)
#   golden     the golden suites, asked of the worker
#   link       the static engine, whose steps the worker takes (tests/gpu/link.py)
#   serve      the static engine serving through the worker, which is lost in every way (tests/serve/worker.py)
#   bench      the time of every kernel at the published model's size (tools/bench_gpu.c)
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

for name in ${*:-ops golden link serve sanitize bench}; do
    case $name in
    ops) step ops 200 build/gpu/ops ;;
    golden) step golden 300 "$PYTHON" tests/gpu/golden.py --engine build/worker ;;
    link) step link 200 "$PYTHON" tests/gpu/link.py ;;
    serve) step serve 200 "$PYTHON" tests/serve/worker.py --worker build/worker chat killed hung load ;;
    sanitize) sanitize ;;
    bench)
        step bench 200 build/gpu/bench
        cat "$OUT/bench.log"
        ;;
    *)
        echo "gpu.sh: no step '$name'"
        exit 2
        ;;
    esac
done
exit $failed
