/* The log of the box. */
#include "init/ring.h"

#include <assert.h>
#include <string.h>

#define HEADER_BYTES 2

static_assert(LOG_LINE_BYTES < 65536, "a record's length is 16 bits");
static_assert(LOG_LINE_BYTES + HEADER_BYTES <= LOG_RING_BYTES, "one line must fit");

static void put(struct ring *r, const char *bytes, size_t n)
{
    size_t at = (r->head + r->used_bytes) % LOG_RING_BYTES;
    size_t first = n < LOG_RING_BYTES - at ? n : LOG_RING_BYTES - at;
    memcpy(r->bytes + at, bytes, first);
    memcpy(r->bytes, bytes + first, n - first);
    r->used_bytes += n;
}

static void get(const struct ring *r, size_t at, char *bytes, size_t n)
{
    size_t first = n < LOG_RING_BYTES - at ? n : LOG_RING_BYTES - at;
    memcpy(bytes, r->bytes + at, first);
    memcpy(bytes + first, r->bytes, n - first);
}

static size_t record_length(const struct ring *r, size_t at)
{
    unsigned char header[HEADER_BYTES];
    get(r, at, (char *)header, HEADER_BYTES);
    return (size_t)header[0] | (size_t)header[1] << 8;
}

static void drop_oldest(struct ring *r)
{
    size_t n = HEADER_BYTES + record_length(r, r->head);
    r->head = (r->head + n) % LOG_RING_BYTES;
    r->used_bytes -= n;
    r->line_count--;
    r->dropped++;
}

void ring_add(struct ring *r, const char *line, size_t n)
{
    n = n < LOG_LINE_BYTES ? n : LOG_LINE_BYTES;
    while (r->used_bytes + HEADER_BYTES + n > LOG_RING_BYTES)
        drop_oldest(r);
    char header[HEADER_BYTES] = {(char)(n & 0xff), (char)(n >> 8)};
    put(r, header, HEADER_BYTES);
    put(r, line, n);
    r->line_count++;
}

void ring_tail(const struct ring *r, size_t count,
               void (*each)(void *context, const char *line, size_t n), void *context)
{
    char line[LOG_LINE_BYTES];
    size_t at = r->head;
    for (size_t i = 0; i < r->line_count; i++) {
        size_t n = record_length(r, at);
        if (r->line_count - i <= count) {
            get(r, (at + HEADER_BYTES) % LOG_RING_BYTES, line, n);
            each(context, line, n);
        }
        at = (at + HEADER_BYTES + n) % LOG_RING_BYTES;
    }
}

void line_splitter_feed(struct line_splitter *s, const char *bytes, size_t n,
                        void (*each)(void *context, const char *line, size_t n), void *context)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            each(context, s->line, s->len);
            s->len = 0;
        } else if (bytes[i] != '\r' && s->len < sizeof s->line) {
            s->line[s->len++] = bytes[i];
        }
    }
}

void line_splitter_end(struct line_splitter *s,
                       void (*each)(void *context, const char *line, size_t n), void *context)
{
    if (s->len > 0)
        each(context, s->line, s->len);
    s->len = 0;
}
