/*
 * Attention inside the network (model.md 2.3-2.5; the numbers in brackets are its equations): what
 * a row gives by itself, and for each span the stages that read and write its sequence's state.
 */
#include "engine/model/step.h"

/* (3)-(7), (13): everything that a row gives by itself. */
static void project(struct model *m, const struct step *step, const struct layer_weights *w,
                    int32_t ratio, struct place place)
{
    struct step_memory *s = &m->step;
    const struct model_config *c = m->config;
    const struct backend_ops *ops = m->backend->ops;
    const struct numerics *r = &m->numerics;
    struct linear_params down = {
        .x = s->u,
        .n = step->n,
        .cols = c->hidden_size,
        .place = place,
        .round_in = r->linear_in,
        .n_outs = 2,
        .outs = {{w->wq_a, s->q_lora, r->activation, r->precise, LINEAR_PLAIN},
                 {w->wkv, s->kv, r->activation, r->precise_entries, LINEAR_ENTRY}},
    };
    ops->linear(m->backend, &down);
    struct linear_params compress = {
        .x = s->u,
        .n = step->n,
        .cols = c->hidden_size,
        .place = place,
        .round_in = ROUND_NONE,
        .n_outs = ratio == RATIO_CSA ? 5 : 2,
        .outs = {{w->comp_wkv, s->kappa, r->project, r->precise, LINEAR_COMPRESSOR},
                 {w->comp_wgate, s->gamma, r->project, r->precise, LINEAR_COMPRESSOR},
                 {w->index_wkv, s->index_kappa, r->project, r->precise, LINEAR_COMPRESSOR},
                 {w->index_wgate, s->index_gamma, r->project, r->precise, LINEAR_COMPRESSOR},
                 {w->index_weights, s->index_weights, r->activation, r->precise, LINEAR_PLAIN}},
    };
    if (ratio != 0) /* right behind the others of the same rows: a backend may do both at once */
        ops->linear(m->backend, &compress);
    norm_run(m, &w->q_norm, s->q_lora, step->n, c->q_lora_rank, place);
    struct linear_params up = {
        .x = s->q_lora,
        .n = step->n,
        .cols = c->q_lora_rank,
        .place = place,
        .round_in = r->linear_in,
        .n_outs = ratio == RATIO_CSA ? 2 : 1,
        .outs = {{w->wq_b, s->q, r->activation, r->precise, LINEAR_PLAIN},
                 {w->index_wq_b, s->index_q, r->activation, r->precise, LINEAR_PLAIN}},
    };
    ops->linear(m->backend, &up);
    const double *rope = s->rope[ratio == 0 ? ROPE_WINDOW : ROPE_COMPRESSED];
    ops->query(m->backend, &(struct query_params){.q = s->q,
                                                  .rope = rope,
                                                  .n = step->n,
                                                  .heads = c->num_attention_heads,
                                                  .place = place,
                                                  .norm = r->query_norm,
                                                  .store = r->query});
    if (ratio == RATIO_CSA)
        ops->index_query(m->backend, &(struct index_query_params){.q = s->index_q,
                                                                  .rope = rope,
                                                                  .n = step->n,
                                                                  .heads = c->index_n_heads,
                                                                  .place = place,
                                                                  .round = r->key,
                                                                  .round_rotated = r->key_rotated,
                                                                  .rotate = r->rotate_queries});
}

/* One compressor (2.4) of a sequence: the main one, or the indexer's. */
struct compressor {
    const struct tensor *ape, *norm;
    const float *kappa, *gamma;
    float *kappa_ring, *gamma_ring, *cache;
    struct entry_pages pages;
    enum entry_format format;
    int32_t ratio, dim;
    bool index;
    enum layer_kind kind;
};

static struct compressor compressor_of(const struct model *m, const struct span *span,
                                       int32_t block, bool index)
{
    const struct layer_weights *w = model_block_weights(m, block);
    const struct step_memory *s = &m->step;
    const struct block_state *state = &span->sequence->blocks[block];
    const struct state_format format = span->sequence->format;
    enum layer_kind kind = attention_kind(m, block);
    if (index)
        return (struct compressor){&w->index_ape,
                                   &w->index_norm,
                                   s->index_kappa,
                                   s->index_gamma,
                                   state->index_kappa,
                                   state->index_gamma,
                                   state->index_keys,
                                   state->index_pages,
                                   format.key,
                                   RATIO_CSA,
                                   INDEX_HEAD_DIM,
                                   true,
                                   kind};
    return (struct compressor){&w->comp_ape,
                               &w->comp_norm,
                               s->kappa,
                               s->gamma,
                               state->kappa,
                               state->gamma,
                               state->compressed,
                               state->compressed_pages,
                               format.entry,
                               m->config->compress_ratios[block],
                               HEAD_DIM,
                               false,
                               kind};
}

static int32_t compressor_width(const struct compressor *k)
{
    return k->ratio == RATIO_CSA ? 2 * k->dim : k->dim;
}

static int32_t compressor_slots(const struct compressor *k)
{
    return k->ratio == RATIO_CSA ? CSA_SLOTS : HCA_SLOTS;
}

static void compressor_keep(struct model *m, const struct span *span, const struct compressor *k)
{
    int32_t width = compressor_width(k);
    struct compressor_store_params store = {
        .ape = *k->ape,
        .kappa = k->kappa + (int64_t)span->row * width,
        .gamma = k->gamma + (int64_t)span->row * width,
        .n = span->n,
        .at = m->step.positions + span->row,
        .ratio = k->ratio,
        .width = width,
        .kappa_ring = k->kappa_ring,
        .gamma_ring = k->gamma_ring,
        .ring_slots = compressor_slots(k),
    };
    m->backend->ops->compressor_store(m->backend, &store);
}

static void compressor_pool(struct model *m, const struct span *span, const struct compressor *k)
{
    const struct numerics *r = &m->numerics;
    const double *rope = k->ratio == RATIO_CSA
                             ? m->step.block_rope_csa + (int64_t)span->csa_row * ROPE_ROW
                             : m->step.block_rope_hca + (int64_t)span->hca_row * ROPE_ROW;
    struct compressor_pool_params pool = {
        .weight = *k->norm,
        .kappa_ring = k->kappa_ring,
        .gamma_ring = k->gamma_ring,
        .ring_slots = compressor_slots(k),
        .ratio = k->ratio,
        .width = compressor_width(k),
        .dim = k->dim,
        .at = m->step.positions + span->row,
        .n = blocks_finished(span, k->ratio),
        .rope = rope,
        .place = span_place(span, k->kind, blocks_finished(span, k->ratio)),
        .index = k->index,
        .round = k->index ? r->key : r->entry,
        .round_nope = k->index ? ROUND_NONE : r->entry_nope,
        .round_rotated = k->index ? r->key_rotated : ROUND_NONE,
        .rotate = k->index && r->rotate_keys,
        .precise = r->precise,
        .cache = k->cache,
        .pages = k->pages,
        .format = k->format,
    };
    if (pool.n > 0)
        m->backend->ops->compressor_pool(m->backend, &pool);
}

static void compress(struct model *m, const struct span *spans, int32_t n, int32_t block,
                     bool index)
{
    for (int32_t i = 0; i < n; i++) {
        struct compressor k = compressor_of(m, &spans[i], block, index);
        compressor_keep(m, &spans[i], &k);
    }
    for (int32_t i = 0; i < n; i++) {
        struct compressor k = compressor_of(m, &spans[i], block, index);
        compressor_pool(m, &spans[i], &k);
    }
}

/* (14)-(16) after the span's own keys are in place. */
static void select_entries(struct model *m, const struct span *span, int32_t block)
{
    const struct model_config *c = m->config;
    const struct block_state *state = &span->sequence->blocks[block];
    struct step_memory *s = &m->step;
    int64_t row = span->row;
    struct index_select_params p = {
        .q = s->index_q + row * c->index_n_heads * INDEX_HEAD_DIM,
        .weights = s->index_weights + row * c->index_n_heads,
        .keys = state->index_keys,
        .pages = state->index_pages,
        .format = span->sequence->format.key,
        .n = span->n,
        .at = s->positions + row,
        .reach = span_reach(span),
        .heads = c->index_n_heads,
        .topk = m->numerics.topk,
        .place = span_place(span, KIND_CSA, span->n),
        .score = m->numerics.score,
        .choice = m->numerics.choice,
        .precise = m->numerics.precise,
        .selected = s->selected + row * c->index_topk,
        .n_selected = s->n_selected + row,
    };
    m->backend->ops->index_select(m->backend, &p);
}

/* Where a row's rotation lies. */
static const double *rope_of(const struct model *m, const struct span *span, int32_t ratio)
{
    return m->step.rope[ratio == 0 ? ROPE_WINDOW : ROPE_COMPRESSED] + (int64_t)span->row * ROPE_ROW;
}

static void store_entries(struct model *m, const struct span *span, int32_t block)
{
    struct kv_store_params p = {
        .weight = model_block_weights(m, block)->kv_norm,
        .kv = m->step.kv + (int64_t)span->row * HEAD_DIM,
        .rope = rope_of(m, span, m->config->compress_ratios[block]),
        .n = span->n,
        .at = m->step.positions + span->row,
        .place = span_place(span, attention_kind(m, block), span->n),
        .round = m->numerics.entry,
        .round_nope = m->numerics.entry_nope,
        .ring = span->sequence->blocks[block].window,
        .ring_slots = WINDOW_SLOTS,
        .format = span->sequence->format.entry,
    };
    m->backend->ops->kv_store(m->backend, &p);
}

/* (8)-(10) */
static void attend(struct model *m, const struct span *span, int32_t block)
{
    const struct model_config *c = m->config;
    const struct block_state *state = &span->sequence->blocks[block];
    const struct numerics *r = &m->numerics;
    struct step_memory *s = &m->step;
    int64_t row = span->row, heads = (int64_t)c->num_attention_heads * HEAD_DIM;
    int32_t ratio = c->compress_ratios[block];
    bool csa = ratio == RATIO_CSA;
    struct attention_params p = {
        .sink = model_block_weights(m, block)->attn_sink,
        .q = s->q + row * heads,
        .ring = state->window,
        .compressed = state->compressed,
        .pages = state->compressed_pages,
        .format = span->sequence->format.entry,
        .selected = csa ? s->selected + row * c->index_topk : NULL,
        .n_selected = csa ? s->n_selected + row : NULL,
        .rope = rope_of(m, span, ratio),
        .n = span->n,
        .at = s->positions + row,
        .reach = span_reach(span),
        .heads = c->num_attention_heads,
        .ring_slots = WINDOW_SLOTS,
        .ratio = ratio,
        .topk = r->topk,
        .place = span_place(span, attention_kind(m, block), span->n),
        .math = r->attention[span->leg],
        .q_scaled = r->query == ATTN_QUERY_BF16_SCALED,
        .round = r->activation,
        .precise = r->precise,
        .out = s->heads_out + row * heads,
    };
    m->backend->ops->attention(m->backend, &p);
}

/* Stages that read and write a sequence's state (7)-(10), (14)-(16): each for all n spans, of which
 * no two are of one sequence, before the next one, so that a backend can run it for all of them at
 * once. */
static void stateful(struct model *m, const struct span *spans, int32_t n, int32_t block)
{
    int32_t ratio = m->config->compress_ratios[block];
    for (int32_t i = 0; i < n; i++)
        store_entries(m, &spans[i], block);
    if (ratio != 0)
        compress(m, spans, n, block, false);
    if (ratio == RATIO_CSA)
        compress(m, spans, n, block, true);
    for (int32_t i = 0; i < n && ratio == RATIO_CSA; i++)
        select_entries(m, &spans[i], block);
    for (int32_t i = 0; i < n; i++)
        attend(m, &spans[i], block);
}

/* All spans.  Those of one sequence follow each other, and the rings hold what one of them reads:
 * the next one begins when it is done. */
static void stateful_all(struct model *m, const struct step *step, int32_t block)
{
    for (int32_t from = 0, to = 1; from < step->n_spans; from = to++) {
        while (to < step->n_spans && step->spans[to].sequence != step->spans[to - 1].sequence)
            to++;
        stateful(m, step->spans + from, to - from, block);
    }
}

void attention_run(struct model *m, const struct step *step, int32_t block)
{
    const struct model_config *c = m->config;
    const struct layer_weights *w = model_block_weights(m, block);
    struct step_memory *s = &m->step;
    int32_t ratio = c->compress_ratios[block];
    struct place place = step_place(step, attention_kind(m, block));
    project(m, step, w, ratio, place);
    stateful_all(m, step, block);
    struct grouped_params grouped = {
        /* (11), bf16 activations as in the published code */
        .w = w->wo_a,
        .x = s->heads_out,
        .n = step->n,
        .groups = c->o_groups,
        .rank = c->o_lora_rank,
        .cols = c->num_attention_heads * HEAD_DIM / c->o_groups,
        .place = place,
        .round_in = m->numerics.group_in,
        .round = m->numerics.activation,
        .precise = m->numerics.precise,
        .y = s->grouped,
    };
    m->backend->ops->grouped(m->backend, &grouped);
    linear_run(m, &w->wo_b, s->grouped, step->n, s->y, place); /* (12) */
}
