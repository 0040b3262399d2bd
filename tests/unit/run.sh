#!/bin/bash
# Runs every unit test program, as many at a time as there are processors, and prints their TAP in the
# order of their names.  They are built by `make unit`.
set -u
cd "$(dirname "$0")/../.." || exit 1
# One program; the slowest takes a tenth of this under the sanitizers.
export PROGRAM_SECONDS=240
export CMOCKA_MESSAGE_OUTPUT=TAP
export OUT=build/test/unit
rm -rf $OUT
mkdir -p $OUT

run() {
    timeout --kill-after=10 $PROGRAM_SECONDS "build/host/unit/$1" >"$OUT/$1" 2>&1
    local status=$?
    # A crash says nothing in TAP; a test that failed has said so itself.
    [ "$status" -eq 0 ] || grep -q '^not ok' "$OUT/$1" ||
        echo "not ok - $1 ended with status $status" >>"$OUT/$1"
    return $status
}
export -f run

basename -s .c tests/unit/test_*.c | xargs -P "$(nproc)" -I NAME bash -c 'run NAME'
failures=$?
for source in tests/unit/test_*.c; do
    name=$(basename "$source" .c)
    echo "# $name"
    cat "$OUT/$name"
done
exit $failures
