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

/* ---- prompts -------------------------------------------------------------------------------- */

/* Warps of a block, and tiles of 16 rows of each: what comes from shared memory serves all of these
 * (ncu: with one, shared memory and the L1 were busy for 75 % of the time). */
#define PANEL_WARPS 4
#define PANEL_HIGH  2
#define PANEL_ROWS  (PANEL_WARPS * PANEL_HIGH * TILE_ROWS)
/* Tokens of a panel; chunks of their rows that are in shared memory or on their way there. */
#define PANEL_TOKENS 64
#define PANEL_TILES  (PANEL_TOKENS / TILE_COLS)
#define PANEL_STAGES 3
/* Of its columns of 8 tokens, those whose sums of a chunk are held at once: registers. */
#define PANEL_HELD 8

/* One chunk of the tokens' rows. */
struct panel_stage {
    uint4 x[PANEL_TOKENS][CHUNK / 8];
    float scale[PANEL_TOKENS];
};

/* Shared memory of a block. */
struct panel {
    struct panel_stage stage[PANEL_STAGES];
    float4 sum[PANEL_WARPS][PANEL_HIGH * PANEL_TILES][WARP]; /* of the slices that are done */
};

/* Asks for a chunk of all tokens' rows, by all of the block; nothing where chunk < 0. */
static __device__ inline void panel_load(panel_stage &to, const tile_rows &rows, int cols,
                                         int chunk)
{
    constexpr int UNITS_ROW = CHUNK / 8;
    for (int i = (int)threadIdx.x; chunk >= 0 && i < PANEL_TOKENS * UNITS_ROW;
         i += PANEL_WARPS * WARP) {
        int token = i / UNITS_ROW, unit = i % UNITS_ROW;
        copy_16(&to.x[token][unit_place(token, unit)],
                rows.x.part[0] + (int64_t)rows.x_row[token] * cols + chunk * CHUNK + unit * 8);
    }
    int token = (int)threadIdx.x;
    if (chunk >= 0 && rows.x.scale != NULL && token < PANEL_TOKENS)
        copy_4(&to.scale[token],
               rows.x.scale + (int64_t)rows.x_row[token] * (cols / CHUNK) + chunk);
    copy_commit();
}

/* One chunk of a warp's rows as stored. */
template <enum store S> struct panel_rows {
    lane_row<S> a[PANEL_HIGH], b[PANEL_HIGH];

    __device__ inline void load(const weight &w, int row0, int chunk)
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int r = 0; r < PANEL_HIGH; r++) {
            a[r].load(w, min(row0 + r * TILE_ROWS + g, w.rows - 1), chunk, t);
            b[r].load(w, min(row0 + r * TILE_ROWS + g + 8, w.rows - 1), chunk, t);
        }
        if (S == STORE_FP8) /* of all rows */
            a[0].scales = load_scale(w.scale + row0 / FP8_BLOCK * (w.cols / CHUNK) + chunk);
    }
};
static_assert(FP8_BLOCK % (PANEL_HIGH * TILE_ROWS) == 0, "one scale for all rows of a warp");

/* One unit of a warp's rows and some columns of tokens: all first halves, then all second ones,
 * which wait for them. */
template <enum store S>
static __device__ inline void panel_unit(const panel_rows<S> &rows, int u, const uint4 *x,
                                         float sum[PANEL_HIGH][PANEL_HELD][4])
{
    constexpr bool HALF = S != STORE_BF16;
    uint32_t pa[PANEL_HIGH][4], pb[PANEL_HIGH][4];
    uint4 v[PANEL_HELD];
#pragma unroll
    for (int nt = 0; nt < PANEL_HELD; nt++)
        v[nt] = x[nt * TILE_COLS * (CHUNK / 8)];
#pragma unroll
    for (int r = 0; r < PANEL_HIGH; r++) {
        rows.a[r].unit(u, pa[r]);
        rows.b[r].unit(u, pb[r]);
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++)
            mma<HALF>(sum[r][nt], pa[r][0], pb[r][0], pa[r][1], pb[r][1], v[nt].x, v[nt].y);
    }
#pragma unroll
    for (int r = 0; r < PANEL_HIGH; r++) {
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++)
            mma<HALF>(sum[r][nt], pa[r][2], pb[r][2], pa[r][3], pb[r][3], v[nt].z, v[nt].w);
    }
}

/* One chunk of a warp's rows and all tokens into the accumulators. */
template <enum store S>
static __device__ inline void panel_chunk(const panel_rows<S> &rows, const panel_stage &stage,
                                          float w_scale, float acc[PANEL_HIGH][PANEL_TILES][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int first = 0; first < PANEL_TILES; first += PANEL_HELD) {
        float sum[PANEL_HIGH][PANEL_HELD][4] = {};
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            panel_unit<S>(
                rows, u, &stage.x[first * TILE_COLS + g][unit_place(g, unit_at<S>(u, t) / 8)], sum);
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++) {
            float2 x = make_float2(1, 1);
            if (S != STORE_BF16)
                x = *(const float2 *)&stage.scale[(first + nt) * TILE_COLS + 2 * t];
#pragma unroll
            for (int i = 0; i < PANEL_HIGH * 4; i++) {
                float *to = &acc[i / 4][first + nt][i % 4];
                *to = fmaf(sum[i / 4][nt][i % 4], w_scale * (i % 2 ? x.y : x.x), *to);
            }
        }
    }
}

/* The chunk after this one, slice by slice; negative behind the last. */
static __device__ inline int panel_next(int chunk, int slices, int chunks)
{
    int slice = chunk % slices;
    return chunk < 0                 ? chunk
           : chunk + slices < chunks ? chunk + slices
           : slice + 1 < slices      ? slice + 1
                                     : -1;
}

/* Adds a slice's sums to those before it, which then stand in `before` and in acc. */
static __device__ inline void panel_add(float4 before[PANEL_HIGH * PANEL_TILES][WARP], bool first,
                                        float acc[PANEL_HIGH][PANEL_TILES][4])
{
#pragma unroll
    for (int i = 0; i < PANEL_HIGH * PANEL_TILES; i++) {
        float4 *at = &before[i][lane_id()];
        float *a = acc[i / PANEL_TILES][i % PANEL_TILES];
        if (!first) {
            float4 sum = *at;
            a[0] = sum.x + a[0], a[1] = sum.y + a[1], a[2] = sum.z + a[2], a[3] = sum.w + a[3];
        }
        *at = make_float4(a[0], a[1], a[2], a[3]);
    }
}

static __device__ inline void panel_store(const float acc[PANEL_HIGH][PANEL_TILES][4],
                                          const weight &w, int row0, const tile_out &out,
                                          const testimony &say)
{
#pragma unroll
    for (int i = 0; i < PANEL_HIGH * PANEL_TILES; i++) {
        int r = i / PANEL_TILES, nt = i % PANEL_TILES;
        tile_out to = out;
        to.first = out.first && r == 0;
        strip_store(acc[r][nt], w, row0 + r * TILE_ROWS, to, nt * TILE_COLS, say);
    }
}

/* 32 rows a warp, 64 tokens: its sums slice by slice, while the block's next chunks of x come.
 * row0 beyond the matrix: only helps with the rows.  ready: makes rows ready, by all warps */
template <enum store S, typename READY>
static __device__ inline void panel_run(const weight &w, int row0, int slices, const READY &ready,
                                        const tile_out &out, const testimony &say, panel &shared)
{
    const int chunks = w.cols / CHUNK, from = row0 < w.rows ? row0 : 0;
    panel_rows<S> coming;
    coming.load(w, from, 0);
    const tile_rows rows = ready(S == STORE_BF16);
    if (rows.parts != 1) {
        for (int i = 0; i < PANEL_HIGH * PANEL_TILES; i++) {
            int row = row0 + i % PANEL_HIGH * TILE_ROWS, column = i / PANEL_HIGH * TILE_COLS;
            tile_out to = out;
            to.first = out.first && i == 0;
            if (row < w.rows && column < out.n)
                strip_full<S>(w, row, slices, rows, to, column, say);
        }
        return;
    }
    int asked = 0, place = 0;
    for (int i = 0; i < PANEL_STAGES - 1; i++) {
        panel_load(shared.stage[i], rows, w.cols, asked);
        asked = panel_next(asked, slices, chunks);
    }
    float acc[PANEL_HIGH][PANEL_TILES][4] = {};
    for (int chunk = 0; chunk >= 0;) {
        const int next = panel_next(chunk, slices, chunks);
        const panel_rows<S> now = coming;
        if (S != STORE_BF16 && next >= 0) /* while this one is multiplied */
            coming.load(w, from, next);
        copy_wait<PANEL_STAGES - 2>();
        __syncthreads(); /* all have this chunk, and are done with the one before */
        panel_load(shared.stage[(place + PANEL_STAGES - 1) % PANEL_STAGES], rows, w.cols, asked);
        asked = panel_next(asked, slices, chunks);
        panel_chunk<S>(now, shared.stage[place], chunk_scale<S>(w, now.a[0]), acc);
        if (S == STORE_BF16 && next >= 0) /* twice as many bytes: no registers for two */
            coming.load(w, from, next);
        if (next < 0 || next % slices != chunk % slices) {
            panel_add(shared.sum[warp_id()], chunk % slices == 0, acc);
            for (int i = 0; next >= 0 && i < PANEL_HIGH * PANEL_TILES * 4; i++)
                acc[i / 4 / PANEL_TILES][i / 4 % PANEL_TILES][i % 4] = 0;
        }
        place = (place + 1) % PANEL_STAGES, chunk = next;
    }
    panel_store(acc, w, row0, out, say);
}

#endif
