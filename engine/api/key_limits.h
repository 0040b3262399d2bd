/*
 * The limits of one API key: config/key_limits.def, from text and to text.  Knows no file and
 * counts nothing.
 */
#ifndef V4BOX_ENGINE_API_KEY_LIMITS_H
#define V4BOX_ENGINE_API_KEY_LIMITS_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum key_limit {
#define KEY_LIMIT(name, word, kind, min, max, help) KEY_##name,
#include "config/key_limits.def"
#undef KEY_LIMIT
    KEY_LIMITS,
};

#define KEY_PRIORITY_USUAL 5 /* of KEY_PRIORITY: what a key without it has */

struct key_limits {
    int64_t values[KEY_LIMITS]; /* 0: no limit; dates: days since 1970; flags: 1 */
};

/** The row of a word ([len] bytes), or -1. */
int key_limit_find(const char *word, size_t len);
const char *key_limit_word(enum key_limit limit);
const char *key_limit_help(enum key_limit limit);

/** Reads the value of a limit.  @return NULL, or what it must be; *out stays then */
const char *key_limit_parse(enum key_limit limit, const char *text, size_t len, int64_t *out);

/** Appends the value of a limit that is set. */
void key_limit_print(enum key_limit limit, int64_t value, struct buf *out);

/** Appends " word=VALUE" for each limit that is set. */
void key_limits_print(const struct key_limits *limits, struct buf *out);

/** False for a key that is disabled or whose last day is over.  @unit now_s: since 1970, UTC */
bool key_limits_allow(const struct key_limits *limits, int64_t now_s);

#endif
