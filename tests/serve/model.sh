#!/bin/bash
# The suite `serve-model`: spin tries every order of events in tests/serve/queue.pml.  Prints TAP.
#   safety     no assertion fails and nobody is stuck, whenever the engine is stopped
#   liveness   while it runs for ever, every request that was taken ends
#   trace      the model can do what the engine was seen doing
# Each fault of the model must be found by the first two, each spoilt trace by the last.
set -u
cd "$(dirname "$0")/../.." || exit 1
TRACE_EVENTS=600
OUT=build/serve/spin
status=0
number=0

# build DIR SPIN-FLAGS GCC-FLAGS: the verifier of the model, in DIR
build() {
    cp tests/serve/queue.pml "$1"/ && cd "$1" &&
        spin $2 -a queue.pml >spin.log 2>&1 && gcc -O1 -w $3 -DVECTORSZ=4096 -o pan pan.c
}

# verdict DIR ARGUMENTS: runs the verifier; prints "none" or "some" errors, "followed" for a trace,
# or what went wrong
verdict() (
    cd "$1" || exit 1
    ./pan $2 -m400000 -w20 >pan.log 2>&1
    if grep -q 'max search depth too small' pan.log; then
        echo "no verdict: the search was cut"
    elif grep -q 'assertion violated (seen<' pan.log; then
        echo followed
    elif grep -q 'errors: 0' pan.log; then
        echo none
    elif grep -q 'errors: [1-9]' pan.log; then
        echo some
    else
        echo "no verdict: $(tail -1 spin.log) $(tail -1 pan.log)"
    fi
)

# expect DIR SPIN-FLAGS GCC-FLAGS ARGUMENTS ERRORS WHAT
expect() {
    local got
    mkdir -p "$OUT/$1"
    (build "$OUT/$1" "$2" "$3") || echo "no verifier" >"$OUT/$1/pan.log"
    got=$(verdict "$OUT/$1" "$4")
    number=$((number + 1))
    if [ "$got" = "$5" ]; then
        echo "ok $number - $6"
    else
        echo "not ok $number - $6: errors: $got"
        status=1
    fi
}

safety() { expect "safety-$1" "-DWRONG=$1 -DFOREVER=0" "-DSAFETY -DNOCLAIM" "" "$2" "$3"; }
# fairness is over four processes, the claim and init
liveness() { expect "liveness-$1" "-DWRONG=$1 -DFOREVER=1" "-DNOREDUCE -DNFAIR=3" "-a -f" "$2" "$3"; }

# trace DIR ERRORS WHAT [FAULT]: what the engine was seen doing, or, with FAULT, could not have done
trace() {
    mkdir -p "$OUT/$1"
    # shellcheck disable=SC2086
    build/host/trace "$SEED" "$TRACE_EVENTS" ${4:-} >"$OUT/$1/trace.h" || return
    local patience
    patience=$(sed -n 's/#define TRACE_PATIENCE //p' "$OUT/$1/trace.h")
    expect "$1" "-DTRACE -DFOREVER=0 -DPATIENCE=$patience" "-DSAFETY" "-E" "$2" "$3"
}

echo 1..12
safety 0 none "every request ends once, and nothing is left when the engine stops"
liveness 0 none "every request that was taken ends, however many more important ones come"
safety 1 some "a record that stays taken is seen"
liveness 2 some "priorities without patience are seen"
safety 3 some "a place that is not the chosen one is seen"
liveness 4 some "an engine that sleeps while somebody waits is seen"
safety 5 some "an end that tells nobody is seen"
liveness 6 some "ends without bound, which keep the others from their step, are seen"
SEED=${1:-$RANDOM}
trace trace followed "the model follows the engine through $TRACE_EVENTS events (seed $SEED)"
trace trace-start none "a start of the wrong request is seen" start
trace trace-end none "a request without an end is seen" end
trace trace-refuse none "a request that is refused while there is room is seen" refuse
exit $status
