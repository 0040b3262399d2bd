/*
 * The network when a worker computes it: every operation as a step of the link.  Timelines and
 * pools stay there, by number; rows of logits, of layers and pieces for a file cross.  Knows which
 * ones there are, so that a worker that was started again gets them, empty.
 */
#include "engine/model/network.h"
#include "engine/model/remote.h"
#include "kernels/check.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct remote_network {
    struct remote *remote;                      /* owns */
    struct sequence *sequences[LINK_TIMELINES]; /* borrows; NULL: the number is free */
    struct snapshots *pools[LINK_POOLS];
    uint32_t life;   /* workers that were started again */
    int32_t n_picks; /* of the step that is made */
};

static_assert(sizeof(struct witness_table) <= sizeof(((struct link_answer *)0)->numbers), "fits");

/* ---- what steps say ------------------------------------------------------------------------- */

static struct link_segment *segment_add(struct link_step *step, const struct sequence *s)
{
    ASSERT(step->n_segments < LINK_TIMELINES);
    struct link_segment *g = &step->segments[step->n_segments++];
    *g = (struct link_segment){
        .timeline = s->number, .length = s->length, .drafted = s->draft_length};
    return g;
}

static void ids_add_to(struct link_step *step, const int32_t *ids, int32_t n)
{
    ASSERT(n >= 1 && n <= STEP_TOKENS_MAX - step->n_ids);
    memcpy(step->ids + step->n_ids, ids, (size_t)n * sizeof *ids);
    step->n_ids += n;
}

static struct link_step *step_perturbed(struct model *m, enum link_kind kind,
                                        const struct profile *profile)
{
    const struct perturbation *p = &m->perturbation;
    struct link_step *step = remote_step(m->remote->remote, kind, profile);
    m->remote->n_picks = 0;
    step->perturbation = (struct link_perturbation){.clamp_limit = p->clamp_limit,
                                                    .routed_factor = p->routed_factor,
                                                    .index_topk = p->index_topk,
                                                    .routed_zero = p->routed_zero,
                                                    .rotate_keys_only = p->rotate_keys_only,
                                                    .hc_transposed = p->hc_transposed};
    return step;
}

static uint8_t flags_of(const struct sequence *s, const float *last, const float *all)
{
    int wanted = all != NULL ? LINK_WANT_ALL : last != NULL ? LINK_WANT_LAST : 0;
    return (uint8_t)(wanted | (s->crossed ? LINK_CROSSOVER : 0));
}

/* Adds the picks of the segment that was added last. */
static void picks_add(struct remote_network *n, struct link_segment *g, const struct pick *picks,
                      int32_t n_picks)
{
    if (n_picks == 0 || remote_lost(n->remote) != NULL)
        return;
    struct link_picks *to = remote_picks(n->remote);
    size_t words = (size_t)(remote_config(n->remote)->vocab_size + 63) / 64;
    for (int32_t i = 0; i < n_picks; i++) {
        const struct pick *p = &picks[i];
        const struct sampling *s = &p->sampling;
        int32_t at = n->n_picks++;
        to->picks[at] = (struct link_pick){.temperature = s->temperature,
                                           .top_p = s->top_p,
                                           .min_p = s->min_p,
                                           .presence_penalty = s->presence_penalty,
                                           .frequency_penalty = s->frequency_penalty,
                                           .repetition_penalty = s->repetition_penalty,
                                           .seed = s->seed,
                                           .position = p->position,
                                           .top_k = s->top_k,
                                           .n_top = p->logprobs ? p->n_top : -1,
                                           .n_said = p->n_said,
                                           .masked = p->allowed != NULL};
        if (p->allowed != NULL)
            memcpy(to->allowed[at], p->allowed, words * sizeof *p->allowed);
        for (int32_t k = 0; k < p->n_said; k++)
            to->said[at][k] = (struct link_said){p->said[k].id, p->said[k].count};
    }
    g->n_picks = (uint8_t)n_picks;
}

static bool barred(const struct pick *pick, int32_t id)
{
    return pick->allowed != NULL && (pick->allowed[id / 64] >> (id % 64) & 1) == 0;
}

/* Takes one choice over.  @return false: this pick cannot have given it */
static bool choice_take(const volatile struct link_choice *from, int32_t vocab, struct pick *pick)
{
    int32_t id = from->id, n_top = from->n_top;
    if (id < SAMPLE_BARRED || id >= vocab || (id >= 0 && barred(pick, id)))
        return false;
    if (id >= 0 && pick->logprobs) {
        pick->told.chosen = from->logprob;
        if (n_top < 0 || n_top > pick->n_top || !(pick->told.chosen < INFINITY))
            return false;
        pick->told.n_top = n_top;
        for (int32_t k = 0; k < n_top; k++) {
            struct token_logprob top = {from->top_ids[k], from->top_logprobs[k]};
            if (top.id < 0 || top.id >= vocab || !(top.logprob < INFINITY))
                return false;
            pick->told.top[k] = top;
        }
    }
    pick->id = id;
    return true;
}

/* @param from  the segment's first choice */
static void choices_take(struct model *m, const volatile struct link_choice *from,
                         struct pick *picks, int32_t n_picks)
{
    for (int32_t i = 0; i < n_picks; i++) {
        if (!choice_take(&from[i], m->config->vocab_size, &picks[i]))
            remote_drop(m->remote->remote, "has picked a token that it could not pick");
    }
}

/* Takes the rows of one segment.  @return the rows of the next one */
static const float *rows_take(const float *rows, int32_t n, int32_t vocab, float *last, float *all)
{
    size_t row = (size_t)vocab;
    if (all == NULL && last == NULL)
        return rows;
    if (all == NULL)
        n = 1;
    else
        memcpy(all, rows, (size_t)n * row * sizeof *rows);
    if (last != NULL)
        memcpy(last, all == NULL ? rows : all + (size_t)(n - 1) * row, row * sizeof *rows);
    return rows + (size_t)n * row;
}

/* ---- operations ----------------------------------------------------------------------------- */

static void remote_layers(struct model *m, const struct profile *profile,
                          const struct segment *segments, int n)
{
    struct link_step *step = step_perturbed(m, LINK_STEP, profile);
    const float *rows;
    for (int i = 0; i < n; i++) {
        const struct segment *s = &segments[i];
        struct link_segment *g = segment_add(step, s->sequence);
        g->n = s->n;
        g->leg = (uint8_t)s->leg;
        g->flags = flags_of(s->sequence, s->logits_last, s->logits_all);
        picks_add(m->remote, g, s->picks, s->n_picks);
        ids_add_to(step, s->ids, s->n);
    }
    if (!remote_run(m->remote->remote, &rows))
        return;
    const volatile struct link_choice *choices = remote_choices(m->remote->remote);
    for (int i = 0; i < n; i++) {
        const struct segment *s = &segments[i];
        choices_take(m, choices, s->picks, s->n_picks);
        choices += s->n_picks;
        rows = rows_take(rows, s->n, m->config->vocab_size, s->logits_last, s->logits_all);
    }
}

static void remote_draft(struct model *m, const struct profile *profile,
                         const struct draft_segment *segments, int n)
{
    struct link_step *step = step_perturbed(m, LINK_DRAFT, profile);
    const float *rows;
    for (int i = 0; i < n; i++) {
        const struct draft_segment *s = &segments[i];
        struct link_segment *g = segment_add(step, s->sequence);
        g->n = s->n;
        g->beyond = s->beyond;
        g->leg = LEG_DECODE;
        g->flags = flags_of(s->sequence, s->logits_last, s->logits_all);
        picks_add(m->remote, g, s->pick, s->pick != NULL);
        ids_add_to(step, s->next_ids, s->n);
    }
    if (!remote_run(m->remote->remote, &rows))
        return;
    const volatile struct link_choice *choices = remote_choices(m->remote->remote);
    for (int i = 0; i < n; i++) {
        const struct draft_segment *s = &segments[i];
        choices_take(m, choices, s->pick, s->pick != NULL);
        choices += s->pick != NULL;
        rows = rows_take(rows, s->n, m->config->vocab_size, s->logits_last, s->logits_all);
    }
}

static void remote_rows(struct model *m, const struct profile *profile,
                        const struct layer_rows *rows)
{
    bool layer = rows->sequence != NULL;
    size_t bytes = (size_t)rows->n * rows->width * sizeof *rows->in;
    struct link_step *step = step_perturbed(m, layer ? LINK_LAYER : LINK_EXPERTS, profile);
    const float *out;
    step->block = rows->block;
    step->leg = (int32_t)rows->leg;
    if (layer) {
        struct link_segment *g = segment_add(step, rows->sequence);
        g->n = rows->n;
        g->leg = (uint8_t)rows->leg;
        g->flags = flags_of(rows->sequence, NULL, NULL);
    }
    ids_add_to(step, rows->ids, rows->n);
    if (remote_lost(m->remote->remote) != NULL)
        return;
    memcpy(remote_given(m->remote->remote), rows->in, bytes);
    if (remote_run(m->remote->remote, &out))
        memcpy(rows->out, out, bytes);
}

static void remote_witness(struct model *m, struct witness_table *out)
{
    const float *numbers;
    remote_step(m->remote->remote, LINK_WITNESS, NULL);
    *out = (struct witness_table){0};
    if (!remote_run(m->remote->remote, &numbers))
        return;
    /* Cell by cell: a bool is nothing but 0 and 1, whatever stands there. */
    const volatile struct witness_cell *from = (const volatile void *)numbers;
    struct witness_cell *to = &out->cells[0][0][0][0];
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++)
        to[i] = (struct witness_cell){from[i].launches, from[i].rows, from[i].parameters,
                                      *(const volatile uint8_t *)&from[i].varied != 0};
}

/* ---- timelines ------------------------------------------------------------------------------ */

static bool timeline_open(struct sequence *s)
{
    const float *numbers;
    struct link_step *step = remote_step(s->model->remote->remote, LINK_OPEN, NULL);
    struct link_segment *g = segment_add(step, s);
    g->length = g->drafted = 0;
    step->room = s->tokens_max;
    step->mixed = s->mixed;
    return remote_run(s->model->remote->remote, &numbers);
}

static void timeline_tell(const struct sequence *s, enum link_kind kind)
{
    const float *numbers;
    segment_add(remote_step(s->model->remote->remote, kind, NULL), s);
    /* Of no consequence when it is lost: then nothing is left to be ended or emptied. */
    (void)!remote_run(s->model->remote->remote, &numbers);
}

static bool remote_reserve(struct sequence *s)
{
    struct remote_network *n = s->model->remote;
    int32_t number = 0;
    while (number < LINK_TIMELINES && n->sequences[number] != NULL)
        number++;
    s->number = number;
    if (number == LINK_TIMELINES || !timeline_open(s))
        return false;
    n->sequences[number] = s;
    return true;
}

static void remote_release(struct sequence *s)
{
    timeline_tell(s, LINK_CLOSE);
    s->model->remote->sequences[s->number] = NULL;
}

static void remote_clear(struct sequence *s)
{
    timeline_tell(s, LINK_RESET);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static bool pool_open(const struct snapshots *p)
{
    const float *numbers;
    struct link_step *step = remote_step(p->model->remote->remote, LINK_POOL_OPEN, NULL);
    step->pool = p->number;
    step->n_blocks = p->n_blocks;
    step->n_tails = p->n_tails;
    return remote_run(p->model->remote->remote, &numbers);
}

static bool remote_pool_reserve(struct snapshots *p)
{
    struct remote_network *n = p->model->remote;
    int32_t number = 0;
    while (number < LINK_POOLS && n->pools[number] != NULL)
        number++;
    p->number = number;
    if (number == LINK_POOLS || p->block_bytes > sizeof(struct link_given) ||
        p->tail_bytes > sizeof(struct link_given) || !pool_open(p))
        return false;
    n->pools[number] = p;
    return true;
}

static void remote_pool_release(struct snapshots *p)
{
    const float *numbers;
    remote_step(p->model->remote->remote, LINK_POOL_CLOSE, NULL)->pool = p->number;
    (void)!remote_run(p->model->remote->remote, &numbers);
    p->model->remote->pools[p->number] = NULL;
}

static void remote_piece(const struct snapshots *p, const struct piece *piece)
{
    static const enum link_kind KINDS[] = {[PIECE_SAVE] = LINK_SAVE,
                                           [PIECE_LOAD] = LINK_LOAD,
                                           [PIECE_GET] = LINK_GET,
                                           [PIECE_PUT] = LINK_PUT};
    struct remote *r = p->model->remote->remote;
    if (piece->way == PIECE_DROP)
        return; /* its pool has a page for every slot */
    struct link_step *step = remote_step(r, KINDS[piece->way], piece->profile);
    const float *numbers;
    step->pool = p->number;
    step->tail = piece->tail;
    step->piece = piece->slot;
    step->at = piece->at;
    if (piece->sequence != NULL)
        segment_add(step, piece->sequence);
    if (remote_lost(r) != NULL)
        return;
    if (piece->way == PIECE_PUT)
        memcpy(remote_given(r), piece->from, piece_bytes(p, piece));
    if (remote_run(r, &numbers) && piece->way == PIECE_GET)
        memcpy(piece->to, numbers, piece_bytes(p, piece));
}

/* ---- losing it ------------------------------------------------------------------------------ */

static const char *remote_network_lost(const struct model *m)
{
    return remote_lost(m->remote->remote);
}

/* Everything that there is, empty. */
static bool reopen(struct remote_network *n)
{
    bool good = true;
    for (int32_t i = 0; i < LINK_TIMELINES; i++) {
        struct sequence *s = n->sequences[i];
        if (s == NULL)
            continue;
        s->length = s->draft_length = 0;
        s->profile_hash = 0;
        s->crossed = false;
        good = good && timeline_open(s);
    }
    for (int32_t i = 0; i < LINK_POOLS; i++)
        good = good && (n->pools[i] == NULL || pool_open(n->pools[i]));
    return good;
}

static bool remote_network_recover(struct model *m)
{
    struct remote_network *n = m->remote;
    if (!remote_restart(n->remote))
        return false;
    if (!reopen(n)) {
        remote_drop(n->remote, "has no memory for the timelines that there were");
        return false;
    }
    n->life++;
    remote_settled(n->remote);
    return true;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void remote_network_close(struct model *m)
{
    remote_close(m->remote->remote);
    free(m->remote);
}

static double remote_network_seconds(const struct model *m)
{
    return remote_seconds(m->remote->remote);
}

int32_t remote_network_gpus(const struct remote_network *n)
{
    return remote_gpus(n->remote);
}

int remote_network_process(const struct remote_network *n)
{
    return remote_process(n->remote);
}

bool remote_network_gauges(const struct remote_network *n, struct gauges *out)
{
    return remote_gauges(n->remote, out);
}

uint32_t remote_network_life(const struct remote_network *n)
{
    return n->life;
}

int remote_network_starts_failed(const struct remote_network *n)
{
    return remote_starts_failed(n->remote);
}

static const struct network_ops REMOTE = {
    .close = remote_network_close,
    .lost = remote_network_lost,
    .recover = remote_network_recover,
    .seconds = remote_network_seconds,
    .witness = remote_witness,
    .reserve = remote_reserve,
    .release = remote_release,
    .clear = remote_clear,
    .step = remote_layers,
    .draft = remote_draft,
    .rows = remote_rows,
    .pool_reserve = remote_pool_reserve,
    .pool_release = remote_pool_release,
    .piece = remote_piece,
};

enum status remote_network_open(const char *dir, const struct model_options *options,
                                struct model *m, struct error *err)
{
    m->remote = calloc(1, sizeof *m->remote);
    if (m->remote == NULL)
        return error_set(err, ERR_CAPACITY, "model: out of memory");
    m->ops = &REMOTE;
    enum status status = remote_open(dir, options, &m->remote->remote, err);
    if (status != OK)
        return status;
    m->config = remote_config(m->remote->remote);
    m->variant = remote_variant(m->remote->remote);
    m->packs = remote_packs(m->remote->remote);
    m->ranks = remote_ranks(m->remote->remote);
    m->step_tokens = remote_step_tokens(m->remote->remote);
    return OK;
}
