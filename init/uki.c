/* The sections of an EFI program. */
#include "init/uki.h"

#include <string.h>

/* Of Microsoft's specification of PE: where the header is said to be, and what is in it. */
#define HEADER_AT    0x3c
#define HEADER_BYTES 24
#define COUNT_AT     6 /* of sections */
#define OPTIONAL_AT                                                                                \
    20 /* bytes of the header that follows it, behind which the sections are told                  \
        */
#define SECTION_BYTES  40
#define NAME_BYTES     8
#define LENGTH_AT      8  /* without the padding */
#define STORED_AT      16 /* with it */
#define FILE_OFFSET_AT 20

static uint32_t get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

/* The table of sections; NULL: this is no EFI program. */
static const uint8_t *sections(const uint8_t *program, size_t n, size_t *count)
{
    if (n < HEADER_AT + 4 || memcmp(program, "MZ", 2) != 0)
        return NULL;
    size_t at = get32(program + HEADER_AT);
    if (at > n || n - at < HEADER_BYTES || memcmp(program + at, "PE\0\0", 4) != 0)
        return NULL;
    const uint8_t *header = program + at;
    size_t left = n - at - HEADER_BYTES, optional = get16(header + OPTIONAL_AT);
    *count = get16(header + COUNT_AT);
    if (optional > left || (left - optional) / SECTION_BYTES < *count)
        return NULL;
    return header + HEADER_BYTES + optional;
}

enum uki_result uki_section(const uint8_t *program, size_t n, const char *name,
                            const uint8_t **bytes, size_t *len)
{
    size_t count;
    char padded[NAME_BYTES] = {0};
    const uint8_t *table = sections(program, n, &count);
    if (table == NULL)
        return UKI_MALFORMED;
    memcpy(padded, name, strnlen(name, NAME_BYTES));
    for (size_t i = 0; i < count; i++) {
        const uint8_t *section = table + i * SECTION_BYTES;
        size_t length = get32(section + LENGTH_AT), at = get32(section + FILE_OFFSET_AT);
        if (memcmp(section, padded, NAME_BYTES) != 0)
            continue;
        if (length > get32(section + STORED_AT) || at > n || n - at < length)
            return UKI_MALFORMED;
        *bytes = program + at;
        *len = length;
        return UKI_FOUND;
    }
    return UKI_ABSENT;
}

const char *uki_payload(struct verity *v, bool *named, const uint8_t *program, size_t n)
{
    const uint8_t *line;
    size_t len;
    enum uki_result result = uki_section(program, n, UKI_PAYLOAD, &line, &len);
    *named = result == UKI_FOUND;
    if (result == UKI_MALFORMED)
        return "the program is no EFI program";
    return !*named || verity_parse(v, (const char *)line, len)
               ? NULL
               : "the program names its GPU payload in a way that this system does not know";
}
