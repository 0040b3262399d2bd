/*
 * Attention of few tokens under ATTN_BF16, whose softmax runs through tiles of keys in order: what
 * does not depend on that order is done side by side, with the sums of attend_mma to the bit.
 * Scores of 16 heads and 16 keys by a block each; then 16 channels of these heads by a block, which
 * has all scores, finds every tile's maximum so far at once, and only adds up values in order.
 *
 * Bound by latency: two launches, each with one load of scores or keys on its way.  Values are
 * asked for while the scores are still made.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/products.cuh"

#define FEW_HEADS    TILE_ROWS
#define FEW_CHANNELS 16
#define FEW_WARPS    8
/* Keys of a block of scores; of a tile in one warp's lanes there, four of these. */
#define UNIT_KEYS  16
#define TILE_UNITS (ATTN_TILE / UNIT_KEYS)
/* Of a token at most, which is what shared memory of a block has room for. */
#define FEW_TILES 12
#define FEW_UNITS (FEW_TILES * TILE_UNITS)
#define FEW_KEYS  (FEW_TILES * ATTN_TILE)
/* Rows of 16-bit numbers in shared memory, longer so that eight of them lie in different banks. */
#define ROW_STRIDE   (HEAD_DIM + 8)
#define VALUE_STRIDE (FEW_CHANNELS + 8)
#define PROB_STRIDE  (FEW_KEYS + 8)
/* A lane's scores of a unit: rows g and g + 8, keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9. */
#define LANE_SCORES 8

static __device__ inline uint16_t bf16_bits(float x)
{
    return (uint16_t)(__float_as_uint(round_bf16(x)) >> 16);
}

static __device__ inline void store4_bf16(uint16_t *to, const float x[4])
{
    *(ushort4 *)to =
        make_ushort4(bf16_bits(x[0]), bf16_bits(x[1]), bf16_bits(x[2]), bf16_bits(x[3]));
}

/* Scores of this block's heads, of a unit: those of its lanes one behind another. */
static __device__ inline float *scores_of(const attend_params &a, int32_t unit)
{
    int64_t block = (int64_t)blockIdx.y * ((a.p.heads + FEW_HEADS - 1) / FEW_HEADS);
    block += blockIdx.x;
    return (float *)a.states + ((block * FEW_UNITS + unit) * WARP + lane_id()) * LANE_SCORES;
}

/* ---- scores --------------------------------------------------------------------------------- */

/* 8 keys of the unit by a warp, in the order of mma_scores. */
static __device__ inline void unit_scores(const uint16_t (*q)[ROW_STRIDE], const uint16_t *key,
                                          float s[4])
{
    int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll 4
    for (int c = 0; c < HEAD_DIM; c += 32) {
        uint4 a = *(const uint4 *)(q[g] + 8 * t + c), b = *(const uint4 *)(q[g + 8] + 8 * t + c);
        uint4 k = *(const uint4 *)(key + c);
        mma<false>(s, a.x, b.x, a.y, b.y, k.x, k.y);
        mma<false>(s, a.z, b.z, a.w, b.w, k.z, k.w);
    }
}

/* grid: head groups, tokens, units */
static __global__ void __launch_bounds__(FEW_WARPS *WARP)
    few_scores(struct attend_params a, const __grid_constant__ struct spans spans)
{
    constexpr int ROWS = (FEW_HEADS + UNIT_KEYS) / FEW_WARPS; /* that a warp brings */
    __shared__ uint16_t rows[FEW_HEADS + UNIT_KEYS][ROW_STRIDE];
    grid_begin();
    int64_t t = a.token + (int32_t)blockIdx.y;
    int32_t head0 = (int32_t)blockIdx.x * FEW_HEADS, unit = (int32_t)blockIdx.z;
    key_list keys = keys_of(a.p, span_row_of(spans, t), t);
    if (unit / TILE_UNITS * ATTN_TILE >= keys.n)
        return;
    float x[ROWS][HEAD_CHUNKS][4];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        int row = warp_id() * ROWS + i; /* rows without a head are thrown away */
        const float *from =
            row < FEW_HEADS
                ? a.p.q + (t * a.p.heads + min(head0 + row, a.p.heads - 1)) * HEAD_DIM
                : key_at(a.p, keys, min(unit * UNIT_KEYS + row - FEW_HEADS, keys.n - 1));
        for (int c = 0; c < HEAD_CHUNKS; c++)
            load4(from + c * CHUNK + lane_id() * 4, x[i][c]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        for (int c = 0; c < HEAD_CHUNKS; c++)
            store4_bf16(&rows[warp_id() * ROWS + i][c * CHUNK + lane_id() * 4], x[i][c]);
    }
    __syncthreads();
    if (warp_id() >= 2)
        return;
    int first = FEW_HEADS + warp_id() * 8, key0 = unit * UNIT_KEYS + warp_id() * 8;
    float s[4] = {}, *out = scores_of(a, unit) + warp_id() * 2;
    unit_scores(rows, rows[first + lane_id() / 4] + 8 * (lane_id() % 4), s);
    key0 += lane_id() % 4 * 2;
    for (int i = 0; i < 4; i++)
        s[i] = key0 + i % 2 < keys.n ? s[i] * a.scale : -INFINITY;
    *(float2 *)out = make_float2(s[0], s[1]);       /* row g */
    *(float2 *)(out + 4) = make_float2(s[2], s[3]); /* row g + 8 */
}

/* ---- values --------------------------------------------------------------------------------- */

struct few_shared {
    uint16_t values[FEW_KEYS][VALUE_STRIDE];
    uint16_t prob[FEW_HEADS][PROB_STRIDE];
    float most[FEW_UNITS][FEW_HEADS], total[FEW_UNITS][FEW_HEADS]; /* of a unit */
    float shrink[FEW_TILES][FEW_HEADS];                            /* of all before a tile */
    double factor[FEW_HEADS];
};
static_assert(sizeof(struct few_shared) + 1024 <= SHARED_BYTES_MAX, "fits a block of sm_120");

/* This block's channels of all keys, and of the last one again up to the end of its tile. */
static __device__ void values_load(const attend_params &a, const key_list &keys, int32_t channel,
                                   few_shared &m)
{
    constexpr int LANES = FEW_CHANNELS / 4, EACH = FEW_WARPS * WARP / LANES;
    constexpr int AHEAD = 6; /* loads on their way together */
    int row = (int)threadIdx.x / LANES, at = (int)threadIdx.x % LANES * 4;
    int all = ceil_div(keys.n, ATTN_TILE) * ATTN_TILE;
    for (int first = row; first < all; first += AHEAD * EACH) {
        float x[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load4_fresh(key_at(a.p, keys, min(first + i * EACH, keys.n - 1)) + channel + at, x[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * EACH < all)
                store4_bf16(&m.values[first + i * EACH][at], x[i]);
        }
    }
}

/* Scores to probabilities under the largest score up to the end of their tile. */
static __device__ void few_softmax(const attend_params &a, int units, few_shared &m)
{
    constexpr int EACH = FEW_UNITS / FEW_WARPS;
    int g = lane_id() / 4, t = lane_id() % 4;
    float s[EACH][LANE_SCORES];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float *from = scores_of(a, min(warp_id() + i * FEW_WARPS, units - 1));
        load4_fresh(from, s[i]);
        load4_fresh(from + 4, s[i] + 4);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int unit = warp_id() + i * FEW_WARPS;
        for (int r = 0; r < 2; r++) {
            const float *row = s[i] + 4 * r;
            float high = fmaxf(fmaxf(row[0], row[1]), fmaxf(row[2], row[3]));
            for (int step = 1; step < 4; step *= 2)
                high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, step));
            if (unit < units)
                m.most[unit][g + 8 * r] = high;
        }
    }
    __syncthreads();
    float most[2] = {-INFINITY, -INFINITY};
    int seen = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int unit = warp_id() + i * FEW_WARPS;
        if (unit >= units)
            break;
        for (; seen < unit / TILE_UNITS * TILE_UNITS + TILE_UNITS; seen++) {
            for (int r = 0; r < 2; r++)
                most[r] = fmaxf(most[r], m.most[seen][g + 8 * r]);
        }
        for (int r = 0; r < 2; r++) {
            float sum = 0;
            for (int k = 0; k < 4; k++) {
                float p = expf(s[i][4 * r + k] - most[r]);
                sum += p;
                m.prob[g + 8 * r][unit * UNIT_KEYS + 2 * t + k / 2 * 8 + k % 2] = bf16_bits(p);
            }
            for (int step = 1; step < 4; step *= 2)
                sum += __shfl_xor_sync(ALL_LANES, sum, step);
            m.total[unit][g + 8 * r] = sum;
        }
    }
}

/* Of one head: what each tile shrinks those before it by, and what sums are multiplied with: the
 * sink is one more logit without a value and without the scale of the others. */
static __device__ void few_factor(double sink, int tiles, int row, few_shared &m)
{
    float most = -INFINITY, total = 0;
    for (int tile = 0; tile < tiles; tile++) {
        float before = most, all = 0;
        for (int u = 0; u < TILE_UNITS; u++)
            most = fmaxf(most, m.most[tile * TILE_UNITS + u][row]);
        float shrink = expf(before - most);
        for (int u = 0; u < TILE_UNITS; u++)
            all += m.total[tile * TILE_UNITS + u][row];
        m.shrink[tile][row] = shrink;
        total = fmaf(total, shrink, all);
    }
    m.factor[row] = 1.0 / ((double)total + exp(sink - (double)most));
}

/* The 16 by 16 numbers of which this lane names a half row (row: key, column: channel), as two
 * columns of the operand. */
static __device__ inline void load_transposed(const uint16_t *half_row, uint32_t b[4])
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(half_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(at));
}

/* acc[i]: rows g and g + 8, channels 8 i + 2 t and the next; by a warp, tiles in order. */
static __device__ void few_values(const few_shared &m, int tiles, float acc[2][4])
{
    int g = lane_id() / 4, t = lane_id() % 4, lane = lane_id();
    for (int tile = 0; tile < tiles; tile++) {
        float shrink[2] = {m.shrink[tile][g], m.shrink[tile][g + 8]};
#pragma unroll
        for (int i = 0; i < 8; i++)
            acc[i / 4][i % 4] *= shrink[i % 4 / 2];
#pragma unroll
        for (int k = 0; k < ATTN_TILE; k += 16) {
            int key = tile * ATTN_TILE + k;
            uint32_t a0 = *(const uint32_t *)&m.prob[g][key + 2 * t];
            uint32_t a1 = *(const uint32_t *)&m.prob[g + 8][key + 2 * t];
            uint32_t a2 = *(const uint32_t *)&m.prob[g][key + 8 + 2 * t];
            uint32_t a3 = *(const uint32_t *)&m.prob[g + 8][key + 8 + 2 * t];
            uint32_t b[4];
            load_transposed(&m.values[key + lane % 16][lane / 16 * 8], b);
            mma<false>(acc[0], a0, a1, a2, a3, b[0], b[1]);
            mma<false>(acc[1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

/* Two neighbouring channels of a head to where they belong, turned back. */
static __device__ void few_store(const attend_params &a, int64_t t, int32_t head, int32_t channel,
                                 const float values[2], double factor)
{
    float x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = (float)((double)fmaf(values[i], 1.0f, 0.0f) * factor); /* as join_parts: no -0 */
        x[i] = a.p.round == ROUND_BF16 ? round_bf16(x[i]) : x[i];
    }
    int32_t turned = channel - (HEAD_DIM - ROPE_HEAD_DIM);
    if (turned >= 0) {
        const double *rope = a.p.rope + t * ROPE_ROW + turned;
        double c = rope[0], s = -rope[1], u = x[0], v = x[1];
        x[0] = (float)(u * c - v * s);
        x[1] = (float)(u * s + v * c);
        for (int i = 0; i < 2; i++)
            x[i] = a.p.round == ROUND_BF16 ? round_bf16(x[i]) : x[i];
    }
    float *out = a.p.out + (t * a.p.heads + head) * HEAD_DIM + channel;
    *(float2 *)out = make_float2(x[0], x[1]);
}

/* grid: head groups, tokens, groups of channels */
static __global__ void __launch_bounds__(FEW_WARPS *WARP)
    few_sums(const float *sink, struct attend_params a, const __grid_constant__ struct spans spans)
{
    extern __shared__ __align__(16) float shared[];
    few_shared &m = *(few_shared *)shared;
    int64_t t = a.token + (int32_t)blockIdx.y;
    int32_t head0 = (int32_t)blockIdx.x * FEW_HEADS, channel0 = (int32_t)blockIdx.z * FEW_CHANNELS;
    /* the scores' kernel has begun, so that all from before it is there */
    key_list keys = keys_of(a.p, span_row_of(spans, t), t);
    values_load(a, keys, channel0, m);
    grid_begin();
    int tiles = ceil_div(keys.n, ATTN_TILE);
    few_softmax(a, tiles * TILE_UNITS, m);
    __syncthreads();
    if (threadIdx.x < FEW_HEADS)
        few_factor(sink[min(head0 + (int)threadIdx.x, a.p.heads - 1)], tiles, (int)threadIdx.x, m);
    if (warp_id() != 0)
        return;
    __syncwarp();
    float acc[2][4] = {};
    few_values(m, tiles, acc);
    testify(a.say, begins(spans, t), attention_row(a), ATTN_BF16);
    testify(a.say, begins(spans, t), ROW_ACT_STORE, value_of_round(a.p.round));
    for (int half = 0; half < 2; half++) {
        int row = lane_id() / 4 + 8 * half;
        for (int i = 0; i < 2 && head0 + row < a.p.heads; i++)
            few_store(a, t, head0 + row, channel0 + 8 * i + lane_id() % 4 * 2, acc[i] + 2 * half,
                      m.factor[row]);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Of more, blocks of attend_mma fill multiprocessors enough. */
#define FEW_TOKENS 4

bool attention_few_fits(const struct attention_params *p, int32_t rows, int32_t keys)
{
    return p->math == ATTN_BF16 && rows <= FEW_TOKENS && keys <= FEW_KEYS &&
           (p->round == ROUND_NONE || p->round == ROUND_BF16);
}

void attention_few(struct cuda_backend *b, const struct attend_params *a, const struct spans *spans,
                   int32_t keys)
{
    struct attend_params k = *a;
    unsigned groups = (unsigned)ceil_div(a->p.heads, FEW_HEADS), n = (unsigned)spans_rows(*spans);
    unsigned units = (unsigned)ceil_div(keys, ATTN_TILE) * TILE_UNITS;
    k.token = 0;
    static_assert((size_t)64 * HEADS_MAX / FEW_HEADS * FEW_UNITS * WARP * LANE_SCORES * 4 <=
                      ATTENTION_STATES_BYTES,
                  "scores have room");
    CUDA_CHECK(cudaFuncSetAttribute(few_sums, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(struct few_shared)));
    const float *sink = weight_floats(b, &a->p.sink);
    launch(b, "few_scores", few_scores, dim3(groups, n, units), FEW_WARPS * WARP, 0, k, *spans);
    launch(b, "few_sums", few_sums, dim3(groups, n, HEAD_DIM / FEW_CHANNELS), FEW_WARPS * WARP,
           sizeof(struct few_shared), sink, k, *spans);
}
