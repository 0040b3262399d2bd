#!/bin/bash
# Assembles the image from rootfs/manifest:  image.sh CACHE OUT_DIR [MANIFEST]
#
#   OUT_DIR/v4box-vmlinuz              Debian's kernel, as it is
#   OUT_DIR/v4box-initramfs.cpio.zst   the whole system, models included: boots without any disk
#   OUT_DIR/v4box-base.cpio.zst        the same without models, for the disk, which brings its own
#   OUT_DIR/v4box-bom.txt              bill of materials: packages, then every file of the system
#
# The same inputs give the same bytes: names sorted, one time stamp, root's ids, no inode numbers.
# Needs no root.  Compiles nothing: programs must be there (make does that).
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
CACHE=$1 OUT=$(realpath "$2")
. "$ROOT/tools/deps/lib.sh"
MANIFEST=${3:-$ROOT/rootfs/manifest}

# The time of every file in the image, 2026-01-01: any constant will do, this one looks plausible in
# a listing.
FILE_TIME=@1767225600
# The model is dense already (24.3 MB become 20.1 at level 3 in 0.8 s, 19.9 at 19 in 100 times that).
ZSTD_LEVEL=3
# Without the model the best level takes 2 s, and an update must travel.
ZSTD_LEVEL_BASE=19
# Names under which somebody would get an interpreter.
SHELLS='^(sh|ash|bash|dash|hush|zsh|ksh|busybox|lua|perl|python.*|awk|ed|vi)$'

stage=$OUT/image/root
packages=$OUT/image/packages # names of the packages that went in

put() { # MODE PATH SOURCE: installs one file, a program without its symbols
    [ -f "$3" ] || die "$MANIFEST: $2: no file $3"
    mkdir -p "$stage$(dirname "$2")"
    install -m "$1" "$3" "$stage$2"
    if [ "$(head -c 4 "$3" | tr -d '\0')" = $'\x7fELF' ] && [[ $2 != *.ko ]]; then
        strip --strip-all "$stage$2"
    fi
}

put_package() { # MODE PATH NAME:FILE
    local name=${3%%:*} dir
    dir=$("$ROOT/tools/deps/build.sh" "$CACHE" "$name") || exit 1
    put "$1" "$2" "$dir/${3#*:}"
    echo "$name" >>"$packages"
}

put_tree() { # MODE PATH SOURCE
    local file
    [ -d "$ROOT/$3" ] || die "$MANIFEST: $2: no folder $3"
    (cd "$ROOT/$3" && find . -type f -print0 | LC_ALL=C sort -z) | while IFS= read -r -d '' file; do
        put "$1" "$2/${file#./}" "$ROOT/$3/$file"
    done
}

put_modules() { # MODE PATH LIST
    local module list
    list=$("$ROOT/tools/modules.sh" "$ROOT/$3" "$kernel/modules/modules.dep") || exit 1
    mkdir -p "$stage/etc"
    for module in $list; do
        put "$1" "$2/$(basename "$module")" "$kernel/modules/$module"
        echo "$2/$(basename "$module")"
    done >"$stage/etc/modules.list"
    chmod 0444 "$stage/etc/modules.list"
}

fill_stage() {
    local kind mode path source
    rm -rf "$OUT/image"
    mkdir -p "$stage"
    : >"$packages"
    while read -r kind mode path source; do
        case $kind in
        '' | '#'*) ;;
        dir) mkdir -p "$stage$path" && chmod "$mode" "$stage$path" ;;
        gpu) [ ! -f "$OUT/gpu.root" ] || put "$mode" "$path" "$OUT/gpu.root" ;;
        file) put "$mode" "$path" "$ROOT/$source" ;;
        pkg) put_package "$mode" "$path" "$source" ;;
        link) ln -s "$source" "$stage$path" ;;
        tree) put_tree "$mode" "$path" "$source" ;;
        modules) put_modules "$mode" "$path" "$source" ;;
        *) die "$MANIFEST: kind \"$kind\"" ;;
        esac
    done <"$MANIFEST"
}

# What must never be in the image, whoever edited the manifest.
inspect_stage() {
    local found program
    found=$(cd "$stage" && find . -printf '%f %p\n' | awk -v s="$SHELLS" '$1 ~ s { print $2 }')
    [ -z "$found" ] || die "the image would hold an interpreter: $found"
    found=$(cd "$stage" && find . -perm /7000)
    [ -z "$found" ] || die "the image would hold a setuid, setgid or sticky file: $found"
    for program in $(find "$stage" -type f -perm /111); do
        if readelf -lW "$program" 2>/dev/null | grep -qE 'INTERP|DYNAMIC'; then
            die "${program#"$stage"} is not statically linked"
        fi
    done
}

pack() { # FILE LEVEL [PATTERN left out]
    (cd "$stage" && find . -mindepth 1 -not -path "${3:-.}" | LC_ALL=C sort |
        cpio --quiet --reproducible -o -H newc -R 0:0) | zstd -q -T1 "-$2" -c >"$OUT/$1.part"
    mv "$OUT/$1.part" "$OUT/$1"
}

pack_all() {
    # Folders that install made on the way have the caller's umask.
    find "$stage" -type d -exec chmod 0755 {} +
    find "$stage" -exec touch -hd "$FILE_TIME" {} +
    install -m 0644 "$kernel/vmlinuz" "$OUT/v4box-vmlinuz"
    pack v4box-base.cpio.zst $ZSTD_LEVEL_BASE './models/*'
    pack v4box-initramfs.cpio.zst $ZSTD_LEVEL
}

# One line a package, from its pin.
bom_package() {
    local kind name version suite sha licence line
    line=$(pin "$1") || exit 1
    read -r kind name version suite sha licence <<<"$line"
    printf '%-28s %-22s %s %s\n' "$name" "$version" "$sha" "$licence"
}

bom() {
    local name
    echo "# package, version, SHA-256 (of the .dsc or .deb; of libc.a for musl), licence"
    bom_package "$(basename "$kernel" | sed 's/-[0-9a-f]*$//')"
    bom_package systemd-boot-efi
    for name in $(sort -u "$packages"); do
        bom_package "$name"
    done
    for name in $LIBRARIES; do
        bom_package "$name"
    done
    printf '%-28s %-22s %s %s\n' musl "$(dpkg-query -W -f '${Version}' musl-dev)" \
        "$(sha256_of "$(musl-gcc -print-file-name=libc.a)")" MIT
    printf '%-28s %-22s %s %s\n' libgcc "$(dpkg-query -W -f '${Version}' "libgcc-$(gcc -dumpversion)-dev")" \
        "$(sha256_of "$(musl-gcc -print-libgcc-file-name)")" GPL-3.0-with-GCC-exception
    printf '%-28s %-22s %s %s\n' v4box "$(sed -n 's/^#define V4BOX_VERSION "\(.*\)"/\1/p' "$ROOT/config/version.h")" \
        "$(sha256_of "$OUT/v4box-initramfs.cpio.zst")" MIT
    echo "# every file of the system: bytes, SHA-256, path"
    (cd "$stage" && find . -type f -printf '%s %P\n' | LC_ALL=C sort -k2) | while read -r size name; do
        printf '%10d  %s  /%s\n' "$size" "$(sha256_of "$stage/$name")" "$name"
    done
}

report() {
    local part
    for part in bin/engine bin/console init bin/udhcpc bin/dropbear lib/modules models; do
        printf '  %-14s %9d bytes\n' "/$part" "$(du -sb "$stage/$part" | cut -f1)"
    done
    for part in v4box-vmlinuz v4box-base.cpio.zst v4box-initramfs.cpio.zst; do
        printf '  %-24s %9d bytes\n' "$part" "$(stat -c %s "$OUT/$part")"
    done
}

kernel=$("$ROOT/tools/deps/kernel.sh" "$CACHE")
"$ROOT/tools/kernel_config.sh" "$kernel/config" >&2 || die "the kernel is not what config/kernel.txt wants"
/usr/bin/python3 "$ROOT/tools/config_fs.py" "$OUT/config.fs"
fill_stage
inspect_stage
pack_all
bom >"$OUT/v4box-bom.txt"
report
