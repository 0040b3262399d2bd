/* The worker computes on the GPUs that its driver shows: a rank on each, or, when there are fewer,
 * all on the first. */
#include "engine/model/network.h"
#include "kernels/cuda/cuda.h"

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    if (options->isa != ISA_AUTO || options->threads != 0)
        return error_set(err, ERR_USAGE, "--isa, --threads: the worker computes on a GPU");
    int device = backend_cuda_devices() < options->ranks ? 0 : rank;
    const char *reason;
    *out = backend_cuda_create(device, limits, &reason);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "GPU %d: %s", device, reason);
    return OK;
}
