/*
 * What `support` collects: the looks that help others to help, and a second pair of eyes on what
 * they say.  No command prints a secret; what an operator typed in the wrong place may stand in the
 * log of changes all the same.
 */
#ifndef V4BOX_INIT_SUPPORT_H
#define V4BOX_INIT_SUPPORT_H

#include "init/text.h"

#include <stddef.h>

/** The command of that index, as it would be typed; NULL behind the last one. */
const char *support_command(size_t i);

/**
 * Appends a text, with secrets masked: API keys, blocks of private keys, and words that are long
 * enough to be a secret and made like one.
 */
void support_mask(struct text *out, const char *text, size_t n);

#endif
