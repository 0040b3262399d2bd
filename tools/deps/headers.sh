#!/bin/bash
# Unpacks the headers of the pinned kernel into the cache and prints the folder:  headers.sh CACHE
# Nothing is installed.  FOLDER/usr/src/linux-headers-RELEASE is what modules are built against, and
# FOLDER/usr/src/linux-headers-RELEASE-common (without -amd64) what Debian shares among flavours.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=$1
. "$ROOT/tools/deps/lib.sh"

name=$(awk '$1 == "deb" && $2 ~ /^linux-image-/ { print $2; exit }' "$PINS")
[ -n "$name" ] || die "config/packages.txt: no linux-image package"
release=${name#linux-image-}
PINS=$ROOT/config/payload-packages.txt
packages="linux-headers-$release linux-headers-${release%-amd64}-common linux-kbuild-6.1"
lines=$(for package in $packages; do pin "$package"; done) || exit 1
dest=$CACHE/pkg/linux-headers-$release-$(sha256sum <<<"$lines" | cut -c1-16)
mkdir -p "$CACHE/pkg"
exec 9>"$CACHE/pkg/linux-headers-$release.lock"
flock 9
if [ ! -d "$dest" ]; then
    rm -rf "$dest.part"
    mkdir -p "$dest.part"
    for package in $packages; do
        download=$(fetch "$package") || exit 1
        dpkg-deb -x "$(fetched_file "$download")" "$dest.part"
    done
    # The one place with an absolute path.
    echo "include $dest/usr/src/linux-headers-${release%-amd64}-common/Makefile" \
        >"$dest.part/usr/src/linux-headers-$release/Makefile"
    mv "$dest.part" "$dest"
fi
echo "$dest"
