/*
 * Products of many rows with several tokens, where the multiprocessors are full anyway: a warp has
 * 16 rows of a matrix to itself and goes through all of their chunks.  Knows weights as stored and
 * rows that are ready; not where either comes from, nor what is launched.
 *
 * The sums are those of tiles.cuh, bit for bit: there, as many warps as a row has slices each add
 * up every so manieth chunk, and their sums are added in order.  Here one warp holds the slices'
 * sums, or takes one slice after the other.  The tokens' rows go through shared memory, for all
 * warps of a block: they are too many for the L1.
 */
#ifndef V4BOX_KERNELS_CUDA_STRIPS_CUH
#define V4BOX_KERNELS_CUDA_STRIPS_CUH

#include "kernels/cuda/tiles.cuh"

/* Warps of a block, each with 16 rows of its own. */
#define STRIP_WARPS 8
/* Chunks of the tokens' rows that come together, and how often: used, there, on their way. */
#define STRIP_TURN   4
#define STRIP_STAGES 3
/* Chunks of weights on their way, where they have four bits. */
#define STRIP_AHEAD 4

/* ---- tokens' rows in shared memory ---------------------------------------------------------- */

/* Where a row keeps its 16 bytes number `unit`: mixed so that eight lanes, which read from two
 * rows, meet in no bank. */
static __device__ inline int unit_place(int token, int unit)
{
    return unit ^ token % 2 * 5;
}

static __device__ inline void copy_16(void *to, const void *from)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}

static __device__ inline void copy_4(void *to, const void *from)
{
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from)
        : "memory");
}

/* What was asked for until here belongs together. */
static __device__ inline void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the last N of these are there, for this thread. */
template <int N> static __device__ inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- results -------------------------------------------------------------------------------- */

/* The sum of 16 rows and 8 tokens to where it goes, from the lanes that have it. */
static __device__ inline void strip_store(const float sum[4], const weight &w, int row0,
                                          const tile_out &out, int column, const testimony &say)
{
    int row = row0 + lane_id() / 4, token = column + lane_id() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        enum round did;
        float y = stored(out.round, sum[i], &did);
        if (token + i % 2 < out.n && row + i / 2 * 8 < w.rows)
            out.y[(token + i % 2) * out.stride + row + i / 2 * 8] = y;
        bool first = out.first && column == 0 && i == 0 && lane_id() == 0;
        testify(say, first, out.round_row, value_of_round(did));
        testify(say, first, out.sum_row, SUM_F32);
    }
}

/* Rows of several parts, of `column` 8 tokens: rare, a slice after the other. */
template <enum store S>
static __device__ __noinline__ void strip_full(struct weight w, int row0, int slices,
                                               struct tile_rows rows, struct tile_out out,
                                               int column, struct testimony say)
{
    float sum[4] = {};
    for (int slice = 0; slice < slices; slice++) {
        const tile_part part = {row0, slice, slices};
        float acc[1][4] = {};
        lane_ahead<S, 1, 1> ahead;
        ahead.begin(w, part);
        part_run<S, 1, 1, false>(w, part, ahead, rows.x, rows.x_row + column, rows.parts, acc);
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] = slice == 0 ? acc[0][i] : sum[i] + acc[0][i];
    }
    strip_store(sum, w, row0, out, column, say);
}

/* ---- experts -------------------------------------------------------------------------------- */

/* Where a lane reads 16 rows: at places whose distance from these is known when compiled, or every
 * chunk on its way would take registers for an address of its own. */
template <enum store S> struct strip_rows {
    const char *data[2], *scale[2];

    __device__ inline void begin(const weight &w, int row0)
    {
        for (int i = 0; i < 2; i++) {
            int64_t row = min(row0 + lane_id() / 4 + 8 * i, w.rows - 1);
            int64_t chunks = row * (w.cols / CHUNK);
            data[i] = (const char *)w.data + chunks * lane_row<S>::BYTES + lane_id() % 4 * 16;
            if (S == STORE_FP8)
                chunks = row0 / FP8_BLOCK * (w.cols / CHUNK);
            scale[i] = (const char *)w.scale + chunks * lane_row<S>::SCALES;
        }
    }

    template <int AT> __device__ inline void load(lane_row<S> &a, lane_row<S> &b) const
    {
        a.template load_at<AT>(data[0], scale[0]);
        b.template load_at<AT>(data[1], scale[1]);
    }

    __device__ inline void skip(int chunks)
    {
        for (int i = 0; i < 2; i++)
            data[i] += chunks * lane_row<S>::BYTES, scale[i] += chunks * lane_row<S>::SCALES;
    }
};

/* for (I = 0; I < N; I++) body(I), of numbers that are known when compiled. */
template <int N, int I = 0, typename BODY>
static __device__ inline void strip_steps(const BODY &body)
{
    if constexpr (I < N) {
        body.template operator()<I>();
        strip_steps<N, I + 1>(body);
    }
}

/* Some chunks of 8 tokens' rows, 16 bytes at a time, and their scales. */
struct strip_stage {
    uint4 x[TILE_COLS][STRIP_TURN * CHUNK / 8];
    float scale[TILE_COLS][STRIP_TURN];
};

/* Asks for the chunks from `first` on, by all of the block. */
static __device__ inline void strip_load(strip_stage &to, const tile_rows &rows, int cols,
                                         int first)
{
    constexpr int UNITS_ROW = CHUNK / 8, ALL = STRIP_TURN * UNITS_ROW;
    const int chunks = cols / CHUNK;
    for (int i = (int)threadIdx.x; i < TILE_COLS * ALL; i += (int)blockDim.x) {
        int token = i / ALL, unit = i % ALL;
        if (first + unit / UNITS_ROW < chunks)
            copy_16(&to.x[token][unit_place(token, unit)],
                    rows.x.part[0] + (int64_t)rows.x_row[token] * cols + first * CHUNK + unit * 8);
    }
    int token = (int)threadIdx.x / STRIP_TURN, chunk = first + (int)threadIdx.x % STRIP_TURN;
    if (token < TILE_COLS && chunk < chunks)
        copy_4(&to.scale[token][chunk - first],
               rows.x.scale + (int64_t)rows.x_row[token] * chunks + chunk);
    copy_commit();
}

/* One chunk of 16 rows and 8 tokens into the accumulators; x: of this lane's token. */
template <enum store S>
static __device__ inline void strip_chunk(const lane_row<S> &a, const lane_row<S> &b,
                                          const uint4 *x, float x0, float x1, float w_scale,
                                          float acc[4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
    float sum[4] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t pa[4], pb[4];
        a.unit(u, pa);
        b.unit(u, pb);
        uint4 v = x[unit_place(g, unit_at<S>(u, t) / 8)];
        float group[4] = {};
        float *to = S == STORE_FP4 ? group : sum; /* a scale for each unit of a row */
        mma<true>(to, pa[0], pb[0], pa[1], pb[1], v.x, v.y);
        mma<true>(to, pa[2], pb[2], pa[3], pb[3], v.z, v.w);
#pragma unroll
        for (int i = 0; S == STORE_FP4 && i < 4; i++)
            sum[i] = fmaf(group[i], unit_scale((i < 2 ? a : b).scales, u), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] = fmaf(sum[i], w_scale * (i % 2 ? x1 : x0), acc[i]);
}

/* All chunks of 16 rows for 8 tokens.  row0 beyond the matrix: only helps with the tokens' rows.
 * ready: makes rows ready, by all warps */
template <enum store S, int SLICES, typename READY>
static __device__ inline void strip_run(const weight &w, int row0, const READY &ready,
                                        const tile_out &out, const testimony &say,
                                        strip_stage *stages)
{
    constexpr int DEPTH = lane_row<S>::FOUR_BITS ? STRIP_AHEAD : 1;
    static_assert(STRIP_TURN % DEPTH == 0 && STRIP_TURN % SLICES == 0, "known when compiled");
    const int chunks = w.cols / CHUNK, g = lane_id() / 4, t = lane_id() % 4;
    lane_row<S> a[DEPTH], b[DEPTH];
    strip_rows<S> at;
    at.begin(w, row0 < w.rows ? row0 : 0);
    strip_steps<DEPTH>([&]<int I>() {
        if (I < chunks)
            at.template load<I>(a[I], b[I]);
    });
    const tile_rows rows = ready(S == STORE_BF16);
    if (rows.parts != 1) {
        if (row0 < w.rows)
            strip_full<S>(w, row0, SLICES, rows, out, 0, say);
        return;
    }
    for (int i = 0; i < STRIP_STAGES - 1; i++)
        strip_load(stages[i], rows, w.cols, i * STRIP_TURN);
    float acc[SLICES][4] = {};
    int place = 0;
    for (int first = 0; first < chunks; first += STRIP_TURN) {
        copy_wait<STRIP_STAGES - 2>();
        __syncthreads(); /* all have these chunks, and are done with those before */
        strip_load(stages[(place + STRIP_STAGES - 1) % STRIP_STAGES], rows, w.cols,
                   first + (STRIP_STAGES - 1) * STRIP_TURN);
        const strip_stage &x = stages[place];
        strip_steps<STRIP_TURN>([&]<int I>() {
            constexpr int D = I % DEPTH;
            if (first + I >= chunks)
                return;
            strip_chunk<S>(a[D], b[D], x.x[g] + I * CHUNK / 8, x.scale[2 * t][I],
                           x.scale[2 * t + 1][I], chunk_scale<S>(w, a[D]), acc[I % SLICES]);
            if (first + I + DEPTH < chunks)
                at.template load<I + DEPTH>(a[D], b[D]);
        });
        at.skip(STRIP_TURN);
        place = (place + 1) % STRIP_STAGES;
    }
#pragma unroll
    for (int s = 1; s < SLICES; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[0][i] += acc[s][i];
    }
    if (row0 < w.rows)
        strip_store(acc[0], w, row0, out, 0, say);
}

#endif
