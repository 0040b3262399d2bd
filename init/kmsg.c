/* Records of the kernel's log. */
#include "init/kmsg.h"

#include "config/box.h"

#include <string.h>

#define LEVELS 8 /* the rest of the number says who wrote it, 0: the kernel */

const char *kmsg_text(const char *record, size_t n, size_t *length)
{
    unsigned number = 0;
    size_t i = 0;
    for (; i < n && i < 6 && record[i] >= '0' && record[i] <= '9'; i++)
        number = number * 10 + (unsigned)(record[i] - '0');
    if (i == 0 || i == n || record[i] != ',' || number >= LEVELS || number > KERNEL_LEVEL_MAX)
        return NULL;
    const char *semicolon = memchr(record, ';', n);
    if (semicolon == NULL)
        return NULL;
    const char *text = semicolon + 1, *end = record + n;
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    *length = (size_t)((newline == NULL ? end : newline) - text);
    return *length > 0 ? text : NULL;
}
