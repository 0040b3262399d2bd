#!/bin/bash
# Checks the form of C sources:  tidy.sh FILE...   Prints TAP, one test a rule.
# Format is clang-format's; file length and the calls that this tree does without are checked here.
set -u
LINES_MAX=800
# getenv: nothing is configured behind the operator's back.  The others know no bound on what they
# write, or fail by killing the process.
BANNED='\b(getenv|secure_getenv|strcat|sprintf|vsprintf|gets|alloca)[[:space:]]*\('
# The environment is how udhcpc hands over what it learnt, and dropbear what a client asked for that
# has a forced command; nothing else there reads it.
# Tests may: they choose what they write.
BANNED_EXCEPT='^init/network\.c:[0-9]+:.*getenv\(|^init/console\.c:[0-9]+:.*getenv\("SSH_|^tests/'
failures=0

# report NUMBER WHAT FINDINGS: a rule holds when there are no findings.
report() {
    if [ -z "$3" ]; then
        echo "ok $1 - $2"
    else
        echo "not ok $1 - $2"
        sed 's/^/# /' <<<"$3"
        failures=1
    fi
}

echo 1..6
report 1 "clang-format changes nothing" "$(clang-format --dry-run -Werror "$@" 2>&1 | grep -E ': error:' | cut -d: -f1 | sort | uniq -c)"
report 2 "no file has more than $LINES_MAX lines" "$(wc -l "$@" | awk -v m=$LINES_MAX '$2 != "total" && $1 > m')"
report 3 "no banned call" "$(grep -nE "$BANNED" "$@" | grep -vE "$BANNED_EXCEPT")"
report 4 "every file opens with a comment" "$(for f in "$@"; do head -c 2 "$f" | grep -q '^/\*' || echo "$f"; done)"
report 5 "every kernel variant is a value of config/precision.def, and answers for it" "$(/usr/bin/python3 tools/precision_rows.py 2>&1)"
report 6 "control: a variant or a row that is taken away is missed" "$(/usr/bin/python3 tools/precision_rows.py control 2>&1)"
exit $failures
