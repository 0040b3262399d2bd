#!/bin/bash
# That every test which the table names is there:  conformance.sh [TABLE]   One test a number, and one that a
# name which is nowhere is missed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
table=${1:-tests/conformance}
failures=0 number='' what='' missing='' named=0

# Says how the number before came out.
report() {
    [ -n "$number" ] || return 0
    if [ -z "$missing" ] && [ "$named" -gt 0 ]; then
        echo "ok $number - $what"
    else
        echo "not ok $number - $what"
        echo "# not there: ${missing:-a test}"
        failures=1
    fi
}

[ $# -gt 0 ] || echo "1..$(($(grep -c '^[0-9]' "$table") + 1))"
while IFS= read -r line; do
    case $line in
    '' | '#'*) ;;
    [0-9]*)
        report
        number=${line%% *} what=${line#* } missing='' named=0
        ;;
    *)
        line=${line#"${line%%[! ]*}"}
        named=$((named + 1))
        grep -qF -- "${line#*: }" "${line%%: *}" 2>/dev/null || missing+="$line; "
        ;;
    esac
done <"$table"
report
if [ $# -eq 0 ]; then
    nowhere=$(printf '1 one\n    tests/conformance: %s' "no""where")
    if "$0" <(echo "$nowhere") >/dev/null; then
        echo "not ok $((number + 1)) - a name that is nowhere is missed"
        failures=1
    else
        echo "ok $((number + 1)) - a name that is nowhere is missed"
    fi
fi
exit $failures
