/*
 * The operations of the CPU backend against scalar references in double, written from model.md:
 * on every instruction set, with one to three threads, whose results must be the same bits.
 * Experts have a file of their own.
 */
#include "tests/unit/kernels_reference.h"

#include "engine/model/network.h"

#define NOPE (HEAD_DIM - ROPE_HEAD_DIM)

static void rotate(double *x, double position, const double *frequency, double direction)
{
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++) {
        double a = x[2 * i], b = x[2 * i + 1], c = cos(position * frequency[i]);
        double s = direction * sin(position * frequency[i]);
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

static double frequencies[ROPE_KINDS][ROPE_HEAD_DIM / 2];

static double *rope_of(struct backend *b, int32_t position, int32_t n, int32_t stride)
{
    struct rope_table_params p = {.n = n};
    int32_t *positions = take((size_t)n, sizeof *positions);
    double *rows = take((size_t)n * ROPE_ROW, sizeof *rows);
    for (int32_t i = 0; i < n; i++)
        positions[i] = position + i * stride;
    memcpy(p.frequency, frequencies[ROPE_COMPRESSED], sizeof p.frequency);
    p.positions = positions;
    p.rows = rows;
    b->ops->rope_table(b, &p);
    free(positions);
    return rows;
}

/* model.md P8's check values. */
static void test_frequencies(void **state)
{
    static const struct {
        int kind, i;
        double f;
    } SPOTS[] = {
        {ROPE_COMPRESSED, 0, 1},
        {ROPE_COMPRESSED, 1, .687656022},
        {ROPE_COMPRESSED, 15, 3.635538584e-3},
        {ROPE_COMPRESSED, 16, 2.265625e-3},
        {ROPE_COMPRESSED, 20, 2.969777783e-4},
        {ROPE_COMPRESSED, 24, 1.953125e-5},
        {ROPE_COMPRESSED, 25, 5.372312671e-6},
        {ROPE_COMPRESSED, 31, 5.680529037e-7},
        {ROPE_WINDOW, 1, .7498942093},
        {ROPE_WINDOW, 16, 1e-2},
        {ROPE_WINDOW, 31, 1.333521432e-4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof SPOTS / sizeof *SPOTS; i++)
        expect_near(frequencies[SPOTS[i].kind][SPOTS[i].i], SPOTS[i].f, SPOTS[i].f * 1e-8,
                    "frequency", (int64_t)i);
}

/* ---- hyper-connections ---------------------------------------------------------------------- */

/* The test vector of model.md 2.2: fn picks the wanted mixes out of a one-hot stream. */
static void hc_vector(struct backend *b, float *out, size_t n)
{
    enum { HIDDEN = 128, COLS = HC_MULT * HIDDEN };
    static const double PRE[] = {.3775417, .5523089, .4551221, .6294841};
    static const double POST[] = {1.0449696, .9500416, 1.1292726, 1.0349857};
    static const double COMB[] = {.1656278, .4085988, .2601446, .1656279, .2601447, .0711108,
                                  .4085989, .2601446, .1656278, .4085988, .2601446, .1656279,
                                  .4085988, .1116907, .0711110, .4085986};
    float fn[HC_MIX * COLS] = {0}, base[HC_MIX], scale[3] = {1, .5f, 2}, streams[COLS] = {0};
    double post[HC_MULT], comb[HC_MULT * HC_MULT], factor;
    for (int m = 0; m < HC_MULT; m++)
        streams[m * HIDDEN + m] = 1 + (float)m; /* so that u shows each pre */
    factor = 1 / sqrt(30.0 / COLS + 1e-6);
    for (int i = 0; i < HC_MIX; i++) {
        fn[i * COLS] = (float)((0.1 * (7 * i % 11) - 0.5) / factor);
        base[i] = 0.01f * (float)i;
    }
    (void)n;
    struct hc_pre_params p = {
        .fn = {fn, NULL, HC_MIX, COLS, STORE_F32},
        .base = {base, NULL, HC_MIX, 0, STORE_F32},
        .scale = {scale, NULL, 3, 0, STORE_F32},
        .streams = streams,
        .n = 1,
        .hidden = HIDDEN,
        .out = out,
        .post = post,
        .comb = comb,
    };
    b->ops->hc_pre(b, &p);
    for (int j = 0; j < HC_MULT; j++) {
        expect_near(out[j], PRE[j] * (j + 1), 5e-7, "pre", j);
        expect_near(post[j], POST[j], 2e-7, "post", j);
    }
    for (int j = 0; j < HC_MULT * HC_MULT; j++)
        expect_near(comb[j], COMB[j], 2e-7, "comb", j);
}

static void test_hc_vector(void **state)
{
    (void)state;
    for_each_backend(hc_vector, 128);
}

/* Destination stream k gets comb[j][k] of source j: not the transpose. */
static void hc_post(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 5, HIDDEN = 128 };
    float *y = random_floats(TOKENS * HIDDEN, 1), *x = random_floats(TOKENS * 4 * HIDDEN, 1);
    double post[TOKENS * 4], comb[TOKENS * 16];
    for (int i = 0; i < TOKENS * 4; i++)
        post[i] = random_unit();
    for (int i = 0; i < TOKENS * 16; i++)
        comb[i] = random_unit();
    struct hc_post_params p = {.y = y,
                               .streams = x,
                               .post = post,
                               .comb = comb,
                               .n = TOKENS,
                               .hidden = HIDDEN,
                               .streams_out = out};
    b->ops->hc_post(b, &p);
    assert_int_equal(n, TOKENS * 4 * HIDDEN);
    for (int i = 0; i < TOKENS * 4 * HIDDEN; i++) {
        int t = i / (4 * HIDDEN), k = i / HIDDEN % 4, d = i % HIDDEN;
        double want = post[t * 4 + k] * y[t * HIDDEN + d];
        for (int j = 0; j < 4; j++)
            want += comb[t * 16 + j * 4 + k] * x[(t * 4 + j) * HIDDEN + d];
        expect_near(out[i], want, 2e-7, "stream", i);
    }
    free(y);
    free(x);
}

static void test_hc_post(void **state)
{
    (void)state;
    for_each_backend(hc_post, 5 * 4 * 128);
}

/* ---- dense ---------------------------------------------------------------------------------- */

/* Two matrices over one rounded input, and a token's result alone equals that among others. */
static void linear(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 13, COLS = 256, ROWS = 40, SMALL = 8 };
    struct matrix w = matrix_random(STORE_FP8, ROWS, COLS);
    struct matrix small = matrix_random(STORE_BF16, SMALL, COLS);
    float *x = random_floats(TOKENS * COLS, 1), rounded[TOKENS * COLS], one[ROWS], two[SMALL];
    struct linear_params p = {
        .x = x,
        .n = TOKENS,
        .cols = COLS,
        .round_in = ROUND_FP8_128,
        .n_outs = 2,
        .outs = {{w.tensor, out, ROUND_BF16, false, LINEAR_PLAIN},
                 {small.tensor, out + TOKENS * ROWS, ROUND_NONE, false, LINEAR_PLAIN}},
    };
    assert_int_equal(n, TOKENS * (ROWS + SMALL));
    b->ops->linear(b, &p);
    CPU_VECTOR_BASELINE.round(ROUND_FP8_128, x, TOKENS * COLS, rounded);
    for (int i = 0; i < TOKENS * ROWS; i++) {
        double want = 0;
        for (int k = 0; k < COLS; k++)
            want += w.values[i % ROWS * COLS + k] * rounded[i / ROWS * COLS + k];
        expect_near(out[i], want, fabs(want) * 0x1p-8 + 1e-4, "bf16 row", i);
        assert_true(out[i] == bf16_of((uint16_t)(((union {
                                                     float f;
                                                     uint32_t u;
                                                 }){out[i]})
                                                     .u >>
                                                 16)));
    }
    for (int i = 0; i < TOKENS * SMALL; i++) {
        double want = 0;
        for (int k = 0; k < COLS; k++)
            want += small.values[i % SMALL * COLS + k] * rounded[i / SMALL * COLS + k];
        expect_near(out[TOKENS * ROWS + i], want, 1e-4, "row", i);
    }
    p.n = 1;
    p.x = x + 6 * COLS;
    p.outs[0].y = one;
    p.outs[1].y = two;
    b->ops->linear(b, &p);
    assert_memory_equal(one, out + 6 * ROWS, sizeof one);
    assert_memory_equal(two, out + TOKENS * ROWS + 6 * SMALL, sizeof two);
    free(x);
    matrix_free(&w);
    matrix_free(&small);
}

static void test_linear(void **state)
{
    (void)state;
    for_each_backend(linear, 13 * 48);
}

static void grouped(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 7, GROUPS = 4, RANK = 128, COLS = 256 };
    struct matrix w = matrix_random(STORE_FP8, GROUPS * RANK, COLS);
    float *x = random_floats(TOKENS * GROUPS * COLS, 1);
    struct grouped_params p = {.w = w.tensor,
                               .x = x,
                               .n = TOKENS,
                               .groups = GROUPS,
                               .rank = RANK,
                               .cols = COLS,
                               .precise = true,
                               .y = out};
    b->ops->grouped(b, &p);
    assert_int_equal(n, TOKENS * GROUPS * RANK);
    for (int i = 0; i < TOKENS * GROUPS * RANK; i++) {
        int row = i % (GROUPS * RANK), slice = i / RANK; /* of [token, group] */
        double want = 0;
        for (int k = 0; k < COLS; k++)
            want += w.values[row * COLS + k] * x[slice * COLS + k];
        expect_near(out[i], want, fabs(want) * 1e-7 + 1e-12, "group", i);
    }
    free(x);
    matrix_free(&w);
}

static void test_grouped(void **state)
{
    (void)state;
    for_each_backend(grouped, 7 * 512);
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Queries from position 150 on: the window wraps in its ring, blocks are chosen or all seen. */
enum { A_TOKENS = 9, A_HEADS = 6, A_SLOTS = 140, A_BLOCKS = 40, A_TOPK = 8, A_AT = 150 };

static void attention_reference(const struct attention_params *p, int t, int h, double *out)
{
    double score[SLIDING_WINDOW + A_BLOCKS], total, most = ((const float *)p->sink.data)[h];
    const float *key[SLIDING_WINDOW + A_BLOCKS];
    int position = A_AT + t, n = 0;
    for (int at = position - SLIDING_WINDOW + 1; at <= position; at++)
        key[n++] = p->ring + at % A_SLOTS * HEAD_DIM;
    int seen = p->ratio == 0         ? 0
               : p->selected == NULL ? (position + 1) / p->ratio
                                     : p->n_selected[t];
    for (int i = 0; i < seen; i++)
        key[n++] =
            p->compressed + (p->selected == NULL ? i : p->selected[t * A_TOPK + i]) * HEAD_DIM;
    for (int i = 0; i < n; i++) {
        score[i] = 0;
        for (int c = 0; c < HEAD_DIM; c++)
            score[i] += (double)p->q[(t * A_HEADS + h) * HEAD_DIM + c] * key[i][c];
        score[i] /= sqrt(HEAD_DIM);
        most = fmax(most, score[i]);
    }
    total = exp(((const float *)p->sink.data)[h] - most);
    memset(out, 0, HEAD_DIM * sizeof *out);
    for (int i = 0; i < n; i++) {
        double e = exp(score[i] - most);
        total += e;
        for (int c = 0; c < HEAD_DIM; c++)
            out[c] += e * key[i][c];
    }
    for (int c = 0; c < HEAD_DIM; c++)
        out[c] /= total;
    rotate(out + NOPE, position, frequencies[ROPE_COMPRESSED], -1);
}

static void attention(struct backend *b, float *out, size_t n)
{
    static const int RATIOS[] = {0, RATIO_CSA, RATIO_HCA};
    float *q = random_floats(A_TOKENS * A_HEADS * HEAD_DIM, 2);
    float *ring = random_floats(A_SLOTS * HEAD_DIM, 1),
          *blocks = random_floats(A_BLOCKS * HEAD_DIM, 1);
    float sink[A_HEADS] = {-1, 0, 5, 30, -40, 1}, one[A_HEADS * HEAD_DIM];
    int32_t selected[A_TOKENS * A_TOPK], counts[A_TOKENS];
    double *rope = rope_of(b, A_AT, A_TOKENS, 1), want[HEAD_DIM];
    for (int t = 0; t < A_TOKENS; t++) {
        counts[t] = t < A_TOPK ? t : A_TOPK;
        for (int i = 0; i < A_TOPK; i++)
            selected[t * A_TOPK + i] = 2 * i + t % 2;
    }
    size_t each = (size_t)A_TOKENS * A_HEADS * HEAD_DIM;
    assert_int_equal(n, 6 * each);
    for (int run = 0; run < 6; run++, out += each) {
        bool csa = RATIOS[run % 3] == RATIO_CSA;
        int32_t at = A_AT;
        struct attention_params p = {
            .sink = {sink, NULL, A_HEADS, 0, STORE_F32},
            .q = q,
            .ring = ring,
            .compressed = blocks,
            .selected = csa ? selected : NULL,
            .n_selected = csa ? counts : NULL,
            .rope = rope,
            .n = A_TOKENS,
            .at = &at,
            .reach = A_AT + A_TOKENS,
            .heads = A_HEADS,
            .ring_slots = A_SLOTS,
            .ratio = RATIOS[run % 3],
            .topk = A_TOPK,
            .precise = run >= 3,
            .out = out,
        };
        b->ops->attention(b, &p);
        for (int i = 0; i < A_TOKENS * A_HEADS; i++) {
            attention_reference(&p, i / A_HEADS, i % A_HEADS, want);
            for (int c = 0; c < HEAD_DIM; c++)
                expect_near(out[i * HEAD_DIM + c], want[c], run >= 3 ? 1e-6 : 6e-6, "attention",
                            i * HEAD_DIM + c);
        }
        int last = A_TOKENS - 1; /* the last query alone */
        p.n = 1;
        at += last;
        p.q += last * A_HEADS * HEAD_DIM;
        p.rope += last * ROPE_ROW;
        p.selected = csa ? selected + last * A_TOPK : NULL;
        p.n_selected = csa ? counts + last : NULL;
        p.out = one;
        b->ops->attention(b, &p);
        assert_memory_equal(one, out + last * A_HEADS * HEAD_DIM, sizeof one);
    }
    free(q);
    free(ring);
    free(blocks);
    free(rope);
}

static void test_attention(void **state)
{
    (void)state;
    for_each_backend(attention, (size_t)6 * A_TOKENS * A_HEADS * HEAD_DIM);
}

static void norm_reference(double *x, int n, const uint16_t *weight)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        x[i] *= (weight == NULL ? 1 : bf16_of(weight[i])) / sqrt(sum / n + 1e-6);
}

/* Entries land in their slots, others stay; queries are normed without a weight and rotated. */
static void entries(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 6, AT = 270, SLOTS = 140, HEADS = 3 };
    float *kv = random_floats(TOKENS * HEAD_DIM, 2),
          *q = random_floats(TOKENS * HEADS * HEAD_DIM, 2);
    uint16_t weight[HEAD_DIM];
    double *rope = rope_of(b, AT, TOKENS, 1), want[HEAD_DIM];
    int32_t at = AT;
    float *ring = out, *query = out + SLOTS * HEAD_DIM;
    for (int i = 0; i < HEAD_DIM; i++)
        weight[i] = (uint16_t)(0x3f80 + i % 50);
    assert_int_equal(n, (SLOTS + TOKENS * HEADS) * HEAD_DIM);
    struct kv_store_params p = {.weight = {weight, NULL, HEAD_DIM, 0, STORE_BF16},
                                .kv = kv,
                                .rope = rope,
                                .n = TOKENS,
                                .at = &at,
                                .ring = ring,
                                .ring_slots = SLOTS};
    b->ops->kv_store(b, &p);
    for (int slot = 0; slot < SLOTS; slot++) {
        int t = (slot - AT % SLOTS + SLOTS) % SLOTS;
        if (t >= TOKENS) {
            assert_true(ring[slot * HEAD_DIM] == POISON && ring[slot * HEAD_DIM + 511] == POISON);
            continue;
        }
        for (int c = 0; c < HEAD_DIM; c++)
            want[c] = kv[t * HEAD_DIM + c];
        norm_reference(want, HEAD_DIM, weight);
        rotate(want + NOPE, AT + t, frequencies[ROPE_COMPRESSED], 1);
        for (int c = 0; c < HEAD_DIM; c++)
            expect_near(ring[slot * HEAD_DIM + c], want[c], 1e-6, "entry", slot * HEAD_DIM + c);
    }
    memcpy(query, q, TOKENS * HEADS * HEAD_DIM * sizeof *q);
    struct query_params r = {.q = query, .rope = rope, .n = TOKENS, .heads = HEADS};
    b->ops->query(b, &r);
    for (int i = 0; i < TOKENS * HEADS; i++) {
        for (int c = 0; c < HEAD_DIM; c++)
            want[c] = q[i * HEAD_DIM + c];
        norm_reference(want, HEAD_DIM, NULL);
        rotate(want + NOPE, AT + i / HEADS, frequencies[ROPE_COMPRESSED], 1);
        for (int c = 0; c < HEAD_DIM; c++)
            expect_near(query[i * HEAD_DIM + c], want[c], 1e-6, "query", i * HEAD_DIM + c);
    }
    free(kv);
    free(q);
    free(rope);
}

static void test_entries(void **state)
{
    (void)state;
    for_each_backend(entries, (size_t)(140 + 18) * HEAD_DIM);
}

/* ---- compressor and indexer ----------------------------------------------------------------- */

/* Pools all blocks of `total` tokens that were stored in pieces of `piece`, through a short ring.
 */
static void compress(struct backend *b, int ratio, int total, int piece, const float *kappa,
                     const float *gamma, const struct tensor *ape, const struct tensor *weight,
                     float *cache)
{
    int width = ratio == RATIO_CSA ? 2 * HEAD_DIM : HEAD_DIM;
    int slots = (ratio == RATIO_CSA ? 8 : 128) + piece;
    float *rings = take((size_t)slots * 2 * (size_t)width, sizeof *rings);
    for (int32_t at = 0; at < total; at += piece) {
        int n = total - at < piece ? total - at : piece;
        struct compressor_store_params store = {*ape,
                                                kappa + at * width,
                                                gamma + at * width,
                                                n,
                                                &at,
                                                ratio,
                                                width,
                                                rings,
                                                rings + slots * width,
                                                slots};
        b->ops->compressor_store(b, &store);
        int blocks = (at + n) / ratio - at / ratio;
        double *rope = rope_of(b, at / ratio * ratio, blocks > 0 ? blocks : 1, ratio);
        struct compressor_pool_params pool = {
            .weight = *weight,
            .kappa_ring = rings,
            .gamma_ring = rings + slots * width,
            .ring_slots = slots,
            .ratio = ratio,
            .width = width,
            .dim = HEAD_DIM,
            .at = &at,
            .n = blocks,
            .rope = rope,
            .precise = true,
            .cache = cache,
        };
        b->ops->compressor_pool(b, &pool);
        free(rope);
    }
    free(rings);
}

/* One channel of one block, from the definition in model.md 2.4. */
static double pooled(int ratio, int block, int c, const float *kappa, const float *gamma,
                     const float *ape)
{
    bool overlap = ratio == RATIO_CSA;
    int width = overlap ? 2 * HEAD_DIM : HEAD_DIM;
    double sum = 0, total = 0;
    for (int i = overlap ? -ratio : 0; i < ratio; i++) {
        int p = block * ratio + i, channel = overlap && i >= 0 ? c + HEAD_DIM : c;
        if (p < 0)
            continue;
        double e = exp((double)gamma[p * width + channel] + ape[p % ratio * width + channel]);
        total += e;
        sum += e * kappa[p * width + channel];
    }
    return sum / total;
}

static void compressor(struct backend *b, float *out, size_t n)
{
    static const struct {
        int ratio, total, piece;
    } RUNS[] = {{RATIO_CSA, 27, 27}, {RATIO_CSA, 27, 1},    {RATIO_CSA, 27, 3},
                {RATIO_CSA, 27, 5},  {RATIO_HCA, 300, 300}, {RATIO_HCA, 300, 7}};
    const float *first[2] = {NULL, NULL};
    uint16_t weight[HEAD_DIM];
    struct tensor norm = {.data = weight, .rows = HEAD_DIM, .store = STORE_BF16};
    for (int i = 0; i < HEAD_DIM; i++)
        weight[i] = (uint16_t)(0x3f80 + i % 50);
    for (int run = 0; run < 6; run++) {
        int ratio = RUNS[run].ratio, width = ratio == RATIO_CSA ? 2 * HEAD_DIM : HEAD_DIM;
        random_state = (uint64_t)ratio; /* the same rows for every piece size */
        float *kappa = random_floats((size_t)RUNS[run].total * (size_t)width, 2);
        float *gamma = random_floats((size_t)RUNS[run].total * (size_t)width, 2);
        float *ape = random_floats((size_t)ratio * (size_t)width, 1);
        struct tensor tensor = {.data = ape, .rows = ratio, .cols = width, .store = STORE_F32};
        compress(b, ratio, RUNS[run].total, RUNS[run].piece, kappa, gamma, &tensor, &norm, out);
        int blocks = RUNS[run].total / ratio;
        for (int j = 0; j < blocks; j++) {
            double want[HEAD_DIM];
            for (int c = 0; c < HEAD_DIM; c++)
                want[c] = pooled(ratio, j, c, kappa, gamma, ape);
            norm_reference(want, HEAD_DIM, weight);
            rotate(want + NOPE, j * ratio, frequencies[ROPE_COMPRESSED], 1);
            for (int c = 0; c < HEAD_DIM; c++)
                expect_near(out[j * HEAD_DIM + c], want[c], 3e-6, "block", j * HEAD_DIM + c);
        }
        const float **same = &first[ratio == RATIO_HCA];
        if (*same != NULL)
            assert_memory_equal(*same, out, (size_t)(blocks * HEAD_DIM) * sizeof *out);
        *same = out;
        assert_true(out[blocks * HEAD_DIM] == POISON); /* the open block is not there */
        out += 8 * HEAD_DIM;
        n -= 8 * HEAD_DIM;
        free(kappa);
        free(gamma);
        free(ape);
    }
    assert_int_equal(n, 0);
}

static void test_compressor(void **state)
{
    (void)state;
    for_each_backend(compressor, (size_t)6 * 8 * HEAD_DIM);
}

/* The best by brute force; equal keys make exact ties, which the lowest index wins. */
static void selection(struct backend *b, float *out, size_t n)
{
    enum { TOKENS = 5, HEADS = 4, TOPK = 20, AT = 2200, BLOCKS = (AT + TOKENS) / 4 };
    float *q = random_floats(TOKENS * HEADS * INDEX_HEAD_DIM, 1);
    float *keys = random_floats((size_t)BLOCKS * INDEX_HEAD_DIM, 1);
    float *w = random_floats(TOKENS * HEADS, 1);
    int32_t selected[TOKENS * TOPK], counts[TOKENS], at = AT;
    for (int j = 0; j < BLOCKS; j++) {
        if (j % 5 != 0)
            memcpy(keys + j * INDEX_HEAD_DIM, keys + (j - j % 5) * INDEX_HEAD_DIM,
                   INDEX_HEAD_DIM * sizeof *keys);
    }
    struct index_select_params p = {.q = q,
                                    .weights = w,
                                    .keys = keys,
                                    .n = TOKENS,
                                    .at = &at,
                                    .reach = AT + TOKENS,
                                    .heads = HEADS,
                                    .topk = TOPK,
                                    .precise = true,
                                    .selected = selected,
                                    .n_selected = counts};
    b->ops->index_select(b, &p);
    for (int t = 0; t < TOKENS; t++) {
        int visible = (AT + t + 1) / 4;
        double score[BLOCKS];
        for (int j = 0; j < visible; j++) {
            score[j] = 0;
            for (int h = 0; h < HEADS; h++) {
                double dot = 0;
                for (int c = 0; c < INDEX_HEAD_DIM; c++)
                    dot += (double)q[(t * HEADS + h) * INDEX_HEAD_DIM + c] *
                           keys[j * INDEX_HEAD_DIM + c];
                score[j] += fmax((float)dot, 0) * w[t * HEADS + h];
            }
        }
        assert_int_equal(counts[t], TOPK);
        for (int i = 0; i < TOPK; i++) {
            int chosen = selected[t * TOPK + i], better = 0;
            assert_in_range(chosen, 0, visible - 1);
            assert_true(i == 0 || chosen > selected[t * TOPK + i - 1]);
            for (int j = 0; j < visible; j++)
                better += score[j] > score[chosen] || (score[j] == score[chosen] && j < chosen);
            assert_true(better < TOPK);
            out[t * TOPK + i] = (float)chosen;
        }
    }
    assert_int_equal(n, TOKENS * TOPK);
    at = 3; /* fewer blocks than topk: the visible ones, none from the future */
    b->ops->index_select(b, &p);
    for (int t = 0; t < TOKENS; t++) {
        assert_int_equal(counts[t], (3 + t + 1) / 4);
        for (int i = 0; i < counts[t]; i++)
            assert_int_equal(selected[t * TOPK + i], i);
    }
    keys[0] = NAN; /* ranks lowest; indices stay valid and ascending */
    at = AT;
    b->ops->index_select(b, &p);
    for (int i = 1; i < TOPK; i++)
        assert_true(selected[i] > selected[i - 1] && selected[i - 1] > 0);
    free(q);
    free(keys);
    free(w);
}

static void test_selection(void **state)
{
    (void)state;
    for_each_backend(selection, 5 * 20);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void test_memory(void **state)
{
    (void)state;
    struct backend *b = backend_cpu_create(CPU_BASELINE, 1, &LIMITS);
    assert_non_null(b);
    size_t bytes = (size_t)1 << 20;
    uint8_t *memory = b->ops->reserve(b, bytes), back[4] = {9, 9, 9, 9};
    assert_non_null(memory);
    b->ops->upload(b, memory + 5, "abcd", 4);
    b->ops->copy(b, memory + bytes - 4, memory + 5, 4);
    b->ops->download(b, back, memory + bytes - 4, 4);
    assert_memory_equal(back, "abcd", 4);
    b->ops->clear(b, memory, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], 0);
    b->ops->release(b, memory, bytes);
    b->ops->destroy(b);
}

static int setup(void **state)
{
    (void)state;
    rope_frequencies(frequencies);
    cpu_tables_fill();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_hc_vector),
        cmocka_unit_test(test_hc_post),     cmocka_unit_test(test_linear),
        cmocka_unit_test(test_grouped),     cmocka_unit_test(test_attention),
        cmocka_unit_test(test_entries),     cmocka_unit_test(test_compressor),
        cmocka_unit_test(test_selection),   cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("backend operations", tests, setup, NULL);
}
