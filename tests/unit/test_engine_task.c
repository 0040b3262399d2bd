/* Tasks of the serving core, over the toy network: between steps, one at a time, told of the end.
 */
#include "tests/unit/engine_toy.h"

struct work {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t calls, calls_max; /* done after so many; 0: never */
    int32_t steps[64];        /* of the network, at each call */
    bool ended;               /* told that the engine goes down */
};

static bool work_do(void *user, struct model *model)
{
    struct work *w = user;
    pthread_mutex_lock(&w->lock);
    ASSERT(!w->ended);
    if (model == NULL)
        w->ended = true;
    else if (w->calls < 64)
        w->steps[w->calls] = toy.steps;
    w->calls += model != NULL;
    bool more = w->calls_max == 0 || w->calls < w->calls_max;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return more;
}

static void work_init(struct work *w, int32_t calls_max)
{
    *w = (struct work){.calls_max = calls_max};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

static void work_wait(struct work *w, int32_t calls)
{
    pthread_mutex_lock(&w->lock);
    while (w->calls < calls)
        wait_or_die(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void test_idle(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct work w;
    struct error err;
    work_init(&w, 5);
    assert_int_equal(engine_task_start(engine, work_do, &w, &err), OK);
    work_wait(&w, 5);
    /* The engine forgets a task after its last call returned: a new one may be refused until then.
     */
    struct work other;
    work_init(&other, 1);
    while (engine_task_start(engine, work_do, &other, &err) == ERR_CAPACITY)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    work_wait(&other, 1);
    engine_end(engine);
    assert_int_equal(w.calls, 5);
    assert_false(w.ended);
    assert_int_equal(toy.steps, 0);
}

/* One call a step, and the answer is what it is without a task. */
static void test_beside_requests(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct error err;
    struct work w;
    work_init(&w, 20);
    toy_hold();
    struct engine_request r = request(prompt(3, 200), 200, 40);
    struct client *c = submit(engine, &r);
    toy_wait_held();
    assert_int_equal(engine_task_start(engine, work_do, &w, &err), OK);
    struct work second;
    work_init(&second, 1);
    assert_int_equal(engine_task_start(engine, work_do, &second, &err), ERR_CAPACITY);
    toy_release();
    client_wait_end(c);
    work_wait(&w, 20);
    engine_end(engine);
    int32_t wanted[40];
    enum end_reason reason;
    assert_int_equal(expect(&r, wanted, &reason), 40);
    assert_memory_equal(c->answer, wanted, sizeof wanted);
    for (int32_t i = 1; i < 20; i++)
        assert_int_equal(w.steps[i], w.steps[i - 1] + 1);
    client_destroy(c);
}

static void test_engine_goes_down(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct error err;
    struct work w;
    work_init(&w, 0);
    assert_int_equal(engine_task_start(engine, work_do, &w, &err), OK);
    work_wait(&w, 3);
    engine_end(engine);
    assert_true(w.ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_beside_requests),
        cmocka_unit_test(test_engine_goes_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
