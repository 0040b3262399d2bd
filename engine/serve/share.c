/*
 * Engines that are groups of one: how they are joined, and requests that go from one to another.  A
 * request is placed as it comes (groups.c); when it then has to wait while another group has a
 * place, or its own is lost, the group's thread passes it on.  Of a queue only its own thread takes
 * something away.
 *
 * Order of locks: that of the groups (groups_hold), then one or two of engines; two only under it.
 */
#include "engine/serve/core.h"
#include "kernels/check.h"

#include <string.h>

struct engine *engine_join(struct engine *const *take, int32_t n)
{
    struct engine *e = take_memory(1, sizeof *e);
    for (int32_t i = 0; i < n; i++) {
        pthread_mutex_lock(&take[i]->lock);
        ASSERT(take[i]->groups == NULL && take[i]->next_number == 1);
        take[i]->next_number = (uint64_t)i + 1;
        take[i]->number_step = (uint64_t)n;
        pthread_mutex_unlock(&take[i]->lock);
    }
    e->groups = groups_create(take, n, take[0]->options.sessions_max);
    for (int32_t i = 0; i < n; i++) {
        pthread_mutex_lock(&take[i]->lock);
        take[i]->beside = e->groups;
        pthread_mutex_unlock(&take[i]->lock);
    }
    return e;
}

int32_t engine_groups(const struct engine *e)
{
    return e->groups != NULL ? groups_count(e->groups) : 1;
}

struct engine *engine_group(struct engine *e, int32_t i)
{
    ASSERT(e->groups != NULL || i == 0);
    return e->groups != NULL ? groups_at(e->groups, i) : e;
}

const struct engine *group_first(const struct engine *e)
{
    return e->groups != NULL ? groups_at(e->groups, 0) : e;
}

/* Moves the request that would start next.  Both are locked. */
static void move_first(struct engine *from, struct engine *to, struct request *free)
{
    int32_t n = from->stats.waiting;
    for (int32_t i = 0; i < n; i++)
        from->waiting[i] = from->queue[i]->waiting;
    int32_t at = schedule_first(from->waiting, n);
    struct request *r = from->queue[at];
    int32_t *ids = free->ids; /* both have room for any prompt */
    *free = *r;
    *r = (struct request){.state = REQUEST_FREE, .ids = ids};
    for (int32_t i = 0; i < at; i++)
        from->queue[i]->waiting.passed++;
    queue_close_gap(from, at);
    to->queue[to->stats.waiting++] = free;
    pthread_cond_signal(&to->work);
}

/* @return false: nothing waits there for a place, or there is none here */
static bool pass_on(struct engine *from, struct engine *to)
{
    pthread_mutex_lock(&from->lock);
    pthread_mutex_lock(&to->lock);
    const struct engine_stats *has = &from->stats, *other = &to->stats;
    struct request *free = request_free(to);
    bool waits = has->waiting > 0 && (has->lost || has->running >= from->options.sessions_max);
    bool place = free != NULL && !to->stopping && !other->lost &&
                 other->running + other->waiting < to->options.sessions_max;
    bool moves = waits && place && !from->stopping;
    if (moves)
        move_first(from, to, free);
    pthread_mutex_unlock(&to->lock);
    pthread_mutex_unlock(&from->lock);
    return moves;
}

void group_share(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct groups *groups = e->stats.waiting > 0 ? e->beside : NULL;
    pthread_mutex_unlock(&e->lock);
    if (groups == NULL)
        return;
    groups_hold(groups);
    for (int32_t i = 0; i < groups_count(groups); i++) {
        struct engine *to = groups_at(groups, i);
        while (to != e && pass_on(e, to)) {
        }
    }
    groups_let(groups);
}

void group_cancel(struct groups *groups, uint64_t number)
{
    groups_hold(groups); /* or it might go from who is asked later to who was asked before */
    for (int32_t i = 0; i < groups_count(groups); i++)
        engine_cancel(groups_at(groups, i), number);
    groups_let(groups);
}
