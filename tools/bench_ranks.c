/*
 * How long ranks on GPUs take to give each other results:  bench_ranks [RANKS]
 *
 * Every rank gives an equal share of some bytes to all others, many times in a row, and the slowest
 * rank's time of one is printed: by what gather.cu chose (see its verdict), and by NCCL's
 * all-gather, if its library is there.  Launches count: nothing is recorded.  Each number that came
 * is looked at.
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

enum { TIMES = 300, WARM = 30, BYTES_MAX = 16 << 20 };
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
    double own_us[RANKS_MAX][N_SIZES], nccl_us[RANKS_MAX][N_SIZES];
    bool good[RANKS_MAX];
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

/* Every rank's share of `bytes`, TIMES times.  @return microseconds of one */
static double own_time(struct backend *b, int32_t rank, float *part, size_t bytes)
{
    int32_t cols = (int32_t)(bytes / sizeof(float)) / bench.ranks / 4 * 4;
    struct gather_params p = {.rank = rank, .ranks = bench.ranks, .n_pieces = 1};
    p.pieces[0] = (struct gather_piece){.part = part, .n = 1, .width = cols * bench.ranks};
    for (int32_t r = 0; r < bench.ranks; r++) {
        p.pieces[0].at[r] = r * cols;
        p.pieces[0].cols[r] = cols;
        p.pieces[0].whole[r] = bench.whole[r];
    }
    double begin = 0;
    for (int i = -WARM; i < TIMES; i++) {
        if (i == 0) {
            cudaDeviceSynchronize();
            meeting_wait(bench.meeting, rank);
            begin = now_us();
        }
        b->ops->gather(b, &p);
    }
    cudaDeviceSynchronize();
    double us = (now_us() - begin) / TIMES;
    float *host = malloc(bytes);
    ASSERT(host != NULL);
    b->ops->download(b, host, bench.whole[rank], (size_t)cols * (size_t)bench.ranks * 4);
    for (int32_t r = 0; r < bench.ranks; r++) {
        for (int32_t i = 0; i < cols; i++)
            bench.good[rank] &= host[r * cols + i] == value_of(r, (size_t)i);
    }
    free(host);
    meeting_wait(bench.meeting, rank);
    return us;
}

static double nccl_time(void *communicator, cudaStream_t stream, int32_t rank, const float *part,
                        size_t bytes)
{
    enum { FLOAT32 = 7 };
    size_t count = bytes / sizeof(float) / (size_t)bench.ranks;
    double begin = 0;
    for (int i = -WARM; i < TIMES; i++) {
        if (i == 0) {
            cudaStreamSynchronize(stream);
            meeting_wait(bench.meeting, rank);
            begin = now_us();
        }
        ASSERT(nccl.gather(part, bench.whole[rank], count, FLOAT32, communicator, stream) == 0);
    }
    cudaStreamSynchronize(stream);
    double us = (now_us() - begin) / TIMES;
    meeting_wait(bench.meeting, rank);
    return us;
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
    for (size_t i = 0; i < N_SIZES; i++)
        bench.own_us[rank][i] = own_time(b, rank, part, SIZES[i]);
    void *communicator;
    cudaStream_t stream;
    if (nccl.there && backend_cuda_devices() >= bench.ranks &&
        nccl.init(&communicator, bench.ranks, nccl.id, rank) == 0 &&
        cudaStreamCreate(&stream) == cudaSuccess) {
        for (size_t i = 0; i < N_SIZES; i++)
            bench.nccl_us[rank][i] = nccl_time(communicator, stream, rank, part, SIZES[i]);
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

static double slowest(double us[RANKS_MAX][N_SIZES], size_t size)
{
    double most = 0;
    for (int32_t r = 0; r < bench.ranks; r++)
        most = us[r][size] > most ? us[r][size] : most;
    return most;
}

int main(int argc, char **argv)
{
    pthread_t threads[RANKS_MAX];
    bench.ranks = argc > 1 ? atoi(argv[1]) : backend_cuda_devices();
    if (bench.ranks < 1 || bench.ranks > RANKS_MAX) {
        fprintf(stderr, "bench_ranks: 1 to %d ranks\n", RANKS_MAX);
        return 2;
    }
    bench.meeting = meeting_create(bench.ranks, 60000);
    ASSERT(bench.meeting != NULL);
    nccl_find();
    for (int32_t r = 0; r < bench.ranks; r++)
        ASSERT(pthread_create(&threads[r], NULL, rank_main, (void *)(intptr_t)r) == 0);
    for (int32_t r = 0; r < bench.ranks; r++)
        pthread_join(threads[r], NULL);
    printf("%d ranks on %d GPUs; microseconds of a gather\n| bytes of all | own | NCCL |\n",
           (int)bench.ranks, backend_cuda_devices());
    bool good = true;
    for (size_t i = 0; i < N_SIZES; i++)
        printf("| %zu | %.1f | %.1f |\n", SIZES[i], slowest(bench.own_us, i),
               slowest(bench.nccl_us, i));
    for (int32_t r = 0; r < bench.ranks; r++)
        good = good && bench.good[r];
    printf("%s 1 - every number of %d ranks has come\n", good ? "ok" : "not ok", (int)bench.ranks);
    return !good;
}
