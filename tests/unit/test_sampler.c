/*
 * The sampler against an independent one (full sort, as the text of sampler.h reads), against the
 * distribution it promises (chi-square), and at the edges.
 */
#include "engine/model/sampler.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB_FLASH 129280

static const struct sampling GREEDY = {.temperature = 0, .top_p = 1};
static const struct sampling PLAIN = {.temperature = 1, .top_p = 1};

static int32_t pick(const float *logits, int32_t n, struct sampling s, uint64_t position)
{
    struct sampler sampler;
    sampler_init(&sampler, n);
    int32_t id = sampler_pick(&sampler, logits, &s, position);
    sampler_clear(&sampler);
    return id;
}

/* ---- an independent sampler ----------------------------------------------------------------- */

struct candidate {
    double p;
    int32_t id;
};

static int by_probability(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void renormalise(struct candidate *c, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += c[i].p;
    for (int32_t i = 0; i < n; i++)
        c[i].p /= sum;
}

/* Fills p [n] with the probability of each token after all filters. */
static void distribution(const float *logits, int32_t n, const struct sampling *s, double *p)
{
    struct candidate *c = calloc((size_t)n, sizeof *c);
    double max = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        max = fmax(max, logits[i]);
    for (int32_t i = 0; i < n; i++)
        c[i] = (struct candidate){exp((logits[i] - max) / s->temperature), i};
    qsort(c, (size_t)n, sizeof *c, by_probability);
    int32_t kept = n;
    if (s->top_k > 0 && s->top_k < kept)
        kept = s->top_k;
    renormalise(c, kept);
    double held = 0;
    for (int32_t i = 0; i < kept && s->top_p < 1; i++) {
        held += c[i].p;
        if (held >= s->top_p)
            kept = i + 1;
    }
    renormalise(c, kept);
    int32_t last = 0;
    while (last < kept && c[last].p >= s->min_p * c[0].p)
        last++;
    renormalise(c, last);
    memset(p, 0, (size_t)n * sizeof *p);
    for (int32_t i = 0; i < last; i++)
        p[c[i].id] = c[i].p;
    free(c);
}

/* ---- the generator -------------------------------------------------------------------------- */

/* Known answers of Random123, kat_vectors: philox4x32 10. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } KNOWN[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        uint32_t out[4];
        philox4x32(KNOWN[i].counter, KNOWN[i].key, out);
        assert_memory_equal(out, KNOWN[i].out, sizeof out);
    }
}

/* Chi-square statistic of `counts` against `p`; *freedom gets the degrees of freedom.  A token that
 * may not come but did makes it infinite. */
static double chi_square(const int64_t *counts, const double *p, int32_t n, int64_t draws,
                         int32_t *freedom)
{
    double sum = 0;
    *freedom = -1;
    for (int32_t i = 0; i < n; i++) {
        if (p[i] == 0 && counts[i] > 0)
            return INFINITY;
        if (p[i] == 0)
            continue;
        double expected = p[i] * (double)draws;
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
        ++*freedom;
    }
    return sum;
}

/* The value that chi-square exceeds with a chance of about 1e-6 (Wilson and Hilferty). */
static double chi_square_limit(int32_t freedom)
{
    double f = freedom, z = 4.75;
    double cube = 1 - 2 / (9 * f) + z * sqrt(2 / (9 * f));
    return f * cube * cube * cube;
}

static void test_uniform(void **state)
{
    (void)state;
    enum { BINS = 64, DRAWS = 200000 };
    double p[BINS];
    for (int i = 0; i < BINS; i++)
        p[i] = 1.0 / BINS;
    /* along positions, along seeds, and along both high halves */
    for (int way = 0; way < 4; way++) {
        int64_t counts[BINS] = {0};
        for (uint64_t i = 0; i < DRAWS; i++) {
            double u = way == 0   ? sampler_uniform(7, i)
                       : way == 1 ? sampler_uniform(i, 7)
                       : way == 2 ? sampler_uniform(7, i << 32)
                                  : sampler_uniform(i << 32, 7);
            assert_true(u >= 0 && u < 1);
            counts[(int)(u * BINS)]++;
        }
        int32_t freedom;
        double x = chi_square(counts, p, BINS, DRAWS, &freedom);
        assert_true(x < chi_square_limit(freedom));
        assert_true(x > 10); /* too even would not be random either: P(x < 10) is below 1e-12 */
    }
}

/* ---- the distribution ----------------------------------------------------------------------- */

static const float SHAPE[12] = {1.5f, -0.5f, 2.0f, 2.0f, 0.0f,  -3.0f,
                                1.0f, -1.0f, 0.5f, 2.0f, -2.0f, 0.25f};

/* clang-format off */
static const struct sampling SHAPES[] = {
    {.temperature = 1,   .top_p = 1},
    {.temperature = 0.6, .top_p = 1},
    {.temperature = 2,   .top_p = 1},
    {.temperature = 1,   .top_p = 1,    .top_k = 5},
    {.temperature = 1,   .top_p = 1,    .top_k = 2},              /* cuts through a tie */
    {.temperature = 1,   .top_p = 0.8},
    {.temperature = 1,   .top_p = 0.95},
    {.temperature = 1,   .top_p = 1,    .min_p = 0.2},
    {.temperature = 1.3, .top_p = 0.7,  .top_k = 8, .min_p = 0.3},
    {.temperature = 1,   .top_p = 0.5,  .top_k = 3},              /* top-p of what top-k leaves */
    {.temperature = 1,   .top_p = 1,    .top_k = 100},            /* more than there are */
};
/* clang-format on */

static int64_t *draw(const struct sampling *s, int64_t draws)
{
    static int64_t counts[12];
    memset(counts, 0, sizeof counts);
    struct sampler sampler;
    sampler_init(&sampler, 12);
    for (int64_t i = 0; i < draws; i++) {
        int32_t id = sampler_pick(&sampler, SHAPE, s, (uint64_t)i);
        assert_in_range(id, 0, 11);
        counts[id]++;
    }
    sampler_clear(&sampler);
    return counts;
}

static void test_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        struct sampling s = SHAPES[i];
        s.seed = 1000 + i;
        double p[12];
        int32_t freedom;
        distribution(SHAPE, 12, &s, p);
        double x = chi_square(draw(&s, DRAWS), p, 12, DRAWS, &freedom);
        if (freedom > 0 && !(x < chi_square_limit(freedom)))
            fail_msg("row %zu: chi-square %g with %d degrees of freedom", i, x, freedom);
    }
}

/* The test above must see a temperature that is one percent off and a wrong order of filters. */
static void test_distribution_negative_control(void **state)
{
    (void)state;
    enum { DRAWS = 2000000 };
    struct sampling s = PLAIN, off = PLAIN;
    off.temperature = 1.01;
    double p[12];
    int32_t freedom;
    distribution(SHAPE, 12, &off, p);
    assert_true(chi_square(draw(&s, DRAWS), p, 12, DRAWS, &freedom) > chi_square_limit(freedom));

    s = (struct sampling){.temperature = 1, .top_p = 0.5, .top_k = 3};
    struct sampling whole = {.temperature = 1, .top_p = 0.5}; /* top-p as if before top-k */
    distribution(SHAPE, 12, &whole, p);
    assert_true(chi_square(draw(&s, 1000), p, 12, 1000, &freedom) > chi_square_limit(freedom));
}

/* What no whole weight has: such tokens are never drawn, however few the filters cut. */
static bool too_light(float logit, float max, const struct sampling *s)
{
    return exp(((double)logit - max) / s->temperature) < 0.51 / (double)PICK_WHOLE;
}

/* What is kept, on random logits of several widths: every token of the support and no other. */
static void test_support(void **state)
{
    (void)state;
    enum { N = 500 };
    float logits[N];
    double p[N];
    struct sampler sampler;
    sampler_init(&sampler, N);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < N; i++) /* coarse steps: many ties */
            logits[i] = (float)floor(sampler_uniform(99, (uint64_t)(round * N + i)) * 40) / 4;
        struct sampling s = {.temperature = 0.3 + 2 * sampler_uniform(1, (uint64_t)round),
                             .top_p = round % 3 ? 1 - sampler_uniform(2, (uint64_t)round) : 1,
                             .top_k = round % 4 ? 0 : 1 + round % 600,
                             .min_p = round % 5 ? 0 : sampler_uniform(3, (uint64_t)round)};
        distribution(logits, N, &s, p);
        sampler_pick(&sampler, logits, &s, 0); /* leaves the kept weights in its scratch */
        float max = logits[pick(logits, N, GREEDY, 0)];
        for (int i = 0; i < N; i++) {
            bool expected = p[i] > 0 && !too_light(logits[i], max, &s);
            if ((sampler.weights[i] > 0) != expected)
                fail_msg("round %d token %d: weight %g, expected %g", round, i,
                         (double)sampler.weights[i], p[i]);
        }
    }
    sampler_clear(&sampler);
}

/* ---- weights -------------------------------------------------------------------------------- */

/* A weight is what it says, to its last unit; of the greatest it is 1, and it never grows as a
 * logit falls. */
static void test_weights(void **state)
{
    (void)state;
    static const double TEMPERATURES[] = {1, 0.1, 0.7, 3, 1e-300, 1e300, DBL_MIN, DBL_TRUE_MIN};
    for (size_t t = 0; t < sizeof TEMPERATURES / sizeof TEMPERATURES[0]; t++) {
        double scale = pick_scale(TEMPERATURES[t]);
        int64_t before = PICK_WHOLE;
        assert_true(pick_weight(2.5f, 2.5f, scale) == PICK_WHOLE);
        assert_true(pick_weight(-INFINITY, 2.5f, scale) == 0);
        for (float logit = 2.5f; logit > -40; logit -= 0.01f) {
            long double exact = expl(((long double)logit - 2.5L) / (long double)TEMPERATURES[t]) *
                                (long double)PICK_WHOLE;
            int64_t weight = pick_weight(logit, 2.5f, scale);
            assert_true(fabsl((long double)weight - exact) <= 1.02L);
            assert_true(weight <= before);
            before = weight;
        }
    }
}

/* Sums at their largest, and draws at both ends. */
static void test_whole_numbers(void **state)
{
    (void)state;
    const int64_t most = PICK_WHOLE * TOKENIZER_VOCAB_MAX;
    assert_true(most / PICK_WHOLE == TOKENIZER_VOCAB_MAX);
    assert_true(pick_target(0, most) == 0 && pick_target(UINT64_MAX, most) == most - 1);
    assert_true(pick_target(UINT64_MAX, 1) == 0);
    assert_true(pick_target(UINT64_C(1) << 63, 7) == 3);
    assert_true(pick_mass(1e-300, most) == 1 && pick_mass(0.5, 10) == 5);
    assert_true(pick_mass(0x1.fffffffffffffp-1, most) <= most);
    assert_true(pick_mass(0x1.fffffffffffffp-1, most - 1) <= most - 1);
    assert_true(!pick_below(PICK_WHOLE, 1) && pick_below(PICK_WHOLE - 1, 1) && !pick_below(0, 0));
}

/* ---- edges ---------------------------------------------------------------------------------- */

static void test_greedy(void **state)
{
    (void)state;
    assert_int_equal(pick(SHAPE, 12, GREEDY, 0), 2); /* 2, 3 and 9 tie: the lowest */
    float one[1] = {-5};
    assert_int_equal(pick(one, 1, GREEDY, 0), 0);
    float zeros[2] = {-0.0f, 0.0f};
    assert_int_equal(pick(zeros, 2, GREEDY, 0), 0);
}

static void test_narrow(void **state)
{
    (void)state;
    static const struct sampling NARROW[] = {
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1e-300},
        {.temperature = 1, .top_p = 1e-9, .top_k = 5},
        {.temperature = 1e-300, .top_p = 1e-9}, /* three tie at the top: all of the mass */
    };
    for (size_t i = 0; i < sizeof NARROW / sizeof NARROW[0]; i++) {
        for (uint64_t position = 0; position < 200; position++)
            assert_int_equal(pick(SHAPE, 12, NARROW[i], position), 2);
    }
    const struct sampling ties = {.temperature = 1, .top_p = 1, .min_p = 1};
    for (uint64_t position = 0; position < 200; position++) {
        int32_t id = pick(SHAPE, 12, ties, position);
        assert_true(id == 2 || id == 3 || id == 9);
    }
}

static void test_barred_tokens(void **state)
{
    (void)state;
    float logits[12];
    for (int i = 0; i < 12; i++)
        logits[i] = -INFINITY;
    logits[7] = -1e30f;
    static const struct sampling WAYS[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1, .top_p = 1},
        {.temperature = 1, .top_p = 0.9, .top_k = 4, .min_p = 0.1},
        {.temperature = 1e-300, .top_p = 0.5},
        {.temperature = 1e300, .top_p = 0.5},
    };
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        for (uint64_t position = 0; position < 50; position++)
            assert_int_equal(pick(logits, 12, WAYS[i], position), 7);
    }
}

static void test_faults(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, -NAN, INFINITY};
    static const struct sampling WAYS[] = {{.temperature = 0, .top_p = 1},
                                           {.temperature = 1, .top_p = 0.9}};
    for (size_t b = 0; b < sizeof BAD / sizeof BAD[0]; b++) {
        for (int at = 0; at < 12; at++) {
            float logits[12];
            memcpy(logits, SHAPE, sizeof logits);
            logits[at] = BAD[b];
            assert_int_equal(pick(logits, 12, WAYS[0], 0), SAMPLE_FAULT);
            assert_int_equal(pick(logits, 12, WAYS[1], 0), SAMPLE_FAULT);
        }
    }
    float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(pick(none, 3, WAYS[0], 0), SAMPLE_FAULT);
    assert_int_equal(pick(none, 3, WAYS[1], 0), SAMPLE_FAULT);
}

static void test_extreme_logits(void **state)
{
    (void)state;
    float logits[4] = {-3.4e38f, 3.4e38f, 3.4e38f, 0};
    for (uint64_t position = 0; position < 100; position++) {
        int32_t id = pick(logits, 4, PLAIN, position);
        assert_true(id == 1 || id == 2);
    }
}

/* The draw depends on seed and position, not on what was drawn before. */
static void test_draw_is_a_function(void **state)
{
    (void)state;
    int32_t forward[100], differs_by_position = 0, differs_by_seed = 0;
    struct sampling other = PLAIN;
    other.seed = 1;
    for (int i = 0; i < 100; i++)
        forward[i] = pick(SHAPE, 12, PLAIN, (uint64_t)i);
    for (int i = 99; i >= 0; i--) {
        assert_int_equal(pick(SHAPE, 12, PLAIN, (uint64_t)i), forward[i]);
        differs_by_position += i > 0 && forward[i] != forward[i - 1];
        differs_by_seed += pick(SHAPE, 12, other, (uint64_t)i) != forward[i];
    }
    assert_true(differs_by_position > 50 && differs_by_seed > 50);
}

/* At the vocabulary of flash, filters keep what a full sort keeps. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    float *logits = calloc(VOCAB_FLASH, sizeof *logits);
    double *p = calloc(VOCAB_FLASH, sizeof *p);
    struct sampler sampler;
    sampler_init(&sampler, VOCAB_FLASH);
    for (int i = 0; i < VOCAB_FLASH; i++)
        logits[i] = (float)(12 * sampler_uniform(5, (uint64_t)i) - 6);
    static const struct sampling WAYS[] = {{.temperature = 1, .top_p = 0.95},
                                           {.temperature = 1, .top_p = 1, .top_k = 50},
                                           {.temperature = 0.6, .top_p = 0.9, .top_k = 100000}};
    for (size_t w = 0; w < sizeof WAYS / sizeof WAYS[0]; w++) {
        distribution(logits, VOCAB_FLASH, &WAYS[w], p);
        int32_t id = sampler_pick(&sampler, logits, &WAYS[w], 3);
        assert_true(p[id] > 0);
        int64_t kept = 0, expected = 0, differing = 0;
        for (int i = 0; i < VOCAB_FLASH; i++) {
            kept += sampler.weights[i] > 0;
            expected += p[i] > 0;
            differing += (sampler.weights[i] > 0) != (p[i] > 0);
        }
        assert_true(kept > 0 && expected > 0);
        assert_true(differing <= 1); /* two orders of summing may part at the last candidate */
    }
    sampler_clear(&sampler);
    free(p);
    free(logits);
}

static void test_check(void **state)
{
    (void)state;
    static const struct {
        struct sampling s;
        const char *field; /* NULL: good */
    } CASES[] = {
        {{.temperature = 0, .top_p = 1}, NULL},
        {{.temperature = 2, .top_p = 0.1, .min_p = 1, .top_k = 1 << 30}, NULL},
        {{.temperature = -0.1, .top_p = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature"},
        {{.temperature = 1, .top_p = 0}, "top_p"},
        {{.temperature = 1, .top_p = 1.01}, "top_p"},
        {{.temperature = 1, .top_p = NAN}, "top_p"},
        {{.temperature = 1, .top_p = 1, .min_p = -1}, "min_p"},
        {{.temperature = 1, .top_p = 1, .min_p = 1.5}, "min_p"},
        {{.temperature = 1, .top_p = 1, .min_p = NAN}, "min_p"},
        {{.temperature = 1, .top_p = 1, .top_k = -1}, "top_k"},
        {{.top_p = 1, .presence_penalty = 2, .frequency_penalty = -2}, NULL},
        {{.top_p = 1, .presence_penalty = -2, .frequency_penalty = 2}, NULL},
        {{.top_p = 1, .repetition_penalty = 2}, NULL},
        {{.top_p = 1, .presence_penalty = 2.1}, "presence_penalty"},
        {{.top_p = 1, .presence_penalty = NAN}, "presence_penalty"},
        {{.top_p = 1, .frequency_penalty = -2.1}, "frequency_penalty"},
        {{.top_p = 1, .frequency_penalty = NAN}, "frequency_penalty"},
        {{.top_p = 1, .repetition_penalty = -1}, "repetition_penalty"},
        {{.top_p = 1, .repetition_penalty = 2.1}, "repetition_penalty"},
        {{.top_p = 1, .repetition_penalty = NAN}, "repetition_penalty"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct error err = {0};
        enum status status = sampling_check(&CASES[i].s, &err);
        assert_int_equal(status, CASES[i].field == NULL ? OK : ERR_INPUT);
        if (CASES[i].field != NULL)
            assert_memory_equal(err.text, CASES[i].field, strlen(CASES[i].field));
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* A mask is the same as a vocabulary without the barred tokens. */
static void test_bar(void **state)
{
    (void)state;
    enum { N = 150 };
    static const struct sampling WAYS[] = {{.temperature = 0, .top_p = 1},
                                           {.temperature = 1, .top_p = 1},
                                           {.temperature = 0.8, .top_p = 0.7},
                                           {.temperature = 1.2, .top_p = 1, .top_k = 5},
                                           {.temperature = 1, .top_p = 0.9, .min_p = 0.1}};
    for (uint64_t round = 0; round < 200; round++) {
        float all[N], left[N];
        int32_t ids[N], n = 0;
        uint64_t allowed[(N + 63) / 64];
        memset(allowed, 0xFF, sizeof allowed); /* bits beyond the vocabulary mean nothing */
        for (int32_t i = 0; i < N; i++) {
            all[i] = (float)(10 * sampler_uniform(round, (uint64_t)i));
            if (i != 3 && sampler_uniform(round, (uint64_t)(N + i)) < 0.8) {
                allowed[i / 64] &= ~(UINT64_C(1) << i % 64);
            } else {
                left[n] = all[i];
                ids[n++] = i;
            }
        }
        assert_true(sampler_bar(all, allowed, N));
        for (size_t w = 0; w < sizeof WAYS / sizeof WAYS[0]; w++)
            assert_int_equal(pick(all, N, WAYS[w], round), ids[pick(left, n, WAYS[w], round)]);
    }
}

static void test_bar_faults(void **state)
{
    (void)state;
    float logits[70];
    uint64_t allowed[2] = {0, UINT64_MAX << 6}; /* only bits beyond the vocabulary */
    for (int i = 0; i < 70; i++)
        logits[i] = (float)i;
    assert_false(sampler_bar(logits, allowed, 70));
    assert_int_equal(pick(logits, 70, PLAIN, 0), SAMPLE_FAULT);
    for (int i = 0; i < 70; i++)
        logits[i] = (float)i;
    allowed[1] = 1; /* a fault stays one where the token is barred */
    logits[5] = NAN;
    assert_true(sampler_bar(logits, allowed, 70));
    assert_int_equal(pick(logits, 70, PLAIN, 0), SAMPLE_FAULT);
    logits[5] = 0;
    assert_true(sampler_bar(logits, allowed, 70));
    assert_int_equal(pick(logits, 70, PLAIN, 0), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_distribution_negative_control),
        cmocka_unit_test(test_support),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_barred_tokens),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_draw_is_a_function),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_bar_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
