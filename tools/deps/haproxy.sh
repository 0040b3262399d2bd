# HAProxy: TLS, HTTP/1.1 and HTTP/2 in front of the engine, one static program.
# All pins, since that of OpenSSL shapes it as well.
INPUTS="tools/deps/openssl.sh config/packages.txt"

# What is refused before a head is whole has words of HAProxy's own, HTML, which no setting changes
# (http_err_msgs in src/http.c, sent by mux_h1.c): here they become errors in the API's form.
json_errors() {
    awk '
    BEGIN {
        said[400] = "invalid_request|The request head is malformed."
        said[408] = "request_timeout|The request head did not come in time."
        said[413] = "body_too_large|The body is too large."
        said[500] = "internal|The front has failed."
        said[501] = "not_implemented|The front does not know this transfer coding."
    }
    /^const char \*http_err_msgs/ { messages = 1 }
    messages && /\[HTTP_ERR_[0-9]+\] =/ { inside = 1 }
    inside && /"HTTP\/1.1 [0-9]+ / { status = $2; head = $0; sub(/^[^"]*/, "\t", head); next }
    inside && /^$|^};/ {
        split(status in said ? said[status] : "refused|The front refuses this request.", part, "|")
        kind = status < 500 ? "invalid_request_error" : "api_error"
        body = "{\"type\":\"error\",\"error\":{\"type\":\"" kind "\",\"message\":\"" part[2] \
               "\",\"param\":null,\"code\":\"" part[1] "\"}}"
        if (status < 400)
            body = "{}"
        bytes = length(body)
        gsub(/"/, "\\\"", body)
        print head
        print "\t\"Content-length: " bytes "\\r\\n\""
        print "\t\"Cache-Control: no-cache\\r\\n" (status < 400 ? "" : "Connection: close\\r\\n") \
              "Content-Type: application/json\\r\\n\\r\\n\""
        print "\t\"" body "\",\n"
        inside = 0
    }
    messages && /^};/ { messages = 0 }
    inside && !/HTTP_ERR_/ { next }
    { print }' src/http.c >http.new
    mv http.new src/http.c
    ! grep -q '<html>' src/http.c
}

build() {
    local ssl
    ssl=$("$ROOT/tools/deps/build.sh" "$CACHE" openssl)
    json_errors
    # Without a scripting language, compression, QUIC, regular expressions of a library, crypt().
    # Without its watchdog (USE_RT), too: it takes a second without a processor for a loop and ends the
    # process.  The box's heart asks it for signs of life instead.
    make -j"$JOBS" TARGET=linux-musl CC="$MUSL_CC" CPU_CFLAGS="$MUSL_CFLAGS" \
        USE_OPENSSL=1 USE_THREAD=1 USE_PRCTL=1 USE_LIBCRYPT= USE_CRYPT_H= USE_BACKTRACE= USE_RT= USE_SLZ= USE_NS= \
        SSL_INC="$ssl/include" SSL_LIB="$ssl/lib" LDFLAGS="-static -Wl,--gc-sections" \
        ADDLIB="-lpthread" VERDATE=- haproxy
    install -Dsm755 haproxy "$OUT/bin/haproxy"
}
