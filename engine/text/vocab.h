/*
 * The vocabulary: the bytes of every id, and the added tokens by their text.  Knows no merges and
 * no file format.
 */
#ifndef V4BOX_ENGINE_TEXT_VOCAB_H
#define V4BOX_ENGINE_TEXT_VOCAB_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct vocab_token {
    uint32_t offset, len; /* in bytes; len 0: no such id yet */
    bool added;
};

/* Immutable once vocab_finish was called. */
struct vocab {
    struct vocab_token *tokens; /* owns [size] */
    int32_t size;
    struct buf bytes; /* of all tokens, one after the other */
    int32_t *added;   /* owns [added_count]: ids, sorted by text */
    size_t added_count;
    bool added_lead[256]; /* bytes that begin an added token */
};

/** Room for ids below `size` and so many added tokens.  @own vocab_free */
void vocab_init(struct vocab *vocab, int32_t size, size_t added_max);
void vocab_free(struct vocab *vocab);

/** Sets the bytes (at least one) of an id that has none. */
void vocab_set(struct vocab *vocab, int32_t id, const void *bytes, size_t len);
/** Makes an id that has its text an added token. */
void vocab_mark_added(struct vocab *vocab, int32_t id);
/** Sorts the added tokens.  False when two have the same text. */
bool vocab_finish(struct vocab *vocab);

/** The id and length of the longest added token at the beginning of the text, or -1. */
int32_t vocab_match_added(const struct vocab *vocab, const uint8_t *text, size_t len,
                          size_t *match_len);

#endif
