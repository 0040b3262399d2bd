/* The CPU backend's threads (pool.h says what they promise). */
#include "kernels/cpu/pool.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct worker {
    struct pool *pool;
    pthread_t thread;
    int number; /* 1..; the caller of pool_run is 0 */
};

struct pool {
    int threads; /* the caller included */
    int started; /* workers that run */
    bool stop;   /* read after a new generation was seen */

    /* The job; written by the caller before `generation` is raised, read by workers after it. */
    pool_fn *fn;
    void *job;
    int32_t units, grain;

    /* Each in a cache line of its own: they are written while others are polled. */
    _Alignas(64) _Atomic uint32_t generation; /* futex: jobs handed out so far */
    _Alignas(64) _Atomic int32_t next;        /* first unit that nobody took */
    _Alignas(64) _Atomic uint32_t busy;       /* futex: workers not done with this generation */
    _Alignas(64) _Atomic uint32_t sleepers;   /* threads that wait in the kernel */

    struct worker workers[CPU_THREADS_MAX];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns when *word is no longer `seen`.  A sleeper is counted before it looks again, and whoever
 * changes the word looks for sleepers afterwards (both sequentially consistent), so no wake is
 * lost. */
static void await_change(struct pool *pool, _Atomic uint32_t *word, uint32_t seen)
{
    for (int i = 0; i < CPU_SPINS_MAX; i++) {
        if (atomic_load(word) != seen)
            return;
        __builtin_ia32_pause();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == seen)
        futex_wait(word, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void wake_sleepers(struct pool *pool, _Atomic uint32_t *word)
{
    if (atomic_load(&pool->sleepers) != 0)
        futex_wake(word);
}

static void take_units(struct pool *pool, int thread)
{
    for (;;) {
        int32_t begin = atomic_fetch_add(&pool->next, pool->grain);
        if (begin >= pool->units)
            return;
        int32_t end = pool->units - begin < pool->grain ? pool->units : begin + pool->grain;
        pool->fn(pool->job, thread, begin, end);
    }
}

static void *worker_main(void *context)
{
    struct worker *self = context;
    struct pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        await_change(pool, &pool->generation, seen);
        seen++; /* the caller hands out the next job only when all are done with this one */
        if (pool->stop)
            return NULL;
        take_units(pool, self->number);
        if (atomic_fetch_sub(&pool->busy, 1) == 1)
            wake_sleepers(pool, &pool->busy);
    }
}

static void hand_out(struct pool *pool)
{
    atomic_store(&pool->busy, (uint32_t)pool->started);
    atomic_fetch_add(&pool->generation, 1);
    wake_sleepers(pool, &pool->generation);
}

struct pool *pool_create(int threads)
{
    ASSERT(threads >= 1 && threads <= CPU_THREADS_MAX);
    struct pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (pool == NULL)
        return NULL;
    *pool = (struct pool){.threads = threads};
    /* Signals belong to the program's main thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < threads; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .number = i};
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
            break;
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->started != threads - 1) {
        pool_destroy(pool);
        return NULL;
    }
    return pool;
}

void pool_destroy(struct pool *pool)
{
    if (pool == NULL)
        return;
    pool->stop = true;
    hand_out(pool);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool);
}

int pool_threads(const struct pool *pool)
{
    return pool->threads;
}

void pool_run(struct pool *pool, pool_fn *fn, void *job, int32_t units, int32_t grain)
{
    ASSERT(grain >= 1);
    if (units <= 0)
        return;
    if (units <= grain || pool->started == 0) {
        fn(job, 0, 0, units);
        return;
    }
    pool->fn = fn;
    pool->job = job;
    pool->units = units;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    hand_out(pool);
    take_units(pool, 0);
    for (uint32_t busy = atomic_load(&pool->busy); busy != 0; busy = atomic_load(&pool->busy))
        await_change(pool, &pool->busy, busy);
}
