/*
 * A worker over the CPU backend that fails as one on GPUs does:  PROGRAM steps --model DIR --ranks
 * N
 *
 * The file PROGRAM.plan has one word on each line, and each fault that happened takes away its
 * line; the word in front says what fails next:
 *
 *   device   in a step: the device of rank 1 fails
 *   hang     in a step: rank 1 does not come to the others
 *   memory   at the start: the weights of rank 1 do not fit
 *   peers    at the start, while ranks get to know each other: the device of rank 1 fails
 *
 *
 * The file PROGRAM.gpus makes up GPUs: how many it says to see, how many ranks it takes where
 * nobody says how many, and how many there are when ranks want one each: `8 2 8`.  Without the
 * files it computes as any other.
 */
#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/commands.h"
#include "engine/model/network.h"
#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fault.h"
#include "kernels/link.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLAN_BYTES 256

static char plan_path[4096], gpus_path[4096];
static int gpus, ranks_wanted = 1, gpus_there;

/* One backend of each rank; what it does beside the CPU's. */
static struct {
    struct backend_ops ops;
    const struct backend_ops *true_ops;
} ranks[RANKS_MAX];

/* @return whether this fault is next; then it is so no more */
static bool happens(const char *fault)
{
    char text[PLAN_BYTES] = "";
    size_t n = strlen(fault);
    FILE *file = fopen(plan_path, "r");
    if (file == NULL)
        return false;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    if (got <= n || strncmp(text, fault, n) != 0 || text[n] != '\n')
        return false;
    file = fopen(plan_path, "w");
    ASSERT(file != NULL && fputs(text + n + 1, file) >= 0 && fclose(file) == 0);
    return true;
}

static void faulty_gather(struct backend *b, const struct gather_params *p)
{
    if (p->rank == 1 && happens("device"))
        fault_end("GPU 1 failed: an illegal memory access was encountered");
    while (p->rank == 1 && happens("hang"))
        pause(); /* for ever */
    ranks[p->rank].true_ops->gather(b, p);
}

static const char *faulty_load(struct backend *b, const struct load_params *p)
{
    (void)p;
    if (b->ops == &ranks[1].ops && happens("memory"))
        return "GPU 1: 80.0 GiB of weights; 12.5 of 94.9 GiB of memory are free";
    return NULL; /* operations read host memory */
}

static void faulty_meet(struct backend *b, struct meeting *meeting, int32_t rank)
{
    if (rank == 1 && happens("peers"))
        fault_end("GPU 1 failed: peer mapping resources exhausted");
    ranks[rank].true_ops->meet(b, meeting, rank);
}

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    int end = (options->group + 1) * options->ranks;
    if (options->apart && end > gpus_there)
        return error_set(err, ERR_CAPACITY, "GPUs %d to %d are asked for, and %d are there",
                         end - options->ranks, end - 1, gpus_there);
    *out = backend_cpu_create(cpu_isa_best(), 1, limits);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "no memory for rank %d", (int)rank);
    ranks[rank].true_ops = (*out)->ops;
    ranks[rank].ops = *(*out)->ops;
    ranks[rank].ops.gather = faulty_gather;
    ranks[rank].ops.load = faulty_load;
    ranks[rank].ops.meet = faulty_meet;
    (*out)->ops = &ranks[rank].ops;
    return OK;
}

int32_t model_backend_ranks(const struct model_options *options, uint64_t weights)
{
    (void)options;
    (void)weights;
    return ranks_wanted;
}

int32_t model_backend_gpus(void)
{
    return gpus;
}

void model_backend_watch(const struct model_options *options, struct link_board *board)
{
    (void)options;
    link_show(board, &(struct gauges){.at_ms = clock_ms(), .peers = PEERS_UNKNOWN});
}

int main(int argc, char **argv)
{
    int n = snprintf(plan_path, sizeof plan_path, "%s.plan", argv[0]);
    ASSERT(n > 0 && (size_t)n < sizeof plan_path);
    n = snprintf(gpus_path, sizeof gpus_path, "%s.gpus", argv[0]);
    ASSERT(n > 0 && (size_t)n < sizeof gpus_path);
    FILE *file = fopen(gpus_path, "r");
    if (file != NULL) {
        ASSERT(fscanf(file, "%d %d %d", &gpus, &ranks_wanted, &gpus_there) == 3);
        fclose(file);
    }
    if (argc < 2 || strcmp(argv[1], "steps") != 0) {
        fprintf(stderr, "faulty: started by an engine alone\n");
        return 2;
    }
    return cmd_steps(argc - 1, argv + 1);
}
