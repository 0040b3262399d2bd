/*
 * Penalties and logprobs in the serving core, over the toy network: in company, behind guesses,
 * behind reused prefixes and under masks they are what one request alone gives.
 */
#include "tests/unit/engine_toy.h"

static void penalties(struct engine_request *r, uint64_t seed)
{
    r->sampling.temperature = seed % 3 == 0 ? 0 : 1;
    r->sampling.presence_penalty = (double)(seed % 5) / 2 - 1;
    r->sampling.frequency_penalty = seed % 2 == 0 ? 0 : 0.4;
    r->sampling.repetition_penalty = seed % 4 == 0 ? 1.3 : 0;
}

static void serve_many(int32_t draft_depth)
{
    enum { N = 120, BATCH = 6 };
    struct engine *engine = engine_start_all(3, N, 12, draft_depth);
    for (uint64_t i = 0; i < N; i += BATCH) {
        struct client *clients[BATCH];
        struct engine_request requests[BATCH];
        int32_t ids[BATCH][300];
        for (uint64_t j = 0; j < BATCH; j++) {
            int32_t n = 1 + (int32_t)(mix(i + j) % 299);
            memcpy(ids[j], prompt((i + j) % 5, n), (size_t)n * sizeof **ids);
            requests[j] = request(ids[j], n, 1 + (int32_t)(mix(i + j + 77) % 60));
            requests[j].reuse_namespace = j % 3;
            penalties(&requests[j], i + j);
            clients[j] = submit(engine, &requests[j]);
        }
        for (int j = 0; j < BATCH; j++) {
            check_answer(clients[j], &requests[j]);
            client_destroy(clients[j]);
        }
    }
    engine_end(engine);
}

static void test_penalties(void **state)
{
    (void)state;
    serve_many(0);
    serve_many(DRAFT_DEPTH_MAX);
}

/* Greedy answers of the toy repeat some token; with all of a penalty they hardly can. */
static void test_penalties_change_answers(void **state)
{
    (void)state;
    struct engine_request r = request(prompt(3, 30), 30, 50), bare = r;
    int32_t with[ANSWER_MAX], without[ANSWER_MAX];
    enum end_reason reason;
    r.sampling.presence_penalty = 2;
    expect(&r, with, &reason);
    expect(&bare, without, &reason);
    assert_memory_not_equal(with, without, 50 * sizeof *with);
}

/* What each token's logprobs should be, from the toy's rule. */
static void check_logprobs(const struct client *c, const struct engine_request *r)
{
    const struct profile *official = profile_builtin_at(PROFILE_OFFICIAL);
    uint64_t hash = 0;
    int32_t last = 0;
    assert_int_equal(c->n_logprobs, c->n_answer);
    for (int32_t i = 0; i < r->n_ids; i++)
        hash = toy_next(hash, last = r->ids[i], official);
    for (int32_t i = 0; i < c->n_answer; i++) {
        float logits[VOCAB];
        struct token_logprobs want;
        toy_logits(hash, last, logits);
        sampler_logprobs(logits, VOCAB, c->answer[i], r->top_logprobs, &want);
        const struct token_logprobs *got = &c->logprobs[i];
        assert_true(got->chosen == want.chosen);
        assert_int_equal(got->n_top, r->top_logprobs);
        for (int32_t k = 0; k < want.n_top; k++)
            assert_true(got->top[k].id == want.top[k].id &&
                        got->top[k].logprob == want.top[k].logprob);
        hash = toy_next(hash, last = c->answer[i], official);
    }
}

static bool only_odd(void *user, const int32_t *answer_ids, int32_t n, uint64_t *bits)
{
    (void)user, (void)answer_ids, (void)n;
    bits[0] = UINT64_C(0xAAAAAAAAAAAAAAAA);
    return true;
}

/* They tell about the network: penalties, masks and temperature do not show in them. */
static void test_logprobs(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= DRAFT_DEPTH_MAX; depth++) {
        struct engine *engine = engine_start_all(1, 1, 0, depth);
        for (uint64_t i = 0; i < 12; i++) {
            struct engine_request r = request(prompt(i, 50), 50, 40);
            r.logprobs = true;
            r.top_logprobs = (int32_t)(i * 2) % (LOGPROBS_TOP_MAX + 1);
            if (i % 2 == 1)
                penalties(&r, i);
            if (i % 4 == 2)
                r.mask.fn = only_odd;
            struct client *c = submit(engine, &r);
            client_wait_end(c);
            assert_int_equal(c->n_answer, 40);
            check_logprobs(c, &r);
            client_destroy(c);
        }
        engine_end(engine);
    }
}

static void test_logprobs_asked_for(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 1);
    struct engine_request r = request(prompt(1, 9), 9, 5);
    struct client *c = submit(engine, &r);
    client_wait_end(c);
    assert_int_equal(c->n_logprobs, 0);
    client_destroy(c);
    static const int32_t WRONG[] = {-1, LOGPROBS_TOP_MAX + 1};
    for (int i = 0; i < 2; i++) {
        struct error err;
        r.logprobs = true;
        r.top_logprobs = WRONG[i];
        assert_int_equal(refused(engine, &r, &err), ERR_INPUT);
    }
    engine_end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalties_change_answers),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprobs_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
