/* Where requests of several groups go, and what these say together. */
#include "engine/serve/groups.h"

#include "engine/base/fnv.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A beginning of a prompt, and who computed it last.  Of two beginnings at one place the later one
 * stays: what is forgotten costs time, never an answer. */
struct home {
    uint64_t beginning; /* 0: none */
    int32_t group;
};

struct groups {
    struct engine *list[GROUPS_MAX]; /* own */
    int32_t n, sessions_max;
    pthread_mutex_t lock;
    struct home homes[GROUP_HOMES]; /* lock */
};

struct groups *groups_create(struct engine *const *take, int32_t n, int32_t sessions_max)
{
    struct groups *g = calloc(1, sizeof *g);
    ASSERT(g != NULL && n >= 1 && n <= GROUPS_MAX);
    for (int32_t i = 0; i < n; i++)
        g->list[i] = take[i];
    g->n = n;
    g->sessions_max = sessions_max;
    ASSERT(pthread_mutex_init(&g->lock, NULL) == 0);
    return g;
}

void groups_destroy(struct groups *g)
{
    if (g == NULL)
        return;
    for (int32_t i = 0; i < g->n; i++)
        engine_destroy(g->list[i]);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

int32_t groups_count(const struct groups *g)
{
    return g->n;
}

struct engine *groups_at(const struct groups *g, int32_t i)
{
    ASSERT(i >= 0 && i < g->n);
    return g->list[i];
}

void groups_hold(struct groups *g)
{
    pthread_mutex_lock(&g->lock);
}

void groups_let(struct groups *g)
{
    pthread_mutex_unlock(&g->lock);
}

/* ---- where a request goes ------------------------------------------------------------------- */

/* Tokens of beginning number i. */
static int32_t tokens_of(int32_t i)
{
    return GROUP_BEGINNING << i;
}

/* Beginnings of a prompt, each twice as long as the one before: who may reuse them is part of each.
 * @shape  out [GROUP_BEGINNINGS_MAX]  @return how many */
static int32_t beginnings(const struct engine_request *r, uint64_t *out)
{
    uint64_t hash = fnv_add(FNV_BASIS, r->reuse_namespace);
    int32_t n = 0;
    if (r->reuse_namespace == 0)
        return 0;
    if (r->profile != NULL)
        hash = fnv_add(hash, r->profile->hash);
    for (int32_t i = 0; i < r->n_ids && n < GROUP_BEGINNINGS_MAX; i++) {
        hash = fnv_add(hash, (uint64_t)(uint32_t)r->ids[i]);
        if (i + 1 == tokens_of(n))
            out[n++] = hash;
    }
    return n;
}

static struct home *home_of(struct groups *g, uint64_t beginning)
{
    return &g->homes[beginning % GROUP_HOMES];
}

/* Who has computed the longest of these, and how many tokens that are.  Under the lock.
 * @return -1: nobody that is known */
static int32_t home_find(struct groups *g, const uint64_t *beginning, int32_t n, int32_t *tokens)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        const struct home *home = home_of(g, beginning[i]);
        *tokens = tokens_of(i);
        if (home->beginning == beginning[i])
            return home->group;
    }
    return -1;
}

/* Whether what the home holds of a prompt is worth more than what it has to do beyond another. */
static bool stays_home(int32_t home, int32_t least, int32_t sessions, int32_t tokens)
{
    if (home >= sessions && least < sessions)
        return false; /* it would wait, there it would not */
    return home <= least + tokens / GROUP_TOKENS_WORTH;
}

/* What a group has to do, in requests; one that is lost has more than any other. */
static int32_t load_of(const struct groups *g, int32_t i)
{
    struct engine_stats stats;
    engine_stats_get(g->list[i], &stats);
    return stats.running + stats.waiting + (stats.lost ? GROUP_LOST_LOAD : 0);
}

struct engine *groups_place(struct groups *g, const struct engine_request *request)
{
    uint64_t beginning[GROUP_BEGINNINGS_MAX];
    int32_t n = beginnings(request, beginning), load[GROUPS_MAX], least = 0, tokens = 0;
    for (int32_t i = 0; i < g->n; i++) {
        load[i] = load_of(g, i);
        least = load[i] < load[least] ? i : least;
    }
    pthread_mutex_lock(&g->lock);
    int32_t home = home_find(g, beginning, n, &tokens);
    bool stays = home >= 0 && stays_home(load[home], load[least], g->sessions_max, tokens);
    int32_t to = stays ? home : least;
    for (int32_t i = 0; i < n; i++)
        *home_of(g, beginning[i]) = (struct home){beginning[i], to};
    pthread_mutex_unlock(&g->lock);
    return g->list[to];
}

/* ---- what they say -------------------------------------------------------------------------- */

void groups_stats(const struct groups *g, struct engine_stats *out)
{
    engine_stats_get(g->list[0], out);
    for (int32_t i = 1; i < g->n; i++) {
        struct engine_stats s;
        engine_stats_get(g->list[i], &s);
        out->requests += s.requests;
        out->prompt_tokens += s.prompt_tokens;
        out->reused_tokens += s.reused_tokens;
        out->answer_tokens += s.answer_tokens;
        out->steps += s.steps;
        out->running += s.running;
        out->waiting += s.waiting;
        out->prefix_blocks += s.prefix_blocks;
        out->prefix_tails += s.prefix_tails;
        out->prefix_blocks_max += s.prefix_blocks_max;
        out->prefix_tails_max += s.prefix_tails_max;
        out->prefix_evicted += s.prefix_evicted;
        out->prefix_bytes += s.prefix_bytes;
        out->prefix_bytes_max += s.prefix_bytes_max;
        out->state_bytes += s.state_bytes;
        out->state_bytes_max += s.state_bytes_max;
        out->state_pages_own += s.state_pages_own;
        out->state_pages_shared += s.state_pages_shared;
        out->state_pages_free += s.state_pages_free;
        out->prefix_saved_blocks += s.prefix_saved_blocks;
        out->drafts += s.drafts;
        out->drafts_right += s.drafts_right;
        out->lost = out->lost || s.lost;
        out->losses += s.losses;
        out->recovered_ms = s.recovered_ms > out->recovered_ms ? s.recovered_ms : out->recovered_ms;
        out->worker = out->worker == 0 ? s.worker : out->worker;
    }
}

/* Every group tells of all GPUs of the machine, but only of its own which rank computes there. */
static void gauges_merge(struct gauges *to, const struct gauges *one)
{
    for (int32_t k = 0; k < one->n; k++) {
        int32_t at = 0;
        while (at < to->n && strcmp(to->gpu[at].bus, one->gpu[k].bus) != 0)
            at++;
        if (at == to->n && to->n < RANKS_MAX)
            to->gpu[to->n++] = one->gpu[k];
        else if (at < to->n && to->gpu[at].value[GAUGE_RANK] == GAUGE_UNKNOWN) {
            to->gpu[at].value[GAUGE_RANK] = one->gpu[k].value[GAUGE_RANK];
            to->gpu[at].value[GAUGE_GROUP] = one->gpu[k].value[GAUGE_GROUP];
        }
    }
}

bool groups_gauges(const struct groups *g, struct gauges *out)
{
    bool told = false;
    for (int32_t i = 0; i < g->n; i++) {
        struct gauges one;
        if (!engine_gauges_get(g->list[i], &one))
            continue;
        if (told)
            gauges_merge(out, &one);
        else
            *out = one;
        out->at_ms = one.at_ms < out->at_ms ? one.at_ms : out->at_ms; /* the oldest is looked at */
        told = true;
    }
    return told;
}
