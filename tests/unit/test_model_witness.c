/*
 * What the network reports of itself: under every built-in profile each row of the precision table
 * is witnessed with the profile's value, in the layer kinds and on the legs that the table names,
 * and nowhere else; state of one profile is not fed under another; and numbers changed on purpose
 * change what they are said to change.
 */
#include "engine/model/inspect.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL_DIR "rootfs/models/demo"
#define VOCAB     4096
/* More blocks than the indexer selects, so that it has to choose; then some decoded tokens. */
enum { PROMPT = 268, DECODED = 3, TOKENS = PROMPT + DECODED, HIDDEN = 256, DRAFT_BLOCK = 6 };

static struct {
    struct model *model;
    struct sequence *s;
    int32_t ids[TOKENS + 1];
    float logits[2][VOCAB]; /* behind the prompt, and behind all */
} test;

static int setup(void **state)
{
    struct error err;
    uint32_t seed = 5;
    (void)state;
    if (model_open(MODEL_DIR, &(struct model_options){.threads = 2}, &test.model, &err) != OK ||
        sequence_create(test.model, TOKENS, &test.s, &err) != OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    for (int32_t i = 0; i <= TOKENS; i++) {
        seed = seed * 1664525 + 1013904223;
        test.ids[i] = (int32_t)(seed >> 8) % VOCAB;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sequence_destroy(test.s);
    model_close(test.model);
    return 0;
}

static void feed(const struct profile *profile, int32_t n, float *logits, enum leg leg)
{
    struct segment segment = {.sequence = test.s,
                              .ids = test.ids + sequence_length(test.s),
                              .n = n,
                              .logits_last = logits,
                              .leg = leg};
    model_step(test.model, profile, &segment, 1);
}

/* A prompt, some tokens behind it, and the draft block over the last ones. */
static void run(const struct profile *profile)
{
    sequence_reset(test.s);
    feed(profile, SPAN_TOKENS_MAX, NULL, LEG_PREFILL);
    feed(profile, PROMPT - SPAN_TOKENS_MAX, test.logits[0], LEG_PREFILL);
    for (int i = 0; i < DECODED; i++)
        feed(profile, 1, test.logits[1], LEG_DECODE);
    sequence_draft_skip(test.s, PROMPT);
    struct draft_segment draft = {
        .sequence = test.s, .next_ids = test.ids + PROMPT + 1, .n = DECODED};
    model_draft(test.model, profile, &draft, 1);
}

static bool expected(const struct precision_switch *s, int kind, int leg)
{
    uint32_t legs = leg == LEG_PREFILL ? 1u << LEG_PREFILL : 1u << LEG_DECODE;
    if (leg != LEG_PREFILL && leg != LEG_DECODE)
        return false;
    if (s->by != BY_OPERATION || strcmp(s->witness, "gather") == 0)
        return false; /* one processor sends nothing */
    if (kind == KIND_DRAFT && leg == LEG_PREFILL)
        return false;
    return (s->legs & (legs | 1u << LEG_STATE)) != 0 && (s->kinds >> kind & 1) != 0;
}

/* Cells that are not as the profile says; the first one is described. */
static int differences(const struct witness_table *t, const struct profile *profile, char *first,
                       size_t size)
{
    int found = 0;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int at = 0; at < LAYER_KINDS * LEGS * PRECISION_VALUES_MAX; at++) {
            int kind = at / (LEGS * PRECISION_VALUES_MAX), value = at % PRECISION_VALUES_MAX;
            int leg = at / PRECISION_VALUES_MAX % LEGS;
            bool wanted = expected(&PRECISION[row], kind, leg) && value == profile->values[row];
            const struct witness_cell *c = &t->cells[row][kind][leg][value];
            if ((c->launches > 0) == wanted && (c->rows > 0) == wanted)
                continue;
            if (found++ == 0)
                snprintf(first, size, "%s, value %d, %s, %s: %s", PRECISION[row].name, value,
                         layer_kind_name(kind), leg_name(leg), wanted ? "not seen" : "seen");
        }
    }
    return found;
}

static void test_profiles(void **state)
{
    static struct witness_table table;
    char first[128];
    (void)state;
    model_witness(test.model, &table);
    for (int i = 0; i < PROFILE_BUILTINS; i++) {
        const struct profile *profile = profile_builtin_at(i);
        run(profile);
        model_witness(test.model, &table);
        if (differences(&table, profile, first, sizeof first) != 0)
            fail_msg("%s: %s", profile->name, first);
        for (int other = 0; other < PROFILE_BUILTINS; other++) /* control */
            assert_true(other == i ||
                        differences(&table, profile_builtin_at(other), first, sizeof first) > 0);
        /* Two layers see the window alone; three have the indexer. */
        int math = profile->values[ROW_ATTN_DECODE];
        const struct witness_cell *c = table.cells[ROW_ATTN_DECODE][KIND_WINDOW][LEG_DECODE];
        assert_int_equal(c[math].rows, 2 * DECODED);
        c = table.cells[ROW_ATTN_PREFILL][KIND_CSA][LEG_PREFILL];
        assert_int_equal(c[profile->values[ROW_ATTN_PREFILL]].rows, 3 * PROMPT);
        c = table.cells[ROW_MOE_CLAMP][KIND_SCORE][LEG_DECODE];
        assert_true(c[MOE_CLAMP_ON].parameters == witness_parameter(SWIGLU_LIMIT));
        assert_false(c[MOE_CLAMP_ON].varied);
        model_witness(test.model, &table); /* it was read, so it is empty */
        assert_true(differences(&table, profile, first, sizeof first) > 0);
    }
}

/* True when the step ends the process by a broken invariant. */
static bool aborts(const struct profile *profile)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        signal(SIGABRT, SIG_DFL);
        struct error err;
        struct model *model;
        /* The threads of the other one are not in this process. */
        if (model_open(MODEL_DIR, &(struct model_options){.threads = 1}, &model, &err) != OK)
            _exit(2);
        test.model = model;
        feed(profile, 1, NULL, LEG_DECODE);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_foreign_state(void **state)
{
    const struct profile *official = profile_builtin("official"), *fast = profile_builtin("fast");
    (void)state;
    sequence_reset(test.s);
    assert_true(sequence_profile_hash(test.s) == 0);
    feed(official, 8, NULL, LEG_PREFILL);
    assert_true(sequence_profile_hash(test.s) == official->hash);
    assert_false(aborts(official));
    assert_true(aborts(fast));
    sequence_crossover(test.s, fast);
    assert_false(aborts(fast));
    assert_true(aborts(official));
    sequence_reset(test.s);
    assert_false(aborts(fast));
    /* What a perturbed step left behind is nobody's. */
    model_perturb(test.model, &(struct perturbation){.clamp_limit = 0.01});
    feed(official, 8, NULL, LEG_PREFILL);
    model_perturb(test.model, NULL);
    assert_true(sequence_profile_hash(test.s) != official->hash && aborts(official));
}

static void test_perturbations(void **state)
{
    static const struct {
        const char *what;
        struct perturbation p;
    } CHANGES[] = {
        {"clamp", {.clamp_limit = 0.01}},
        {"factor", {.routed_factor = 2}},
        {"no routed experts", {.routed_zero = true}},
        {"one entry", {.index_topk = 1}},
        {"one-sided Hadamard", {.rotate_keys_only = true}},
        {"transposed mixing", {.hc_transposed = true}},
    };
    const struct profile *official = profile_builtin("official");
    static float plain[2][VOCAB];
    (void)state;
    run(official);
    memcpy(plain, test.logits, sizeof plain);
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        model_perturb(test.model, &CHANGES[i].p);
        run(official);
        for (int leg = 0; leg < 2; leg++) {
            if (memcmp(plain[leg], test.logits[leg], sizeof plain[leg]) == 0)
                fail_msg("%s changes nothing", CHANGES[i].what);
        }
    }
    model_perturb(test.model, NULL);
    run(official);
    assert_memory_equal(plain, test.logits, sizeof plain);
}

/* What the routed experts add, by the size of the difference to none of them. */
static double routed_size(const struct profile *profile, int32_t block, enum leg leg,
                          const struct perturbation *p)
{
    static float in[4 * HIDDEN], out[2][4 * HIDDEN];
    double sum = 0;
    for (int i = 0; i < 4 * HIDDEN; i++)
        in[i] = sinf((float)(i + 1) * 0.7f);
    model_perturb(test.model, &(struct perturbation){.routed_zero = true});
    model_moe(test.model, profile, block, leg, test.ids, 4, in, out[0]);
    model_perturb(test.model, p);
    model_moe(test.model, profile, block, leg, test.ids, 4, in, out[1]);
    model_perturb(test.model, NULL);
    for (int i = 0; i < 4 * HIDDEN; i++)
        sum += pow(out[1][i] - out[0][i], 2);
    return sqrt(sum);
}

/* Doubled, the factor doubles what the routed experts give: it is applied, and once. */
static void test_routed_factor(void **state)
{
    static const int32_t BLOCKS[] = {0, 3, DRAFT_BLOCK}; /* by token, by score, of the draft */
    struct profile p = *profile_builtin_at(PROFILE_REFERENCE);
    (void)state;
    for (int run_at = 0; run_at < 12; run_at++) {
        int32_t block = BLOCKS[run_at % 3];
        enum leg leg = run_at % 2 == 0 ? LEG_PREFILL : LEG_DECODE;
        assert_true(profile_set(&p, ROW_MOE_SCALE, run_at / 6));
        double once = routed_size(&p, block, leg, NULL);
        double twice = routed_size(&p, block, leg, &(struct perturbation){.routed_factor = 2});
        assert_true(once > 0 && fabs(twice / once - 2) < 1e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_foreign_state),
        cmocka_unit_test(test_perturbations),
        cmocka_unit_test(test_routed_factor),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
