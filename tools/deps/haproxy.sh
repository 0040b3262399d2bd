# HAProxy: TLS, HTTP/1.1 and HTTP/2 in front of the engine, one static program.
# All pins, since that of OpenSSL shapes it as well.
INPUTS="tools/deps/openssl.sh config/packages.txt"

build() {
    local ssl
    ssl=$("$ROOT/tools/deps/build.sh" "$CACHE" openssl)
    # Without a scripting language, compression, QUIC, regular expressions of a library, crypt().
    # Without its watchdog (USE_RT), too: it takes a second without a processor for a loop and ends the
    # process.  The box's heart asks it for signs of life instead.
    make -j"$JOBS" TARGET=linux-musl CC="$MUSL_CC" CPU_CFLAGS="$MUSL_CFLAGS" \
        USE_OPENSSL=1 USE_THREAD=1 USE_PRCTL=1 USE_LIBCRYPT= USE_CRYPT_H= USE_BACKTRACE= USE_RT= USE_SLZ= USE_NS= \
        SSL_INC="$ssl/include" SSL_LIB="$ssl/lib" LDFLAGS="-static -Wl,--gc-sections" \
        ADDLIB="-lpthread" VERDATE=- haproxy
    install -Dsm755 haproxy "$OUT/bin/haproxy"
}
