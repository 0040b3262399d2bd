/*
 * The network, once, over the operations of kernels/backend.h (equations: model.md section 2; the
 * numbers in brackets are its).  Reads top down: a step, a block, its two sub-layers.
 *
 * A step takes rows of several sequences under one profile.  Dense stages run over all rows; stages
 * with state run for each span of a sequence's rows, in order.  There is no decode path: a span of
 * the decode leg differs in the arithmetic that the profile chooses for its attention, and in
 * nothing else.
 */
#include "engine/model/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows and positions --------------------------------------------------------------------- */

static int32_t min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Adds n rows of a sequence.  @return the first of them in the step */
static int32_t rows_add(const struct model *m, struct step *step, struct sequence *sequence,
                        int32_t position, int32_t n, enum leg leg)
{
    int32_t row = step->n;
    ASSERT(leg == LEG_PREFILL || leg == LEG_DECODE);
    ASSERT(n >= 1 && n <= m->step_tokens - step->n);
    ASSERT(position <= sequence->tokens_max - n);
    for (int32_t i = 0; i < step->n_spans; i++)
        ASSERT(step->spans[i].sequence != sequence);
    for (int32_t done = 0; done < n; done += SPAN_TOKENS_MAX) {
        ASSERT(step->n_spans < STEP_SPANS_MAX);
        step->spans[step->n_spans++] = (struct span){.sequence = sequence,
                                                     .row = row + done,
                                                     .n = min(n - done, SPAN_TOKENS_MAX),
                                                     .position = position + done,
                                                     .leg = leg};
    }
    step->n += n;
    step->n_decode += leg == LEG_DECODE ? n : 0;
    return row;
}

struct place step_place(const struct step *step, enum layer_kind kind)
{
    return (struct place){kind, step->n_decode};
}

struct place span_place(const struct span *span, enum layer_kind kind, int32_t n)
{
    return (struct place){kind, span->leg == LEG_DECODE ? n : 0};
}

enum layer_kind attention_kind(const struct model *m, int32_t block)
{
    int32_t ratio = m->config->compress_ratios[block];
    if (block >= m->config->num_hidden_layers)
        return KIND_DRAFT;
    return ratio == 0 ? KIND_WINDOW : ratio == RATIO_CSA ? KIND_CSA : KIND_HCA;
}

int32_t blocks_finished(const struct span *span, int32_t ratio)
{
    return (span->position + span->n) / ratio - span->position / ratio;
}

int32_t span_reach(const struct span *span)
{
    int32_t reach = (span->position + span->n + RECORDED_REACH - 1) / RECORDED_REACH;
    return reach * RECORDED_REACH;
}

static void rope_rows(struct model *m, enum rope_kind kind, const int32_t *positions, int32_t n,
                      double *rows)
{
    struct rope_table_params p = {.positions = positions, .n = n, .rows = rows};
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++)
        p.frequency[i] = m->frequency[kind][i];
    if (n > 0)
        m->backend->ops->rope_table(m->backend, &p);
}

/* The first token of every block that the step completes.  @return how many */
static int32_t block_positions(struct model *m, struct step *step, int32_t ratio, int32_t *device)
{
    int32_t positions[STEP_TOKENS_MAX], n = 0;
    for (int32_t i = 0; i < step->n_spans; i++) {
        struct span *span = &step->spans[i];
        *(ratio == RATIO_CSA ? &span->csa_row : &span->hca_row) = n;
        for (int32_t j = 0; j < blocks_finished(span, ratio); j++)
            positions[n++] = (span->position / ratio + j) * ratio;
    }
    if (n > 0)
        m->backend->ops->upload(m->backend, device, positions, (size_t)n * sizeof *positions);
    return n;
}

/* What the step's numbers are, into device memory. */
static void step_begin(struct model *m, const struct profile *profile, struct step *step,
                       const int32_t *ids)
{
    int32_t positions[STEP_TOKENS_MAX] = {0}; /* experts alone have no spans */
    m->numerics = numerics_of(profile, m->config, &m->perturbation);
    for (int32_t i = 0; i < step->n_spans; i++) {
        for (int32_t j = 0; j < step->spans[i].n; j++)
            positions[step->spans[i].row + j] = step->spans[i].position + j;
    }
    for (int32_t i = 0; i < step->n; i++)
        ASSERT(ids[i] >= 0 && ids[i] < m->config->vocab_size);
    m->backend->ops->upload(m->backend, m->step.ids, ids, (size_t)step->n * sizeof *ids);
    m->backend->ops->upload(m->backend, m->step.positions, positions,
                            (size_t)step->n * sizeof *positions);
    step->n_csa = block_positions(m, step, RATIO_CSA, m->step.csa_positions);
    step->n_hca = block_positions(m, step, RATIO_HCA, m->step.hca_positions);
}

/* Rotations of rows and of finished blocks. */
static void step_ropes(struct model *m, const struct step *step)
{
    struct step_memory *s = &m->step;
    for (int kind = 0; kind < ROPE_KINDS; kind++)
        rope_rows(m, kind, s->positions, step->n, s->rope[kind]);
    rope_rows(m, ROPE_COMPRESSED, s->csa_positions, step->n_csa, s->block_rope_csa);
    rope_rows(m, ROPE_COMPRESSED, s->hca_positions, step->n_hca, s->block_rope_hca);
}

/* ---- small stages ---------------------------------------------------------------------------- */

void norm_run(struct model *m, const struct tensor *weight, float *x, int32_t n, int32_t width,
              struct place place)
{
    struct rms_norm_params p = {.weight = *weight,
                                .x = x,
                                .n = n,
                                .width = width,
                                .place = place,
                                .round = m->numerics.activation,
                                .out = x};
    m->backend->ops->rms_norm(m->backend, &p);
}

void linear_run(struct model *m, const struct tensor *w, const float *x, int32_t n, float *y,
                struct place place)
{
    const struct numerics *r = &m->numerics;
    struct linear_params p = {.x = x,
                              .n = n,
                              .cols = w->cols,
                              .place = place,
                              .round_in = r->linear_in,
                              .n_outs = 1,
                              .outs = {{*w, y, r->activation, r->precise, LINEAR_PLAIN}}};
    m->backend->ops->linear(m->backend, &p);
}

/* ---- mixture of experts --------------------------------------------------------------------- */

static enum layer_kind moe_kind(const struct model *m, int32_t block)
{
    if (block >= m->config->num_hidden_layers)
        return KIND_DRAFT;
    return block < m->config->num_hash_layers ? KIND_HASH : KIND_SCORE;
}

static void moe(struct model *m, const struct step *step, int32_t block)
{
    const struct model_config *c = m->config;
    const struct numerics *r = &m->numerics;
    struct place place = step_place(step, moe_kind(m, block));
    const struct layer_weights *w = model_block_weights(m, block);
    struct step_memory *s = &m->step;
    struct route_params route = {
        .gate = w->gate,
        .bias = w->gate_bias,
        .tid2eid = w->gate_tid2eid,
        .x = s->u,
        .ids = s->ids,
        .n = step->n,
        .hidden = c->hidden_size,
        .top = c->num_experts_per_tok,
        .place = place,
        .scale = r->scale,
        .scaling = r->scaling,
        .round = r->route,
        .precise = r->precise,
        .experts = s->experts,
        .weights = s->expert_weights,
    };
    m->backend->ops->route(m->backend, &route);
    struct experts_params experts = {
        .experts = m->experts + (int64_t)block * (c->n_routed_experts + c->n_shared_experts),
        .n_routed = c->n_routed_experts,
        .n_shared = c->n_shared_experts,
        .x = s->u,
        .chosen = s->experts,
        .weights = s->expert_weights,
        .n = step->n,
        .hidden = c->hidden_size,
        .inner = c->moe_intermediate_size,
        .top = c->num_experts_per_tok,
        .place = place,
        .scale = r->scale,
        .scaling = r->scaling,
        .precise = r->precise,
        .limit = r->limit,
        .round_in = r->routed_in,
        .round_shared = r->linear_in,
        .round_out = r->activation,
        .out = s->y,
    };
    m->backend->ops->experts(m->backend, &experts);
}

/* ---- a block -------------------------------------------------------------------------------- */

static void hc_pre(struct model *m, const struct step *step, const struct tensor *fn,
                   const struct tensor *base, const struct tensor *scale, struct place place)
{
    struct step_memory *s = &m->step;
    m->backend->ops->hc_pre(m->backend, &(struct hc_pre_params){.fn = *fn,
                                                                .base = *base,
                                                                .scale = *scale,
                                                                .streams = s->streams,
                                                                .n = step->n,
                                                                .hidden = m->config->hidden_size,
                                                                .place = place,
                                                                .mix = m->numerics.mix,
                                                                .round = m->numerics.activation,
                                                                .out = s->u,
                                                                .post = s->post,
                                                                .comb = s->comb});
}

static void hc_post(struct model *m, const struct step *step, struct place place)
{
    struct step_memory *s = &m->step;
    m->backend->ops->hc_post(m->backend,
                             &(struct hc_post_params){.y = s->y,
                                                      .streams = s->streams,
                                                      .post = s->post,
                                                      .comb = s->comb,
                                                      .n = step->n,
                                                      .hidden = m->config->hidden_size,
                                                      .place = place,
                                                      .transposed = m->numerics.hc_transposed,
                                                      .round = m->numerics.streams,
                                                      .streams_out = s->streams_next});
    float *swap = s->streams;
    s->streams = s->streams_next;
    s->streams_next = swap;
}

/* 2.2: both sub-layers in the same wrapper, streams to streams. */
static void block_run(struct model *m, const struct step *step, int32_t block)
{
    const struct layer_weights *w = model_block_weights(m, block);
    struct place place = step_place(step, attention_kind(m, block));
    hc_pre(m, step, &w->hc_attn_fn, &w->hc_attn_base, &w->hc_attn_scale, place);
    norm_run(m, &w->attn_norm, m->step.u, step->n, m->config->hidden_size, place);
    attention_run(m, step, block);
    hc_post(m, step, place);
    place.kind = moe_kind(m, block);
    hc_pre(m, step, &w->hc_ffn_fn, &w->hc_ffn_base, &w->hc_ffn_scale, place);
    norm_run(m, &w->ffn_norm, m->step.u, step->n, m->config->hidden_size, place);
    moe(m, step, block);
    hc_post(m, step, place);
}

/* ---- tracing -------------------------------------------------------------------------------- */

static void trace_row(struct model *m, int32_t layer, const struct span *span, int32_t i)
{
    const struct model_config *c = m->config;
    struct step_memory *s = &m->step;
    int64_t row = span->row + i, width = (int64_t)HC_MULT * c->hidden_size;
    int32_t ratio = c->compress_ratios[layer], position = span->position + i;
    int32_t experts[TOP_EXPERTS_MAX], n_selected = -1;
    int32_t *selected = calloc(POSITIONS_MAX / RATIO_HCA, sizeof *selected);
    float *streams = calloc((size_t)width, sizeof *streams);
    ASSERT(selected != NULL && streams != NULL);
    const struct backend_ops *ops = m->backend->ops;
    ops->download(m->backend, streams, s->streams + row * width, (size_t)width * sizeof *streams);
    ops->download(m->backend, experts, s->experts + row * c->num_experts_per_tok,
                  (size_t)c->num_experts_per_tok * sizeof *experts);
    double sum = 0;
    for (int64_t k = 0; k < width; k++)
        sum += (double)streams[k] * streams[k];
    if (ratio == RATIO_CSA) {
        ops->download(m->backend, &n_selected, s->n_selected + row, sizeof n_selected);
        ops->download(m->backend, selected, s->selected + row * m->numerics.topk,
                      (size_t)n_selected * sizeof *selected);
    } else if (ratio != 0) {
        n_selected = (position + 1) / ratio;
        for (int32_t j = 0; j < n_selected; j++)
            selected[j] = j;
    }
    struct layer_trace trace = {
        layer,    position,  sqrt(sum / (double)width), experts, c->num_experts_per_tok,
        selected, n_selected};
    m->trace(m->trace_user, &trace);
    free(streams);
    free(selected);
}

static void trace_layer(struct model *m, const struct step *step, int32_t layer)
{
    for (int32_t i = 0; i < step->n_spans && m->trace != NULL; i++) {
        for (int32_t j = 0; j < step->spans[i].n; j++)
            trace_row(m, layer, &step->spans[i], j);
    }
}

/* ---- logits --------------------------------------------------------------------------------- */

/* The tensors between the last streams and the logits; the draft block has its own. */
struct output {
    const struct tensor *fn, *base, *scale, *norm;
};

/* Rows of logits that a step may be asked for: all of LOGITS_ROWS_MAX, and each last one again. */
#define WANTED_MAX (2 * LOGITS_ROWS_MAX)

/* One row of logits that somebody wants. */
struct wanted {
    int32_t row;
    float *to;         /* host [vocab]; NULL: only sampled from */
    struct pick *pick; /* NULL: only told */
    enum leg leg;
};

/* (23) (24) over rows that were gathered into streams_next. */
static void logits_of(struct model *m, const struct output *out, const struct wanted *wanted,
                      int32_t n)
{
    const struct model_config *c = m->config;
    const struct backend_ops *ops = m->backend->ops;
    struct step_memory *s = &m->step;
    size_t width = (size_t)HC_MULT * (size_t)c->hidden_size;
    struct place place = {.kind = KIND_HEAD};
    for (int32_t i = 0; i < n; i++)
        place.n_decode += wanted[i].leg == LEG_DECODE;
    for (int32_t i = 0; i < n; i++)
        ops->copy(m->backend, s->streams_next + (size_t)i * width,
                  s->streams + (size_t)wanted[i].row * width, width * sizeof(float));
    ops->hc_head(m->backend, &(struct hc_head_params){.fn = *out->fn,
                                                      .base = *out->base,
                                                      .scale = *out->scale,
                                                      .streams = s->streams_next,
                                                      .n = n,
                                                      .hidden = c->hidden_size,
                                                      .place = place,
                                                      .mix = m->numerics.mix,
                                                      .round = m->numerics.activation,
                                                      .out = s->u});
    norm_run(m, out->norm, s->u, n, c->hidden_size, place);
    struct linear_params head = {.x = s->u,
                                 .n = n,
                                 .cols = c->hidden_size,
                                 .place = place,
                                 .round_in = ROUND_NONE,
                                 .n_outs = 1,
                                 .outs = {{m->weights->head, s->logits, m->numerics.logits,
                                           m->numerics.precise, LINEAR_HEAD}}};
    ops->linear(m->backend, &head);
}

/* Rows of logits to whom they are for: told first, as picking changes them. */
static void logits_take(struct model *m, const struct wanted *wanted, int32_t n)
{
    const struct backend_ops *ops = m->backend->ops;
    size_t vocab = (size_t)m->config->vocab_size;
    struct pick_row rows[LOGITS_ROWS_MAX];
    struct pick_params pick = {m->step.logits, rows, 0, m->config->vocab_size};
    for (int32_t i = 0; i < n; i++) {
        if (wanted[i].to != NULL)
            ops->download(m->backend, wanted[i].to, m->step.logits + (size_t)i * vocab,
                          vocab * sizeof(float));
        if (wanted[i].pick != NULL)
            rows[pick.n++] = (struct pick_row){i, wanted[i].pick};
    }
    if (pick.n > 0)
        ops->pick(m->backend, &pick);
}

/* Adds what is wanted of g->n rows from `row` on: all of them, those behind which a token is
 * picked, or the last, or several of these (the last is then computed twice). */
static int32_t wanted_add(struct wanted *wanted, int32_t n, int32_t row, const struct segment *g,
                          int32_t vocab)
{
    for (int32_t i = g->logits_all != NULL ? 0 : g->n - g->n_picks; i < g->n; i++) {
        int32_t at = i - (g->n - g->n_picks);
        struct pick *pick = at >= 0 ? &g->picks[at] : NULL;
        float *to = g->logits_all != NULL ? g->logits_all + (int64_t)i * vocab : NULL;
        ASSERT(n < WANTED_MAX);
        wanted[n++] = (struct wanted){row + i, to, pick, g->leg};
    }
    if (g->logits_last != NULL) {
        ASSERT(n < WANTED_MAX);
        wanted[n++] = (struct wanted){row + g->n - 1, g->logits_last, NULL, g->leg};
    }
    return n;
}

static void wanted_run(struct model *m, const struct output *out, const struct wanted *wanted,
                       int32_t n)
{
    for (int32_t at = 0; at < n; at += LOGITS_ROWS_MAX) {
        int32_t some = min(n - at, LOGITS_ROWS_MAX);
        logits_of(m, out, wanted + at, some);
        logits_take(m, wanted + at, some);
    }
}

/* ---- steps that come again ------------------------------------------------------------------- */

/* What a step's operations follow from, but for what step_begin brings to device memory.  No
 * padding: keys are compared as bytes. */
struct step_key {
    uint64_t numerics, draft, n, n_spans;
    uint8_t values[(PRECISION_ROWS + 7) / 8 * 8];
    struct {
        uint64_t state, tokens_max, entry, key; /* of the sequence: where it lies, and how */
        uint64_t n, leg, csa, hca;              /* csa, hca: blocks that it finishes */
        uint64_t reach;
        uint64_t all, picks, last; /* rows of logits that are wanted */
    } spans[RECORDED_TOKENS_MAX];
};

/* @return bytes of the key; 0: a step that is not worth recording */
static size_t step_key_fill(const struct model *m, const struct profile *profile,
                            const struct step *step, const struct segment *segments, bool draft,
                            struct step_key *key)
{
    if (m->backend->ops->replay == NULL || step->n > RECORDED_TOKENS_MAX || m->trace != NULL)
        return 0;
    memset(key, 0, sizeof *key);
    key->numerics = numerics_hash(profile, &m->perturbation);
    key->draft = draft;
    key->n = (uint64_t)step->n, key->n_spans = (uint64_t)step->n_spans;
    memcpy(key->values, profile->values, sizeof profile->values);
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct span *span = &step->spans[i];
        key->spans[i].state = (uintptr_t)span->sequence->memory;
        key->spans[i].tokens_max = (uint64_t)span->sequence->tokens_max;
        key->spans[i].entry = span->sequence->format.entry;
        key->spans[i].key = span->sequence->format.key;
        key->spans[i].n = (uint64_t)span->n, key->spans[i].leg = span->leg;
        key->spans[i].csa = (uint64_t)blocks_finished(span, RATIO_CSA);
        key->spans[i].hca = (uint64_t)blocks_finished(span, RATIO_HCA);
        key->spans[i].reach = (uint64_t)span_reach(span);
        key->spans[i].all = segments[i].logits_all != NULL;
        key->spans[i].picks = (uint64_t)segments[i].n_picks;
        key->spans[i].last = segments[i].logits_last != NULL;
    }
    return offsetof(struct step_key, spans) + (size_t)step->n_spans * sizeof key->spans[0];
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Keeps the streams of the step's rows for the draft block: of the last span at least, which is all
 * that the slots hold.  Rows up to the last slot are one copy. */
static void streams_keep(struct model *m, const struct step *step)
{
    size_t width = (size_t)HC_MULT * (size_t)m->config->hidden_size;
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct span *span = &step->spans[i];
        bool all = span->sequence->streams != NULL;
        for (int32_t j = 0, n; j < span->n && all; j += n) {
            int32_t slot = (span->position + j) % STREAM_SLOTS;
            n = min(span->n - j, STREAM_SLOTS - slot);
            m->backend->ops->copy(m->backend, span->sequence->streams + (size_t)slot * width,
                                  m->step.streams + (size_t)(span->row + j) * width,
                                  (size_t)n * width * sizeof(float));
        }
    }
}

/* Everything between the step's ids and its last streams. */
static void layers_run(struct model *m, const struct step *step)
{
    struct embed_params embed = {m->weights->embed, m->step.ids, step->n, HC_MULT, m->step.streams};
    step_ropes(m, step);
    m->backend->ops->embed(m->backend, &embed);
    for (int32_t layer = 0; layer < m->config->num_hidden_layers; layer++) {
        block_run(m, step, layer);
        trace_layer(m, step, layer);
    }
}

/* Rows of a step, from its ids to what is wanted of them. */
struct run {
    void (*rows)(struct model *m, const struct step *step); /* to the last streams */
    /* copies that no recording has, as their places change */
    void (*keep)(struct model *m, const struct step *step);
    struct output out;
    struct wanted wanted[WANTED_MAX];
    int32_t n; /* wanted */
};

/* bytes: of the key; 0: the step is not recorded */
static void step_run(struct model *m, const struct step *step, const struct run *run,
                     const struct step_key *key, size_t bytes)
{
    const struct backend_ops *ops = m->backend->ops;
    if (bytes == 0) {
        run->rows(m, step);
        run->keep(m, step);
        wanted_run(m, &run->out, run->wanted, run->n);
        return;
    }
    if (!ops->replay(m->backend, key, bytes)) {
        run->rows(m, step);
        if (run->n > 0)
            logits_of(m, &run->out, run->wanted, run->n);
        ops->replay_end(m->backend);
    }
    run->keep(m, step);
    logits_take(m, run->wanted, run->n);
}

void local_step(struct model *m, const struct profile *profile, const struct segment *segments,
                int n_segments)
{
    const struct model_config *c = m->config;
    const struct model_weights *w = m->weights;
    struct step step = {0};
    struct run run = {.rows = layers_run,
                      .keep = streams_keep,
                      .out = {&w->hc_head_fn, &w->hc_head_base, &w->hc_head_scale, &w->norm}};
    int32_t ids[STEP_TOKENS_MAX] = {0};
    for (int i = 0; i < n_segments; i++) {
        const struct segment *g = &segments[i];
        int32_t row = rows_add(m, &step, g->sequence, g->sequence->length, g->n, g->leg);
        sequence_pages_own(g->sequence, g->n);
        memcpy(ids + row, g->ids, (size_t)g->n * sizeof *ids);
        run.n = wanted_add(run.wanted, run.n, row, g, c->vocab_size);
    }
    step_begin(m, profile, &step, ids);
    struct step_key key;
    size_t bytes = step_key_fill(m, profile, &step, segments, false, &key);
    step_run(m, &step, &run, &key, bytes);
}

void local_rows(struct model *m, const struct profile *profile, const struct layer_rows *rows)
{
    const struct backend_ops *ops = m->backend->ops;
    struct step step = {.n = rows->n, .n_decode = rows->leg == LEG_DECODE ? rows->n : 0};
    size_t bytes = (size_t)rows->n * rows->width * sizeof(float);
    if (rows->sequence != NULL) {
        step = (struct step){0};
        rows_add(m, &step, rows->sequence, rows->sequence->length, rows->n, rows->leg);
        sequence_pages_own(rows->sequence, rows->n);
    }
    step_begin(m, profile, &step, rows->ids);
    step_ropes(m, &step);
    if (rows->sequence != NULL) {
        ops->upload(m->backend, m->step.streams, rows->in, bytes);
        block_run(m, &step, rows->block);
        ops->download(m->backend, rows->out, m->step.streams, bytes);
    } else {
        ops->upload(m->backend, m->step.u, rows->in, bytes);
        moe(m, &step, rows->block);
        ops->download(m->backend, rows->out, m->step.y, bytes);
    }
}

/* The streams of the step's positions, which draft_join takes. */
static void draft_streams_take(struct model *m, const struct step *step)
{
    size_t width = (size_t)HC_MULT * (size_t)m->config->hidden_size;
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct span *span = &step->spans[i];
        for (int32_t j = 0; j < span->n; j++) {
            size_t slot = (size_t)(span->position + j) % STREAM_SLOTS;
            m->backend->ops->copy(m->backend,
                                  m->step.streams_next + (size_t)(span->row + j) * width,
                                  span->sequence->streams + slot * width, width * sizeof(float));
        }
    }
}

/* (2.8): streams of position i and the token at i + 1 into new streams. */
static void draft_join(struct model *m, const struct step *step, const struct mtp_weights *w)
{
    const struct model_config *c = m->config;
    const struct backend_ops *ops = m->backend->ops;
    struct step_memory *s = &m->step;
    size_t hidden = (size_t)c->hidden_size;
    ops->embed(m->backend, &(struct embed_params){m->weights->embed, s->ids, step->n, 1, s->u});
    struct place place = step_place(step, KIND_DRAFT);
    norm_run(m, &w->enorm, s->u, step->n, c->hidden_size, place);
    linear_run(m, &w->e_proj, s->u, step->n, s->y, place);
    struct place streams = {KIND_DRAFT, HC_MULT * step->n_decode};
    norm_run(m, &w->hnorm, s->streams_next, step->n * HC_MULT, c->hidden_size, streams);
    for (size_t part = 0; part < HC_MULT; part++) { /* a linear takes at most a step's rows */
        size_t at = part * (size_t)step->n * hidden;
        linear_run(m, &w->h_proj, s->streams_next + at, step->n, s->streams + at, place);
    }
    struct mtp_join_params join = {.e = s->y,
                                   .h = s->streams,
                                   .n = step->n,
                                   .hidden = c->hidden_size,
                                   .place = place,
                                   .round = m->numerics.streams,
                                   .streams = s->streams};
    ops->mtp_join(m->backend, &join);
}

/* Leaves the streams of each last row where those of the position behind it will stand, for a row
 * beyond.  What is there is further back than any row reads. */
static void draft_streams_keep(struct model *m, const struct step *step)
{
    size_t width = (size_t)HC_MULT * (size_t)m->config->hidden_size;
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct span *span = &step->spans[i];
        int32_t next = span->position + span->n;
        if (next < span->sequence->length)
            continue; /* its true ones are known */
        m->backend->ops->copy(
            m->backend, span->sequence->streams + (size_t)(next % STREAM_SLOTS) * width,
            m->step.streams + (size_t)(span->row + span->n - 1) * width, width * sizeof(float));
    }
}

/* Everything between the taken streams and the draft block's own. */
static void draft_run(struct model *m, const struct step *step)
{
    step_ropes(m, step);
    draft_join(m, step, &m->weights->mtp[0]);
    block_run(m, step, m->config->num_hidden_layers);
}

void local_draft(struct model *m, const struct profile *profile,
                 const struct draft_segment *segments, int n_segments)
{
    const struct model_config *c = m->config;
    const struct mtp_weights *w = &m->weights->mtp[0];
    struct step step = {0};
    struct run run = {.rows = draft_run,
                      .keep = draft_streams_keep,
                      .out = {&w->hc_head_fn, &w->hc_head_base, &w->hc_head_scale, &w->norm}};
    struct segment wants[SPAN_TOKENS_MAX];
    int32_t ids[SPAN_TOKENS_MAX];
    for (int i = 0; i < n_segments; i++) {
        const struct draft_segment *g = &segments[i];
        struct sequence *q = g->sequence;
        int32_t position = q->draft_length + (g->beyond > 0 ? g->beyond - 1 : 0);
        ASSERT(g->n <= SPAN_TOKENS_MAX - step.n); /* as many as there are streams of */
        int32_t row = rows_add(m, &step, q, position, g->n, LEG_DECODE);
        memcpy(ids + row, g->next_ids, (size_t)g->n * sizeof *ids);
        wants[i] = (struct segment){.n = g->n,
                                    .leg = LEG_DECODE,
                                    .logits_last = g->logits_last,
                                    .logits_all = g->logits_all,
                                    .picks = g->pick,
                                    .n_picks = g->pick != NULL};
        run.n = wanted_add(run.wanted, run.n, row, &wants[i], c->vocab_size);
    }
    step_begin(m, profile, &step, ids);
    draft_streams_take(m, &step);
    struct step_key key;
    size_t bytes = step_key_fill(m, profile, &step, wants, true, &key);
    step_run(m, &step, &run, &key, bytes);
}
