#!/bin/bash
# Makes the GPU payload from a driver:  payload.sh CACHE OUT_DIR DRIVER.run PINS WORKER [KEYS]
#
#   OUT_DIR/gpu.img    EROFS with the files of config/payload.txt, then the tree of dm-verity over it
#   OUT_DIR/gpu.root   "ROOT SALT BLOCKS VERSION", a line: goes into the system, and is signed with it
#
# The driver is one of PINS (config/drivers.txt) by its hash, before anything of it is started: a .run
# is a shell script.  WORKER is the program that the engine starts.  Needs no root.
#
# KEYS is a folder of tools/secure.sh, whose key signs the modules: under Secure Boot the kernel takes
# no others, and believes whom the firmware believes.  Such a signature (RSA, PKCS #1 v1.5, no time in
# it) has no chance of its own: the same driver and key give the same payload.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
CACHE=$1 OUT=$(realpath "$2") RUN=$(realpath "$3") DRIVERS=$4 WORKER=$5 KEYS=${6:-}
. "$ROOT/tools/deps/lib.sh"
LIST=$ROOT/config/payload.txt
FILE_TIME=1767225600 # 2026-01-01, as in the initramfs
DRIVER_MIN=570       # the first with open modules for Blackwell
BLOCK=4096           # of EROFS and of dm-verity
UUID=7b4f0c52-6c7c-4d5e-9a52-76346f780002
# A constant: the salt keeps nobody from anything here, and the same driver gives the same payload.
SALT=$(sha256sum <<<'v4box gpu payload' | cut -c1-64)

dir=$OUT/payload stage=$OUT/payload/root

check_driver() {
    local hash
    hash=$(sha256_of "$RUN")
    awk -v h="$hash" '!/^#/ && $1 == h { found = 1 } END { exit !found }' "$DRIVERS" ||
        die "$(basename "$RUN") has SHA-256 $hash, which is not in $(basename "$DRIVERS"): compare it with the publisher's, and put it there"
    version=$(basename "$RUN" | sed -n 's/^NVIDIA-Linux-x86_64-\([0-9][0-9.]*\)\.run$/\1/p')
    [ -n "$version" ] || die "$(basename "$RUN"): not named NVIDIA-Linux-x86_64-VERSION.run"
    [ "${version%%.*}" -ge $DRIVER_MIN ] || die "$(basename "$RUN"): older than $DRIVER_MIN"
}

# Against the headers of the image's own kernel; those for screens are left out.
build_modules() {
    local release built
    release=$(basename "$(echo "$headers"/usr/src/linux-headers-*-amd64)" | sed 's/^linux-headers-//')
    make -C "$dir/run/kernel-open" modules -j"$(nproc)" CC=gcc-12 \
        SYSSRC="$headers/usr/src/linux-headers-${release%-amd64}-common" \
        SYSOUT="$headers/usr/src/linux-headers-$release" \
        NV_EXCLUDE_KERNEL_MODULES="nvidia-drm nvidia-modeset nvidia-peermem" \
        KCFLAGS="-ffile-prefix-map=$dir/run=." KBUILD_BUILD_TIMESTAMP="@$FILE_TIME" >"$dir/modules.log" 2>&1 ||
        { tail -n 30 "$dir/modules.log" >&2; die "the modules could not be built"; }
    for built in $(awk '$1 == "module" { print $3 }' "$LIST"); do
        built=$(find "$dir/run/kernel-open" -name "$built.ko") && [ -f "$built" ] ||
            die "the driver has no module $built"
        modinfo -F vermagic "$built" | grep -q "^$release " || die "$built is for another kernel"
    done
}

# What the modules need of the kernel's own, in loading order, before them.
put_modules() {
    local module needed=$dir/needed list=$stage/modules/list
    mkdir -p "$stage/modules"
    for module in $(awk '$1 == "module" { print $3 }' "$LIST"); do
        modinfo -F depends "$(find "$dir/run/kernel-open" -name "$module.ko")" | tr ',' '\n'
    done | grep -v '^nvidia' | sort -u >"$needed" || true
    for module in $("$ROOT/tools/modules.sh" "$needed" "$kernel/modules/modules.dep"); do
        cp "$kernel/modules/$module" "$stage/modules/"
        echo "/gpu/modules/$(basename "$module")"
    done >"$list"
}

# A signature covers every byte, so it comes last.
finish_module() { # FILE
    chmod u+w "$1"
    strip --strip-debug "$1"
    [ -z "$KEYS" ] || "$headers"/usr/lib/linux-kbuild-*/scripts/sign-file sha256 "$KEYS/key.pem" "$KEYS/cert.pem" "$1"
    chmod u-w "$1"
}

put_all() {
    local kind path source from
    while read -r kind path source; do
        path=${path//VERSION/$version} source=${source//VERSION/$version}
        case $kind in
        '' | '#'*) continue ;;
        driver) from=$dir/run/$source ;;
        host) from=$(gcc -print-file-name="$source") ;;
        module) from=$(find "$dir/run/kernel-open" -name "$source.ko") && echo "/gpu$path" >>"$stage/modules/list" ;;
        worker) from=$WORKER ;;
        *) die "$LIST: kind \"$kind\"" ;;
        esac
        [ -f "$from" ] || die "$LIST: $path: no file $source"
        mkdir -p "$stage$(dirname "$path")"
        install -m "$([ "$kind" = worker ] || [[ $path == */ld-linux* ]] && echo 0555 || echo 0444)" "$from" "$stage$path"
        [ "$kind" != module ] || finish_module "$stage$path"
    done <"$LIST"
}

make_image() {
    local blocks root
    find "$stage" -exec touch -hd "@$FILE_TIME" {} +
    mkfs.erofs -T $FILE_TIME -U $UUID --all-root "$dir/gpu.img" "$stage" >"$dir/erofs.log" 2>&1 ||
        { cat "$dir/erofs.log" >&2; die "mkfs.erofs failed"; }
    truncate -s %$BLOCK "$dir/gpu.img"
    blocks=$(($(stat -c %s "$dir/gpu.img") / BLOCK))
    root=$(veritysetup format --no-superblock --data-block-size=$BLOCK --hash-block-size=$BLOCK \
        --data-blocks=$blocks --hash-offset=$((blocks * BLOCK)) --salt="$SALT" "$dir/gpu.img" "$dir/gpu.img" |
        sed -n 's/^Root hash:[[:space:]]*//p')
    [ ${#root} -eq 64 ] || die "veritysetup gave no root hash"
    truncate -s %1M "$dir/gpu.img" # of which partitions are made
    echo "$root $SALT $blocks $version" >"$dir/gpu.root"
}

check_driver
rm -rf "$dir"
mkdir -p "$stage"
kernel=$("$ROOT/tools/deps/kernel.sh" "$CACHE")
headers=$("$ROOT/tools/deps/headers.sh" "$CACHE")
sh "$RUN" --extract-only --target "$dir/run" >"$dir/extract.log" 2>&1 ||
    { tail -n 30 "$dir/extract.log" >&2; die "$(basename "$RUN") does not unpack"; }
build_modules
put_modules
put_all
make_image
mv "$dir/gpu.img" "$dir/gpu.root" "$OUT/"
rm -rf "$dir"
printf '  %-24s %9d bytes, driver %s\n' gpu.img "$(stat -c %s "$OUT/gpu.img")" "$version"
