/*
 * The expert layer under every value of its rows of the precision table: inputs of routed and
 * shared experts, the place of the scaling factor, the clamp, router logits; against a scalar
 * reference in double whose inputs are rounded by the rounding that the value stands for.
 */
#include "tests/unit/kernels_reference.h"

enum { TOKENS = 5, ROUTED = 4, HIDDEN = 256, INNER = 128, TOP = 2, OUT = TOKENS * HIDDEN };

static struct {
    struct matrix w[ROUTED + 1][3];
    struct expert list[ROUTED + 1];
    int32_t chosen[TOKENS * TOP];
    float x[OUT], weights[TOKENS * TOP];
} moe;

static void moe_fill(double size)
{
    float *x = random_floats(OUT, size);
    memcpy(moe.x, x, sizeof moe.x);
    free(x);
    for (int e = 0; e <= ROUTED; e++) {
        enum store store = e == ROUTED ? STORE_FP8 : STORE_FP4;
        moe.w[e][0] = matrix_random(store, INNER, HIDDEN);
        moe.w[e][1] = matrix_random(store, HIDDEN, INNER);
        moe.w[e][2] = matrix_random(store, INNER, HIDDEN);
        moe.list[e] = (struct expert){moe.w[e][0].tensor, moe.w[e][1].tensor, moe.w[e][2].tensor};
    }
    for (int i = 0; i < TOKENS * TOP; i++) {
        moe.chosen[i] = i % TOP == 0 ? i / TOP % 2 : 2 + i / TOP % 2;
        moe.weights[i] = 0.3f + (float)(i % 3) * 0.2f;
    }
}

static void moe_free(void)
{
    for (int e = 0; e <= ROUTED; e++) {
        for (int i = 0; i < 3; i++)
            matrix_free(&moe.w[e][i]);
    }
}

static struct experts_params params_of(float *out)
{
    return (struct experts_params){.experts = moe.list,
                                   .n_routed = ROUTED,
                                   .n_shared = 1,
                                   .x = moe.x,
                                   .chosen = moe.chosen,
                                   .weights = moe.weights,
                                   .n = TOKENS,
                                   .hidden = HIDDEN,
                                   .inner = INNER,
                                   .top = TOP,
                                   .place = {KIND_SCORE, 2},
                                   .scaling = 1.5,
                                   .precise = true,
                                   .limit = SWIGLU_LIMIT,
                                   .out = out};
}

/* One expert's share of a token; `in` rounds the inputs of both products. */
static void model_expert(const struct experts_params *p, int t, int e, enum round in, double weight,
                         double factor, double *sum)
{
    float x[HIDDEN], h[INNER];
    CPU_VECTOR_BASELINE.round(in, p->x + t * HIDDEN, HIDDEN, x);
    for (int i = 0; i < INNER; i++) {
        double a = 0, up = 0;
        for (int k = 0; k < HIDDEN; k++) {
            a += moe.w[e][0].values[i * HIDDEN + k] * x[k];
            up += moe.w[e][2].values[i * HIDDEN + k] * x[k];
        }
        a = fmin(a, p->limit);
        h[i] = (float)(a / (1 + exp(-a)) * fmax(fmin(up, p->limit), -p->limit) * weight);
    }
    CPU_VECTOR_BASELINE.round(in, h, INNER, h);
    for (int d = 0; d < HIDDEN; d++) {
        for (int i = 0; i < INNER; i++)
            sum[d] += moe.w[e][1].values[d * INNER + i] * h[i] * factor;
    }
}

static double model_distance(const struct experts_params *p, const float *got)
{
    double error = 0, size = 0;
    for (int t = 0; t < TOKENS; t++) {
        double sum[HIDDEN] = {0};
        for (int i = 0; i < TOP; i++)
            model_expert(p, t, p->chosen[t * TOP + i], p->round_in, p->weights[t * TOP + i],
                         p->scale == MOE_SCALE_KERNEL ? p->scaling : 1, sum);
        model_expert(p, t, ROUTED, p->round_shared, 1, 1, sum);
        for (int d = 0; d < HIDDEN; d++) {
            error += pow(got[t * HIDDEN + d] - sum[d], 2);
            size += sum[d] * sum[d];
        }
    }
    return sqrt(error / size);
}

/* The cell of the value that ran; every other value of the row was not seen. */
static struct witness_cell seen_of(struct backend *b, enum precision_row row, int value)
{
    static struct witness_table t;
    b->ops->witness_read(b, &t);
    for (int v = 0; v < PRECISION_VALUES_MAX; v++) {
        const struct witness_cell *prefill = &t.cells[row][KIND_SCORE][LEG_PREFILL][v];
        const struct witness_cell *decode = &t.cells[row][KIND_SCORE][LEG_DECODE][v];
        assert_int_equal(prefill->rows, v == value ? TOKENS - 2 : 0);
        assert_int_equal(decode->rows, v == value ? 2 : 0);
    }
    return t.cells[row][KIND_SCORE][LEG_DECODE][value];
}

static void inputs(struct backend *b, float *out, size_t n)
{
    static const enum round ROUNDS_IN[] = {ROUND_NONE, ROUND_FP8_128, ROUND_FP4_32, ROUND_NVFP4};
    moe_fill(0.1);
    assert_int_equal(n, 8 * OUT);
    for (int run = 0; run < 8; run++, out += OUT) {
        struct experts_params p = params_of(out);
        p.round_in = ROUNDS_IN[run / 2];
        p.round_shared = run % 2 == 0 ? ROUND_NONE : ROUND_FP8_128;
        b->ops->experts(b, &p);
        seen_of(b, ROW_MOE_EXPERTS, run / 2);
        assert_true(model_distance(&p, out) < 2e-6);
        p.round_in = ROUNDS_IN[(run / 2 + 1) % 4]; /* controls: other inputs are far */
        assert_true(model_distance(&p, out) > 2e-5);
        p.round_in = ROUNDS_IN[run / 2];
        p.round_shared = run % 2 == 1 ? ROUND_NONE : ROUND_FP8_128;
        assert_true(model_distance(&p, out) > 2e-5);
    }
    moe_free();
}

static void test_inputs(void **state)
{
    (void)state;
    for_each_backend(inputs, (size_t)8 * OUT);
}

/* Twice the factor is twice what the routed experts give: once, and in one place. */
static void scale(struct backend *b, float *out, size_t n)
{
    moe_fill(0.1);
    assert_int_equal(n, 3 * OUT);
    struct experts_params p = params_of(out);
    p.scale = MOE_SCALE_KERNEL;
    for (int run = 0; run < 3; run++) {
        p.out = out + run * OUT;
        p.scaling = 1.5 * run;
        b->ops->experts(b, &p);
        assert_true(seen_of(b, ROW_MOE_SCALE, MOE_SCALE_KERNEL).parameters ==
                    witness_parameter(p.scaling));
        assert_true(model_distance(&p, p.out) < 1e-6);
    }
    for (int i = 0; i < OUT; i++) {
        double once = out[OUT + i] - out[i], twice = out[2 * OUT + i] - out[i];
        assert_true(fabs(twice - 2 * once) <= 1e-5 * (fabs(once) + fabs(out[i])));
    }
    p.scale = MOE_SCALE_GATE; /* the weights carry it, and the kernel leaves them alone */
    b->ops->experts(b, &p);
    static struct witness_table t;
    b->ops->witness_read(b, &t);
    for (int v = 0; v < MOE_SCALE_VALUES; v++)
        assert_int_equal(t.cells[ROW_MOE_SCALE][KIND_SCORE][LEG_DECODE][v].launches, 0);
    assert_true(model_distance(&p, p.out) < 1e-6);
    moe_free();
}

static void test_scale(void **state)
{
    (void)state;
    for_each_backend(scale, (size_t)3 * OUT);
}

static void clamp(struct backend *b, float *out, size_t n)
{
    static const double LIMITS_TRIED[] = {SWIGLU_LIMIT, 0.01, (double)INFINITY};
    moe_fill(4); /* products far beyond the limit */
    assert_int_equal(n, 3 * OUT);
    for (int run = 0; run < 3; run++) {
        struct experts_params p = params_of(out + run * OUT);
        p.limit = LIMITS_TRIED[run];
        b->ops->experts(b, &p);
        int value = run < 2 ? MOE_CLAMP_ON : MOE_CLAMP_OFF;
        assert_true(seen_of(b, ROW_MOE_CLAMP, value).parameters ==
                    witness_parameter((double)(float)p.limit));
        assert_true(model_distance(&p, p.out) < 1e-5);
        p.limit = LIMITS_TRIED[(run + 1) % 3];
        assert_true(model_distance(&p, out + run * OUT) > 0.1); /* control: it is reached */
    }
    moe_free();
}

static void test_clamp(void **state)
{
    (void)state;
    for_each_backend(clamp, (size_t)3 * OUT);
}

/* Scores are bf16 numbers, weights carry the factor or do not. */
static void route(struct backend *b, float *out, size_t n)
{
    enum { EXPERTS = 8 };
    struct matrix gate = matrix_random(STORE_BF16, EXPERTS, HIDDEN);
    float bias[EXPERTS] = {0}, *x = random_floats(OUT, 1);
    int32_t ids[TOKENS] = {0}, experts[TOKENS * TOP];
    assert_int_equal(n, 4 * TOKENS * TOP);
    for (int run = 0; run < 4; run++, out += TOKENS * TOP) {
        struct route_params p = {
            .gate = gate.tensor,
            .bias = {bias, NULL, EXPERTS, 0, STORE_F32},
            .x = x,
            .ids = ids,
            .n = TOKENS,
            .hidden = HIDDEN,
            .top = TOP,
            .place = {KIND_SCORE, 2},
            .scale = run / 2,
            .scaling = 1.5,
            .round = run % 2 == 0 ? ROUND_NONE : ROUND_BF16,
            .precise = true,
            .experts = experts,
            .weights = out,
        };
        b->ops->route(b, &p);
        for (int t = 0; t < TOKENS; t++) {
            double sum = 0, score[TOP];
            for (int i = 0; i < TOP; i++) {
                double dot = 0;
                for (int k = 0; k < HIDDEN; k++)
                    dot += gate.values[experts[t * TOP + i] * HIDDEN + k] * x[t * HIDDEN + k];
                float logit = (float)dot;
                CPU_VECTOR_BASELINE.round(p.round, &logit, 1, &logit);
                sum += score[i] = sqrt(log1p(exp(logit)));
            }
            for (int i = 0; i < TOP; i++)
                expect_near(out[t * TOP + i], score[i] / sum * (run / 2 == 0 ? 1.5 : 1), 1e-6,
                            "weight", t * TOP + i);
        }
        seen_of(b, ROW_MOE_ROUTE, run % 2);
    }
    assert_memory_not_equal(out - 4 * TOKENS * TOP, out - 3 * TOKENS * TOP,
                            TOKENS * TOP * sizeof *out); /* control: bf16 is seen */
    free(x);
    matrix_free(&gate);
}

static void test_route(void **state)
{
    (void)state;
    for_each_backend(route, (size_t)4 * TOKENS * TOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_clamp),
        cmocka_unit_test(test_route),
    };
    cpu_tables_fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
