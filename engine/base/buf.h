/*
 * A growable byte buffer and a growable list of token ids.  Growth is bounded by whoever fills
 * them; running out of memory is fatal here, as nothing sensible can be answered then.
 */
#ifndef V4BOX_ENGINE_BUF_H
#define V4BOX_ENGINE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* owns; not NUL-terminated unless buf_cstr was called */
    size_t len, cap;
};

struct ids {
    int32_t *data; /* owns */
    size_t len, cap;
};

void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Adds a NUL behind the content (not counted in len) and returns it. */
const char *buf_cstr(struct buf *b);
void buf_free(struct buf *b);

void ids_add(struct ids *a, int32_t id);
void ids_free(struct ids *a);

#endif
