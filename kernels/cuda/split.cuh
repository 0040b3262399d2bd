/*
 * Rows of float32 as sums of 16-bit numbers, which is what the tensor cores take; by a warp, a
 * chunk at a time.
 */
#ifndef V4BOX_KERNELS_CUDA_SPLIT_CUH
#define V4BOX_KERNELS_CUDA_SPLIT_CUH

#include "kernels/cuda/products.cuh"
#include "kernels/cuda/rows.cuh"

static __device__ inline bool any_left(const float rest[4])
{
    return rest[0] != 0 || rest[1] != 0 || rest[2] != 0 || rest[3] != 0;
}

/* Up to three float16 numbers a value, after division by a power of two that brings the largest of
 * the chunk to 2^14..2^15.  What is 2^39 times smaller than that is lost.
 * most: parts that are written.  @return parts needed; most + 1 where that is more */
static __device__ inline int split_half(const float x[4], const struct operand &o, int64_t row,
                                        int64_t at, int chunk, int chunks, int most)
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
    for (int part = 0; part < most; part++) {
        uint16_t bits[4];
        for (int i = 0; i < 4; i++) {
            __half h = __float2half_rn(rest[i]);
            bits[i] = __half_as_ushort(h);
            rest[i] -= __half2float(h);
            n = (bits[i] & 0x7fff) != 0 ? part + 1 : n;
        }
        *(ushort4 *)(o.part[part] + at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
    return most < OPERAND_PARTS && any_left(rest) ? most + 1 : n;
}

/* The same as bfloat16 numbers, which need no scale. */
static __device__ inline int split_bfloat(const float x[4], const struct operand &o, int64_t at,
                                          int most)
{
    int n = 1;
    float rest[4] = {x[0], x[1], x[2], x[3]};
    for (int part = 0; part < most; part++) {
        uint16_t bits[4];
        for (int i = 0; i < 4; i++) {
            float h = round_bf16(rest[i]);
            bits[i] = (uint16_t)(__float_as_uint(h) >> 16);
            rest[i] -= h;
            n = (bits[i] & 0x7fff) != 0 ? part + 1 : n;
        }
        *(ushort4 *)(o.part[part] + at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
    return most < OPERAND_PARTS && any_left(rest) ? most + 1 : n;
}

#endif
