/* Inside several ranks: what ranks.c (threads, memory, the queue) and ranks_cut.c (operations that
 * are cut) share.  Nobody else includes this. */
#ifndef V4BOX_KERNELS_RANKS_INSIDE_H
#define V4BOX_KERNELS_RANKS_INSIDE_H

#include "kernels/meeting.h"
#include "kernels/ranks.h"

#include <pthread.h>
#include <stdbool.h>

struct ranks;

/* One rank; all of it belongs to its thread, but what it is given at the start. */
struct rank {
    struct ranks *all;
    int32_t number;
    pthread_t thread;
    bool started;
    struct backend *backend; /* owns; NULL: refused */
    uint64_t done;           /* jobs; lock */
    float *part;             /* owns (device): results of its own, until the others have them */
    float *inner;            /* owns (device): [tokens * top, inner] of the experts, all of it */
    const float *q;          /* where callers see the queries that it has its heads of */
    /* Tables of experts, by where callers have the whole ones. */
    struct rank_experts {
        const struct expert *whole;
        struct expert *own; /* owns; [experts] */
    } * experts;            /* owns; [plan.blocks] */
};

/* Memory that every rank has; callers know that of rank 0. */
struct region {
    char *at[RANKS_MAX];
    size_t bytes;
};

/** A rank's own for a pointer that callers have; NULL for NULL. */
void *rank_own(const struct rank *rank, const void *pointer);
/** What the ranks that compute it show to the others. */
enum slice_axis ranks_axis(const struct ranks *ranks, const struct tensor *tensor);
const struct ranks_plan *ranks_plan(const struct ranks *ranks);
/** Gives pieces to all ranks: evidence included. */
void rank_gather(struct rank *rank, struct gather_params *gather, const struct place *place,
                 int32_t n);
/** One piece more: rows that are `width` wide where callers have them, shared in units of so many
 *  columns; this rank's lie in rank->part + from.
 *  @param whole  NULL: rank->inner of each
 *  @return from, behind them */
size_t rank_piece(const struct rank *rank, struct gather_params *gather, size_t from, int32_t n,
                  int32_t width, int32_t unit, const float *whole);

/* `asked`: as callers gave it; `own`: the same with the rank's own pointers, to be changed. */
void rank_linear(struct rank *rank, const void *asked, void *own);
void rank_grouped(struct rank *rank, const void *asked, void *own);
void rank_query(struct rank *rank, const void *asked, void *own);
void rank_attention(struct rank *rank, const void *asked, void *own);
void rank_experts(struct rank *rank, const void *asked, void *own);

/** Brings this rank's slices to its memory.  @return NULL; else why not */
const char *rank_load(struct rank *rank, const struct load_params *p);

#endif
