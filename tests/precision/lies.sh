#!/bin/bash
# The suite `profile-lies`: builds the network that the proofs run on, then see lies.py.
set -eu
cd "$(dirname "$0")/../.."
tests/serve/network.sh
exec /usr/bin/python3 tests/precision/lies.py "$@"
