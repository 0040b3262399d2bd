#!/bin/bash
# Runs the suites of tests/suites, or only those named:  tests/run.sh [--list FILE] [SUITE...]
#
# Counts the TAP lines of each.  A suite is only believed when it ended by itself, with status 0 or
# with failures of its own, having run what its plan promised: a crash, a time-out, no test at all or
# a short plan counts as one more failure, under the suite's name.  Skipped tests count as neither.
# Suites named `+NAME` run one after another beside the others: they mostly wait for an emulated machine.
# The last line is `N passed, N failed`; the exit status is 1 when anything failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
LIST=tests/suites
if [ "${1:-}" = --list ]; then
    LIST=$2
    shift 2
fi
OUT=build/test
# After the first signal of a time-out, how long a suite may take to end its children.
KILL_AFTER=20

# Reads the TAP file $1; prints "passed failed skipped planned", planned = - without a plan.
tap_count() {
    awk '/^[ \t]*1\.\.[0-9]+/ { sub(/^[ \t]*1\.\./, ""); planned += $1; plans++ }
         /^(ok|not ok)( |$)/ { if (/# *SKIP/) skipped++; else if (/^ok/) passed++; else failed++ }
         END { printf "%d %d %d %s\n", passed, failed, skipped, plans ? planned : "-" }' "$1"
}

# Why the suite that ended with status $1 is not to be believed; empty when it is.
distrust() {
    local status=$1 passed=$2 failed=$3 skipped=$4 planned=$5 limit=$6
    if [ "$status" -eq 124 ]; then
        echo "did not end within $limit s"
    elif [ "$status" -ge 128 ]; then
        echo "was ended by signal $((status - 128)) (its limit is $limit s)"
    elif [ $((passed + failed + skipped)) -eq 0 ]; then
        echo "ran no test (exit status $status)"
    elif [ "$planned" != - ] && [ "$planned" -ne $((passed + failed + skipped)) ]; then
        echo "planned $planned tests, ran $((passed + failed + skipped))"
    elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        echo "ended with status $status without a failed test"
    fi
}

# Runs a suite and reports it whole, in one go, so that the two lanes do not mix; what it counted goes to $COUNTS.
run_suite() {
    local name=$1 limit=$2 command=$3 out=$OUT/$1.tap start=$SECONDS
    local status reason passed failed skipped planned
    timeout --kill-after=$KILL_AFTER "$limit" bash -c "$command" >"$out" 2>&1 </dev/null
    status=$?
    read -r passed failed skipped planned <<<"$(tap_count "$out")"
    reason=$(distrust "$status" "$passed" "$failed" "$skipped" "$planned" "$limit")
    if [ -n "$reason" ]; then
        failed=$((failed + 1))
    fi
    {
        flock 9
        if [ "$failed" -gt 0 ]; then
            sed 's/^/    /' "$out"
        fi
        printf '%-20s %4d passed %3d failed %3d skipped %5d s%s\n' "$name" "$passed" "$failed" "$skipped" \
            $((SECONDS - start)) "${reason:+   not ok $name: $reason}"
        echo "$name $passed $failed" >&9
    } 9>>"$COUNTS"
}

selected() {
    [ ${#wanted[@]} -eq 0 ] && return 0
    local w
    for w in "${wanted[@]}"; do
        [ "$w" = "$1" ] && return 0
    done
    return 1
}

# The suites of lane $1 (`+` or nothing), in the order of the list.
run_lane() {
    local lane=$1 name limit command
    while read -r name limit command; do
        case $name in '' | '#'*) continue ;; +*) [ "$lane" = + ] || continue ;; *) [ -z "$lane" ] || continue ;; esac
        if selected "${name#+}"; then
            run_suite "${name#+}" "$limit" "$command"
        fi
    done <"$LIST"
}

wanted=("$@")
mkdir -p "$OUT"
COUNTS=$(mktemp "$OUT/counts.XXXXXX")
trap 'rm -f "$COUNTS"' EXIT
run_lane + &
run_lane ""
wait
for name in "${wanted[@]}"; do
    if ! grep -q "^$name " "$COUNTS"; then
        echo "not ok $name: no such suite in $LIST"
        echo "$name 0 1" >>"$COUNTS"
    fi
done
awk '{ passed += $2; failed += $3 }
     END { printf "%d passed, %d failed\n", passed, failed; exit failed > 0 || passed == 0 }' "$COUNTS"
