#!/bin/bash
# A real agent harness against the program that ships, in a network of loopback alone, so that it can
# reach nothing but the engine.  run.sh [flags of opencode.js]
set -euo pipefail
cd "$(dirname "$0")/../.."
for folder in tests/api tests/harness; do
    [ -d "$folder/node_modules" ] || npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund >&2
done
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone=(unshare --map-root-user --net)
exec "${alone[@]}" bash -c 'ip link set lo up && exec node --test-reporter=tap tests/harness/opencode.js "$@"' opencode "$@"
