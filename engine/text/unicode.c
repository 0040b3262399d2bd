/*
 * The classes come from utf8proc and, for characters that are newer than it, from
 * config/unicode_additions.def.
 */
#include "engine/text/unicode.h"

#include "kernels/check.h"

#include <string.h>
#include <utf8proc.h>

struct range {
    uint32_t first, last;
    uint8_t class;
};

/* The property White_Space (PropList.txt), which is what \s means in the reference's engine. */
static const struct range SPACES[] = {
    {0x0009, 0x000D, CHAR_SPACE}, {0x0020, 0x0020, CHAR_SPACE},   {0x0085, 0x0085, CHAR_SPACE},
    {0x00A0, 0x00A0, CHAR_SPACE}, {0x1680, 0x1680, CHAR_SPACE},   {0x2000, 0x200A, CHAR_SPACE},
    {0x2028, 0x2029, CHAR_SPACE}, {0x202F, 0x202F, CHAR_SPACE},   {0x205F, 0x205F, CHAR_SPACE},
    {0x3000, 0x3000, CHAR_SPACE}, {0x000A, 0x000A, CHAR_NEWLINE}, {0x000D, 0x000D, CHAR_NEWLINE},
};

/* The ranges that the second split expression spells out. */
static const struct range HAN_KANA[] = {
    {0x4E00, 0x9FA5, CHAR_HAN_KANA},
    {0x3040, 0x309F, CHAR_HAN_KANA},
    {0x30A0, 0x30FF, CHAR_HAN_KANA},
};

#define ADDITION(first, last, class) {first, last, CHAR_##class},
static const struct range ADDITIONS[] = {
#include "config/unicode_additions.def"
};
#undef ADDITION

static uint8_t general_class(utf8proc_category_t category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CHAR_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return CHAR_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CHAR_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return CHAR_PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return CHAR_SYMBOL;
    default:
        return 0;
    }
}

/* Adds the classes of those ranges that reach into the block. */
static void add_ranges(const struct range *ranges, size_t n, uint32_t first, uint8_t *block)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t from = ranges[i].first > first ? ranges[i].first : first;
        for (uint32_t code = from; code <= ranges[i].last && code < first + UNICODE_BLOCK; code++)
            block[code - first] |= ranges[i].class;
    }
}

#define ADD_RANGES(table, first, block)                                                            \
    add_ranges(table, sizeof table / sizeof table[0], first, block)

void unicode_init(struct unicode *unicode)
{
    size_t used = 0;
    for (uint32_t b = 0; b < UNICODE_CODES / UNICODE_BLOCK; b++) {
        uint32_t first = b * UNICODE_BLOCK;
        uint8_t block[UNICODE_BLOCK];
        for (uint32_t i = 0; i < UNICODE_BLOCK; i++)
            block[i] = general_class(utf8proc_category((utf8proc_int32_t)(first + i)));
        ADD_RANGES(ADDITIONS, first, block);
        ADD_RANGES(SPACES, first, block);
        ADD_RANGES(HAN_KANA, first, block);
        size_t same = 0;
        while (same < used && memcmp(unicode->classes[same], block, sizeof block) != 0)
            same++;
        if (same == used) {
            ASSERT(used < UNICODE_BLOCKS);
            memcpy(unicode->classes[used++], block, sizeof block);
        }
        unicode->block_of[b] = (uint8_t)same;
    }
}

uint8_t unicode_class_wide(const struct unicode *unicode, const uint8_t *bytes, size_t n,
                           size_t *len)
{
    struct utf8_char c = utf8_decode(bytes, n);
    *len = c.len;
    if (c.kind != UTF8_WHOLE)
        return 0;
    return unicode->classes[unicode->block_of[c.code / UNICODE_BLOCK]][c.code % UNICODE_BLOCK];
}
