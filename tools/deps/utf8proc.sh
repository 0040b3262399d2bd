# utf8proc: Unicode classes for the tokenizer, static.
build() {
    make -j"$JOBS" CC="$MUSL_CC" CFLAGS="$MUSL_CFLAGS -std=c99 -DUTF8PROC_STATIC" libutf8proc.a
    install -Dm644 libutf8proc.a "$OUT/lib/libutf8proc.a"
    install -Dm644 utf8proc.h "$OUT/include/utf8proc.h"
}
