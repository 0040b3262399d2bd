/*
 * How long ranks on GPUs take to give each other results:  bench_ranks [RANKS [missing]]
 *
 * Every rank gives an equal share of some bytes to all others, many times in a row, and the slowest
 * rank's time of one is printed: by what gather.cu chose (see its verdict), the same inside a
 * recorded step, and by NCCL's all-gather, if its library is there, launched and in a graph.  Each
 * number that came is looked at, and the last line says from which size on NCCL would be faster.
 * `missing`: all ranks but the first stay away from a recorded step, whose many gathers together
 * must wait for them once: it ends the process with a line that names one.
 */
#include "config/model.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 300, WARM = 30, RECORDED = 20, BYTES_MAX = 16 << 20 };
enum { LIMIT_MS = 60000, MISSING_MS = 1000 }; /* of a wait */
static const size_t SIZES[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                               1 << 20, 2 << 20,  4 << 20,  BYTES_MAX};
#define N_SIZES (sizeof SIZES / sizeof *SIZES)

/* The part of NCCL that is asked for, by its documented interface. */
struct nccl_id {
    char bytes[128];
};
static struct {
    int (*unique_id)(struct nccl_id *id);
    int (*init)(void **communicator, int ranks, struct nccl_id id, int rank);
    int (*gather)(const void *from, void *to, size_t count, int type, void *communicator,
                  cudaStream_t stream);
    struct nccl_id id;
    bool there;
} nccl;

static struct {
    int32_t ranks;
    struct meeting *meeting;
    float *whole[RANKS_MAX];
    double own_us[RANKS_MAX][N_SIZES], step_us[RANKS_MAX][N_SIZES]; /* launched; recorded */
    double nccl_us[RANKS_MAX][N_SIZES], graph_us[RANKS_MAX][N_SIZES];
    bool good[RANKS_MAX];
    bool missing; /* all but the first */
} bench;

static const struct backend_limits LIMITS = {.tokens = 8,
                                             .cols = 128,
                                             .groups = 1,
                                             .group_cols = HEAD_DIM,
                                             .index_heads = 1,
                                             .topk = 1,
                                             .inner = 128,
                                             .hidden = 128,
                                             .experts = 2,
                                             .top = 2};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static float value_of(int32_t rank, size_t i)
{
    return (float)(rank * 4096 + (int32_t)(i % 4093));
}

/* Columns of one rank. */
static int32_t cols_of(size_t bytes)
{
    return (int32_t)(bytes / sizeof(float)) / bench.ranks / 4 * 4;
}

static struct gather_params gather_of(int32_t rank, const float *part, int32_t cols)
{
    struct gather_params p = {.rank = rank, .ranks = bench.ranks, .n_pieces = 1};
    p.pieces[0] = (struct gather_piece){.part = part, .n = 1, .width = cols * bench.ranks};
    for (int32_t r = 0; r < bench.ranks; r++) {
        p.pieces[0].at[r] = r * cols;
        p.pieces[0].cols[r] = cols;
        p.pieces[0].whole[r] = bench.whole[r];
    }
    return p;
}

static double timer_begin(int32_t rank)
{
    cudaDeviceSynchronize();
    meeting_wait(bench.meeting, rank);
    return now_us();
}

/* RECORDED gathers as a step that comes again.  @return whether it is recorded */
static bool recorded_run(struct backend *b, const struct gather_params *p, size_t bytes)
{
    if (b->ops->replay(b, &bytes, sizeof bytes))
        return true;
    for (int i = 0; i < RECORDED; i++)
        b->ops->gather(b, p);
    b->ops->replay_end(b);
    return false;
}

/* The same in recorded steps.  @return microseconds of one; 0: nothing is recorded */
static double step_time(struct backend *b, int32_t rank, const float *part, size_t bytes)
{
    struct gather_params p = gather_of(rank, part, cols_of(bytes));
    double begin = 0;
    bool recorded = true;
    for (int i = 0; i < 2; i++)
        recorded_run(b, &p, bytes); /* brings kernels; records */
    begin = timer_begin(rank);
    for (int i = 0; i < TIMES / RECORDED; i++)
        recorded = recorded_run(b, &p, bytes) && recorded;
    cudaDeviceSynchronize();
    double us = (now_us() - begin) / (TIMES / RECORDED * RECORDED);
    meeting_wait(bench.meeting, rank);
    return recorded ? us : 0;
}

/* Every rank's share of `bytes`, TIMES times.  @return microseconds of one */
static double own_time(struct backend *b, int32_t rank, const float *part, size_t bytes)
{
    int32_t cols = cols_of(bytes);
    struct gather_params p = gather_of(rank, part, cols);
    double begin = 0;
    for (int i = -WARM; i < TIMES; i++) {
        if (i == 0)
            begin = timer_begin(rank);
        b->ops->gather(b, &p);
    }
    cudaDeviceSynchronize();
    double us = (now_us() - begin) / TIMES;
    return us;
}

/* Whether every number is there, from memory that was cleared in front of the last gather. */
static bool numbers_good(struct backend *b, int32_t rank, int32_t cols, size_t bytes)
{
    bool good = true;
    float *host = malloc(bytes);
    ASSERT(host != NULL);
    b->ops->download(b, host, bench.whole[rank], (size_t)cols * (size_t)bench.ranks * 4);
    for (int32_t r = 0; r < bench.ranks; r++) {
        for (int32_t i = 0; i < cols; i++)
            good = good && host[r * cols + i] == value_of(r, (size_t)i);
    }
    free(host);
    b->ops->clear(b, bench.whole[rank], BYTES_MAX);
    cudaDeviceSynchronize();
    meeting_wait(bench.meeting, rank);
    return good;
}

/* RECORDED all-gathers in a graph.  @return microseconds of one */
static double graph_time(void *communicator, cudaStream_t stream, int32_t rank, const float *part,
                         size_t bytes)
{
    enum { FLOAT32 = 7 };
    size_t count = bytes / sizeof(float) / (size_t)bench.ranks;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    for (int i = 0; i < RECORDED; i++)
        ASSERT(nccl.gather(part, bench.whole[rank], count, FLOAT32, communicator, stream) == 0);
    ASSERT(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    ASSERT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    ASSERT(cudaGraphUpload(exec, stream) == cudaSuccess);
    double begin = timer_begin(rank);
    for (int i = 0; i < TIMES / RECORDED; i++)
        ASSERT(cudaGraphLaunch(exec, stream) == cudaSuccess);
    cudaStreamSynchronize(stream);
    double us = (now_us() - begin) / (TIMES / RECORDED * RECORDED);
    meeting_wait(bench.meeting, rank);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return us;
}

static double nccl_time(void *communicator, cudaStream_t stream, int32_t rank, const float *part,
                        size_t bytes)
{
    enum { FLOAT32 = 7 };
    size_t count = bytes / sizeof(float) / (size_t)bench.ranks;
    double begin = 0;
    for (int i = -WARM; i < TIMES; i++) {
        if (i == 0)
            begin = timer_begin(rank);
        ASSERT(nccl.gather(part, bench.whole[rank], count, FLOAT32, communicator, stream) == 0);
    }
    cudaStreamSynchronize(stream);
    double us = (now_us() - begin) / TIMES;
    meeting_wait(bench.meeting, rank);
    return us;
}

static double slowest(double us[RANKS_MAX][N_SIZES], size_t size)
{
    double most = 0;
    for (int32_t r = 0; r < bench.ranks; r++)
        most = us[r][size] > most ? us[r][size] : most;
    return most;
}

static double faster_own(size_t size)
{
    double launched = slowest(bench.own_us, size), recorded = slowest(bench.step_us, size);
    return recorded > 0 && recorded < launched ? recorded : launched;
}

static void own_print(void)
{
    printf(
        "%d ranks on %d GPUs; microseconds of a gather\n| bytes of all | launched | recorded |\n",
        (int)bench.ranks, backend_cuda_devices());
    for (size_t i = 0; i < N_SIZES; i++)
        printf("| %zu | %.1f | %.1f |\n", SIZES[i], slowest(bench.own_us, i),
               slowest(bench.step_us, i));
    fflush(stdout);
}

static _Noreturn void missing_run(struct backend *b, int32_t rank, const float *part)
{
    struct gather_params p = gather_of(rank, part, cols_of(SIZES[0]));
    for (int i = 0; i < 2; i++)
        recorded_run(b, &p, SIZES[0]);
    timer_begin(rank);
    while (rank != 0)
        pause();
    float number;
    recorded_run(b, &p, SIZES[0]);
    b->ops->download(b, &number, part, sizeof number);
    ASSERT(!"a rank is missed");
    abort();
}

static void *rank_main(void *context)
{
    int32_t rank = (int32_t)(intptr_t)context;
    const char *reason;
    int device = backend_cuda_devices() < bench.ranks ? 0 : rank;
    struct backend *b = backend_cuda_create(device, &LIMITS, &reason);
    if (b == NULL) {
        fprintf(stderr, "bench_ranks: GPU %d: %s\n", device, reason);
        exit(EXIT_FAILURE);
    }
    b->ops->meet(b, bench.meeting, rank);
    float *part = b->ops->reserve(b, BYTES_MAX), *host = malloc(BYTES_MAX);
    bench.whole[rank] = b->ops->reserve(b, BYTES_MAX);
    ASSERT(part != NULL && host != NULL && bench.whole[rank] != NULL);
    for (size_t i = 0; i < BYTES_MAX / sizeof(float); i++)
        host[i] = value_of(rank, i);
    b->ops->upload(b, part, host, BYTES_MAX);
    bench.good[rank] = true;
    meeting_wait(bench.meeting, rank);
    if (bench.missing)
        missing_run(b, rank, part);
    for (size_t i = 0; i < N_SIZES; i++) {
        bench.own_us[rank][i] = own_time(b, rank, part, SIZES[i]);
        bench.good[rank] &= numbers_good(b, rank, cols_of(SIZES[i]), SIZES[i]);
        bench.step_us[rank][i] = step_time(b, rank, part, SIZES[i]);
        bench.good[rank] &= numbers_good(b, rank, cols_of(SIZES[i]), SIZES[i]);
    }
    meeting_wait(bench.meeting, rank);
    if (rank == 0)
        own_print();
    void *communicator;
    cudaStream_t stream;
    if (nccl.there && backend_cuda_devices() >= bench.ranks &&
        nccl.init(&communicator, bench.ranks, nccl.id, rank) == 0 &&
        cudaStreamCreate(&stream) == cudaSuccess) {
        for (size_t i = 0; i < N_SIZES; i++) {
            bench.nccl_us[rank][i] = nccl_time(communicator, stream, rank, part, SIZES[i]);
            bench.graph_us[rank][i] = graph_time(communicator, stream, rank, part, SIZES[i]);
        }
    }
    free(host);
    meeting_wait(bench.meeting, rank);
    b->ops->destroy(b);
    return NULL;
}

static void nccl_find(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *member;
    } SYMBOLS[] = {{"ncclGetUniqueId", &nccl.unique_id},
                   {"ncclCommInitRank", &nccl.init},
                   {"ncclAllGather", &nccl.gather}};
    nccl.there = library != NULL;
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS && nccl.there; i++) {
        void *found = dlsym(library, SYMBOLS[i].name);
        memcpy(SYMBOLS[i].member, &found, sizeof found);
        nccl.there = found != NULL;
    }
    nccl.there = nccl.there && nccl.unique_id(&nccl.id) == 0;
}

static void nccl_print(void)
{
    size_t crossover = 0; /* sizes from here on are NCCL's */
    printf("the same by NCCL\n| bytes of all | launched | in a graph |\n");
    for (size_t i = 0; i < N_SIZES; i++) {
        double launched = slowest(bench.nccl_us, i), graph = slowest(bench.graph_us, i);
        printf("| %zu | %.1f | %.1f |\n", SIZES[i], launched, graph);
        if (graph == 0 || faster_own(i) <= (launched < graph ? launched : graph))
            crossover = i + 1;
    }
    if (crossover < N_SIZES)
        printf("NCCL is faster from %zu bytes on\n", SIZES[crossover]);
    else
        printf("there is no size from which on NCCL is faster\n");
}

int main(int argc, char **argv)
{
    pthread_t threads[RANKS_MAX];
    bench.ranks = argc > 1 ? atoi(argv[1]) : backend_cuda_devices();
    if (bench.ranks < 1 || bench.ranks > RANKS_MAX) {
        fprintf(stderr, "bench_ranks: 1 to %d ranks\n", RANKS_MAX);
        return 2;
    }
    bench.missing = argc > 2 && strcmp(argv[2], "missing") == 0;
    bench.meeting = meeting_create(bench.ranks, bench.missing ? MISSING_MS : LIMIT_MS);
    ASSERT(bench.meeting != NULL);
    nccl_find();
    for (int32_t r = 0; r < bench.ranks; r++)
        ASSERT(pthread_create(&threads[r], NULL, rank_main, (void *)(intptr_t)r) == 0);
    for (int32_t r = 0; r < bench.ranks; r++)
        pthread_join(threads[r], NULL);
    bool good = true;
    nccl_print();
    for (int32_t r = 0; r < bench.ranks; r++)
        good = good && bench.good[r];
    printf("%s 1 - every number of %d ranks has come\n", good ? "ok" : "not ok", (int)bench.ranks);
    return !good;
}
