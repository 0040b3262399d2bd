/*
 * Results between ranks on GPUs, in one of two ways that peers.cu chooses at the start:
 *
 *   push    each rank writes its columns into the inboxes of the others, says so with a flag for
 *           each of its blocks, waits for theirs and takes what has come.  Two inboxes take
 *           turns: a rank is a gather ahead of another at most, since it ends with a flag of each.
 *           Every wait has a limit.  The hosts meet in front of it: what they call for weights or
 *           kernels that are not there yet may wait for all GPUs, so no kernel may wait for a rank
 *           whose host has such calls before it.  A recorded step has none, so that its hosts need
 *           not meet; its gathers are counted on from a number that is set in front of it.
 *   copies  the streams wait for each other by events and copy.  For ranks that share a GPU, where
 *           blocks of the kernel behind a gather come while it waits, fill the GPU, wait for it
 *           and so keep away what the other rank would have to run first; for GPUs that do not
 *           reach each other's memory; and for what is larger than an inbox (a recorded step pushes
 *           that in several turns).
 *
 * Numbers are moved and never added, so that neither the way nor the order can show.
 */
#include "kernels/cuda/peers.cuh"
#include "kernels/cuda/rows.cuh"

#define GATHER_THREADS 256
/* Numbers that a thread moves before it is worth another block, and the most blocks: few, since
 * they hold their multiprocessors while they wait. */
#define GATHER_SHARE (4 * GATHER_THREADS)

struct push_params {
    struct gather_params p;
    struct inbox *inboxes[RANKS_MAX]; /* peers' memory */
    int64_t first, end;               /* of the shares' numbers, by four: what goes in this turn */
    uint64_t epoch;
    const uint64_t *base; /* device: what epoch counts from; NULL: 0 */
    uint64_t limit_ns;
    uint32_t *missing; /* host memory: 1 + the rank that has not come */
    struct testimony say;
};

static __device__ inline uint64_t now_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ inline void flag_set(uint64_t *flag, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

static __device__ inline uint64_t flag_get(const uint64_t *flag)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

/* This block's share of what a rank gives to another in this turn, four numbers at a time, in the
 * same order on both sides: fn(where in the inbox, piece, where in the piece). */
template <typename F>
static __device__ inline void for_share(const push_params &t, int32_t rank, F fn)
{
    int64_t before = 0;
    for (int32_t i = 0; i < t.p.n_pieces; i++) {
        const gather_piece &piece = t.p.pieces[i];
        int64_t n = (int64_t)piece.n * piece.cols[rank] / 4;
        int64_t from = t.first > before ? t.first - before : 0;
        int64_t end = n < t.end - before ? n : t.end - before;
        for (int64_t k = from + (int64_t)blockIdx.x * GATHER_THREADS + threadIdx.x; k < end;
             k += (int64_t)gridDim.x * GATHER_THREADS)
            fn(before + k - t.first, piece, k * 4);
        before += n;
    }
}

/* The place of number k of a rank's columns in the whole. */
static __device__ inline int64_t place_of(const gather_piece &piece, int32_t rank, int64_t k)
{
    return k / piece.cols[rank] * piece.width + piece.at[rank] + k % piece.cols[rank];
}

/* Until the flag is there.  @return false: it has not come */
static __device__ bool flag_await(const uint64_t *flag, uint64_t epoch, uint64_t limit_ns)
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
    uint64_t epoch = k.epoch + (k.base == NULL ? 0 : *k.base);
    int32_t me = p.rank, turn = (int32_t)(epoch & 1);
    testify(k.say, first_thread() && k.first == 0, ROW_REDUCE_WIRE, REDUCE_WIRE_FP32);
    testify(k.say, first_thread() && k.first == 0, ROW_REDUCE_ORDER, REDUCE_ORDER_FIXED);
    for_share(k, me, [&](int64_t at, const gather_piece &piece, int64_t i) {
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
        flag_set(&k.inboxes[threadIdx.x]->flags[turn][me][blockIdx.x], epoch);
    struct inbox *own = k.inboxes[me];
    uint64_t limit_ns = own->lost ? 0 : k.limit_ns;
    for (int32_t r = 0; r < p.ranks; r++) {
        if (r == me)
            continue;
        if (threadIdx.x == 0 && !flag_await(&own->flags[turn][r][blockIdx.x], epoch, limit_ns)) {
            *(volatile uint32_t *)k.missing = (uint32_t)r + 1; /* in front of the next fence */
            own->lost = 1;
        }
        __syncthreads();
        for_share(k, r, [&](int64_t at, const gather_piece &piece, int64_t i) {
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

/* @param first, end  of the shares, by four */
static void push_run(struct cuda_backend *b, const struct gather_params *p, int64_t first,
                     int64_t end)
{
    struct peers *peers = b->peers;
    struct push_params k = {*p};
    bool recorded = recording_runs(b->recordings);
    for (int32_t r = 0; r < p->ranks; r++)
        k.inboxes[r] = peers->inboxes[r];
    k.first = first, k.end = end;
    k.epoch = recorded ? ++peers->recorded : ++peers->epoch;
    k.base = recorded ? &peers->inboxes[p->rank]->base : NULL;
    k.limit_ns = (uint64_t)peers->limit_ms * 1000000;
    k.missing = peers->missing;
    k.say = testimony_of(b, &p->place, p->n);
    int64_t blocks = (4 * (end - first) + GATHER_SHARE - 1) / GATHER_SHARE;
    blocks = blocks < 1 ? 1 : blocks > GATHER_BLOCKS_MAX ? GATHER_BLOCKS_MAX : blocks;
    if (!recorded)
        meeting_wait(peers->meeting, p->rank);
    launch(b, "push_and_take", push_and_take, (unsigned)blocks, GATHER_THREADS, 0, k);
}

static __global__ void base_set(uint64_t *base, uint64_t value)
{
    *base = value;
}

void peers_advance(struct cuda_backend *b, uint64_t gathers)
{
    struct peers *peers = b->peers;
    base_set<<<1, 1, 0, stream_of(b)>>>(&peers->inboxes[peers->rank]->base, peers->epoch);
    launched("base_set");
    peers->epoch += gathers;
}

/* Evidence of what copy engines move. */
static __global__ void copied(struct testimony say)
{
    testify(say, true, ROW_REDUCE_WIRE, REDUCE_WIRE_FP32);
    testify(say, true, ROW_REDUCE_ORDER, REDUCE_ORDER_FIXED);
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
    copied<<<1, 1, 0, stream_of(b)>>>(testimony_of(b, &p->place, p->n));
    launched("copied");
}

void cuda_gather(struct backend *base, const struct gather_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(b->peers != NULL && p->rank == b->peers->rank && p->ranks == b->peers->ranks);
    const int64_t most = ceil_div(share_of(p), 4), room = INBOX_BYTES / (int64_t)sizeof(float4);
    if (!b->peers->push || (most > room && !recording_runs(b->recordings))) {
        copies_run(b, p);
        return;
    }
    for (int64_t first = 0; first == 0 || first < most; first += room)
        push_run(b, p, first, first + room < most ? first + room : most);
}
