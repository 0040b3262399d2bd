/*
 * Tiles of products on the tensor cores: 16 rows of a matrix times columns of 8 tokens, by a block
 * whose warps (slices) each take every so manieth chunk of the rows.  Knows weights as stored and
 * rows that are ready; not where either comes from, nor what is launched.
 *
 * A tile asks for its first weights before its rows are ready, which may take until an earlier
 * kernel ends; and for each chunk's successor as soon as the chunk is used.
 */
#ifndef V4BOX_KERNELS_CUDA_TILES_CUH
#define V4BOX_KERNELS_CUDA_TILES_CUH

#include "kernels/cuda/split.cuh"

/* Warps that share 16 rows. */
#define SLICES_MAX 8

/* A lane's view of the tokens' rows: where its first unit of a chunk lies, and their scales. */
template <int NT> struct lane_tokens {
    const uint16_t *x[NT]; /* of part 0 */
    int32_t scale[NT][2];  /* of columns 2 t and 2 t + 1 */
};

template <enum store S, int NT>
static __device__ inline lane_tokens<NT> tokens_of(const operand &x, const int32_t *x_row,
                                                   int32_t cols)
{
    lane_tokens<NT> l;
    int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        l.x[nt] = x.part[0] + (int64_t)x_row[nt * 8 + g] * cols + unit_at<S>(0, t);
        for (int i = 0; i < 2; i++)
            l.scale[nt][i] = x_row[nt * 8 + 2 * t + i] * (cols / CHUNK);
    }
    return l;
}

/* How many parts a column of tokens has, and this lane's token: nobody writes what it has not. */
struct token_parts {
    int all, own;
};

/* One unit of both rows times one column of tokens; ONE: the tokens have one part. */
template <enum store S, bool ONE>
static __device__ inline void unit_run(float sum[4], const uint32_t pa[4], const uint32_t pb[4],
                                       const uint16_t *at, const struct operand &x,
                                       const token_parts &parts)
{
    constexpr bool HALF = S != STORE_BF16;
    for (int i = 0; i < (ONE ? 1 : parts.all); i++) {
        uint4 v = {};
        if (ONE || i < parts.own)
            v = *(const uint4 *)(ONE ? at : at + (x.part[i] - x.part[0]));
        mma<HALF>(sum, pa[0], pb[0], pa[1], pb[1], v.x, v.y);
        mma<HALF>(sum, pa[2], pb[2], pa[3], pb[3], v.z, v.w);
    }
}

/* What sums of a chunk are multiplied with, beside the tokens' scales. */
template <enum store S>
static __device__ inline float chunk_scale(const struct weight &w, const lane_row<S> &a)
{
    return S == STORE_FP4     ? FP4_HALF_SCALE
           : S == STORE_NVFP4 ? NVFP4_HALF_SCALE * w.global
           : S == STORE_FP8   ? e8m0_value(a.scales)
                              : 1;
}

/* The scale of a unit of FP4, of four in a word.  2^-127 counts as 0, which float32 cannot tell
 * from it in a sum. */
static __device__ inline float unit_scale(uint32_t scales, int u)
{
    return __uint_as_float((scales >> 8 * u & 255) << 23);
}

/* One chunk into the accumulators. */
template <enum store S, int NT, bool ONE>
static __device__ inline void chunk_run(const lane_row<S> &a, const lane_row<S> &b,
                                        const lane_tokens<NT> &l, const struct operand &x,
                                        float w_scale, int chunk, const token_parts &parts,
                                        float acc[NT][4])
{
    float sum[NT][4] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t pa[4], pb[4];
        a.unit(u, pa);
        b.unit(u, pb);
        int at = chunk * CHUNK + unit_at<S>(u, 0);
        float scale_a = S != STORE_FP4 ? 1 : unit_scale(a.scales, u);
        float scale_b = S != STORE_FP4 ? 1 : unit_scale(b.scales, u);
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            if constexpr (S == STORE_FP4) { /* a scale for each unit of a row */
                float group[4] = {};
                unit_run<S, ONE>(group, pa, pb, l.x[nt] + at, x, parts);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[nt][i] = fmaf(group[i], i < 2 ? scale_a : scale_b, sum[nt][i]);
            } else {
                unit_run<S, ONE>(sum[nt], pa, pb, l.x[nt] + at, x, parts);
            }
        }
    }
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        float x0 = 1, x1 = 1;
        if (S != STORE_BF16) {
            x0 = x.scale[l.scale[nt][0] + chunk];
            x1 = x.scale[l.scale[nt][1] + chunk];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[nt][i] = fmaf(sum[nt][i], w_scale * (i % 2 ? x1 : x0), acc[nt][i]);
    }
}

/* A warp's part of a tile: chunks slice, slice + slices, ... of 16 rows from row0 on. */
struct tile_part {
    int row0, slice, slices;
};

/* Its chunks on their way.  For one column of tokens many warps wait for memory together, so that
 * each has few registers.  WIDE: how many of 8 or 16 bits a value */
template <enum store S, int NT, int WIDE> struct lane_ahead {
    static constexpr bool FOUR_BITS = lane_row<S>::FOUR_BITS;
    static constexpr int DEPTH = !FOUR_BITS ? WIDE : NT > 1 ? 4 : 2;
    lane_row<S> a[DEPTH], b[DEPTH];

    __device__ inline void load(int d, const struct weight &w, const tile_part &part, int chunk)
    {
        const int g = lane_id() / 4, t = lane_id() % 4;
        a[d].load(w, min(part.row0 + g, w.rows - 1), chunk, t);
        b[d].load(w, min(part.row0 + g + 8, w.rows - 1), chunk, t);
        if (S == STORE_FP8) /* of both rows */
            a[d].scales = load_scale(w.scale + part.row0 / FP8_BLOCK * (w.cols / CHUNK) + chunk);
    }

    __device__ inline void begin(const struct weight &w, const tile_part &part)
    {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int chunk = part.slice + d * part.slices;
            if (chunk < w.cols / CHUNK)
                load(d, w, part, chunk);
        }
    }
};

/* All chunks of a part that has begun, for NT * 8 tokens. */
template <enum store S, int NT, int WIDE, bool ONE>
static __device__ inline void part_run(const struct weight &w, const tile_part &part,
                                       lane_ahead<S, NT, WIDE> &ahead, const struct operand &x,
                                       const int32_t *x_row, int parts, float acc[NT][4])
{
    constexpr int DEPTH = lane_ahead<S, NT, WIDE>::DEPTH;
    static_assert(ONE || NT == 1, "one token a lane");
    const int chunks = w.cols / CHUNK, step = DEPTH * part.slices;
    const bool told = !ONE && x.n_parts != NULL; /* else there is one token */
    const token_parts each = {parts, told ? x.n_parts[x_row[lane_id() / 4]] : parts};
    const lane_tokens<NT> l = tokens_of<S, NT>(x, x_row, w.cols);
    for (int first = part.slice; first < chunks; first += step) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int chunk = first + d * part.slices;
            if (chunk >= chunks)
                break;
            chunk_run<S, NT, ONE>(ahead.a[d], ahead.b[d], l, x, chunk_scale<S>(w, ahead.a[d]),
                                  chunk, each, acc);
            if (chunk + step < chunks)
                ahead.load(d, w, part, chunk + step);
        }
    }
}

/* One slice's 16 rows of 8 tokens, to shared memory [8, 16]. */
static __device__ inline void part_store(const float acc[4], float *to)
{
    int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[(2 * t + i % 2) * TILE_ROWS + g + i / 2 * 8] = acc[i];
}

/* Rows of x that are ready. */
struct tile_rows {
    struct operand x;
    const int32_t *x_row; /* shared; the row of x of each token */
    int parts;            /* that one of them needs at most */
};

/* Rows of several parts: rare, and the same sums column by column. */
template <enum store S>
static __device__ __noinline__ void part_run_full(struct weight w, struct tile_part part,
                                                  struct tile_rows rows, int column, float *to)
{
    float acc[1][4] = {};
    lane_ahead<S, 1, 1> ahead;
    ahead.begin(w, part);
    part_run<S, 1, 1, false>(w, part, ahead, rows.x, rows.x_row + column * TILE_COLS, rows.parts,
                             acc);
    part_store(acc[0], to);
}

/* One slice of a tile, its sums to `mine` [NT * 8, 16].  ready: makes rows ready, by all warps */
template <enum store S, int NT, int WIDE, typename READY>
static __device__ inline void slice_run(const struct weight &w, const tile_part &part,
                                        const READY &ready, float *mine)
{
    lane_ahead<S, NT, WIDE> ahead;
    ahead.begin(w, part);
    const tile_rows rows = ready(S == STORE_BF16);
    if (rows.parts == 1) {
        float acc[NT][4] = {};
        part_run<S, NT, WIDE, true>(w, part, ahead, rows.x, rows.x_row, 1, acc);
#pragma unroll
        for (int nt = 0; nt < NT; nt++)
            part_store(acc[nt], mine + nt * TILE_COLS * TILE_ROWS);
        return;
    }
#pragma unroll 1
    for (int nt = 0; nt < NT; nt++)
        part_run_full<S>(w, part, rows, nt, mine + nt * TILE_COLS * TILE_ROWS);
}

/* Where a tile's results go. */
struct tile_out {
    float *y; /* of token 0 of the tile */
    int64_t stride;
    int32_t n; /* tokens */
    enum round round;
    bool first; /* speaks for all of the launch */
    int round_row, sum_row;
};

/* The rounding of a result; says what it did. */
static __device__ inline float stored(enum round round, float y, enum round *did)
{
    *did = round == ROUND_BF16 ? ROUND_BF16 : ROUND_NONE;
    return round == ROUND_BF16 ? round_bf16(y) : y;
}

/* All of a block: the slices, then their sum in order.  shared: [slices, NT * 8, 16]; warps beyond
 * the slices only help with the rows.  DENSE: the matrix may be of bfloat16, too. */
template <int NT, int WIDE, bool DENSE, typename READY>
static __device__ inline void tile_run(const struct weight &w, int row0, int slices,
                                       const READY &ready, const tile_out &out,
                                       const testimony &say, float *shared)
{
    constexpr int VALUES = NT * TILE_COLS * TILE_ROWS;
    const tile_part part = {row0, warp_id(), slices};
    float *mine = shared + part.slice * VALUES;
    if (part.slice >= slices)
        ready(w.store == STORE_BF16);
    else if (w.store == STORE_FP4)
        slice_run<STORE_FP4, NT, WIDE>(w, part, ready, mine);
    else if (w.store == STORE_NVFP4)
        slice_run<STORE_NVFP4, NT, WIDE>(w, part, ready, mine);
    else if (w.store == STORE_FP8)
        slice_run<STORE_FP8, NT, WIDE>(w, part, ready, mine);
    else if constexpr (DENSE)
        slice_run<STORE_BF16, NT, WIDE>(w, part, ready, mine);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < out.n * TILE_ROWS; i += (int)blockDim.x) {
        float sum = shared[i];
        for (int s = 1; s < slices; s++)
            sum += shared[s * VALUES + i];
        enum round did;
        int row = row0 + i % TILE_ROWS;
        sum = stored(out.round, sum, &did);
        if (row < w.rows)
            out.y[i / TILE_ROWS * out.stride + row] = sum;
        testify(say, out.first && i == 0, out.round_row, value_of_round(did));
        testify(say, out.first && i == 0, out.sum_row, SUM_F32);
    }
}

/* Parts that the rows of a tile's n tokens need, rows beyond the last repeating it.
 * row: of this thread's token;  x_row: shared, [NT * 8], filled */
template <int NT>
static __device__ inline int rows_parts(int32_t *x_row, int32_t n, int32_t row,
                                        const uint8_t *n_parts)
{
    if ((int)threadIdx.x < NT * TILE_COLS)
        x_row[threadIdx.x] = row;
    __syncthreads();
    unsigned parts = 1; /* found by each warp for itself, all tokens at once */
    for (int i = lane_id(); i < n; i += WARP)
        parts = max(parts, (unsigned)n_parts[x_row[i]]);
    return (int)__reduce_max_sync(ALL_LANES, parts);
}

#endif
