/*
 * Products of many tokens: a warp has 16 or 32 rows of a matrix to itself, and multiplies each
 * chunk of them with up to 64 tokens, whose rows go through shared memory for all warps of a block.
 * Knows weights as stored and rows that are ready; not where either comes from, nor what is
 * launched.
 *
 * The sums are those of tiles.cuh, bit for bit: slice after slice, as a warp of its own adds each
 * up there.
 */
#ifndef V4BOX_KERNELS_CUDA_PANELS_CUH
#define V4BOX_KERNELS_CUDA_PANELS_CUH

#include "kernels/cuda/strips.cuh"

/* Rows of a block, and tiles of 16 of them that a warp has (HIGH, below).  Dense: what comes from
 * shared memory serves two (ncu: with one, shared memory and the L1 were busy for 75 % of the
 * time). Experts, whose warps have more to do beside the tensor cores: one, so that there are twice
 * as many. */
#define PANEL_ROWS          128
#define PANEL_HIGH          2
#define EXPERT_HIGH         1
#define PANEL_THREADS(high) (PANEL_ROWS / TILE_ROWS / (high)*WARP)
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
    uint32_t row_at[PANEL_TOKENS];                         /* chunks in front of each token's row */
    float4 sum[PANEL_ROWS / TILE_ROWS][PANEL_TILES][WARP]; /* of the slices that are done */
};

/* Where a thread of the block copies from, and to: the same unit of every so manieth token. */
template <int HIGH> struct panel_copy {
    static constexpr int UNITS_ROW = CHUNK / 8, STEP = PANEL_THREADS(HIGH) / UNITS_ROW;
    static_assert(STEP % 2 == 0 && PANEL_TOKENS % STEP == 0,
                  "one place for all of a thread's tokens");
    const char *x, *scale;
    int token, place, tokens;

    __device__ inline void begin(const tile_rows &rows, int32_t cols, int of, uint32_t *row_at)
    {
        const int unit = (int)threadIdx.x % UNITS_ROW;
        token = (int)threadIdx.x / UNITS_ROW, place = unit_place(token, unit), tokens = of;
        x = (const char *)(rows.x.part[0] + unit * 8);
        scale = (const char *)rows.x.scale;
        if (threadIdx.x < PANEL_TOKENS)
            row_at[threadIdx.x] = (uint32_t)(rows.x_row[threadIdx.x] * (cols / CHUNK));
        __syncthreads();
    }

    /* Asks for a chunk of all tokens' rows, by all of the block; nothing where chunk < 0. */
    __device__ inline void load(panel_stage &to, const uint32_t *row_at, int chunk) const
    {
#pragma unroll
        for (int t = token; t < PANEL_TOKENS; t += STEP) {
            if (chunk >= 0 && t < tokens)
                copy_16(&to.x[t][place], x + (uint64_t)(row_at[t] + (uint32_t)chunk) * (2 * CHUNK));
        }
        int t = (int)threadIdx.x;
        if (chunk >= 0 && t < tokens && scale != NULL)
            copy_4(&to.scale[t], scale + (uint64_t)(row_at[t] + (uint32_t)chunk) * sizeof(float));
        copy_commit();
    }
};

/* One chunk of a warp's rows as stored. */
template <enum store S, int HIGH> struct panel_rows {
    lane_row<S> a[HIGH], b[HIGH];

    __device__ inline void load(const weight &w, int row0, int chunk)
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
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
template <enum store S, int HIGH>
static __device__ inline void panel_unit(const panel_rows<S, HIGH> &rows, int u, const uint4 *x,
                                         float sum[HIGH][PANEL_HELD][4])
{
    constexpr bool HALF = S != STORE_BF16;
    uint32_t pa[HIGH][4], pb[HIGH][4];
    uint4 v[PANEL_HELD];
#pragma unroll
    for (int nt = 0; nt < PANEL_HELD; nt++)
        v[nt] = x[nt * TILE_COLS * (CHUNK / 8)];
#pragma unroll
    for (int r = 0; r < HIGH; r++) {
        rows.a[r].unit(u, pa[r]);
        rows.b[r].unit(u, pb[r]);
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++)
            mma<HALF>(sum[r][nt], pa[r][0], pb[r][0], pa[r][1], pb[r][1], v[nt].x, v[nt].y);
    }
#pragma unroll
    for (int r = 0; r < HIGH; r++) {
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++)
            mma<HALF>(sum[r][nt], pa[r][2], pb[r][2], pa[r][3], pb[r][3], v[nt].z, v[nt].w);
    }
}

/* One chunk of a warp's rows and all tokens into the accumulators. */
template <enum store S, int HIGH>
static __device__ inline void panel_chunk(const panel_rows<S, HIGH> &rows, const panel_stage &stage,
                                          float w_scale, float acc[HIGH][PANEL_TILES][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int first = 0; first < PANEL_TILES; first += PANEL_HELD) {
        float sum[HIGH][PANEL_HELD][4] = {};
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            panel_unit<S, HIGH>(
                rows, u, &stage.x[first * TILE_COLS + g][unit_place(g, unit_at<S>(u, t) / 8)], sum);
#pragma unroll
        for (int nt = 0; nt < PANEL_HELD; nt++) {
            float2 x = make_float2(1, 1);
            if (S != STORE_BF16)
                x = *(const float2 *)&stage.scale[(first + nt) * TILE_COLS + 2 * t];
            x.x *= w_scale, x.y *= w_scale;
#pragma unroll
            for (int i = 0; i < HIGH * 4; i++) {
                float *to = &acc[i / 4][first + nt][i % 4];
                *to = fmaf(sum[i / 4][nt][i % 4], i % 2 ? x.y : x.x, *to);
            }
        }
    }
}

/* Chunks slice by slice; negative behind the last.  (A division for each would take as long as
 * the tensor cores.) */
struct panel_walk {
    int chunk, slice;

    __device__ inline void next(int slices, int chunks)
    {
        chunk += chunk < 0 ? 0 : slices;
        if (chunk >= chunks) {
            slice++;
            chunk = slice < slices ? slice : -1;
        }
    }
};

/* Adds a slice's sums to those before it, which then stand in `before` and in acc. */
template <int HIGH>
static __device__ inline void panel_add(float4 before[HIGH][PANEL_TILES][WARP], bool first,
                                        float acc[HIGH][PANEL_TILES][4])
{
#pragma unroll
    for (int i = 0; i < HIGH * PANEL_TILES; i++) {
        float4 *at = &before[i / PANEL_TILES][i % PANEL_TILES][lane_id()];
        float *a = acc[i / PANEL_TILES][i % PANEL_TILES];
        if (!first) {
            float4 sum = *at;
            a[0] = sum.x + a[0], a[1] = sum.y + a[1], a[2] = sum.z + a[2], a[3] = sum.w + a[3];
        }
        *at = make_float4(a[0], a[1], a[2], a[3]);
    }
}

template <int HIGH>
static __device__ inline void panel_store(const float acc[HIGH][PANEL_TILES][4], const weight &w,
                                          int row0, const tile_out &out, const testimony &say)
{
#pragma unroll
    for (int i = 0; i < HIGH * PANEL_TILES; i++) {
        int r = i / PANEL_TILES, nt = i % PANEL_TILES;
        tile_out to = out;
        to.first = out.first && r == 0;
        strip_store(acc[r][nt], w, row0 + r * TILE_ROWS, to, nt * TILE_COLS, say);
    }
}

/* Rows of several parts: rare. */
template <enum store S, int HIGH>
static __device__ inline void panel_full(const weight &w, int row0, int slices,
                                         const tile_rows &rows, const tile_out &out,
                                         const testimony &say)
{
    for (int i = 0; i < HIGH * PANEL_TILES; i++) {
        int row = row0 + i % HIGH * TILE_ROWS, column = i / HIGH * TILE_COLS;
        tile_out to = out;
        to.first = out.first && i == 0;
        if (row < w.rows && column < out.n)
            strip_full<S>(w, row, slices, rows, to, column, say);
    }
}

/* HIGH tiles of rows a warp, 64 tokens: sums slice by slice, while the next chunks of x come.
 * row0 beyond the matrix: only helps with the rows.  ready: makes rows ready, by all warps */
template <enum store S, int HIGH, typename READY>
static __device__ inline void panel_run(const weight &w, int row0, int slices, const READY &ready,
                                        const tile_out &out, const testimony &say, panel &shared)
{
    const int chunks = w.cols / CHUNK, from = row0 < w.rows ? row0 : 0;
    panel_rows<S, HIGH> coming;
    coming.load(w, from, 0);
    const tile_rows rows = ready(S == STORE_BF16);
    if (rows.parts != 1) {
        panel_full<S, HIGH>(w, row0, slices, rows, out, say);
        return;
    }
    panel_copy<HIGH> copy;
    copy.begin(rows, w.cols, PANEL_TOKENS, shared.row_at);
    panel_walk asked = {}, next = {};
    int place = 0;
    for (int i = 0; i < PANEL_STAGES - 1; i++) {
        copy.load(shared.stage[i], shared.row_at, asked.chunk);
        asked.next(slices, chunks);
    }
    float acc[HIGH][PANEL_TILES][4] = {};
    do {
        const int slice = next.slice;
        next.next(slices, chunks);
        const panel_rows<S, HIGH> now = coming;
        if (S != STORE_BF16 && next.chunk >= 0) /* while this one is multiplied */
            coming.load(w, from, next.chunk);
        copy_wait<PANEL_STAGES - 2>();
        __syncthreads(); /* all have this chunk, and are done with the one before */
        copy.load(shared.stage[place < 1 ? PANEL_STAGES - 1 : place - 1], shared.row_at,
                  asked.chunk);
        asked.next(slices, chunks);
        panel_chunk<S, HIGH>(now, shared.stage[place], chunk_scale<S>(w, now.a[0]), acc);
        if (S == STORE_BF16 && next.chunk >= 0) /* twice as many bytes: no registers for two */
            coming.load(w, from, next.chunk);
        if (next.slice != slice) {
            panel_add<HIGH>(shared.sum + warp_id() * HIGH, slice == 0, acc);
            for (int i = 0; next.chunk >= 0 && i < HIGH * PANEL_TILES * 4; i++)
                acc[i / 4 / PANEL_TILES][i / 4 % PANEL_TILES][i % 4] = 0;
        }
        place = place == PANEL_STAGES - 1 ? 0 : place + 1;
    } while (next.chunk >= 0);
    panel_store<HIGH>(acc, w, row0, out, say);
}

/* ---- experts -------------------------------------------------------------------------------- */

/* Columns of 8 tokens that are multiplied together, or not at all where an item has no entries:
 * with two, the tensor cores have four sums to work on. */
#define PAIR       2
#define PANEL_PAIR (PAIR * TILE_COLS) /* tokens */

/* One unit of a warp's rows and a pair of columns. */
template <enum store S, int HIGH>
static __device__ inline void pair_unit(const uint32_t pa[HIGH][4], const uint32_t pb[HIGH][4],
                                        const float scale[HIGH][2], const uint4 *x,
                                        float sum[HIGH][PANEL_TILES][4], int first)
{
    const uint4 v[PAIR] = {x[first * TILE_COLS * (CHUNK / 8)],
                           x[(first + 1) * TILE_COLS * (CHUNK / 8)]};
    float group[HIGH][PAIR][4] = {}; /* of FP4: a scale for each unit of a row */
#pragma unroll
    for (int i = 0; i < HIGH * PAIR; i++) {
        int r = i / PAIR, nt = i % PAIR;
        float *to = S == STORE_FP4 ? group[r][nt] : sum[r][first + nt];
        mma<true>(to, pa[r][0], pb[r][0], pa[r][1], pb[r][1], v[nt].x, v[nt].y);
    }
#pragma unroll
    for (int i = 0; i < HIGH * PAIR; i++) {
        int r = i / PAIR, nt = i % PAIR;
        float *to = S == STORE_FP4 ? group[r][nt] : sum[r][first + nt];
        mma<true>(to, pa[r][2], pb[r][2], pa[r][3], pb[r][3], v[nt].z, v[nt].w);
    }
#pragma unroll
    for (int i = 0; S == STORE_FP4 && i < HIGH * PAIR * 4; i++) {
        int r = i / (PAIR * 4), nt = i / 4 % PAIR, k = i % 4;
        float *to = &sum[r][first + nt][k];
        *to = fmaf(group[r][nt][k], scale[r][k / 2], *to);
    }
}

/* One chunk of a warp's rows and the first `pairs` pairs of columns into the accumulators. */
template <enum store S, int HIGH>
static __device__ inline void pair_chunk(const panel_rows<S, HIGH> &rows, const panel_stage &stage,
                                         float w_scale, int pairs, float acc[HIGH][PANEL_TILES][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
    float sum[HIGH][PANEL_TILES][4] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t pa[HIGH][4], pb[HIGH][4];
        float scale[HIGH][2];
        const uint4 *x = &stage.x[g][unit_place(g, unit_at<S>(u, t) / 8)];
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
            rows.a[r].unit(u, pa[r]);
            rows.b[r].unit(u, pb[r]);
            scale[r][0] = unit_scale(rows.a[r].scales, u);
            scale[r][1] = unit_scale(rows.b[r].scales, u);
        }
#pragma unroll
        for (int pair = 0; pair < PANEL_TILES / PAIR; pair++) {
            if (pair < pairs)
                pair_unit<S, HIGH>(pa, pb, scale, x, sum, pair * PAIR);
        }
    }
#pragma unroll
    for (int nt = 0; nt < PANEL_TILES; nt++) {
        if (nt / PAIR >= pairs)
            break;
        float2 x = *(const float2 *)&stage.scale[nt * TILE_COLS + 2 * t];
        x.x *= w_scale, x.y *= w_scale;
#pragma unroll
        for (int i = 0; i < HIGH * 4; i++) {
            float *to = &acc[i / 4][nt][i % 4];
            *to = fmaf(sum[i / 4][nt][i % 4], i % 2 ? x.y : x.x, *to);
        }
    }
}

/* Chunks of weights on their way: of four bits a value they are small. */
template <enum store S> struct pair_ahead {
    static constexpr int DEPTH = lane_row<S>::FOUR_BITS ? 2 : 1;
};

/* Rows of an expert's matrix, for the entries of an item: as panel_run. */
template <enum store S, int HIGH, typename READY>
static __device__ inline void pairs_run(const weight &w, int row0, int slices, const READY &ready,
                                        const tile_out &out, const testimony &say, panel &shared)
{
    constexpr int DEPTH = pair_ahead<S>::DEPTH;
    const int chunks = w.cols / CHUNK, from = row0 < w.rows ? row0 : 0;
    const int pairs = ceil_div(out.n, PANEL_PAIR);
    panel_rows<S, HIGH> coming[DEPTH];
    panel_walk loaded = {}; /* what is loaded next */
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        if (loaded.chunk >= 0)
            coming[d].load(w, from, loaded.chunk);
        loaded.next(slices, chunks);
    }
    const tile_rows rows = ready(false);
    if (rows.parts != 1) {
        panel_full<S, HIGH>(w, row0, slices, rows, out, say);
        return;
    }
    panel_copy<HIGH> copy;
    copy.begin(rows, w.cols, pairs * PANEL_PAIR, shared.row_at);
    panel_walk asked = {}, next = {};
    int place = 0;
    for (int i = 0; i < PANEL_STAGES - 1; i++) {
        copy.load(shared.stage[i], shared.row_at, asked.chunk);
        asked.next(slices, chunks);
    }
    float acc[HIGH][PANEL_TILES][4] = {};
    do {
        const int slice = next.slice;
        next.next(slices, chunks);
        const panel_rows<S, HIGH> now = coming[0];
#pragma unroll
        for (int d = 0; d + 1 < DEPTH; d++)
            coming[d] = coming[d + 1];
        if (loaded.chunk >= 0)
            coming[DEPTH - 1].load(w, from, loaded.chunk);
        loaded.next(slices, chunks);
        copy_wait<PANEL_STAGES - 2>();
        __syncthreads(); /* all have this chunk, and are done with the one before */
        copy.load(shared.stage[place < 1 ? PANEL_STAGES - 1 : place - 1], shared.row_at,
                  asked.chunk);
        asked.next(slices, chunks);
        pair_chunk<S, HIGH>(now, shared.stage[place], chunk_scale<S>(w, now.a[0]), pairs, acc);
        if (next.slice != slice) {
            panel_add<HIGH>(shared.sum + warp_id() * HIGH, slice == 0, acc);
            for (int i = 0; next.chunk >= 0 && i < HIGH * PANEL_TILES * 4; i++)
                acc[i / 4 / PANEL_TILES][i / 4 % PANEL_TILES][i % 4] = 0;
        }
        place = place == PANEL_STAGES - 1 ? 0 : place + 1;
    } while (next.chunk >= 0);
    panel_store<HIGH>(acc, w, row0, out, say);
}

#endif
