/*
 * Byte pair encoding of one piece: the merge table and the algorithm.  Knows ids and bytes, no
 * files, no Unicode, no added tokens.
 */
#ifndef V4BOX_ENGINE_TEXT_BPE_H
#define V4BOX_ENGINE_TEXT_BPE_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id; BPE_NO_PAIR: an empty slot */
    uint32_t rank; /* lower merges first */
    int32_t id;    /* of the merged token */
};

/* A token that is what its own bytes encode to: pieces that are one token need no merging. */
struct bpe_whole {
    const uint8_t *bytes; /* view, the owner of the vocabulary outlives the table */
    uint32_t len;         /* 0: an empty slot */
    int32_t id;
};

/* Immutable once filled. */
struct bpe {
    struct bpe_merge *merges; /* owns [merge_mask + 1], open addressing, at most half full */
    struct bpe_whole *wholes; /* owns [whole_mask + 1], likewise */
    size_t merge_mask, whole_mask;
    int32_t byte_ids[256];
};

/* One symbol of a piece while it merges, linked in text order. */
struct bpe_symbol {
    int32_t id;
    uint32_t prev, next; /* indices, BPE_NONE at the ends */
    uint32_t rank;       /* of the merge with `next`; BPE_NONE: they do not merge */
    int32_t merged;      /* id of that merge */
};

/* Working memory of one caller; zero-initialised, kept from piece to piece. */
struct bpe_scratch {
    struct bpe_symbol *symbols; /* owns [cap] */
    uint64_t *heap;             /* owns [2 cap]: rank << 32 | index of the left symbol */
    size_t cap;
};

/** Empty tables with room for so many entries.  @own bpe_free */
void bpe_init(struct bpe *bpe, size_t merge_count, size_t whole_count);
void bpe_free(struct bpe *bpe);

/** False when the pair is already there. */
bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);

/** To be called once for each token, after byte_ids and all merges are there. */
void bpe_add_whole(struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *bytes, uint32_t len,
                   int32_t id);

/** Appends the ids of one piece: the lowest rank merges first, the leftmost among equals, until no
 *  two neighbours merge.  O(n log n).  1 <= len < 2^31. */
void bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece,
                size_t len, struct ids *out);
void bpe_scratch_free(struct bpe_scratch *scratch);

#endif
