/*
 * Guessing ahead, over the toy network, whose guesses are right in two of three cases: answers are
 * what they are without, for every sampling, in company and through the prefix cache.
 */
#include "tests/unit/engine_toy.h"

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
    struct engine *engine = engine_start_all(2, 2, 0, 1);
    for (int32_t tokens = 1; tokens < 60; tokens++) {
        struct engine_request r = request(prompt((uint64_t)tokens, 1 + tokens * 11), 1, tokens);
        r.n_ids = 1 + tokens * 11;
        r.sampling.temperature = tokens % 3 == 0 ? 0 : 1;
        assert_int_equal(converse(engine, &r), 0);
    }
    struct engine_stats stats = stats_of(engine);
    assert_int_equal(stats.answer_tokens, 59 * 60 / 2);
    assert_true(stats.drafts_right > stats.drafts / 2 &&
                stats.drafts_right < stats.drafts * 9 / 10);
    assert_true(stats.drafts <= stats.answer_tokens);
    engine_end(engine);
}

/* A right guess saves a step, a wrong one costs none. */
static void test_steps(void **state)
{
    (void)state;
    struct engine *engine = engine_start_all(1, 1, 0, 1);
    struct engine_request r = request(prompt(1, 100), 100, 200);
    converse(engine, &r);
    struct engine_stats stats = stats_of(engine);
    assert_int_equal(stats.steps, 200 - stats.drafts_right);
    engine_end(engine);
    engine = engine_start(1, 1);
    converse(engine, &r);
    stats = stats_of(engine);
    assert_int_equal(stats.steps, 200);
    assert_int_equal(stats.drafts, 0);
    engine_end(engine);
}

/* A stop id that was guessed ends the answer in front of it, and the timeline goes on from there.
 */
static void test_stop_and_continue(void **state)
{
    (void)state;
    struct engine *engine = engine_start_all(1, 1, 16, 1);
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
    struct engine *engine = engine_start_all(4, N, 12, 1);
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
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_stop_and_continue),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
