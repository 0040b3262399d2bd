/*
 * Small files of `key = value` lines that init writes itself: a line each, the last one a checksum
 * over the bytes before it, so that a damaged file is never taken for a good one.  Knows no key.
 *
 *   good = a
 *   tries = 1
 *   checksum = 16 hexadecimal digits, 64-bit FNV-1a
 *
 * The checksum is against accidents; whoever can write the disk can write it as well.
 */
#ifndef V4BOX_INIT_KEYFILE_H
#define V4BOX_INIT_KEYFILE_H

#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>

#define KEYFILE_KEY_BYTES   32
#define KEYFILE_VALUE_BYTES 160

/* Takes one pair, both NUL-terminated; false: it does not belong here. */
typedef bool (*keyfile_take)(void *context, const char *key, const char *value);

/**
 * Reads a whole file.  `take` sees the pairs in order, once the checksum is known to be right.
 * @err false: malformed, a wrong checksum, or a pair that was not taken
 */
bool keyfile_parse(const char *bytes, size_t n, keyfile_take take, void *context);

/** Appends a pair; bytes that are not printable become '?'. */
void keyfile_add(struct text *t, const char *key, const char *value);

/** Appends the last line. */
void keyfile_seal(struct text *t);

#endif
