#!/bin/bash
# Runs every unit test program and prints their TAP.  They are built by `make unit`.
set -u
cd "$(dirname "$0")/../.." || exit 1
# One program; the slowest takes a tenth of this under the sanitizers.
PROGRAM_SECONDS=240
failures=0

export CMOCKA_MESSAGE_OUTPUT=TAP
for source in tests/unit/test_*.c; do
    name=$(basename "$source" .c)
    echo "# $name"
    out=$(timeout --kill-after=10 $PROGRAM_SECONDS "build/host/unit/$name" 2>&1)
    status=$?
    echo "$out"
    if [ "$status" -ne 0 ]; then
        failures=1
        # A crash says nothing in TAP; a test that failed has said so itself.
        grep -q '^not ok' <<<"$out" || echo "not ok - $name ended with status $status"
    fi
done
exit $failures
