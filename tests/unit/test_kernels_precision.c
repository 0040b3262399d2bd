/*
 * Every value of the precision table that the CPU backend computes by an arithmetic of its own,
 * against a plain model of that arithmetic, in double with explicit roundings: the kernel must be
 * near its own model and farther from the model of any other value.  And the witness of each: the
 * value that ran, and no other.
 */
#include "tests/unit/kernels_reference.h"

/* ---- numbers of few bits, by their definition -------------------------------------------------
 */

/* Nearest even to `bits` significant bits. */
static double to_bits(double x, int bits)
{
    int exponent;
    double fraction = frexp(x, &exponent);
    return x == 0 ? 0 : ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

static double bf16(double x)
{
    return to_bits((float)x, 8);
}

/* Nearest even among numbers of `bits` significant bits, whose step stays below `normal`. */
static double to_small(double x, int bits, double normal, double max)
{
    double size = fmin(fabs(x), max), step = ldexp(normal, 1 - bits);
    size = size < normal ? nearbyint(size / step) * step : to_bits(size, bits);
    return copysign(fmin(size, max), x);
}

static double e4m3(double x)
{
    return to_small(x, 4, 0x1p-6, 448);
}

static double e2m1(double x)
{
    return to_small(x, 2, 1, 6);
}

static void model_nvfp4(const float *x, int n, double *out)
{
    float all = 0;
    for (int i = 0; i < n; i++)
        all = fmaxf(all, fabsf(x[i]));
    all /= 6.0f * 448.0f;
    for (int at = 0; at < n; at += 16) {
        float most = 0;
        for (int i = at; i < at + 16; i++)
            most = fmaxf(most, fabsf(x[i]));
        float scale = all > 0 ? (float)e4m3(most / 6.0f / all) * all : 0;
        for (int i = at; i < at + 16; i++)
            out[i] = scale > 0 ? e2m1(x[i] / scale) * scale : 0;
    }
}

static void test_roundings(void **state)
{
    enum { N = 1024 };
    const struct cpu_vector *all[CPU_ISAS];
    float *x = random_floats(N, 3), got[N];
    double want[N];
    (void)state;
    for (int i = 0; i < 64; i++)
        x[i] *= i < 16 ? 0 : i < 32 ? 1e-9f : i < 48 ? 1e-38f : 1e30f;
    for (int v = 0; v < variants(all); v++) {
        assert_int_equal(all[v]->round(ROUND_TF32, x, N - 3, got), ROUND_TF32);
        for (int i = 0; i < N - 3; i++)
            assert_true(fabsf(x[i]) < 1e-37f || got[i] == (float)to_bits(x[i], 11));
        assert_int_equal(all[v]->round(ROUND_NVFP4, x, N, got), ROUND_NVFP4);
        model_nvfp4(x, N, want); /* 1e30 leaves nothing of all others but zeros */
        for (int i = 0; i < N; i++)
            assert_true(got[i] == (float)want[i]);
        assert_int_equal(all[v]->round(ROUND_NVFP4, x + 64, N - 64, got), ROUND_NVFP4);
        model_nvfp4(x + 64, N - 64, want);
        int zeros = 0;
        for (int i = 0; i < N - 64; i++) {
            assert_true(got[i] == (float)want[i]);
            zeros += got[i] == 0;
        }
        assert_in_range(zeros, 1, N / 4); /* control: most is left, and some is lost */
    }
    free(x);
}

/* ---- distances and witnesses ------------------------------------------------------------------
 */

/* Relative to the size of `want`. */
static double distance(const float *got, const double *want, size_t n)
{
    double sum = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(sum / size);
}

/* Exactly `value` was seen of a row, once, for n rows of which n_decode on the decode leg. */
static void expect_witness(const struct witness_table *t, enum precision_row row,
                           struct place place, int value, int32_t n)
{
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        for (int leg = 0; leg < LEGS; leg++) {
            for (int v = 0; v < PRECISION_VALUES_MAX; v++) {
                const struct witness_cell *c = &t->cells[row][kind][leg][v];
                int32_t rows = kind != (int)place.kind || v != value ? 0
                               : leg == LEG_DECODE                   ? place.n_decode
                               : leg == LEG_PREFILL                  ? n - place.n_decode
                                                                     : 0;
                if (c->rows != (uint64_t)rows || c->launches != (rows > 0) || c->varied)
                    fail_msg("%s=%s in %s, %s: %d rows instead of %d", PRECISION[row].name,
                             PRECISION[row].values[v].name, layer_kind_name(kind), leg_name(leg),
                             (int)c->rows, rows);
            }
        }
    }
}

static const struct witness_table *witness_of(struct backend *b)
{
    static struct witness_table table;
    b->ops->witness_read(b, &table);
    return &table;
}

/* ---- attention --------------------------------------------------------------------------------
 */

enum { HEADS = 3, BLOCKS = 100, SLOTS = 140, AT = 400, KEYS = SLIDING_WINDOW + BLOCKS };

struct attended {
    const float *q, *keys[KEYS];
    float sink;
    bool scaled;
};

/* Tiles of 64 keys under one running maximum, or each split under its own. */
static void model_attention(const struct attended *a, enum attn_math math, double *out)
{
    double score[KEYS], most = -INFINITY, total = 0, split_most = -INFINITY;
    bool low = math != ATTN_FP32;
    for (int i = 0; i < KEYS; i++) {
        score[i] = 0;
        for (int c = 0; c < HEAD_DIM; c++)
            score[i] += low ? bf16(a->q[c]) * bf16(a->keys[i][c]) : (double)a->q[c] * a->keys[i][c];
        score[i] *= a->scaled ? 1 : pow(HEAD_DIM, -0.5);
        most = fmax(most, score[i]);
    }
    memset(out, 0, HEAD_DIM * sizeof *out);
    for (int i = 0; i < KEYS; i++) {
        if (i % 64 == 0) {
            if (math == ATTN_BF16_SPLIT_K)
                split_most = -INFINITY;
            for (int j = i; j < KEYS && j < i + 64; j++)
                split_most = fmax(split_most, score[j]);
        }
        double e = exp(score[i] - split_most), under = exp(split_most - most);
        double p = low ? bf16(e) * under : exp(score[i] - most);
        total += low ? e * under : p;
        for (int c = 0; c < HEAD_DIM; c++)
            out[c] += p * (low ? bf16(a->keys[i][c]) : (double)a->keys[i][c]);
    }
    total += exp(a->sink - most);
    for (int c = 0; c < HEAD_DIM; c++)
        out[c] /= total;
}

static double *no_rotation(void)
{
    double *rope = take(ROPE_ROW, sizeof *rope);
    for (int i = 0; i < ROPE_ROW; i += 2)
        rope[i] = 1;
    return rope;
}

static void attention(struct backend *b, float *out, size_t n)
{
    static const float SINK[HEADS] = {-1, 3, 20};
    float *q = random_floats(HEADS * HEAD_DIM, 6);
    float *ring = random_floats(SLOTS * HEAD_DIM, 1), *blocks = random_floats(BLOCKS * HEAD_DIM, 1);
    double *rope = no_rotation(), want[3][HEADS * HEAD_DIM];
    int32_t selected[BLOCKS], count = BLOCKS;
    struct attended a = {0};
    for (int i = 0; i < BLOCKS; i++)
        selected[i] = i;
    for (int i = 0; i < KEYS; i++)
        a.keys[i] = i < SLIDING_WINDOW ? ring + (AT - 127 + i) % SLOTS * HEAD_DIM
                                       : blocks + (i - SLIDING_WINDOW) * HEAD_DIM;
    for (int scaled = 0; scaled < 2; scaled++) {
        for (int i = 0; i < HEADS * HEAD_DIM; i++)
            q[i] = scaled ? (float)(q[i] * pow(HEAD_DIM, -0.5)) : q[i];
        for (int math = 0; math < 3; math++) {
            for (int h = 0; h < HEADS; h++) {
                a.q = q + h * HEAD_DIM;
                a.sink = SINK[h];
                a.scaled = scaled;
                model_attention(&a, math, want[math] + h * HEAD_DIM);
            }
        }
        for (int math = 0; math < 3; math++, out += HEADS * HEAD_DIM) {
            struct place place = {KIND_CSA, math == ATTN_BF16_SPLIT_K};
            int32_t at = AT;
            struct attention_params p = {
                .sink = {SINK, NULL, HEADS, 0, STORE_F32},
                .q = q,
                .ring = ring,
                .compressed = blocks,
                .selected = selected,
                .n_selected = &count,
                .rope = rope,
                .n = 1,
                .at = &at,
                .reach = AT + 1,
                .heads = HEADS,
                .ring_slots = SLOTS,
                .ratio = RATIO_CSA,
                .topk = BLOCKS,
                .place = place,
                .math = math,
                .q_scaled = scaled,
                .out = out,
            };
            b->ops->attention(b, &p);
            expect_witness(witness_of(b), place.n_decode ? ROW_ATTN_DECODE : ROW_ATTN_PREFILL,
                           place, math, 1);
            double own = distance(out, want[math], HEADS * HEAD_DIM);
            for (int other = 0; other < 3; other++) {
                if (other != math && distance(out, want[other], HEADS * HEAD_DIM) < 5 * own)
                    fail_msg("attention %d is %g from its model, and near that of %d", math, own,
                             other);
            }
            assert_true(own < 1e-4);
        }
    }
    assert_int_equal(n, 6 * HEADS * HEAD_DIM);
    free(q);
    free(ring);
    free(blocks);
    free(rope);
}

static void test_attention(void **state)
{
    (void)state;
    for_each_backend(attention, (size_t)6 * HEADS * HEAD_DIM);
}

/* ---- queries ----------------------------------------------------------------------------------
 */

static void model_query(const float *x, enum precision_ATTN_QNORM norm,
                        enum precision_ATTN_QUERY store, double *out)
{
    double sum = 0, factor;
    for (int c = 0; c < HEAD_DIM; c++)
        sum += norm == ATTN_QNORM_BF16 ? bf16((double)x[c] * x[c]) : (double)x[c] * x[c];
    factor = norm == ATTN_QNORM_BF16 ? bf16(1 / sqrt(bf16(bf16(sum / HEAD_DIM) + 1e-6)))
                                     : 1 / sqrt(sum / HEAD_DIM + 1e-6);
    for (int c = 0; c < HEAD_DIM; c++) {
        out[c] = x[c] * factor;
        if (norm == ATTN_QNORM_BF16 || store != ATTN_QUERY_FP32)
            out[c] = bf16(out[c]);
        if (store == ATTN_QUERY_BF16_SCALED)
            out[c] = bf16(out[c] * pow(HEAD_DIM, -0.5));
    }
}

static void query(struct backend *b, float *out, size_t n)
{
    enum { N = 4 };
    float *x = random_floats(N * HEAD_DIM, 2);
    double *rope = take(2 * ROPE_ROW, sizeof *rope), want[HEAD_DIM], other[HEAD_DIM];
    for (int i = 0; i < 2 * ROPE_ROW; i += 2)
        rope[i] = 1;
    assert_int_equal(n, (size_t)6 * N * HEAD_DIM);
    for (int i = 0; i < N * HEAD_DIM; i++)
        x[i] = (float)bf16(x[i]); /* as a bf16 projection leaves them */
    for (int run = 0; run < 6; run++, out += N * HEAD_DIM) {
        struct place place = {KIND_DRAFT, 1};
        memcpy(out, x, N * HEAD_DIM * sizeof *x);
        struct query_params p = {out, rope, 2, N / 2, place, run % 2, run / 2};
        b->ops->query(b, &p);
        const struct witness_table *seen = witness_of(b);
        expect_witness(seen, ROW_ATTN_QNORM, place, run % 2, 2);
        expect_witness(seen, ROW_ATTN_QUERY, place, run / 2, 2);
        for (int h = 0; h < N; h++) {
            model_query(x + h * HEAD_DIM, run % 2, run / 2, want);
            double own = distance(out + h * HEAD_DIM, want, HEAD_DIM);
            assert_true(own < 1e-4);
            for (int from = 0; from < 6; from++) { /* control: every value but one is another */
                model_query(x + h * HEAD_DIM, from % 2, from / 2, other);
                double far = distance(out + h * HEAD_DIM, other, HEAD_DIM);
                bool same = from / 2 == run / 2 || (from % 2 == 1 && run % 2 == 1);
                assert_true(same || far > 3e-4);
            }
        }
    }
    free(x);
    free(rope);
}

static void test_query(void **state)
{
    (void)state;
    for_each_backend(query, (size_t)6 * 4 * HEAD_DIM);
}

/* ---- index scores -----------------------------------------------------------------------------
 */

enum { I_HEADS = 4, I_BLOCKS = 3000, I_TOPK = 60, I_AT = 4 * I_BLOCKS - 1 };

static double model_score(const float *q, const float *key, const float *weights, bool low)
{
    float sum = 0;
    double exact = 0, scale = 1 / sqrt((double)INDEX_HEAD_DIM * I_HEADS);
    for (int h = 0; h < I_HEADS; h++) {
        double dot = 0;
        for (int c = 0; c < INDEX_HEAD_DIM; c++)
            dot += (double)q[h * INDEX_HEAD_DIM + c] * key[c];
        exact += fmax(dot, 0) * (weights[h] * scale);
        sum += (float)bf16(fmax(bf16(dot), 0) * bf16(weights[h] * scale));
    }
    return low ? bf16(sum) : exact;
}

/* Rank among all: lower scores and, of equal ones, higher indices come later. */
static int rank_of(const double *score, int j)
{
    int rank = 0;
    for (int i = 0; i < I_BLOCKS; i++)
        rank += score[i] > score[j] || (score[i] == score[j] && i < j);
    return rank;
}

static void index_select(struct backend *b, float *out, size_t n)
{
    float *q = random_floats(I_HEADS * INDEX_HEAD_DIM, 4);
    float *keys = random_floats(I_BLOCKS * INDEX_HEAD_DIM, 4), weights[I_HEADS];
    double score[4][I_BLOCKS];
    /* Multiples of a quarter: products and sums are exact in float32. */
    for (int i = 0; i < I_HEADS * INDEX_HEAD_DIM; i++)
        q[i] = rintf(q[i] * 4) / 4;
    for (int i = 0; i < I_BLOCKS * INDEX_HEAD_DIM; i++)
        keys[i] = rintf(keys[i] * 4) / 4;
    for (int h = 0; h < I_HEADS; h++)
        weights[h] = (float)bf16(random_unit() + 0.3);
    for (int j = 0; j < I_BLOCKS; j++) {
        for (int run = 0; run < 4; run++) {
            double s = model_score(q, keys + j * INDEX_HEAD_DIM, weights, run % 2 == 1);
            union {
                float f;
                uint32_t u;
            } bits = {.f = (float)s};
            bits.u &= 0xfff00000u;
            score[run][j] = run < 2 ? s : (double)bits.f;
        }
    }
    assert_int_equal(n, 4 * I_TOPK);
    int32_t selected[4][I_TOPK];
    for (int run = 0; run < 4; run++) {
        int32_t count, at = I_AT;
        struct place place = {KIND_CSA, run % 2};
        struct index_select_params p = {.q = q,
                                        .weights = weights,
                                        .keys = keys,
                                        .n = 1,
                                        .at = &at,
                                        .reach = I_AT + 1,
                                        .heads = I_HEADS,
                                        .topk = I_TOPK,
                                        .place = place,
                                        .score = run % 2,
                                        .choice = run / 2,
                                        .selected = selected[run],
                                        .n_selected = &count,
                                        .format = ENTRY_F32};
        b->ops->index_select(b, &p);
        const struct witness_table *seen = witness_of(b);
        expect_witness(seen, ROW_INDEX_SCORE, place, run % 2, 1);
        expect_witness(seen, ROW_INDEX_TOPK, place, run / 2, 1);
        assert_int_equal(count, I_TOPK);
        for (int i = 0; i < I_TOPK; i++) {
            assert_true(rank_of(score[run], selected[run][i]) < I_TOPK);
            out[run * I_TOPK + i] = (float)selected[run][i];
        }
    }
    for (int i = 1; i < 4; i++) /* control: every other arithmetic chooses otherwise */
        assert_memory_not_equal(selected[i], selected[0], sizeof selected[i]);
    free(q);
    free(keys);
}

static void test_index_select(void **state)
{
    (void)state;
    for_each_backend(index_select, (size_t)4 * I_TOPK);
}

/* ---- hyper-connections ------------------------------------------------------------------------
 */

enum { HIDDEN = 128, FLAT = HC_MULT * HIDDEN };

/* post_j, which shows the mixes without Sinkhorn. */
static void model_post(const float *fn, const float *streams, enum precision_HC_MIX mix,
                       double *post)
{
    double square = 0;
    for (int i = 0; i < FLAT; i++)
        square += (double)streams[i] * streams[i];
    for (int j = 0; j < HC_MULT; j++) {
        double sum = 0;
        for (int i = 0; i < FLAT; i++) {
            double w = fn[(HC_MULT + j) * FLAT + i], x = streams[i];
            int bits = mix == HC_MIX_FP32 ? 24 : mix == HC_MIX_TF32 ? 11 : 8;
            sum += to_bits(w, bits) * to_bits(x, bits);
        }
        double m = sum / sqrt(square / FLAT + 1e-6);
        post[j] = 2 / (1 + exp(-(mix == HC_MIX_BF16 ? bf16(m) : m)));
    }
}

static void hc_mix(struct backend *b, float *out, size_t n)
{
    static const float SCALE[3] = {1, 1, 1}, BASE[HC_MIX] = {0};
    float *fn = random_floats(HC_MIX * FLAT, 0.1), *streams = random_floats(2 * FLAT, 1);
    double post[2 * HC_MULT], comb[2 * HC_MULT * HC_MULT], want[3][2 * HC_MULT];
    float got[2 * HC_MULT];
    assert_int_equal(n, 3 * 2 * HIDDEN);
    for (int mix = 0; mix < 3; mix++) {
        for (int t = 0; t < 2; t++)
            model_post(fn, streams + t * FLAT, mix, want[mix] + t * HC_MULT);
    }
    for (int mix = 0; mix < 3; mix++, out += 2 * HIDDEN) {
        struct hc_pre_params p = {
            .fn = {fn, NULL, HC_MIX, FLAT, STORE_F32},
            .base = {BASE, NULL, HC_MIX, 0, STORE_F32},
            .scale = {SCALE, NULL, 3, 0, STORE_F32},
            .streams = streams,
            .n = 2,
            .hidden = HIDDEN,
            .place = {KIND_HCA, 1},
            .mix = mix,
            .out = out,
            .post = post,
            .comb = comb,
        };
        b->ops->hc_pre(b, &p);
        expect_witness(witness_of(b), ROW_HC_MIX, p.place, mix, 2);
        for (int i = 0; i < 2 * HC_MULT; i++)
            got[i] = (float)post[i];
        double own = distance(got, want[mix], 2 * HC_MULT);
        assert_true(own < 2e-6);
        for (int other = 0; other < 3; other++)
            assert_true(other == mix || distance(got, want[other], 2 * HC_MULT) > 5 * own);
    }
    free(fn);
    free(streams);
}

static void test_hc_mix(void **state)
{
    (void)state;
    for_each_backend(hc_mix, (size_t)3 * 2 * HIDDEN);
}

/* The wrong way round, which audits ask for, is the transposed matrix and nothing else. */
static void hc_transposed(struct backend *b, float *out, size_t n)
{
    float *y = random_floats(HIDDEN, 1), *x = random_floats(FLAT, 1),
          *plain = take(n, sizeof *plain);
    double post[HC_MULT], comb[16], turned[16];
    for (int i = 0; i < HC_MULT; i++)
        post[i] = random_unit();
    for (int i = 0; i < 16; i++)
        comb[i] = random_unit();
    for (int i = 0; i < 16; i++)
        turned[i] = comb[i % 4 * 4 + i / 4];
    struct hc_post_params p = {.y = y,
                               .streams = x,
                               .post = post,
                               .comb = turned,
                               .n = 1,
                               .hidden = HIDDEN,
                               .streams_out = plain};
    b->ops->hc_post(b, &p);
    p.comb = comb;
    p.streams_out = out;
    b->ops->hc_post(b, &p);
    assert_memory_not_equal(out, plain, n * sizeof *out);
    p.transposed = true;
    b->ops->hc_post(b, &p);
    assert_memory_equal(out, plain, n * sizeof *out);
    free(y);
    free(x);
    free(plain);
}

static void test_hc_transposed(void **state)
{
    (void)state;
    for_each_backend(hc_transposed, FLAT);
}

/* ---- inputs of matrices -----------------------------------------------------------------------
 */

/* The grouped output over an input that it rounds itself, and over one that was rounded before. */
static void grouped_inputs(struct backend *b, float *out, size_t n)
{
    enum { N = 3, GROUPS = 2, RANK = 32, COLS = 256 };
    struct matrix w = matrix_random(STORE_FP8, GROUPS * RANK, COLS);
    float *x = random_floats(N * GROUPS * COLS, 1), *plain = take(n, sizeof *plain);
    float rounded[N * GROUPS * COLS];
    struct grouped_params p = {.w = w.tensor,
                               .x = x,
                               .n = N,
                               .groups = GROUPS,
                               .rank = RANK,
                               .cols = COLS,
                               .place = {KIND_WINDOW, 1},
                               .y = out};
    b->ops->grouped(b, &p);
    expect_witness(witness_of(b), ROW_ATTN_OUT, p.place, ATTN_OUT_W8A16, N);
    memcpy(plain, out, n * sizeof *out);
    p.round_in = ROUND_FP8_128;
    b->ops->grouped(b, &p);
    expect_witness(witness_of(b), ROW_ATTN_OUT, p.place, ATTN_OUT_W8A8, N);
    assert_memory_not_equal(out, plain, n * sizeof *out);
    CPU_VECTOR_BASELINE.round(ROUND_FP8_128, x, N * GROUPS * COLS, rounded);
    p.x = rounded;
    p.round_in = ROUND_NONE;
    p.y = plain;
    b->ops->grouped(b, &p);
    assert_memory_equal(out, plain, n * sizeof *out);
    free(x);
    free(plain);
    matrix_free(&w);
}

static void test_grouped_inputs(void **state)
{
    (void)state;
    for_each_backend(grouped_inputs, 3 * 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roundings),      cmocka_unit_test(test_attention),
        cmocka_unit_test(test_query),          cmocka_unit_test(test_index_select),
        cmocka_unit_test(test_hc_mix),         cmocka_unit_test(test_hc_transposed),
        cmocka_unit_test(test_grouped_inputs),
    };
    cpu_tables_fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
