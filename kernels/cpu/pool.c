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
    _Atomic bool stop;

    /* The job.  A thread reads it between looking at `ticket` and taking a piece from it, which
     * fails when another job has been handed out meanwhile. */
    _Atomic(pool_fn *) fn;
    _Atomic(void *) job;
    _Atomic int32_t units, grain;

    /* Each in a cache line of its own: they are written while others are polled. */
    _Alignas(64) _Atomic uint64_t ticket; /* number of the job << 32 | first piece nobody took */
    _Alignas(64) _Atomic uint32_t generation; /* futex: number of the newest job */
    _Alignas(64) _Atomic uint32_t finished;   /* futex: pieces of this job that are done */
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

/* Takes pieces of the newest job until none is left.  Only pieces are waited for, never threads:
 * one that the system does not let run holds nobody up unless it has taken something. */
static void take_pieces(struct pool *pool, int thread)
{
    for (;;) {
        uint64_t ticket = atomic_load(&pool->ticket);
        pool_fn *fn = atomic_load(&pool->fn);
        void *job = atomic_load(&pool->job);
        int32_t units = atomic_load(&pool->units), grain = atomic_load(&pool->grain);
        uint32_t piece = (uint32_t)ticket, pieces = (uint32_t)((units - 1) / grain + 1);
        if (piece >= pieces)
            return;
        if (!atomic_compare_exchange_strong(&pool->ticket, &ticket, ticket + 1))
            continue; /* someone else took it, or the job is another one */
        int32_t begin = (int32_t)piece * grain;
        fn(job, thread, begin, units - begin < grain ? units : begin + grain);
        if (atomic_fetch_add(&pool->finished, 1) + 1 == pieces)
            wake_sleepers(pool, &pool->finished);
    }
}

static void *worker_main(void *context)
{
    struct worker *self = context;
    struct pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        await_change(pool, &pool->generation, seen);
        seen = atomic_load(&pool->generation);
        if (atomic_load(&pool->stop))
            return NULL;
        take_pieces(pool, self->number);
    }
}

struct pool *pool_create(int threads)
{
    ASSERT(threads >= 1 && threads <= CPU_THREADS_MAX);
    struct pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (pool == NULL)
        return NULL;
    *pool = (struct pool){.threads = threads, .units = 1, .grain = 1, .ticket = 1};
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
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation, 1);
    wake_sleepers(pool, &pool->generation);
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
    /* The old ticket has no piece left, so nobody can take one from a half-written job. */
    uint32_t number = atomic_load(&pool->generation) + 1,
             pieces = (uint32_t)((units - 1) / grain + 1);
    atomic_store(&pool->ticket, (uint64_t)number << 32 | UINT32_MAX);
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->job, job);
    atomic_store(&pool->units, units);
    atomic_store(&pool->grain, grain);
    atomic_store(&pool->finished, 0);
    atomic_store(&pool->ticket, (uint64_t)number << 32);
    atomic_store(&pool->generation, number);
    wake_sleepers(pool, &pool->generation);
    take_pieces(pool, 0);
    for (uint32_t done; (done = atomic_load(&pool->finished)) != pieces;)
        await_change(pool, &pool->finished, done);
}
