/* The engine computes on this machine's processors: which variant, and how many threads. */
#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/model/network.h"
#include "kernels/cpu/cpu.h"
#include "kernels/link.h"

#include <sched.h>

static int online_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < CPU_THREADS_MAX ? n : CPU_THREADS_MAX;
}

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    static const enum cpu_isa FORCED[] = {
        [ISA_BASELINE] = CPU_BASELINE, [ISA_AVX2] = CPU_AVX2, [ISA_AVX512] = CPU_AVX512};
    enum cpu_isa isa = options->isa == ISA_AUTO ? cpu_isa_best() : FORCED[options->isa];
    if (!cpu_isa_available(isa))
        return error_set(err, ERR_USAGE, "--isa %s: this processor does not have it",
                         isa_name(options->isa));
    if (options->threads < 0 || options->threads > CPU_THREADS_MAX)
        return error_set(err, ERR_USAGE, "--threads: 0 (all) to %d", CPU_THREADS_MAX);
    if (options->gpu != 0)
        return error_set(err, ERR_USAGE, "--gpu: this program computes on processors");
    if (options->apart)
        return error_set(err, ERR_USAGE, "GPUs are asked for, and processors are there");
    (void)rank;
    int threads = options->threads == 0 ? online_processors() : options->threads;
    int share = options->ranks > 1 ? threads / options->ranks : threads;
    struct backend_limits room = *limits; /* for as many tokens as it says it takes */
    room.tokens = room.tokens < SPAN_TOKENS_MAX ? room.tokens : SPAN_TOKENS_MAX;
    *out = backend_cpu_create(isa, share > 1 ? share : 1, &room);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "no memory or threads for the CPU backend");
    return OK;
}

int32_t model_backend_ranks(const struct model_options *options, uint64_t weights)
{
    (void)options;
    (void)weights;
    return 1; /* its threads share the work in another way */
}

int32_t model_backend_gpus(void)
{
    return 0;
}

/* There is nothing to watch, which is told once. */
void model_backend_watch(const struct model_options *options, struct link_board *board)
{
    (void)options;
    link_show(board, &(struct gauges){.at_ms = clock_ms(), .peers = PEERS_UNKNOWN});
}
