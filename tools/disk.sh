#!/bin/bash
# Makes the disk that boots by itself:  disk.sh OUT_DIR UPDATE_SECRET
#
#   OUT_DIR/v4box.img   GPT with the partitions of config/disk.txt; a sparse file
#
# from OUT_DIR/v4box.efi, rootfs/models and, of a build with a driver, OUT_DIR/gpu.img; both slots hold the same system with its signed header.  Needs no root: file systems are filled as files.  The same
# inputs give the same bytes: every id is derived from a name, every time is FILE_TIME.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
OUT=$(realpath "$1") SECRET=$2
TABLE=$ROOT/config/disk.txt MODELS=$ROOT/rootfs/models
FILE_TIME=1767225600 # 2026-01-01, as in the initramfs
SECTORS_OF_MIB=2048 MIB=1048576
# As UUIDs are made from names: a hash, cut to length.
uuid_of() { sha256sum <<<"v4box $1" | sed -E 's/^(.{8})(.{4})(.{4})(.{4})(.{12}).*/\1-\2-\3-\4-\5/'; }

die() { echo "disk.sh: $*" >&2; exit 1; }

# Of "MIB/MIB" the second is that of a build with a driver.
size_of() {
    [ -f "$OUT/gpu.img" ] && echo "${1#*/}" || echo "${1%/*}"
}

# The table with these sizes: LABEL MIB TYPE CONTENT.
partitions() {
    local label mib type content
    while read -r label mib type content; do
        case $label in '' | '#'*) continue ;; esac
        echo "$label $(size_of "$mib") $type $content"
    done <"$TABLE"
}

# Both slots have the same.
fill_gpu() { # FILE
    [ -f "$OUT/gpu.img" ] || return 0
    [ "$(stat -c %s "$OUT/gpu.img")" -le "$(stat -c %s "$1")" ] || die "gpu.img is larger than its partition"
    dd if="$OUT/gpu.img" of="$1" bs=1M conv=notrunc,sparse status=none
}

# Copies into a FAT file system; mtools takes its times from SOURCE_DATE_EPOCH or the files.
fill_fat() { # FILE
    mkfs.vfat --invariant -F 32 -s 1 -i "$(uuid_of esp | cut -c1-8)" -n ESP "$1" >/dev/null
    mmd -i "$1" ::/EFI ::/EFI/BOOT ::/EFI/v4box
    # The fallback is what firmware without boot entries starts.  Updates write over files that are
    # there already, so that a power cut never meets a change of the table: both slots are full.
    mcopy -m -i "$1" "$dir/v4box.efi" ::/EFI/BOOT/BOOTX64.EFI
    for slot in a b; do
        mcopy -m -i "$1" "$dir/v4box.efi" ::/EFI/v4box/$slot.efi
        mcopy -m -i "$1" "$dir/v4box.hdr" ::/EFI/v4box/$slot.hdr
    done
}

# debugfs writes files one by one; only so the times are ours (mke2fs -d keeps each ctime).
fill_models() { # FILE
    local name
    # A model has few and large files, and the partition may grow a thousandfold: few inodes a group.
    mke2fs -q -F -t ext4 -b 4096 -N 256 -O ^orphan_file,^metadata_csum_seed -m 0 -L models \
        -U "$(uuid_of models)" -E "hash_seed=$(uuid_of hash),lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0" "$1"
    (
        cd "$MODELS"
        find . -mindepth 1 -type d -printf '%P\n' | LC_ALL=C sort | sed 's/^/mkdir /'
        find . -type f -printf '%P\n' | LC_ALL=C sort | sed 's/.*/write & &/'
        find . -type f -printf 'sif %P mode 0100444\nsif %P uid 0\nsif %P gid 0\n' | LC_ALL=C sort
    ) >"$dir/commands"
    (cd "$MODELS" && debugfs -w -f "$dir/commands" "$1") >"$dir/debugfs.log" 2>&1
    for name in $(cd "$MODELS" && find . -type f -printf '%P\n'); do
        debugfs -R "cat $name" "$1" 2>/dev/null | cmp -s - "$MODELS/$name" ||
            { cat "$dir/debugfs.log" >&2; die "models: $name did not get in"; }
    done
}

make_disk() {
    local label mib type content start=1 image=$dir/v4box.img
    partitions >"$dir/partitions"
    {
        echo "label: gpt"
        echo "label-id: $(uuid_of disk)"
        while read -r label mib type content; do
            echo "start=$((start * SECTORS_OF_MIB)), size=$((mib * SECTORS_OF_MIB)), type=$type, name=$label, uuid=$(uuid_of "partition $label")"
            start=$((start + mib))
        done <"$dir/partitions"
    } >"$dir/table"
    # One MiB each for the two copies of the table.
    truncate -s $((($(awk '{ sum += $2 } END { print sum }' "$dir/partitions") + 2) * MIB)) "$image"
    sfdisk -q "$image" <"$dir/table"
    start=1
    while read -r label mib type content; do
        if [ "$content" != blank ]; then
            truncate -s "${mib}M" "$dir/$label"
            "fill_$content" "$dir/$label"
            dd if="$dir/$label" of="$image" bs=1M seek=$start conv=notrunc,sparse status=none
        fi
        start=$((start + mib))
    done <"$dir/partitions"
    mv "$image" "$OUT/v4box.img"
}

dir=$OUT/disk
rm -rf "$dir"
mkdir -p "$dir"
export SOURCE_DATE_EPOCH=$FILE_TIME E2FSPROGS_FAKE_TIME=$FILE_TIME TZ=UTC MTOOLS_SKIP_CHECK=1
cp "$OUT/v4box.efi" "$dir/v4box.efi"
"$ROOT/build/bundle" sign --secret "$SECRET" --program "$dir/v4box.efi" --out "$dir/v4box.hdr" --header-only
touch -d "@$FILE_TIME" "$dir/v4box.efi" "$dir/v4box.hdr"
make_disk
rm -rf "$dir"
printf '  %-24s %9d bytes, %d on disk\n' v4box.img "$(stat -c %s "$OUT/v4box.img")" \
    "$(du -B1 "$OUT/v4box.img" | cut -f1)"
