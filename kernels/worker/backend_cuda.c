/* The worker computes on the GPUs that its driver shows, from one of them on: a rank on each, or,
 * when there are fewer than were asked for, all on that one.  A thread tells the engine how they
 * fare. */
#include "engine/base/clock.h"
#include "engine/model/network.h"
#include "kernels/cuda/cuda.h"
#include "kernels/link.h"
#include "kernels/slice.h"
#include "kernels/worker/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The GPU of rank 0 of this group; groups that there are no GPUs for share those of others. */
static int first_of(const struct model_options *options)
{
    int places = (backend_cuda_devices() - options->gpu) / options->ranks;
    return options->gpu + options->group % (places > 1 ? places : 1) * options->ranks;
}

static int device_of(int32_t rank, int32_t ranks, int first)
{
    return backend_cuda_devices() - first < ranks ? first : first + rank;
}

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    if (options->isa != ISA_AUTO || options->threads != 0)
        return error_set(err, ERR_USAGE, "--isa, --threads: the worker computes on a GPU");
    int end = options->gpu + (options->group + 1) * options->ranks;
    if (options->apart && end > backend_cuda_devices())
        return error_set(err, ERR_CAPACITY, "GPUs %d to %d are asked for, and %d are there",
                         end - options->ranks, end - 1, backend_cuda_devices());
    int device = device_of(rank, options->ranks, first_of(options));
    const char *reason;
    *out = backend_cuda_create(device, limits, &reason);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "GPU %d: %s", device, reason);
    return OK;
}

int32_t model_backend_ranks(const struct model_options *options, uint64_t weights)
{
    return slice_ranks(weights, backend_cuda_devices() - options->gpu,
                       backend_cuda_memory(options->gpu));
}

int32_t model_backend_gpus(void)
{
    return backend_cuda_devices();
}

/* ---- how they fare -------------------------------------------------------------------------- */

#define NVML "libnvidia-ml.so.1"

struct watch {
    struct link_board *board; /* borrows, as long as the process lives */
    int32_t ranks, group;
    int first; /* GPU */
};

/* The first rank that computes on each GPU, which the two libraries number in ways of their own. */
static void name_ranks(struct gauges *g, const struct watch *w)
{
    char bus[GAUGE_BUS_BYTES];
    for (int32_t rank = w->ranks - 1; rank >= 0; rank--) {
        if (!backend_cuda_bus(device_of(rank, w->ranks, w->first), bus))
            continue;
        for (int32_t i = 0; i < g->n; i++) {
            if (strcmp(g->gpu[i].bus, bus) != 0)
                continue;
            g->gpu[i].value[GAUGE_RANK] = rank;
            g->gpu[i].value[GAUGE_GROUP] = w->group + 1;
        }
    }
}

/* A GPU that has gone may hold NVML up for ever: the engine sees by the time that nothing is new.
 */
static void *watch(void *context)
{
    const struct watch *w = context;
    struct gauges g = {.peers = (int32_t)backend_cuda_peers()};
    const char *wrong = nvml_open(NVML);
    if (wrong != NULL)
        snprintf(g.note, sizeof g.note, "%s", wrong);
    for (;;) {
        if (wrong == NULL)
            nvml_read(&g);
        name_ranks(&g, w);
        g.at_ms = clock_ms();
        link_show(w->board, &g);
        usleep(GAUGE_PERIOD_MS * 1000);
    }
    return NULL;
}

void model_backend_watch(const struct model_options *options, struct link_board *board)
{
    static struct watch w;
    pthread_t thread;
    w = (struct watch){board, options->ranks, options->group, first_of(options)};
    int code = pthread_create(&thread, NULL, watch, &w);
    if (code != 0)
        fprintf(stderr, "worker: nobody watches the GPUs: %s\n", strerror(code));
}
