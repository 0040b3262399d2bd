/*
 * A log on a disk in files of bounded size: FOLDER/current, and before it FOLDER/1, FOLDER/2 and so
 * on, of which the oldest goes.  Knows bytes, not where they come from.
 */
#ifndef V4BOX_INIT_KEEPLOG_H
#define V4BOX_INIT_KEEPLOG_H

#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>

struct keeplog {
    const char *folder; /* borrows */
    size_t file_bytes;  /* of one file, at most */
    int files;          /* beside `current` */
};

/**
 * Appends whole lines and waits until the disk has them.  A disk that is full loses its oldest file
 * first.  @err false with errno: they are not kept
 */
bool keeplog_append(const struct keeplog *k, const char *lines, size_t n);

/** Appends the last `count` lines of the two newest files that fit.  @err false: there are none */
bool keeplog_tail(const struct keeplog *k, size_t count, struct text *out);

#endif
