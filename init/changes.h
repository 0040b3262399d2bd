/*
 * Who changed what, and when: a file that the kernel lets nobody shorten or rewrite, and the one
 * before it.  Knows lines, not commands.
 *
 *   2026-11-30T09:00:00Z anna operator: profile set fast
 */
#ifndef V4BOX_INIT_CHANGES_H
#define V4BOX_INIT_CHANGES_H

#include "init/text.h"

#include <stdbool.h>

/**
 * Appends a line and waits until the disk has it; `what` is cut at the line's limit, bytes that are
 * not printable become '?'.  A file that is full becomes `path`.1, in place of the one before.
 * @err false with errno
 */
bool changes_add(const char *path, const char *who, const char *role, const char *what);

/** Appends the last `count` lines, of both files.  @err false with errno: neither can be read */
bool changes_tail(const char *path, size_t count, struct text *out);

#endif
