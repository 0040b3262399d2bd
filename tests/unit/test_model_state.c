/*
 * Moving in a timeline, over the embedded model: taking tokens back, keeping a prefix and leaving
 * out draft rows change no bit of what follows.
 */
#include "engine/model/network.h"
#include "engine/model/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL_DIR "rootfs/models/demo"
#define TOKENS    300
#define VOCAB     4096
#define ROW_BYTES (VOCAB * sizeof(float))

#define OFFICIAL profile_builtin_at(PROFILE_OFFICIAL)

static struct {
    struct model *model;
    struct sequence *s;
    int32_t ids[TOKENS];
    float *cold;  /* owns; [TOKENS, VOCAB] fed in whole steps */
    float *draft; /* owns; [TOKENS, VOCAB] */
    float *got;   /* owns; [TOKENS, VOCAB] */
} test;

static void feed(struct sequence *s, int32_t n, float *logits)
{
    struct segment segment = {.sequence = s,
                              .ids = test.ids + sequence_length(s),
                              .n = n,
                              .logits_all = logits,
                              .leg = LEG_PREFILL};
    model_step(test.model, OFFICIAL, &segment, 1);
}

/* The draft rows that the tokens known so far allow. */
static void feed_draft(struct sequence *s, float *logits)
{
    int32_t from = sequence_draft_length(s), n = sequence_length(s) - from;
    n = sequence_length(s) == TOKENS ? n - 1 : n;
    struct draft_segment segment = {
        .sequence = s, .next_ids = test.ids + from + 1, .n = n, .logits_all = logits};
    model_draft(test.model, OFFICIAL, &segment, 1);
}

static int setup(void **state)
{
    (void)state;
    struct model_options options = {.threads = 2};
    struct error err;
    if (model_open(MODEL_DIR, &options, &test.model, &err) != OK ||
        sequence_create(test.model, TOKENS, &test.s, &err) != OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    test.cold = calloc(TOKENS, ROW_BYTES);
    test.draft = calloc(TOKENS, ROW_BYTES);
    test.got = calloc(TOKENS, ROW_BYTES);
    uint32_t seed = 9;
    for (int32_t i = 0; i < TOKENS; i++) {
        seed = seed * 1664525 + 1013904223;
        test.ids[i] = (int32_t)(seed >> 8) % VOCAB;
    }
    feed(test.s, SPAN_TOKENS_MAX, test.cold);
    feed_draft(test.s, test.draft);
    feed(test.s, TOKENS - SPAN_TOKENS_MAX, test.cold + (int64_t)SPAN_TOKENS_MAX * VOCAB);
    feed_draft(test.s, test.draft + (int64_t)SPAN_TOKENS_MAX * VOCAB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(test.cold);
    free(test.draft);
    free(test.got);
    sequence_destroy(test.s);
    model_close(test.model);
    return 0;
}

/* Feeds n other tokens. */
static void feed_wrong(struct sequence *s, int32_t n)
{
    int32_t ids[SLIDING_WINDOW];
    for (int32_t i = 0; i < n; i++)
        ids[i] = (test.ids[i] + 1) % VOCAB;
    struct segment segment = {.sequence = s, .ids = ids, .n = n, .leg = LEG_PREFILL};
    model_step(test.model, OFFICIAL, &segment, 1);
}

/* At every residue of both ratios' edges: some wrong tokens are fed and taken back, then the right
 * ones follow. */
static void test_rewind(void **state)
{
    (void)state;
    static const int32_t WRONG[] = {1, 2, 3, 4, 5, 9, SLIDING_WINDOW};
    sequence_reset(test.s);
    feed(test.s, 122, test.got);
    for (int32_t at = 122; at < 136; at++) {
        feed_wrong(test.s, WRONG[at % 7]);
        sequence_rewind(test.s, at);
        assert_int_equal(sequence_length(test.s), at);
        feed(test.s, 1, test.got);
        assert_memory_equal(test.got, test.cold + (int64_t)at * VOCAB, ROW_BYTES);
    }
    feed_wrong(test.s, 120); /* over 256 */
    sequence_rewind(test.s, 137);
    sequence_rewind(test.s, 136);
    feed(test.s, TOKENS - 136, test.got);
    assert_memory_equal(test.got, test.cold + (int64_t)136 * VOCAB, (TOKENS - 136) * ROW_BYTES);
    /* Control: a token that stays is seen. */
    sequence_rewind(test.s, 290);
    feed_wrong(test.s, 1);
    feed(test.s, 1, test.got);
    assert_memory_not_equal(test.got, test.cold + (int64_t)291 * VOCAB, ROW_BYTES);
}

/* Prefixes of 128 and 256 tokens, kept at once and at the last moment, continued in a timeline that
 * held something else. */
static void test_snapshots(void **state)
{
    (void)state;
    static const struct {
        int32_t length, kept_at, slot;
    } CASES[] = {{128, 128, 0}, {128, 299, 1}, {256, 256, 0}, {256, 299, 1}};
    struct snapshots *p = NULL;
    struct error err;
    assert_int_equal(snapshots_create(test.model, 3, 2, &p, &err), OK);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int32_t n = CASES[i].length, blocks = n / SNAPSHOT_TOKENS;
        sequence_reset(test.s);
        for (int32_t at = 0; at < CASES[i].kept_at; at = sequence_length(test.s))
            feed(test.s, CASES[i].kept_at - at > 171 ? 128 : CASES[i].kept_at - at, NULL);
        for (int32_t b = 0; b < blocks; b++)
            snapshot_save_block(p, 2 - b, test.s, b);
        snapshot_save_tail(p, CASES[i].slot, test.s, n);
        sequence_reset(test.s);
        feed_wrong(test.s, 100);
        sequence_reset(test.s);
        for (int32_t b = 0; b < blocks; b++)
            snapshot_load_block(p, 2 - b, test.s, b);
        snapshot_load_tail(p, CASES[i].slot, test.s, n);
        assert_int_equal(sequence_length(test.s), n);
        feed(test.s, 1, test.got);
        feed(test.s, TOKENS - n - 1, test.got + VOCAB);
        assert_memory_equal(test.got, test.cold + (int64_t)n * VOCAB,
                            (size_t)(TOKENS - n) * ROW_BYTES);
    }
    snapshots_destroy(p);
    snapshots_destroy(NULL);
}

/* ---- pages ---------------------------------------------------------------------------------- */

static struct pages_stats page_counts(void)
{
    struct pages_stats n;
    pages_stats_get(test.model->pages, &n);
    assert_int_equal(n.free + n.own + n.shared, n.all);
    return n;
}

/* References, copies and zeros of a store without timelines. */
static void test_pages(void **state)
{
    (void)state;
    struct pages *p = pages_create(test.model->backend, 5000);
    struct pages_stats n;
    assert_non_null(p);
    assert_true(pages_promise(p, 2) && pages_promise(p, 1));
    int32_t a = page_own(p, PAGE_NONE, 0), b = page_hold(p, a);
    char *at = page_at(p, a);
    assert_true(a == b && at != page_at(p, PAGE_NONE));
    memset(at, 7, 5000);
    b = page_own(p, b, 4000); /* two hold it: a copy */
    char *copy = page_at(p, b);
    assert_true(b != a && copy[3999] == 7 && copy[4000] == 0);
    assert_int_equal(page_own(p, b, 4000), b); /* one does: itself */
    page_hold(p, a);
    pages_stats_get(p, &n);
    assert_true(n.all == 3 && n.free == 1 && n.own == 1 && n.shared == 1);
    page_drop(p, a);
    page_drop(p, a);
    page_drop(p, PAGE_NONE);
    assert_int_equal(page_take(p), a); /* the last one that was given back, zeroed */
    assert_int_equal(at[0], 0);
    assert_true(pages_promise(p, 4)); /* what there is stays where it is */
    assert_true(page_at(p, b) == copy && copy[0] == 7);
    page_drop(p, a);
    page_drop(p, b);
    pages_return(p, 7);
    pages_destroy(p);
    pages_destroy(NULL);
}

static void check_from(struct sequence *s, int32_t at)
{
    feed(s, TOKENS - at, test.got);
    assert_memory_equal(test.got, test.cold + (int64_t)at * VOCAB, (TOKENS - at) * ROW_BYTES);
}

static void load_prefix(const struct snapshots *p, struct sequence *s)
{
    sequence_reset(s);
    for (int32_t b = 0; b < 2; b++)
        snapshot_load_block(p, b, s, b);
    snapshot_load_tail(p, 0, s, 2 * SNAPSHOT_TOKENS);
}

/* Branches of one prefix: they share its pages, and whoever goes back into them gets its own. */
static void test_branches(void **state)
{
    (void)state;
    struct sequence *branch[2] = {NULL, NULL};
    struct snapshots *p = NULL;
    struct error err;
    sequence_reset(test.s);
    struct pages_stats none = page_counts(), n;
    assert_int_equal(none.own + none.shared, 0);
    assert_int_equal(snapshots_create(test.model, 2, 1, &p, &err), OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sequence_create(test.model, TOKENS, &branch[i], &err), OK);
    feed(test.s, 200, NULL);
    feed(test.s, 60, NULL);
    for (int32_t b = 0; b < 2; b++)
        snapshot_save_block(p, b, test.s, b);
    snapshot_save_tail(p, 0, test.s, 256);
    for (int i = 0; i < 2; i++)
        load_prefix(p, branch[i]);
    n = page_counts();
    assert_true(n.shared == 2 && n.own == 1); /* four have the two of the prefix */
    feed_wrong(branch[0], 10);
    check_from(branch[1], 256);
    /* Back over the end of the prefix, and on with something else: nobody else sees it. */
    n = page_counts();
    assert_true(n.shared == 2 && n.own == 3);
    sequence_rewind(test.s, 250);
    n = page_counts();
    assert_true(n.shared == 2 && n.own == 2); /* the page behind went back */
    feed_wrong(test.s, 20);
    n = page_counts();
    assert_true(n.shared == 2 && n.own == 4); /* a last page each, and the copy */
    load_prefix(p, branch[0]);
    check_from(branch[0], 256);
    sequence_rewind(test.s, 250);
    check_from(test.s, 250);
    /* The pool lets go: the branches keep what they have. */
    snapshot_drop_block(p, 0);
    snapshot_drop_block(p, 1);
    sequence_reset(branch[1]);
    sequence_rewind(branch[0], 299);
    check_from(branch[0], 299);
    /* Control: a page that somebody else wrote is seen. */
    sequence_rewind(branch[0], 299);
    memset(page_at(test.model->pages, branch[0]->pages[1]), 0x11, 4096);
    feed(branch[0], 1, test.got);
    assert_memory_not_equal(test.got, test.cold + (int64_t)299 * VOCAB, ROW_BYTES);
    snapshots_destroy(p);
    sequence_destroy(branch[0]);
    sequence_destroy(branch[1]);
    sequence_reset(test.s);
    n = page_counts();
    assert_true(n.free == n.all && n.own + n.shared == 0);
}

/* Left-out draft rows are not missed behind a window, and are in front of it. */
static void test_draft_skip(void **state)
{
    (void)state;
    int32_t from = TOKENS - 150, seen = from + SLIDING_WINDOW - 1;
    sequence_reset(test.s);
    feed(test.s, SPAN_TOKENS_MAX, NULL);
    feed(test.s, TOKENS - SPAN_TOKENS_MAX, NULL);
    sequence_draft_skip(test.s, from);
    assert_int_equal(sequence_draft_length(test.s), from);
    feed_draft(test.s, test.got);
    assert_memory_equal(test.got + (int64_t)(seen - from) * VOCAB,
                        test.draft + (int64_t)seen * VOCAB,
                        (size_t)(TOKENS - 1 - seen) * ROW_BYTES);
    assert_memory_not_equal(test.got + (int64_t)(seen - 1 - from) * VOCAB,
                            test.draft + (int64_t)(seen - 1) * VOCAB, ROW_BYTES);
}

/* Draft rows that are taken again, after other ones stood in their places, are what they were. */
static void test_draft_rewind(void **state)
{
    (void)state;
    int32_t from = TOKENS - 100;
    sequence_reset(test.s);
    feed(test.s, SPAN_TOKENS_MAX, NULL);
    feed_draft(test.s, test.got);
    feed(test.s, TOKENS - SPAN_TOKENS_MAX, NULL);
    feed_draft(test.s, test.got);
    sequence_draft_rewind(test.s, from);
    assert_int_equal(sequence_draft_length(test.s), from);
    struct draft_segment wrong = {
        .sequence = test.s, .next_ids = test.ids, .n = TOKENS - 1 - from, .logits_all = test.got};
    model_draft(test.model, OFFICIAL, &wrong, 1);
    assert_memory_not_equal(test.got, test.draft + (int64_t)from * VOCAB, ROW_BYTES);
    sequence_draft_rewind(test.s, from);
    feed_draft(test.s, test.got);
    assert_memory_equal(test.got, test.draft + (int64_t)from * VOCAB,
                        (size_t)(TOKENS - 1 - from) * ROW_BYTES);
}

/* What a file of prefixes is bound to: the same for the same network, also on another number of
 * threads; another one for another arithmetic. */
static void test_probe(void **state)
{
    (void)state;
    static const struct {
        int threads;
        enum profile_column column;
        bool equal;
    } WAYS[] = {{1, PROFILE_OFFICIAL, true}, {2, PROFILE_REFERENCE, false}};
    uint8_t digest[SNAPSHOT_PROBE_BYTES], other[SNAPSHOT_PROBE_BYTES];
    struct error err;
    assert_int_equal(snapshot_probe(test.model, OFFICIAL, digest, &err), OK);
    for (int i = 0; i < 2; i++) {
        struct model *model = NULL;
        const struct model_options options = {.threads = WAYS[i].threads};
        assert_int_equal(model_open(MODEL_DIR, &options, &model, &err), OK);
        const struct profile *profile = profile_builtin_at(WAYS[i].column);
        assert_int_equal(snapshot_probe(model, profile, other, &err), OK);
        assert_int_equal(memcmp(digest, other, sizeof digest) == 0, WAYS[i].equal);
        model_close(model);
    }
}

/* The row of the draft block beyond the sequence for a guess that was right differs from the true
 * one only by the streams that it joins; and no row beyond leaves a trace. */
static void test_draft_beyond(void **state)
{
    (void)state;
    const int32_t at = 250;
    sequence_reset(test.s);
    feed(test.s, at, NULL);
    struct draft_segment base = {
        .sequence = test.s, .next_ids = test.ids + 1, .n = at, .logits_last = test.got};
    model_draft(test.model, OFFICIAL, &base, 1);
    assert_memory_equal(test.got, test.draft + (int64_t)(at - 1) * VOCAB, ROW_BYTES);
    for (int32_t k = 1; k <= 3; k++) {
        struct draft_segment beyond = {.sequence = test.s,
                                       .next_ids = test.ids + at + k,
                                       .n = 1,
                                       .logits_last = test.got + k * VOCAB,
                                       .beyond = k};
        model_draft(test.model, OFFICIAL, &beyond, 1);
        assert_int_equal(sequence_draft_length(test.s), at);
        assert_memory_not_equal(test.got + k * VOCAB, test.draft + (int64_t)(at + k - 1) * VOCAB,
                                ROW_BYTES);
    }
    feed(test.s, TOKENS - at, test.got);
    assert_memory_equal(test.got, test.cold + (int64_t)at * VOCAB, (TOKENS - at) * ROW_BYTES);
    feed_draft(test.s, test.got);
    assert_memory_equal(test.got, test.draft + (int64_t)at * VOCAB, (TOKENS - 1 - at) * ROW_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewind),       cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_pages),        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_draft_skip),   cmocka_unit_test(test_probe),
        cmocka_unit_test(test_draft_beyond), cmocka_unit_test(test_draft_rewind),
    };
    return cmocka_run_group_tests_name("moving in a timeline", tests, setup, teardown);
}
