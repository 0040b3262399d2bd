/*
 * The vector functions of every instruction set that this processor has, against scalar references
 * in double: stored weights, sums and their order, roundings with model.md's spot checks.
 */
#include "tests/unit/kernels_reference.h"

#define FOR_EACH_VARIANT(v)                                                                        \
    const struct cpu_vector *all_[CPU_ISAS];                                                       \
    int n_ = variants(all_);                                                                       \
    const struct cpu_vector *v = all_[0];                                                          \
    for (int i_ = 0; i_ < n_; v = all_[++i_ < n_ ? i_ : 0])

static const float **rows_of(const float *x, int32_t n, int64_t width)
{
    const float **rows = take((size_t)n, sizeof *rows);
    for (int32_t i = 0; i < n; i++)
        rows[i] = x + i * width;
    return rows;
}

static float **outputs_of(float *y, int32_t n, int64_t width)
{
    float **rows = take((size_t)n, sizeof *rows);
    for (int32_t i = 0; i < n; i++)
        rows[i] = y + i * width;
    return rows;
}

/* Runs rows row0..row1-1 over n tokens into y [n, rows], the rest poisoned. */
static void matmul_run(const struct cpu_vector *v, const struct matrix *m, const float *x,
                       int32_t n, int32_t row0, int32_t row1, bool precise, float *y)
{
    float *slab = take((size_t)ROW_BLOCK * (size_t)m->tensor.cols, sizeof *slab);
    const float **xs = rows_of(x, n, m->tensor.cols);
    float **ys = outputs_of(y, n, m->tensor.rows);
    for (int64_t i = 0; i < (int64_t)n * m->tensor.rows; i++)
        y[i] = POISON;
    struct matmul p = {m->tensor, xs, ys, n, precise};
    v->matmul(&p, row0, row1, slab);
    free(slab);
    free(xs);
    free(ys);
}

static void matmul_check(const struct cpu_vector *v, const struct matrix *m, const float *x,
                         int32_t n, int32_t row0, bool precise)
{
    int32_t rows = m->tensor.rows, cols = m->tensor.cols;
    float *y = take((size_t)n * (size_t)rows, sizeof *y);
    matmul_run(v, m, x, n, row0, rows, precise, y);
    for (int64_t t = 0; t < n; t++) {
        for (int64_t r = 0; r < rows; r++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < cols; k++) {
                double term = m->values[r * cols + k] * x[t * cols + k];
                want += term;
                size += fabs(term);
            }
            if (r < row0)
                assert_true(y[t * rows + r] == POISON);
            else
                /* NVFP4's factor is multiplied behind the sum, and rounds once more */
                expect_near(y[t * rows + r], want,
                            fabs(want) * (m->tensor.store == STORE_NVFP4 ? 1.2e-7 : 6e-8) +
                                (precise ? 0 : size * 1e-6) + 1e-30,
                            v->name, t * rows + r);
        }
    }
    free(y);
}

static void test_matmul(void **state)
{
    static const enum store STORES[] = {STORE_F32, STORE_BF16, STORE_FP8, STORE_FP4, STORE_NVFP4};
    static const int32_t SHAPES[][2] = {{16, 32}, {24, 128}, {4, 160}, {130, 256}, {33, 384}};
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        for (size_t s = 0; s < sizeof STORES / sizeof *STORES; s++) {
            for (size_t k = 0; k < sizeof SHAPES / sizeof *SHAPES; k++) {
                struct matrix m = matrix_random(STORES[s], SHAPES[k][0], SHAPES[k][1]);
                float *x = random_floats(9 * (size_t)SHAPES[k][1], 3);
                for (int32_t n = 1; n <= 9; n += n == 5 ? 4 : 1) {
                    matmul_check(v, &m, x, n, 0, false);
                    matmul_check(v, &m, x, n, SHAPES[k][0] > 16 ? 16 : 0, true);
                }
                free(x);
                matrix_free(&m);
            }
        }
    }
}

/* One token's outputs are the same bits alone, among others, and whatever rows are asked for. */
static void test_matmul_order(void **state)
{
    static const enum store STORES[] = {STORE_F32, STORE_BF16, STORE_FP8, STORE_FP4, STORE_NVFP4};
    enum { ROWS = 50, COLS = 256, TOKENS = 7 };
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        for (size_t s = 0; s < sizeof STORES / sizeof *STORES; s++) {
            struct matrix m = matrix_random(STORES[s], ROWS, COLS);
            float *x = random_floats(TOKENS * COLS, 3), all[TOKENS * ROWS], one[ROWS];
            matmul_run(v, &m, x, TOKENS, 0, ROWS, false, all);
            for (int t = 0; t < TOKENS; t++) {
                matmul_run(v, &m, x + t * COLS, 1, 0, ROWS, false, one);
                assert_memory_equal(one, all + t * ROWS, sizeof one);
                matmul_run(v, &m, x + t * COLS, 1, 32, ROWS, false, one);
                assert_memory_equal(one + 32, all + t * ROWS + 32, 18 * sizeof *one);
            }
            /* control: another input shows */
            x[5] += 1;
            matmul_run(v, &m, x, 1, 0, ROWS, false, one);
            assert_memory_not_equal(one, all, sizeof one);
            free(x);
            matrix_free(&m);
        }
    }
}

/* Every code under every scale that matters, one weight at a time. */
static void test_codes(void **state)
{
    static const int SCALES[] = {1, 100, 127, 140};
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        uint8_t bytes[16 * 128], scale[4];
        float x[128], y[16];
        struct matrix m = {.tensor = {bytes, scale, 16, 128, STORE_FP8, 0}, .values = NULL};
        for (size_t s = 0; s < 4; s++) {
            memset(scale, SCALES[s], sizeof scale);
            for (int code = 0; code < 256; code++) {
                if ((code & 127) == 127)
                    continue; /* NaN: refused by the loader */
                memset(bytes, 0, sizeof bytes);
                for (int r = 0; r < 16; r++)
                    bytes[r * 128 + (code + r) % 128] = (uint8_t)code;
                for (int k = 0; k < 128; k++)
                    x[k] = 1;
                matmul_run(v, &m, x, 1, 0, 16, false, y);
                for (int r = 0; r < 16; r++)
                    assert_true(y[r] == (float)ldexp(e4m3_value((uint8_t)code), SCALES[s] - 127));
            }
        }
    }
}

static void test_weighted_rows(void **state)
{
    enum { ROWS = 37, WIDTH = 512 };
    (void)state;
    float *rows = random_floats(ROWS * WIDTH, 1), *p = random_floats(WEIGHTED_HEADS * ROWS, 1);
    const float **row_at = rows_of(rows, ROWS, WIDTH), **p_at = rows_of(p, WEIGHTED_HEADS, ROWS);
    FOR_EACH_VARIANT(v)
    {
        for (int precise = 0; precise < 2; precise++) {
            for (int heads = 1; heads <= WEIGHTED_HEADS; heads++) {
                float out[WEIGHTED_HEADS * WIDTH], *out_at[WEIGHTED_HEADS];
                for (int i = 0; i < WEIGHTED_HEADS * WIDTH; i++)
                    out[i] = POISON;
                for (int h = 0; h < WEIGHTED_HEADS; h++)
                    out_at[h] = out + h * WIDTH;
                v->sums[precise].weighted_rows(row_at, ROWS, p_at, heads, WIDTH, out_at);
                for (int i = 0; i < WEIGHTED_HEADS * WIDTH; i++) {
                    double want = 0;
                    for (int r = 0; r < ROWS; r++)
                        want += (double)p[i / WIDTH * ROWS + r] * rows[r * WIDTH + i % WIDTH];
                    if (i / WIDTH >= heads)
                        assert_true(out[i] == POISON);
                    else
                        expect_near(out[i], want, precise ? 4e-7 : 5e-6, v->name, i);
                }
            }
        }
    }
    free(rows);
    free(p);
    free(row_at);
    free(p_at);
}

static void test_softmax(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        for (int precise = 0; precise < 2; precise++) {
            for (int n = 1; n < 70; n++) {
                float x[96], in[96];
                double most, sum, want_most = -3, want_sum = 0;
                for (int i = 0; i < n; i++)
                    in[i] = x[i] = (float)(random_unit() * (n % 3 == 0 ? 400 : 10));
                v->sums[precise].softmax(x, n, 0.25f, -3, &most, &sum);
                for (int i = 0; i < n; i++)
                    want_most = fmax(want_most, in[i] * 0.25);
                for (int i = 0; i < n; i++)
                    want_sum += exp(in[i] * 0.25 - want_most);
                expect_near(most, want_most, 0, v->name, n);
                expect_near(sum, want_sum, want_sum * 1e-5, v->name, n);
                for (int i = 0; i < n; i++) {
                    /* float32 keeps 24 bits of the exponent */
                    double at = in[i] * 0.25 - want_most, want = exp(at);
                    double part = precise ? 6e-8 : 3e-7 + (fabs(at) + fabs(want_most)) * 0x1p-23;
                    expect_near(x[i], want, want * part + 1e-37, v->name, i);
                }
            }
        }
    }
}

static void test_pool(void **state)
{
    enum { SLOTS = 128, WIDTH = 128 };
    (void)state;
    float *kappa = random_floats(SLOTS * WIDTH, 2), *gamma = random_floats(SLOTS * WIDTH, 5);
    const float **k = rows_of(kappa, SLOTS, WIDTH), **g = rows_of(gamma, SLOTS, WIDTH);
    FOR_EACH_VARIANT(v)
    {
        for (int precise = 0; precise < 2; precise++) {
            for (int n = 4; n <= SLOTS; n *= 2) {
                float out[WIDTH];
                v->sums[precise].pool(k, g, n, WIDTH, out);
                for (int c = 0; c < WIDTH; c++) {
                    double sum = 0, total = 0;
                    for (int i = 0; i < n; i++) {
                        double e = exp(gamma[i * WIDTH + c]);
                        total += e;
                        sum += e * kappa[i * WIDTH + c];
                    }
                    expect_near(out[c], sum / total, 2e-6, v->name, c);
                }
            }
        }
    }
    free(kappa);
    free(gamma);
    free(k);
    free(g);
}

static void test_rows(void **state)
{
    enum { N = 160 };
    (void)state;
    float *x = random_floats(N, 3), *up = random_floats(N, 15), out[N];
    double score[N] = {0};
    uint16_t weight[N];
    for (int i = 0; i < N; i++)
        weight[i] = (uint16_t)(0x3f00 + i);
    FOR_EACH_VARIANT(v)
    {
        double square = 0;
        for (int i = 0; i < N; i++)
            square += (double)x[i] * x[i];
        expect_near(v->square_sum(x, N), square, square * 1e-14, v->name, 0);
        v->scale_norm(x, weight, 0.7, N, out);
        for (int i = 0; i < N; i++)
            expect_near(out[i], x[i] * 0.7 * bf16_of(weight[i]), 1e-6, v->name, i);
        v->scale_norm(x, NULL, 0.7, N, out);
        for (int i = 0; i < N; i++)
            assert_true(out[i] == (float)(x[i] * 0.7));
        for (int precise = 0; precise < 2; precise++) {
            for (int i = 0; i < N; i++)
                x[i] *= 4; /* beyond the limit on both sides */
            v->sums[precise].swiglu(x, up, 10, 1.25f, N, out);
            for (int i = 0; i < N; i++) {
                double a = fmin(x[i], 10), b = fmax(fmin(up[i], 10), -10);
                expect_near(out[i], a / (1 + exp(-a)) * b * 1.25, 3e-5, v->name, i);
            }
            for (int i = 0; i < N; i++)
                x[i] *= 0.25f;
        }
        memset(score, 0, sizeof score);
        v->relu_add(score, x, -0.3, N);
        v->relu_add(score, up, 0.1, N);
        for (int i = 0; i < N; i++)
            expect_near(score[i], fmax(x[i], 0) * -0.3 + fmax(up[i], 0) * 0.1, 1e-14, v->name, i);
    }
    free(x);
    free(up);
}

/* Nearest value of a grid, even code on ties, by looking at all of them. */
static double nearest(double x, const double *grid, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        double a = fabs(x - grid[i]), b = fabs(x - grid[best]);
        if (a < b || (a == b && i % 2 == 0))
            best = i;
    }
    return grid[best];
}

/* P2, P5, P6 from their definition. */
static void round_reference(const float *x, int n, int group, double max, double amin,
                            const double *grid, int codes, double *out)
{
    for (int at = 0; at < n; at += group) {
        double amax = amin;
        for (int i = at; i < at + group; i++)
            amax = fmax(amax, fabs(x[i]));
        int exponent;
        double fraction = frexp(amax / max, &exponent); /* amax / max = fraction * 2^exponent */
        double scale = ldexp(1, fraction == 0.5 ? exponent - 1 : exponent);
        for (int i = at; i < at + group; i++) {
            double size = nearest(fmin(fabs(x[i]) / scale, max), grid, codes) * scale;
            out[i] = x[i] < 0 ? -size : size;
        }
    }
}

static void test_round_groups(void **state)
{
    static const double FP4[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    double fp8[127];
    (void)state;
    for (int code = 0; code < 127; code++)
        fp8[code] = e4m3_value((uint8_t)code);
    const struct {
        enum round round;
        int group, codes;
        double max, amin;
        const double *grid;
    } KINDS[] = {{ROUND_FP8_128, 128, 127, 448, 1e-4, fp8},
                 {ROUND_FP8_64, 64, 127, 448, 1e-4, fp8},
                 {ROUND_FP4_32, 32, 8, 6, 6 * 0x1p-126, FP4}};
    FOR_EACH_VARIANT(v)
    {
        for (int kind = 0; kind < 3; kind++) {
            for (int run = 0; run < 40; run++) {
                float x[256], out[256];
                double want[256];
                for (int i = 0; i < 256; i++) /* bf16 inputs of widely different size */
                    x[i] =
                        bf16_of((uint16_t)(0x3900 + random_word() % 0x700 + (i % 3 ? 0 : 0x8000)));
                round_reference(x, 256, KINDS[kind].group, KINDS[kind].max, KINDS[kind].amin,
                                KINDS[kind].grid, KINDS[kind].codes, want);
                v->round(KINDS[kind].round, x, 256, out);
                for (int i = 0; i < 256; i++)
                    expect_near(out[i], want[i], 0, v->name, i);
            }
        }
    }
}

/* The numbers that model.md 2.0 gives. */
static void test_round_spots(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        float four[32] = {7, 5, 3, 1, 0.5f, -5}, eight[128] = {500, 448, 13}, small[128] = {1e-5f};
        v->round(ROUND_FP4_32, four, 32, four);
        assert_true(four[0] == 8 && four[1] == 4 && four[2] == 3 && four[3] == 1 && four[4] == 0);
        assert_true(four[5] == -4);
        v->round(ROUND_FP8_128, eight, 128, eight);
        assert_true(eight[0] == 512 && eight[1] == 448 && eight[2] == 13);
        eight[0] = 448;
        eight[1] = 0x1p-9f; /* scale 1: the smallest step survives */
        v->round(ROUND_FP8_128, eight, 128, eight);
        assert_true(eight[0] == 448 && eight[1] == 0x1p-9f);
        v->round(ROUND_FP8_128, small, 128, small); /* amax is 1e-4 at least: scale 2^-22 */
        assert_true(fmod(small[0] / 0x1p-22, 0x1p-9) == 0 && fabs(small[0] - 1e-5) < 1e-6);
    }
}

static void test_round_bf16(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        for (int n = 1; n < 40; n++) {
            float x[40], out[40];
            for (int i = 0; i < 40; i++)
                x[i] = i % 4 == 0 ? 1 + 0x1p-8f * (1 + 2 * (i / 4)) : (float)random_unit();
            for (int i = 0; i < 40; i++)
                out[i] = POISON;
            v->round(ROUND_BF16, x, n, out);
            for (int i = 0; i < 40; i++) {
                int exponent;
                (void)frexp(x[i], &exponent);
                double step = ldexp(1, exponent - 8);
                expect_near(out[i], i < n ? nearbyint(x[i] / step) * step : (double)POISON, 0,
                            v->name, i);
            }
        }
    }
}

static void test_hadamard(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v)
    {
        float x[INDEX_HEAD_DIM], in[INDEX_HEAD_DIM];
        for (int i = 0; i < INDEX_HEAD_DIM; i++)
            in[i] = x[i] = (float)random_unit();
        v->hadamard(x);
        for (int i = 0; i < INDEX_HEAD_DIM; i++) {
            double want = 0; /* Sylvester: the sign is the parity of the common bits */
            for (int k = 0; k < INDEX_HEAD_DIM; k++)
                want += __builtin_parity((unsigned)(i & k)) ? -in[k] : in[k];
            expect_near(x[i], want / sqrt(INDEX_HEAD_DIM), 2e-6, v->name, i);
        }
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
        cmocka_unit_test(test_matmul),      cmocka_unit_test(test_matmul_order),
        cmocka_unit_test(test_codes),       cmocka_unit_test(test_weighted_rows),
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_pool),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_round_groups),
        cmocka_unit_test(test_round_spots), cmocka_unit_test(test_round_bf16),
        cmocka_unit_test(test_hadamard),
    };
    return cmocka_run_group_tests_name("vector functions", tests, setup, NULL);
}
