/* Work on the model between steps, over the toy network. */
#include "tests/unit/engine_toy.h"

#define CALLERS 4
#define CALLS   25

struct work {
    int32_t calls;
    int32_t steps[CALLS]; /* of the network, at each call */
};

/* Not atomic: pieces of work never overlap, or the sanitizer and the sum would show it. */
static int32_t everything;

static void work_do(void *user, struct model *model)
{
    struct work *w = user;
    ASSERT(model->alive);
    w->steps[w->calls++] = toy.steps;
    int32_t before = everything;
    nanosleep(&(struct timespec){0, 100000}, NULL);
    everything = before + 1;
}

static void test_idle(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct work w = {0};
    for (int32_t i = 0; i < 5; i++) {
        assert_true(engine_between_steps(engine, work_do, &w));
        assert_int_equal(w.calls, i + 1); /* it was done when the call returned */
    }
    engine_end(engine);
    assert_int_equal(toy.steps, 0);
}

/* Every running request gets a step between two pieces, and answers what it would without them. */
static void test_beside_requests(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct work w = {0};
    toy_hold();
    struct engine_request r = request(prompt(3, 200), 200, 40);
    struct client *c = submit(engine, &r);
    toy_wait_held();
    toy_release();
    while (w.calls < CALLS)
        assert_true(engine_between_steps(engine, work_do, &w));
    client_wait_end(c);
    engine_end(engine);
    int32_t wanted[40];
    enum end_reason reason;
    assert_int_equal(expect(&r, wanted, &reason), 40);
    assert_memory_equal(c->answer, wanted, sizeof wanted);
    for (int32_t i = 1; i < CALLS; i++)
        assert_true(w.steps[i] > w.steps[i - 1] || w.steps[i] == toy.steps);
    client_destroy(c);
}

static void *call_often(void *user)
{
    struct work w = {0};
    while (w.calls < CALLS)
        ASSERT(engine_between_steps(user, work_do, &w));
    return NULL;
}

static void test_callers_take_turns(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    pthread_t threads[CALLERS];
    everything = 0;
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, engine), 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(everything, CALLERS * CALLS);
    engine_end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_beside_requests),
        cmocka_unit_test(test_callers_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
