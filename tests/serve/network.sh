#!/bin/bash
# Writes the small random network of the golden tests to build/serve/nano, once.
set -eu
cd "$(dirname "$0")/../.."
TO=build/serve/nano
[ ! -e $TO/config.json ] || exit 0
mkdir -p build/serve
rm -rf $TO.part
build/synth tests/data/golden/nano.json $TO.part --seed 1 >build/serve/synth.log
mv $TO.part $TO
