/*
 * Where init's own lines and those of its services go: the ring, stamped with the time since boot,
 * and while the box boots also the serial line.  No content of requests ever comes here: the
 * services log events, not text.
 */
#ifndef V4BOX_INIT_JOURNAL_H
#define V4BOX_INIT_JOURNAL_H

#include "init/ring.h"

#include <stdbool.h>

struct journal {
    struct ring ring;
    int echo_fd; /* borrows; -1: lines are only kept */
    /* Told every line before it is kept; NULL: nobody is. */
    void (*watch)(const char *who, const char *line, size_t n);
};

/** Milliseconds of the monotonic clock, which starts with the kernel. */
int64_t clock_ms(void);

/** Adds one line said by `who`. */
void journal_line(struct journal *j, const char *who, const char *line, size_t n);
void journal_printf(struct journal *j, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
