/*
 * The vector functions for AVX2 with FMA and F16C: eight lanes.
 * e4m3 is decoded through half precision: the same fields 8 binary orders lower.
 */
#include "kernels/check.h"
#include "kernels/cpu/vector.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define VL           8
#define TILE         2
#define VECTOR_TABLE CPU_VECTOR_AVX2
#define VECTOR_NAME  "avx2"

typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef double vd __attribute__((vector_size(64)));
typedef __m256d wd;
typedef vf fp8_scale;

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* The lane sums of four vectors: four in each half. */
static inline __m256 reduce_four(const vf a[4])
{
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a[0], a[1]), _mm256_unpackhi_ps(a[0], a[1]));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(a[2], a[3]), _mm256_unpackhi_ps(a[2], a[3]));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
}

static inline vf v_reduce(const vf a[VL])
{
    __m256 low = reduce_four(a), high = reduce_four(a + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}

static inline wd w_low(vf v)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}

static inline wd w_high(vf v)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

static inline wd w_fma(wd a, wd b, wd c)
{
    return _mm256_fmadd_pd(a, b, c);
}

static inline vf w_narrow(wd low, wd high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high),
                                1);
}

static inline fp8_scale fp8_scale_of(uint8_t scale)
{
    return _mm256_set1_ps(CPU_E8M0[scale] * 256.0f);
}

static inline void decode_fp8(const uint8_t *p, fp8_scale factor, vf w[4])
{
    for (int i = 0; i < 4; i++) {
        __m128i code =
            _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * i)));
        __m128i half = _mm_and_si128(_mm_slli_epi16(code, 7), _mm_set1_epi16((short)0xbfff));
        w[i] = _mm256_mul_ps(_mm256_cvtph_ps(half), factor);
    }
}

static inline void decode_fp4(const uint8_t *p, uint8_t scale, vf w[4])
{
    const __m128i doubled = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    __m256 factor = _mm256_set1_ps(CPU_E8M0[scale] * 0.5f);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
    __m128i first = _mm_shuffle_epi8(doubled, _mm_unpacklo_epi8(low, high));
    __m128i second = _mm_shuffle_epi8(doubled, _mm_unpackhi_epi8(low, high));
    __m128i eights[4] = {first, _mm_srli_si128(first, 8), second, _mm_srli_si128(second, 8)};
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eights[i])), factor);
}

static inline void decode_bf16(const uint8_t *p, vf w[4])
{
    for (int i = 0; i < 4; i++) {
        __m128i words = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
        w[i] = (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
    }
}

#include "kernels/cpu/vector_body.inc"
