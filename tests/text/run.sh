#!/bin/bash
# The suite `tokenizer`: golden ids and thousands of generated texts against the Rust implementation,
# with the program that ships.  run.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/text/prepare.sh
exec node tests/text/differential.mjs build/engine "${1:-1}"
