#!/bin/bash
# Fuzzes the targets one after another:  run.sh SECONDS TARGET...   Built by `make fuzz`.
# New inputs are collected in build/fuzz/corpus; a finding ends the run and is named.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1
shift
# What an input may cost: twenty times what the largest takes under the sanitizers.
INPUT_SECONDS=10
# What the address sanitizer holds back of freed memory is 256 MiB, the tables of a vocabulary are 100;
# beyond it, or with one piece so large, memory has no bound.
RSS_MB=2048
PIECE_MB=256
# Inputs beyond it find little more and are slow.
BYTES_MAX=8192

for target in "$@"; do
    seeds=tests/fuzz/corpus/$target found=build/fuzz/corpus/$target log=build/fuzz/$target.log
    mkdir -p "$found" build/fuzz/findings
    words=()
    [ ! -e "tests/fuzz/$target.dict" ] || words=("-dict=tests/fuzz/$target.dict")
    if ! "build/fuzz/$target" "$found" "$seeds" "${words[@]}" -max_total_time="$seconds" -timeout=$INPUT_SECONDS \
        -rss_limit_mb=$RSS_MB -malloc_limit_mb=$PIECE_MB -max_len=$BYTES_MAX -print_final_stats=1 \
        -artifact_prefix="build/fuzz/findings/$target-" 2>"$log"; then
        tail -40 "$log"
        echo "fuzz $target: a finding, see $log and build/fuzz/findings"
        exit 1
    fi
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
    # "#N DONE cov: EDGES ft: FEATURES corp: INPUTS/.."
    covered=$(sed -n 's/.*DONE *cov: \([0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/\1 edges, \2 features, \3 inputs/p' "$log")
    echo "fuzz $target: $executions executions in $seconds s, $covered, $peak MiB, no finding"
done
