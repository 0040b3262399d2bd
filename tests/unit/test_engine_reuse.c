/*
 * Continuing a finished timeline: what is reused, what never is, and that no answer changes.
 */
#include "tests/unit/engine_toy.h"

/* A conversation that grows turn by turn, as a client sends it. */
struct history {
    int32_t ids[CONTEXT], n;
};

static void say(struct history *h, uint64_t seed, int32_t n)
{
    memcpy(h->ids + h->n, prompt(seed, n), (size_t)n * sizeof *h->ids);
    h->n += n;
}

/* One turn: the history is the prompt, the expected answer is added to it.  @return tokens reused
 */
static int32_t turn(struct engine *engine, struct history *h, uint64_t name, int32_t tokens_max)
{
    struct engine_request r = request(h->ids, h->n, tokens_max);
    r.reuse_namespace = name;
    int32_t reused = converse(engine, &r);
    enum end_reason reason;
    h->n += expect(&r, h->ids + h->n, &reason);
    return reused;
}

static void test_reuse(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    struct history h = {0};
    say(&h, 1, 300);
    assert_int_equal(turn(engine, &h, NAMESPACE_A, 40), 0);
    for (uint64_t t = 2; t < 12; t++) {
        int32_t fed = h.n - 1; /* the last token was sampled, never fed */
        say(&h, t, 7 + (int32_t)t);
        assert_int_equal(turn(engine, &h, NAMESPACE_A, 40), fed);
    }
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_true(stats.reused_tokens > 0);
    engine_end(engine);
}

static void test_reuse_boundaries(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 1);
    struct history h = {0};
    say(&h, 1, 50);
    turn(engine, &h, NAMESPACE_A, 1); /* leaves exactly the prompt in the timeline */
    struct history same = {0}, longer = {0};
    say(&same, 1, 50);
    assert_int_equal(turn(engine, &same, NAMESPACE_A, 1), 0); /* not longer: nothing to continue */
    say(&longer, 1, 51);
    assert_int_equal(turn(engine, &longer, NAMESPACE_A, 1), 50);
    struct history shorter = {0};
    say(&shorter, 1, 49);
    assert_int_equal(turn(engine, &shorter, NAMESPACE_A, 1), 0);
    engine_end(engine);
}

static void test_reuse_branch(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    struct history trunk = {0};
    say(&trunk, 1, 200);
    turn(engine, &trunk, NAMESPACE_A, 30);
    int32_t fed = trunk.n - 1;
    struct history left = trunk, right = trunk, edited = trunk;
    say(&left, 2, 20);
    say(&right, 3, 20);
    say(&edited, 2, 20);
    edited.ids[fed - 1] ^= 1;
    assert_int_equal(turn(engine, &edited, NAMESPACE_A, 30), 0); /* takes the empty timeline */
    assert_int_equal(turn(engine, &left, NAMESPACE_A, 30), fed);
    assert_int_equal(turn(engine, &right, NAMESPACE_A, 30),
                     0); /* the trunk has grown to the left */
    say(&right, 4, 9);
    assert_true(turn(engine, &right, NAMESPACE_A, 30) > 0);
    engine_end(engine);
}

static void test_reuse_namespaces(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    struct history a = {0};
    say(&a, 1, 100);
    turn(engine, &a, NAMESPACE_A, 10);
    struct history b = a, zero = a;
    say(&a, 2, 10);
    say(&b, 2, 10);
    say(&zero, 2, 10);
    assert_int_equal(turn(engine, &b, NAMESPACE_B, 10), 0);
    assert_int_equal(turn(engine, &zero, 0, 10), 0); /* takes A's timeline: used longest ago */
    assert_int_equal(turn(engine, &zero, 0, 10), 0);
    say(&b, 3, 10);
    assert_true(turn(engine, &b, NAMESPACE_B, 10) > 0);
    assert_int_equal(turn(engine, &a, NAMESPACE_A, 10), 0);
    engine_end(engine);
}

/* The slot that was used longest ago is given away first; an empty one before any. */
static void test_reuse_least_recent(void **state)
{
    (void)state;
    struct engine *engine = engine_start(3, 1);
    struct history h[3] = {{{0}, 0}, {{0}, 0}, {{0}, 0}};
    for (uint64_t i = 0; i < 3; i++) {
        say(&h[i], 10 + i, 60);
        assert_int_equal(turn(engine, &h[i], NAMESPACE_A, 5), 0);
    }
    say(&h[0], 1, 5);
    assert_int_equal(turn(engine, &h[0], NAMESPACE_A, 5),
                     64); /* 0 is the youngest now, 1 the oldest */
    struct history other = {0};
    say(&other, 20, 60);
    assert_int_equal(turn(engine, &other, NAMESPACE_A, 5), 0);
    say(&h[2], 1, 5);
    assert_int_equal(turn(engine, &h[2], NAMESPACE_A, 5), 64);
    say(&h[1], 1, 5);
    assert_int_equal(turn(engine, &h[1], NAMESPACE_A, 5), 0); /* given away to `other` */
    engine_end(engine);
}

/* The comparison must see a reset that leaves something of the timeline before. */
static void test_reuse_negative_control(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 1);
    struct engine_request first = request(prompt(1, 50), 50, 20);
    converse(engine, &first);
    toy.reset_bug = true;
    struct engine_request second = request(prompt(2, 50), 50, 20);
    converse(engine, &second); /* the timeline was emptied while reset still worked */
    struct engine_request third = request(prompt(3, 50), 50, 20);
    struct client *c = submit(engine, &third);
    client_wait_end(c);
    assert_non_null(differs(c, &third));
    engine_end(engine);
    client_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_reuse_boundaries),
        cmocka_unit_test(test_reuse_branch),
        cmocka_unit_test(test_reuse_namespaces),
        cmocka_unit_test(test_reuse_least_recent),
        cmocka_unit_test(test_reuse_negative_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
