# libmicrohttpd: the HTTP server library of the engine, static.
#
# Left out: HTTPS (GnuTLS cannot be linked statically here and TLS ends in a process of its own),
# and everything that parses input the API never takes: form posts, basic and digest authentication,
# protocol upgrades, cookies.
build() {
    ./configure CC="$MUSL_CC" CFLAGS="$MUSL_CFLAGS" --prefix="$OUT" --disable-shared --enable-static \
        --disable-https --disable-doc --disable-examples --disable-tools --disable-curl --disable-nls \
        --disable-postprocessor --disable-bauth --disable-dauth --disable-httpupgrade \
        --disable-cookie --enable-epoll --disable-dependency-tracking
    make -C src/microhttpd -j"$JOBS" install
    make -C src/include install
}
