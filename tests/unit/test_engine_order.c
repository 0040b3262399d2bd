/*
 * Who goes first and who has to go, over the toy network: priorities, deadlines, and what a client
 * is told when the queue is full.
 */
#include "tests/unit/engine_toy.h"

#include "engine/base/clock.h"

/* The order in which requests of these priorities start behind one that runs. */
static void check_order(const int32_t *priorities, const int32_t *want, int32_t n)
{
    struct engine *engine = engine_start(1, 200);
    toy_hold();
    struct engine_request r = request(prompt(6, 30), 30, 1);
    struct client *first = submit(engine, &r), *clients[200];
    toy_wait_held();
    for (int32_t i = 0; i < n; i++) {
        r.priority = priorities[i];
        clients[i] = submit(engine, &r);
    }
    toy_release();
    check_answer(first, &r);
    for (int32_t i = 0; i < n; i++) {
        check_answer(clients[i], &r);
        if (clients[i]->order != 1 + want[i])
            fail_msg("request %d started as number %d, not %d", i, clients[i]->order, 1 + want[i]);
        client_destroy(clients[i]);
    }
    client_destroy(first);
    engine_end(engine);
}

static void test_priority(void **state)
{
    (void)state;
    static const int32_t PRIORITIES[] = {0, -1, 2, 0, 4, 2, -4}, ORDER[] = {3, 5, 1, 4, 0, 2, 6};
    check_order(PRIORITIES, ORDER, 7);
}

/* One less important request in front of many: it starts after PRIORITY_PATIENCE of them. */
static void test_patience(void **state)
{
    (void)state;
    int32_t priorities[40] = {0}, order[40] = {PRIORITY_PATIENCE};
    for (int32_t i = 1; i < 40; i++) {
        priorities[i] = 1;
        order[i] = i <= PRIORITY_PATIENCE ? i - 1 : i;
    }
    check_order(priorities, order, 40);
}

static void test_priority_refused(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 1);
    struct engine_request r = request(prompt(6, 30), 30, 1);
    struct error err;
    for (int32_t sign = -1; sign <= 1; sign += 2) {
        r.priority = sign * PRIORITY_MAX;
        assert_int_equal(refused(engine, &r, &err), OK);
        r.priority += sign;
        assert_int_equal(refused(engine, &r, &err), ERR_INPUT);
    }
    engine_end(engine);
}

static void nap(int32_t ms)
{
    const struct timespec time = {0, ms * 1000000L};
    nanosleep(&time, NULL);
}

/* A deadline ends a running request behind the step in which it passes, a waiting one unstarted;
 * what was fed can be continued. */
static void test_deadline(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 4);
    toy_hold();
    struct engine_request r = request(prompt(6, 700), 700, 300);
    r.reuse_namespace = NAMESPACE_A;
    r.deadline_ms = clock_ms() + 20;
    struct client *running = submit(engine, &r);
    toy_wait_held();
    struct client *waiting = submit(engine, &r);
    r.deadline_ms = clock_ms() + 1000 * 1000;
    struct client *patient = submit(engine, &r);
    nap(30);
    toy_release();
    client_wait_end(running);
    assert_int_equal(running->reason, END_DEADLINE);
    assert_int_equal(running->n_answer, 0);
    client_wait_end(waiting);
    assert_int_equal(waiting->reason, END_DEADLINE);
    assert_int_equal(waiting->n_prefill, 0);
    check_answer(patient, &r);
    assert_int_equal(patient->reused, SPAN_TOKENS_MAX);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    client_destroy(running);
    client_destroy(waiting);
    client_destroy(patient);
    engine_end(engine);
}

static void test_retry_after(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 1);
    assert_int_equal(engine_retry_after_s(engine), 1);
    toy_hold();
    struct engine_request r = request(prompt(6, 30), 30, 1);
    struct client *c = submit(engine, &r);
    toy_wait_held();
    for (int i = 0; i < 16; i++)
        nap(100);
    toy_release();
    check_answer(c, &r);
    assert_in_range(engine_retry_after_s(engine), 2, RETRY_AFTER_S_MAX);
    client_destroy(c);
    engine_end(engine);
}

/* Lets the held step go once the engine goes down: a full one says why it refuses. */
static void *release_when_down(void *engine)
{
    struct engine_request r = request(prompt(6, 30), 30, 1);
    struct error err = {0};
    do {
        nap(1);
        ASSERT(refused(engine, &r, &err) == ERR_CAPACITY);
    } while (strstr(err.text, "goes down") == NULL);
    toy_release();
    return NULL;
}

/* Asks again as soon as it is told that it is over. */
static void ask_again(void *user, const struct engine_event *event)
{
    struct client *c = user;
    struct error err;
    if (event->kind != EVENT_END)
        return;
    c->ends++;
    struct engine_request r = request(prompt(6, 30), 30, 500);
    c->n_prefill = engine_submit(c->engine, &r, ask_again, c, &c->number, &err);
}

/* Who comes while the engine goes down is refused, not taken and forgotten. */
static void test_goes_down(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 2);
    toy_hold();
    struct engine_request r = request(prompt(6, 30), 30, 500);
    struct client *clients[3];
    for (int i = 0; i < 3; i++) {
        struct error err;
        clients[i] = client_create(engine);
        assert_int_equal(
            engine_submit(engine, &r, ask_again, clients[i], &clients[i]->number, &err), OK);
    }
    toy_wait_held();
    pthread_t releaser;
    ASSERT(pthread_create(&releaser, NULL, release_when_down, engine) == 0);
    engine_end(engine);
    ASSERT(pthread_join(releaser, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(clients[i]->ends, 1);
        assert_int_equal(clients[i]->n_prefill, ERR_CAPACITY);
        client_destroy(clients[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priority),         cmocka_unit_test(test_patience),
        cmocka_unit_test(test_priority_refused), cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_retry_after),      cmocka_unit_test(test_goes_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
