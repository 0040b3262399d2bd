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

/* One compressor (2.4): the main one, or the indexer's. */
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

static void compress(struct model *m, const struct span *span, const struct compressor *k)
{
    bool csa = k->ratio == RATIO_CSA;
    const struct numerics *r = &m->numerics;
    int32_t width = (csa ? 2 : 1) * k->dim, slots = csa ? CSA_SLOTS : HCA_SLOTS;
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
        .ring_slots = slots,
    };
    m->backend->ops->compressor_store(m->backend, &store);
    if (blocks_finished(span, k->ratio) == 0)
        return;
    const double *rope = csa ? m->step.block_rope_csa + (int64_t)span->csa_row * ROPE_ROW
                             : m->step.block_rope_hca + (int64_t)span->hca_row * ROPE_ROW;
    struct compressor_pool_params pool = {
        .weight = *k->norm,
        .kappa_ring = k->kappa_ring,
        .gamma_ring = k->gamma_ring,
        .ring_slots = slots,
        .ratio = k->ratio,
        .width = width,
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
    m->backend->ops->compressor_pool(m->backend, &pool);
}

/* (14)-(16) after the span's own keys are in place. */
static void select_entries(struct model *m, const struct span *span,
                           const struct block_state *state)
{
    const struct model_config *c = m->config;
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

/* Stateful stages of one span: store its entries, compress, select, attend (7)-(10). */
static void attend(struct model *m, const struct span *span, const struct layer_weights *w,
                   int32_t block, int32_t ratio)
{
    const struct model_config *c = m->config;
    struct block_state *state = &span->sequence->blocks[block];
    const struct state_format format = span->sequence->format;
    struct step_memory *s = &m->step;
    const struct numerics *r = &m->numerics;
    enum layer_kind kind = attention_kind(m, block);
    int64_t row = span->row, heads = (int64_t)c->num_attention_heads * HEAD_DIM;
    bool csa = ratio == RATIO_CSA;
    const double *rope = s->rope[ratio == 0 ? ROPE_WINDOW : ROPE_COMPRESSED] + row * ROPE_ROW;
    m->backend->ops->kv_store(m->backend,
                              &(struct kv_store_params){.weight = w->kv_norm,
                                                        .kv = s->kv + row * HEAD_DIM,
                                                        .rope = rope,
                                                        .n = span->n,
                                                        .at = s->positions + row,
                                                        .place = span_place(span, kind, span->n),
                                                        .round = r->entry,
                                                        .round_nope = r->entry_nope,
                                                        .ring = state->window,
                                                        .ring_slots = WINDOW_SLOTS,
                                                        .format = format.entry});
    if (ratio != 0)
        compress(m, span,
                 &(struct compressor){&w->comp_ape, &w->comp_norm, s->kappa, s->gamma, state->kappa,
                                      state->gamma, state->compressed, state->compressed_pages,
                                      format.entry, ratio, HEAD_DIM, false, kind});
    if (csa) {
        compress(m, span,
                 &(struct compressor){&w->index_ape, &w->index_norm, s->index_kappa, s->index_gamma,
                                      state->index_kappa, state->index_gamma, state->index_keys,
                                      state->index_pages, format.key, ratio, INDEX_HEAD_DIM, true,
                                      kind});
        select_entries(m, span, state);
    }
    struct attention_params p = {
        .sink = w->attn_sink,
        .q = s->q + row * heads,
        .ring = state->window,
        .compressed = state->compressed,
        .pages = state->compressed_pages,
        .format = format.entry,
        .selected = csa ? s->selected + row * c->index_topk : NULL,
        .n_selected = csa ? s->n_selected + row : NULL,
        .rope = rope,
        .n = span->n,
        .at = s->positions + row,
        .reach = span_reach(span),
        .heads = c->num_attention_heads,
        .ring_slots = WINDOW_SLOTS,
        .ratio = ratio,
        .topk = r->topk,
        .place = span_place(span, kind, span->n),
        .math = r->attention[span->leg],
        .q_scaled = r->query == ATTN_QUERY_BF16_SCALED,
        .round = r->activation,
        .precise = r->precise,
        .out = s->heads_out + row * heads,
    };
    m->backend->ops->attention(m->backend, &p);
}

void attention_run(struct model *m, const struct step *step, int32_t block)
{
    const struct model_config *c = m->config;
    const struct layer_weights *w = model_block_weights(m, block);
    struct step_memory *s = &m->step;
    int32_t ratio = c->compress_ratios[block];
    struct place place = step_place(step, attention_kind(m, block));
    project(m, step, w, ratio, place);
    for (int32_t i = 0; i < step->n_spans; i++)
        attend(m, &step->spans[i], w, block, ratio);
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
