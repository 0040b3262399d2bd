/*
 * The character classes that the split expressions of the tokenizer name.
 * One table, built at start from utf8proc.  Knows no tokens.
 */
#ifndef V4BOX_ENGINE_TEXT_UNICODE_H
#define V4BOX_ENGINE_TEXT_UNICODE_H

#include "engine/base/utf8.h"

#include <stddef.h>
#include <stdint.h>

/* Bits of a class.  0: control, format, private, unassigned, and ill-formed bytes. */
enum {
    CHAR_LETTER = 1 << 0,   /* \p{L} */
    CHAR_MARK = 1 << 1,     /* \p{M} */
    CHAR_NUMBER = 1 << 2,   /* \p{N} */
    CHAR_PUNCT = 1 << 3,    /* \p{P} */
    CHAR_SYMBOL = 1 << 4,   /* \p{S} */
    CHAR_SPACE = 1 << 5,    /* \s, the property White_Space */
    CHAR_NEWLINE = 1 << 6,  /* CR and LF */
    CHAR_HAN_KANA = 1 << 7, /* the second split stage: U+4E00-9FA5, 3040-309F, 30A0-30FF */
};

#define UNICODE_CODES  0x110000
#define UNICODE_BLOCK  256
#define UNICODE_BLOCKS 256 /* different blocks; Unicode 16 has 146 */

/* Two levels, as most blocks of 256 characters are alike (145 differ of 4352). */
struct unicode {
    uint8_t block_of[UNICODE_CODES / UNICODE_BLOCK];
    uint8_t classes[UNICODE_BLOCKS][UNICODE_BLOCK]; /* block 0 is ASCII and Latin-1 */
};

/** Fills the table; about a million look-ups in utf8proc. */
void unicode_init(struct unicode *unicode);

/* unicode_class beyond ASCII. */
uint8_t unicode_class_wide(const struct unicode *unicode, const uint8_t *bytes, size_t n,
                           size_t *len);

/** The class of the character at the beginning of n >= 1 bytes, and how many bytes it takes. */
static inline uint8_t unicode_class(const struct unicode *unicode, const uint8_t *bytes, size_t n,
                                    size_t *len)
{
    if (bytes[0] >= 0x80)
        return unicode_class_wide(unicode, bytes, n, len);
    *len = 1;
    return unicode->classes[0][bytes[0]];
}

#endif
