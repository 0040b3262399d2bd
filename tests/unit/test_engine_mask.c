/* Masks in the serving core, over the toy network: what is barred is never sampled. */
#include "tests/unit/engine_toy.h"

/* A mask that knows what it should be asked. */
struct rule {
    int32_t only[64]; /* the one id allowed at each position; -1: all; -2: none */
    int32_t n_only;
    int32_t asked; /* calls */
    int32_t answer[64];
    bool wrong; /* the answer so far was not the one delivered */
};

static bool rule_fill(void *user, const int32_t *answer_ids, int32_t n, uint64_t *bits)
{
    struct rule *rule = user;
    rule->asked++;
    rule->wrong =
        rule->wrong || n >= rule->n_only || bits[0] != 0 ||
        (n > 0 && memcmp(answer_ids, rule->answer, (size_t)(n - 1) * sizeof(int32_t)) != 0);
    if (n > 0)
        rule->answer[n - 1] = answer_ids[n - 1];
    int32_t only = rule->only[n < rule->n_only ? n : 0];
    if (only == -1)
        return false;
    if (only >= 0)
        bits[only / 64] |= UINT64_C(1) << only % 64;
    return true;
}

static void test_forced(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    for (int greedy = 0; greedy < 2; greedy++) {
        struct rule rule = {.n_only = 40};
        for (int i = 0; i < 40; i++)
            rule.only[i] = (i * 7 + greedy) % (VOCAB - 1);
        struct engine_request r = request(prompt(2, 300), 300, 40);
        r.sampling.temperature = greedy ? 0 : 1.3;
        r.sampling.top_k = 3;
        r.mask = (struct engine_mask){rule_fill, &rule};
        struct client *c = submit(engine, &r);
        client_wait_end(c);
        assert_int_equal(c->reason, END_LENGTH);
        assert_int_equal(c->n_answer, 40);
        assert_memory_equal(c->answer, rule.only, 40 * sizeof(int32_t));
        assert_int_equal(rule.asked, 40);
        assert_false(rule.wrong);
        client_destroy(c);
    }
    engine_end(engine);
}

/* A mask that bars nothing changes nothing. */
static void test_no_restriction(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct rule rule = {.n_only = 50};
    for (int i = 0; i < 50; i++)
        rule.only[i] = -1;
    struct engine_request r = request(prompt(5, 20), 20, 50);
    r.mask = (struct engine_mask){rule_fill, &rule};
    assert_int_equal(converse(engine, &r), 0);
    assert_int_equal(rule.asked, 50);
    assert_false(rule.wrong);
    engine_end(engine);
}

static void test_nothing_allowed(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct rule rule = {.only = {4, 4, -2}, .n_only = 3};
    struct engine_request r = request(prompt(5, 20), 20, 50);
    r.mask = (struct engine_mask){rule_fill, &rule};
    struct client *c = submit(engine, &r);
    client_wait_end(c);
    assert_int_equal(c->reason, END_FAULT);
    assert_int_equal(c->n_answer, 2);
    assert_int_equal(rule.asked, 3);
    client_destroy(c);
    engine_end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_no_restriction),
        cmocka_unit_test(test_nothing_allowed),
    };
    return cmocka_run_group_tests_name("engine_mask", tests, NULL, NULL);
}
