#!/bin/bash
# The disk as a file: reproducible, partitioned as the table says, holding what was built; and tables it
# must refuse.  Boots nothing.  Usage: test_disk.sh CACHE
set -u
cd "$(dirname "$0")/../.." || exit 1
CACHE=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
number=0 failures=0
MIB=1048576 UKI_MAX=16777216 SECRET=tests/data/update/development.key

# result STATUS WHAT [DETAIL]: one TAP line.
result() {
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        sed 's/^/# /' <<<"${3:-}"
        failures=1
    fi
}

# Cuts partition $1 out of disk $2 into file $3.
cut_partition() {
    local start size
    read -r start size < <(sfdisk -d "$2" | sed -n "s/.*start= *\([0-9]*\), size= *\([0-9]*\),.*name=\"$1\".*/\1 \2/p")
    dd if="$2" of="$3" bs=512 skip="$start" count="$size" conv=sparse status=none
}

# What differs between the models on partition file $1 and those of the tree.
wrong_models() {
    local name
    (cd rootfs/models && find . -type f -printf '%P\n') | while read -r name; do
        debugfs -R "cat $name" "$1" 2>/dev/null | cmp -s - "rootfs/models/$name" || echo "$name"
    done
}

check_again() {
    mkdir "$dir/again"
    cp build/v4box-vmlinuz build/v4box-base.cpio.zst "$dir/again/"
    (umask 077; TZ=Asia/Tokyo tools/uki.sh "$CACHE" "$dir/again" >/dev/null)
    cmp build/v4box.efi "$dir/again/v4box.efi"
    result $? "a second build of the EFI program gives the same bytes"
    (umask 077; TZ=Asia/Tokyo tools/disk.sh "$dir/again" $SECRET >/dev/null)
    cmp build/v4box.img "$dir/again/v4box.img"
    result $? "so does one of the disk"
}

check_template() {
    local image=$dir/config
    sleep 1 # a clock that got in would show
    /usr/bin/python3 tools/config_fs.py "$dir/config.fs" && cmp "$dir/config.fs" build/config.fs &&
        cmp build/config.fs build/image/root/etc/config.fs
    result $? "the template of the config partition is made again the same"
    # Unpacked by a reader of its own, from the format in init/format.h.
    /usr/bin/python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
blocks, records = struct.unpack("<II", data[8:16])
with open(sys.argv[2], "wb") as f:
    f.truncate(blocks * 4096)
    for i in range(records):
        at = 16 + i * 4100
        f.seek(struct.unpack("<I", data[at:at + 4])[0] * 4096)
        f.write(data[at + 4:at + 4100])' build/config.fs "$image"
    [ "$(stat -c %s "$image")" -eq $(($(awk '$1 == "config" { print $2 }' config/disk.txt) * MIB)) ] &&
        e2fsck -fn "$image" >"$dir/fsck" 2>&1
    result $? "it is a sound file system of the partition's size" "$(cat "$dir/fsck")"
}

check_uki() {
    local size section file
    size=$(stat -c %s build/v4box.efi)
    [ "$size" -le $UKI_MAX ]; result $? "the EFI program has at most 16 MB" "$size"
    for section in initrd:build/v4box-base.cpio.zst linux:build/v4box-vmlinuz; do
        file=${section#*:} section=${section%%:*}
        objcopy --dump-section ".$section=$dir/$section" build/v4box.efi "$dir/copy"
        cmp -n "$(stat -c %s "$file")" "$dir/$section" "$file"
        result $? "its section .$section is $file"
    done
    objcopy --dump-section ".cmdline=$dir/padded" build/v4box.efi "$dir/copy"
    tr -d '\0' <"$dir/padded" >"$dir/cmdline"
    grep -qE '^console=tty0 console=ttyS0 .* v4box.storage=disk$' "$dir/cmdline" && ! grep -q '#' "$dir/cmdline"
    result $? "its command line is that of config/cmdline.txt" "$(cat "$dir/cmdline")"
    grep -qE ' iommu=pt ' "$dir/cmdline" && grep -qF ' pci=disable_acs_redir=pci:0:0 ' "$dir/cmdline"
    result $? "cards reach each other: no translation, no detour" "$(cat "$dir/cmdline")"
    zstd -dcq build/v4box-base.cpio.zst | cpio -t --quiet >"$dir/names"
    ! grep -q '^models/' "$dir/names" && grep -qx models "$dir/names" && grep -qx bin/engine "$dir/names"
    result $? "its initramfs has no model, but the place for one" "$(cat "$dir/names")"
}

check_partitions() {
    local found wanted file
    sfdisk --verify build/v4box.img >"$dir/verify" 2>&1
    result $? "the partition table is sound" "$(cat "$dir/verify")"
    wanted=$(awk '!/^#/ && NF { sub("/.*", "", $2); print $1, $2 }' config/disk.txt)
    found=$(sfdisk -d build/v4box.img | sed -n 's/.*size= *\([0-9]*\),.*name="\(.*\)".*/\2 \1/p' | awk '{ print $1, $2 / 2048 }')
    [ "$found" = "$wanted" ]; result $? "the partitions are those of config/disk.txt" "$found"
    cut_partition esp build/v4box.img "$dir/esp"
    for file in EFI/BOOT/BOOTX64.EFI EFI/v4box/a.efi EFI/v4box/b.efi; do
        mcopy -n -i "$dir/esp" "::/$file" "$dir/file" && cmp "$dir/file" build/v4box.efi
        result $? "$file is the EFI program"
        rm -f "$dir/file"
    done
    for file in a b; do
        mcopy -n -i "$dir/esp" "::/EFI/v4box/$file.hdr" "$dir/header" && cat "$dir/header" build/v4box.efi >"$dir/bundle" &&
            build/bundle show --public config/update.pub "$dir/bundle" >"$dir/shown" 2>&1
        result $? "the header of slot $file is signed, and fits its program" "$(cat "$dir/shown")"
        rm -f "$dir/header"
    done
    printf X | dd of="$dir/bundle" bs=1 seek=5000 conv=notrunc status=none
    ! build/bundle show --public config/update.pub "$dir/bundle" >/dev/null 2>&1
    result $? "a changed byte of the program does not fit it, as control"
    fsck.vfat -n "$dir/esp" >"$dir/fsck" 2>&1; result $? "the ESP is sound" "$(cat "$dir/fsck")"
    cut_partition models build/v4box.img "$dir/models"
    e2fsck -fn "$dir/models" >"$dir/fsck" 2>&1; result $? "the file system of the models is sound" "$(cat "$dir/fsck")"
    found=$(wrong_models "$dir/models")
    [ -z "$found" ]; result $? "it holds the models of the tree" "$found"
    # One byte of a file's content: metadata checksums do not cover it, the comparison must.
    file=$(LC_ALL=C grep -obaUP -m1 '"architectures"' "$dir/models" | head -n 1 | cut -d: -f1)
    printf X | dd of="$dir/models" bs=1 seek="$((file + 3))" conv=notrunc status=none
    found=$(wrong_models "$dir/models")
    [ -n "$found" ]; result $? "a changed byte is noticed, as control" "nothing differs"
}

# A program that no update could replace.
check_refused() {
    local out
    mkdir "$dir/refused"
    truncate -s $((40 * MIB)) "$dir/refused/v4box.efi"
    out=$(tools/disk.sh "$dir/refused" $SECRET 2>&1)
    [ $? -ne 0 ] && [ ! -e "$dir/refused/v4box.img" ]; result $? "refused: a program larger than a slot takes" "$out"
    mkdir "$dir/large"
    cp build/v4box-vmlinuz "$dir/large/"
    truncate -s $UKI_MAX "$dir/large/v4box-base.cpio.zst"
    out=$(tools/uki.sh "$CACHE" "$dir/large" 2>&1)
    [ $? -ne 0 ] && [ ! -e "$dir/large/v4box.efi" ] && grep -q 'the limit is' <<<"$out"
    result $? "refused: an EFI program above 16 MB" "$out"
}

echo 1..24
check_again
check_template
check_uki
check_partitions
check_refused
exit $failures
