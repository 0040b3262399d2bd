/* The CPU backend's threads: every unit exactly once, every time, for any number of threads. */
#include "kernels/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define UNITS_MAX 300

struct job {
    _Atomic int seen[UNITS_MAX];
    _Atomic int threads_in[4]; /* a thread's number is used by one call at a time */
    int threads;
};

static void count(void *context, int thread, int32_t begin, int32_t end)
{
    struct job *job = context;
    if (thread < 0 || thread >= job->threads || atomic_fetch_add(&job->threads_in[thread], 1) != 0)
        abort(); /* cmocka's assertions are for the main thread */
    for (int32_t i = begin; i < end; i++)
        atomic_fetch_add(&job->seen[i], 1);
    atomic_fetch_sub(&job->threads_in[thread], 1);
}

static void test_every_unit_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct pool *pool = pool_create(threads);
        assert_non_null(pool);
        assert_int_equal(pool_threads(pool), threads);
        for (int run = 0; run < 2000; run++) {
            struct job job = {.threads = threads};
            int32_t units = run % UNITS_MAX, grain = 1 + run % 7;
            pool_run(pool, count, &job, units, grain);
            for (int32_t i = 0; i < UNITS_MAX; i++)
                assert_int_equal(job.seen[i], i < units);
        }
        pool_destroy(pool);
    }
}

/* Workers that went to sleep between jobs wake again. */
static void test_sleepers_wake(void **state)
{
    (void)state;
    struct pool *pool = pool_create(3);
    assert_non_null(pool);
    for (int run = 0; run < 20; run++) {
        struct job job = {.threads = 3};
        usleep(3000); /* far longer than the spinning */
        pool_run(pool, count, &job, 64, 1);
        for (int32_t i = 0; i < 64; i++)
            assert_int_equal(job.seen[i], 1);
    }
    pool_destroy(pool);
}

static void test_nothing(void **state)
{
    (void)state;
    struct pool *pool = pool_create(2);
    assert_non_null(pool);
    pool_run(pool, count, NULL, 0, 1); /* would follow NULL */
    pool_destroy(pool);
    pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_once),
        cmocka_unit_test(test_sleepers_wake),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
