/*
 * What must be the same bits on the GPU: calls for several sequences one behind another, which may
 * run as one launch, and the same with a copy between them, which lets each run by itself.  Their
 * evidence too.
 */
#include "config/limits.h"
#include "tests/gpu/sides.h"

#define HEADS   20
#define TOPK    64
#define LONGEST 3000

/* Sequences of n rows each; mixed: every third has another leg, every fifth a row less. */
struct sequences {
    const char *name;
    void (*run)(struct side *s, const struct sequences *c, int32_t k);
    int32_t count, n;
    bool mixed;
    int32_t ratio;
    enum attn_math math;
};

/* What all runs work on; the same numbers each time. */
static struct {
    const int32_t *positions;
    const double *ropes;
    const float *rows, *weights;
    const int32_t *selected, *n_selected;
    float *state, *other, *cache, *out;
    int32_t *chosen, *n_chosen;
    struct tensor norm, sink, ape;
    int32_t host[256]; /* positions */
} all;

static int32_t rows_of(const struct sequences *c, int32_t k)
{
    return c->mixed && k % 5 == 4 && c->n > 1 ? c->n - 1 : c->n;
}

static struct place place_of(const struct sequences *c, int32_t k, int32_t n)
{
    return (struct place){KIND_CSA, c->mixed && k % 3 == 2 ? 0 : n};
}

/* ---- operations ----------------------------------------------------------------------------- */

#define SLOTS 136

static void kv_store(struct side *s, const struct sequences *c, int32_t k)
{
    int32_t n = rows_of(c, k), row = k * c->n;
    struct kv_store_params p = {.weight = all.norm,
                                .kv = all.rows + (int64_t)row * HEAD_DIM,
                                .rope = all.ropes + (int64_t)row * ROPE_ROW,
                                .n = n,
                                .at = all.positions + row,
                                .place = place_of(c, k, n),
                                .round = ROUND_BF16,
                                .round_nope = ROUND_FP8_64,
                                .ring = all.state + (int64_t)k * SLOTS * HEAD_DIM,
                                .ring_slots = SLOTS};
    s->b->ops->kv_store(s->b, &p);
}

static void compressor_store(struct side *s, const struct sequences *c, int32_t k)
{
    int32_t row = k * c->n, width = 2 * HEAD_DIM;
    struct compressor_store_params p = {.ape = all.ape,
                                        .kappa = all.rows + (int64_t)row * width,
                                        .gamma = all.rows + (int64_t)row * width,
                                        .n = rows_of(c, k),
                                        .at = all.positions + row,
                                        .ratio = RATIO_CSA,
                                        .width = width,
                                        .kappa_ring = all.state + (int64_t)k * SLOTS * width,
                                        .gamma_ring = all.other + (int64_t)k * SLOTS * width,
                                        .ring_slots = SLOTS};
    s->b->ops->compressor_store(s->b, &p);
}

/* Of every sequence some blocks; they lie where its position says. */
static void compressor_pool(struct side *s, const struct sequences *c, int32_t k)
{
    int32_t n = rows_of(c, k), row = k * c->n, width = 2 * HEAD_DIM;
    struct compressor_pool_params p = {
        .weight = all.norm,
        .kappa_ring = all.state + (int64_t)k * SLOTS * width,
        .gamma_ring = all.other + (int64_t)k * SLOTS * width,
        .ring_slots = SLOTS,
        .ratio = RATIO_CSA,
        .width = width,
        .dim = HEAD_DIM,
        .at = all.positions + row,
        .n = n,
        .rope = all.ropes + (int64_t)row * ROPE_ROW,
        .place = place_of(c, k, n),
        .round = ROUND_BF16,
        .round_nope = ROUND_FP8_64,
        .cache = all.cache + (int64_t)k * (LONGEST / RATIO_CSA) * HEAD_DIM,
    };
    s->b->ops->compressor_pool(s->b, &p);
}

static void index_select(struct side *s, const struct sequences *c, int32_t k)
{
    int32_t n = rows_of(c, k), row = k * c->n;
    struct index_select_params p = {
        .q = all.rows + (int64_t)row * HEADS * INDEX_HEAD_DIM,
        .weights = all.weights + (int64_t)row * HEADS,
        .keys = all.cache + (int64_t)k * (LONGEST / RATIO_CSA) * INDEX_HEAD_DIM,
        .n = n,
        .at = all.positions + row,
        .reach = all.host[row] + n,
        .heads = HEADS,
        .topk = TOPK,
        .place = place_of(c, k, n),
        .selected = all.chosen + row * TOPK,
        .n_selected = all.n_chosen + row,
    };
    s->b->ops->index_select(s->b, &p);
}

static void attention(struct side *s, const struct sequences *c, int32_t k)
{
    int32_t n = rows_of(c, k), row = k * c->n;
    bool chosen = c->ratio == RATIO_CSA;
    struct attention_params p = {
        .sink = all.sink,
        .q = all.rows + (int64_t)row * HEADS * HEAD_DIM,
        .ring = all.state + (int64_t)k * SLOTS * HEAD_DIM,
        .compressed = all.cache + (int64_t)k * (LONGEST / RATIO_CSA) * HEAD_DIM,
        .selected = chosen ? all.selected + row * TOPK : NULL,
        .n_selected = chosen ? all.n_selected + row : NULL,
        .rope = all.ropes + (int64_t)row * ROPE_ROW,
        .n = n,
        .at = all.positions + row,
        .reach = all.host[row] + n,
        .heads = HEADS,
        .ring_slots = SLOTS,
        .ratio = c->ratio,
        .topk = TOPK,
        .place = place_of(c, k, n),
        .math = c->math,
        .round = ROUND_BF16,
        .out = all.out + (int64_t)row * HEADS * HEAD_DIM,
    };
    s->b->ops->attention(s->b, &p);
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* Positions far apart, some of them at the beginning. */
static void positions_make(struct side *s, const struct sequences *c)
{
    struct rope_table_params rope = {.n = c->count * c->n};
    for (int32_t k = 0; k < c->count; k++) {
        int32_t first = k % 4 == 3 ? k : (int32_t)(random_word(s) % (LONGEST - 100));
        for (int32_t i = 0; i < c->n; i++)
            all.host[k * c->n + i] = first + i;
    }
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++)
        rope.frequency[i] = 1.0 / (1 + i);
    all.positions = rope.positions = side_put(s, all.host, sizeof all.host);
    all.ropes = rope.rows = side_reserve(s, (size_t)rope.n * ROPE_ROW * sizeof *rope.rows);
    s->b->ops->rope_table(s->b, &rope);
}

static void data_make(struct side *s, const struct sequences *c)
{
    size_t rows = (size_t)(c->count * c->n), count = (size_t)c->count;
    int32_t selected[256 * TOPK], counts[256];
    positions_make(s, c);
    for (size_t t = 0; t < rows; t++) {
        counts[t] = 0;
        for (int32_t j = 0; j < (all.host[t] + 1) / RATIO_CSA && counts[t] < TOPK; j += 3)
            selected[t * TOPK + (size_t)counts[t]++] = j;
    }
    all.selected = side_put(s, selected, rows * TOPK * sizeof *selected);
    all.n_selected = side_put(s, counts, rows * sizeof *counts);
    all.rows = side_mixed(s, rows * HEADS, HEAD_DIM, 1);
    all.weights = side_floats(s, rows * HEADS, 1);
    size_t ring = count * SLOTS * 2 * HEAD_DIM, cache = count * (LONGEST / RATIO_CSA) * HEAD_DIM;
    all.state = side_inout(s, side_floats(s, ring, 1), ring, HEAD_DIM);
    all.other = side_inout(s, side_floats(s, ring, 1), ring, HEAD_DIM);
    all.cache = side_inout(s, side_mixed(s, cache / HEAD_DIM, HEAD_DIM, 1), cache, HEAD_DIM);
    all.out = side_out(s, OUT_FLOAT, rows * HEADS * HEAD_DIM, HEAD_DIM);
    all.chosen = side_out(s, OUT_INT, rows * TOPK, TOPK);
    all.n_chosen = side_out(s, OUT_INT, rows, 1);
}

/* moved: one sequence stands somewhere else. */
static void side_run(struct side *s, struct backend *b, const struct sequences *c, bool apart,
                     bool moved)
{
    *s = (struct side){.b = b, .random = 17};
    data_make(s, c);
    if (moved) {
        int32_t other = all.host[c->n] / 2 + 5;
        b->ops->upload(b, (void *)(uintptr_t)(all.positions + c->n), &other, sizeof other);
    }
    void *nothing = side_reserve(s, 8);
    for (int32_t k = 0; k < c->count; k++) {
        c->run(s, c, k);
        if (apart)
            b->ops->copy(b, nothing, (char *)nothing + 4, 4);
    }
    side_end(s);
}

static bool same(const struct side *x, const struct side *y)
{
    bool equal = true;
    for (int i = 0; i < x->n_outs; i++)
        equal = equal && memcmp(x->outs[i].host, y->outs[i].host, x->outs[i].n * 4) == 0;
    return equal;
}

static bool together_is_same(struct backend *b, const struct sequences *c)
{
    static struct side apart, together, moved;
    static struct witness_table of_apart, of_together;
    b->ops->witness_read(b, &of_apart);
    side_run(&apart, b, c, true, false);
    b->ops->witness_read(b, &of_apart);
    side_run(&together, b, c, false, false);
    b->ops->witness_read(b, &of_together);
    side_run(&moved, b, c, false, true);
    bool good = same(&apart, &together) && !same(&apart, &moved) &&
                memcmp(&of_apart, &of_together, sizeof of_apart) == 0;
    side_clear(&apart);
    side_clear(&together);
    side_clear(&moved);
    return good;
}

/* More of them than a launch takes, and rows enough for other kernels of the indexer. */
static const struct sequences CASES[] = {
    {"sequences: entries", kv_store, 70, 1, false, 0, ATTN_FP32},
    {"sequences: entries, mixed", kv_store, 23, 3, true, 0, ATTN_FP32},
    {"sequences: compressor rows", compressor_store, 9, 1, false, 0, ATTN_FP32},
    {"sequences: compressor rows, mixed", compressor_store, 17, 5, true, 0, ATTN_FP32},
    {"sequences: pooled", compressor_pool, 66, 1, false, 0, ATTN_FP32},
    {"sequences: pooled, mixed", compressor_pool, 11, 2, true, 0, ATTN_FP32},
    {"sequences: selection", index_select, 5, 1, false, 0, ATTN_FP32},
    {"sequences: selection of many", index_select, 65, 2, false, 0, ATTN_FP32},
    {"sequences: selection, mixed", index_select, 20, 2, true, 0, ATTN_FP32},
    {"sequences: attention", attention, 13, 1, false, RATIO_CSA, ATTN_FP32},
    {"sequences: attention, mixed", attention, 13, 2, true, RATIO_HCA, ATTN_FP32},
    {"sequences: attention in bf16", attention, 67, 1, false, RATIO_CSA, ATTN_BF16},
    {"sequences: attention in bf16, mixed", attention, 16, 3, true, RATIO_HCA, ATTN_BF16},
    {"sequences: attention, window", attention, 8, 4, false, 0, ATTN_BF16},
    {"sequences: attention in splits", attention, 33, 1, false, RATIO_CSA, ATTN_BF16_SPLIT_K},
};

static void weights_make(void)
{
    struct side s = {.random = 2};
    all.norm = side_tensor(&s, STORE_BF16, HEAD_DIM, 0);
    all.sink = side_tensor(&s, STORE_F32, HEADS, 0);
    all.ape = side_tensor(&s, STORE_F32, RATIO_CSA, 2 * HEAD_DIM);
}

void spans_run(struct backend *b, const char *word, void (*report)(bool good, const char *what))
{
    weights_make();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        if (strstr(CASES[i].name, word) != NULL)
            report(together_is_same(b, &CASES[i]), CASES[i].name);
    }
}
