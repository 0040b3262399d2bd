/*
 * Ids back to text, a token at a time.  Holds back the beginning of a character until it is whole
 * or cannot be; ill-formed bytes become one U+FFFD for each maximal subpart, as the WHATWG decoder
 * and so every client does it.
 */
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"
#include "kernels/check.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Appends what is certain of the bytes; keeps an unfinished character at their end, at most three
 * bytes. */
static void emit(struct detokenizer *d, const uint8_t *bytes, size_t len, struct buf *out)
{
    size_t sent = 0, at = 0;
    d->held_len = 0;
    while (at < len) {
        struct utf8_char c = utf8_decode(bytes + at, len - at);
        if (c.kind != UTF8_WHOLE) {
            buf_add(out, bytes + sent, at - sent);
            sent = at + c.len;
        }
        if (c.kind == UTF8_BAD)
            buf_puts(out, REPLACEMENT);
        if (c.kind == UTF8_CUT) {
            ASSERT(c.len < sizeof d->held);
            memcpy(d->held, bytes + at, c.len);
            d->held_len = c.len;
        }
        at += c.len;
    }
    buf_add(out, bytes + sent, len - sent);
}

void detokenizer_push(struct detokenizer *d, const struct tokenizer *tokenizer, int32_t id,
                      struct buf *out)
{
    size_t len;
    const uint8_t *bytes = (const uint8_t *)tokenizer_token_bytes(tokenizer, id, &len);
    if (d->held_len == 0) {
        emit(d, bytes, len, out);
        return;
    }
    struct buf joined = {0};
    buf_add(&joined, d->held, d->held_len);
    buf_add(&joined, bytes, len);
    emit(d, (const uint8_t *)joined.data, joined.len, out);
    buf_free(&joined);
}

void detokenizer_finish(struct detokenizer *d, struct buf *out)
{
    if (d->held_len > 0)
        buf_puts(out, REPLACEMENT);
    d->held_len = 0;
}
