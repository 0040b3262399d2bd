/*
 * UTF-8 taken apart, one character at a time.  Knows no classes and no text formats.
 */
#ifndef V4BOX_ENGINE_UTF8_H
#define V4BOX_ENGINE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum utf8_kind {
    UTF8_WHOLE,
    UTF8_CUT, /* a proper beginning of a character, ended by the end of the bytes */
    UTF8_BAD, /* can become no character, whatever follows */
};

struct utf8_char {
    uint32_t code;       /* of UTF8_WHOLE */
    uint8_t len;         /* bytes: the character, or the maximal subpart of an ill-formed one */
    enum utf8_kind kind; /* maximal subpart: Unicode 16, table 3-8 and the WHATWG decoder */
};

/** The character at the beginning of n >= 1 bytes. */
struct utf8_char utf8_decode(const uint8_t *bytes, size_t n);

#endif
