/*
 * The prefix cache: which prefixes of earlier timelines can be continued, exactly.
 *
 * A tree of blocks of SNAPSHOT_TOKENS tokens.  A path from a root spells a prefix token by token:
 * the ids themselves are compared, so no two prefixes can be confused, and branching conversations
 * share the blocks of their common part.  Blocks with a tail (snapshot.h) are where a timeline can
 * be continued.  A tree belongs to one namespace and one profile; the cache belongs to one model,
 * and with it to one instruction set.
 *
 * Promise: a sequence restored from here gives the same bits as one that was fed the tokens.
 * Everything is taken at creation; when it is full, the tail whose loss costs the fewest tokens of
 * recomputation for its age goes first.
 * @thread  one caller at a time, the one that steps the model
 */
#ifndef V4BOX_ENGINE_MODEL_PREFIX_H
#define V4BOX_ENGINE_MODEL_PREFIX_H

#include "engine/model/snapshot.h"

struct prefix;

/* Whose prefixes: what one has said is never found for another, and what one profile has computed
 * never serves another. */
struct prefix_owner {
    uint64_t reuse_namespace;      /* not 0 */
    const struct profile *profile; /* borrows; told by its hash */
};

/** Takes `bytes` of memory for the pieces, half for each kind; there are places for as many as
 * `profile` makes of that, while those of others may be larger and fewer.
 *  @own prefix_destroy, before the model is closed
 *  @err ERR_INPUT: the bytes hold no block or no tail; ERR_CAPACITY */
enum status MUST_CHECK prefix_create(const struct model *model, uint64_t bytes,
                                     const struct profile *profile, struct prefix **out,
                                     struct error *err);
void prefix_destroy(struct prefix *prefix);

/** @return tokens of the longest stored prefix of ids [n]; 0: none */
int32_t prefix_find(const struct prefix *prefix, const struct prefix_owner *owner,
                    const int32_t *ids, int32_t n);
/** The pages of the prefix that prefix_find names (snapshot_page): what a timeline that goes on
 * from it shares.  @shape pages [n / SNAPSHOT_TOKENS]  @return how many */
int32_t prefix_pages(const struct prefix *prefix, const struct prefix_owner *owner,
                     const int32_t *ids, int32_t n, int32_t *pages);
/** Puts the prefix that prefix_find names into a sequence that was reset.
 *  @unit turn: counts requests, for the age  @return its length, as prefix_find */
int32_t prefix_restore(struct prefix *prefix, const struct prefix_owner *owner, const int32_t *ids,
                       int32_t n, uint64_t turn, struct sequence *sequence);
/** Keeps the first n tokens of a sequence that was fed ids [n]; n is a multiple of SNAPSHOT_TOKENS
 * and the sequence is longer by less than a step.  Does nothing when the cache is too small. */
void prefix_save(struct prefix *prefix, const struct prefix_owner *owner, const int32_t *ids,
                 int32_t n, uint64_t turn, const struct sequence *sequence);
/** Drops everything of a namespace, under all profiles: its state can not be trusted any more. */
void prefix_forget(struct prefix *prefix, uint64_t reuse_namespace);
/** Drops everything. */
void prefix_clear(struct prefix *prefix);

struct prefix_stats {
    int32_t blocks, blocks_max, tails, tails_max;
    uint64_t bytes, bytes_max; /* of both */
    uint64_t evicted;          /* tails, since the start */
};
void prefix_stats_get(const struct prefix *prefix, struct prefix_stats *out);

#endif
