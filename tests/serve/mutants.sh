#!/bin/bash
# The suite `serve-mutants`: builds the network that the schedules run on, then see mutants.py.
set -eu
cd "$(dirname "$0")/../.."
tests/serve/network.sh
exec /usr/bin/python3 tests/serve/mutants.py "$@"
