/*
 * The life of a service: the promises of service.h on random histories, and the waits between
 * restarts by number.
 */
#include "config/box.h"
#include "init/service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 20260801;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/*
 * A world around one service: it has a process or not, and events come only when they can.  The
 * checks are the promises written a second way, so that a wrong cell of the table is noticed.
 */
struct world {
    struct service s;
    bool process, stopped;
    int64_t now_ms;
    int spawns;
};

static void step(struct world *w, enum service_event event)
{
    enum service_action action;
    if (event == SERVICE_EXIT_GOOD || event == SERVICE_EXIT_BAD)
        w->process = false;
    action = service_step(&w->s, event, w->now_ms);
    if (event == SERVICE_STOP)
        w->stopped = true;
    if (event == SERVICE_START)
        w->stopped = w->s.state == SERVICE_STOPPING;
    if (action == SERVICE_DO_SPAWN) {
        assert_false(w->process); /* never two of one service */
        assert_false(w->stopped); /* nothing comes back after a stop */
        w->process = true;
        w->spawns++;
    }
    if (action == SERVICE_DO_TERM || action == SERVICE_DO_KILL)
        assert_true(w->process);
    bool lives = w->s.state == SERVICE_STARTING || w->s.state == SERVICE_RUNNING ||
                 w->s.state == SERVICE_STOPPING;
    assert_int_equal(w->process, lives);
    assert_true(w->s.deadline_ms < 0 || w->s.deadline_ms >= w->now_ms);
    assert_in_range(w->s.crashes, 0, SERVICE_CRASHES_MAX);
}

static void random_histories_keep_the_promises(void **state)
{
    (void)state;
    static const enum service_policy POLICIES[] = {RESTART_ALWAYS, RESTART_LOGIN, RESTART_NEVER};
    for (int history = 0; history < 3000; history++) {
        struct world w = {.now_ms = 0};
        service_init(&w.s, POLICIES[history % 3]);
        for (int i = 0; i < 60; i++) {
            w.now_ms += random_below(4000);
            if (w.s.deadline_ms >= 0 && w.s.deadline_ms <= w.now_ms) {
                w.now_ms = w.s.deadline_ms;
                step(&w, SERVICE_TIMER);
                continue;
            }
            uint32_t draw = random_below(16);
            if (w.process && draw < 8)
                step(&w, draw < 3 ? SERVICE_EXIT_GOOD : SERVICE_EXIT_BAD);
            else if (draw == 8)
                step(&w, SERVICE_STOP);
            else if (draw < 13)
                step(&w, SERVICE_START);
        }
        assert_true(w.spawns > 0);
    }
}

static void a_crash_loop_waits_longer_and_gives_up(void **state)
{
    (void)state;
    struct service s;
    int64_t now_ms = 5000, wait_ms = SERVICE_BACKOFF_MS;
    service_init(&s, RESTART_ALWAYS);
    assert_int_equal(service_step(&s, SERVICE_START, now_ms), SERVICE_DO_SPAWN);
    for (int i = 0; i < SERVICE_CRASHES_MAX; i++) {
        assert_int_equal(service_step(&s, SERVICE_EXIT_BAD, now_ms), SERVICE_DO_NOTHING);
        assert_int_equal(s.state, SERVICE_BACKOFF);
        assert_int_equal(s.deadline_ms - now_ms, wait_ms);
        wait_ms = wait_ms * 2 < SERVICE_BACKOFF_MAX_MS ? wait_ms * 2 : SERVICE_BACKOFF_MAX_MS;
        now_ms = s.deadline_ms;
        assert_int_equal(service_step(&s, SERVICE_TIMER, now_ms), SERVICE_DO_SPAWN);
    }
    service_step(&s, SERVICE_EXIT_BAD, now_ms);
    assert_int_equal(s.state, SERVICE_FAILED);
    assert_int_equal(s.deadline_ms - now_ms, SERVICE_FAILED_MS);
    assert_int_equal(service_step(&s, SERVICE_TIMER, s.deadline_ms), SERVICE_DO_SPAWN);
}

static void a_good_start_forgets_the_failures(void **state)
{
    (void)state;
    struct service s;
    service_init(&s, RESTART_ALWAYS);
    service_step(&s, SERVICE_START, 0);
    for (int i = 0; i < 10 * SERVICE_CRASHES_MAX; i++) {
        assert_int_equal(service_step(&s, SERVICE_TIMER, s.deadline_ms), SERVICE_DO_NOTHING);
        assert_int_equal(s.state, SERVICE_RUNNING);
        service_step(&s, SERVICE_EXIT_BAD, 0);
        assert_int_equal(s.state, SERVICE_BACKOFF);
        assert_int_equal(s.deadline_ms, SERVICE_BACKOFF_MS);
        service_step(&s, SERVICE_TIMER, s.deadline_ms);
    }
}

static void a_login_may_end_for_ever(void **state)
{
    (void)state;
    struct service s;
    service_init(&s, RESTART_LOGIN);
    service_step(&s, SERVICE_START, 0);
    for (int i = 0; i < 10 * SERVICE_CRASHES_MAX; i++) {
        service_step(&s, SERVICE_EXIT_GOOD, 0);
        assert_int_equal(s.state, SERVICE_BACKOFF);
        service_step(&s, SERVICE_TIMER, s.deadline_ms);
        assert_int_equal(s.state, SERVICE_STARTING);
    }
}

static void a_task_ends_once(void **state)
{
    (void)state;
    struct service s;
    service_init(&s, RESTART_NEVER);
    service_step(&s, SERVICE_START, 0);
    service_step(&s, SERVICE_EXIT_BAD, 0);
    assert_int_equal(s.state, SERVICE_BACKOFF);
    service_step(&s, SERVICE_TIMER, s.deadline_ms);
    service_step(&s, SERVICE_EXIT_GOOD, 0);
    assert_int_equal(s.state, SERVICE_STOPPED);
    assert_int_equal(s.deadline_ms, -1);
}

static void a_stop_asks_before_it_kills(void **state)
{
    (void)state;
    struct service s;
    service_init(&s, RESTART_ALWAYS);
    service_step(&s, SERVICE_START, 0);
    assert_int_equal(service_step(&s, SERVICE_STOP, 100), SERVICE_DO_TERM);
    assert_int_equal(s.deadline_ms, 100 + SERVICE_STOP_MS);
    assert_int_equal(service_step(&s, SERVICE_TIMER, s.deadline_ms), SERVICE_DO_KILL);
    assert_int_equal(service_step(&s, SERVICE_EXIT_BAD, 9000), SERVICE_DO_NOTHING);
    assert_int_equal(s.state, SERVICE_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_keep_the_promises),
        cmocka_unit_test(a_crash_loop_waits_longer_and_gives_up),
        cmocka_unit_test(a_good_start_forgets_the_failures),
        cmocka_unit_test(a_login_may_end_for_ever),
        cmocka_unit_test(a_task_ends_once),
        cmocka_unit_test(a_stop_asks_before_it_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
