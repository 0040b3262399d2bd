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
mkdir -p "$(dirname "$OUT")"
# Two builds of one tree may run at once.
exec 9>"$OUT.lock"
flock 9
if [ -f "$OUT/packages" ] && [ "$(cat "$OUT/packages")" = "$names" ]; then
    exit 0
fi
rm -rf "$OUT.part" "$OUT.old"
mkdir -p "$OUT.part/lib"
for dir in $built; do
    cp -r "$dir/include" "$OUT.part/"
    cp "$dir"/lib/*.a "$OUT.part/lib/"
done
cp -rd "$CACHE/kernel-headers" "$OUT.part/kernel-headers"
echo "$names" >"$OUT.part/packages"
[ ! -d "$OUT" ] || mv "$OUT" "$OUT.old"
mv "$OUT.part" "$OUT"
rm -rf "$OUT.old"
