/*
 * Stored weights in the registers of a warp, and the tensor core instructions that take them.
 *
 * A warp multiplies 16 rows of a matrix with 8 columns (tokens), 128 values of a row at a time.
 * Lane (g, t) = (lane / 4, lane % 4) holds, of rows g and g + 8, four units of 8 neighbouring
 * values: where they stand in the 128 follows from how few wide loads bring them (unit_at).  The
 * order of the sum inside of an instruction is nobody's business, so the same places of the tokens'
 * rows are given to the other operand and nothing needs to move between lanes.
 */
#ifndef V4BOX_KERNELS_CUDA_PRODUCTS_CUH
#define V4BOX_KERNELS_CUDA_PRODUCTS_CUH

#include "kernels/cuda/ops.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

/* Rows of a warp's tile, and its columns. */
#define TILE_ROWS 16
#define TILE_COLS 8
/* Units of 8 values that a lane holds of one row's chunk. */
#define UNITS 4

/* float16 holds FP4 values times 2^-14. */
#define FP4_HALF_SCALE 16384.0f

/* NVFP4 values with their scales, times 2^-7: from 2^-17 to 21, all multiples of 2^-17. */
#define NVFP4_HALF_SCALE 128.0f

/* Sign, exponent and mantissa of an FP4 value where float16 has them, of two values. */
#define FP4_PAIR 0x8e008e00u

static __device__ inline uint32_t turn_left(uint32_t word, int by)
{
    return __funnelshift_l(word, word, by);
}

/* Pair i of a re-ordered word (values 2 i and 2 i + 1) as float16, times 2^-14.  Four such fields
 * can not all be moved to their place by one shift each, as they would overlap: two of the pairs
 * are sums (modulo 2) of the word with itself moved.  Eight instructions for eight values. */
static __device__ inline uint32_t fp4_pair(uint32_t word, int i)
{
    switch (i) {
    case 0:
        return word << 6 & FP4_PAIR;
    case 1:
        return word << 9 & FP4_PAIR;
    case 2:
        return (word ^ word << 2) & FP4_PAIR;
    default:
        return (word ^ turn_left(word, 13)) & FP4_PAIR;
    }
}

/* Plain nibbles to the order of weights.cu: the one word of which fp4_pair makes these values. */
static __device__ inline uint32_t fp4_pack(uint32_t word)
{
    uint32_t pair[4] = {};
    for (int i = 0; i < 8; i++) {
        uint32_t code = word >> (4 * i) & 15;
        pair[i / 2] |= ((code & 7) << 9 | (code & 8) << 12) << i % 2 * 16;
    }
    uint32_t out = pair[0] >> 6 | pair[1] >> 9; /* bits 9, 5 to 3, 6, 2 to 0 of each half */
    /* each of the others is what it is added to, and a bit that is known by then */
    out |= (pair[3] ^ turn_left(out, 13)) & 0x80008000;
    out |= ((pair[2] ^ out) & 0x80008000) >> 2;
    out |= (pair[2] ^ out << 2) & 0x08000800;
    out |= (pair[3] ^ turn_left(out, 13)) & 0x04000400;
    out |= ((pair[2] ^ out) & 0x06000600) >> 2;
    return out | turn_left((pair[3] ^ out) & 0x0a000a00, 32 - 13);
}

/* Two e4m3 values as float16. */
static __device__ inline uint32_t fp8_pair(uint32_t two)
{
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two, __NV_E4M3);
    return (uint32_t)h.x | (uint32_t)h.y << 16;
}

static __device__ inline uint32_t half_times(uint32_t a, uint32_t b)
{
    __half2 product = __hmul2(*(const __half2 *)&a, *(const __half2 *)&b);
    return *(const uint32_t *)&product;
}

/* E8M0: 2^(s - 127) */
static __device__ inline float e8m0_value(uint32_t s)
{
    return __uint_as_float(s == 0 ? 0x400000 : s << 23);
}

static __device__ inline float e4m3_value(uint8_t code)
{
    return __half2float(__ushort_as_half((uint16_t)fp8_pair(code)));
}

/* A weight is read once: in the L1 it would stand where the tokens' rows are.  Volatile, as all
 * loads of weights: what is asked for in front of grid_begin must not move behind it. */
template <int AT = 0> static __device__ inline uint4 load_once(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from), "n"(AT));
    return v;
}

/* Scales: their neighbours are other lanes'. */
template <int AT = 0> static __device__ inline uint32_t load_scales(const uint32_t *from)
{
    uint32_t v;
    asm volatile("ld.global.nc.u32 %0, [%1 + %2];" : "=r"(v) : "l"(from), "n"(AT * 4));
    return v;
}

template <int AT = 0> static __device__ inline uint2 load_scales(const uint2 *from)
{
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2 + %3];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from), "n"(AT * 8));
    return v;
}

template <int AT = 0> static __device__ inline uint32_t load_scale(const uint8_t *from)
{
    uint32_t v;
    asm volatile("ld.global.nc.u8 %0, [%1 + %2];" : "=r"(v) : "l"(from), "n"(AT));
    return v;
}

/* NVFP4: a unit's 32 values of all four lanes have two scales. */
static __device__ inline uint32_t nvfp4_scales(uint2 all, uint32_t t)
{
    return __byte_perm(all.x, all.y, t < 2 ? 0x6420 : 0x7531);
}

/* One row's chunk in one lane. */
template <enum store S> struct lane_row {
    static constexpr bool FOUR_BITS = S == STORE_FP4 || S == STORE_NVFP4;
    static constexpr int LOADS = FOUR_BITS ? 1 : S == STORE_FP8 ? 2 : 4;
    static constexpr int BYTES = 64 * LOADS; /* of a chunk, and of its scales */
    static constexpr int SCALES = S == STORE_FP4 ? 4 : S == STORE_NVFP4 ? 8 : S == STORE_FP8;
    uint4 raw[LOADS];
    uint32_t scales; /* of the four units if they have their own, or of the chunk */

    __device__ inline void load(const struct weight &w, int row, int chunk, int t)
    {
        const char *at = (const char *)w.data;
        if (FOUR_BITS) {
            int64_t chunks = (int64_t)row * (w.cols / CHUNK) + chunk;
            at += chunks * (CHUNK / 2) + 16 * t;
            raw[0] = load_once(at);
            if (S == STORE_FP4)
                scales = load_scales((const uint32_t *)w.scale + chunks);
            else
                scales = nvfp4_scales(load_scales((const uint2 *)w.scale + chunks), (uint32_t)t);
        } else if (S == STORE_FP8) {
            at += (int64_t)row * w.cols + chunk * CHUNK + 16 * t;
            raw[0] = load_once(at);
            raw[1 % LOADS] = load_once(at + 64);
        } else {
            at += ((int64_t)row * w.cols + chunk * CHUNK + 8 * t) * 2;
#pragma unroll
            for (int u = 0; u < LOADS; u++)
                raw[u] = load_once(at + 64 * u);
        }
    }

    /* The chunk AT chunks behind these addresses, which are the lane's. */
    template <int AT> __device__ inline void load_at(const char *data, const char *scale)
    {
        raw[0] = load_once<AT * BYTES>(data);
        if (LOADS > 1)
            raw[1 % LOADS] = load_once<AT * BYTES + 64>(data);
        if (LOADS > 2) {
            raw[2 % LOADS] = load_once<AT * BYTES + 128>(data);
            raw[3 % LOADS] = load_once<AT * BYTES + 192>(data);
        }
        if (S == STORE_FP4)
            scales = load_scales<AT>((const uint32_t *)scale);
        else if (S == STORE_NVFP4)
            scales = nvfp4_scales(load_scales<AT>((const uint2 *)scale), threadIdx.x % 4);
        else if (S == STORE_FP8)
            scales = load_scale<AT>((const uint8_t *)scale);
    }

    __device__ inline void unit(int u, uint32_t pair[4]) const
    {
        if (FOUR_BITS) {
            uint32_t word = u == 0 ? raw[0].x : u == 1 ? raw[0].y : u == 2 ? raw[0].z : raw[0].w;
#pragma unroll
            for (int i = 0; i < 4; i++)
                pair[i] = fp4_pair(word, i);
            if (S == STORE_NVFP4) {              /* exact: six bits */
                const uint32_t all = 0x58005800; /* 2^7 */
                uint32_t scale = half_times(fp8_pair((scales >> 8 * u & 255) * 257), all);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    pair[i] = half_times(pair[i], scale);
            }
        } else if (S == STORE_FP8) {
            const uint4 &q = raw[u / 2 % LOADS];
            uint32_t a = u % 2 ? q.z : q.x, b = u % 2 ? q.w : q.y;
            pair[0] = fp8_pair(a & 0xffff), pair[1] = fp8_pair(a >> 16);
            pair[2] = fp8_pair(b & 0xffff), pair[3] = fp8_pair(b >> 16);
        } else {
            const uint4 &q = raw[u % LOADS];
            pair[0] = q.x, pair[1] = q.y, pair[2] = q.z, pair[3] = q.w;
        }
    }
};

/* Where unit u of lane t begins within a chunk. */
template <enum store S> static __device__ inline int unit_at(int u, int t)
{
    return S == STORE_FP8 ? u / 2 * 64 + 16 * t + u % 2 * 8 : u * 32 + t * 8;
}

/* d[16, 8] += a[16, 16] b[16, 8]; a: rows g and g + 8, b: column g. */
template <bool HALF>
static __device__ inline void mma(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                  uint32_t b0, uint32_t b1)
{
    if (HALF)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four neighbouring values of FP8 from column 4 * lane of a chunk, for sums in double. */
static __device__ inline void weight_quad_fp8(const struct weight &w, int row, int chunk, int lane,
                                              float v[4])
{
    int64_t at = (int64_t)row * w.cols + chunk * CHUNK + 4 * lane;
    uint32_t q = *(const uint32_t *)((const uint8_t *)w.data + at);
    float scale = e8m0_value(w.scale[row / FP8_BLOCK * (w.cols / CHUNK) + chunk]);
    uint32_t pair[2] = {fp8_pair(q & 0xffff), fp8_pair(q >> 16)};
    for (int i = 0; i < 4; i++)
        v[i] = __half2float(__ushort_as_half((uint16_t)(pair[i / 2] >> i % 2 * 16))) * scale;
}

/* The same of any store. */
static __device__ inline void weight_quad(const struct weight &w, int row, int chunk, int lane,
                                          float v[4])
{
    int64_t at = (int64_t)row * w.cols + chunk * CHUNK + 4 * lane;
    switch (w.store) {
    case STORE_F32: {
        float4 q = *(const float4 *)((const float *)w.data + at);
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        break;
    }
    case STORE_BF16: {
        ushort4 q = *(const ushort4 *)((const uint16_t *)w.data + at);
        v[0] = __uint_as_float((uint32_t)q.x << 16), v[1] = __uint_as_float((uint32_t)q.y << 16);
        v[2] = __uint_as_float((uint32_t)q.z << 16), v[3] = __uint_as_float((uint32_t)q.w << 16);
        break;
    }
    case STORE_FP8:
        weight_quad_fp8(w, row, chunk, lane, v);
        break;
    default: { /* four bits; see weights.cu for the places */
        const uint32_t *words = (const uint32_t *)w.data + (at - 4 * lane) / 8;
        uint32_t word = words[lane % 8 / 2 * 4 + lane / 8];
        int group = w.store == STORE_FP4 ? FP4_GROUP : NVFP4_GROUP;
        uint8_t code = w.scale[(at - 4 * lane) / group + 4 * lane / group];
        float scale = FP4_HALF_SCALE * (w.store == STORE_FP4 ? e8m0_value(code) : e4m3_value(code));
        for (int i = 0; i < 4; i++) {
            uint32_t pair = fp4_pair(word, lane % 2 * 2 + i / 2);
            v[i] = __half2float(__ushort_as_half((uint16_t)(pair >> i % 2 * 16))) * scale;
        }
    }
    }
}

#endif
