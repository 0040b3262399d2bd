/*
 * Every operation of the GPU backend against the CPU backend with sums in double: random inputs,
 * odd sizes, poisoned outputs, both families of numerics.  Then what must be the same bits
 * (alone.c, spans.c), and tokens that are picked (picks.c).  Prints TAP.
 *
 *   ops [WORD]   only the cases whose name contains WORD
 */
#include "config/limits.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/gpu/sides.h"

#include <math.h>
#include <stdio.h>

/* Row errors, relative: sums in double round once; sums in float32 add up to 16,384 products. */
#define PRECISE_MAX 3e-7
#define FAST_MAX    1e-5
/* Roundings to few bits flip where a sum lies next to an edge. */
#define ROUNDED_MAX   6e-3
#define ROUNDED_FLIPS 1e-3

static const struct backend_limits LIMITS = {
    .tokens = STEP_TOKENS_MAX,
    .cols = 16384,
    .groups = 8,
    .group_cols = 32768,
    .index_heads = 64,
    .topk = 512,
    .inner = 2048,
    .hidden = 4096,
    .experts = 257,
    .top = 7,
    .vocab = 129280,
};

/* What a case may vary. */
struct variant {
    int32_t n, width;
    enum round round;
    bool precise;
    int32_t extra;
    int other; /* another choice of the operation's own */
};

struct test {
    const char *name;
    void (*run)(struct side *s, const struct variant *v);
    struct variant v;
};

/* One row of each step decodes. */
static const struct place PLACE = {KIND_CSA, 1};

static bool precise_of(const struct side *s, const struct variant *v)
{
    return s->reference || v->precise;
}

static double *ropes(struct side *s, int32_t position, int32_t n)
{
    int32_t positions[1024];
    struct rope_table_params p = {.n = n};
    for (int32_t i = 0; i < n; i++)
        positions[i] = position + i;
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++)
        p.frequency[i] = pow(10000, -i / 32.0);
    p.positions = side_put(s, positions, (size_t)n * sizeof *positions);
    p.rows = side_reserve(s, (size_t)n * ROPE_ROW * sizeof *p.rows);
    s->b->ops->rope_table(s->b, &p);
    return p.rows;
}

/* ---- dense ---------------------------------------------------------------------------------- */

static void embed(struct side *s, const struct variant *v)
{
    int32_t ids[64];
    struct embed_params p = {side_tensor(s, STORE_BF16, 97, v->width), NULL, v->n, v->extra, NULL};
    for (int32_t i = 0; i < v->n; i++)
        ids[i] = (int32_t)(random_word(s) % 97);
    p.ids = side_put(s, ids, sizeof ids);
    p.out = side_out(s, OUT_FLOAT, (size_t)(v->n * v->extra * v->width), (size_t)v->width);
    s->b->ops->embed(s->b, &p);
}

static void rms_norm(struct side *s, const struct variant *v)
{
    size_t n = (size_t)(v->n * v->width);
    struct rms_norm_params p = {.weight = side_tensor(s, STORE_BF16, v->width, 0),
                                .n = v->n,
                                .width = v->width,
                                .place = PLACE,
                                .round = v->round};
    float *x = side_floats(s, n, 3);
    p.x = p.out = side_inout(s, x, n, (size_t)v->width);
    s->b->ops->rms_norm(s->b, &p);
}

/* extra: the store of the first matrix; the second is a short bfloat16 one, the third sums in
 * double. */
static void linear(struct side *s, const struct variant *v)
{
    enum store store = (enum store)v->extra;
    size_t n = (size_t)v->n;
    struct linear_params p = {
        .x = side_mixed(s, n, (size_t)v->width, 2),
        .n = v->n,
        .cols = v->width,
        .place = PLACE,
        .round_in = store == STORE_BF16 ? ROUND_NONE : ROUND_FP8_128,
        .n_outs = 3,
        .outs = {{.w = side_tensor(s, store, 208, v->width), .round = v->round},
                 {.w = side_tensor(s, STORE_BF16, 8, v->width), .round = v->round},
                 {.w = side_tensor(s, STORE_FP8, 72, v->width),
                  .round = v->round,
                  .precise = true}},
    };
    for (int i = 0; i < p.n_outs; i++) {
        size_t rows = (size_t)p.outs[i].w.rows;
        p.outs[i].y = side_out(s, OUT_FLOAT, n * rows, rows);
        p.outs[i].precise = p.outs[i].precise || precise_of(s, v);
    }
    s->b->ops->linear(s->b, &p);
}

/* FP8 and FP4 over unrounded float32 */
static void linear_wide(struct side *s, const struct variant *v)
{
    size_t n = (size_t)v->n;
    struct linear_params p = {
        .x = side_floats(s, n * (size_t)v->width, 2),
        .n = v->n,
        .cols = v->width,
        .place = PLACE,
        .n_outs = 3,
        .outs = {{.w = side_tensor(s, STORE_FP8, 256, v->width)},
                 {.w = side_tensor(s, STORE_FP4, 48, v->width)},
                 {.w = side_tensor(s, STORE_BF16, 130, v->width)}},
    };
    for (int i = 0; i < p.n_outs; i++) {
        size_t rows = (size_t)p.outs[i].w.rows;
        p.outs[i].y = side_out(s, OUT_FLOAT, n * rows, rows);
        p.outs[i].precise = precise_of(s, v);
    }
    s->b->ops->linear(s->b, &p);
}

/* Rows enough for the kernel of prompts; extra: round_in. */
static void linear_tall(struct side *s, const struct variant *v)
{
    size_t n = (size_t)v->n;
    struct linear_params p = {
        .x = side_mixed(s, n, (size_t)v->width, 2),
        .n = v->n,
        .cols = v->width,
        .place = PLACE,
        .round_in = (enum round)v->extra,
        .n_outs = 2,
        .outs = {{.w = side_tensor(s, STORE_FP8, 2120, v->width), .round = v->round},
                 {.w = side_tensor(s, STORE_BF16, 2001, v->width), .round = v->round}},
    };
    for (int i = 0; i < p.n_outs; i++) {
        size_t rows = (size_t)p.outs[i].w.rows;
        p.outs[i].y = side_out(s, OUT_FLOAT, n * rows, rows);
        p.outs[i].precise = precise_of(s, v);
    }
    s->b->ops->linear(s->b, &p);
}

static void grouped(struct side *s, const struct variant *v)
{
    enum { GROUPS = 8, RANK = 256 };
    size_t n = (size_t)v->n;
    struct grouped_params p = {.w = side_tensor(s, STORE_FP8, GROUPS * RANK, v->width),
                               .x = side_mixed(s, n * GROUPS, (size_t)v->width, 1),
                               .n = v->n,
                               .groups = GROUPS,
                               .rank = RANK,
                               .cols = v->width,
                               .place = PLACE,
                               .round_in = v->other ? ROUND_FP8_128 : ROUND_NONE,
                               .round = v->round,
                               .precise = precise_of(s, v),
                               .y = side_out(s, OUT_FLOAT, n * GROUPS * RANK, RANK)};
    s->b->ops->grouped(s->b, &p);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void hc(struct side *s, const struct variant *v)
{
    int32_t cols = HC_MULT * v->width;
    size_t n = (size_t)v->n, hidden = (size_t)v->width;
    struct hc_pre_params pre = {
        .fn = side_tensor(s, STORE_F32, HC_MIX, cols),
        .base = side_tensor(s, STORE_F32, HC_MIX, 0),
        .scale = side_tensor(s, STORE_F32, 3, 0),
        .streams = side_floats(s, n * (size_t)cols, 2),
        .n = v->n,
        .hidden = v->width,
        .place = PLACE,
        .mix = (enum precision_HC_MIX)v->other,
        .round = v->round,
        .out = side_out(s, OUT_FLOAT, n * hidden, hidden),
        .post = side_out(s, OUT_DOUBLE, n * HC_MULT, HC_MULT),
        .comb = side_out(s, OUT_DOUBLE, n * HC_MULT * HC_MULT, HC_MULT * HC_MULT),
    };
    s->b->ops->hc_pre(s->b, &pre);
    struct hc_post_params post = {
        .y = side_floats(s, n * hidden, 1),
        .streams = pre.streams,
        .post = side_doubles(s, n * HC_MULT),
        .comb = side_doubles(s, n * HC_MULT * HC_MULT),
        .n = v->n,
        .hidden = v->width,
        .place = PLACE,
        .transposed = v->extra,
        .round = v->round,
        .streams_out = side_out(s, OUT_FLOAT, n * (size_t)cols, hidden),
    };
    s->b->ops->hc_post(s->b, &post);
    struct hc_head_params head = {
        .fn = side_tensor(s, STORE_F32, HC_MULT, cols),
        .base = pre.base,
        .scale = pre.scale,
        .streams = pre.streams,
        .n = v->n,
        .hidden = v->width,
        .place = PLACE,
        .mix = (enum precision_HC_MIX)v->other,
        .round = v->round,
        .out = side_out(s, OUT_FLOAT, n * hidden, hidden),
    };
    s->b->ops->hc_head(s->b, &head);
    struct mtp_join_params join = {post.y, pre.streams, v->n, v->width, PLACE, v->round, NULL};
    join.streams = side_out(s, OUT_FLOAT, n * (size_t)cols, hidden);
    s->b->ops->mtp_join(s->b, &join);
}

/* ---- attention ------------------------------------------------------------------------------ */

static void rope(struct side *s, const struct variant *v)
{
    double *rows = ropes(s, v->extra, v->n);
    s->outs[s->n_outs++] = (struct out){OUT_DOUBLE, (size_t)v->n * ROPE_ROW, ROPE_ROW, rows, NULL};
}

/* Queries of the attention and of the indexer, and the window's entries. */
static void rows(struct side *s, const struct variant *v)
{
    enum { HEADS = 5, SLOTS = 400 };
    size_t n = (size_t)v->n, q = n * HEADS * HEAD_DIM, iq = n * HEADS * INDEX_HEAD_DIM;
    double *rope = ropes(s, v->extra, v->n);
    struct query_params query = {
        .q = side_inout(s, side_floats(s, q, 2), q, HEAD_DIM),
        .rope = rope,
        .n = v->n,
        .heads = HEADS,
        .place = PLACE,
        .norm = v->other ? ATTN_QNORM_BF16 : ATTN_QNORM_FP32,
        .store = v->other                 ? ATTN_QUERY_BF16_SCALED
                 : v->round == ROUND_BF16 ? ATTN_QUERY_BF16
                                          : ATTN_QUERY_FP32,
    };
    s->b->ops->query(s->b, &query);
    bool official = v->round == ROUND_BF16;
    struct kv_store_params kv = {
        .weight = side_tensor(s, STORE_BF16, HEAD_DIM, 0),
        .kv = side_floats(s, n * HEAD_DIM, 2),
        .rope = rope,
        .n = v->n,
        .at = side_at(s, v->extra),
        .place = PLACE,
        .round = v->round,
        .round_nope = official ? ROUND_FP8_64 : ROUND_NONE,
        .ring = side_out(s, OUT_FLOAT, SLOTS * HEAD_DIM, HEAD_DIM),
        .ring_slots = SLOTS,
    };
    s->b->ops->kv_store(s->b, &kv);
    struct index_query_params index = {
        .q = side_inout(s, side_floats(s, iq, 2), iq, INDEX_HEAD_DIM),
        .rope = rope,
        .n = v->n,
        .heads = HEADS,
        .place = PLACE,
        .round = v->round,
        .round_rotated = v->other   ? ROUND_FP8_128
                         : official ? ROUND_FP4_32
                                    : ROUND_NONE,
        .rotate = official,
    };
    s->b->ops->index_query(s->b, &index);
}

/* width: heads; extra: the first position; the selection is every third block. */
static void attention(struct side *s, const struct variant *v, int32_t ratio, bool chosen)
{
    enum { SLOTS = 400, TOPK = 72 };
    size_t n = (size_t)v->n, heads = (size_t)v->width;
    int32_t blocks = (v->extra + v->n) / (ratio == 0 ? 1 : ratio) + 1;
    int32_t *selected = calloc(n * TOPK, 4), *counts = calloc(n, 4);
    ASSERT(selected != NULL && counts != NULL);
    for (int32_t t = 0; t < v->n; t++) {
        int32_t seen = (v->extra + t + 1) / (ratio == 0 ? 1 : ratio);
        for (int32_t j = 0; j < seen && counts[t] < TOPK; j += 3)
            selected[t * TOPK + counts[t]++] = j;
    }
    struct attention_params p = {
        .sink = side_tensor(s, STORE_F32, v->width, 0),
        .q = side_mixed(s, n * heads, HEAD_DIM, 2),
        .ring = side_mixed(s, SLOTS, HEAD_DIM, 1),
        .compressed = side_mixed(s, (size_t)blocks, HEAD_DIM, 1),
        .selected = chosen ? side_put(s, selected, n * TOPK * 4) : NULL,
        .n_selected = chosen ? side_put(s, counts, n * 4) : NULL,
        .rope = ropes(s, v->extra, v->n),
        .n = v->n,
        .at = side_at(s, v->extra),
        .reach = v->extra + v->n + (s->reference ? 0 : v->extra % 5 * 1000),
        .heads = v->width,
        .ring_slots = SLOTS,
        .ratio = ratio,
        .topk = TOPK,
        .place = {KIND_CSA, v->n},
        .math = (enum attn_math)v->other,
        .q_scaled = v->other == ATTN_BF16_SPLIT_K,
        .round = v->round,
        .precise = precise_of(s, v),
        .out = side_out(s, OUT_FLOAT, n * heads * HEAD_DIM, HEAD_DIM),
    };
    s->b->ops->attention(s->b, &p);
    free(selected);
    free(counts);
}

static void attention_window(struct side *s, const struct variant *v)
{
    attention(s, v, 0, false);
}

static void attention_hca(struct side *s, const struct variant *v)
{
    attention(s, v, RATIO_HCA, false);
}

static void attention_csa(struct side *s, const struct variant *v)
{
    attention(s, v, RATIO_CSA, true);
}

/* ---- compressors ---------------------------------------------------------------------------- */

/* width: of an entry; extra: the ratio.  Tokens are stored in two steps. */
static void compressor(struct side *s, const struct variant *v)
{
    enum { SLOTS = 300, POSITION = 1030 };
    bool csa = v->extra == RATIO_CSA, official = v->round == ROUND_BF16;
    bool index = v->width == INDEX_HEAD_DIM;
    int32_t width = csa ? 2 * v->width : v->width, first = POSITION - v->n;
    size_t n = (size_t)v->n * (size_t)width;
    struct compressor_store_params store = {
        .ape = side_tensor(s, STORE_F32, v->extra, width),
        .kappa = side_floats(s, n, 1),
        .gamma = side_floats(s, n, 4),
        .n = v->n / 2,
        .at = side_at(s, first),
        .ratio = v->extra,
        .width = width,
        .kappa_ring = side_out(s, OUT_FLOAT, SLOTS * (size_t)width, (size_t)width),
        .gamma_ring = side_out(s, OUT_FLOAT, SLOTS * (size_t)width, (size_t)width),
        .ring_slots = SLOTS,
    };
    s->b->ops->compressor_store(s->b, &store);
    store.kappa += (size_t)store.n * (size_t)width, store.gamma += (size_t)store.n * (size_t)width;
    store.at = side_at(s, first + store.n), store.n = v->n - store.n;
    s->b->ops->compressor_store(s->b, &store);
    int32_t block = (first + v->extra - 1) / v->extra + 1; /* the first with a whole one before */
    struct compressor_pool_params pool = {
        .weight = side_tensor(s, STORE_BF16, v->width, 0),
        .kappa_ring = store.kappa_ring,
        .gamma_ring = store.gamma_ring,
        .ring_slots = SLOTS,
        .ratio = v->extra,
        .width = width,
        .dim = v->width,
        .at = side_at(s, block * v->extra + v->extra / 2),
        .n = POSITION / v->extra - block,
        .place = PLACE,
        .index = index,
        .round = v->round,
        .round_nope = official && !index ? ROUND_FP8_64 : ROUND_NONE,
        .round_rotated = official && index ? ROUND_FP4_32 : ROUND_NONE,
        .rotate = official && index,
        .precise = precise_of(s, v),
    };
    ASSERT(pool.n > 0);
    pool.rope = ropes(s, 0, pool.n);
    size_t cache = (size_t)(block + pool.n) * (size_t)v->width;
    pool.cache = side_out(s, OUT_FLOAT, cache, (size_t)v->width);
    s->b->ops->compressor_pool(s->b, &pool);
}

/* width: heads; extra: the first position.  Keys and queries are FP4 values, so that scores tie. */
static void selection(struct side *s, const struct variant *v)
{
    static const float VALUES[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    enum { TOPK = 64 };
    size_t n = (size_t)v->n, heads = (size_t)v->width;
    size_t q = n * heads * INDEX_HEAD_DIM, blocks = (size_t)((v->extra + v->n) / RATIO_CSA);
    float *values = calloc(q + (blocks + 1) * INDEX_HEAD_DIM, sizeof *values);
    ASSERT(values != NULL);
    for (size_t i = 0; i < q + blocks * INDEX_HEAD_DIM; i++) {
        float value = VALUES[random_word(s) % 8];
        values[i] = random_word(s) % 2 ? value : -value;
    }
    for (size_t j = 10; j < blocks; j += 7) /* the same key again: the lower index wins */
        memcpy(values + q + j * INDEX_HEAD_DIM, values + q + (j - 9) * INDEX_HEAD_DIM,
               INDEX_HEAD_DIM * sizeof *values);
    struct index_select_params p = {
        .q = side_put(s, values, q * sizeof *values),
        .weights = side_mixed(s, n, heads, 1),
        .keys = side_put(s, values + q, (blocks + 1) * INDEX_HEAD_DIM * sizeof *values),
        .n = v->n,
        .at = side_at(s, v->extra),
        .reach = v->extra + v->n + (s->reference ? 0 : v->extra % 5 * 1000),
        .heads = v->width,
        .topk = TOPK,
        .place = PLACE,
        .score = v->other ? INDEX_SCORE_BF16 : INDEX_SCORE_FP32,
        .choice = v->other ? INDEX_TOPK_APPROXIMATE : INDEX_TOPK_EXACT,
        .precise = precise_of(s, v),
        .n_selected = side_out(s, OUT_INT, n, 1),
        .selected = side_out(s, OUT_INT, n * TOPK, TOPK),
    };
    s->b->ops->index_select(s->b, &p);
    free(values);
}

/* ---- experts -------------------------------------------------------------------------------- */

/* extra: 1 for a hash layer */
static void route(struct side *s, const struct variant *v)
{
    enum { EXPERTS = 250, TOP = 6, VOCAB = 31 };
    size_t n = (size_t)v->n;
    int32_t ids[256];
    int64_t *table = calloc(VOCAB * TOP, sizeof *table); /* stays, as weights do */
    ASSERT(table != NULL);
    for (int i = 0; i < VOCAB * TOP; i++)
        table[i] = (i * 37 + i / TOP) % EXPERTS;
    for (int32_t i = 0; i < v->n; i++)
        ids[i] = (int32_t)(random_word(s) % VOCAB);
    struct route_params p = {
        .gate = side_tensor(s, STORE_BF16, EXPERTS, v->width),
        .bias = side_tensor(s, STORE_F32, EXPERTS, 0),
        .tid2eid = {table, NULL, VOCAB, TOP, STORE_I64, 0},
        .x = side_mixed(s, n, (size_t)v->width, 1),
        .ids = side_put(s, ids, sizeof ids),
        .n = v->n,
        .hidden = v->width,
        .top = TOP,
        .place = PLACE,
        .scale = v->other ? MOE_SCALE_KERNEL : MOE_SCALE_GATE,
        .scaling = 1.5,
        .round = v->round,
        .precise = precise_of(s, v),
        .experts = side_out(s, OUT_INT, n * TOP, TOP),
        .weights = side_out(s, OUT_FLOAT, n * TOP, TOP),
    };
    *(v->extra ? &p.bias.data : &p.tid2eid.data) = NULL;
    s->b->ops->route(s->b, &p);
}

/* width: hidden; extra: inner.  Weights are NVFP4 where hidden is a multiple of this. */
#define NVFP4_WIDTH 640

static void experts(struct side *s, const struct variant *v)
{
    enum { ROUTED = 12, TOP = 4 };
    size_t n = (size_t)v->n;
    struct expert *list = calloc(ROUTED + 1, sizeof *list); /* stays, as weights do */
    int32_t *chosen = calloc(n * TOP, sizeof *chosen);
    ASSERT(list != NULL && chosen != NULL);
    for (int i = 0; i <= ROUTED; i++) {
        enum store store = i == ROUTED              ? STORE_FP8
                           : v->width % NVFP4_WIDTH ? STORE_FP4
                                                    : STORE_NVFP4;
        list[i].w1 = side_tensor(s, store, v->extra, v->width);
        list[i].w3 = side_tensor(s, store, v->extra, v->width);
        list[i].w2 = side_tensor(s, store, v->width, v->extra);
    }
    for (size_t i = 0; i < n * TOP; i++) /* ascending, and one expert that everybody takes */
        chosen[i] = (int32_t)(i % TOP * 3 + (i % TOP == 2 ? 0 : random_word(s) % 3));
    struct experts_params p = {
        .experts = list,
        .n_routed = ROUTED,
        .n_shared = 1,
        .x = side_mixed(s, n, (size_t)v->width, 0.05),
        .chosen = side_put(s, chosen, n * TOP * sizeof *chosen),
        .weights = side_floats(s, n * TOP, 1),
        .n = v->n,
        .hidden = v->width,
        .inner = v->extra,
        .top = TOP,
        .place = PLACE,
        .scale = v->other ? MOE_SCALE_KERNEL : MOE_SCALE_GATE,
        .scaling = 1.5,
        .precise = precise_of(s, v),
        .limit = v->other ? (double)INFINITY : SWIGLU_LIMIT,
        .round_in = v->other                 ? (enum round)v->other
                    : v->round == ROUND_BF16 ? ROUND_FP8_128
                                             : ROUND_NONE,
        .round_shared = v->round == ROUND_BF16 ? ROUND_FP8_128 : ROUND_NONE,
        .round_out = v->round,
        .out = side_out(s, OUT_FLOAT, n * (size_t)v->width, (size_t)v->width),
    };
    s->b->ops->experts(s->b, &p);
    free(chosen);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define FAST     ROUND_NONE, false
#define PRECISE  ROUND_NONE, true
#define OFFICIAL ROUND_BF16, false
/* bf16 probabilities flip: as wide a bound as for rounded results */
#define TENSOR  ROUND_BF16, false
#define ROUNDED ROUND_BF16, true

static const struct test TESTS[] = {
    {"embed", embed, {7, 256, FAST, 4, 0}},
    {"embed plain", embed, {1, 4096, FAST, 1, 0}},
    {"rms_norm", rms_norm, {13, 4096, PRECISE, 0, 0}},
    {"rms_norm bf16", rms_norm, {5, 384, ROUNDED, 0, 0}},
    {"linear fp8", linear, {1, 4096, FAST, STORE_FP8, 0}},
    {"linear fp8 small", linear, {3, 128, FAST, STORE_FP8, 0}},
    {"linear fp8 many", linear, {201, 1024, FAST, STORE_FP8, 0}},
    {"linear fp4", linear, {13, 2048, FAST, STORE_FP4, 0}},
    {"linear fp4 many", linear, {33, 4096, FAST, STORE_FP4, 0}},
    {"linear nvfp4", linear, {13, 2048, FAST, STORE_NVFP4, 0}},
    {"linear nvfp4, one", linear, {1, 4096, FAST, STORE_NVFP4, 0}},
    {"linear nvfp4 in double", linear, {7, 512, PRECISE, STORE_NVFP4, 0}},
    {"linear bf16", linear, {9, 4096, FAST, STORE_BF16, 0}},
    {"linear bf16 many", linear, {70, 384, FAST, STORE_BF16, 0}},
    {"linear bf16 rounded", linear, {17, 256, OFFICIAL, STORE_FP8, 0}},
    {"linear in double", linear, {11, 1024, PRECISE, STORE_FP4, 0}},
    {"linear in double, rounded", linear, {4, 640, ROUNDED, STORE_FP8, 0}},
    {"linear tall", linear_tall, {70, 384, FAST, ROUND_FP8_128, 0}},
    {"linear tall, official", linear_tall, {130, 2304, OFFICIAL, ROUND_FP8_128, 0}},
    {"linear tall of float32", linear_tall, {66, 256, FAST, ROUND_NONE, 0}},
    {"linear of float32", linear_wide, {21, 1024, FAST, 0, 0}},
    {"linear of float32, one", linear_wide, {1, 4096, FAST, 0, 0}},
    {"linear of float32 in double", linear_wide, {6, 512, PRECISE, 0, 0}},
    {"grouped", grouped, {1, 4096, FAST, 0, 0}},
    {"grouped many", grouped, {19, 1024, OFFICIAL, 0, 0}},
    {"grouped wide", grouped, {130, 1024, OFFICIAL, 0, 0}},
    {"grouped w8a8", grouped, {9, 4096, FAST, 0, 1}},
    {"grouped in double", grouped, {5, 1024, PRECISE, 0, 0}},
    {"streams", hc, {5, 384, PRECISE, 0, 0}},
    {"streams rounded", hc, {1, 4096, ROUNDED, 0, 0}},
    {"streams tf32", hc, {3, 512, FAST, 1, HC_MIX_TF32}},
    {"streams bf16", hc, {3, 4096, OFFICIAL, 0, HC_MIX_BF16}},
    {"rope_table", rope, {33, 0, PRECISE, 1048000, 0}},
    {"rows", rows, {9, 0, PRECISE, 395, 0}},
    {"rows official", rows, {150, 0, ROUNDED, 1000, 0}},
    {"rows fast", rows, {20, 0, ROUNDED, 5, 1}},
    {"attention window", attention_window, {3, 5, FAST, 0, 0}},
    {"attention window wraps", attention_window, {37, 64, OFFICIAL, 391, 0}},
    {"attention window in double", attention_window, {9, 8, PRECISE, 200, 0}},
    {"attention hca", attention_hca, {5, 12, FAST, 20000, 0}},
    {"attention hca in double", attention_hca, {2, 64, PRECISE, 5000, 0}},
    {"attention csa", attention_csa, {17, 64, FAST, 1000, 0}},
    {"attention csa first", attention_csa, {9, 4, FAST, 0, 0}},
    {"attention csa in double", attention_csa, {4, 16, PRECISE, 777, 0}},
    {"attention bf16 window", attention_window, {3, 5, TENSOR, 0, ATTN_BF16}},
    {"attention bf16 csa", attention_csa, {33, 64, TENSOR, 1000, ATTN_BF16}},
    {"attention bf16 hca", attention_hca, {5, 16, TENSOR, 30000, ATTN_BF16}},
    {"attention bf16 one", attention_csa, {1, 64, TENSOR, 3000, ATTN_BF16}},
    {"attention bf16 of many keys", attention_hca, {2, 24, TENSOR, 100000, ATTN_BF16}},
    {"attention bf16 few heads", attention_csa, {2, 4, TENSOR, 500, ATTN_BF16}},
    {"attention split", attention_csa, {3, 64, TENSOR, 1000, ATTN_BF16_SPLIT_K}},
    {"attention split hca", attention_hca, {2, 40, TENSOR, 60000, ATTN_BF16_SPLIT_K}},
    {"compressor csa", compressor, {61, HEAD_DIM, FAST, RATIO_CSA, 0}},
    {"compressor csa in double", compressor, {61, HEAD_DIM, ROUNDED, RATIO_CSA, 0}},
    {"compressor hca", compressor, {290, HEAD_DIM, FAST, RATIO_HCA, 0}},
    {"compressor hca in double", compressor, {290, HEAD_DIM, ROUNDED, RATIO_HCA, 0}},
    {"compressor index", compressor, {40, INDEX_HEAD_DIM, FAST, RATIO_CSA, 0}},
    {"compressor index in double", compressor, {40, INDEX_HEAD_DIM, ROUNDED, RATIO_CSA, 0}},
    {"selection few", selection, {5, 8, FAST, 30, 0}},
    {"selection", selection, {7, 64, FAST, 3001, 0}},
    {"selection edge", selection, {40, 16, FAST, 240, 0}},
    {"selection long", selection, {2, 16, FAST, 400003, 0}},
    {"selection in double", selection, {3, 64, PRECISE, 9000, 0}},
    {"selection as published", selection, {5, 64, FAST, 5000, 1}},
    {"route", route, {1, 4096, PRECISE, 0, 0}},
    {"route many", route, {50, 1024, FAST, 0, 0}},
    {"route hash", route, {33, 384, FAST, 1, 0}},
    {"route rounded", route, {40, 512, ROUNDED, 0, 1}},
    {"experts one", experts, {1, 4096, FAST, 2048, 0}},
    {"experts by rows", experts, {11, 4096, FAST, 640, 0}},
    {"experts by rows, official", experts, {14, 1024, OFFICIAL, 384, 0}},
    {"experts by rows, short", experts, {15, 256, FAST, 128, 0}},
    {"experts few", experts, {7, 384, FAST, 256, 0}},
    {"experts many", experts, {150, 256, FAST, 128, 0}},
    {"experts very many, official", experts, {STEP_TOKENS_MAX, 512, OFFICIAL, 256, 0}},
    {"experts official", experts, {23, 1024, OFFICIAL, 512, 0}},
    {"experts w4a4, scaled last", experts, {23, 1024, OFFICIAL, 512, ROUND_FP4_32}},
    {"experts nvfp4 in double", experts, {5, 512, ROUNDED, 256, ROUND_NVFP4}},
    {"experts nvfp4", experts, {9, 512, OFFICIAL, 256, ROUND_NVFP4}},
    {"experts of nvfp4", experts, {9, 640, OFFICIAL, 256, 0}},
    {"experts of nvfp4, one", experts, {1, 1280, FAST, 384, 0}},
    {"experts of nvfp4, w4a4, in double", experts, {4, 640, ROUNDED, 128, ROUND_NVFP4}},
    {"experts in double", experts, {9, 512, PRECISE, 256, 0}},
    {"experts in double, rounded", experts, {31, 256, ROUNDED, 256, 0}},
};

/* ---- comparing ------------------------------------------------------------------------------ */

static double value_at(const struct out *out, size_t i)
{
    return out->kind == OUT_DOUBLE ? ((const double *)out->host)[i]
                                   : (double)((const float *)out->host)[i];
}

/* The largest |got - want| / |want| of a row, and the share of values that differ at all. */
static double row_error(const struct out *got, const struct out *want, double *differ)
{
    double worst = 0;
    size_t different = 0;
    for (size_t at = 0; at < want->n; at += want->width) {
        double error = 0, norm = 0;
        for (size_t i = at; i < at + want->width; i++) {
            double a = value_at(got, i), b = value_at(want, i);
            different += !(a == b);
            error += (a - b) * (a - b);
            norm += b * b;
        }
        error = norm > 0 ? sqrt(error / norm) : error;
        if (!(error <= worst) && !isnan(worst)) /* a NaN stays */
            worst = error;
    }
    *differ = (double)different / (double)want->n;
    return worst;
}

static bool out_agrees(const struct test *test, int at, const struct out *got,
                       const struct out *want)
{
    double differ, error;
    bool good;
    if (want->kind == OUT_INT) {
        good = memcmp(got->host, want->host, want->n * sizeof(int32_t)) == 0;
        if (!good)
            printf("# %s, output %d: integers differ\n", test->name, at);
        return good;
    }
    error = row_error(got, want, &differ);
    if (test->v.round == ROUND_NONE)
        good = error <= (test->v.precise ? PRECISE_MAX : FAST_MAX);
    else
        good = error <= ROUNDED_MAX &&
               (differ <= ROUNDED_FLIPS || !test->v.precise || want->kind == OUT_DOUBLE);
    printf("# %s, output %d: error %.1e, %.5f of the values differ\n", test->name, at, error,
           differ);
    return good;
}

/* Both say the same of what they did, but for the reference's sums in double. */
static bool witnesses_agree(const struct test *test, const struct witness_table *got,
                            const struct witness_table *want)
{
    bool good = true;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int kind = 0; kind < LAYER_KINDS && row != ROW_SUM; kind++) {
            if (memcmp(got->cells[row][kind], want->cells[row][kind],
                       sizeof got->cells[row][kind]) == 0)
                continue;
            printf("# %s: evidence for %s differs\n", test->name, PRECISION[row].name);
            good = false;
        }
    }
    return good;
}

static void side_run(struct side *s, struct backend *b, const struct test *test, bool reference)
{
    *s = (struct side){.b = b, .reference = reference, .random = 7};
    test->run(s, &test->v);
    side_end(s);
}

static bool test_run(struct backend *cpu, struct backend *gpu, const struct test *test)
{
    static struct side want, got;
    static struct witness_table want_witness, got_witness;
    side_run(&want, cpu, test, true);
    cpu->ops->witness_read(cpu, &want_witness);
    side_run(&got, gpu, test, false);
    gpu->ops->witness_read(gpu, &got_witness);
    bool good = witnesses_agree(test, &got_witness, &want_witness);
    for (int i = 0; i < want.n_outs; i++)
        good = out_agrees(test, i, &got.outs[i], &want.outs[i]) && good;
    side_clear(&want);
    side_clear(&got);
    return good;
}

/* ---- running -------------------------------------------------------------------------------- */

/* The comparison itself sees a row that is a little larger, and a NaN. */
static bool change_is_seen(struct backend *cpu, struct backend *gpu)
{
    static const struct test TEST = {"control", linear_wide, {5, 512, FAST, 0, 0}};
    struct side want, got;
    double differ;
    side_run(&want, cpu, &TEST, true);
    side_run(&got, gpu, &TEST, false);
    float *value = got.outs[1].host;
    for (size_t i = 0; i < got.outs[1].width; i++)
        value[i] *= 1.0001f;
    bool seen = row_error(&got.outs[1], &want.outs[1], &differ) > FAST_MAX;
    value[7] = NAN;
    seen = seen && !(row_error(&got.outs[1], &want.outs[1], &differ) <= FAST_MAX);
    side_clear(&want);
    side_clear(&got);
    return seen;
}

static int failures, done;

static void report(bool good, const char *what)
{
    failures += !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", ++done, what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *reason, *word = argc > 1 ? argv[1] : "";
    struct backend *gpu = backend_cuda_create(0, &LIMITS, &reason);
    if (gpu == NULL) {
        fprintf(stderr, "ops: GPU 0: %s\n", reason);
        return 2;
    }
    struct backend *cpu = backend_cpu_create(cpu_isa_best(), 2, &LIMITS);
    ASSERT(cpu != NULL);
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
        if (strstr(TESTS[i].name, word) != NULL)
            report(test_run(cpu, gpu, &TESTS[i]), TESTS[i].name);
    }
    spans_run(gpu, word, report);
    picks_run(gpu, word, report);
    if (*word == '\0') {
        alone_run(gpu, report);
        report(change_is_seen(cpu, gpu), "control: a changed value is seen");
    }
    printf("1..%d\n", done);
    cpu->ops->destroy(cpu);
    gpu->ops->destroy(gpu);
    return failures != 0;
}
