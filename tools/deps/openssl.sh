# OpenSSL: TLS of the front process and the maker of certificates; static libraries only.
#
# Left out: what loads code at run time, protocols before TLS 1.2, and ciphers that TLS 1.3 does not
# have.  Half of the time would go into these and into the tests.
build() {
    CC="$MUSL_CC" CFLAGS="$MUSL_CFLAGS" ./Configure linux-x86_64 --prefix=/ --openssldir=/etc/tls \
        no-shared no-dso no-engine no-module no-legacy no-comp no-dtls no-ssl3 no-tls1 no-tls1_1 \
        no-tests no-afalgeng no-async no-capieng no-ui-console no-autoload-config no-aria no-bf \
        no-camellia no-cast no-cmp no-cms no-ct no-dsa no-gost no-idea no-md4 no-mdc2 no-rc2 no-rc4 \
        no-rmd160 no-scrypt no-sctp no-seed no-siphash no-sm2 no-sm3 no-sm4 no-srp no-srtp no-ts \
        no-whirlpool no-rfc3779 no-nextprotoneg
    make -j"$JOBS" build_libs
    install -Dm644 -t "$OUT/lib" libssl.a libcrypto.a
    mkdir -p "$OUT/include"
    cp -r include/openssl "$OUT/include/"
    find "$OUT/include" ! -name '*.h' -type f -delete
}
