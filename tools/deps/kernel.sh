#!/bin/bash
# Unpacks the pinned kernel package into the cache and prints the folder:  kernel.sh CACHE
# Nothing is installed.  The folder holds vmlinuz, config, copyright, and modules/ as Debian lays it out.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=$1
. "$ROOT/tools/deps/lib.sh"

name=$(awk '$1 == "deb" && $2 ~ /^linux-image-/ { print $2; exit }' "$PINS")
[ -n "$name" ] || die "config/packages.txt: no linux-image package"
release=${name#linux-image-}
line=$(pin "$name") || exit 1
dest=$CACHE/pkg/$name-$(cat - "$0" <<<"$line" | sha256sum | cut -c1-16)
mkdir -p "$CACHE/pkg"
exec 9>"$CACHE/pkg/$name.lock"
flock 9
if [ ! -d "$dest" ]; then
    download=$(fetch "$name") || exit 1
    rm -rf "$dest.part"
    mkdir -p "$dest.part/deb"
    dpkg-deb -x "$(fetched_file "$download")" "$dest.part/deb"
    mv "$dest.part/deb/boot/vmlinuz-$release" "$dest.part/vmlinuz"
    mv "$dest.part/deb/boot/config-$release" "$dest.part/config"
    mv "$dest.part/deb/lib/modules/$release" "$dest.part/modules"
    mv "$dest.part/deb/usr/share/doc/$name/copyright" "$dest.part/copyright"
    rm -rf "$dest.part/deb"
    # depmod wants the folder under lib/modules of some root.
    mkdir -p "$dest.part/lib/modules"
    ln -s ../../modules "$dest.part/lib/modules/$release"
    depmod -b "$dest.part" "$release"
    mv "$dest.part" "$dest"
fi
echo "$dest"
