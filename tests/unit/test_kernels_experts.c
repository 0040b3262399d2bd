/*
 * Routing and experts of the CPU backend against scalar references in double, as in
 * test_kernels_ops.c.
 */
#include "tests/unit/kernels_reference.h"

static double softplus_root(double z)
{
    return sqrt(z > 30 ? z : log(1 + exp(z)));
}

static void routing(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 11, EXPERTS = 8, HIDDEN = 128, TOP = 3, VOCAB = 5 };
    struct matrix gate = matrix_random(STORE_BF16, EXPERTS, HIDDEN);
    float *x = random_floats(TOKENS * HIDDEN, 30), *bias = random_floats(EXPERTS, 1);
    int64_t table[VOCAB * TOP];
    int32_t ids[TOKENS], experts[TOKENS * TOP];
    for (int i = 0; i < VOCAB * TOP; i++)
        table[i] = (7 - i / TOP - i % TOP * 2 + 8) % 8;
    for (int t = 0; t < TOKENS; t++)
        ids[t] = t % VOCAB;
    memset(x, 0, HIDDEN * sizeof *x); /* token 0: all scores tie, only the bias decides */
    for (int hash = 0; hash < 2; hash++) {
        float *weights = out + hash * TOKENS * TOP;
        struct route_params p = {
            .gate = gate.tensor,
            .bias = {hash ? NULL : bias, NULL, EXPERTS, 0, STORE_F32},
            .tid2eid = {hash ? table : NULL, NULL, VOCAB, TOP, STORE_I64},
            .x = x,
            .ids = ids,
            .n = TOKENS,
            .hidden = HIDDEN,
            .top = TOP,
            .scaling = 1.5,
            .precise = true,
            .experts = experts,
            .weights = weights,
        };
        b->ops->route(b, &p);
        for (int t = 0; t < TOKENS; t++) {
            double score[EXPERTS], sum = 0;
            for (int e = 0; e < EXPERTS; e++) {
                double z = 0;
                for (int k = 0; k < HIDDEN; k++)
                    z += gate.values[e * HIDDEN + k] * x[t * HIDDEN + k];
                score[e] = softplus_root(z);
            }
            for (int i = 0; i < TOP; i++)
                sum += score[experts[t * TOP + i]];
            for (int i = 0; i < TOP; i++) {
                int e = experts[t * TOP + i], better = 0;
                assert_true(i == 0 || e > experts[t * TOP + i - 1]);
                expect_near(weights[t * TOP + i], 1.5 * score[e] / sum, 1e-6, "weight", t);
                for (int other = 0; other < EXPERTS; other++)
                    better += score[other] + bias[other] > score[e] + bias[e] + 1e-9;
                bool listed = false;
                for (int k = 0; k < TOP; k++)
                    listed = listed || table[ids[t] * TOP + k] == e;
                assert_true(hash ? listed : better < TOP);
            }
        }
    }
    assert_int_equal(n, 2 * TOKENS * TOP);
    free(x);
    free(bias);
    matrix_free(&gate);
}

static void test_routing(void **state)
{
    (void)state;
    /* model.md (17) */
    expect_near(softplus_root(0), .8325546, 1e-7, "softplus", 0);
    expect_near(softplus_root(1), 1.1459763, 1e-7, "softplus", 1);
    expect_near(softplus_root(-1), .5596979, 1e-7, "softplus", -1);
    for_each_backend(routing, 2 * 33);
}

static void expert_reference(const struct matrix w[3], const float *x, int hidden, int inner,
                             double weight, double *sum)
{
    double h[128];
    for (int i = 0; i < inner; i++) {
        double a = 0, up = 0;
        for (int k = 0; k < hidden; k++) {
            a += w[0].values[i * hidden + k] * x[k];
            up += w[2].values[i * hidden + k] * x[k];
        }
        a = fmin(a, 10); /* the gate from above only, in front of silu; up on both sides */
        h[i] = a / (1 + exp(-a)) * fmax(fmin(up, 10), -10) * weight;
    }
    for (int d = 0; d < hidden; d++) {
        for (int i = 0; i < inner; i++)
            sum[d] += w[1].values[d * inner + i] * h[i];
    }
}

static void experts(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 17, ROUTED = 5, HIDDEN = 256, INNER = 128, TOP = 2 };
    struct matrix w[ROUTED + 1][3];
    struct expert list[ROUTED + 1];
    int32_t chosen[TOKENS * TOP];
    float *x = random_floats(TOKENS * HIDDEN, 0.1), weights[TOKENS * TOP], one[HIDDEN];
    for (int e = 0; e <= ROUTED; e++) {
        enum store store = e == ROUTED ? STORE_FP8 : STORE_FP4;
        w[e][0] = matrix_random(store, INNER, HIDDEN);
        w[e][1] = matrix_random(store, HIDDEN, INNER);
        w[e][2] = matrix_random(store, INNER, HIDDEN);
        list[e] = (struct expert){w[e][0].tensor, w[e][1].tensor, w[e][2].tensor};
    }
    for (int t = 0; t < TOKENS; t++) {
        chosen[t * TOP] = t % 2; /* experts 2 and 3 get nobody */
        chosen[t * TOP + 1] = 4;
        weights[t * TOP] = (float)random_unit();
        weights[t * TOP + 1] = 1.5f;
    }
    assert_int_equal(n, 2 * TOKENS * HIDDEN);
    for (int precise = 0; precise < 2; precise++, out += TOKENS * HIDDEN) {
        struct experts_params p = {
            .experts = list,
            .n_routed = ROUTED,
            .n_shared = 1,
            .x = x,
            .chosen = chosen,
            .weights = weights,
            .n = TOKENS,
            .hidden = HIDDEN,
            .inner = INNER,
            .top = TOP,
            .precise = precise,
            .limit = SWIGLU_LIMIT,
            .out = out,
        };
        b->ops->experts(b, &p);
        for (int t = 0; t < TOKENS; t++) {
            double want[HIDDEN] = {0}, size = 0;
            for (int i = 0; i < TOP; i++)
                expert_reference(w[chosen[t * TOP + i]], x + t * HIDDEN, HIDDEN, INNER,
                                 weights[t * TOP + i], want);
            expert_reference(w[ROUTED], x + t * HIDDEN, HIDDEN, INNER, 1, want);
            for (int d = 0; d < HIDDEN; d++)
                size = fmax(size, fabs(want[d]));
            for (int d = 0; d < HIDDEN; d++)
                expect_near(out[t * HIDDEN + d], want[d], size * (precise ? 3e-7 : 3e-6), "expert",
                            t * HIDDEN + d);
        }
        p.n = 1; /* a token alone, the last */
        p.x = x + (TOKENS - 1) * HIDDEN;
        p.chosen = chosen + (TOKENS - 1) * TOP;
        p.weights = weights + (TOKENS - 1) * TOP;
        p.out = one;
        b->ops->experts(b, &p);
        assert_memory_equal(one, out + (TOKENS - 1) * HIDDEN, sizeof one);
    }
    for (int e = 0; e <= ROUTED; e++) {
        for (int i = 0; i < 3; i++)
            matrix_free(&w[e][i]);
    }
    free(x);
}

static void test_experts(void **state)
{
    (void)state;
    for_each_backend(experts, 2 * 17 * 256);
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
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests_name("experts", tests, setup, NULL);
}
