/*
 * The loops of the CPU backend that are worth compiling once for each instruction set: a table of
 * functions, one table a variant (vector_baseline.c, vector_avx2.c, vector_avx512.c; one body in
 * vector_body.inc).  Knows rows of floats and stored weights; knows nothing of the network.
 *
 * Every output element is summed in an order that depends on its own inputs' length only, so the
 * results do not change with the shape of the call.  Variants differ from each other in the last
 * bits.
 */
#ifndef V4BOX_KERNELS_CPU_VECTOR_H
#define V4BOX_KERNELS_CPU_VECTOR_H

#include "kernels/backend.h"

#include <stdint.h>

/* Rows decoded together; threads split matrices at multiples of it. */
#define ROW_BLOCK 16
/* Output rows of one call of weighted_rows. */
#define WEIGHTED_HEADS 4

/* y[t][row] = sum over k of w[row][k] * x[t][k] */
struct matmul {
    struct tensor w;       /* cols a multiple of 32 */
    const float *const *x; /* [n] rows of cols */
    float *const *y;       /* [n]; element `row` is written for row in the range asked for */
    int32_t n;
    _Bool precise; /* sums in double */
};

/* Sums and what is made of them; one set adds in float32, the other in double with exact exp. */
struct cpu_sums {
    enum precision_SUM value; /* which of the two this is, for witnesses */

    /* y[t][i] = sum over k of rows[i][k] * x[t][k]; cols a multiple of 32 */
    void (*dots)(const float *const *rows, int32_t n_rows, const float *const *x, int32_t n,
                 int32_t cols, float *const *y);

    /* out[h][c] = sum over i of p[h][i] * rows[i][c], in order of i, for h < heads <=
     * WEIGHTED_HEADS; width a multiple of 64 */
    void (*weighted_rows)(const float *const *rows, int32_t n_rows, const float *const *p,
                          int32_t heads, int32_t width, float *const *out);

    /* x[i] = exp(x[i] * scale - maximum), maximum = max(floor, all x[i] * scale), returned with the
     * sum of the results; x has room up to a multiple of 16, which is overwritten. */
    void (*softmax)(float *x, int32_t n, float scale, float floor, double *maximum, double *sum);

    /* out[c] = sum over i of softmax_i(gamma[i][c]) * kappa[i][c]; width a multiple of 16 */
    void (*pool)(const float *const *kappa, const float *const *gamma, int32_t n, int32_t width,
                 float *out);

    /* out = silu(min(gate, limit)) * clamp(up, -limit, limit) * weight; n a multiple of 16.
     * Returns the limit that it used. */
    float (*swiglu)(const float *gate, const float *up, float limit, float weight, int32_t n,
                    float *out);
};

struct cpu_vector {
    const char *name;

    struct cpu_sums sums[2]; /* by `precise` */

    /* Rows row0..row1-1; row0 a multiple of ROW_BLOCK.  slab: scratch [ROW_BLOCK, cols].  Returns
     * whether it summed in double. */
    _Bool (*matmul)(const struct matmul *m, int32_t row0, int32_t row1, float *slab);

    /* Sum of squares in double; n a multiple of 16 */
    double (*square_sum)(const float *x, int32_t n);

    /* out = x * weight[c] * factor with one rounding, if x is bf16; weight BF16 [n] or NULL,
     * n a multiple of 32 */
    void (*scale_norm)(const float *x, const uint16_t *weight, double factor, int32_t n,
                       float *out);

    /* out[c] = sum over i of p[i] * rows[i][c] in double, one rounding; width a multiple of 16 */
    void (*mix_rows)(const float *const *rows, int32_t n_rows, const double *p, int32_t width,
                     float *out);

    /* score[i] += weight * max(x[i], 0) in double; n a multiple of 16 */
    void (*relu_add)(double *score, const float *x, double weight, int32_t n);

    /* Rounds as P2, P5, P6 say; n a multiple of the group (any n for BF16 and TF32).  out may be x.
     * Returns what it did, for witnesses. */
    enum round (*round)(enum round round, const float *x, int32_t n, float *out);

    /* A kept row of `dim` channels (kernels/entry.h) and back.  Written are only values that the
     * format's rounding left; then the same bits are read. */
    void (*entry_write)(enum entry_format format, const float *x, int32_t dim, uint8_t *to);
    void (*entry_read)(enum entry_format format, const uint8_t *from, int32_t dim, float *x);

    /* Orthonormal Walsh-Hadamard transform of INDEX_HEAD_DIM values in place (P7) */
    void (*hadamard)(float *x);
};

extern const struct cpu_vector CPU_VECTOR_BASELINE, CPU_VECTOR_AVX2, CPU_VECTOR_AVX512;

/* Values of stored bytes with their block scale in: [scale byte][code].  e4m3 codes 0x7f and 0xff
 * (NaN) read as +-480 in every variant; the checkpoint loader refuses them. */
extern float CPU_E4M3[256][256];
extern float CPU_E2M1[256][16];
extern float CPU_E8M0[256];

/** Fills the tables above; call once before any vector function. */
void cpu_tables_fill(void);

#endif
