#!/bin/bash
# Makes the one file that the firmware starts:  uki.sh CACHE OUT_DIR [KEYS]
#
#   OUT_DIR/v4box.efi   EFI stub + command line + initramfs without models + kernel
#
# from OUT_DIR/v4box-vmlinuz, OUT_DIR/v4box-base.cpio.zst and, of a build with a driver, the line of
# OUT_DIR/gpu.root: an update is checked by it (init/uki.h).  The same inputs give the same bytes,
# the signature of Secure Boot included: KEYS is a folder made by tools/secure.sh.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
CACHE=$1 OUT=$2 KEYS=${3:-}
. "$ROOT/tools/deps/lib.sh"
# A page: the stub maps nothing itself, but the firmware may protect sections by pages.
ALIGN=4096
# Three must fit into the ESP with room to spare, and an update travels over slow lines.
SIZE_MAX=16777216
# What the signature says of its time; firmware does not look at it.
SIGN_TIME="2026-01-01 00:00:00"

version=$(sed -n 's/^#define V4BOX_VERSION "\(.*\)"/\1/p' "$ROOT/config/version.h")
stub=$("$ROOT/tools/deps/stub.sh" "$CACHE")/linuxx64.efi.stub
dir=$OUT/uki
rm -rf "$dir"
mkdir -p "$dir"
printf 'ID=v4box\nVERSION_ID=%s\nPRETTY_NAME="v4box %s"\n' "$version" "$version" >"$dir/osrel"
sed 's/#.*//' "$ROOT/config/cmdline.txt" | xargs | tr -d '\n' >"$dir/cmdline"
cp "$OUT/v4box-base.cpio.zst" "$dir/initrd"
cp "$OUT/v4box-vmlinuz" "$dir/linux"

# Behind the last section of the stub, one after the other.
address=0
while read -r size start; do
    end=$((0x$start + 0x$size))
    [ $end -le $address ] || address=$end
done < <(objdump -h "$stub" | awk '$1 ~ /^[0-9]+$/ { print $3, $4 }')
[ $address -gt 0 ] || die "$stub: no sections"
arguments=()
parts="osrel cmdline initrd linux"
if [ -f "$OUT/gpu.root" ]; then
    cp "$OUT/gpu.root" "$dir/gpuroot"
    parts+=" gpuroot"
fi
for section in $parts; do
    address=$(((address + ALIGN - 1) / ALIGN * ALIGN))
    arguments+=(--add-section ".$section=$dir/$section"
        --change-section-vma ".$section=$(printf 0x%x "$address")")
    address=$((address + $(stat -c %s "$dir/$section")))
done
# The time in the header stays the stub's.
objcopy --preserve-dates "${arguments[@]}" "$stub" "$dir/v4box.efi"
if [ -n "$KEYS" ]; then
    # It warns that the sections are not one right behind the other; the firmware does not mind.
    TZ=UTC faketime -f "$SIGN_TIME" sbsign --key "$KEYS/key.pem" --cert "$KEYS/cert.pem" --output "$dir/signed.efi" "$dir/v4box.efi" 2>"$dir/log" ||
        { cat "$dir/log" >&2; die "v4box.efi could not be signed with the keys in $KEYS"; }
    mv "$dir/signed.efi" "$dir/v4box.efi"
fi
size=$(stat -c %s "$dir/v4box.efi")
[ "$size" -le $SIZE_MAX ] || die "v4box.efi has $size bytes, the limit is $SIZE_MAX"
touch "$dir/v4box.efi" # and the file's, which make reads, is that of the build
mv "$dir/v4box.efi" "$OUT/v4box.efi"
rm -rf "$dir"
printf '  %-24s %9d bytes\n' v4box.efi "$size"
