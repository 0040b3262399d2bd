/*
 * The log of the box: the newest lines of init and its services, in a fixed amount of memory.
 * Knows nothing of where lines come from.  Lines are cut at LOG_LINE_BYTES; the oldest make room.
 */
#ifndef V4BOX_INIT_RING_H
#define V4BOX_INIT_RING_H

#include "config/box.h"

#include <stddef.h>
#include <stdint.h>

struct ring {
    /* Records back to back, wrapping at the end: u16 little-endian length, then the line. */
    char bytes[LOG_RING_BYTES];
    size_t head;       /* offset of the oldest record */
    size_t used_bytes; /* bytes of all records */
    size_t line_count; /* records held */
    uint64_t dropped;  /* lines that made room since boot */
};

/** Appends one line (no newline in it). */
void ring_add(struct ring *r, const char *line, size_t n);

/**
 * Calls `each` for the newest `count` lines, oldest first.
 * @own the line is valid during the call only
 */
void ring_tail(const struct ring *r, size_t count,
               void (*each)(void *context, const char *line, size_t n), void *context);

/* One service's output, cut into lines as it arrives in pieces. */
struct line_splitter {
    char line[LOG_LINE_BYTES];
    size_t len;
};

/** Feeds bytes; calls `each` for every finished line.  Bytes beyond LOG_LINE_BYTES are left out. */
void line_splitter_feed(struct line_splitter *s, const char *bytes, size_t n,
                        void (*each)(void *context, const char *line, size_t n), void *context);

/** Delivers what is left without a newline, if anything (the service has ended). */
void line_splitter_end(struct line_splitter *s,
                       void (*each)(void *context, const char *line, size_t n), void *context);

#endif
