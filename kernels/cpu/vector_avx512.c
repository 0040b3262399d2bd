/*
 * The vector functions for AVX-512 (F, BW, DQ, VL): sixteen lanes.
 * e4m3 is decoded through half precision: the same fields 8 binary orders lower.
 */
#include "kernels/check.h"
#include "kernels/cpu/vector.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define VL           16
#define TILE         4
#define VECTOR_TABLE CPU_VECTOR_AVX512
#define VECTOR_NAME  "avx512"

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef double vd __attribute__((vector_size(128)));
typedef __m512d wd;
typedef vf fp8_scale;

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* The lane sums of four vectors: four in each quarter. */
static inline __m512 reduce_four(const vf a[4])
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
}

/* Two vectors of four quarters each into one: quarters 0+1 and 2+3 of the first, then the second.
 */
static inline __m512 reduce_quarters(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

static inline vf v_reduce(const vf a[VL])
{
    __m512 low = reduce_quarters(reduce_four(a), reduce_four(a + 4));
    __m512 high = reduce_quarters(reduce_four(a + 8), reduce_four(a + 12));
    return reduce_quarters(low, high);
}

static inline wd w_low(vf v)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}

static inline wd w_high(vf v)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}

static inline wd w_fma(wd a, wd b, wd c)
{
    return _mm512_fmadd_pd(a, b, c);
}

static inline vf w_narrow(wd low, wd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high),
                              1);
}

static inline fp8_scale fp8_scale_of(uint8_t scale)
{
    return _mm512_set1_ps(CPU_E8M0[scale] * 256.0f);
}

static inline void decode_fp8(const uint8_t *p, fp8_scale factor, vf w[2])
{
    for (int i = 0; i < 2; i++) {
        __m256i code =
            _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)));
        __m256i half =
            _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16((short)0xbfff));
        w[i] = _mm512_mul_ps(_mm512_cvtph_ps(half), factor);
    }
}

static inline void decode_fp4(const uint8_t *p, uint8_t scale, vf w[2])
{
    const __m512 value =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    __m512 scaled = _mm512_mul_ps(value, _mm512_set1_ps(CPU_E8M0[scale]));
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i pairs = _mm256_cvtepu8_epi16(bytes); /* 00HL; the low byte of 0H(H|L)L gives L */
    __m256i codes = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4));
    __m512i first = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes));
    __m512i second = _mm512_cvtepu8_epi32(_mm256_extracti128_si256(codes, 1));
    w[0] = _mm512_permutexvar_ps(first, scaled); /* uses the low four bits of an index only */
    w[1] = _mm512_permutexvar_ps(second, scaled);
}

static inline void decode_bf16(const uint8_t *p, vf w[2])
{
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * i));
        w[i] = (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
    }
}

#include "kernels/cpu/vector_body.inc"
