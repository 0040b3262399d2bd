#!/bin/bash
# Prints the folder with the EFI stub that makes one bootable file of kernel, command line and
# initramfs, unpacked from its pinned package:  stub.sh CACHE
# Nothing is installed.  The folder holds linuxx64.efi.stub and copyright.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=$1
. "$ROOT/tools/deps/lib.sh"

name=systemd-boot-efi
line=$(pin "$name") || exit 1
dest=$CACHE/pkg/$name-$(sha256sum <<<"$line" | cut -c1-16)
mkdir -p "$CACHE/pkg"
exec 9>"$CACHE/pkg/$name.lock"
flock 9
if [ ! -d "$dest" ]; then
    download=$(fetch "$name") || exit 1
    rm -rf "$dest.part"
    mkdir -p "$dest.part/deb"
    dpkg-deb -x "$(fetched_file "$download")" "$dest.part/deb"
    mv "$dest.part/deb/usr/lib/systemd/boot/efi/linuxx64.efi.stub" "$dest.part/"
    mv "$dest.part/deb/usr/share/doc/$name/copyright" "$dest.part/"
    rm -rf "$dest.part/deb"
    mv "$dest.part" "$dest"
fi
echo "$dest"
