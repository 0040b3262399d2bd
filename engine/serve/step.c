/*
 * One step: what every running timeline is fed, what is guessed and sampled behind it, and what is
 * told.  Starts and ends no thread, and takes nothing from the queue.
 */
#include "engine/base/log.h"
#include "engine/serve/core.h"
#include "kernels/check.h"

#include <string.h>

_Static_assert(STEP_PREFILL_MIXED_MAX + SESSIONS_MAX * (1 + DRAFT_DEPTH_MAX) <= SPAN_TOKENS_MAX,
               "guesses fit beside what schedule.c deals");

/* What the timeline could be fed next. */
static struct schedule_slot hunger(const struct timeline *t, int32_t step_tokens)
{
    if (t->request == NULL)
        return (struct schedule_slot){0};
    struct schedule_slot slot = {.profile = t->profile_hash, .starved = t->starved};
    int32_t rest = t->request->n_ids - t->n_ids;
    int32_t chunk = schedule_chunk(&t->request->profile, step_tokens);
    slot.decode = t->n_next > 0;
    ASSERT(slot.decode || rest > 0);
    if (!slot.decode)
        slot.prefill = rest < chunk ? rest : chunk;
    return slot;
}

/* ---- answers -------------------------------------------------------------------------------- */

static bool is_stop(const struct request *r, int32_t id)
{
    for (int32_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] == id)
            return true;
    }
    return false;
}

/* What the request's mask allows behind n_ids tokens.  @return NULL: everything */
static const uint64_t *allowed_behind(const struct engine *e, const struct timeline *t, int i,
                                      const int32_t *ids, int32_t n_ids)
{
    const struct request *r = t->request;
    int32_t words = (model_config(e->model)->vocab_size + 63) / 64;
    uint64_t *bits = t->allowed + (int64_t)i * words;
    if (r->mask.fn == NULL)
        return NULL;
    memset(bits, 0, (size_t)words * sizeof *bits);
    return r->mask.fn(r->mask.user, ids + r->n_ids, n_ids - r->n_ids, bits) ? bits : NULL;
}

/* How the token behind n_ids tokens is picked. */
static struct pick *pick_prepare(struct engine *e, struct timeline *t, int i, const int32_t *ids,
                                 int32_t n_ids)
{
    const struct request *r = t->request;
    struct token_said *said = t->said + (int64_t)i * model_config(e->model)->vocab_size;
    t->picks[i] = (struct pick){
        .sampling = r->sampling,
        .position = (uint64_t)n_ids,
        .said = said,
        .n_said = sampler_said(e->counts, &r->sampling, ids, r->n_ids, n_ids - r->n_ids, said),
        .logprobs = r->logprobs,
        .n_top = r->top_logprobs,
        .id = SAMPLE_FAULT};
    return &t->picks[i];
}

/* Whether a token may stand behind what the pick is for. */
static bool may_be(const struct pick *pick, int32_t id)
{
    return pick->allowed == NULL || (pick->allowed[id / 64] >> (id % 64) & 1) != 0;
}

/* How the tokens behind t->next are picked.  Behind a guess that the mask bars, or that ends the
 * answer, nobody looks at what is picked: the mask is not asked either. */
static void picks_prepare(struct engine *e, struct timeline *t)
{
    bool goes_on = true;
    memcpy(t->ids + t->n_ids, t->next, (size_t)t->n_next * sizeof *t->ids);
    for (int i = 0; i < t->n_next; i++) {
        int32_t n_ids = t->n_ids + i + 1;
        struct pick *pick = pick_prepare(e, t, i, t->ids, n_ids);
        goes_on =
            goes_on && !is_stop(t->request, t->next[i]) && (i == 0 || may_be(pick - 1, t->next[i]));
        if (goes_on)
            pick->allowed = allowed_behind(e, t, i, t->ids, n_ids);
    }
}

/* Delivers the chosen token, or ends the request with it. */
static void answer(struct engine *e, struct timeline *t, const struct pick *pick)
{
    struct request *r = t->request;
    int32_t id = pick->id;
    if (id < 0)
        log_line(LOG_LEVEL_ERROR, "serve", "request %llu: %s", (unsigned long long)r->number,
                 id == SAMPLE_BARRED ? "the mask allows no token"
                                     : "not a number among the logits");
    if (id < 0 || is_stop(r, id)) {
        timeline_finish(e, t, id < 0 ? END_FAULT : END_STOP);
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stats.answer_tokens++;
    pthread_mutex_unlock(&e->lock);
    r->n_answer++;
    r->quiet++;
    t->next[0] = id;
    t->n_next = 1;
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_TOKEN,
                                                .id = id,
                                                .logprobs = r->logprobs ? &pick->told : NULL});
    if (r->n_answer == r->tokens_max)
        timeline_finish(e, t, END_LENGTH);
}

/* The tokens that the timeline is fed next: sampled and guessed ones, or the rest of the prompt. */
static const int32_t *food(const struct timeline *t)
{
    return t->n_next > 0 ? t->next : t->request->ids + t->n_ids;
}

void tell_prefill(const struct timeline *t)
{
    struct request *r = t->request;
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_PREFILL,
                                                .done = t->n_ids,
                                                .total = r->n_ids,
                                                .reused = r->n_reused});
}

static void advance_prompt(struct engine *e, struct timeline *t, int32_t n)
{
    timeline_keep(e, t, food(t), n);
    ASSERT(sequence_length(t->sequence) == t->n_ids);
    tell_prefill(t);
    if (t->n_ids == t->request->n_ids)
        answer(e, t, &t->picks[0]);
}

/* Counts a guess that the next token has judged. */
static void note_guess(struct engine *e, struct request *r, bool right)
{
    r->right += ((double)right - r->right) / DRAFT_MEMORY;
    pthread_mutex_lock(&e->lock);
    e->stats.drafts_right += right;
    pthread_mutex_unlock(&e->lock);
}

/*
 * The model was fed the sampled token and guesses.  A guess stands when it is the very token that
 * is sampled now: the answer is what it would be without guessing, for every kind of sampling.
 * From the first wrong one on the model forgets.
 */
static void advance_answer(struct engine *e, struct timeline *t)
{
    int32_t fed[PICKS_MAX], n_fed = t->n_next;
    memcpy(fed, t->next, sizeof fed);
    t->n_next = 0;
    for (int32_t i = 0; i < n_fed; i++) {
        timeline_keep(e, t, &fed[i], 1);
        int32_t id = t->picks[i].id;
        bool stands = i + 1 < n_fed && id == fed[i + 1] && !is_stop(t->request, id);
        if (!stands)
            sequence_rewind(t->sequence, t->n_ids);
        if (i + 1 < n_fed)
            note_guess(e, t->request, stands);
        answer(e, t, &t->picks[i]);
        if (!stands)
            return;
        ASSERT(t->request != NULL); /* drafts never reach beyond tokens_max */
        t->n_next = 0;
    }
}

/* ---- guessing ------------------------------------------------------------------------------- */

/* Rows that the draft block of this timeline has to take; what its window does not reach is left
 * out. */
static int32_t draft_rows(const struct timeline *t)
{
    int32_t from = t->n_ids - SLIDING_WINDOW;
    if (sequence_draft_length(t->sequence) < from)
        sequence_draft_skip(t->sequence, from);
    return t->n_ids - sequence_draft_length(t->sequence);
}

/* Guesses that are of use: the answer goes on behind the token that is fed for certain. */
static int32_t draft_depth(const struct timeline *t, int32_t n_decode)
{
    const struct request *r = t->request;
    if (t->n_next != 1)
        return 0;
    int32_t depth = r->profile.values[ROW_DRAFT_DEPTH];
    int32_t rest = r->tokens_max - r->n_answer - 1;
    return schedule_draft_depth(depth < rest ? depth : rest, n_decode, r->right, r->quiet);
}

/* Takes a guess of the token behind t->next from the draft block, whose rows are given.  The same
 * draw as the token will have: guesses are right more often than the likeliest. */
static bool guess(struct engine *e, struct timeline *t, const int32_t *rows, int32_t n)
{
    memcpy(t->ids + t->n_ids, t->next, (size_t)t->n_next * sizeof *t->ids);
    struct pick *pick = pick_prepare(e, t, 0, t->ids, t->n_ids + t->n_next);
    pick->logprobs = false;
    const struct draft_segment segment = {
        .sequence = t->sequence, .next_ids = rows, .n = n, .pick = pick, .beyond = t->n_next - 1};
    model_draft(e->model, &t->request->profile, &segment, 1);
    if (pick->id < 0)
        return false; /* of no consequence: the timeline itself will show it, if it is ill */
    t->next[t->n_next++] = pick->id;
    pthread_mutex_lock(&e->lock);
    e->stats.drafts++;
    pthread_mutex_unlock(&e->lock);
    return true;
}

/* Brings the draft block of one timeline up to its sampled token and takes its guesses. */
static void draft(struct engine *e, struct timeline *t, int32_t depth)
{
    int32_t n = draft_rows(t), ids[SLIDING_WINDOW];
    ASSERT(n >= 1 && n <= SLIDING_WINDOW);
    memcpy(ids, t->ids + t->n_ids - n + 1, (size_t)(n - 1) * sizeof *ids);
    ids[n - 1] = t->next[0];
    t->request->quiet = 0;
    bool goes_on = guess(e, t, ids, n);
    while (goes_on && t->n_next <= depth)
        goes_on = guess(e, t, &t->next[t->n_next - 1], 1);
    if (t->n_next - 1 > t->request->guessed)
        t->request->guessed = t->n_next - 1;
}

/* ---- a step --------------------------------------------------------------------------------- */

static struct segment segment_of(struct engine *e, struct timeline *t, int32_t n)
{
    const struct request *r = t->request;
    struct segment segment = {.sequence = t->sequence,
                              .ids = food(t),
                              .n = n,
                              .picks = t->picks,
                              .n_picks = t->n_next,
                              .leg = t->n_next > 0 ? LEG_DECODE : LEG_PREFILL};
    if (t->n_next > 0) {
        picks_prepare(e, t);
    } else if (t->n_ids + n == r->n_ids) {
        pick_prepare(e, t, 0, r->ids, r->n_ids)->allowed =
            allowed_behind(e, t, 0, r->ids, r->n_ids);
        segment.n_picks = 1;
    }
    return segment;
}

/* Counts who waits for the turn of another profile. */
static void note_starved(struct engine *e, const struct schedule_slot *slots, const int32_t *take)
{
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        bool hungry = slots[i].decode || slots[i].prefill > 0;
        e->timelines[i].starved = hungry && take[i] == 0 ? slots[i].starved + 1 : 0;
    }
}

void step_run(struct engine *e)
{
    struct schedule_slot slots[SESSIONS_MAX];
    int32_t take[SESSIONS_MAX];
    struct segment segments[SESSIONS_MAX];
    const struct profile *profile = NULL; /* of all that are taken */
    int n_segments = 0, n_decode = 0;
    int32_t step_tokens = model_step_tokens(e->model);
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        slots[i] = hunger(&e->timelines[i], step_tokens);
    if (schedule_step(slots, e->options.sessions_max, step_tokens, take) == 0)
        return;
    note_starved(e, slots, take);
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        n_decode += slots[i].decode && take[i] > 0;
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (take[i] == 0)
            continue;
        int32_t depth = n_decode > 0 ? draft_depth(t, n_decode) : 0;
        if (depth > 0)
            draft(e, t, depth);
        profile = &t->request->profile;
        segments[n_segments++] = segment_of(e, t, t->n_next > 0 ? t->n_next : take[i]);
    }
    model_step(e->model, profile, segments, n_segments);
    if (model_lost(e->model) != NULL)
        return; /* what it gave is worth nothing */
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    pthread_mutex_unlock(&e->lock);
    note_pages(e);
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (take[i] > 0 && t->n_next > 0)
            advance_answer(e, t);
        else if (take[i] > 0)
            advance_prompt(e, t, take[i]);
    }
}
