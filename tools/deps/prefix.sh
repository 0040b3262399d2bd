#!/bin/bash
# Lays the musl libraries that our programs link against into one folder:  prefix.sh CACHE OUT
# OUT gets include/, lib/ (static libraries only), kernel-headers/ and `packages`, which names the
# builds that went in and is rewritten only when they change, so that objects may depend on it.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=$1 OUT=$2
. "$ROOT/tools/deps/lib.sh"

built=$("$ROOT/tools/deps/build.sh" "$CACHE" $LIBRARIES)
names=$(basename -a $built)
if [ -f "$OUT/packages" ] && [ "$(cat "$OUT/packages")" = "$names" ]; then
    exit 0
fi
rm -rf "$OUT"
mkdir -p "$OUT/lib"
for dir in $built; do
    cp -r "$dir/include" "$OUT/"
    cp "$dir"/lib/*.a "$OUT/lib/"
done
cp -rd "$CACHE/kernel-headers" "$OUT/kernel-headers"
echo "$names" >"$OUT/packages"
