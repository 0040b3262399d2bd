/*
 * Times of the GPU backend at the published model's size (row `flash`), with the numbers of profile
 * `official` unless a row says otherwise: operations by themselves, and whole layers in one graph.
 *
 * Weights are random and made on the device.  Every row works through four layers with weights of
 * their own, so that none is found in the L2, and shows the mean of a layer; a time is the median
 * of several replays of a graph.  `share` is of what plain reading moves on the same card.
 */
#include "config/limits.h"
#include "engine/model/config.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TIMES      15
#define WARM       3
#define LAYERS     4 /* alternately ratio 4 and ratio 128, as the model has them */
#define READ_BYTES ((size_t)4 << 30)
#define WINDOW     (SLIDING_WINDOW + SPAN_TOKENS_MAX) /* slots of the rings */

struct layer {
    struct tensor fn, base, scale, norm, q_norm, kv_norm, sink;
    struct tensor wq_a, wkv, wq_b, index_wq_b, wo_a, wo_b;
    struct tensor compress[LINEAR_OUTS_MAX]; /* kappa, gamma, index kappa, index gamma, weights */
    struct tensor ape, comp_norm, index_ape, index_norm;
    struct tensor gate, bias;
    struct expert *experts; /* owns */
    float *window, *kappa, *gamma, *compressed, *index_kappa, *index_gamma, *index_keys;
};

struct bench {
    struct backend *b;
    const struct model_config *c;
    struct layer layers[LAYERS];
    struct tensor head;
    int32_t n, position;
    enum attn_math math;
    float *streams, *streams_next, *u, *y, *q_lora, *q, *kv, *out, *grouped, *logits;
    float *compress[LINEAR_OUTS_MAX], *index_q, *weights;
    double *post, *comb, *rope;
    int32_t *selected, *n_selected, *experts, *at; /* at: device [n] positions */
};

typedef void stage(struct bench *s, int32_t layer);

/* ---- memory --------------------------------------------------------------------------------- */

/* What is made at the addresses of tensors. */
static struct synth_part *parts; /* owns; for as long as the program runs */
static size_t n_parts;

/* Numbers of moderate size, others for each tensor. */
static void part_add(const void *at, uint64_t bytes, enum synth_kind kind)
{
    enum { SCALE = 120 }; /* 2^-7 */
    parts = realloc(parts, (n_parts + 1) * sizeof *parts);
    ASSERT(parts != NULL);
    parts[n_parts] = (struct synth_part){
        at, bytes, {.kind = kind, .state = n_parts, .factor = 0.02, .exponent = SCALE}};
    n_parts++;
}

static int by_address(const void *a, const void *b)
{
    const struct synth_part *x = a, *y = b;
    return ((uintptr_t)x->at > (uintptr_t)y->at) - ((uintptr_t)x->at < (uintptr_t)y->at);
}

/* A tensor that exists on the device alone: its address is a name. */
static struct tensor random_tensor(enum store store, int32_t rows, int32_t cols)
{
    size_t bytes = (size_t)rows * (size_t)(cols == 0 ? 1 : cols) * 8;
    char *name =
        mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(name != MAP_FAILED);
    static const enum synth_kind KINDS[] = {[STORE_F32] = SYNTH_F32,
                                            [STORE_BF16] = SYNTH_BF16,
                                            [STORE_FP8] = SYNTH_FP8,
                                            [STORE_FP4] = SYNTH_FP4};
    bool scaled = store == STORE_FP8 || store == STORE_FP4;
    part_add(name, bytes, KINDS[store]);
    if (scaled)
        part_add(name + bytes, bytes, SYNTH_SCALE);
    struct tensor t = {name, scaled ? (const uint8_t *)name + bytes : NULL, rows, cols, store, 0};
    return t;
}

static void *device(struct bench *s, size_t count, size_t size)
{
    void *memory = s->b->ops->reserve(s->b, count * size);
    ASSERT(memory != NULL);
    return memory;
}

static uint64_t random_word(void)
{
    static uint64_t state = 5;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Never zeros: they hide mistakes and can run faster.  Values that bfloat16 holds. */
static float *random_floats(struct bench *s, size_t n)
{
    enum { PIECE = 1 << 20 };
    float *at = device(s, n, sizeof *at), *host = malloc(PIECE * sizeof *host);
    ASSERT(host != NULL);
    for (size_t i = 0; i < PIECE; i++)
        host[i] = (float)((int)(random_word() % 255) - 127) / 128;
    for (size_t done = 0; done < n; done += PIECE)
        s->b->ops->upload(s->b, at + done, host,
                          (n - done < PIECE ? n - done : PIECE) * sizeof *host);
    free(host);
    return at;
}

static void layer_create(struct bench *s, struct layer *l, bool csa, int32_t context)
{
    const struct model_config *c = s->c;
    int32_t hidden = c->hidden_size, heads = c->num_attention_heads, rank = c->o_lora_rank;
    int32_t width = (csa ? 2 : 1) * HEAD_DIM, ratio = csa ? RATIO_CSA : RATIO_HCA;
    const struct {
        struct tensor *to;
        enum store store;
        int32_t rows, cols;
    } TENSORS[] = {
        {&l->fn, STORE_F32, HC_MIX, HC_MULT * hidden},
        {&l->base, STORE_F32, HC_MIX, 0},
        {&l->scale, STORE_F32, 3, 0},
        {&l->norm, STORE_BF16, hidden, 0},
        {&l->q_norm, STORE_BF16, c->q_lora_rank, 0},
        {&l->kv_norm, STORE_BF16, HEAD_DIM, 0},
        {&l->sink, STORE_F32, heads, 0},
        {&l->wq_a, STORE_FP8, c->q_lora_rank, hidden},
        {&l->wkv, STORE_FP8, HEAD_DIM, hidden},
        {&l->wq_b, STORE_FP8, heads * HEAD_DIM, c->q_lora_rank},
        {&l->index_wq_b, STORE_FP8, c->index_n_heads * INDEX_HEAD_DIM, c->q_lora_rank},
        {&l->wo_a, STORE_FP8, c->o_groups * rank, heads * HEAD_DIM / c->o_groups},
        {&l->wo_b, STORE_FP8, hidden, c->o_groups * rank},
        {&l->compress[0], STORE_BF16, width, hidden},
        {&l->compress[1], STORE_BF16, width, hidden},
        {&l->compress[2], STORE_BF16, 2 * INDEX_HEAD_DIM, hidden},
        {&l->compress[3], STORE_BF16, 2 * INDEX_HEAD_DIM, hidden},
        {&l->compress[4], STORE_BF16, c->index_n_heads, hidden},
        {&l->ape, STORE_F32, ratio, width},
        {&l->comp_norm, STORE_BF16, HEAD_DIM, 0},
        {&l->index_ape, STORE_F32, RATIO_CSA, 2 * INDEX_HEAD_DIM},
        {&l->index_norm, STORE_BF16, INDEX_HEAD_DIM, 0},
        {&l->gate, STORE_BF16, c->n_routed_experts, hidden},
        {&l->bias, STORE_F32, c->n_routed_experts, 0},
    };
    for (size_t i = 0; i < sizeof TENSORS / sizeof *TENSORS; i++)
        *TENSORS[i].to = random_tensor(TENSORS[i].store, TENSORS[i].rows, TENSORS[i].cols);
    l->experts = calloc((size_t)c->n_routed_experts + 1, sizeof *l->experts);
    ASSERT(l->experts != NULL);
    for (int32_t e = 0; e <= c->n_routed_experts; e++) {
        enum store store = e < c->n_routed_experts ? STORE_FP4 : STORE_FP8;
        l->experts[e].w1 = random_tensor(store, c->moe_intermediate_size, hidden);
        l->experts[e].w2 = random_tensor(store, hidden, c->moe_intermediate_size);
        l->experts[e].w3 = random_tensor(store, c->moe_intermediate_size, hidden);
    }
    size_t slots = WINDOW, entries = (size_t)(context / ratio);
    l->window = random_floats(s, slots * HEAD_DIM);
    l->kappa = random_floats(s, slots * (size_t)width);
    l->gamma = random_floats(s, slots * (size_t)width);
    l->compressed = random_floats(s, entries * HEAD_DIM);
    l->index_kappa = random_floats(s, slots * 2 * INDEX_HEAD_DIM);
    l->index_gamma = random_floats(s, slots * 2 * INDEX_HEAD_DIM);
    l->index_keys = random_floats(s, entries * INDEX_HEAD_DIM);
}

static void bench_create(struct bench *s, int32_t context)
{
    const struct model_config *c = s->c;
    const size_t n = STEP_TOKENS_MAX, hidden = (size_t)c->hidden_size;
    const size_t heads = (size_t)c->num_attention_heads * HEAD_DIM;
    for (int32_t i = 0; i < LAYERS; i++)
        layer_create(s, &s->layers[i], i % 2 == 0, context);
    s->head = random_tensor(STORE_BF16, c->vocab_size, c->hidden_size);
    const struct {
        float **to;
        size_t width;
    } ROWS[] = {
        {&s->streams, HC_MULT * hidden},
        {&s->streams_next, HC_MULT * hidden},
        {&s->u, hidden},
        {&s->y, hidden},
        {&s->q_lora, (size_t)c->q_lora_rank},
        {&s->q, heads},
        {&s->kv, HEAD_DIM},
        {&s->out, heads},
        {&s->grouped, (size_t)(c->o_groups * c->o_lora_rank)},
        {&s->logits, (size_t)c->vocab_size},
        {&s->compress[0], 2 * HEAD_DIM},
        {&s->compress[1], 2 * HEAD_DIM},
        {&s->compress[2], 2 * INDEX_HEAD_DIM},
        {&s->compress[3], 2 * INDEX_HEAD_DIM},
        {&s->compress[4], (size_t)c->index_n_heads},
        {&s->index_q, (size_t)c->index_n_heads * INDEX_HEAD_DIM},
        {&s->weights, (size_t)c->num_experts_per_tok},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        *ROWS[i].to = random_floats(s, n * ROWS[i].width);
    s->post = device(s, n * HC_MULT, sizeof *s->post);
    s->comb = device(s, n * HC_MULT * HC_MULT, sizeof *s->comb);
    s->rope = device(s, n * ROPE_ROW, sizeof *s->rope);
    s->selected = device(s, n * (size_t)c->index_topk, sizeof *s->selected);
    s->n_selected = device(s, n, sizeof *s->n_selected);
    s->at = device(s, n, sizeof *s->at);
    s->experts = device(s, n * (size_t)c->num_experts_per_tok, sizeof *s->experts);
}

/* Rotations, and random experts: distinct for each token, ascending. */
static void step_prepare(struct bench *s)
{
    int32_t positions[STEP_TOKENS_MAX], top = s->c->num_experts_per_tok;
    int32_t *experts = calloc((size_t)(s->n * top), sizeof *experts);
    ASSERT(experts != NULL);
    for (int32_t t = 0; t < s->n; t++) {
        positions[t] = s->position + t;
        int32_t part = s->c->n_routed_experts / top;
        for (int32_t i = 0; i < top; i++)
            experts[t * top + i] = i * part + (int32_t)(random_word() % (uint64_t)part);
    }
    s->b->ops->upload(s->b, s->at, positions, (size_t)s->n * sizeof *s->at);
    struct rope_table_params p = {.positions = s->at, .n = s->n, .rows = s->rope};
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++)
        p.frequency[i] = 1.0 / (1 + i);
    s->b->ops->rope_table(s->b, &p);
    s->b->ops->upload(s->b, s->experts, experts, (size_t)(s->n * top) * sizeof *experts);
    free(experts);
}

/* ---- operations ----------------------------------------------------------------------------- */

static struct place place_of(const struct bench *s)
{
    return (struct place){KIND_CSA, s->position >= 0 && s->n <= 64 ? s->n : 0};
}

static void hc_pre(struct bench *s, int32_t layer)
{
    const struct layer *l = &s->layers[layer];
    struct hc_pre_params p = {
        l->fn,       l->base,     l->scale,   s->streams, s->n,    s->c->hidden_size,
        place_of(s), HC_MIX_FP32, ROUND_BF16, s->u,       s->post, s->comb};
    s->b->ops->hc_pre(s->b, &p);
}

static void hc_post(struct bench *s, int32_t layer)
{
    (void)layer;
    struct hc_post_params p = {s->y,       s->streams,        s->post,     s->comb,
                               s->n,       s->c->hidden_size, place_of(s), false,
                               ROUND_BF16, s->streams_next};
    s->b->ops->hc_post(s->b, &p);
}

static void norm(struct bench *s, int32_t layer)
{
    struct rms_norm_params p = {s->layers[layer].norm, s->u,       s->n, s->c->hidden_size,
                                place_of(s),           ROUND_BF16, s->u};
    s->b->ops->rms_norm(s->b, &p);
}

static void q_norm(struct bench *s, int32_t layer)
{
    struct rms_norm_params p = {s->layers[layer].q_norm,
                                s->q_lora,
                                s->n,
                                s->c->q_lora_rank,
                                place_of(s),
                                ROUND_BF16,
                                s->q_lora};
    s->b->ops->rms_norm(s->b, &p);
}

static void linear(struct bench *s, const float *x, int32_t cols, enum round in, int32_t n_outs,
                   const struct tensor *const *w, float *const *y, enum round out, int precise)
{
    struct linear_params p = {
        .x = x, .n = s->n, .cols = cols, .place = place_of(s), .round_in = in, .n_outs = n_outs};
    for (int32_t i = 0; i < n_outs; i++) {
        p.outs[i].w = *w[i], p.outs[i].y = y[i];
        p.outs[i].round = out, p.outs[i].precise = i == precise;
    }
    s->b->ops->linear(s->b, &p);
}

static void down(struct bench *s, int32_t layer)
{
    const struct tensor *w[] = {&s->layers[layer].wq_a, &s->layers[layer].wkv};
    float *y[] = {s->q_lora, s->kv};
    linear(s, s->u, s->c->hidden_size, ROUND_FP8_128, 2, w, y, ROUND_BF16, 1);
}

static void up(struct bench *s, int32_t layer)
{
    const struct tensor *w[] = {&s->layers[layer].wq_b, &s->layers[layer].index_wq_b};
    float *y[] = {s->q, s->index_q};
    linear(s, s->q_lora, s->c->q_lora_rank, ROUND_FP8_128, layer % 2 == 0 ? 2 : 1, w, y, ROUND_BF16,
           -1);
}

static void compress(struct bench *s, int32_t layer)
{
    const struct tensor *c = s->layers[layer].compress;
    const struct tensor *w[] = {c, c + 1, c + 2, c + 3, c + 4};
    linear(s, s->u, s->c->hidden_size, ROUND_NONE, layer % 2 == 0 ? 5 : 2, w, s->compress,
           ROUND_NONE, -1);
}

static void wo_b(struct bench *s, int32_t layer)
{
    const struct tensor *w[] = {&s->layers[layer].wo_b};
    linear(s, s->grouped, s->c->o_groups * s->c->o_lora_rank, ROUND_FP8_128, 1, w, &s->y,
           ROUND_BF16, -1);
}

static void head(struct bench *s, int32_t layer)
{
    const struct tensor *w[] = {&s->head};
    (void)layer;
    linear(s, s->u, s->c->hidden_size, ROUND_NONE, 1, w, &s->logits, ROUND_NONE, -1);
}

static void wo_a(struct bench *s, int32_t layer)
{
    struct grouped_params p = {.w = s->layers[layer].wo_a,
                               .x = s->out,
                               .n = s->n,
                               .groups = s->c->o_groups,
                               .rank = s->c->o_lora_rank,
                               .cols = s->c->num_attention_heads * HEAD_DIM / s->c->o_groups,
                               .place = place_of(s),
                               .round = ROUND_BF16,
                               .y = s->grouped};
    s->b->ops->grouped(s->b, &p);
}

/* Tokens of the span from `at` on: stages with state take no more at once. */
static int32_t span_of(const struct bench *s, int32_t at)
{
    return s->n - at < SPAN_TOKENS_MAX ? s->n - at : SPAN_TOKENS_MAX;
}

static void rows(struct bench *s, int32_t layer)
{
    const struct layer *l = &s->layers[layer];
    struct query_params query = {
        s->q,        s->rope,         s->n,           s->c->num_attention_heads,
        place_of(s), ATTN_QNORM_FP32, ATTN_QUERY_BF16};
    s->b->ops->query(s->b, &query);
    for (int32_t at = 0; at < s->n; at += SPAN_TOKENS_MAX) {
        struct kv_store_params kv = {.weight = l->kv_norm,
                                     .kv = s->kv + (int64_t)at * HEAD_DIM,
                                     .rope = s->rope + (int64_t)at * ROPE_ROW,
                                     .n = span_of(s, at),
                                     .at = s->at + at,
                                     .place = {KIND_CSA, 0},
                                     .round = ROUND_BF16,
                                     .round_nope = ROUND_FP8_64,
                                     .ring = l->window,
                                     .ring_slots = WINDOW,
                                     .format = ENTRY_F32};
        s->b->ops->kv_store(s->b, &kv);
    }
    struct index_query_params index = {s->index_q,  s->rope,    s->n,         s->c->index_n_heads,
                                       place_of(s), ROUND_BF16, ROUND_FP4_32, true};
    if (layer % 2 == 0)
        s->b->ops->index_query(s->b, &index);
}

/* One compressor: stores a span's tokens and pools the blocks that they finish. */
static void compressor(struct bench *s, int32_t layer, bool index, int32_t at)
{
    const struct layer *l = &s->layers[layer];
    bool csa = layer % 2 == 0;
    int32_t dim = index ? INDEX_HEAD_DIM : HEAD_DIM, ratio = csa ? RATIO_CSA : RATIO_HCA;
    int32_t width = (csa ? 2 : 1) * dim, position = s->position + at;
    struct compressor_store_params store = {
        .ape = index ? l->index_ape : l->ape,
        .kappa = s->compress[index ? 2 : 0] + (int64_t)at * width,
        .gamma = s->compress[index ? 3 : 1] + (int64_t)at * width,
        .n = span_of(s, at),
        .at = s->at + at,
        .ratio = ratio,
        .width = width,
        .kappa_ring = index ? l->index_kappa : l->kappa,
        .gamma_ring = index ? l->index_gamma : l->gamma,
        .ring_slots = WINDOW,
    };
    s->b->ops->compressor_store(s->b, &store);
    struct compressor_pool_params pool = {
        .weight = index ? l->index_norm : l->comp_norm,
        .kappa_ring = store.kappa_ring,
        .gamma_ring = store.gamma_ring,
        .ring_slots = WINDOW,
        .ratio = ratio,
        .width = width,
        .dim = dim,
        .at = s->at + at,
        .n = (position + store.n) / ratio - position / ratio,
        .rope = s->rope,
        .place = {KIND_CSA, 0},
        .index = index,
        .round = ROUND_BF16,
        .round_nope = index ? ROUND_NONE : ROUND_FP8_64,
        .round_rotated = index ? ROUND_FP4_32 : ROUND_NONE,
        .rotate = index,
        .cache = index ? l->index_keys : l->compressed,
    };
    if (pool.n > 0)
        s->b->ops->compressor_pool(s->b, &pool);
}

static void compressors(struct bench *s, int32_t layer)
{
    for (int32_t at = 0; at < s->n; at += SPAN_TOKENS_MAX) {
        compressor(s, layer, false, at);
        if (layer % 2 == 0)
            compressor(s, layer, true, at);
    }
}

static void selection(struct bench *s, int32_t layer)
{
    for (int32_t at = 0; at < s->n; at += SPAN_TOKENS_MAX) {
        struct index_select_params p = {
            .q = s->index_q + (int64_t)at * s->c->index_n_heads * INDEX_HEAD_DIM,
            .weights = s->compress[4] + (int64_t)at * s->c->index_n_heads,
            .keys = s->layers[layer].index_keys,
            .n = span_of(s, at),
            .at = s->at + at,
            .reach = s->position + s->n,
            .heads = s->c->index_n_heads,
            .topk = s->c->index_topk,
            .place = {KIND_CSA, 0},
            .selected = s->selected + (int64_t)at * s->c->index_topk,
            .n_selected = s->n_selected + at,
        };
        s->b->ops->index_select(s->b, &p);
    }
}

static void attention(struct bench *s, int32_t layer)
{
    const struct layer *l = &s->layers[layer];
    const int64_t heads = (int64_t)s->c->num_attention_heads * HEAD_DIM;
    bool csa = layer % 2 == 0;
    for (int32_t at = 0; at < s->n; at += SPAN_TOKENS_MAX) {
        struct attention_params p = {
            .sink = l->sink,
            .q = s->q + at * heads,
            .ring = l->window,
            .compressed = l->compressed,
            .selected = csa ? s->selected + (int64_t)at * s->c->index_topk : NULL,
            .n_selected = csa ? s->n_selected + at : NULL,
            .rope = s->rope + (int64_t)at * ROPE_ROW,
            .n = span_of(s, at),
            .at = s->at + at,
            .reach = s->position + s->n,
            .heads = s->c->num_attention_heads,
            .ring_slots = WINDOW,
            .ratio = csa ? RATIO_CSA : RATIO_HCA,
            .topk = s->c->index_topk,
            .place = {KIND_CSA, s->n <= 64 ? s->n : 0},
            .math = s->math,
            .round = ROUND_BF16,
            .out = s->out + at * heads,
        };
        s->b->ops->attention(s->b, &p);
    }
}

static void route(struct bench *s, int32_t layer)
{
    struct route_params p = {
        .gate = s->layers[layer].gate,
        .bias = s->layers[layer].bias,
        .x = s->u,
        .n = s->n,
        .hidden = s->c->hidden_size,
        .top = s->c->num_experts_per_tok,
        .place = place_of(s),
        .scale = MOE_SCALE_GATE,
        .scaling = s->c->routed_scaling_factor,
        .experts = (int32_t *)(void *)s->logits, /* the step keeps its own random choice */
        .weights = s->weights,
    };
    s->b->ops->route(s->b, &p);
}

static void experts(struct bench *s, int32_t layer)
{
    struct experts_params p = {
        .experts = s->layers[layer].experts,
        .n_routed = s->c->n_routed_experts,
        .n_shared = 1,
        .x = s->u,
        .chosen = s->experts,
        .weights = s->weights,
        .n = s->n,
        .hidden = s->c->hidden_size,
        .inner = s->c->moe_intermediate_size,
        .top = s->c->num_experts_per_tok,
        .place = place_of(s),
        .limit = SWIGLU_LIMIT,
        .round_in = ROUND_FP8_128,
        .round_shared = ROUND_FP8_128,
        .round_out = ROUND_BF16,
        .out = s->y,
    };
    s->b->ops->experts(s->b, &p);
}

static void whole(struct bench *s, int32_t layer)
{
    static stage *const STAGES[] = {hc_pre,  norm,        down,      compress,  q_norm,  up,
                                    rows,    compressors, selection, attention, wo_a,    wo_b,
                                    hc_post, hc_pre,      norm,      route,     experts, hc_post};
    for (size_t i = 0; i < sizeof STAGES / sizeof *STAGES; i++) {
        if (STAGES[i] != selection || layer % 2 == 0)
            STAGES[i](s, layer);
    }
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* Bytes of weights and entries that a layer of a stage must read, for n tokens. */
static double bytes_of(const struct bench *s, stage *f)
{
    double hidden = s->c->hidden_size, q = s->c->q_lora_rank, heads = s->c->num_attention_heads;
    double expert = 3.0 * hidden * s->c->moe_intermediate_size * (0.5 + 1.0 / FP4_GROUP);
    double shared = 3.0 * hidden * s->c->moe_intermediate_size, hit = s->c->n_routed_experts;
    double part = (double)s->c->n_routed_experts / s->c->num_experts_per_tok, miss = 1;
    for (int32_t t = 0; t < s->n; t++)
        miss *= 1 - 1 / part;
    hit *= 1 - miss;
    double groups = s->c->o_groups * (double)s->c->o_lora_rank;
    double keys_csa = SLIDING_WINDOW + s->c->index_topk;
    double keys_hca = SLIDING_WINDOW + (double)s->position / RATIO_HCA;
    if (f == experts)
        return hit * expert + shared;
    if (f == down)
        return (q + HEAD_DIM) * hidden;
    if (f == up) /* the mean of both kinds of layer, here and below */
        return q * (heads * HEAD_DIM + s->c->index_n_heads * INDEX_HEAD_DIM / 2.0);
    if (f == wo_a)
        return heads * HEAD_DIM * s->c->o_lora_rank;
    if (f == wo_b)
        return groups * hidden;
    if (f == compress)
        return hidden * 2 * (2 * HEAD_DIM * 1.5 + (4 * INDEX_HEAD_DIM + s->c->index_n_heads) / 2.0);
    if (f == head)
        return hidden * 2 * s->c->vocab_size;
    if (f == attention)
        return s->n * (keys_csa + keys_hca) / 2 * HEAD_DIM * 4;
    if (f == selection)
        return (double)s->position / RATIO_CSA * INDEX_HEAD_DIM * 4;
    if (f == route)
        return hidden * 2 * s->c->n_routed_experts;
    if (f == hc_pre)
        return HC_MULT * hidden * 4 * (HC_MIX + s->n);
    if (f == whole)
        return bytes_of(s, experts) + bytes_of(s, down) + bytes_of(s, up) + bytes_of(s, wo_a) +
               bytes_of(s, wo_b) + bytes_of(s, compress) + bytes_of(s, attention) +
               bytes_of(s, selection) / 2 + bytes_of(s, route) + 2 * bytes_of(s, hc_pre);
    return 0;
}

struct work {
    struct bench *s;
    stage *f;
    int32_t step; /* 2: layers with the indexer only */
};

static void work_run(void *user)
{
    const struct work *w = user;
    for (int32_t layer = 0; layer < LAYERS; layer += w->step)
        w->f(w->s, layer);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* @unit microseconds, of one layer */
static double time_of(struct cuda_timer *timer, struct work *w)
{
    float times[TIMES];
    work_run(w); /* uploads, and attributes of kernels, are no part of a graph */
    cuda_timer_run(timer, work_run, w, WARM, TIMES, times);
    qsort(times, TIMES, sizeof *times, compare_floats);
    return times[TIMES / 2] * 1e3 / (LAYERS / w->step);
}

struct reading {
    struct bench *s;
    const void *memory;
};

static void read_run(void *user)
{
    const struct reading *r = user;
    backend_cuda_read(r->s->b, r->memory, READ_BYTES);
}

/* @unit bytes a microsecond */
static double read_rate(struct bench *s, struct cuda_timer *timer)
{
    float times[TIMES];
    void *memory = random_floats(s, READ_BYTES / sizeof(float));
    cuda_timer_run(timer, read_run, &(struct reading){s, memory}, WARM, TIMES, times);
    qsort(times, TIMES, sizeof *times, compare_floats);
    s->b->ops->release(s->b, memory, READ_BYTES);
    return READ_BYTES / (times[TIMES / 2] * 1e3);
}

#define MULTIPLY_ROUNDS 20000

static double multiplied;

static void multiply_run(void *user)
{
    multiplied = backend_cuda_multiply(((struct bench *)user)->b, MULTIPLY_ROUNDS);
}

/* @unit floating-point operations a microsecond */
static double multiply_rate(struct bench *s, struct cuda_timer *timer)
{
    float times[TIMES];
    cuda_timer_run(timer, multiply_run, s, WARM, TIMES, times);
    qsort(times, TIMES, sizeof *times, compare_floats);
    return multiplied / (times[TIMES / 2] * 1e3);
}

static const struct row {
    const char *name;
    stage *f;
    int32_t step, n, position;
    enum attn_math math;
} ROWS[] = {
#define BATCHES(name, f, step)                                                                     \
    {name, f, step, 1, 8192, ATTN_FP32}, {name, f, step, 8, 8192, ATTN_FP32},                      \
        {name, f, step, 64, 8192, ATTN_FP32}, {name, f, step, 256, 8192, ATTN_FP32},               \
        {name, f, step, 512, 8192, ATTN_FP32},                                                     \
    {                                                                                              \
        name, f, step, STEP_TOKENS_MAX, 8192, ATTN_FP32                                            \
    }
    BATCHES("experts", experts, 1),
    BATCHES("wq_a, wkv (double)", down, 1),
    BATCHES("wq_b, indexer's", up, 1),
    BATCHES("wo_a", wo_a, 1),
    BATCHES("wo_b", wo_b, 1),
    BATCHES("compressors' linear", compress, 1),
    BATCHES("head", head, 1),
    BATCHES("route", route, 1),
    BATCHES("hc_pre", hc_pre, 1),
    BATCHES("hc_post", hc_post, 1),
    BATCHES("norm", norm, 1),
    BATCHES("query, kv, index query", rows, 1),
    BATCHES("compressor store, pool", compressors, 1),
    BATCHES("attention fp32", attention, 1),
    {"attention bf16", attention, 1, 1, 8192, ATTN_BF16},
    {"attention bf16", attention, 1, 64, 8192, ATTN_BF16},
    {"attention bf16", attention, 1, 256, 8192, ATTN_BF16},
    {"attention bf16", attention, 1, STEP_TOKENS_MAX, 8192, ATTN_BF16},
    {"attention bf16-split-k", attention, 1, 1, 8192, ATTN_BF16_SPLIT_K},
    {"attention bf16-split-k", attention, 1, 64, 8192, ATTN_BF16_SPLIT_K},
    BATCHES("index selection 8k", selection, 2),
    {"index selection 32k", selection, 2, 1, 32768, ATTN_FP32},
    {"index selection 128k", selection, 2, 1, 131072, ATTN_FP32},
    {"index selection 128k", selection, 2, 256, 131072, ATTN_FP32},
    BATCHES("a layer", whole, 1),
    {"a layer, bf16 attention", whole, 1, 1, 8192, ATTN_BF16_SPLIT_K},
    {"a layer, bf16 attention", whole, 1, 64, 8192, ATTN_BF16_SPLIT_K},
    {"a layer, bf16 attention", whole, 1, 256, 8192, ATTN_BF16},
    {"a layer, bf16 attention", whole, 1, 512, 8192, ATTN_BF16},
    {"a layer, bf16 attention", whole, 1, STEP_TOKENS_MAX, 8192, ATTN_BF16},
};

int main(int argc, char **argv)
{
    const char *reason, *word = argc > 1 ? argv[1] : "";
    static struct bench s;
    s.c = &MODEL_CONFIGS[0];
    ASSERT(strcmp(s.c->name, "flash") == 0);
    const struct backend_limits limits = {
        .tokens = STEP_TOKENS_MAX,
        .cols = HC_MULT * s.c->hidden_size,
        .groups = s.c->o_groups,
        .group_cols = s.c->num_attention_heads * HEAD_DIM,
        .index_heads = s.c->index_n_heads,
        .topk = s.c->index_topk,
        .inner = s.c->moe_intermediate_size,
        .hidden = s.c->hidden_size,
        .experts = s.c->n_routed_experts + 1,
        .top = s.c->num_experts_per_tok + 1,
    };
    s.b = backend_cuda_create(0, &limits, &reason);
    if (s.b == NULL) {
        fprintf(stderr, "bench: GPU 0: %s\n", reason);
        return 2;
    }
    struct cuda_timer *timer = cuda_timer_create(s.b);
    bench_create(&s, 131072 + STEP_TOKENS_MAX);
    qsort(parts, n_parts, sizeof *parts, by_address);
    const struct synth_table made = {parts, n_parts};
    const char *wrong = s.b->ops->load(s.b, &(struct load_params){.made = &made});
    ASSERT(wrong == NULL);
    double rate = read_rate(&s, timer);
    printf("%s: memory is read at %.2f TB/s, mma.sync makes %.0f TFLOP/s\n", s.b->ops->variant(s.b),
           rate / 1e6, multiply_rate(&s, timer) / 1e6);
    printf("%-26s %6s %8s %10s %10s %7s\n", "of one layer", "tokens", "context", "us", "MB",
           "share");
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const struct row *r = &ROWS[i];
        if (strstr(r->name, word) == NULL)
            continue;
        s.n = r->n, s.position = r->position, s.math = r->math;
        step_prepare(&s);
        double us = time_of(timer, &(struct work){&s, r->f, r->step}), bytes = bytes_of(&s, r->f);
        printf("%-26s %6d %8d %10.1f %10.2f %6.1f%%\n", r->name, r->n, r->position, us, bytes / 1e6,
               100 * bytes / us / rate);
        fflush(stdout);
    }
    cuda_timer_destroy(timer);
    s.b->ops->destroy(s.b);
    return 0;
}
