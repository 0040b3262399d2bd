/*
 * Results between ranks on GPUs, in one of two ways that peers.cu chooses at the start:
 *
 *   push    each rank writes its columns into the inboxes of the others, says so with a flag for
 *           each of its blocks, waits for theirs and takes what has come.  Two inboxes take
 *           turns: a rank is a gather ahead of another at most, since it ends with a flag of each.
 *           Every wait has a limit.  The hosts meet in front of it: what they call for weights that
 *           are not there yet may wait for all GPUs, so no kernel may wait for a rank whose host
 *           has such calls before it.
 *   copies  the streams wait for each other by events and copy: for ranks that share a GPU, where
 *           kernels that wait could keep the awaited ones away, for GPUs that do not reach each
 *           other's memory, and for what is larger than an inbox.
 *
 * Numbers are moved and never added, so that neither the way nor the order can show.
 */
#include "kernels/cuda/peers.cuh"

#define GATHER_THREADS 256
/* Numbers that a thread moves before it is worth another block, and the most blocks: few, since
 * they hold their multiprocessors while they wait. */
#define GATHER_SHARE (4 * GATHER_THREADS)

struct push_params {
    struct gather_params p;
    struct inbox *inboxes[RANKS_MAX]; /* peers' memory */
    uint32_t epoch;
    uint64_t limit_ns;
    uint32_t *missing; /* host memory: 1 + the rank that has not come */
};

static __device__ inline uint64_t now_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ inline void flag_set(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

static __device__ inline uint32_t flag_get(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* This block's share of what a rank gives to another, four numbers at a time, in the same order on
 * both sides: fn(where in the inbox, piece, where in the piece). */
template <typename F>
static __device__ inline void for_share(const gather_params &p, int32_t rank, F fn)
{
    int64_t before = 0;
    for (int32_t i = 0; i < p.n_pieces; i++) {
        int64_t n = (int64_t)p.pieces[i].n * p.pieces[i].cols[rank] / 4;
        for (int64_t k = (int64_t)blockIdx.x * GATHER_THREADS + threadIdx.x; k < n;
             k += (int64_t)gridDim.x * GATHER_THREADS)
            fn(before + k, p.pieces[i], k * 4);
        before += n;
    }
}

/* The place of number k of a rank's columns in the whole. */
static __device__ inline int64_t place_of(const gather_piece &piece, int32_t rank, int64_t k)
{
    return k / piece.cols[rank] * piece.width + piece.at[rank] + k % piece.cols[rank];
}

/* Until the flag is there.  @return false: it has not come */
static __device__ bool flag_await(const uint32_t *flag, uint32_t epoch, uint64_t limit_ns)
{
    uint64_t end = now_ns() + limit_ns;
    while (flag_get(flag) != epoch) {
        if (now_ns() > end)
            return false;
    }
    return true;
}

static __global__ void __launch_bounds__(GATHER_THREADS) push_and_take(struct push_params k)
{
    grid_begin();
    const gather_params &p = k.p;
    int32_t me = p.rank, turn = (int32_t)(k.epoch & 1);
    for_share(p, me, [&](int64_t at, const gather_piece &piece, int64_t i) {
        float4 v = *(const float4 *)(piece.part + i);
        *(float4 *)(piece.whole[me] + place_of(piece, me, i)) = v;
        for (int32_t r = 0; r < p.ranks; r++) {
            if (r != me)
                k.inboxes[r]->from[turn][me][at] = v;
        }
    });
    __threadfence_system();
    __syncthreads();
    if ((int32_t)threadIdx.x < p.ranks && (int32_t)threadIdx.x != me)
        flag_set(&k.inboxes[threadIdx.x]->flags[turn][me][blockIdx.x], k.epoch);
    const struct inbox *own = k.inboxes[me];
    for (int32_t r = 0; r < p.ranks; r++) {
        if (r == me)
            continue;
        if (threadIdx.x == 0 && !flag_await(&own->flags[turn][r][blockIdx.x], k.epoch, k.limit_ns))
            *(volatile uint32_t *)k.missing = (uint32_t)r + 1; /* in front of the next fence */
        __syncthreads();
        for_share(p, r, [&](int64_t at, const gather_piece &piece, int64_t i) {
            *(float4 *)(piece.whole[me] + place_of(piece, r, i)) = __ldcg(&own->from[turn][r][at]);
        });
    }
}

/* Numbers of the largest share. */
static int64_t share_of(const struct gather_params *p)
{
    int64_t most = 0;
    for (int32_t r = 0; r < p->ranks; r++) {
        int64_t mine = 0;
        for (int32_t i = 0; i < p->n_pieces; i++) {
            const struct gather_piece *piece = &p->pieces[i];
            ASSERT(piece->cols[r] % 4 == 0 && piece->at[r] % 4 == 0 && piece->width % 4 == 0);
            mine += (int64_t)piece->n * piece->cols[r];
        }
        most = mine > most ? mine : most;
    }
    return most;
}

static void push_run(struct cuda_backend *b, const struct gather_params *p, int64_t most)
{
    struct peers *peers = b->peers;
    struct push_params k = {*p};
    for (int32_t r = 0; r < p->ranks; r++)
        k.inboxes[r] = peers->inboxes[r];
    k.epoch = ++peers->epoch;
    k.limit_ns = (uint64_t)peers->limit_ms * 1000000;
    k.missing = peers->missing;
    int64_t blocks = (most + GATHER_SHARE - 1) / GATHER_SHARE;
    blocks = blocks < 1 ? 1 : blocks > GATHER_BLOCKS_MAX ? GATHER_BLOCKS_MAX : blocks;
    meeting_wait(peers->meeting, p->rank);
    launch(b, "push_and_take", push_and_take, (unsigned)blocks, GATHER_THREADS, 0, k);
}

/* One rank's columns of a piece into the memory of another. */
static void piece_copy(struct cuda_backend *b, const struct gather_params *p,
                       const struct gather_piece *piece, int32_t to)
{
    const struct peers *peers = b->peers;
    size_t cols = (size_t)piece->cols[p->rank] * sizeof(float);
    size_t width = (size_t)piece->width * sizeof(float);
    float *at = piece->whole[to] + piece->at[p->rank];
    if (peers->devices[to] == peers->devices[p->rank]) {
        CUDA_CHECK(cudaMemcpy2DAsync(at, width, piece->part, cols, cols, (size_t)piece->n,
                                     cudaMemcpyDeviceToDevice, stream_of(b)));
        return;
    }
    cudaMemcpy3DPeerParms copy = {};
    copy.srcDevice = peers->devices[p->rank];
    copy.dstDevice = peers->devices[to];
    copy.srcPtr = make_cudaPitchedPtr((void *)piece->part, cols, cols, (size_t)piece->n);
    copy.dstPtr = make_cudaPitchedPtr(at, width, width, (size_t)piece->n);
    copy.extent = make_cudaExtent(cols, (size_t)piece->n, 1);
    CUDA_CHECK(cudaMemcpy3DPeerAsync(&copy, stream_of(b)));
}

static void copies_run(struct cuda_backend *b, const struct gather_params *p)
{
    struct peers *peers = b->peers;
    CUDA_CHECK(cudaEventRecord(peers->ready, stream_of(b)));
    meeting_wait(peers->meeting, p->rank);
    for (int32_t r = 0; r < p->ranks; r++) {
        CUDA_CHECK(cudaStreamWaitEvent(stream_of(b), peers->all[r]->ready, 0));
        for (int32_t i = 0; i < p->n_pieces; i++) {
            if (p->pieces[i].cols[p->rank] > 0)
                piece_copy(b, p, &p->pieces[i], r);
        }
    }
    CUDA_CHECK(cudaEventRecord(peers->given, stream_of(b)));
    meeting_wait(peers->meeting, p->rank);
    for (int32_t r = 0; r < p->ranks; r++)
        CUDA_CHECK(cudaStreamWaitEvent(stream_of(b), peers->all[r]->given, 0));
}

void cuda_gather(struct backend *base, const struct gather_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(b->peers != NULL && p->rank == b->peers->rank && p->ranks == b->peers->ranks);
    int64_t most = share_of(p);
    if (b->peers->push && most * (int64_t)sizeof(float) <= INBOX_BYTES)
        push_run(b, p, most);
    else
        copies_run(b, p);
}
