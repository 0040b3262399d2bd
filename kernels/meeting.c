/* Where ranks meet: a barrier that counts generations, with a limit on every wait. */
#include "kernels/meeting.h"

#include "kernels/check.h"
#include "kernels/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all_there;
    int32_t ranks, n_there;
    uint32_t limit_ms;
    uint32_t generation;
    uint32_t came[RANKS_MAX]; /* generations that each rank has come to */
    void *shown[RANKS_MAX];
};

struct meeting *meeting_create(int32_t ranks, uint32_t limit_ms)
{
    ASSERT(ranks >= 1 && ranks <= RANKS_MAX);
    struct meeting *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->ranks = ranks;
    m->limit_ms = limit_ms;
    pthread_condattr_t clock;
    ASSERT(pthread_condattr_init(&clock) == 0);
    ASSERT(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_mutex_init(&m->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&m->all_there, &clock) == 0);
    pthread_condattr_destroy(&clock);
    return m;
}

void meeting_destroy(struct meeting *m)
{
    if (m == NULL)
        return;
    pthread_cond_destroy(&m->all_there);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

int32_t meeting_ranks(const struct meeting *m)
{
    return m->ranks;
}

uint32_t meeting_limit(const struct meeting *m)
{
    return m->limit_ms;
}

/* Without it the others would wait for ever, and whoever waits for them. */
static _Noreturn void somebody_is_missing(const struct meeting *m)
{
    int32_t missing = 0;
    while (missing < m->ranks - 1 && m->came[missing] != m->generation)
        missing++;
    fault_end("ranks: rank %d of %d has not come within %u ms", (int)missing, (int)m->ranks,
              (unsigned)m->limit_ms);
}

void meeting_wait(struct meeting *m, int32_t rank)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(m->limit_ms % 1000) * 1000000;
    until.tv_sec += m->limit_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&m->lock);
    uint32_t mine = m->generation;
    m->came[rank]++;
    if (++m->n_there == m->ranks) {
        m->n_there = 0;
        m->generation++;
        pthread_cond_broadcast(&m->all_there);
    }
    while (m->generation == mine) {
        if (pthread_cond_timedwait(&m->all_there, &m->lock, &until) == ETIMEDOUT &&
            m->generation == mine)
            somebody_is_missing(m);
    }
    pthread_mutex_unlock(&m->lock);
}

void meeting_show(struct meeting *m, int32_t rank, void *what)
{
    m->shown[rank] = what;
}

void *meeting_shown(const struct meeting *m, int32_t rank)
{
    return m->shown[rank];
}
