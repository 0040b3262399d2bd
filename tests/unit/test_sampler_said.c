/*
 * What the sampler knows beside the draw: penalties for what was said, and the logprobs that are
 * told; against the plain formulas, token by token.
 */
#include "engine/model/sampler.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 40, SAID = 90 };

static void fill(uint64_t seed, float *logits, int32_t *ids)
{
    for (int32_t i = 0; i < N; i++)
        logits[i] = (float)(20 * sampler_uniform(seed, (uint64_t)i) - 10);
    for (int32_t i = 0; i < SAID; i++)
        ids[i] = (int32_t)(N / 2 * sampler_uniform(seed, (uint64_t)(1000 + i)));
}

/* ---- penalties ------------------------------------------------------------------------------ */

static int32_t count_of(const int32_t *ids, int32_t n, int32_t id)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += ids[i] == id;
    return count;
}

/* The text of sampler.h, for one token. */
static double plain(double logit, const struct sampling *s, int32_t in_prompt, int32_t in_answer)
{
    if (s->repetition_penalty != 0 && in_prompt + in_answer > 0)
        logit = logit > 0 ? logit / s->repetition_penalty : logit * s->repetition_penalty;
    if (in_answer > 0)
        logit -= s->presence_penalty;
    return logit - in_answer * s->frequency_penalty;
}

static const struct sampling PENALTIES[] = {
    {.presence_penalty = 1.5},
    {.frequency_penalty = 0.3},
    {.presence_penalty = -2, .frequency_penalty = -0.7},
    {.repetition_penalty = 1.2},
    {.repetition_penalty = 0.5},
    {.presence_penalty = 0.1, .frequency_penalty = 0.2, .repetition_penalty = 1.7},
};

/* Tokens of the prompt, of the answer, of both and of neither; said once and often. */
static void test_penalties(void **state)
{
    (void)state;
    struct sampler sampler;
    sampler_init(&sampler, N);
    int32_t changed = 0;
    for (uint64_t round = 0; round < 60; round++) {
        const struct sampling *s = &PENALTIES[round % (sizeof PENALTIES / sizeof *PENALTIES)];
        float logits[N], before[N];
        int32_t ids[SAID], n_prompt = (int32_t)(round * 7 % SAID);
        fill(round, logits, ids);
        memcpy(before, logits, sizeof before);
        sampler_penalise(&sampler, logits, s, ids, n_prompt, SAID - n_prompt);
        for (int32_t id = 0; id < N; id++) {
            int32_t in_prompt = count_of(ids, n_prompt, id);
            int32_t in_answer = count_of(ids + n_prompt, SAID - n_prompt, id);
            assert_true(fabs(logits[id] - plain(before[id], s, in_prompt, in_answer)) < 1e-5);
            assert_int_equal(sampler.counts[id], 0);
            changed += logits[id] != before[id];
        }
    }
    assert_true(changed > 60 * 10);
    sampler_clear(&sampler);
}

/* Off is off to the bit, and nothing is said of an empty answer. */
static void test_penalties_off(void **state)
{
    (void)state;
    static const struct sampling OFF[] = {{.temperature = 1}, {.repetition_penalty = 1}};
    struct sampler sampler;
    sampler_init(&sampler, N);
    float logits[N], before[N];
    int32_t ids[SAID];
    fill(5, before, ids);
    for (size_t i = 0; i < 2; i++) {
        memcpy(logits, before, sizeof logits);
        sampler_penalise(&sampler, logits, &OFF[i], ids, 30, SAID - 30);
        assert_memory_equal(logits, before, sizeof logits);
    }
    sampler_penalise(&sampler, logits, &PENALTIES[0], ids, SAID, 0);
    assert_memory_equal(logits, before, sizeof logits);
    sampler_clear(&sampler);
}

/* A barred token stays barred, a fault stays a fault, and no penalty makes one. */
static void test_penalties_at_the_edges(void **state)
{
    (void)state;
    const struct sampling tiny = {.repetition_penalty = 1e-300, .presence_penalty = 2};
    float logits[] = {-INFINITY, NAN, INFINITY, 30, -30, 0};
    const int32_t ids[] = {0, 1, 2, 3, 4, 5, 5};
    struct sampler sampler;
    sampler_init(&sampler, 6);
    sampler_penalise(&sampler, logits, &tiny, ids, 3, 4);
    assert_true(logits[0] == -INFINITY && isnan(logits[1]) && logits[2] == INFINITY);
    assert_true(logits[3] == FLT_MAX);
    assert_true(logits[4] == -2 && logits[5] == -2);
    sampler_clear(&sampler);
}

/* ---- logprobs ------------------------------------------------------------------------------- */

static void test_logprobs(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 50; round++) {
        float logits[N];
        int32_t ids[SAID], n_top = (int32_t)(round % (LOGPROBS_TOP_MAX + 1));
        fill(round, logits, ids);
        if (round % 3 == 0) /* ties, and tokens that are barred */
            for (int32_t i = 0; i < N; i++)
                logits[i] = i % 5 == 4 ? -INFINITY : roundf(logits[i] / 4);
        struct token_logprobs out;
        int32_t id = ids[0];
        sampler_logprobs(logits, N, id, n_top, &out);
        long double sum = 0, told = 0;
        for (int32_t i = 0; i < N; i++)
            sum += expl((long double)logits[i]);
        assert_int_equal(out.n_top, n_top);
        for (int32_t k = 0; k < n_top; k++) {
            struct token_logprob top = out.top[k];
            int32_t better = 0; /* tokens in front of it: likelier, or as likely and lower */
            for (int32_t i = 0; i < N; i++)
                better += logits[i] > logits[top.id] || (logits[i] == logits[top.id] && i < top.id);
            assert_int_equal(better, k);
            assert_true(fabsl(expl(top.logprob) - expl(logits[top.id]) / sum) < 1e-6L);
            told += expl(top.logprob);
        }
        assert_true(told < 1 + 1e-5L);
        if (logits[id] == -INFINITY)
            assert_true(out.chosen == -INFINITY);
        else
            assert_true(fabsl(out.chosen - (logits[id] - logl(sum))) < 1e-5L);
    }
}

/* Large and small logits do not overflow; a small vocabulary gives all it has. */
static void test_logprobs_at_the_edges(void **state)
{
    (void)state;
    const float logits[] = {3e38F, -3e38F, 3e38F};
    struct token_logprobs out;
    sampler_logprobs(logits, 3, 1, 20, &out);
    assert_int_equal(out.n_top, 3);
    assert_int_equal(out.top[0].id, 0);
    assert_int_equal(out.top[1].id, 2);
    assert_int_equal(out.top[2].id, 1);
    assert_true(out.chosen < -1e38F);
    const float one[] = {-7};
    sampler_logprobs(one, 1, 0, 1, &out);
    assert_true(out.n_top == 1 && out.chosen == 0 && out.top[0].logprob == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalties_off),
        cmocka_unit_test(test_penalties_at_the_edges),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprobs_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
