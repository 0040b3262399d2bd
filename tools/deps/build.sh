#!/bin/bash
# Builds pinned packages for musl, or finds them in the cache:  build.sh CACHE NAME...
# Prints one folder a package: the folder that its recipe (tools/deps/NAME.sh) installed into.
#
# A recipe sets INPUTS (files of this tree that shape the result) and defines build(), which runs in
# the unpacked source with $OUT, $JOBS, $ROOT, $MUSL_CC and $MUSL_CFLAGS set.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=$1; shift
. "$ROOT/tools/deps/lib.sh"

JOBS=$(nproc)
KERNEL_HEADERS=$CACHE/kernel-headers
# musl-gcc sees no kernel headers at all; last on the path, so that musl's own always win.
MUSL_CC="musl-gcc -idirafter $KERNEL_HEADERS"
MUSL_CFLAGS="-O2 -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=0"

kernel_headers() {
    mkdir -p "$KERNEL_HEADERS"
    ln -sfn /usr/include/linux "$KERNEL_HEADERS/linux"
    ln -sfn /usr/include/asm-generic "$KERNEL_HEADERS/asm-generic"
    ln -sfn "/usr/include/$(uname -m)-linux-gnu/asm" "$KERNEL_HEADERS/asm"
}

# Hash of everything that shapes the result of a recipe whose INPUTS are already read.
recipe_key() {
    {
        pin "$1"
        (cd "$ROOT" && sha256sum tools/deps/build.sh "tools/deps/$1.sh" $INPUTS)
        dpkg-query -W -f '${Package} ${Version}\n' musl-dev gcc binutils
    } | sha256sum | cut -c1-16
}

build_one() (
    name=$1
    pin "$name" >/dev/null
    INPUTS=
    . "$ROOT/tools/deps/$name.sh"
    dest=$CACHE/pkg/$name-$(recipe_key "$name")
    exec 9>"$CACHE/pkg/$name.lock"
    flock 9
    if [ ! -d "$dest" ]; then
        work=$CACHE/work/$name
        rm -rf "$work" "$dest.part"
        mkdir -p "$CACHE/work" "$dest.part"
        unpack_source "$name" "$work/src"
        echo "building $name for musl" >&2
        OUT=$dest.part
        # File names inside the result must not tell where it was built.
        MUSL_CFLAGS+=" -ffile-prefix-map=$work/src=$name"
        # Not in the condition of an if: bash would switch -e off inside the recipe.
        set +e
        (set -e; cd "$work/src"; build) >"$work/log" 2>&1
        status=$?
        set -e
        if [ "$status" -ne 0 ]; then
            tail -40 "$work/log" >&2
            die "$name did not build; the whole log is $work/log"
        fi
        mv "$dest.part" "$dest"
        rm -rf "$work"
    fi
    echo "$dest"
)

mkdir -p "$CACHE/pkg"
kernel_headers
for name in "$@"; do
    build_one "$name"
done
