/*
 * Which rank multiplies which rows of which tensor, as data.
 *
 * A tensor is cut between output rows and never along a sum: each number of the network is summed
 * by one rank, in the order in which one rank alone sums it, and then given to the others.  So the
 * results have the same bits for every number of ranks, under every profile; no sum goes over
 * ranks, and no order of ranks can matter.
 */
#ifndef V4BOX_KERNELS_SLICE_H
#define V4BOX_KERNELS_SLICE_H

#include "kernels/tensor.h"

#include <stdint.h>

enum slice_axis {
    SLICE_NONE,     /* whole on every rank */
    SLICE_ROWS,     /* rows, in units of SLICE_UNIT; every rank gets all results */
    SLICE_GROUPS,   /* rows that belong to a rank's groups of heads; results stay there */
    SLICE_GATHERED, /* the same, and every rank gets all results */
};

/* Rows of a unit: the scales of FP8 are for as many, and kernels take as many values at once. */
#define SLICE_UNIT 128

struct slice {
    int32_t first, n;
};

/** @param name  a tensor's, without what stands in front of it (config/weights.def) */
enum slice_axis slice_axis_of(const char *name);

/** How many ranks compute a network where nobody says it: the least power of two whose shares of
 * the weights leave a GPU the room that RANKS_FILL_PERCENT says; as many as there are GPUs for,
 * where none does.
 *  @param weights, memory  bytes of the network and of a GPU */
int32_t slice_ranks(uint64_t weights, int32_t gpus, uint64_t memory);
/** Shares of `units` that differ by one at most; those of the first rank are never empty. */
struct slice slice_share(int32_t units, int32_t rank, int32_t ranks);
/** A rank's share of so many rows, in units of so many; the last one may be smaller. */
struct slice slice_rows(int32_t rows, int32_t unit, int32_t rank, int32_t ranks);
/** Some rows of a tensor: the same bytes, further on.  FP8 is cut at multiples of SLICE_UNIT.
 *  @return data is NULL when there are none */
struct tensor slice_of_tensor(const struct tensor *whole, struct slice rows);

#endif
