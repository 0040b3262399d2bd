/* The worker computes on the first GPU that its driver shows. */
#include "engine/model/network.h"
#include "kernels/cuda/cuda.h"

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    if (options->isa != ISA_AUTO || options->threads != 0)
        return error_set(err, ERR_USAGE, "--isa, --threads: the worker computes on a GPU");
    if (options->ranks > 1 || rank != 0)
        return error_set(err, ERR_USAGE, "--ranks: this worker computes on one GPU");
    const char *reason;
    *out = backend_cuda_create(0, limits, &reason);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "GPU 0: %s", reason);
    return OK;
}
