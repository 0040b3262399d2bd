/*
 * The vector functions for x86-64-v2 (SSE4.2): four lanes, no fused multiply-add.
 * Under QEMU's TCG, where each float operation costs a call, this is the fastest variant; so
 * decoding looks values up, scale included, instead of computing them.
 */
#include "kernels/check.h"
#include "kernels/cpu/vector.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define VL           4
#define TILE         2
#define VECTOR_TABLE CPU_VECTOR_BASELINE
#define VECTOR_NAME  "baseline"

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(32)));
typedef __m128d wd;
typedef const float *fp8_scale;

static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

/* Lane i of the result: (a[i][0] + a[i][2]) + (a[i][1] + a[i][3]). */
static inline vf v_reduce(const vf a[VL])
{
    __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a[0], a[1]), _mm_unpackhi_ps(a[0], a[1]));
    __m128 cd = _mm_add_ps(_mm_unpacklo_ps(a[2], a[3]), _mm_unpackhi_ps(a[2], a[3]));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

static inline wd w_low(vf v)
{
    return _mm_cvtps_pd(v);
}

static inline wd w_high(vf v)
{
    return _mm_cvtps_pd(_mm_movehl_ps(v, v));
}

static inline wd w_fma(wd a, wd b, wd c)
{
    return _mm_add_pd(_mm_mul_pd(a, b), c);
}

static inline vf w_narrow(wd low, wd high)
{
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}

static inline fp8_scale fp8_scale_of(uint8_t scale)
{
    return CPU_E4M3[scale];
}

static inline void decode_fp8(const uint8_t *p, fp8_scale value, vf w[8])
{
    for (int i = 0; i < 8; i++)
        w[i] = (vf){value[p[4 * i]], value[p[4 * i + 1]], value[p[4 * i + 2]], value[p[4 * i + 3]]};
}

static inline void decode_fp4(const uint8_t *p, uint8_t scale, vf w[8])
{
    const float *value = CPU_E2M1[scale];
    for (int i = 0; i < 8; i++)
        w[i] = (vf){value[p[2 * i] & 15], value[p[2 * i] >> 4], value[p[2 * i + 1] & 15],
                    value[p[2 * i + 1] >> 4]};
}

static inline void decode_bf16(const uint8_t *p, vf w[8])
{
    for (int i = 0; i < 8; i++) {
        __m128i words = _mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * i));
        w[i] = (vf)_mm_unpacklo_epi16(_mm_setzero_si128(), words);
    }
}

#include "kernels/cpu/vector_body.inc"
