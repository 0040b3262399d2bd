/*
 * Several ranks as one backend.  Each rank is a backend of its own, on a thread of its own, with
 * all of the memory and its slices of the weights (kernels/slice.h); what callers see is one
 * backend whose pointers are those of rank 0.  Operations are queued: a call returns before the
 * ranks have run it, and what gives something back to the host waits.
 *
 * Results have the same bits for every number of ranks.  Knows no network but what the parameters
 * of kernels/backend.h say, and no GPU.
 */
#ifndef V4BOX_KERNELS_RANKS_H
#define V4BOX_KERNELS_RANKS_H

#include "kernels/backend.h"
#include "kernels/slice.h"

/* A tensor that is cut, by where it lies. */
struct ranks_tensor {
    const void *data; /* borrows */
    enum slice_axis axis;
};

/** Opens the backend of one rank, on its thread.  @return NULL: refused, and `user` knows why */
typedef struct backend *ranks_open_fn(void *user, int32_t rank);

struct ranks_plan {
    int32_t ranks; /* 1 to RANKS_MAX */
    struct backend_limits limits;
    int32_t blocks;                     /* of the network: tables of experts */
    uint32_t limit_ms;                  /* of a wait for another rank, whose end is the process's */
    const struct ranks_tensor *tensors; /* [n_tensors], copied */
    int32_t n_tensors;
    ranks_open_fn *open;
    void *user;
};

/** @own ops->destroy  @return NULL: a rank was refused, or memory or a thread */
struct backend *backend_ranks_create(const struct ranks_plan *plan);

#endif
