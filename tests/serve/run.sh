#!/bin/bash
# Random schedules through the serving core, each compared bit for bit with a cold timeline alone:
#   tests/serve/run.sh [SOAK]     SOAK: so many requests through each network instead
# The seed of a run is printed; the same seed is the same run.  Prints TAP.
set -eu
cd "$(dirname "$0")/../.."
SOAK=${1:-}
NANO=build/serve/nano
DEMO=rootfs/models/demo

tests/serve/network.sh
status=0
if [ -n "$SOAK" ]; then
    seed=$RANDOM
    build/schedules $NANO official $seed "$SOAK" || status=1
    build/schedules $NANO reference $seed "$SOAK" || status=1
    build/schedules $DEMO official $seed "$SOAK" || status=1
    exit $status
fi
build/schedules $NANO official 1 90 || status=1
build/schedules $NANO reference 4 60 || status=1
build/schedules $DEMO official 7 60 || status=1
build/schedules $NANO official 2 14 build/engine || status=1 # another process computes
build/host/schedules $NANO official 4 12 || status=1 # with sanitizers
exit $status
