#!/bin/bash
# The image as a file: reproducible, complete, static, without an interpreter; and the tools that make
# it, on manifests and pins they must refuse.  Boots nothing.  Usage: test_image.sh CACHE
set -u
cd "$(dirname "$0")/../.." || exit 1
CACHE=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
number=0 failures=0

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

empty() { [ -z "$1" ]; result $? "$2" "$1"; }

# refused WHAT MESSAGE MANIFEST-LINES: the image is not built, for that reason.
refused() {
    local what=$1 message=$2 out
    rm -rf "$dir/refused"; mkdir "$dir/refused"
    printf '%s\n' "${@:3}" >"$dir/manifest"
    out=$(tools/image.sh "$CACHE" "$dir/refused" "$dir/manifest" 2>&1)
    [ $? -ne 0 ] && [ ! -e "$dir/refused/v4box-initramfs.cpio.zst" ] && grep -q "$message" <<<"$out"
    result $? "refused: $what" "$out"
}

# try_pin SHA-256: fetches a package whose mirror answers with the bytes "good".
try_pin() (
    ROOT=$PWD CACHE=$dir/cache
    . tools/deps/lib.sh
    PINS=$dir/pins
    echo "deb thing 1.0 bookworm $1 MIT" >"$PINS"
    apt_view_update() { :; }
    apt_view() { printf good >thing_1.0_all.deb; }
    rm -rf "$CACHE"
    fetch thing
)

check_programs() {
    local name
    for name in engine console init heart updater tls kernel keeper models claim keystick clock remote synth; do
        file "build/$name" | grep -q 'statically linked' && ! file "build/$name" | grep -q interpreter
        result $? "build/$name is static, without an interpreter" "$(file "build/$name")"
    done
}

check_archive() {
    local list
    (umask 077; mkdir "$dir/again"; tools/image.sh "$CACHE" "$dir/again" >/dev/null)
    cmp build/v4box-initramfs.cpio.zst "$dir/again/v4box-initramfs.cpio.zst"
    result $? "a second build gives the same bytes"
    cmp build/v4box-vmlinuz "$dir/again/v4box-vmlinuz" && cmp build/v4box-bom.txt "$dir/again/v4box-bom.txt"
    result $? "so do kernel and bill of materials"

    list=$(zstd -dcq build/v4box-initramfs.cpio.zst | cpio -itv --numeric-uid-gid --quiet)
    empty "$(awk '$3 != 0 || $4 != 0' <<<"$list")" "everything belongs to root"
    empty "$(awk '$1 ~ /[sStT]/' <<<"$list")" "nothing is setuid, setgid or sticky"
    empty "$(awk '$1 ~ /^-/ && $1 ~ /w/ && $1 !~ /^-rwxr-xr-x$/ || $1 ~ /^[bcps]/' <<<"$list")" \
        "no file is writable but programs by root, and there are no devices"
    empty "$(awk '{ print $9 }' <<<"$list" | grep -E '(^|/)(sh|bash|ash|dash|busybox|python.*|perl)$')" "no shell"
}

check_modules() {
    local module name need
    for module in $(cat build/image/root/etc/modules.list); do
        name=$(basename "$module" .ko | tr - _)
        for need in $(modinfo -F depends "build/image/root$module" | tr ',-' ' _'); do
            grep -qx "$need" "$dir/loaded" 2>/dev/null || echo "$name before $need"
        done
        echo "$name" >>"$dir/loaded"
    done
}

# Each row alone: what it wants is taken away, or given where it must not be.
check_kernel_control() {
    local symbol value reason
    while read -r symbol value reason; do
        case $symbol in '' | '#'*) continue ;; esac
        if [ "$value" = n ]; then
            { cat "$kernel/config"; echo "CONFIG_$symbol=y"; } >"$dir/config"
        else
            grep -v "^CONFIG_$symbol=" "$kernel/config" >"$dir/config"
        fi
        tools/kernel_config.sh "$dir/config" >"$dir/said"
        [ $? -eq 1 ] && grep -q " $symbol is " "$dir/said" || echo "$symbol"
    done <config/kernel.txt
}

check_bom() {
    local name
    for name in $(awk '!/^#/ && NF { print $2 }' config/packages.txt) musl libgcc v4box; do
        grep -qE "^$name +[^ ]+ +[0-9a-f]{64} [A-Za-z]" build/v4box-bom.txt || echo "$name"
    done
    grep -qE ' /models/demo/model-00001-of-00002.safetensors$' build/v4box-bom.txt || echo "the model's files"
}

echo 1..34
check_programs
check_archive
empty "$(check_modules)" "each module is loaded after what it needs"
kernel=$(tools/deps/kernel.sh "$CACHE")
empty "$(tools/kernel_config.sh "$kernel/config" 2>&1)" "the kernel's configuration is what config/kernel.txt wants"
empty "$(check_kernel_control)" "control: a symbol that is lost, or comes, is named"
empty "$(check_bom)" "the bill of materials names every package and file"

refused "a shell" interpreter "file 0755 /bin/sh build/console"
refused "a link named like a shell" interpreter "dir 0755 /bin" "link - /bin/bash /init"
refused "a setuid program" setuid "file 4755 /bin/console build/console"
refused "a dynamic program" "not statically linked" "file 0755 /bin/engine build/host/engine"
refused "a file that is not there" "/init: no file" "file 0755 /init build/no-such-file"
refused "an unknown kind" 'kind "device"' "device 0600 /dev/sda x"
refused "an unpinned package" 'no package "nosuch"' "pkg 0755 /bin/x nosuch:bin/x"
echo nosuch >"$dir/modules"
tools/modules.sh "$dir/modules" <(echo "kernel/lib/a.ko:") >/dev/null 2>&1
[ $? -ne 0 ]; result $? "refused: a module that the kernel does not have"

try_pin "$(printf good | sha256sum | cut -d' ' -f1)" >/dev/null
result $? "a download that matches its pin is taken"
out=$(try_pin "$(printf evil | sha256sum | cut -d' ' -f1)" 2>&1)
[ $? -ne 0 ] && grep -q "the pin says" <<<"$out" && [ ! -d "$dir/cache/download/thing_1.0" ]
result $? "a download that does not match its pin is refused" "$out"
exit $failures
