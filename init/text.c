/* Text into a fixed buffer. */
#include "init/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct text text_over(char *buffer, size_t cap)
{
    buffer[0] = '\0';
    return (struct text){.data = buffer, .cap = cap};
}

void text_add(struct text *t, const void *bytes, size_t n)
{
    if (n >= t->cap - t->len) {
        t->cut = true;
        return;
    }
    memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->data + t->len, t->cap - t->len, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= t->cap - t->len) {
        t->data[t->len] = '\0';
        t->cut = true;
        return;
    }
    t->len += (size_t)n;
}

/* Bytes of the well-formed UTF-8 character at `p`, or 0 (overlong forms and surrogates included).
 */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    static const struct {
        unsigned char lead_min, lead_max, next_min, next_max;
        size_t length;
    } FORMS[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++) {
        if (p[0] < FORMS[i].lead_min || p[0] > FORMS[i].lead_max)
            continue;
        if (FORMS[i].length == 1)
            return 1;
        if (n < FORMS[i].length || p[1] < FORMS[i].next_min || p[1] > FORMS[i].next_max)
            return 0;
        for (size_t k = 2; k < FORMS[i].length; k++)
            if ((p[k] & 0xc0) != 0x80)
                return 0;
        return FORMS[i].length;
    }
    return 0;
}

void text_json_string(struct text *t, const char *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    text_add(t, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(p + i, n - i);
        if (p[i] == '"' || p[i] == '\\')
            text_printf(t, "\\%c", p[i]);
        else if (p[i] == '\n')
            text_add(t, "\\n", 2);
        else if (length == 0 || p[i] < 0x20 || p[i] == 0x7f)
            text_printf(t, "\\u%04x", length == 0 ? 0xfffdu : (unsigned)p[i]);
        else
            text_add(t, p + i, length);
        i += length == 0 ? 1 : length;
    }
    text_add(t, "\"", 1);
}

void text_add_printable(struct text *t, const char *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(p + i, n - i);
        /* U+0080 to U+009F (lead byte c2) are control characters of their own. */
        bool control = length == 1 ? (p[i] < 0x20 && p[i] != '\n' && p[i] != '\t') || p[i] == 0x7f
                                   : length == 2 && p[i] == 0xc2 && p[i + 1] < 0xa0;
        if (length == 0 || control)
            text_add(t, ".", 1);
        else
            text_add(t, p + i, length);
        i += length == 0 ? 1 : length;
    }
}

size_t text_last_lines(const char *bytes, size_t n, size_t count)
{
    size_t at = n > 0 && bytes[n - 1] == '\n' ? n - 1 : n;
    while (at > 0 && count > 0)
        if (bytes[--at] == '\n' && --count == 0)
            return at + 1;
    return at;
}
