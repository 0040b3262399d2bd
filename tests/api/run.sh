#!/bin/bash
# The suite `api`: the real clients and curl against the program that ships, in a network of loopback alone,
# so that they can reach nothing but the engine.
# run.sh [flags of run.js]; with --url URL --key KEY against a server that runs already, where it runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -d tests/api/node_modules/ai ] || npm ci --prefix tests/api --no-audit --no-fund >&2
run=(node --test-reporter=tap tests/api/run.js "$@")
case " $* " in
*" --url "*) exec "${run[@]}" ;;
esac
tests/api/promtool.sh >/dev/null # what is fetched is fetched before there is no network
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone=(unshare --map-current-user --keep-caps --net)
"${alone[@]}" true 2>/dev/null || exec "${run[@]}" # a machine that makes no networks tests what it can
exec "${alone[@]}" bash -c 'ip link set lo up && exec "$@"' api "${run[@]}"
