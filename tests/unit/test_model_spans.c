/*
 * Steps of more tokens than one span, which a GPU takes: over a CPU backend that says it takes as
 * many, one sequence by itself or beside others gives the bits that steps of a span give, and
 * leaves the same state behind.  What the numbers are is golden's matter.
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
#define VOCAB     4096
#define TOKENS    530 /* two spans and a part of a third one */
#define MORE      3   /* decoded behind them */
#define OTHER     258 /* of another sequence in the same step */

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    static struct backend_ops wide;
    (void)options;
    (void)rank;
    *out = backend_cpu_create(cpu_isa_best(), 2, limits);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "no memory");
    wide = *(*out)->ops;
    wide.step_tokens = STEP_TOKENS_MAX;
    (*out)->ops = &wide;
    return OK;
}

int32_t model_backend_gpus(void)
{
    return 0;
}

int32_t model_backend_ranks(const struct model_options *options, uint64_t weights)
{
    (void)options;
    (void)weights;
    return 1;
}

void model_backend_watch(const struct model_options *options, struct link_board *board)
{
    (void)options;
    (void)board;
}

static struct {
    struct model *model;
    struct sequence *s, *other;
    int32_t ids[TOKENS + MORE], others[OTHER];
    float want[2 + MORE][VOCAB], got[2 + MORE][VOCAB]; /* last of a prompt, a draft's, decoded */
} test;

/* A prompt in pieces of a size, at first beside the other one where that is asked for; a row of the
 * draft block behind it; tokens that are decoded. */
static void run(const struct profile *profile, int32_t piece, bool company, float (*out)[VOCAB])
{
    struct sequence *s = test.s;
    sequence_reset(s);
    sequence_reset(test.other);
    for (int32_t at = 0; at < TOKENS; at += piece) {
        struct segment segments[2] = {
            {.sequence = test.other, .ids = test.others, .n = OTHER, .leg = LEG_PREFILL},
            {.sequence = s,
             .ids = test.ids + at,
             .n = TOKENS - at < piece ? TOKENS - at : piece,
             .logits_last = out[0],
             .leg = LEG_PREFILL}};
        bool both = company && at == 0;
        model_step(test.model, profile, segments + !both, 1 + both);
    }
    sequence_draft_skip(s, TOKENS - SLIDING_WINDOW);
    struct draft_segment draft = {.sequence = s,
                                  .next_ids = test.ids + TOKENS - SLIDING_WINDOW + 1,
                                  .n = SLIDING_WINDOW,
                                  .logits_last = out[1]};
    model_draft(test.model, profile, &draft, 1);
    for (int32_t i = 0; i < MORE; i++) {
        struct segment token = {.sequence = s,
                                .ids = test.ids + TOKENS + i,
                                .n = 1,
                                .logits_last = out[2 + i],
                                .leg = LEG_DECODE};
        model_step(test.model, profile, &token, 1);
    }
}

static void same(enum profile_column column)
{
    const struct profile *profile = profile_builtin_at(column);
    assert_int_equal(model_step_tokens(test.model), STEP_TOKENS_MAX);
    run(profile, SPAN_TOKENS_MAX, false, test.want);
    const struct {
        int32_t piece;
        bool company;
    } WAYS[] = {{TOKENS, true}, {SPAN_TOKENS_MAX + 1, false}};
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        memset(test.got, 0xff, sizeof test.got);
        run(profile, WAYS[i].piece, WAYS[i].company, test.got);
        assert_memory_equal(test.want, test.got, sizeof test.want);
    }
    /* control: a token of the first span shows behind the third one */
    test.ids[7] = (test.ids[7] + 1) % VOCAB;
    run(profile, TOKENS, false, test.got);
    assert_memory_not_equal(test.want[0], test.got[0], sizeof test.want[0]);
}

static void test_official(void **state)
{
    (void)state;
    same(PROFILE_OFFICIAL);
}

/* The tail at a multiple of 128 within the last span of a step is that of a prefix by itself. */
static void test_tail(void **state)
{
    enum { PREFIX = 384, END = PREFIX + 100 };
    const struct profile *profile = profile_builtin_at(PROFILE_OFFICIAL);
    struct snapshots *pool = NULL;
    struct error err;
    (void)state;
    size_t bytes = snapshot_tail_bytes(test.model, profile);
    char *of_step = calloc(1, bytes), *of_prefix = calloc(1, bytes);
    assert_true(of_step != NULL && of_prefix != NULL);
    assert_int_equal(snapshots_create(test.model, 1, 2, &pool, &err), OK);
    for (int32_t n = PREFIX; n <= END; n += END - PREFIX) {
        sequence_reset(test.s);
        struct segment segment = {.sequence = test.s, .ids = test.ids, .n = n, .leg = LEG_PREFILL};
        model_step(test.model, profile, &segment, 1);
        snapshot_save_tail(pool, n == END, test.s, PREFIX);
        snapshot_get_tail(pool, n == END, profile, n == END ? of_step : of_prefix);
    }
    assert_memory_equal(of_step, of_prefix, bytes);
    free(of_step);
    free(of_prefix);
    snapshots_destroy(pool);
}

static int setup(void **state)
{
    struct error err;
    uint32_t seed = 1;
    (void)state;
    if (model_open(MODEL_DIR, &(struct model_options){0}, &test.model, &err) != OK ||
        sequence_create(test.model, TOKENS + MORE, &test.s, &err) != OK ||
        sequence_create(test.model, OTHER, &test.other, &err) != OK)
        return -1;
    for (int32_t i = 0; i < TOKENS + MORE + OTHER; i++) {
        seed = seed * 1664525 + 1013904223;
        *(i < TOKENS + MORE ? &test.ids[i] : &test.others[i - TOKENS - MORE]) =
            (int32_t)(seed >> 8) % VOCAB;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sequence_destroy(test.s);
    sequence_destroy(test.other);
    model_close(test.model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_official),
        cmocka_unit_test(test_tail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
