/*
 * Kept rows (kernels/entry.h): what each rounding leaves is read back bit for bit, by every variant
 * and from the same bytes; all codes under all scales; bytes that no rounding makes.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct cpu_vector *const VECTORS[CPU_ISAS] = {
    [CPU_BASELINE] = &CPU_VECTOR_BASELINE,
    [CPU_AVX2] = &CPU_VECTOR_AVX2,
    [CPU_AVX512] = &CPU_VECTOR_AVX512,
};

/* How a row of each format is rounded: all of it, then `part` of it. */
static const struct form {
    const char *name;
    enum entry_format format;
    int32_t dim;
    enum round all, part;
    int32_t n_part, bytes;
} FORMS[] = {
    {"entry fp32", ENTRY_F32, HEAD_DIM, ROUND_NONE, ROUND_NONE, 0, 2048},
    {"entry bf16", ENTRY_BF16, HEAD_DIM, ROUND_BF16, ROUND_NONE, 0, 1024},
    {"entry fp8", ENTRY_FP8, HEAD_DIM, ROUND_BF16, ROUND_FP8_64, ENTRY_NOPE, 584},
    {"key fp32", ENTRY_F32, INDEX_HEAD_DIM, ROUND_NONE, ROUND_NONE, 0, 512},
    {"key bf16", ENTRY_BF16, INDEX_HEAD_DIM, ROUND_BF16, ROUND_NONE, 0, 256},
    {"key fp8", ENTRY_KEY_FP8, INDEX_HEAD_DIM, ROUND_BF16, ROUND_FP8_128, INDEX_HEAD_DIM, 132},
    {"key fp4", ENTRY_KEY_FP4, INDEX_HEAD_DIM, ROUND_BF16, ROUND_FP4_32, INDEX_HEAD_DIM, 68},
};
#define N_FORMS (sizeof FORMS / sizeof *FORMS)

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* Values around one size, which may be as small or as large as a state ever is; some are zeros of
 * either sign. */
static void fill(float *x, int32_t n, int exponent)
{
    for (int32_t i = 0; i < n; i++) {
        float value = ldexpf((float)((int32_t)random_bits() >> 8) / 8388608, exponent);
        x[i] = random_bits() % 16 == 0 ? copysignf(0, value) : value;
    }
}

/* Bits are the same; of fp4 a zero's sign is not kept. */
static bool same(const struct form *f, const float *a, const float *b)
{
    for (int32_t i = 0; i < f->dim; i++) {
        bool zeros = f->format == ENTRY_KEY_FP4 && a[i] == 0 && b[i] == 0;
        if (!zeros && memcmp(&a[i], &b[i], sizeof a[i]) != 0)
            return false;
    }
    return true;
}

static void check(const struct form *f, const float *rounded)
{
    uint8_t first[HEAD_DIM * 4], bytes[HEAD_DIM * 4 + 1];
    float back[HEAD_DIM];
    for (enum cpu_isa isa = CPU_BASELINE; isa < CPU_ISAS; isa++) {
        if (!cpu_isa_available(isa))
            continue;
        memset(bytes, 0xa5, sizeof bytes);
        VECTORS[isa]->entry_write(f->format, rounded, f->dim, bytes);
        if (bytes[f->bytes] != 0xa5)
            fail_msg("%s, %s: writes beyond its row", f->name, VECTORS[isa]->name);
        if (isa == CPU_BASELINE)
            memcpy(first, bytes, sizeof first);
        if (memcmp(first, bytes, (size_t)f->bytes) != 0)
            fail_msg("%s, %s: other bytes than baseline", f->name, VECTORS[isa]->name);
        memset(back, 0xff, sizeof back);
        VECTORS[isa]->entry_read(f->format, bytes, f->dim, back);
        if (!same(f, rounded, back))
            fail_msg("%s, %s: other values than were written", f->name, VECTORS[isa]->name);
    }
}

static void test_rounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FORMS; i++) {
        const struct form *f = &FORMS[i];
        assert_int_equal(entry_bytes(f->format, f->dim), f->bytes);
        for (int exponent = -40; exponent <= 40; exponent++) {
            float x[HEAD_DIM];
            fill(x, f->dim, exponent);
            VECTORS[0]->round(f->all, x, f->dim, x);
            VECTORS[0]->round(f->part, x, f->n_part, x);
            check(f, x);
        }
    }
}

/* Every value of the grids under every scale that a rounding can choose, with every value that may
 * be the largest of its group. */
static void test_grids(void **state)
{
    (void)state;
    static const float LARGEST8[] = {0, 0x1p-9f, 0x1p-6f, 1, 224, 240, 256, 416, 448};
    static const float LARGEST4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (size_t i = 0; i < N_FORMS; i++) {
        const struct form *f = &FORMS[i];
        bool fp4 = f->format == ENTRY_KEY_FP4;
        if (f->n_part == 0)
            continue;
        const float *largest = fp4 ? LARGEST4 : LARGEST8;
        size_t n = fp4 ? sizeof LARGEST4 / sizeof *LARGEST4 : sizeof LARGEST8 / sizeof *LARGEST8;
        for (int scale = fp4 ? -126 : -22; scale <= 100; scale++) {
            for (size_t top = 0; top < n; top++) {
                for (int32_t from = 0; from < 256; from += 32) {
                    float x[HEAD_DIM] = {0};
                    for (int32_t c = 0; c < f->n_part; c++) {
                        float v = fp4 ? CPU_E2M1[127][c % 16] : CPU_E4M3[127][(from + c) % 256];
                        v = fabsf(v) <= largest[top] ? v : copysignf(largest[top], v);
                        x[c] = ldexpf(v, scale);
                    }
                    /* Only what a rounding leaves alone is ever written. */
                    float rounded[HEAD_DIM];
                    memcpy(rounded, x, sizeof x);
                    VECTORS[0]->round(f->part, rounded, f->n_part, rounded);
                    if (memcmp(rounded, x, sizeof x) == 0)
                        check(f, x);
                    else
                        assert_true(!fp4 && scale < -10); /* below the least largest value */
                }
            }
        }
    }
}

/* A file's bytes are any bytes, codes that no rounding makes too: all variants read the same, under
 * every scale whose values are finite. */
static void test_any_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FORMS; i++) {
        const struct form *f = &FORMS[i];
        int32_t scales = f->format == ENTRY_FP8 ? ENTRY_FP8_SCALES : f->bytes - 4;
        for (int round = 0; round < 200; round++) {
            uint8_t bytes[HEAD_DIM * 4];
            float first[HEAD_DIM], values[HEAD_DIM];
            for (int32_t at = 0; at < f->bytes; at++)
                bytes[at] = (uint8_t)random_bits();
            for (int32_t at = scales; at < f->bytes && f->n_part > 0; at++)
                bytes[at] = (uint8_t)(2 + bytes[at] % 230);
            VECTORS[CPU_BASELINE]->entry_read(f->format, bytes, f->dim, first);
            for (enum cpu_isa isa = CPU_BASELINE + 1; isa < CPU_ISAS; isa++) {
                if (!cpu_isa_available(isa))
                    continue;
                VECTORS[isa]->entry_read(f->format, bytes, f->dim, values);
                if (!same(f, first, values))
                    fail_msg("%s, %s: reads something else", f->name, VECTORS[isa]->name);
            }
        }
    }
}

/* Negative controls: a changed byte is seen, and so is a value that the format has no place for. */
static void test_controls(void **state)
{
    (void)state;
    const struct form *f = &FORMS[2];
    uint8_t bytes[ENTRY_FP8_BYTES];
    float x[HEAD_DIM], back[HEAD_DIM];
    fill(x, HEAD_DIM, 0);
    CPU_VECTOR_BASELINE.round(f->all, x, HEAD_DIM, x);
    CPU_VECTOR_BASELINE.entry_write(f->format, x, HEAD_DIM, bytes);
    CPU_VECTOR_BASELINE.entry_read(f->format, bytes, HEAD_DIM, back);
    assert_false(same(f, x, back)); /* bf16 is not yet fp8 */
    CPU_VECTOR_BASELINE.round(f->part, x, f->n_part, x);
    for (int32_t at = 0; at < ENTRY_FP8_BYTES - 1; at++) {
        CPU_VECTOR_BASELINE.entry_write(f->format, x, HEAD_DIM, bytes);
        bytes[at] ^= 1;
        CPU_VECTOR_BASELINE.entry_read(f->format, bytes, HEAD_DIM, back);
        if (same(f, x, back))
            fail_msg("byte %d counts for nothing", (int)at);
    }
}

static int setup(void **state)
{
    (void)state;
    cpu_tables_fill();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_controls),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
