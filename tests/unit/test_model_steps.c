/*
 * The network as serving uses it, over the embedded model: cutting tokens into steps, sharing
 * steps, drafting behind them and resetting change no bit.  What the numbers are is golden's
 * matter.
 */
#include "engine/model/network.h"
#include "kernels/cpu/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL_DIR "rootfs/models/demo"
#define TOKENS    262 /* over the window, a step and two blocks of the coarser ratio */
#define VOCAB     4096

static struct model *open_model(enum isa isa, int threads)
{
    struct model_options options = {.isa = isa, .threads = threads};
    struct model *model = NULL;
    struct error err;
    if (model_open(MODEL_DIR, &options, &model, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(model_config(model)->vocab_size, VOCAB);
    return model;
}

static struct sequence *open_sequence(struct model *model, int32_t tokens)
{
    struct sequence *sequence = NULL;
    struct error err;
    if (sequence_create(model, tokens, &sequence, &err) != OK)
        fail_msg("%s", err.text);
    return sequence;
}

static float *take_logits(int32_t rows)
{
    float *logits = calloc((size_t)rows * VOCAB, sizeof *logits);
    assert_non_null(logits);
    return logits;
}

/* Fixed ids without meaning; different texts for different seeds. */
static void ids_fill(int32_t *ids, int32_t n, uint32_t seed)
{
    for (int32_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        ids[i] = (int32_t)(seed >> 8) % VOCAB;
    }
}

/* All logits of a text, and of the draft behind it (n - 1 rows), in pieces. */
static void run(struct model *model, const struct profile *profile, enum leg leg,
                struct sequence *s, const int32_t *ids, int32_t n, int32_t piece, float *logits,
                float *draft)
{
    for (int32_t at = 0; at < n; at += piece) {
        struct segment segment = {.sequence = s,
                                  .ids = ids + at,
                                  .n = n - at < piece ? n - at : piece,
                                  .logits_all = logits + (int64_t)at * VOCAB,
                                  .leg = leg};
        model_step(model, profile, &segment, 1);
        int32_t from = sequence_draft_length(s), end = sequence_length(s);
        end = end == n ? n - 1 : end; /* the next token must be known */
        if (draft != NULL && end > from) {
            struct draft_segment behind = {.sequence = s,
                                           .next_ids = ids + from + 1,
                                           .n = end - from,
                                           .logits_all = draft + (int64_t)from * VOCAB};
            model_draft(model, profile, &behind, 1);
        }
    }
    assert_int_equal(sequence_length(s), n);
}

static void chunkings(enum profile_column column, int32_t n, const int32_t *pieces, int n_pieces)
{
    const struct profile *profile = profile_builtin_at(column);
    struct model *model = open_model(ISA_AUTO, 2);
    struct sequence *s = open_sequence(model, n);
    float *whole = take_logits(n), *logits = take_logits(n);
    float *whole_draft = take_logits(n), *draft = take_logits(n);
    int32_t ids[TOKENS];
    ids_fill(ids, n, 1);
    run(model, profile, LEG_PREFILL, s, ids, n, n < SPAN_TOKENS_MAX ? n : SPAN_TOKENS_MAX, whole,
        whole_draft);
    for (int i = 0; i < n_pieces; i++) {
        sequence_reset(s);
        memset(logits, 0xff, (size_t)n * VOCAB * sizeof *logits);
        run(model, profile, LEG_PREFILL, s, ids, n, pieces[i], logits, draft);
        assert_memory_equal(whole, logits, (size_t)n * VOCAB * sizeof *logits);
        assert_memory_equal(whole_draft, draft, (size_t)(n - 1) * VOCAB * sizeof *draft);
    }
    /* control: another token early on shows a few tokens later */
    ids[3] = (ids[3] + 1) % VOCAB;
    sequence_reset(s);
    run(model, profile, LEG_PREFILL, s, ids, 20, 20, logits, NULL);
    assert_memory_equal(whole, logits, (size_t)3 * VOCAB * sizeof *logits);
    assert_memory_not_equal(whole + 19 * VOCAB, logits + 19 * VOCAB, VOCAB * sizeof *logits);
    free(whole);
    free(logits);
    free(whole_draft);
    free(draft);
    sequence_destroy(s);
    model_close(model);
}

static void test_chunks_official(void **state)
{
    (void)state;
    chunkings(PROFILE_OFFICIAL, TOKENS, (const int32_t[]){1, 127}, 2);
}

static void test_chunks_reference(void **state)
{
    (void)state;
    chunkings(PROFILE_REFERENCE, 131, (const int32_t[]){5}, 1);
}

static void test_chunks_fast(void **state)
{
    (void)state;
    chunkings(PROFILE_FAST, 131, (const int32_t[]){3, 128}, 2);
}

/* Every instruction set, one to three threads: the same bits for one of them. */
static void test_threads(void **state)
{
    enum { N = 40 };
    int32_t ids[N];
    float *first = take_logits(N), *logits = take_logits(N);
    (void)state;
    ids_fill(ids, N, 2);
    for (enum isa isa = ISA_BASELINE; isa <= ISA_AVX512; isa++) {
        struct model_options options = {.isa = isa, .threads = 1};
        for (options.threads = 1; options.threads <= 3; options.threads++) {
            struct model *model = NULL;
            struct error err;
            enum status status = model_open(MODEL_DIR, &options, &model, &err);
            if (status == ERR_USAGE)
                continue; /* not on this processor */
            assert_int_equal(status, OK);
            struct sequence *s = open_sequence(model, N);
            run(model, profile_builtin_at(PROFILE_OFFICIAL), LEG_PREFILL, s, ids, N, 32, logits,
                NULL); /* a step of many and one of few */
            if (options.threads == 1)
                memcpy(first, logits, (size_t)N * VOCAB * sizeof *logits);
            assert_memory_equal(first, logits, (size_t)N * VOCAB * sizeof *logits);
            sequence_destroy(s);
            model_close(model);
        }
    }
    free(first);
    free(logits);
}

/* Two texts in unequal pieces through the same steps, one on each leg, against each alone; under
 * the profile whose legs differ. */
static void test_shared_steps(void **state)
{
    enum { A = 150, B = 61 };
    (void)state;
    const struct profile *fast = profile_builtin_at(PROFILE_FAST);
    struct model *model = open_model(ISA_AUTO, 2);
    struct sequence *a = open_sequence(model, A), *b = open_sequence(model, B);
    float *alone_a = take_logits(A), *alone_b = take_logits(B);
    float *both_a = take_logits(A), *both_b = take_logits(B), last[VOCAB];
    int32_t ids_a[A], ids_b[B];
    ids_fill(ids_a, A, 3);
    ids_fill(ids_b, B, 4);
    run(model, fast, LEG_PREFILL, a, ids_a, A, A, alone_a, NULL);
    run(model, fast, LEG_PREFILL, b, ids_b, B, B, both_b, NULL);
    sequence_reset(b);
    run(model, fast, LEG_DECODE, b, ids_b, B, B, alone_b, NULL);
    assert_memory_not_equal(alone_b, both_b, (size_t)B * VOCAB * sizeof *both_b); /* control */
    sequence_reset(a);
    sequence_reset(b);
    for (int32_t at_a = 0, at_b = 0, turn = 0; at_a < A || at_b < B; turn++) {
        int32_t n_a = turn % 3 == 0 ? 40 : 1, n_b = turn % 2 == 0 ? 7 : 2, n = 0;
        struct segment segments[2];
        n_a = n_a < A - at_a ? n_a : A - at_a;
        n_b = n_b < B - at_b ? n_b : B - at_b;
        if (n_b > 0)
            segments[n++] = (struct segment){.sequence = b,
                                             .ids = ids_b + at_b,
                                             .n = n_b,
                                             .logits_last = last,
                                             .logits_all = both_b + (int64_t)at_b * VOCAB,
                                             .leg = LEG_DECODE};
        if (n_a > 0)
            segments[n++] = (struct segment){.sequence = a,
                                             .ids = ids_a + at_a,
                                             .n = n_a,
                                             .logits_all = both_a + (int64_t)at_a * VOCAB,
                                             .leg = LEG_PREFILL};
        model_step(model, fast, segments, n);
        at_a += n_a;
        at_b += n_b;
        if (n_b > 0)
            assert_memory_equal(last, both_b + (int64_t)(at_b - 1) * VOCAB, sizeof last);
    }
    assert_memory_equal(alone_a, both_a, (size_t)A * VOCAB * sizeof *both_a);
    assert_memory_equal(alone_b, both_b, (size_t)B * VOCAB * sizeof *both_b);
    free(alone_a);
    free(alone_b);
    free(both_a);
    free(both_b);
    sequence_destroy(a);
    sequence_destroy(b);
    model_close(model);
}

/* After a reset every byte of the state is zero and a new text runs as in a new sequence. */
static void test_reset(void **state)
{
    enum { N = 140 };
    (void)state;
    struct model *model = open_model(ISA_AUTO, 2);
    struct sequence *used = open_sequence(model, N), *fresh = open_sequence(model, N);
    float *want = take_logits(N), *got = take_logits(N), *draft = take_logits(N);
    int32_t ids[N];
    ids_fill(ids, N, 5);
    run(model, profile_builtin_at(PROFILE_OFFICIAL), LEG_PREFILL, used, ids, N, N, got, draft);
    char *bytes = malloc(used->memory_bytes);
    assert_non_null(bytes);
    model->backend->ops->download(model->backend, bytes, used->memory, used->memory_bytes);
    size_t nonzero = 0;
    for (size_t i = 0; i < used->memory_bytes; i++)
        nonzero += bytes[i] != 0;
    assert_true(used->n_pages == 2 && used->pages[0] != PAGE_NONE && used->pages[1] != PAGE_NONE);
    assert_true(nonzero > 1000000); /* control: there was something */
    sequence_reset(used);
    model->backend->ops->download(model->backend, bytes, used->memory, used->memory_bytes);
    for (size_t i = 0; i < used->memory_bytes; i++)
        assert_int_equal(bytes[i], 0);
    assert_true(used->pages[0] == PAGE_NONE && used->pages[1] == PAGE_NONE);
    free(bytes);
    assert_int_equal(sequence_length(used), 0);
    assert_int_equal(sequence_draft_length(used), 0);
    ids_fill(ids, N, 6);
    run(model, profile_builtin_at(PROFILE_OFFICIAL), LEG_PREFILL, fresh, ids, N, N, want, NULL);
    run(model, profile_builtin_at(PROFILE_OFFICIAL), LEG_PREFILL, used, ids, N, 3, got, NULL);
    assert_memory_equal(want, got, (size_t)N * VOCAB * sizeof *got);
    free(want);
    free(got);
    free(draft);
    sequence_destroy(used);
    sequence_destroy(fresh);
    model_close(model);
}

/* The last positions there are: offsets of a million entries stay inside the reservation. */
static void test_last_positions(void **state)
{
    (void)state;
    struct model *model = open_model(ISA_AUTO, 2);
    struct sequence *s = open_sequence(model, POSITIONS_MAX);
    float *logits = take_logits(1);
    int32_t id = 7;
    assert_true(sequence_bytes(s) > (uint64_t)1 << 30); /* reserved, and only that */
    state_lay_out(s, state_format_of(model, profile_builtin_at(PROFILE_OFFICIAL)));
    s->length = POSITIONS_MAX - 1;
    struct segment segment = {
        .sequence = s, .ids = &id, .n = 1, .logits_last = logits, .leg = LEG_DECODE};
    model_step(model, profile_builtin_at(PROFILE_OFFICIAL), &segment, 1);
    assert_int_equal(sequence_length(s), POSITIONS_MAX);
    for (int i = 0; i < VOCAB; i++)
        assert_true(logits[i] - logits[i] == 0); /* finite */
    free(logits);
    sequence_destroy(s);
    model_close(model);
}

static void test_refusals(void **state)
{
    struct model_options options = {.isa = ISA_BASELINE, .threads = CPU_THREADS_MAX + 1};
    struct model *model = NULL;
    struct sequence *s = NULL;
    struct error err;
    (void)state;
    assert_int_equal(model_open(MODEL_DIR, &options, &model, &err), ERR_USAGE);
    options.threads = 1;
    assert_int_not_equal(model_open("tests/no-such-model", &options, &model, &err), OK);
    assert_non_null(strstr(err.text, "no-such-model"));
    assert_null(model);
    model = open_model(ISA_BASELINE, 1);
    assert_string_equal(model_isa_name(model), "baseline");
    static const int32_t LENGTHS[] = {0, -1, POSITIONS_MAX + 1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(sequence_create(model, LENGTHS[i], &s, &err), ERR_CAPACITY);
    assert_null(s);
    model_close(model);
    model_close(NULL);
    sequence_destroy(NULL);
}

static void test_names(void **state)
{
    enum isa isa;
    (void)state;
    assert_true(isa_parse("auto", &isa) && isa == ISA_AUTO);
    assert_true(isa_parse("avx512", &isa) && isa == ISA_AVX512);
    assert_false(isa_parse("avx", &isa) || isa_parse("avx512 ", &isa));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_official), cmocka_unit_test(test_chunks_reference),
        cmocka_unit_test(test_chunks_fast),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_shared_steps),    cmocka_unit_test(test_reset),
        cmocka_unit_test(test_last_positions),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("network steps", tests, NULL, NULL);
}
