/*
 * Guessing ahead, over the toy network, whose guesses are right in two of three cases: answers are
 * what they are without, for every sampling, in company and through the prefix cache.
 */
#include "tests/unit/engine_toy.h"

#include "engine/serve/schedule.h"

static struct engine_stats stats_of(struct engine *engine)
{
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    return stats;
}

/* Greedy and sampled, every length of answer: the last tokens are where a guess must not reach. */
static void test_answers(void **state)
{
    (void)state;
    for (int32_t depth = 1; depth <= DRAFT_DEPTH_MAX; depth++) {
        struct engine *engine = engine_start_all(2, 2, 0, depth);
        for (int32_t tokens = 1; tokens < 60; tokens++) {
            struct engine_request r =
                request(prompt((uint64_t)tokens, 1 + tokens * 11), 1 + tokens * 11, tokens);
            r.sampling.temperature = tokens % 3 == 0 ? 0 : 1;
            assert_int_equal(converse(engine, &r), 0);
        }
        struct engine_stats stats = stats_of(engine);
        assert_int_equal(stats.answer_tokens, 59 * 60 / 2);
        assert_true(stats.drafts_right > stats.drafts / 3 &&
                    stats.drafts_right < stats.drafts * 9 / 10);
        assert_int_equal(stats.steps, toy.steps);
        engine_end(engine);
    }
}

/* A right guess saves a step, a wrong one costs none. */
static void test_steps(void **state)
{
    (void)state;
    uint64_t before = 200;
    for (int32_t depth = 0; depth <= DRAFT_DEPTH_MAX; depth++) {
        struct engine *engine = engine_start_all(1, 1, 0, depth);
        struct engine_request r = request(prompt(1, 100), 100, 200);
        converse(engine, &r);
        struct engine_stats stats = stats_of(engine);
        assert_int_equal(stats.steps, 200 - stats.drafts_right);
        assert_int_equal(stats.drafts == 0, depth == 0);
        assert_true(depth > 1 || stats.steps <= before);
        before = stats.steps;
        engine_end(engine);
    }
}

/* A timeline whose guesses are never right stops guessing, but for a try now and then. */
static void test_gives_up(void **state)
{
    (void)state;
    struct engine *engine = engine_start_all(1, 1, 0, DRAFT_DEPTH_MAX);
    struct engine_request r = request(prompt(4, 100), 100, 500);
    toy.never_right = true;
    converse(engine, &r);
    struct engine_stats stats = stats_of(engine);
    assert_int_equal(stats.drafts_right, 0);
    assert_in_range(stats.drafts, 500 / (DRAFT_RETRY + 1), 500 / DRAFT_RETRY + 4 * DRAFT_MEMORY);
    engine_end(engine);
}

/* The many at once guess less deep, and too many not at all. */
static void test_load(void **state)
{
    (void)state;
    static const struct {
        int32_t depth, n;
        double right;
        int32_t quiet, want;
    } CASES[] = {
        {3, 1, 1, 0, 3},
        {3, DRAFT_STEP_MAX / 2, 1, 0, 2},
        {3, DRAFT_STEP_MAX, 1, 0, 1},
        {3, DRAFT_STEP_MAX + 1, 1, 1000, 0},
        {0, 1, 1, 1000, 0},
        {1, 1, 1, 0, 1},
        {3, 1, 0.8, 0, 2},
        {3, 1, 0.65, 0, 1},
        {3, 1, 0.5, 0, 0},
        {3, 1, 0.5, DRAFT_RETRY - 1, 0},
        {3, 1, 0, DRAFT_RETRY, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_int_equal(
            schedule_draft_depth(CASES[i].depth, CASES[i].n, CASES[i].right, CASES[i].quiet),
            CASES[i].want);
}

/* ---- the distribution ----------------------------------------------------------------------- */

#define CHOICES 3 /* of each token, by top-k */
#define CELLS   (CHOICES * CHOICES * CHOICES)

/* What the sampler's filters leave of the toy's logits. */
static void chances(uint64_t hash, int32_t last, int32_t ids[CHOICES], double p[CHOICES])
{
    float logits[VOCAB];
    struct token_logprobs top;
    double sum = 0;
    toy_logits(hash, last, logits);
    sampler_logprobs(logits, VOCAB, 0, CHOICES, &top);
    for (int i = 0; i < CHOICES; i++) {
        ids[i] = top.top[i].id;
        p[i] = exp(top.top[i].logprob);
        sum += p[i];
    }
    for (int i = 0; i < CHOICES; i++)
        p[i] /= sum;
}

/* The chance of each answer of three tokens, and where it was counted. */
static double chi_square(const struct engine_request *r, const int32_t (*answers)[3], int32_t n)
{
    const struct profile *official = profile_builtin_at(PROFILE_OFFICIAL);
    uint64_t hash = 0;
    for (int32_t i = 0; i < r->n_ids; i++)
        hash = toy_next(hash, r->ids[i], official);
    double chi = 0;
    for (int cell = 0; cell < CELLS; cell++) {
        int32_t path[3], ids[CHOICES], last = r->ids[r->n_ids - 1];
        double p[CHOICES], expected = n;
        uint64_t at = hash;
        for (int i = 0, rest = cell; i < 3; i++, rest /= CHOICES) {
            chances(at, last, ids, p);
            path[i] = last = ids[rest % CHOICES];
            expected *= p[rest % CHOICES];
            at = toy_next(at, last, official);
        }
        int32_t seen = 0;
        for (int32_t i = 0; i < n; i++)
            seen += memcmp(answers[i], path, sizeof path) == 0;
        chi += (seen - expected) * (seen - expected) / expected;
    }
    return chi;
}

/* Sampled answers are distributed as the network says, with guesses as without; and the test sees
 * what a guess does that is kept because it was possible. */
static void test_distribution(void **state)
{
    (void)state;
    enum { N = 3000 };
    const double limit = 58; /* chi-square of 26 degrees: exceeded once in 3,000 tries */
    static int32_t answers[N][3];
    struct engine_request r = request(prompt(8, 20), 20, 3);
    r.sampling = (struct sampling){.temperature = 1, .top_p = 1, .top_k = CHOICES};
    for (int32_t depth = 0; depth <= DRAFT_DEPTH_MAX; depth += DRAFT_DEPTH_MAX) {
        struct engine *engine = engine_start_all(1, 1, 0, depth);
        for (uint64_t i = 0; i < N; i++) {
            r.sampling.seed = mix(i);
            struct client *c = submit(engine, &r);
            client_wait_end(c);
            assert_int_equal(c->n_answer, 3);
            memcpy(answers[i], c->answer, sizeof answers[i]);
            client_destroy(c);
        }
        double chi = chi_square(&r, answers, N);
        if (!(chi < limit))
            fail_msg("depth %d: chi-square %.1f", depth, chi);
        assert_int_equal(stats_of(engine).drafts_right > N / 4, depth > 0);
        engine_end(engine);
    }
    /* Every eighth second token is the likeliest, whatever was drawn. */
    const struct profile *official = profile_builtin_at(PROFILE_OFFICIAL);
    uint64_t hash = 0;
    for (int32_t i = 0; i < r.n_ids; i++)
        hash = toy_next(hash, r.ids[i], official);
    for (int32_t i = 0; i < N; i += 8) {
        int32_t ids[CHOICES];
        double p[CHOICES];
        chances(toy_next(hash, answers[i][0], official), answers[i][0], ids, p);
        answers[i][1] = ids[0];
        chances(toy_next(toy_next(hash, answers[i][0], official), ids[0], official), ids[0], ids,
                p);
        answers[i][2] = ids[i / 8 % CHOICES];
    }
    assert_true(chi_square(&r, answers, N) > limit);
}

/* A stop id that was guessed ends the answer in front of it, and the timeline goes on from there.
 */
static void test_stop_and_continue(void **state)
{
    (void)state;
    struct engine *engine = engine_start_all(1, 1, 16, DRAFT_DEPTH_MAX);
    for (int32_t at = 1; at < 60; at++) {
        int32_t ids[CONTEXT], stop;
        enum end_reason reason;
        struct engine_request r = request(ids, 150, 100);
        r.reuse_namespace = NAMESPACE_A;
        memcpy(ids, prompt(1000 + (uint64_t)at, 150), 150 * sizeof *ids);
        int32_t answer[ANSWER_MAX];
        expect(&r, answer, &reason);
        stop = answer[at];
        r.stop_ids = &stop;
        r.n_stop_ids = 1;
        converse(engine, &r);
        int32_t n = expect(&r, answer, &reason);
        memcpy(ids + 150, answer, (size_t)n * sizeof *ids);
        ids[150 + n] = (stop + 1) % NAN_ID; /* not what was sampled there */
        r.n_ids = 150 + n + 1;
        r.n_stop_ids = 0;
        assert_int_equal(converse(engine, &r), 150 + n);
    }
    assert_true(stats_of(engine).drafts_right > 100);
    engine_end(engine);
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 200, BATCH = 8 };
    struct engine *engine = engine_start_all(4, N, 12, DRAFT_DEPTH_MAX);
    for (uint64_t i = 0; i < N; i += BATCH) {
        struct client *clients[BATCH];
        struct engine_request requests[BATCH];
        int32_t ids[BATCH][500];
        for (uint64_t j = 0; j < BATCH; j++) {
            int32_t n = 1 + (int32_t)(mix(i + j) % 499);
            memcpy(ids[j], prompt((i + j) % 5, n), (size_t)n * sizeof **ids);
            requests[j] = request(ids[j], n, 1 + (int32_t)(mix(i + j + 77) % 60));
            requests[j].reuse_namespace = j % 3;
            clients[j] = submit(engine, &requests[j]);
        }
        for (int j = 0; j < BATCH; j++) {
            check_answer(clients[j], &requests[j]);
            client_destroy(clients[j]);
        }
    }
    struct engine_stats stats = stats_of(engine);
    assert_true(stats.drafts_right > 1000 && stats.reused_tokens > 1000);
    engine_end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),      cmocka_unit_test(test_steps),
        cmocka_unit_test(test_gives_up),     cmocka_unit_test(test_load),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_stop_and_continue),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
