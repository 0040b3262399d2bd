/*
 * The serving core on a network that is lost: what runs ends, what waits is answered rightly by the
 * network that comes back, and nothing of before is believed.
 */
#include "tests/unit/engine_toy.h"

#define SHORT 4 /* tokens of an answer */

/* Every step of a test that may take a while is asked for again and again, never timed. */
static void until(struct engine *engine, bool (*so)(const struct engine_stats *stats))
{
    struct engine_stats stats;
    for (int asked = 0;; asked++) {
        engine_stats_get(engine, &stats);
        if (so(&stats))
            return;
        assert_true(asked < WAIT_S * 1000);
        usleep(1000);
    }
}

static bool back_again(const struct engine_stats *stats)
{
    return stats->losses == 1 && !stats->lost;
}

static bool is_lost(const struct engine_stats *stats)
{
    return stats->lost;
}

static bool is_empty(const struct engine_stats *stats)
{
    return stats->running == 0 && stats->waiting == 0;
}

static void lose_now(int32_t recoveries)
{
    pthread_mutex_lock(&toy.lock);
    toy.recoveries_left = recoveries;
    toy.lost = true;
    pthread_mutex_unlock(&toy.lock);
}

/* In the middle of a prompt (step 2) and of an answer (step 7). */
static void test_running_and_waiting(void **state)
{
    (void)state;
    static const int32_t STEPS[] = {2, 7};
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        struct engine *engine = engine_start_cached(1, 2, 8);
        struct engine_request runs = request(prompt(1, 600), 600, 30);
        struct engine_request waits = request(prompt(2, 200), 200, SHORT);
        struct engine_stats stats;
        runs.reuse_namespace = waits.reuse_namespace = NAMESPACE_A;
        toy_hold();
        toy.lose_at = STEPS[i];
        struct client *a = submit(engine, &runs);
        toy_wait_held();
        waits.ids = prompt(2, 200);
        struct client *b = submit(engine, &waits), *c = submit(engine, &waits);
        toy_release();
        client_wait_end(a);
        assert_int_equal(a->reason, END_LOST);
        assert_true(a->n_answer < 30);
        waits.ids = prompt(2, 200);
        check_answer(b, &waits);
        check_answer(c, &waits);
        engine_stats_get(engine, &stats);
        assert_int_equal(stats.losses, 1);
        assert_true(!stats.lost && stats.running + stats.waiting == 0);
        /* What the prefix cache kept of it went with it. */
        runs.ids = prompt(1, 600);
        assert_int_equal(converse(engine, &runs), 0);
        client_destroy(a);
        client_destroy(b);
        client_destroy(c);
        engine_end(engine);
    }
}

/* Nobody asks for anything, and it comes back all the same; what timelines and prefixes held is not
 * continued. */
static void test_idle(void **state)
{
    (void)state;
    toy.watched = true;
    struct engine *engine = engine_start_cached(2, 2, 8);
    struct engine_request r = request(prompt(1, 300), 300, SHORT);
    r.reuse_namespace = NAMESPACE_A;
    assert_int_equal(converse(engine, &r), 0);
    r.n_ids = 299;
    assert_true(converse(engine, &r) > 0); /* the control: it would be reused */
    lose_now(2);
    until(engine, back_again);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.prefix_blocks + stats.prefix_tails, 0);
    assert_int_equal(converse(engine, &r), 0);
    toy.watched = false;
    engine_end(engine);
}

/* Those who wait are told when it does not come back; who comes later is served when it does. */
static void test_patience(void **state)
{
    (void)state;
    toy.watched = true;
    struct engine *engine = engine_start(1, 3);
    lose_now(INT32_MAX);
    until(engine, is_lost);
    struct engine_request r = request(prompt(3, 20), 20, SHORT);
    struct client *told = submit(engine, &r);
    client_wait_end(told);
    assert_int_equal(told->reason, END_LOST);
    assert_int_equal(told->n_prefill, 0);
    client_destroy(told);
    until(engine, is_empty);
    lose_now(0);
    until(engine, back_again);
    converse(engine, &r);
    toy.watched = false;
    engine_end(engine);
}

/* While it is lost, requests can be given up, come to their deadline, and the engine can end. */
static void test_ends(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 3);
    struct engine_request r = request(prompt(3, 20), 20, SHORT), late = r;
    lose_now(WORKER_STARTS_PATIENCE - 1);
    struct client *cancelled = submit(engine, &r);
    engine_cancel(engine, cancelled->number);
    client_wait_end(cancelled);
    assert_int_equal(cancelled->reason, END_CANCELLED);
    until(engine, back_again);
    lose_now(INT32_MAX);
    late.deadline_ms = 1; /* long ago */
    struct client *missed = submit(engine, &late);
    client_wait_end(missed);
    assert_int_equal(missed->reason, END_DEADLINE);
    struct client *last = submit(engine, &r);
    engine_end(engine);
    assert_true(last->ends == 1 && (last->reason == END_CANCELLED || last->reason == END_LOST));
    client_destroy(cancelled);
    client_destroy(missed);
    client_destroy(last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_running_and_waiting),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
