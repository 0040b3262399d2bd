#!/bin/bash
# Real agent harnesses against the program that ships, in a network of loopback alone, so that they can
# reach nothing but the engine.  run.sh FILE [flags of FILE]
set -euo pipefail
cd "$(dirname "$0")/../.."
# need FOLDER PACKAGE: what its lock file names, once.
need() {
    [ -d "$1/node_modules/$2" ] || npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund >&2
}
need tests/api ai
need tests/harness @anthropic-ai/claude-code-linux-x64
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone=(unshare --map-root-user --net)
exec "${alone[@]}" bash -c 'ip link set lo up && exec node --test-reporter=tap "tests/harness/$@"' harness "$@"
