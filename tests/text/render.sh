#!/bin/bash
# The suite `render`: `engine render` from outside, with both builds.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/text/prepare.sh
exec /usr/bin/python3 tests/text/test_render.py build/host/engine build/engine build/tokenizer/v4.json
