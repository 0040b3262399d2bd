# BusyBox: the few applets that init uses, one static program without a shell.
INPUTS=config/busybox.config
OPTIONS=$ROOT/config/busybox.config

# Prints defconfig ($1) with every yes/no option off but those of our list.  Not allnoconfig: that
# leaves strings and numbers empty as well, and the applets then fail at run time.
only_listed() {
    awk 'NR == FNR { if (/^CONFIG_/) { split($0, a, "="); want[a[1]] = $0 } next }
         { name = $0; sub(/^# /, "", name); sub(/[ =].*/, "", name) }
         name in want { print want[name]; next }
         /=y$/ { print "# " name " is not set"; next }
         { print }' "$OPTIONS" "$1"
}

build() {
    # Without a time stamp in the banner: the same bytes from every build.
    export KCONFIG_NOTIMESTAMP=1
    make defconfig
    cp .config defconfig
    only_listed defconfig >.config
    (yes '' || true) | make oldconfig
    local dropped
    dropped=$(grep '^CONFIG_' "$OPTIONS" | grep -vxFf .config || true)
    if [ -n "$dropped" ]; then
        echo "config/busybox.config: not in the configuration that came out:" $dropped
        return 1
    fi
    make -j"$JOBS" CC="$MUSL_CC" EXTRA_CFLAGS="$MUSL_CFLAGS" busybox
    install -Dsm755 busybox "$OUT/bin/busybox"
}
