# libsodium: hashes of API keys, random numbers and constant-time comparison, static.
build() {
    # Debian ships the repository, not the release tarball: configure is not in it.
    autoreconf -fi
    ./configure CC="$MUSL_CC" CFLAGS="$MUSL_CFLAGS" --prefix="$OUT" --disable-shared --enable-static \
        --disable-pie --disable-dependency-tracking
    make -C src/libsodium -j"$JOBS" install
}
