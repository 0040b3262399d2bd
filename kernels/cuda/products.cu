/*
 * Matrix products: y[token][row] = sum over k of w[row][k] * x[token][k], weights as stored.
 *
 * In float32: on the tensor cores, whose products of 16-bit numbers are exact.  x is split into as
 * many 16-bit numbers as it takes (one for what the published numerics leave, three for any
 * float32), float16 with a power of two for each 128 values against FP8 and FP4, bfloat16 against
 * bfloat16.  Every 128 values (32 of FP4) the sum goes into a float32 accumulator with the scales.
 * In double: with plain arithmetic, products exact.
 *
 * Bound by memory at few tokens: each weight is read once for 8 to 32 tokens.  The 8 warps of a
 * block take every 8th chunk of the same 16 rows; how many depends on the row's length alone, and
 * columns of an instruction do not see each other, so a token's result does not depend on the call.
 */
#include "kernels/cuda/split.cuh"

/* Warps that share 16 rows. */
#define SLICES_MAX 8
/* The longest row that blocks make ready themselves: 48 KB of shared memory. */
#define ALONE_COLS_MAX 8192
/* Warps of a block that sums in double, and what one of them takes at once: few rows spread over
 * the multiprocessors, or many, so that conversions to double are shared. */
#define PRECISE_WARPS  4
#define PRECISE_ROWS   4
#define PRECISE_TOKENS 4

/* ---- float32 on the tensor cores ------------------------------------------------------------ */

/* A lane's view of the tokens' rows: where its first unit of a chunk lies, and their scales. */
template <int NT> struct lane_tokens {
    const uint16_t *x[NT]; /* of part 0 */
    int64_t part[OPERAND_PARTS];
    int32_t scale[NT][2]; /* of columns 2 t and 2 t + 1 */
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
    for (int part = 0; part < OPERAND_PARTS; part++)
        l.part[part] = x.part[part] - x.part[0];
    return l;
}

/* One unit of both rows times one column of tokens; ONE: the tokens have one part. */
template <enum store S, bool ONE>
static __device__ inline void unit_run(float sum[4], const uint32_t pa[4], const uint32_t pb[4],
                                       const uint16_t *x, const int64_t *part, int parts)
{
    constexpr bool HALF = S != STORE_BF16;
    for (int i = 0; i < (ONE ? 1 : parts); i++) {
        uint4 v = *(const uint4 *)(ONE ? x : x + part[i]);
        mma<HALF>(sum, pa[0], pb[0], pa[1], pb[1], v.x, v.y);
        mma<HALF>(sum, pa[2], pb[2], pa[3], pb[3], v.z, v.w);
    }
}

/* One chunk into the accumulators. */
template <enum store S, int NT, bool ONE>
static __device__ inline void chunk_run(const lane_row<S> &a, const lane_row<S> &b,
                                        const lane_tokens<NT> &l, const float *x_scale,
                                        float w_scale, int chunk, int parts, float acc[NT][4])
{
    float sum[NT][4] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t pa[4], pb[4];
        a.unit(u, pa);
        b.unit(u, pb);
        int at = chunk * CHUNK + unit_at<S>(u, 0);
        /* a scale of 2^-127 counts as 0, which float32 cannot tell from it in a sum */
        float scale_a = S != STORE_FP4 ? 1 : __uint_as_float((a.scales >> 8 * u & 255) << 23);
        float scale_b = S != STORE_FP4 ? 1 : __uint_as_float((b.scales >> 8 * u & 255) << 23);
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            if constexpr (S == STORE_FP4) { /* a scale for each unit of a row */
                float group[4] = {};
                unit_run<S, ONE>(group, pa, pb, l.x[nt] + at, l.part, parts);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[nt][i] = fmaf(group[i], i < 2 ? scale_a : scale_b, sum[nt][i]);
            } else {
                unit_run<S, ONE>(sum[nt], pa, pb, l.x[nt] + at, l.part, parts);
            }
        }
    }
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        float x0 = 1, x1 = 1;
        if (S != STORE_BF16) {
            x0 = x_scale[l.scale[nt][0] + chunk];
            x1 = x_scale[l.scale[nt][1] + chunk];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[nt][i] = fmaf(sum[nt][i], w_scale * (i % 2 ? x1 : x0), acc[nt][i]);
    }
}

/* Chunks slice, slice + slices, ... of 16 rows from row0 on, for NT * 8 tokens.  For one column of
 * tokens many warps wait for memory together, so that each has few registers; for more of them
 * loads of several chunks are on their way together.
 * x_row: shared; the row of x of each token. */
template <enum store S, int NT, bool ONE>
static __device__ void slice_run(const struct weight &w, int row0, const struct operand &x,
                                 const int32_t *x_row, int parts, int slice, int slices,
                                 float acc[NT][4])
{
    constexpr int DEPTH = NT == 1                  ? (lane_row<S>::FOUR_BITS ? 2 : 1)
                          : lane_row<S>::FOUR_BITS ? 4
                                                   : 2;
    const int g = lane_id() / 4, t = lane_id() % 4, chunks = w.cols / CHUNK;
    const int row_a = min(row0 + g, w.rows - 1), row_b = min(row0 + g + 8, w.rows - 1);
    const lane_tokens<NT> l = tokens_of<S, NT>(x, x_row, w.cols);
    for (int first = slice; first < chunks; first += DEPTH * slices) {
        lane_row<S> a[DEPTH], b[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (first + d * slices < chunks) {
                a[d].load(w, row_a, first + d * slices, t);
                b[d].load(w, row_b, first + d * slices, t);
            }
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int chunk = first + d * slices;
            if (chunk >= chunks)
                break;
            float scale = S == STORE_FP4     ? FP4_HALF_SCALE
                          : S == STORE_NVFP4 ? NVFP4_HALF_SCALE * w.global
                                             : 1;
            if (S == STORE_FP8)
                scale = e8m0_value(w.scale[row0 / FP8_BLOCK * chunks + chunk]);
            chunk_run<S, NT, ONE>(a[d], b[d], l, x.scale, scale, chunk, parts, acc);
        }
    }
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

/* BFLOAT: the matrix may be of bfloat16. */
template <int NT, bool ONE, bool BFLOAT>
static __device__ void store_run(const struct weight &w, int row0, const struct operand &half,
                                 const struct operand &bfloat, const int32_t *x_row, int parts,
                                 int slice, int slices, float acc[NT][4])
{
    if (w.store == STORE_FP4)
        slice_run<STORE_FP4, NT, ONE>(w, row0, half, x_row, parts, slice, slices, acc);
    else if (w.store == STORE_NVFP4)
        slice_run<STORE_NVFP4, NT, ONE>(w, row0, half, x_row, parts, slice, slices, acc);
    else if (w.store == STORE_FP8)
        slice_run<STORE_FP8, NT, ONE>(w, row0, half, x_row, parts, slice, slices, acc);
    else if constexpr (BFLOAT)
        slice_run<STORE_BF16, NT, ONE>(w, row0, bfloat, x_row, parts, slice, slices, acc);
}

/* One slice's 16 rows of 8 tokens, to shared memory [8, 16]. */
static __device__ inline void part_store(const float acc[4], float *to)
{
    int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[(2 * t + i % 2) * TILE_ROWS + g + i / 2 * 8] = acc[i];
}

/* All of a block: the slices, then their sum in order.  shared: [warps, NT * 8, 16] */
template <int NT, bool BFLOAT>
static __device__ void tile_run(const struct weight &w, int row0, const struct operand &half,
                                const struct operand &bfloat, const int32_t *x_row, int parts,
                                const tile_out &out, const testimony &say, float *shared)
{
    int slices = (int)(blockDim.x / WARP), slice = warp_id();
    float *mine = shared + slice * (NT * TILE_COLS * TILE_ROWS);
    if (parts == 1) {
        float acc[NT][4] = {};
        store_run<NT, true, BFLOAT>(w, row0, half, bfloat, x_row, parts, slice, slices, acc);
#pragma unroll
        for (int nt = 0; nt < NT; nt++)
            part_store(acc[nt], mine + nt * TILE_COLS * TILE_ROWS);
    } else { /* full float32 rows: rare, and the same sums column by column */
        for (int nt = 0; nt < NT; nt++) {
            float acc[1][4] = {};
            store_run<1, false, BFLOAT>(w, row0, half, bfloat, x_row + nt * TILE_COLS, parts, slice,
                                        slices, acc);
            part_store(acc[0], mine + nt * TILE_COLS * TILE_ROWS);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < out.n * TILE_ROWS; i += (int)blockDim.x) {
        float sum = shared[i];
        for (int s = 1; s < slices; s++)
            sum += shared[s * (NT * TILE_COLS * TILE_ROWS) + i];
        enum round did;
        int row = row0 + i % TILE_ROWS;
        sum = stored(out.round, sum, &did);
        if (row < w.rows)
            out.y[i / TILE_ROWS * out.stride + row] = sum;
        testify(say, out.first && i == 0, out.round_row, value_of_round(did));
        testify(say, out.first && i == 0, out.sum_row, SUM_F32);
    }
}

/* The rows of x of a tile's tokens; those beyond the last repeat it.  @return parts they need */
template <int NT>
static __device__ int tile_rows(int32_t *x_row, int32_t n, int32_t row, const uint8_t *n_parts)
{
    if ((int)threadIdx.x < NT * TILE_COLS)
        x_row[threadIdx.x] = row; /* the caller's: of this thread's token */
    __syncthreads();
    int parts = 1;
    for (int i = 0; i < n; i++)
        parts = max(parts, (int)n_parts[x_row[i]]);
    return parts;
}

struct product_block {
    struct weight w;
    float *y;
    enum round round;
    int32_t first_tile;
    int round_row, sum_row;
};

struct product_launch {
    struct product_block list[LINEAR_OUTS_MAX];
    int32_t n, tokens, groups, rank; /* rank: rows of a group */
    struct operand half, bfloat;
    const float *x; /* one token: before round_in, which the blocks do; NULL: rows are ready */
    enum round round_in;
    int in_row; /* as of struct products, with x */
    struct testimony say;
};

/* The matrix that a tile of the launch belongs to. */
static __device__ inline const struct product_block &block_of_tile(const product_launch &p,
                                                                   int tile)
{
    int at = 0;
    while (at + 1 < p.n && tile >= p.list[at + 1].first_tile)
        at++;
    return p.list[at];
}

/* A row of x made ready by the block that multiplies it, in shared memory: for one token a kernel
 * of its own takes longer.  @return parts */
static __device__ int row_ready(const product_launch &p, int cols, int64_t row, bool bfloat,
                                float *shared, operand *o)
{
    constexpr int AHEAD = 4; /* loads on their way together */
    __shared__ int needed;
    int chunks = cols / CHUNK, warps = (int)(blockDim.x / WARP), parts = 1;
    o->scale = shared;
    for (int part = 0; part < OPERAND_PARTS; part++)
        o->part[part] = (uint16_t *)(shared + (chunks + 3) / 4 * 4) + part * cols;
    if (threadIdx.x == 0)
        needed = 1;
    __syncthreads();
    for (int first = warp_id(); first < chunks; first += AHEAD * warps) {
        float x[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load4(p.x + row * cols + min(first + i * warps, chunks - 1) * CHUNK + lane_id() * 4,
                  x[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int chunk = first + i * warps, at = chunk * CHUNK + lane_id() * 4;
            if (chunk >= chunks)
                break;
            enum round did = warp_round(p.round_in, x[i]);
            testify(p.say, blockIdx.x == 0 && at == 0, p.in_row, value_of_round(did));
            parts = max(parts, bfloat ? split_bfloat(x[i], *o, at)
                                      : split_half(x[i], *o, 0, at, chunk, chunks));
        }
    }
    atomicMax(&needed, parts);
    __syncthreads();
    return needed;
}

/* Bytes of row_ready. */
static size_t ready_bytes(int32_t cols)
{
    return (size_t)((cols / CHUNK + 3) / 4 * 4) * sizeof(float) +
           (size_t)cols * OPERAND_PARTS * sizeof(uint16_t);
}

template <int NT>
static __global__ void __launch_bounds__(SLICES_MAX *WARP, NT == 1 ? 3 : 1)
    product_tiles(struct product_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[NT * TILE_COLS];
    grid_begin();
    const struct product_block &m = block_of_tile(p, (int)blockIdx.x);
    int row0 = ((int)blockIdx.x - m.first_tile) * TILE_ROWS;
    int token0 = (int)blockIdx.y * NT * TILE_COLS, n = min(p.tokens - token0, NT * TILE_COLS);
    bool bfloat = m.w.store == STORE_BF16;
    tile_out out = {m.y + (int64_t)token0 * m.w.rows, m.w.rows,    n,        m.round,
                    row0 == 0 && token0 == 0,         m.round_row, m.sum_row};
    if (NT == 1 && p.x != NULL) {
        operand o;
        if (threadIdx.x < TILE_COLS)
            x_row[threadIdx.x] = 0;
        int values = (int)(blockDim.x / WARP) * TILE_ROWS * NT * TILE_COLS;
        int parts = row_ready(p, m.w.cols, row0 / p.rank, bfloat, shared + values, &o);
        tile_run<NT, true>(m.w, row0, o, o, x_row, parts, out, p.say, shared);
        return;
    }
    int mine = token0 + min((int)threadIdx.x, n - 1);
    int parts = tile_rows<NT>(x_row, n, mine * p.groups + row0 / p.rank,
                              bfloat ? p.bfloat.n_parts : p.half.n_parts);
    tile_run<NT, true>(m.w, row0, p.half, p.bfloat, x_row, parts, out, p.say, shared);
}

struct expert_launch {
    const struct expert_weights *experts;
    const struct item *items;
    const int32_t *n_items;
    const int32_t *chosen;      /* NULL: items; else of the one token of the step */
    int32_t top, n_routed;      /* with chosen */
    const int32_t *entry_token; /* with items */
    float *y[2];                /* of w1 and w3, or of w2 alone */
    int32_t rows, tiles;        /* tiles of one matrix */
    bool second;
    enum round round;
    struct operand half, bfloat;
    const float *x; /* sums in double */
    int round_row, sum_row;
    struct testimony say;
};

static __device__ inline const struct weight &expert_matrix(const expert_launch &p, int expert,
                                                            int which)
{
    const struct expert_weights &e = p.experts[expert];
    return p.second ? e.w2 : which == 0 ? e.w1 : e.w3;
}

/* Entries of one token need no sorting: its choices ascend, and the shared experts follow. */
static __device__ inline int items_of(const expert_launch &p)
{
    return p.chosen != NULL ? (int)gridDim.y : *p.n_items;
}

static __device__ inline struct item item_at(const expert_launch &p, int i)
{
    if (p.chosen != NULL)
        return {i < p.top ? p.chosen[i] : p.n_routed + i - p.top, i, 1};
    return p.items[i];
}

/* The row of x of an entry; shared experts, whose input is rounded by itself, have the second
 * half of the rows. */
static __device__ inline int row_of_entry(const expert_launch &p, int entry)
{
    if (p.second)
        return entry;
    return p.chosen != NULL ? entry >= p.top : p.entry_token[entry];
}

template <int NT>
static __global__ void __launch_bounds__(SLICES_MAX *WARP, NT == 1 ? 4 : 2)
    expert_tiles(struct expert_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[NT * TILE_COLS];
    grid_begin();
    if ((int)blockIdx.y >= items_of(p))
        return;
    struct item item = item_at(p, (int)blockIdx.y);
    int which = (int)blockIdx.x / p.tiles, row0 = (int)blockIdx.x % p.tiles * TILE_ROWS;
    struct weight w = expert_matrix(p, item.expert, which);
    int row = row_of_entry(p, item.first + min((int)threadIdx.x, item.n - 1));
    const uint8_t *n_parts = w.store == STORE_BF16 ? p.bfloat.n_parts : p.half.n_parts;
    int parts = tile_rows<NT>(x_row, item.n, row, n_parts);
    tile_out out = {p.y[which] + (int64_t)item.first * p.rows, p.rows,      item.n,   p.round,
                    blockIdx.x == 0 && blockIdx.y == 0,        p.round_row, p.sum_row};
    tile_run<NT, false>(w, row0, p.half, p.bfloat, x_row, parts, out, p.say, shared);
}

/* ---- sums in double ------------------------------------------------------------------------- */

/* This warp's part of ROWS rows from `row` on times TOKENS rows of x: every PRECISE_WARPSth chunk,
 * in the same order whatever ROWS and TOKENS are.  Rows of x are rounded on the way. */
template <int ROWS, int TOKENS>
static __device__ enum round precise_part(const struct weight &w, int row, const float *const *x,
                                          enum round round_in, double sum[ROWS][TOKENS])
{
    enum round did = ROUND_NONE;
    for (int i = 0; i < ROWS * TOKENS; i++)
        sum[i / TOKENS][i % TOKENS] = 0;
#pragma unroll ROWS == 1 ? 8 : 2
    for (int chunk = warp_id(); chunk < w.cols / CHUNK; chunk += PRECISE_WARPS) {
        float v[ROWS][4], token[TOKENS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            weight_quad(w, min(row + r, w.rows - 1), chunk, lane_id(), v[r]);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            load4(x[i] + chunk * CHUNK + lane_id() * 4, token[i]);
            if constexpr (ROWS == 1)
                did = warp_round(round_in, token[i]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            double values[TOKENS];
#pragma unroll
            for (int i = 0; i < TOKENS; i++)
                values[i] = token[i][k];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                double weight = v[r][k];
#pragma unroll
                for (int i = 0; i < TOKENS; i++)
                    sum[r][i] = fma(weight, values[i], sum[r][i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS * TOKENS; i++)
        sum[i / TOKENS][i % TOKENS] = warp_sum(sum[i / TOKENS][i % TOKENS]);
    return did;
}

/* Where a block's sums go: row r of token i to y + i * stride + r; and what it says. */
struct precise_out {
    float *y;
    int64_t stride;
    int rows, n;
    enum round round;
    bool first;
};

/* in_row: of the input, which is rounded as in_round says on the way */
struct precise_say {
    struct testimony say;
    int round_row, sum_row, in_row;
    enum round in_round;
};

/* All of a block: its warps' parts, then their sum in order. */
template <int ROWS, int TOKENS>
static __device__ void precise_tile(const struct weight &w, int row, const float *const *x,
                                    const precise_out &out, const precise_say &s)
{
    __shared__ double parts[PRECISE_WARPS][ROWS * TOKENS];
    double sum[ROWS][TOKENS];
    enum round did_in = precise_part<ROWS, TOKENS>(w, row, x, s.in_round, sum), did;
    __syncthreads(); /* parts of the tile before */
#pragma unroll
    for (int i = 0; i < ROWS * TOKENS; i++) {
        if (lane_id() == 0)
            parts[warp_id()][i] = sum[i / TOKENS][i % TOKENS];
    }
    __syncthreads();
    int i = (int)threadIdx.x, r = i / TOKENS, token = i % TOKENS;
    if (i >= ROWS * TOKENS || r >= out.rows || token >= out.n)
        return;
    double all = parts[0][i];
    for (int warp = 1; warp < PRECISE_WARPS; warp++)
        all += parts[warp][i];
    out.y[token * out.stride + r] =
        stored(out.round, (float)(w.store == STORE_NVFP4 ? all * w.global : all), &did);
    testify(s.say, out.first && i == 0, s.round_row, value_of_round(did));
    testify(s.say, out.first && i == 0, s.sum_row, SUM_F64);
    testify(s.say, out.first && i == 0, s.in_row, value_of_round(did_in));
}

/* grid: rows / ROWS, tokens / TOKENS */
template <int ROWS, int TOKENS>
static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    precise_rows(struct weight w, const float *x, int32_t tokens, int32_t groups, int32_t rank,
                 enum round round, float *y, struct precise_say s)
{
    int row = (int)blockIdx.x * ROWS;
    int token0 = (int)blockIdx.y * TOKENS, n = min(tokens - token0, TOKENS);
    grid_begin();
    const float *rows[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        rows[i] = x + ((int64_t)(token0 + min(i, n - 1)) * groups + row / rank) * w.cols;
    precise_out out = {
        y + (int64_t)token0 * w.rows + row, w.rows, w.rows - row, n, round, first_thread()};
    precise_tile<ROWS, TOKENS>(w, row, rows, out, s);
}

static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    expert_precise_rows(struct expert_launch p)
{
    grid_begin();
    if ((int)blockIdx.y >= items_of(p))
        return;
    struct item item = item_at(p, (int)blockIdx.y);
    int which = (int)blockIdx.x / p.tiles, row = (int)blockIdx.x % p.tiles * PRECISE_ROWS;
    struct weight w = expert_matrix(p, item.expert, which);
    struct precise_say s = {p.say, p.round_row, p.sum_row, SAY_NOTHING, ROUND_NONE};
    for (int at = 0; at < item.n; at += PRECISE_TOKENS) {
        const float *rows[PRECISE_TOKENS];
        int n = min(item.n - at, PRECISE_TOKENS), first = item.first + at;
#pragma unroll
        for (int i = 0; i < PRECISE_TOKENS; i++)
            rows[i] = p.x + (int64_t)row_of_entry(p, first + min(i, n - 1)) * w.cols;
        precise_out out = {p.y[which] + (int64_t)first * p.rows + row,
                           p.rows,
                           w.rows - row,
                           n,
                           p.round,
                           at == 0 && first_thread()};
        precise_tile<PRECISE_ROWS, PRECISE_TOKENS>(w, row, rows, out, s);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

/* By the row's length alone: so many warps share its chunks. */
static int slices_of(int32_t cols)
{
    int chunks = cols / CHUNK;
    return chunks >= 32 ? SLICES_MAX : chunks >= 8 ? 4 : chunks >= 2 ? 2 : 1;
}

static_assert(ALONE_COLS_MAX * OPERAND_PARTS * 2 +
                      (ALONE_COLS_MAX / CHUNK + SLICES_MAX * TILE_COLS * TILE_ROWS) * 4 + 1024 <=
                  SHARED_BYTES_MAX,
              "fits a block of sm_120");

static size_t shared_bytes(int slices, int nt)
{
    return (size_t)slices * (size_t)nt * TILE_COLS * TILE_ROWS * sizeof(float);
}

static void tiles_launch(struct cuda_backend *b, const struct product_launch &p, int32_t tiles,
                         int32_t cols)
{
    int slices = slices_of(cols), nt = p.tokens <= 8 ? 1 : p.tokens <= 16 ? 2 : 4;
    /* a block has a thread for each of its tokens */
    while (nt * TILE_COLS > slices * WARP)
        nt /= 2;
    size_t shared = shared_bytes(slices, nt) + (p.x != NULL ? ready_bytes(cols) : 0);
    auto kernel = nt == 1 ? product_tiles<1> : nt == 2 ? product_tiles<2> : product_tiles<4>;
    if (shared > 48 << 10)
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch(b->stream, "product_tiles", kernel,
           dim3((unsigned)tiles, (unsigned)ceil_div(p.tokens, nt * TILE_COLS)),
           (unsigned)(slices * WARP), shared, p);
}

/* Products of one row of the table count as one call of the operation: the first one speaks. */
static struct product product_say(const struct products *p, int32_t i)
{
    struct product m = p->list[i];
    for (int32_t j = 0; j < i; j++) {
        const struct product *before = &p->list[j];
        if (before->round_row == m.round_row && before->round == p->list[i].round)
            m.round_row = SAY_NOTHING;
        if (before->sum_row == p->list[i].sum_row && before->precise == m.precise)
            m.sum_row = SAY_NOTHING;
    }
    return m;
}

/* What the products want made ready; `fast` gets those of the tensor cores.  @return its tiles */
static int32_t products_sort(struct cuda_backend *b, const struct products *p,
                             struct prepare *ready, struct product_launch *fast)
{
    int32_t tiles = 0;
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        ASSERT(m.w.cols == ready->cols);
        if (m.precise) {
            ready->rounded = p->round_in == ROUND_NONE ? NULL : b->rounded;
            continue;
        }
        bool bfloat = m.w.store == STORE_BF16;
        ASSERT(bfloat || m.w.store == STORE_FP8 || m.w.store == STORE_FP4 ||
               m.w.store == STORE_NVFP4);
        ASSERT(!bfloat || p->groups == 1);
        *(bfloat ? &ready->bfloat : &ready->half) = bfloat ? &b->bfloat : &b->half;
        fast->list[fast->n++] = {m.w, m.y, m.round, tiles, m.round_row, m.sum_row};
        tiles += ceil_div(m.w.rows, TILE_ROWS);
    }
    return tiles;
}

static void precise_launch(struct cuda_backend *b, const struct products *p,
                           const struct product &m, const float *x, int32_t rank,
                           const struct precise_say &say)
{
    bool few = p->tokens == 1;
    int rows = few ? 1 : PRECISE_ROWS, tokens = few ? 1 : PRECISE_TOKENS;
    dim3 grid((unsigned)ceil_div(m.w.rows, rows), (unsigned)ceil_div(p->tokens, tokens));
    auto kernel = few ? precise_rows<1, 1> : precise_rows<PRECISE_ROWS, PRECISE_TOKENS>;
    launch(b->stream, "precise_rows", kernel, grid, PRECISE_WARPS * WARP, 0, m.w, x, p->tokens,
           p->groups, rank, m.round, m.y, say);
}

void products_run(struct cuda_backend *b, const struct products *p)
{
    int32_t cols = p->list[0].w.cols, rank = p->list[0].w.rows / p->groups;
    int32_t rows = p->tokens * p->groups;
    struct product_launch fast = {};
    struct prepare ready = {.x = p->x, .rows = rows, .x_rows = rows, .cols = cols, .other = rows};
    ready.round_in = p->round_in, ready.in_row = p->in_row, ready.say = p->say;
    ASSERT(p->groups == 1 || rank % TILE_ROWS == 0);
    fast.half = b->half, fast.bfloat = b->bfloat, fast.say = p->say;
    fast.tokens = p->tokens, fast.groups = p->groups;
    fast.rank = p->groups == 1 ? INT32_MAX : rank; /* outputs of one group differ in length */
    int32_t tiles = products_sort(b, p, &ready, &fast);
    bool alone = p->tokens == 1 && cols <= ALONE_COLS_MAX;
    bool is_ready = ready.rounded != NULL || ready.half != NULL || ready.bfloat != NULL;
    if (is_ready && !alone)
        prepare_run(b, &ready);
    if (alone)
        fast.x = p->x, fast.round_in = p->round_in, fast.in_row = p->in_row;
    if (fast.n > 0)
        tiles_launch(b, fast, tiles, cols);
    const float *x = ready.rounded != NULL && !alone ? ready.rounded : p->x;
    bool said = alone ? fast.n > 0 : is_ready;
    struct precise_say say = {p->say, 0, 0, said ? SAY_NOTHING : p->in_row,
                              alone ? p->round_in : ROUND_NONE};
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        if (!m.precise)
            continue;
        say.round_row = m.round_row, say.sum_row = m.sum_row;
        precise_launch(b, p, m, x, fast.rank, say);
        say.in_row = SAY_NOTHING;
    }
}

/* Items that n entries of n experts can make: full ones, and a rest for each expert.  Without
 * sorting every entry is one. */
static unsigned items_max(const struct expert_products *p)
{
    if (p->chosen != NULL)
        return (unsigned)p->n_entries;
    int32_t most =
        p->n_entries / p->per_item + (p->n_entries < p->n_experts ? p->n_entries : p->n_experts);
    return (unsigned)(most < p->n_entries ? most : p->n_entries);
}

void expert_products_run(struct cuda_backend *b, const struct expert_products *p)
{
    struct expert_launch k = {};
    k.experts = p->experts, k.items = b->items, k.n_items = b->n_items;
    k.chosen = p->chosen, k.top = p->top, k.n_routed = p->n_routed;
    k.entry_token = b->entry_token;
    k.y[0] = p->second ? b->down : b->gate, k.y[1] = b->up;
    k.rows = p->rows, k.second = p->second, k.round = p->round;
    k.half = b->half, k.bfloat = b->bfloat, k.x = b->rounded;
    k.round_row = SAY_NOTHING; /* the sum over experts speaks for it */
    k.sum_row = p->second ? SAY_NOTHING : ROW_SUM, k.say = p->say;
    unsigned matrices = p->second ? 1 : 2;
    if (p->precise) {
        k.tiles = p->rows / PRECISE_ROWS;
        dim3 grid((unsigned)k.tiles * matrices, items_max(p));
        launch(b->stream, "expert_precise_rows", expert_precise_rows, grid, PRECISE_WARPS * WARP, 0,
               k);
        return;
    }
    int slices = slices_of(p->cols), nt = p->per_item / TILE_COLS;
    k.tiles = p->rows / TILE_ROWS;
    auto kernel = nt == 1 ? expert_tiles<1> : nt == 2 ? expert_tiles<2> : expert_tiles<4>;
    launch(b->stream, "expert_tiles", kernel, dim3((unsigned)k.tiles * matrices, items_max(p)),
           (unsigned)(slices * WARP), shared_bytes(slices, nt), k);
}
