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
#include "kernels/cuda/products.cuh"
#include "kernels/cuda/rows.cuh"

/* Warps that share 16 rows. */
#define SLICES_MAX 8
/* Warps of a block that sums in double, and what one of them takes at once: few rows spread over
 * the multiprocessors, or many, so that conversions to double are shared. */
#define PRECISE_WARPS  4
#define PRECISE_ROWS   4
#define PRECISE_TOKENS 4

/* ---- making rows ready ---------------------------------------------------------------------- */

struct prepare_params {
    struct prepare p;
    struct operand half, bfloat; /* without n_parts when nobody wants them */
};

static __device__ inline float swiglu(float gate, float up, float limit, float weight)
{
    float a = fminf(gate, limit), b = fmaxf(fminf(up, limit), -limit);
    return a / (expf(-a) + 1.0f) * b * weight;
}

static __device__ inline float swiglu_precise(float gate, float up, double limit, float weight)
{
    double a = fmin((double)gate, limit), b = fmax(fmin((double)up, limit), -limit);
    return (float)(a / (1 + exp(-a)) * b * weight);
}

/* x of one chunk in front of the rounding that counts. */
static __device__ inline void raw_chunk(const prepare &p, int64_t row, int32_t column, float x[4])
{
    load4(p.x + row % p.x_rows * p.cols + column, x);
    if (p.up == NULL)
        return;
    float up[4], weight = p.weight[row], limit = (float)p.limit;
    load4(p.up + row * p.cols + column, up);
    for (int i = 0; i < 4; i++)
        x[i] = p.precise ? swiglu_precise(x[i], up[i], limit, weight)
                         : swiglu(x[i], up[i], limit, weight);
    warp_round(p.round_mid, x);
}

static __device__ inline void testify_clamp(const prepare &p, bool first)
{
    float limit = (float)p.limit;
    testify(p.say, first, p.up == NULL ? SAY_NOTHING : ROW_MOE_CLAMP,
            isfinite(limit) ? MOE_CLAMP_ON : MOE_CLAMP_OFF, limit);
}

/* The scale of all of a row, for NVFP4. */
static __device__ float row_scale(const prepare &p, int64_t row, float *shared)
{
    float amax = 0;
    for (int chunk = warp_id(); chunk < p.cols / CHUNK; chunk += blockDim.x / WARP) {
        float x[4];
        raw_chunk(p, row, chunk * CHUNK + lane_id() * 4, x);
        for (int i = 0; i < 4; i++)
            amax = fmaxf(amax, fabsf(x[i]));
    }
    amax = warp_max(amax);
    if (lane_id() == 0)
        shared[warp_id()] = amax;
    __syncthreads();
    for (int i = 0; i < (int)(blockDim.x / WARP); i++)
        amax = fmaxf(amax, shared[i]);
    return amax / (6.0f * 448.0f);
}

/* Up to three float16 numbers a value, after division by a power of two that brings the largest of
 * the chunk to 2^14..2^15.  What is 2^39 times smaller than that is lost.  @return parts needed */
static __device__ inline int split_half(const float x[4], const struct operand &o, int64_t row,
                                        int64_t at, int chunk, int chunks)
{
    float amax = 0;
    for (int i = 0; i < 4; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    int exponent = (int)(__float_as_uint(warp_max(amax)) >> 23) - 14;
    exponent = exponent < 1 ? 1 : exponent;
    float inverse = __uint_as_float((uint32_t)(254 - exponent) << 23);
    if (lane_id() == 0)
        o.scale[row * chunks + chunk] = __uint_as_float((uint32_t)exponent << 23);
    int n = 1;
    float rest[4];
    for (int i = 0; i < 4; i++)
        rest[i] = x[i] * inverse;
    for (int part = 0; part < OPERAND_PARTS; part++) {
        uint16_t bits[4];
        for (int i = 0; i < 4; i++) {
            __half h = __float2half_rn(rest[i]);
            bits[i] = __half_as_ushort(h);
            rest[i] -= __half2float(h);
            n = (bits[i] & 0x7fff) != 0 ? part + 1 : n;
        }
        *(ushort4 *)(o.part[part] + at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
    return n;
}

static __device__ inline int split_bfloat(const float x[4], const struct operand &o, int64_t at)
{
    int n = 1;
    float rest[4] = {x[0], x[1], x[2], x[3]};
    for (int part = 0; part < OPERAND_PARTS; part++) {
        uint16_t bits[4];
        for (int i = 0; i < 4; i++) {
            float h = round_bf16(rest[i]);
            bits[i] = (uint16_t)(__float_as_uint(h) >> 16);
            rest[i] -= h;
            n = (bits[i] & 0x7fff) != 0 ? part + 1 : n;
        }
        *(ushort4 *)(o.part[part] + at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
    return n;
}

/* One block a row. */
static __global__ void prepare_rows(struct prepare_params k)
{
    __shared__ int parts_half, parts_bfloat;
    __shared__ float most[WARP];
    const struct prepare &p = k.p;
    int64_t row = blockIdx.x;
    int chunks = p.cols / CHUNK, half = 1, bfloat = 1;
    bool other = row >= p.other;
    enum round round = other ? p.round_other : p.round_in;
    float all = round == ROUND_NVFP4 ? row_scale(p, row, most) : 0;
    if (threadIdx.x == 0)
        parts_half = parts_bfloat = 1;
    __syncthreads();
    for (int chunk = warp_id(); chunk < chunks; chunk += blockDim.x / WARP) {
        float x[4];
        int32_t column = chunk * CHUNK + lane_id() * 4;
        int64_t at = row * p.cols + column;
        raw_chunk(p, row, column, x);
        testify_clamp(p, first_thread() && column == 0);
        enum round did = round == ROUND_NVFP4 ? warp_round_nvfp4(all, x) : warp_round(round, x);
        testify(p.say, column == 0 && (row == 0 || row == p.other), other ? p.other_row : p.in_row,
                value_of_round(did));
        if (p.rounded != NULL)
            store4(p.rounded + at, x);
        if (k.half.n_parts != NULL)
            half = max(half, split_half(x, k.half, row, at, chunk, chunks));
        if (k.bfloat.n_parts != NULL)
            bfloat = max(bfloat, split_bfloat(x, k.bfloat, at));
    }
    atomicMax(&parts_half, half);
    atomicMax(&parts_bfloat, bfloat);
    __syncthreads();
    if (threadIdx.x == 0 && k.half.n_parts != NULL)
        k.half.n_parts[row] = (uint8_t)parts_half;
    if (threadIdx.x == 0 && k.bfloat.n_parts != NULL)
        k.bfloat.n_parts[row] = (uint8_t)parts_bfloat;
}

void prepare_run(struct cuda_backend *b, const struct prepare *p)
{
    struct prepare_params k = {*p, {}, {}};
    ASSERT(p->cols % CHUNK == 0);
    if (p->half != NULL)
        k.half = *p->half;
    if (p->bfloat != NULL)
        k.bfloat = *p->bfloat;
    int warps = p->cols / CHUNK < 16 ? p->cols / CHUNK : 16;
    prepare_rows<<<(unsigned)p->rows, (unsigned)(warps * WARP), 0, b->stream>>>(k);
    launched("prepare_rows");
}

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

/* Chunks slice, slice + slices, ... of 16 rows from row0 on, for NT * 8 tokens.  Loads of several
 * chunks are on their way together: that is what the memory's latency asks for.
 * x_row: shared; the row of x of each token. */
template <enum store S, int NT, bool ONE>
static __device__ void slice_run(const struct weight &w, int row0, const struct operand &x,
                                 const int32_t *x_row, int parts, int slice, int slices,
                                 float acc[NT][4])
{
    constexpr int DEPTH = S == STORE_FP4 ? 4 : 2;
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
            float scale = S == STORE_FP4 ? FP4_HALF_SCALE : 1;
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
    struct testimony say;
};

template <int NT>
static __global__ void __launch_bounds__(SLICES_MAX *WARP) product_tiles(struct product_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[NT * TILE_COLS];
    int at = 0;
    while (at + 1 < p.n && (int)blockIdx.x >= p.list[at + 1].first_tile)
        at++;
    const struct product_block &m = p.list[at];
    int row0 = ((int)blockIdx.x - m.first_tile) * TILE_ROWS;
    int token0 = (int)blockIdx.y * NT * TILE_COLS, n = min(p.tokens - token0, NT * TILE_COLS);
    int mine = token0 + min((int)threadIdx.x, n - 1);
    const uint8_t *n_parts = m.w.store == STORE_BF16 ? p.bfloat.n_parts : p.half.n_parts;
    int parts = tile_rows<NT>(x_row, n, mine * p.groups + row0 / p.rank, n_parts);
    tile_out out = {m.y + (int64_t)token0 * m.w.rows, m.w.rows,    n,        m.round,
                    row0 == 0 && token0 == 0,         m.round_row, m.sum_row};
    tile_run<NT, true>(m.w, row0, p.half, p.bfloat, x_row, parts, out, p.say, shared);
}

struct expert_launch {
    const struct expert_weights *experts;
    const struct item *items;
    const int32_t *n_items;
    const int32_t *entry_token; /* NULL: the entry's own row */
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

template <int NT>
static __global__ void __launch_bounds__(SLICES_MAX *WARP) expert_tiles(struct expert_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[NT * TILE_COLS];
    if ((int)blockIdx.y >= *p.n_items)
        return;
    struct item item = p.items[blockIdx.y];
    int which = (int)blockIdx.x / p.tiles, row0 = (int)blockIdx.x % p.tiles * TILE_ROWS;
    struct weight w = expert_matrix(p, item.expert, which);
    int entry = item.first + min((int)threadIdx.x, item.n - 1);
    int row = p.entry_token == NULL ? entry : p.entry_token[entry];
    const uint8_t *n_parts = w.store == STORE_BF16 ? p.bfloat.n_parts : p.half.n_parts;
    int parts = tile_rows<NT>(x_row, item.n, row, n_parts);
    tile_out out = {p.y[which] + (int64_t)item.first * p.rows, p.rows,      item.n,   p.round,
                    blockIdx.x == 0 && blockIdx.y == 0,        p.round_row, p.sum_row};
    tile_run<NT, false>(w, row0, p.half, p.bfloat, x_row, parts, out, p.say, shared);
}

/* ---- sums in double ------------------------------------------------------------------------- */

/* ROWS rows from `row` on times TOKENS rows of x, by one warp; each sum in the same order. */
template <int ROWS, int TOKENS>
static __device__ void precise_tile(const struct weight &w, int row, const float *const *x,
                                    double sum[ROWS][TOKENS])
{
    for (int i = 0; i < ROWS * TOKENS; i++)
        sum[i / TOKENS][i % TOKENS] = 0;
#pragma unroll ROWS == 1 ? 8 : 2
    for (int chunk = 0; chunk < w.cols / CHUNK; chunk++) {
        float v[ROWS][4], token[TOKENS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            weight_quad(w, min(row + r, w.rows - 1), chunk, lane_id(), v[r]);
#pragma unroll
        for (int i = 0; i < TOKENS; i++)
            load4(x[i] + chunk * CHUNK + lane_id() * 4, token[i]);
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
}

/* Of the sum's rounding; in_row: of an input that was taken as it is. */
struct precise_say {
    struct testimony say;
    int round_row, sum_row, in_row;
};

static __device__ void precise_store(double sum, enum round round, float *y, const precise_say &s)
{
    enum round did;
    float value = stored(round, (float)sum, &did);
    if (lane_id() == 0)
        *y = value;
    testify(s.say, first_thread(), s.round_row, value_of_round(did));
    testify(s.say, first_thread(), s.sum_row, SUM_F64);
    testify(s.say, first_thread(), s.in_row, value_of_round(ROUND_NONE));
}

/* Where a tile's sums go: row r of token i to y + i * stride + r. */
template <int ROWS, int TOKENS>
static __device__ void precise_tile_store(const double sum[ROWS][TOKENS], int rows, int n,
                                          enum round round, float *y, int64_t stride,
                                          precise_say &s)
{
#pragma unroll
    for (int i = 0; i < ROWS * TOKENS; i++) {
        int r = i / TOKENS, token = i % TOKENS;
        if (r >= rows || token >= n)
            continue;
        precise_store(sum[r][token], round, y + token * stride + r, s);
        s.round_row = s.sum_row = s.in_row = SAY_NOTHING; /* once a launch */
    }
}

/* grid: rows / (ROWS * PRECISE_WARPS), tokens / TOKENS */
template <int ROWS, int TOKENS>
static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    precise_rows(struct weight w, const float *x, int32_t tokens, int32_t groups, int32_t rank,
                 enum round round, float *y, struct precise_say s)
{
    int row = ((int)blockIdx.x * PRECISE_WARPS + warp_id()) * ROWS;
    int token0 = (int)blockIdx.y * TOKENS, n = min(tokens - token0, TOKENS);
    if (row >= w.rows)
        return;
    const float *rows[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        rows[i] = x + ((int64_t)(token0 + min(i, n - 1)) * groups + row / rank) * w.cols;
    double sum[ROWS][TOKENS];
    precise_tile<ROWS, TOKENS>(w, row, rows, sum);
    precise_tile_store<ROWS, TOKENS>(sum, w.rows - row, n, round,
                                     y + (int64_t)token0 * w.rows + row, w.rows, s);
}

static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    expert_precise_rows(struct expert_launch p)
{
    if ((int)blockIdx.y >= *p.n_items)
        return;
    struct item item = p.items[blockIdx.y];
    int which = (int)blockIdx.x / p.tiles;
    int row = ((int)blockIdx.x % p.tiles * PRECISE_WARPS + warp_id()) * PRECISE_ROWS;
    struct weight w = expert_matrix(p, item.expert, which);
    struct precise_say s = {p.say, p.round_row, p.sum_row, SAY_NOTHING};
    for (int at = 0; at < item.n; at += PRECISE_TOKENS) {
        const float *rows[PRECISE_TOKENS];
        int n = min(item.n - at, PRECISE_TOKENS), first = item.first + at;
#pragma unroll
        for (int i = 0; i < PRECISE_TOKENS; i++) {
            int entry = first + min(i, n - 1);
            rows[i] =
                p.x + (int64_t)(p.entry_token == NULL ? entry : p.entry_token[entry]) * w.cols;
        }
        double sum[PRECISE_ROWS][PRECISE_TOKENS];
        precise_tile<PRECISE_ROWS, PRECISE_TOKENS>(w, row, rows, sum);
        precise_tile_store<PRECISE_ROWS, PRECISE_TOKENS>(
            sum, w.rows - row, n, p.round, p.y[which] + (int64_t)first * p.rows + row, p.rows, s);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

/* By the row's length alone: so many warps share its chunks. */
static int slices_of(int32_t cols)
{
    int chunks = cols / CHUNK;
    return chunks >= 32 ? SLICES_MAX : chunks >= 8 ? 4 : chunks >= 2 ? 2 : 1;
}

static size_t shared_bytes(int slices, int nt)
{
    size_t bytes = (size_t)slices * (size_t)nt * TILE_COLS * TILE_ROWS * sizeof(float);
    ASSERT(bytes <= 48 * 1024);
    return bytes;
}

static void tiles_launch(struct cuda_backend *b, const struct product_launch &p, int32_t tiles,
                         int slices)
{
    dim3 threads((unsigned)(slices * WARP));
    int nt = p.tokens <= 8 ? 1 : p.tokens <= 16 ? 2 : 4;
    /* a block has a thread for each of its tokens */
    while (nt * TILE_COLS > slices * WARP)
        nt /= 2;
    dim3 grid((unsigned)tiles, (unsigned)ceil_div(p.tokens, nt * TILE_COLS));
    size_t shared = shared_bytes(slices, nt);
    switch (nt) {
    case 1:
        product_tiles<1><<<grid, threads, shared, b->stream>>>(p);
        break;
    case 2:
        product_tiles<2><<<grid, threads, shared, b->stream>>>(p);
        break;
    default:
        product_tiles<4><<<grid, threads, shared, b->stream>>>(p);
    }
    launched("product_tiles");
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
        ASSERT(bfloat || m.w.store == STORE_FP8 || m.w.store == STORE_FP4);
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
    bool few = p->tokens < PRECISE_TOKENS;
    int rows = few ? 1 : PRECISE_ROWS, tokens = few ? 1 : PRECISE_TOKENS;
    dim3 grid((unsigned)ceil_div(m.w.rows, rows * PRECISE_WARPS),
              (unsigned)ceil_div(p->tokens, tokens));
    auto kernel = few ? precise_rows<1, 1> : precise_rows<PRECISE_ROWS, PRECISE_TOKENS>;
    kernel<<<grid, PRECISE_WARPS * WARP, 0, b->stream>>>(m.w, x, p->tokens, p->groups, rank,
                                                         m.round, m.y, say);
    launched("precise_rows");
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
    bool is_ready = ready.rounded != NULL || ready.half != NULL || ready.bfloat != NULL;
    if (is_ready)
        prepare_run(b, &ready);
    if (fast.n > 0)
        tiles_launch(b, fast, tiles, slices_of(cols));
    const float *x = ready.rounded != NULL ? ready.rounded : p->x;
    struct precise_say say = {p->say, 0, 0, is_ready ? SAY_NOTHING : p->in_row};
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        if (!m.precise)
            continue;
        say.round_row = m.round_row, say.sum_row = m.sum_row;
        precise_launch(b, p, m, x, fast.rank, say);
        say.in_row = SAY_NOTHING;
    }
}

/* Items that n entries of n experts can make: full ones, and a rest for each expert. */
static unsigned items_max(const struct expert_products *p)
{
    int32_t most =
        p->n_entries / p->per_item + (p->n_entries < p->n_experts ? p->n_entries : p->n_experts);
    return (unsigned)(most < p->n_entries ? most : p->n_entries);
}

void expert_products_run(struct cuda_backend *b, const struct expert_products *p)
{
    struct expert_launch k = {};
    k.experts = p->experts, k.items = b->items, k.n_items = b->n_items;
    k.entry_token = p->second ? NULL : b->entry_token;
    k.y[0] = p->second ? b->down : b->gate, k.y[1] = b->up;
    k.rows = p->rows, k.second = p->second, k.round = p->round;
    k.half = b->half, k.bfloat = b->bfloat, k.x = b->rounded;
    k.round_row = SAY_NOTHING; /* the sum over experts speaks for it */
    k.sum_row = p->second ? SAY_NOTHING : ROW_SUM, k.say = p->say;
    unsigned matrices = p->second ? 1 : 2;
    if (p->precise) {
        k.tiles = p->rows / (PRECISE_ROWS * PRECISE_WARPS);
        dim3 grid((unsigned)k.tiles * matrices, items_max(p));
        expert_precise_rows<<<grid, PRECISE_WARPS * WARP, 0, b->stream>>>(k);
        launched("expert_precise_rows");
        return;
    }
    int slices = slices_of(p->cols);
    k.tiles = p->rows / TILE_ROWS;
    dim3 grid((unsigned)k.tiles * matrices, items_max(p)), threads((unsigned)(slices * WARP));
    size_t shared = shared_bytes(slices, p->per_item / TILE_COLS);
    switch (p->per_item) {
    case 8:
        expert_tiles<1><<<grid, threads, shared, b->stream>>>(k);
        break;
    case 16:
        expert_tiles<2><<<grid, threads, shared, b->stream>>>(k);
        break;
    default:
        expert_tiles<4><<<grid, threads, shared, b->stream>>>(k);
    }
    launched("expert_tiles");
}
