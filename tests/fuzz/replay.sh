#!/bin/bash
# The suite `fuzz`: every target over the inputs that are kept, one process and one test a target.
# Also that a target which finds something is seen to fail.
set -u
cd "$(dirname "$0")/../.."
# All inputs of a target take a second or two.
TARGET_SECONDS=100
failures=0 n=0
report() {
    n=$((n + 1))
    echo "$1 $n - $2"
    [ "$1" = ok ] || failures=1
}

echo "1..$(($(ls tests/fuzz/target_*.c | wc -l) + 1))"
for source in tests/fuzz/target_*.c; do
    target=$(basename "$source" .c)
    target=${target#target_}
    inputs=(tests/fuzz/corpus/"$target"/*)
    if out=$(timeout $TARGET_SECONDS "build/host/fuzz/$target" "${inputs[@]}" 2>&1) && [ -e "${inputs[0]}" ]; then
        report ok "$target: ${#inputs[@]} inputs"
    else
        sed 's/^/# /' <<<"$out" | tail -30
        report "not ok" "$target"
    fi
done
# An input that is not there cannot be tried.
if build/host/fuzz/json tests/fuzz/corpus/nothing >/dev/null 2>&1; then
    report "not ok" "a target that aborts is seen"
else
    report ok "a target that aborts is seen"
fi
exit $failures
