/* The one table of what is well-formed. */
#include "engine/base/utf8.h"

/* What may follow a lead byte: Unicode 16, table 3-7. */
static const struct lead {
    uint8_t first, last; /* lead bytes */
    uint8_t len;         /* bytes of the character */
    uint8_t low, high;   /* bounds of the second byte; later ones are 80..BF */
} LEADS[] = {
    {0x00, 0x7F, 1, 0, 0},       {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

struct utf8_char utf8_decode(const uint8_t *bytes, size_t n)
{
    const struct lead *lead = NULL;
    for (size_t i = 0; i < sizeof LEADS / sizeof LEADS[0] && lead == NULL; i++) {
        if (bytes[0] >= LEADS[i].first && bytes[0] <= LEADS[i].last)
            lead = &LEADS[i];
    }
    if (lead == NULL)
        return (struct utf8_char){.len = 1, .kind = UTF8_BAD};
    /* The lead's payload: 7, 5, 4 or 3 bits. */
    uint32_t code = lead->len == 1 ? bytes[0] : bytes[0] & (0x7Fu >> lead->len);
    for (uint8_t i = 1; i < lead->len; i++) {
        if (i == n)
            return (struct utf8_char){.len = i, .kind = UTF8_CUT};
        uint8_t low = i == 1 ? lead->low : 0x80, high = i == 1 ? lead->high : 0xBF;
        if (bytes[i] < low || bytes[i] > high)
            return (struct utf8_char){.len = i, .kind = UTF8_BAD};
        code = code << 6 | (bytes[i] & 0x3F);
    }
    return (struct utf8_char){.code = code, .len = lead->len, .kind = UTF8_WHOLE};
}
