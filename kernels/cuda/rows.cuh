/*
 * Rows of floats in a warp: each lane holds four values of a chunk of 128, so that the groups of
 * the 8- and 4-bit formats are neighbouring lanes.  The same roundings as the CPU backend, bit for
 * bit (kernels/cpu/vector_body.inc).  All functions with `warp` in their name want the whole warp.
 */
#ifndef V4BOX_KERNELS_CUDA_ROWS_CUH
#define V4BOX_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/ops.cuh"

#define ALL_LANES 0xffffffffu

/* ---- evidence ------------------------------------------------------------------------------- */

/* Notes, once a launch, that `value` of a row was used; `first` is true in one thread of it.  Only
 * the code that did it may say so. */
static __device__ inline void testify(const testimony &say, bool first, int row, int value,
                                      double parameter = 0)
{
    if (!first || row == SAY_NOTHING)
        return;
    for (int leg = LEG_PREFILL; leg <= LEG_DECODE; leg++) {
        int32_t rows = leg == LEG_DECODE    ? say.place.n_decode
                       : leg == LEG_PREFILL ? say.n - say.place.n_decode
                                            : 0;
        struct witness_cell *cell = &say.table->cells[row][say.place.kind][leg][value];
        uint64_t bits = (uint64_t)__double_as_longlong(parameter);
        if (rows == 0)
            continue;
        /* kernels side by side add up; none of those has a parameter but 0, which cells begin with
         */
        uint64_t before = atomicExch((unsigned long long *)&cell->parameters, bits);
        if (atomicAdd((unsigned long long *)&cell->launches, 1) > 0 && before != bits)
            cell->varied = true;
        atomicAdd((unsigned long long *)&cell->rows, (unsigned long long)rows);
    }
}

static __device__ inline bool first_thread(void)
{
    return blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0;
}

/* The value of the rows that are roundings (all but hc.mix). */
static __device__ inline int value_of_round(enum round did)
{
    return did == ROUND_NONE ? 0 : did == ROUND_FP4_32 ? 2 : did == ROUND_NVFP4 ? 3 : 1;
}
static_assert(ACT_STORE_BF16 == 1 && COMP_PROJECT_BF16 == 1 && HC_STREAMS_BF16 == 1 &&
                  MOE_ROUTE_BF16 == 1 && HEAD_LOGITS_BF16 == 1 && DENSE_LINEAR_W8A8 == 1 &&
                  ATTN_OUT_W8A8 == 1 && MOE_EXPERTS_W4A8 == 1 && MOE_EXPERTS_W4A4 == 2 &&
                  MOE_EXPERTS_NVFP4 == 3,
              "value_of_round");
static_assert((int)SUM_F64 == (int)SUM_ENTRY_F64 && (int)SUM_F32 == (int)SUM_ENTRY_F32,
              "both rows of sums have the same values");

/* ---- rows ----------------------------------------------------------------------------------- */

static __device__ inline int lane_id(void)
{
    return (int)(threadIdx.x % WARP);
}

static __device__ inline int warp_id(void)
{
    return (int)(threadIdx.x / WARP);
}

/* Butterflies: every lane gets the same bits. */
template <typename T> static __device__ inline T warp_sum(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

template <typename T> static __device__ inline T warp_max(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        T other = __shfl_xor_sync(ALL_LANES, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* Nearest even to the upper 32 - drop bits of a float. */
static __device__ inline float round_mantissa(float x, int drop)
{
    uint32_t bits = __float_as_uint(x);
    bits += ((1u << (drop - 1)) - 1) + ((bits >> drop) & 1);
    return __uint_as_float(bits & ~((1u << drop) - 1));
}

static __device__ inline float round_bf16(float x)
{
    return round_mantissa(x, 16);
}

static __device__ inline float bf16_value(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* A float format of few bits, as in the CPU backend. */
struct grid_format {
    float inverse_max, amax_min, max, normal, magic;
    int drop, lanes; /* lanes of four values make a group */
};

static __device__ inline grid_format grid_of(enum round round)
{
    if (round == ROUND_FP4_32)
        return {1.0f / 6, 6 * 0x1p-126f, 6, 1.0f, 0x1p22f, 22, 8};
    return {1.0f / 448, 1e-4f, 448, 0x1p-6f, 0x1p14f, 20, round == ROUND_FP8_128 ? 32 : 16};
}

/* 2^ceil(log2(amax * inverse_max)), by the exponent bits of the product. */
static __device__ inline float group_scale(const grid_format &g, float amax)
{
    uint32_t product = __float_as_uint((amax > g.amax_min ? amax : g.amax_min) * g.inverse_max);
    uint32_t exponent = (product >> 23) + ((product & 0x7fffff) != 0);
    return __uint_as_float((exponent < 254 ? exponent : 254) << 23);
}

/* Nearest even to the format's numbers. */
static __device__ inline float to_grid(const grid_format &g, float v)
{
    float size = fminf(fabsf(v), g.max);
    size = size < g.normal ? (size + g.magic) - g.magic : round_mantissa(size, g.drop);
    return copysignf(size, v);
}

/* Four values a lane; NVFP4 is of whole rows and has its own function.  Every case says itself what
 * it did. */
static __device__ inline enum round warp_round(enum round round, float x[4])
{
    if (round == ROUND_NONE)
        return ROUND_NONE;
    if (round == ROUND_BF16) {
        for (int i = 0; i < 4; i++)
            x[i] = round_bf16(x[i]);
        return ROUND_BF16;
    }
    if (round == ROUND_TF32) {
        for (int i = 0; i < 4; i++)
            x[i] = round_mantissa(x[i], 13);
        return ROUND_TF32;
    }
    grid_format g = grid_of(round);
    float amax = 0;
    for (int i = 0; i < 4; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    for (int step = g.lanes / 2; step > 0; step /= 2)
        amax = fmaxf(amax, __shfl_xor_sync(ALL_LANES, amax, step));
    float scale = group_scale(g, amax);
    for (int i = 0; i < 4; i++)
        x[i] = to_grid(g, x[i] * (1.0f / scale)) * scale;
    return round;
}

/* Lanes of four values that make a group of 16. */
#define NVFP4_LANES 4

/* all: amax of the row / (6 * 448).  A group whose own scale rounds to nothing becomes nothing. */
static __device__ inline enum round warp_round_nvfp4(float all, float x[4])
{
    float amax = 0;
    for (int i = 0; i < 4; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    for (int step = NVFP4_LANES / 2; step > 0; step /= 2)
        amax = fmaxf(amax, __shfl_xor_sync(ALL_LANES, amax, step));
    float wanted = all > 0 ? amax / 6.0f / all : 0;
    float scale = to_grid(grid_of(ROUND_FP8_128), wanted) * all;
    for (int i = 0; i < 4; i++)
        x[i] = scale > 0 ? to_grid(grid_of(ROUND_FP4_32), x[i] / scale) * scale : 0;
    return ROUND_NVFP4;
}

static __device__ inline void load4(const float *p, float x[4])
{
    float4 v = *(const float4 *)p;
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* Four values that an earlier kernel may have written since this multiprocessor read them last: of
 * kernels that read in front of grid_begin, past the L1. */
static __device__ inline void load4_fresh(const float *p, float x[4])
{
    float4 v = __ldcg((const float4 *)p);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

static __device__ inline void store4(float *p, const float x[4])
{
    *(float4 *)p = make_float4(x[0], x[1], x[2], x[3]);
}

static __device__ inline void load4_bf16(const void *weight, int64_t at, float x[4])
{
    ushort4 v = *(const ushort4 *)((const uint16_t *)weight + at);
    x[0] = bf16_value(v.x), x[1] = bf16_value(v.y), x[2] = bf16_value(v.z), x[3] = bf16_value(v.w);
}

/* Rotates the pairs of four neighbouring channels; rope: of the first of them. */
static __device__ inline void rotate4(float x[4], const double *rope, bool inverse)
{
    for (int i = 0; i < 4; i += 2) {
        double a = x[i], b = x[i + 1], c = rope[i], s = inverse ? -rope[i + 1] : rope[i + 1];
        x[i] = (float)(a * c - b * s);
        x[i + 1] = (float)(a * s + b * c);
    }
}

/* The last ROPE_HEAD_DIM channels of a row lie in the upper half of its last chunk. */
static __device__ inline void warp_rotate(float last[4], const double *rope, enum round round,
                                          bool inverse)
{
    if (lane_id() >= WARP / 2) {
        rotate4(last, rope + (lane_id() - WARP / 2) * 4, inverse);
        if (round == ROUND_BF16) {
            for (int i = 0; i < 4; i++)
                last[i] = round_bf16(last[i]);
        }
    }
}

/* Rounds all but the last ROPE_HEAD_DIM channels of a row of n chunks. */
template <int N>
static __device__ inline enum round warp_round_nope(enum round round, float x[N][4])
{
    enum round did = ROUND_NONE;
    for (int c = 0; c < N; c++) {
        float keep[4] = {x[c][0], x[c][1], x[c][2], x[c][3]};
        did = warp_round(round, x[c]);
        for (int i = 0; i < 4 && c == N - 1 && lane_id() >= WARP / 2; i++)
            x[c][i] = keep[i];
    }
    return did;
}

template <int N> static __device__ inline double warp_square_sum(const float x[N][4])
{
    double sum = 0;
    for (int c = 0; c < N; c++) {
        for (int i = 0; i < 4; i++)
            sum += (double)x[c][i] * x[c][i];
    }
    return warp_sum(sum);
}

/* P1 over a row of n chunks; weight NULL: none. */
template <int N>
static __device__ inline enum round warp_norm(float x[N][4], const void *weight, enum round round)
{
    enum round did = ROUND_NONE;
    double factor = 1.0 / sqrt(warp_square_sum<N>(x) / (N * CHUNK) + RMS_NORM_EPS);
    for (int c = 0; c < N; c++) {
        float w[4] = {1, 1, 1, 1};
        if (weight != NULL)
            load4_bf16(weight, c * CHUNK + lane_id() * 4, w);
        for (int i = 0; i < 4; i++)
            x[c][i] = (float)((double)(x[c][i] * w[i]) * factor);
        did = warp_round(round, x[c]);
    }
    return did;
}

/* What became of a key/value entry; index keys and queries have the same values and one more. */
static __device__ inline void testify_entry(const testimony &say, bool first, enum round all,
                                            enum round part)
{
    if (all == ROUND_NONE)
        testify(say, first, ROW_KV_ENTRY, KV_ENTRY_FP32); /* beside fp8 this shows as a mixture */
    if (part == ROUND_FP8_64)
        testify(say, first, ROW_KV_ENTRY, KV_ENTRY_FP8);
    else if (all == ROUND_BF16)
        testify(say, first, ROW_KV_ENTRY, KV_ENTRY_BF16);
}

static __device__ inline void testify_key(const testimony &say, bool first, enum round all,
                                          enum round part)
{
    if (all == ROUND_NONE)
        testify(say, first, ROW_INDEX_KEYS, INDEX_KEYS_FP32);
    if (part == ROUND_FP4_32)
        testify(say, first, ROW_INDEX_KEYS, INDEX_KEYS_FP4);
    else if (part == ROUND_FP8_128)
        testify(say, first, ROW_INDEX_KEYS, INDEX_KEYS_FP8);
    else if (all == ROUND_BF16)
        testify(say, first, ROW_INDEX_KEYS, INDEX_KEYS_BF16);
}

/* Orthonormal Walsh-Hadamard transform of one chunk (P7). */
static __device__ inline void warp_hadamard(float x[4])
{
    float a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
    for (int step = 1; step < WARP; step *= 2) {
        bool upper = (lane_id() & step) != 0;
        for (int i = 0; i < 4; i++) {
            float other = __shfl_xor_sync(ALL_LANES, x[i], step);
            x[i] = upper ? other - x[i] : x[i] + other;
        }
    }
    for (int i = 0; i < 4; i++)
        x[i] *= 0.08838834764831845f; /* 128^-0.5 */
}

/* Sum over the block in one order; every thread gets it.  shared: one value a warp. */
static __device__ inline double block_sum(double x, double *shared)
{
    x = warp_sum(x);
    if (lane_id() == 0)
        shared[warp_id()] = x;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < (int)(blockDim.x / WARP); i++)
        sum += shared[i];
    __syncthreads();
    return sum;
}

#endif
