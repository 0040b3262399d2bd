#!/bin/bash
# The suite `api`: the real clients and curl against the program that ships.
# run.sh [flags of run.js]; with --url URL --key KEY against a server that runs already.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -d tests/api/node_modules/ai ] || npm ci --prefix tests/api --no-audit --no-fund >&2
exec node --test-reporter=tap tests/api/run.js "$@"
