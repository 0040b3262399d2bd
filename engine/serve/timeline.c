/*
 * Timelines: what each one has been fed, which of them continues a prompt, and what goes to and
 * comes from the prefix cache.  Samples nothing and does not choose what is fed.
 */
#include "engine/model/pages.h"
#include "engine/serve/core.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

enum status timeline_init(struct timeline *t, const struct model *model, int32_t context_max,
                          struct error *err)
{
    int32_t vocab_size = model_config(model)->vocab_size;
    t->ids = take_memory(context_max, sizeof(int32_t));
    t->allowed = take_memory((int64_t)PICKS_MAX * ((vocab_size + 63) / 64), sizeof *t->allowed);
    t->said = take_memory((int64_t)PICKS_MAX * vocab_size, sizeof *t->said);
    return sequence_create(model, context_max, &t->sequence, err);
}

void timeline_clear(struct timeline *t)
{
    if (t->sequence != NULL)
        sequence_destroy(t->sequence);
    free(t->ids);
    free(t->allowed);
    free(t->said);
}

void note_prefixes(struct engine *e)
{
    struct prefix_stats stats;
    prefix_stats_get(e->prefix, &stats);
    pthread_mutex_lock(&e->lock);
    e->stats.prefix_blocks = stats.blocks;
    e->stats.prefix_tails = stats.tails;
    e->stats.prefix_blocks_max = stats.blocks_max;
    e->stats.prefix_tails_max = stats.tails_max;
    e->stats.prefix_evicted = stats.evicted;
    e->stats.prefix_bytes = stats.bytes;
    e->stats.prefix_bytes_max = stats.bytes_max;
    pthread_mutex_unlock(&e->lock);
}

static void timeline_empty(struct timeline *t)
{
    sequence_reset(t->sequence);
    t->n_ids = 0;
    t->planned = 0;
    t->reuse_namespace = t->profile_hash = 0;
}

/* ---- what continues a prompt ---------------------------------------------------------------- */

/* Whether a request continues what others left. */
static bool reuses(const struct request *r)
{
    return r->reuse_namespace != 0 && r->profile.values[ROW_PREFIX_REUSE] == PREFIX_REUSE_ON;
}

static struct prefix_owner owner_of(const struct request *r)
{
    return (struct prefix_owner){r->reuse_namespace, &r->profile};
}

/* Tokens of `t` that request `r` can continue: all of them, or none. */
static int32_t reusable(const struct timeline *t, const struct request *r)
{
    if (!reuses(r) || t->reuse_namespace != r->reuse_namespace ||
        t->profile_hash != r->profile.hash || t->n_ids >= r->n_ids)
        return 0;
    return memcmp(t->ids, r->ids, (size_t)t->n_ids * sizeof *t->ids) == 0 ? t->n_ids : 0;
}

/* Tokens of the longest stored prefix that request `r` can continue. */
static int32_t stored(const struct engine *e, const struct request *r)
{
    const struct prefix_owner owner = owner_of(r);
    if (e->prefix == NULL || !reuses(r))
        return 0;
    /* The last token is always fed: its logits are what the answer starts from. */
    return prefix_find(e->prefix, &owner, r->ids, r->n_ids - 1);
}

/* The pages of that prefix, found in one walk, go to e->pages.  @return how many */
static int32_t stored_pages(struct engine *e, const struct request *r)
{
    const struct prefix_owner owner = owner_of(r);
    if (e->prefix == NULL || !reuses(r))
        return 0;
    return prefix_pages(e->prefix, &owner, r->ids, r->n_ids - 1, e->pages);
}

/* Tokens that `r` saves by taking `t` as it is, when the prefix cache holds `in_cache`. */
static int32_t worth(const struct timeline *t, const struct request *r, int32_t in_cache)
{
    int32_t n = reusable(t, r);
    return n >= in_cache ? n : 0;
}

struct timeline *timeline_choose(struct engine *e, const struct request *r)
{
    struct timeline *best = NULL;
    int32_t in_cache = stored(e, r);
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (t->request != NULL)
            continue;
        if (best == NULL || worth(t, r, in_cache) > worth(best, r, in_cache)) {
            best = t;
        } else if (worth(t, r, in_cache) == worth(best, r, in_cache)) {
            bool emptier = best->n_ids > 0 && t->n_ids == 0;
            if (emptier || ((t->n_ids == 0) == (best->n_ids == 0) && t->used < best->used))
                best = t;
        }
    }
    return best;
}

/* ---- memory --------------------------------------------------------------------------------- */

uint64_t timeline_bytes(const struct engine *e, const struct profile *profile, int32_t tokens)
{
    int32_t whole = (tokens + SNAPSHOT_TOKENS - 1) / SNAPSHOT_TOKENS * SNAPSHOT_TOKENS;
    return sequence_bytes_under(e->model, profile,
                                whole < e->options.context_max ? whole : e->options.context_max);
}

/* Of an idle timeline, and of one that runs.  It never writes again below its length. */
static struct schedule_claim claim_of(const struct timeline *t)
{
    const int32_t *pages = sequence_pages(t->sequence);
    int32_t n_pages = pages == NULL ? 0 : t->n_ids / SNAPSHOT_TOKENS;
    return (struct schedule_claim){t->planned, pages, n_pages, t->page_bytes};
}

/* Of a request that begins in this timeline. */
static struct schedule_claim claim_to_be(struct engine *e, const struct timeline *t,
                                         const struct request *r)
{
    struct schedule_claim claim = claim_of(t);
    int32_t n_pages = stored_pages(e, r);
    if (worth(t, r, n_pages * SNAPSHOT_TOKENS) == 0) {
        claim.pages = e->pages;
        claim.n_pages = n_pages;
    }
    claim.bytes = r->state_bytes;
    claim.page_bytes = snapshot_block_bytes(e->model, &r->profile);
    return claim;
}

/* What all timelines take together, or those that run.
 * @param mine  of `t` instead of what it holds; NULL, NULL: of all as they are */
static uint64_t taken(const struct engine *e, bool all, const struct timeline *t,
                      const struct schedule_claim *mine)
{
    struct schedule_claim claims[SESSIONS_MAX + 1];
    int n = 0;
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        const struct timeline *other = &e->timelines[i];
        if (other != t && (all || other->request != NULL))
            claims[n++] = claim_of(other);
    }
    if (mine != NULL)
        claims[n++] = *mine;
    return schedule_taken(claims, n);
}

void note_pages(struct engine *e)
{
    struct pages_stats pages;
    if (!model_pages(e->model, &pages))
        return;
    pthread_mutex_lock(&e->lock);
    e->stats.state_pages_own = pages.own;
    e->stats.state_pages_shared = pages.shared;
    e->stats.state_pages_free = pages.free;
    pthread_mutex_unlock(&e->lock);
}

/* Lets `t` plan for so many bytes, within what there is. */
static void plan(struct engine *e, struct timeline *t, uint64_t bytes)
{
    t->planned = bytes;
    uint64_t sum = taken(e, true, NULL, NULL);
    ASSERT(sum <= e->state_bytes_max);
    pthread_mutex_lock(&e->lock);
    e->stats.state_bytes = sum;
    pthread_mutex_unlock(&e->lock);
    note_pages(e);
}

/* The idle timeline beside `t` that was used longest ago and holds something.  @return NULL: none
 */
static struct timeline *oldest_idle(struct engine *e, const struct timeline *t)
{
    struct timeline *oldest = NULL;
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *other = &e->timelines[i];
        bool idle = other != t && other->request == NULL && other->planned > 0;
        if (idle && (oldest == NULL || other->used < oldest->used))
            oldest = other;
    }
    return oldest;
}

bool timeline_make_room(struct engine *e, struct timeline *t, const struct request *r)
{
    const struct schedule_claim mine = claim_to_be(e, t, r);
    if (taken(e, false, t, &mine) > e->state_bytes_max)
        return false;
    while (taken(e, true, t, &mine) > e->state_bytes_max) {
        struct timeline *idle = oldest_idle(e, t);
        ASSERT(idle != NULL);
        timeline_empty(idle);
    }
    return true;
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* Brings the timeline to the longest prefix of the prompt that it or the cache holds. */
static void begin_with_prefix(struct engine *e, struct timeline *t, const struct request *r)
{
    int32_t in_cache = stored(e, r);
    if (worth(t, r, in_cache) > 0)
        return;
    timeline_empty(t);
    if (in_cache == 0)
        return;
    const struct prefix_owner owner = owner_of(r);
    t->n_ids = prefix_restore(e->prefix, &owner, r->ids, r->n_ids - 1, e->turn, t->sequence);
    ASSERT(t->n_ids == in_cache && t->n_ids == sequence_length(t->sequence));
    memcpy(t->ids, r->ids, (size_t)t->n_ids * sizeof *t->ids);
}

void timeline_begin(struct engine *e, struct timeline *t, struct request *r)
{
    e->turn++;
    begin_with_prefix(e, t, r);
    r->n_reused = t->n_ids;
    t->request = r;
    t->reuse_namespace = r->reuse_namespace;
    t->profile_hash = r->profile.hash;
    t->page_bytes = snapshot_block_bytes(e->model, &r->profile);
    t->starved = 0;
    t->used = e->turn;
    plan(e, t, r->state_bytes);
}

/* ---- what a timeline leaves behind ---------------------------------------------------------- */

/* Keeps the prefixes that `t` has just grown over: `before` tokens were known.  Those of a step of
 * several spans but for the last: the rings hold no more. */
static void save_prefixes(struct engine *e, const struct timeline *t, int32_t before)
{
    const struct prefix_owner owner = owner_of(t->request);
    if (e->prefix == NULL || !reuses(t->request))
        return;
    if (t->n_ids - before > SPAN_TOKENS_MAX)
        before = t->n_ids - SPAN_TOKENS_MAX;
    int32_t n = before / SNAPSHOT_TOKENS * SNAPSHOT_TOKENS + SNAPSHOT_TOKENS;
    for (; n <= t->n_ids; n += SNAPSHOT_TOKENS)
        prefix_save(e->prefix, &owner, t->ids, n, e->turn, t->sequence);
    note_prefixes(e);
}

void timeline_keep(struct engine *e, struct timeline *t, const int32_t *ids, int32_t n)
{
    memcpy(t->ids + t->n_ids, ids, (size_t)n * sizeof *ids);
    t->n_ids += n;
    save_prefixes(e, t, t->n_ids - n);
}

void timeline_finish(struct engine *e, struct timeline *t, enum end_reason reason)
{
    struct request *r = t->request;
    t->request = NULL;
    t->n_next = 0;
    if (reason == END_FAULT && e->prefix != NULL) {
        prefix_forget(e->prefix, t->reuse_namespace);
        note_prefixes(e);
    }
    if (reason == END_FAULT || t->reuse_namespace == 0)
        timeline_empty(t);
    plan(e, t, t->n_ids == 0 ? 0 : timeline_bytes(e, &r->profile, t->n_ids));
    request_finish(e, r, reason);
}

void timelines_lose(struct engine *e)
{
    if (e->prefix != NULL) {
        prefix_clear(e->prefix);
        note_prefixes(e);
    }
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        timeline_empty(t);
        if (t->request != NULL)
            timeline_finish(e, t, END_LOST);
    }
}
