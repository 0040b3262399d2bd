/* Growable buffers.  Doubling; aborts when memory is exhausted. */
#include "engine/base/buf.h"

#include "kernels/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void *grow(void *data, size_t *cap, size_t want, size_t element)
{
    size_t next = *cap == 0 ? 64 : *cap;
    while (next < want) {
        ASSERT(next <= SIZE_MAX / 2 / element);
        next *= 2;
    }
    data = realloc(data, next * element);
    ASSERT(data != NULL);
    *cap = next;
    return data;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    if (b->len + n > b->cap)
        b->data = grow(b->data, &b->cap, b->len + n, 1);
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
}

void buf_puts(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ASSERT(n >= 0);
    if (b->len + (size_t)n + 1 > b->cap)
        b->data = grow(b->data, &b->cap, b->len + (size_t)n + 1, 1);
    va_start(args, format);
    vsnprintf(b->data + b->len, (size_t)n + 1, format, args);
    va_end(args);
    b->len += (size_t)n;
}

const char *buf_cstr(struct buf *b)
{
    buf_add(b, "", 1);
    b->len--;
    return b->data;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void ids_add(struct ids *a, int32_t id)
{
    if (a->len == a->cap)
        a->data = grow(a->data, &a->cap, a->len + 1, sizeof *a->data);
    a->data[a->len++] = id;
}

void ids_free(struct ids *a)
{
    free(a->data);
    *a = (struct ids){0};
}
