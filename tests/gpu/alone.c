/*
 * What must be the same bits on the GPU: a token alone or among others, in every sum that has a
 * float32 form, although few and many tokens have kernels of their own.  Knows no other backend:
 * what the numbers should be is the business of ops.c.
 */
#include "config/limits.h"
#include "tests/gpu/sides.h"

/* A matrix and rows of tokens; mixed: some of these are full float32. */
struct shape {
    enum store store;
    int32_t n, rows, cols;
    bool mixed;
};

static float *tokens_of(struct side *s, const struct shape *shape)
{
    size_t n = (size_t)shape->n * (size_t)shape->cols;
    if (shape->mixed)
        return side_mixed(s, (size_t)shape->n, (size_t)shape->cols, 2);
    float *x = calloc(n, sizeof *x);
    ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_near(random_unit(s) * 2);
    float *at = side_put(s, x, n * sizeof *x);
    free(x);
    return at;
}

/* Every token of a linear alone and in threes, against all of them at once; behind a call whose
 * rows are all full float32, of which nothing may be left. */
static bool alone_is_same(struct backend *b, const struct shape *shape)
{
    const int32_t n = shape->n, rows = shape->rows, cols = shape->cols;
    const size_t values = (size_t)n * (size_t)rows;
    struct side s = {.b = b, .random = 11};
    struct linear_params p = {
        .x = tokens_of(&s, shape),
        .n = n,
        .cols = cols,
        .round_in = ROUND_NONE,
        .n_outs = 1,
        .outs = {{.w = side_tensor(&s, shape->store, rows, cols)}},
    };
    const float *x = p.x;
    p.x = side_floats(&s, (size_t)n * (size_t)cols, 2);
    p.outs[0].y = side_out(&s, OUT_FLOAT, values, (size_t)rows);
    b->ops->linear(b, &p);
    p.x = x;
    b->ops->linear(b, &p);
    for (int32_t step = 1; step <= 3; step += 2) {
        float *y = side_out(&s, OUT_FLOAT, values, (size_t)rows);
        for (int32_t at = 0; at < n; at += step) {
            p.x = x + (int64_t)at * cols, p.n = n - at < step ? n - at : step;
            p.outs[0].y = y + (int64_t)at * rows;
            b->ops->linear(b, &p);
        }
    }
    side_end(&s);
    bool same = memcmp(s.outs[0].host, s.outs[1].host, values * 4) == 0 &&
                memcmp(s.outs[0].host, s.outs[2].host, values * 4) == 0;
    side_clear(&s);
    return same;
}

/* ---- experts -------------------------------------------------------------------------------- */

/* Experts over n tokens whose widths are these; full: some of the tokens are full float32. */
struct layer {
    enum store store;
    int32_t n, hidden, inner;
    bool full;
};

/* Every token alone, against all of them at once. */
static bool expert_is_same(struct backend *b, const struct layer *l)
{
    enum { ROUTED = 12, TOP = 4 };
    struct expert *list = calloc(ROUTED + 1, sizeof *list); /* stays, as weights do */
    const size_t n = (size_t)l->n, values = n * (size_t)l->hidden;
    int32_t chosen[STEP_TOKENS_MAX * TOP];
    struct side s = {.b = b, .random = 13};
    ASSERT(list != NULL && n * TOP <= sizeof chosen / sizeof *chosen);
    for (int i = 0; i <= ROUTED; i++) {
        enum store store = i == ROUTED ? STORE_FP8 : l->store;
        list[i].w1 = side_tensor(&s, store, l->inner, l->hidden);
        list[i].w3 = side_tensor(&s, store, l->inner, l->hidden);
        list[i].w2 = side_tensor(&s, store, l->hidden, l->inner);
    }
    for (size_t i = 0; i < n * TOP; i++)
        chosen[i] = (int32_t)(i % TOP * 3 + random_word(&s) % 3);
    const struct shape shape = {l->store, l->n, 0, l->hidden, l->full};
    struct experts_params p = {
        .experts = list,
        .n_routed = ROUTED,
        .n_shared = 1,
        .x = tokens_of(&s, &shape),
        .chosen = side_put(&s, chosen, n * TOP * sizeof *chosen),
        .weights = side_floats(&s, n * TOP, 1),
        .n = l->n,
        .hidden = l->hidden,
        .inner = l->inner,
        .top = TOP,
        .limit = SWIGLU_LIMIT,
        .round_in = l->full ? ROUND_NONE : ROUND_FP8_128,
        .round_shared = l->full ? ROUND_NONE : ROUND_FP8_128,
        .round_out = l->full ? ROUND_NONE : ROUND_BF16,
        .out = side_out(&s, OUT_FLOAT, values, (size_t)l->hidden),
    };
    b->ops->experts(b, &p);
    struct experts_params one = p;
    float *out = side_out(&s, OUT_FLOAT, values, (size_t)l->hidden);
    one.n = 1;
    for (int32_t t = 0; t < l->n; t++) {
        one.x = p.x + (int64_t)t * l->hidden, one.out = out + (int64_t)t * l->hidden;
        one.chosen = p.chosen + t * TOP, one.weights = p.weights + t * TOP;
        b->ops->experts(b, &one);
    }
    side_end(&s);
    bool same = memcmp(s.outs[0].host, s.outs[1].host, values * sizeof(float)) == 0;
    side_clear(&s);
    return same;
}

/* The latter ones fill the multiprocessors many times over. */
static const struct {
    const char *name;
    struct shape shape;
} ALONE[] = {
    {"alone as among others, fp8", {STORE_FP8, 70, 112, 4096, true}},
    {"alone as among others, fp4", {STORE_FP4, 45, 112, 2048, true}},
    {"alone as among others, nvfp4", {STORE_NVFP4, 45, 112, 2048, true}},
    {"alone as among others, bf16", {STORE_BF16, 29, 112, 1024, true}},
    {"alone as among many, fp8", {STORE_FP8, 200, 1210, 4096, false}},
    {"alone as among many, fp8 of float32", {STORE_FP8, 225, 1100, 1024, true}},
    {"alone as among many, fp4", {STORE_FP4, 200, 1210, 2048, false}},
    {"alone as among many, fp4 of float32", {STORE_FP4, 200, 1210, 1280, true}},
    {"alone as among many, nvfp4", {STORE_NVFP4, 200, 1210, 1024, false}},
    {"alone as among many, bf16", {STORE_BF16, 200, 1210, 1024, false}},
    {"alone as among many, bf16 of float32", {STORE_BF16, 200, 1210, 1664, true}},
    {"alone as among many rows, fp8", {STORE_FP8, 250, 4200, 1024, false}},
    {"alone as among many rows, fp8 of float32", {STORE_FP8, 256, 4112, 640, true}},
    {"alone as among many rows, fp8 of one chunk", {STORE_FP8, 40, 8200, 128, false}},
    {"alone as among many rows, bf16", {STORE_BF16, 130, 6000, 1152, false}},
    {"alone as among a whole step, fp8", {STORE_FP8, STEP_TOKENS_MAX, 1040, 2048, false}},
    {"alone as among a whole step, bf16", {STORE_BF16, STEP_TOKENS_MAX - 3, 1040, 1024, false}},
};

/* Tokens enough for items of either size, of every number of columns, and for several of them. */
static const struct {
    const char *name;
    struct layer layer;
} LAYERS[] = {
    {"experts alone as among few", {STORE_FP4, 3, 1024, 256, false}},
    {"experts alone as by rows", {STORE_FP4, 17, 4096, 640, false}},
    {"experts alone as by rows, of float32", {STORE_FP4, 16, 2048, 384, true}},
    {"experts alone as by rows, nvfp4", {STORE_NVFP4, 17, 1152, 256, false}},
    {"experts alone as among 12 a piece", {STORE_FP4, 30, 1024, 256, false}},
    {"experts alone as among 23 a piece, of float32", {STORE_FP4, 60, 1024, 256, true}},
    {"experts alone as among 23 a piece", {STORE_FP4, 60, 4096, 1408, false}},
    {"experts alone as among 50 a piece", {STORE_FP4, 130, 2048, 640, false}},
    {"experts alone as among 50 a piece, nvfp4", {STORE_NVFP4, 130, 1152, 384, false}},
    {"experts alone as among a whole step", {STORE_FP4, STEP_TOKENS_MAX, 1024, 256, false}},
};

void alone_run(struct backend *b, void (*report)(bool good, const char *what))
{
    for (size_t i = 0; i < sizeof ALONE / sizeof *ALONE; i++)
        report(alone_is_same(b, &ALONE[i].shape), ALONE[i].name);
    for (size_t i = 0; i < sizeof LAYERS / sizeof *LAYERS; i++)
        report(expert_is_same(b, &LAYERS[i].layer), LAYERS[i].name);
}
