#!/bin/bash
# The test runner on suites made to fool it: every way of not having tested must come out as a failure.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
number=0 failures=0

# check WHAT SUITE-LINE LAST-LINE STATUS: the runner on that one suite ends so.
check() {
    local what=$1 line=$2 last=$3 want=$4 got status
    number=$((number + 1))
    echo "$line" >"$dir/suites"
    got=$(tests/run.sh --list "$dir/suites" ${5:-} 2>&1)
    status=$?
    if [ "$(tail -1 <<<"$got")" = "$last" ] && [ "$status" -eq "$want" ]; then
        echo "ok $number - $what"
    else
        failures=1
        echo "not ok $number - $what: status $status"
        sed 's/^/# /' <<<"$got"
    fi
}

echo 1..15
check "all good" "a 5 printf '1..2\nok 1 - x\nok 2 - y\n'" "2 passed, 0 failed" 0
check "a failed test" "a 5 printf '1..2\nok 1 - x\nnot ok 2 - y\n'; exit 1" "1 passed, 1 failed" 1
check "a failed test with status 0" "a 5 echo not ok 1 - y" "0 passed, 1 failed" 1
check "a crash after good tests" "a 5 echo ok 1 - x; kill -SEGV \$\$" "1 passed, 1 failed" 1
check "status 1 without a failed test" "a 5 echo ok 1 - x; exit 1" "1 passed, 1 failed" 1
check "no test at all" "a 5 true" "0 passed, 1 failed" 1
check "a short plan" "a 5 printf '1..3\nok 1 - x\n'" "1 passed, 1 failed" 1
check "two plans, both kept" "a 5 printf '1..1\nok 1 - x\n1..1\nok 1 - y\n'" "2 passed, 0 failed" 0
check "a time-out" "a 1 echo ok 1 - x; sleep 30" "1 passed, 1 failed" 1
check "a skipped test is no pass" "a 5 echo 'ok 1 # SKIP no such ISA'" "0 passed, 0 failed" 1
check "no suites" "# nothing" "0 passed, 0 failed" 1
check "an unknown suite" "a 5 echo ok 1 - x" "0 passed, 1 failed" 1 "b"
check "two lanes, both counted" $'a 5 echo ok 1 - x\n+b 5 echo ok 1 - y; echo not ok 2 - z' "2 passed, 1 failed" 1
check "a lane by name" $'a 5 echo ok 1 - x\n+b 5 echo ok 1 - y' "1 passed, 0 failed" 0 b
# Each waits for the other: one after another, both would end by their limits.
check "lanes run beside each other" "a 9 touch $dir/a; until [ -e $dir/b ]; do sleep 0.1; done; echo ok 1 - x
+b 9 touch $dir/b; until [ -e $dir/a ]; do sleep 0.1; done; echo ok 1 - y" "2 passed, 0 failed" 0
exit $failures
