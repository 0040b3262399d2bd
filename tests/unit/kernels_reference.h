/*
 * What the kernel tests share: fixed random numbers, stored weights with their true values in
 * double, and the comparison.  The references in the tests are written from model.md, scalar and in
 * double, and share no code with the kernels.
 */
#ifndef V4BOX_TESTS_KERNELS_REFERENCE_H
#define V4BOX_TESTS_KERNELS_REFERENCE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON -12345.678f

static uint64_t random_state = 1;

static inline uint64_t random_word(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (-1, 1). */
static inline double random_unit(void)
{
    return ((double)(random_word() >> 11) * 0x1p-52) - 1;
}

static inline void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size); /* a request for nothing is answered too */
    assert_non_null(memory);
    return memory;
}

static inline float *random_floats(size_t n, double scale)
{
    float *x = take(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(random_unit() * scale);
    return x;
}

static inline float bf16_of(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)bits << 16};
    return v.f;
}

/* A matrix as stored, and its values. */
struct matrix {
    struct tensor tensor;
    double *values; /* [rows, cols] */
};

/* e4m3fn and e2m1 by their definitions. */
static inline double e4m3_value(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent == 0 ? mantissa * 0x1p-9 : ldexp(1 + mantissa / 8.0, exponent - 7);
    return code & 128 ? -size : size;
}

static inline double e2m1_value(int code)
{
    static const double SIZE[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -SIZE[code & 7] : SIZE[code & 7];
}

static inline uint8_t random_e4m3(void)
{
    uint8_t code = (uint8_t)random_word();
    return (code & 127) == 127 ? 0 : code; /* no NaN */
}

static inline uint8_t *random_scales(size_t n)
{
    uint8_t *scale = take(n, 1);
    for (size_t i = 0; i < n; i++)
        scale[i] = (uint8_t)(118 + random_word() % 9);
    return scale;
}

/* Offset by one element, as tensors in a file are: vectors must not assume alignment. */
static inline struct matrix matrix_random(enum store store, int32_t rows, int32_t cols)
{
    size_t n = (size_t)rows * (size_t)cols;
    struct matrix m = {.tensor = {.rows = rows, .cols = cols, .store = store},
                       .values = take(n, sizeof(double))};
    uint8_t *bytes = take(n + 1, 8);
    m.tensor.data = bytes + (store == STORE_F32 ? 4 : store == STORE_BF16 ? 2 : 1);
    uint8_t *data = (uint8_t *)(uintptr_t)m.tensor.data;
    if (store == STORE_FP8)
        m.tensor.scale = random_scales((size_t)((rows + 127) / 128 * ((cols + 127) / 128)));
    if (store == STORE_FP4)
        m.tensor.scale = random_scales(n / 32);
    if (store == STORE_NVFP4) {
        uint8_t *scale = take(n / 16, 1);
        for (size_t i = 0; i < n / 16; i++)
            scale[i] = (uint8_t)(random_word() % 127);
        m.tensor.scale = scale;
        m.tensor.global = 0.00137f;
    }
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (size_t)cols, col = i % (size_t)cols;
        if (store == STORE_F32) {
            float v = (float)random_unit();
            memcpy(data + 4 * i, &v, sizeof v);
            m.values[i] = v;
        } else if (store == STORE_BF16) {
            uint16_t bits = (uint16_t)(0x3c00 + random_word() % 0x300 + (random_word() & 0x8000));
            memcpy(data + 2 * i, &bits, sizeof bits);
            m.values[i] = bf16_of(bits);
        } else if (store == STORE_FP8) {
            data[i] = random_e4m3();
            size_t at = row / 128 * (size_t)((cols + 127) / 128) + col / 128;
            m.values[i] = ldexp(e4m3_value(data[i]), m.tensor.scale[at] - 127);
        } else {
            int code = (int)(random_word() & 15);
            data[i / 2] = (uint8_t)(i % 2 ? data[i / 2] | code << 4 : code);
            m.values[i] =
                store == STORE_FP4
                    ? ldexp(e2m1_value(code), m.tensor.scale[i / 32] - 127)
                    : e2m1_value(code) * e4m3_value(m.tensor.scale[i / 16]) * m.tensor.global;
        }
    }
    return m;
}

static inline void matrix_free(struct matrix *m)
{
    free((uint8_t *)(uintptr_t)m->tensor.data - (m->tensor.store == STORE_F32    ? 4
                                                 : m->tensor.store == STORE_BF16 ? 2
                                                                                 : 1));
    free((uint8_t *)(uintptr_t)m->tensor.scale);
    free(m->values);
}

static inline void expect_near(double got, double want, double tolerance, const char *what,
                               int64_t at)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s [%lld]: %.9g instead of %.9g", what, (long long)at, got, want);
}

/* The variants that this processor has, baseline always first. */
static inline int variants(const struct cpu_vector **out)
{
    static const struct cpu_vector *const ALL[] = {&CPU_VECTOR_BASELINE, &CPU_VECTOR_AVX2,
                                                   &CPU_VECTOR_AVX512};
    int n = 0;
    for (enum cpu_isa isa = CPU_BASELINE; isa < CPU_ISAS; isa++) {
        if (cpu_isa_available(isa))
            out[n++] = ALL[isa];
    }
    return n;
}

static const struct backend_limits LIMITS = {
    .tokens = 40,
    .cols = 2048,
    .groups = 4,
    .group_cols = 8192,
    .index_heads = 16,
    .topk = 64,
    .inner = 128,
    .hidden = 256,
    .experts = 9,
    .top = 4,
};

/* A test of one operation: fills params, runs, checks what came out. */
typedef void op_test(struct backend *b, float *out, size_t n);

/* Runs on every variant and thread count; the outputs of one variant are the same bits. */
static inline void for_each_backend(op_test *test, size_t outputs)
{
    for (enum cpu_isa isa = CPU_BASELINE; isa < CPU_ISAS; isa++) {
        if (!cpu_isa_available(isa))
            continue;
        float *first = take(outputs, sizeof *first), *out = take(outputs, sizeof *out);
        for (int threads = 1; threads <= 3; threads++) {
            struct backend *b = backend_cpu_create(isa, threads, &LIMITS);
            assert_non_null(b);
            for (size_t i = 0; i < outputs; i++)
                out[i] = POISON;
            random_state = 7;
            test(b, out, outputs);
            if (threads == 1)
                memcpy(first, out, outputs * sizeof *out);
            assert_memory_equal(first, out, outputs * sizeof *out);
            b->ops->destroy(b);
        }
        free(first);
        free(out);
    }
}

#endif
