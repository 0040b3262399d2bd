/*
 * A network in another process: bit-equal with the one in this process, every way a worker can fail
 * named, and a new worker in the place of a lost one.  This program is the worker, too: "steps" of
 * it is that of the engine, or that of a liar when the model's folder names a lie.
 */
#include "engine/commands.h"
#include "engine/model/config.h"
#include "engine/model/inspect.h"
#include "engine/model/remote.h"
#include "engine/model/snapshot.h"
#include "kernels/check.h"
#include "kernels/link.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL_DIR "rootfs/models/demo"
#define VOCAB     4096
#define TOKENS    400
#define OFFICIAL  profile_builtin_at(PROFILE_OFFICIAL)
#define PATIENT   120000 /* milliseconds; a busy machine takes seconds */

static enum status open_as(const char *dir, int32_t limit_ms, struct model **out, struct error *err)
{
    struct model_options options = {.isa = ISA_BASELINE,
                                    .threads = 1,
                                    .worker = "/proc/self/exe",
                                    .worker_step_ms = limit_ms,
                                    .worker_load_ms = limit_ms};
    return model_open(dir, &options, out, err);
}

/* ---- liars ---------------------------------------------------------------------------------- */

/* Answers every step with one choice. */
static const struct {
    const char *what;
    struct link_choice choice;
    bool good;
} CHOICES[] = {
    {"pick:good", {.id = 64, .n_top = 2, .logprob = -1}, true},
    {"pick:barred", {.id = 63, .n_top = 2, .logprob = -1}, false},
    {"pick:beyond", {.id = VOCAB, .n_top = 2, .logprob = -1}, false},
    {"pick:below", {.id = -3, .n_top = 2, .logprob = -1}, false},
    {"pick:more", {.id = 64, .n_top = 3, .logprob = -1}, false},
    {"pick:fewer", {.id = 64, .n_top = -1, .logprob = -1}, false},
    {"pick:nan", {.id = 64, .n_top = 2, .logprob = NAN}, false},
    {"pick:other", {.id = 64, .n_top = 2, .logprob = -1, .top_ids = {1, VOCAB}}, false},
    {"pick:other-nan", {.id = 64, .n_top = 2, .logprob = -1, .top_logprobs = {0, NAN}}, false},
};
#define N_CHOICES (sizeof CHOICES / sizeof *CHOICES)

static _Noreturn void lie_about_picks(struct link *link, const char *what)
{
    for (uint32_t number = 1;; number++) {
        while (atomic_load(&link->posted) != number)
            link_sleep(&link->posted, number - 1, 1000);
        struct link_answer *answer = &link->answers[number % LINK_STEPS];
        answer->number = number;
        for (size_t i = 0; i < N_CHOICES; i++) {
            if (strcmp(CHOICES[i].what, what) == 0)
                answer->choices[0] = CHOICES[i].choice;
        }
        link_tell(&link->done, number);
    }
}

static int lie(const char *what)
{
    const char *wrong;
    struct link *link = link_map(LINK_FD, &wrong);
    if (link == NULL || strcmp(what, "lie:exit") == 0)
        return 3;
    if (strcmp(what, "lie:loads") == 0)
        pause();
    strcpy(link->config, strcmp(what, "lie:config") == 0 ? "nobody" : "demo");
    link->step_tokens = strcmp(what, "lie:tokens") == 0 ? STEP_TOKENS_MAX + 1 : SPAN_TOKENS_MAX;
    memset(link->reason, '\n', sizeof link->reason); /* neither text nor an end */
    memset(&link->board.gauges, 0xff, sizeof link->board.gauges);
    link->board.gauges.n = RANKS_MAX;
    link_tell(&link->state, strcmp(what, "lie:state") == 0 ? 77 : LINK_READY);
    if (strncmp(what, "pick:", 5) == 0)
        lie_about_picks(link, what);
    while (atomic_load(&link->posted) == 0)
        link_sleep(&link->posted, 0, 1000);
    struct link_answer *answer = &link->answers[1 % LINK_STEPS];
    answer->number = strcmp(what, "lie:number") == 0 ? 9 : 1;
    if (strcmp(what, "lie:refused") == 0)
        memset(answer->refused, 7, sizeof answer->refused);
    if (strcmp(what, "lie:memory") == 0)
        strcpy(answer->refused, LINK_NO_MEMORY);
    if (strcmp(what, "lie:silent") != 0)
        link_tell(&link->done, strcmp(what, "lie:done") == 0 ? 2 : 1);
    for (;;)
        pause();
}

static void test_lies(void **state)
{
    (void)state;
    static const struct {
        const char *what, *said;
    } LIES[] = {
        {"lie:exit", "ended with status 3: no reason given"},
        {"lie:loads", "hangs: no model loaded"},
        {"lie:config", "no known configuration"},
        {"lie:tokens", "no steps of 1025 tokens"},
        {"lie:state", "does not serve: ????"},
        {"lie:number", "answered another step"},
        {"lie:done", "answered another step"},
        {"lie:refused", "refuses the step: ????"},
        {"lie:memory", "refuses the step: memory"}, /* a step needs none */
        {"lie:silent", "hangs: no answer"},
    };
    for (size_t i = 0; i < sizeof LIES / sizeof *LIES; i++) {
        struct model *m = NULL;
        struct error err = {0};
        struct witness_table seen;
        bool patient =
            strcmp(LIES[i].what, "lie:loads") != 0 && strcmp(LIES[i].what, "lie:silent") != 0;
        enum status status = open_as(LIES[i].what, patient ? PATIENT : 500, &m, &err);
        const char *said = err.text;
        if (status == OK) {
            model_witness(m, &seen);
            said = model_lost(m);
            assert_non_null(said);
            assert_int_equal(model_worker(m), 0); /* nothing is left of it */
        }
        if (strstr(said, LIES[i].said) == NULL)
            fail_msg("%s: %s", LIES[i].what, said);
        model_close(m);
    }
}

static void test_gauges(void **state)
{
    (void)state;
    static const struct {
        const char *dir;
        int32_t n;
    } WORKERS[] = {{MODEL_DIR, 0}, {"lie:silent", RANKS_MAX}};
    for (size_t i = 0; i < sizeof WORKERS / sizeof *WORKERS; i++) {
        struct model *m;
        struct error err;
        struct gauges g = {.n = -1};
        assert_int_equal(open_as(WORKERS[i].dir, PATIENT, &m, &err), OK);
        assert_true(model_gauges(m, &g));
        assert_int_equal(g.n, WORKERS[i].n);
        assert_int_equal(g.peers, PEERS_UNKNOWN);
        for (int32_t k = 0; k < g.n; k++)
            assert_int_equal(g.gpu[k].value[GAUGE_TEMPERATURE], GAUGE_UNKNOWN);
        assert_int_equal(kill(model_worker(m), SIGKILL), 0);
        while (model_lost(m) == NULL)
            usleep(1000);
        assert_false(model_gauges(m, &g));
        model_close(m);
    }
    struct model_options options = {.isa = ISA_BASELINE, .threads = 1};
    struct model *m;
    struct error err;
    struct gauges g;
    assert_int_equal(model_open(MODEL_DIR, &options, &m, &err), OK);
    assert_false(model_gauges(m, &g)); /* this process computes */
    model_close(m);
}

static void test_picks_of_liars(void **state)
{
    (void)state;
    static const int32_t IDS[3] = {5, 6, 7};
    static const uint64_t allowed[VOCAB / 64] = {0, 1};
    for (size_t i = 0; i < N_CHOICES; i++) {
        struct model *m;
        struct sequence *s;
        struct error err;
        struct pick pick = {.sampling = {.top_p = 1},
                            .allowed = allowed,
                            .logprobs = true,
                            .n_top = 2,
                            .id = SAMPLE_FAULT};
        assert_int_equal(open_as(CHOICES[i].what, PATIENT, &m, &err), OK);
        assert_int_equal(sequence_create(m, TOKENS, &s, &err), OK);
        model_step(m, profile_builtin_at(PROFILE_OFFICIAL),
                   &(struct segment){.sequence = s,
                                     .ids = IDS,
                                     .n = 3,
                                     .picks = &pick,
                                     .n_picks = 1,
                                     .leg = LEG_PREFILL},
                   1);
        if ((model_lost(m) == NULL) != CHOICES[i].good)
            fail_msg("%s: %s", CHOICES[i].what, model_lost(m));
        if (CHOICES[i].good)
            assert_true(pick.id == 64 && pick.told.n_top == 2);
        else
            assert_non_null(strstr(model_lost(m), "could not pick"));
        sequence_destroy(s);
        model_close(m);
    }
}

/* ---- a worker that fails -------------------------------------------------------------------- */

static void test_no_program(void **state)
{
    (void)state;
    struct model_options options = {.threads = 1, .worker = "/nonexistent"};
    struct model *m;
    struct error err = {0};
    assert_int_equal(model_open(MODEL_DIR, &options, &m, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent"));
}

static void test_no_model(void **state)
{
    (void)state;
    struct model *m;
    struct error err = {0};
    assert_int_equal(open_as("/nonexistent", PATIENT, &m, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "/nonexistent")); /* in the worker's own words */
}

static void feed(struct model *m, struct sequence *s, const int32_t *ids, int32_t n, float *last)
{
    const struct segment segment = {
        .sequence = s, .ids = ids, .n = n, .logits_last = last, .leg = LEG_PREFILL};
    model_step(m, profile_builtin_at(PROFILE_OFFICIAL), &segment, 1);
}

/* Ended by a signal, or stopped by one, in front of a step; another one is there soon, with empty
 * timelines, and computes what the first did. */
static void test_signals(void **state)
{
    (void)state;
    static const struct {
        int signal;
        int32_t limit_ms;
        const char *said;
    } SIGNALS[] = {{SIGKILL, PATIENT, "ended by signal 9"}, {SIGSTOP, 2000, "hangs"}};
    static const int32_t IDS[3] = {5, 6, 7};
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        static float before[VOCAB], after[VOCAB];
        struct model *m;
        struct sequence *s;
        struct error err = {0};
        assert_int_equal(open_as(MODEL_DIR, SIGNALS[i].limit_ms, &m, &err), OK);
        assert_string_equal(model_config(m)->name, "demo");
        assert_string_equal(model_isa_name(m), "baseline");
        assert_int_equal(sequence_create(m, TOKENS, &s, &err), OK);
        feed(m, s, IDS, 3, before);
        assert_null(model_lost(m));
        pid_t process = model_worker(m);
        assert_int_equal(kill(process, SIGNALS[i].signal), 0);
        feed(m, s, IDS, 3, after);
        assert_non_null(model_lost(m));
        if (strstr(model_lost(m), SIGNALS[i].said) == NULL)
            fail_msg("%s", model_lost(m));
        assert_int_equal(kill(process, 0), -1); /* and nothing is left of it */
        uint32_t life = model_life(m);
        for (int looks = 0; !model_recover(m); looks++)
            assert_true(looks < PATIENT / WORKER_LOOK_MS);
        assert_true(model_lost(m) == NULL && model_life(m) != life);
        assert_int_equal(model_starts_failed(m), 0);
        assert_int_not_equal(model_worker(m), process);
        assert_int_equal(sequence_length(s), 0);
        feed(m, s, IDS, 3, after);
        assert_memory_equal(before, after, sizeof before);
        sequence_destroy(s);
        model_close(m);
    }
}

/* A model folder that goes away under a worker: it is started again and again, each time later, and
 * serves once the folder is back. */
static void test_starts(void **state)
{
    (void)state;
    char dir[] = "build/remote-XXXXXX", link[64];
    struct model *m;
    struct error err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(link, sizeof link, "%s/model", dir);
    assert_int_equal(symlink("../../" MODEL_DIR, link), 0);
    if (open_as(link, PATIENT, &m, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(kill(model_worker(m), SIGKILL), 0);
    for (int looks = 0; model_starts_failed(m) < 2; looks++) {
        if (model_lost(m) != NULL)
            assert_false(model_recover(m));
        assert_true(looks < PATIENT * 10);
    }
    assert_non_null(strstr(model_lost(m), "does not serve"));
    assert_int_equal(symlink("../../" MODEL_DIR, link), 0);
    for (int looks = 0; !model_recover(m); looks++)
        assert_true(looks < PATIENT / WORKER_LOOK_MS);
    assert_int_equal(model_starts_failed(m), 0);
    model_close(m);
    assert_true(unlink(link) == 0 && rmdir(dir) == 0);
}

/* ---- the same bits -------------------------------------------------------------------------- */

/* What is done in both. */
struct side {
    struct model *m;
    struct sequence *a, *b;
    struct snapshots *pool;
    float rows[64][VOCAB]; /* as they came */
    int32_t n;
    float *block, *tail; /* own; the pieces of a prefix */
    struct pick picks[5];
    struct witness_table seen;
};

static float *row(struct side *x)
{
    assert_true(x->n < 64);
    return x->rows[x->n++];
}

static void step(struct side *x, struct sequence *s, const int32_t *ids, int32_t n, enum leg leg,
                 float *last)
{
    model_step(
        x->m, profile_builtin_at(PROFILE_OFFICIAL),
        &(struct segment){.sequence = s, .ids = ids, .n = n, .logits_last = last, .leg = leg}, 1);
}

static void draft(struct side *x, struct sequence *s, const int32_t *next, int32_t n,
                  int32_t beyond)
{
    model_draft(
        x->m, profile_builtin_at(PROFILE_OFFICIAL),
        &(struct draft_segment){
            .sequence = s, .next_ids = next, .n = n, .logits_last = row(x), .beyond = beyond},
        1);
}

/* Two timelines in one step, with all rows of one of them and none of the other. */
static void together(struct side *x, const int32_t *ids)
{
    float all[3 * VOCAB];
    const struct segment both[2] = {
        {.sequence = x->a, .ids = ids + 256, .n = 3, .logits_all = all, .leg = LEG_DECODE},
        {.sequence = x->b, .ids = ids, .n = 130, .leg = LEG_PREFILL}};
    model_step(x->m, profile_builtin_at(PROFILE_OFFICIAL), both, 2);
    for (int i = 0; i < 3; i++)
        memcpy(row(x), all + (size_t)i * VOCAB, VOCAB * sizeof *all);
}

/* Tokens picked in both ways, with everything that a pick can say; the rows told beside them. */
static void picked(struct side *x, const int32_t *ids)
{
    static uint64_t allowed[VOCAB / 64];
    static const uint64_t nothing[VOCAB / 64];
    static const struct token_said said[] = {{3, 0}, {700, 2}, {VOCAB - 1, 1}};
    float all[3 * VOCAB];
    for (int i = 0; i < VOCAB / 64; i++)
        allowed[i] = UINT64_C(0x123456789abcdef) * (uint64_t)(i % 5);
    const struct sampling hot = {.temperature = 1.5, .top_p = 0.9, .top_k = 90, .min_p = 1e-3};
    const struct sampling cold = {.top_p = 1, .repetition_penalty = 1.3, .presence_penalty = 0.5};
    struct pick picks[3] = {
        {.sampling = hot, .position = 300, .logprobs = true, .n_top = 5},
        {.sampling = cold, .said = said, .n_said = 3, .allowed = allowed, .logprobs = true},
        {.sampling = hot, .position = 301, .allowed = nothing}};
    struct pick last = {.sampling = hot, .position = 77, .logprobs = true, .n_top = 20};
    const struct segment both[2] = {{.sequence = x->a,
                                     .ids = ids + 258,
                                     .n = 4,
                                     .picks = picks,
                                     .n_picks = 3,
                                     .leg = LEG_DECODE},
                                    {.sequence = x->b,
                                     .ids = ids,
                                     .n = 3,
                                     .logits_all = all,
                                     .picks = &last,
                                     .n_picks = 1,
                                     .leg = LEG_PREFILL}};
    sequence_reset(x->b);
    model_step(x->m, profile_builtin_at(PROFILE_OFFICIAL), both, 2);
    memcpy(x->picks, picks, sizeof picks);
    x->picks[3] = last;
    x->picks[4] = (struct pick){.sampling = hot, .position = 9};
    model_draft(x->m, profile_builtin_at(PROFILE_OFFICIAL),
                &(struct draft_segment){
                    .sequence = x->b, .next_ids = ids + 1, .n = 3, .pick = &x->picks[4]},
                1);
    /* The row itself says the same. */
    struct sampler sampler;
    sampler_init(&sampler, VOCAB);
    sampler_take(&sampler, all + 2 * VOCAB, &last);
    sampler_clear(&sampler);
    assert_int_equal(last.id, x->picks[3].id);
    assert_true(last.told.chosen == x->picks[3].told.chosen);
}

static void assert_picks(const struct side *here, const struct side *there)
{
    for (int i = 0; i < 5; i++) {
        const struct pick *a = &here->picks[i], *b = &there->picks[i];
        assert_int_equal(a->id, b->id);
        assert_int_equal(a->told.n_top, b->told.n_top);
        assert_memory_equal(&a->told.chosen, &b->told.chosen, sizeof a->told.chosen);
        assert_memory_equal(a->told.top, b->told.top, (size_t)a->told.n_top * sizeof *a->told.top);
    }
    assert_true(here->picks[0].id >= 0 && here->picks[0].told.n_top == 5);
    assert_true(here->picks[1].id >= 0 && here->picks[1].id / 64 % 5 != 0);
    assert_int_equal(here->picks[2].id, SAMPLE_BARRED);
    assert_true(here->picks[3].id >= 0 && here->picks[4].id >= 0);
}

/* The life of two timelines: chunks, a rewound guess, drafts behind it and beyond, a prefix kept,
 * restored and taken out, one layer and the experts alone under a changed number. */
static void live(struct side *x, const int32_t *ids)
{
    const struct perturbation changed = {.routed_factor = 2, .index_topk = 1};
    const struct profile *official = profile_builtin_at(PROFILE_OFFICIAL);
    const struct model_config *c = model_config(x->m);
    size_t width = (size_t)HC_MULT * (size_t)c->hidden_size;
    static float in[16384], out[16384];
    assert_true(4 * width <= 16384);
    for (size_t i = 0; i < 4 * width; i++)
        in[i] = (float)(i * 37 % 101) / 50 - 1;
    step(x, x->a, ids, 200, LEG_PREFILL, NULL);
    step(x, x->a, ids + 200, 56, LEG_PREFILL, row(x));
    snapshot_save_block(x->pool, 0, x->a, 0);
    snapshot_save_block(x->pool, 1, x->a, 1);
    snapshot_save_tail(x->pool, 0, x->a, 256);
    together(x, ids);
    sequence_rewind(x->a, 257); /* two guesses were wrong */
    sequence_draft_skip(x->a, 200);
    draft(x, x->a, ids + 201, 57, 0);
    draft(x, x->a, ids + 300, 1, 1);
    draft(x, x->a, ids + 301, 1, 2);
    step(x, x->a, ids + 257, 1, LEG_DECODE, row(x));
    sequence_reset(x->b);
    snapshot_load_block(x->pool, 0, x->b, 0);
    snapshot_load_block(x->pool, 1, x->b, 1);
    snapshot_load_tail(x->pool, 0, x->b, 256);
    sequence_crossover(x->b, official);
    step(x, x->b, ids + 256, 2, LEG_DECODE, row(x));
    snapshot_get_block(x->pool, 1, official, x->block);
    snapshot_get_tail(x->pool, 0, official, x->tail);
    picked(x, ids);
    model_witness(x->m, &x->seen);
    model_perturb(x->m, &changed);
    sequence_reset(x->b);
    model_layer(x->m, official, x->b, 2, LEG_PREFILL, ids, 4, in, out);
    memcpy(row(x), out, VOCAB * sizeof *out);
    model_moe(x->m, official, 1, LEG_DECODE, ids, 4, in, out);
    memcpy(row(x), out, VOCAB * sizeof(float) / 4);
    model_perturb(x->m, NULL);
}

static struct side *side_open(const char *worker)
{
    struct side *x = calloc(1, sizeof *x);
    struct error err;
    const struct model_options options = {.isa = ISA_BASELINE, .threads = 1, .worker = worker};
    assert_non_null(x);
    if (model_open(MODEL_DIR, &options, &x->m, &err) != OK ||
        sequence_create(x->m, TOKENS, &x->a, &err) != OK ||
        sequence_create(x->m, TOKENS, &x->b, &err) != OK ||
        snapshots_create(x->m, 2, 1, &x->pool, &err) != OK)
        fail_msg("%s", err.text);
    x->block = calloc(1, snapshot_block_bytes(x->m, OFFICIAL));
    x->tail = calloc(1, snapshot_tail_bytes(x->m, OFFICIAL));
    return x;
}

static void side_close(struct side *x)
{
    free(x->block);
    free(x->tail);
    snapshots_destroy(x->pool);
    sequence_destroy(x->a);
    sequence_destroy(x->b);
    model_close(x->m);
    free(x);
}

static void test_bits(void **state)
{
    (void)state;
    int32_t ids[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = (i * 7919 + 13) % VOCAB;
    struct side *here = side_open(NULL), *there = side_open("/proc/self/exe");
    live(here, ids);
    live(there, ids);
    if (model_lost(there->m) != NULL)
        fail_msg("%s", model_lost(there->m));
    assert_int_equal(here->n, there->n);
    for (int i = 0; i < here->n; i++) {
        if (memcmp(here->rows[i], there->rows[i], sizeof here->rows[i]) != 0)
            fail_msg("row %d differs", i);
        /* The control: two rows are the same where the same tokens stand in front of them. */
        bool again = i == 7 || i == 8;
        assert_int_equal(memcmp(here->rows[i], here->rows[2], sizeof here->rows[i]) == 0,
                         again || i == 2);
    }
    assert_picks(here, there);
    assert_memory_equal(here->block, there->block, snapshot_block_bytes(here->m, OFFICIAL));
    assert_memory_equal(here->tail, there->tail, snapshot_tail_bytes(here->m, OFFICIAL));
    const struct witness_cell *cell = &here->seen.cells[ROW_SUM][KIND_HEAD][LEG_DECODE][0];
    assert_true(cell[0].launches + cell[1].launches > 0);
    assert_memory_equal(&here->seen, &there->seen, sizeof here->seen);
    assert_int_equal(sequence_bytes(here->a), sequence_bytes(there->a));
    /* What one profile made does not serve another: the engine says so before the worker does. */
    assert_int_equal(sequence_profile_hash(there->a), profile_builtin_at(PROFILE_OFFICIAL)->hash);
    side_close(here);
    side_close(there);
}

/* Timelines that the worker has no memory for are refused, and cost nothing else. */
static void test_no_memory(void **state)
{
    (void)state;
    struct model *m;
    struct error err;
    struct sequence *all[LINK_TIMELINES + 1];
    int n = 0;
    assert_int_equal(open_as(MODEL_DIR, PATIENT, &m, &err), OK);
    while (n <= LINK_TIMELINES && sequence_create(m, 8, &all[n], &err) == OK)
        n++;
    assert_int_equal(n, LINK_TIMELINES); /* no more than the link has numbers for */
    sequence_destroy(all[7]);
    assert_int_equal(sequence_create(m, 9, &all[7], &err), OK); /* and again, once one is free */
    assert_null(model_lost(m));
    for (int i = 0; i < n; i++)
        sequence_destroy(all[i]);
    model_close(m);
}

/* ---- anything that is let through runs ------------------------------------------------------- */

static uint32_t random_state;

static int32_t roll(int32_t n)
{
    random_state = random_state * 1664525u + 1013904223u; /* Numerical Recipes */
    return (int32_t)((uint64_t)random_state * (uint32_t)n >> 32);
}

/* Mostly what fits, sometimes what does not. */
static struct link_step any_step(const struct link_limits *limits)
{
    /* As often as lets timelines grow, and as it takes to hit upon what is possible. */
    static const uint8_t OFTEN[LINK_KINDS] = {
        [LINK_STEP] = 24,      [LINK_DRAFT] = 12, [LINK_LAYER] = 4, [LINK_EXPERTS] = 2,
        [LINK_OPEN] = 12,      [LINK_CLOSE] = 1,  [LINK_RESET] = 2, [LINK_POOL_OPEN] = 4,
        [LINK_POOL_CLOSE] = 1, [LINK_SAVE] = 60,  [LINK_LOAD] = 90, [LINK_GET] = 4,
        [LINK_PUT] = 4,        [LINK_WITNESS] = 2};
    struct link_step step = {.room = 200 + roll(200)};
    int32_t sum = 0, chosen;
    for (int kind = 0; kind < LINK_KINDS; kind++)
        sum += OFTEN[kind];
    chosen = roll(sum);
    while (chosen >= OFTEN[step.kind])
        chosen -= OFTEN[step.kind++];
    step.perturbation.index_topk = roll(4);
    step.perturbation.hc_transposed = (uint8_t)roll(2);
    step.mixed = step.kind == LINK_OPEN; /* every step is of another profile */
    step.block = roll(limits->layers + 2);
    step.leg = roll(2) == 0 ? LEG_PREFILL : LEG_DECODE;
    step.pool = roll(2);
    step.n_blocks = 1 + roll(3);
    step.n_tails = 1 + roll(2);
    step.tail = roll(2);
    step.piece = roll(3);
    step.at = step.tail == 0 ? roll(3) : roll(3) * SNAPSHOT_TOKENS + (roll(8) == 0);
    step.n_segments = roll(3);
    for (int32_t i = 0; i < step.n_segments; i++) {
        struct link_segment *g = &step.segments[i];
        g->timeline = roll(3);
        const struct link_timeline *t = &limits->timelines[g->timeline];
        g->length = t->length - (roll(4) == 0 ? roll(20) : 0);
        g->drafted = roll(2) == 0 ? t->drafted : g->length - roll(4);
        g->n = step.kind > LINK_LAYER ? roll(2) : roll(6) == 0 ? 130 : roll(6);
        g->beyond = roll(6) == 0 ? roll(4) : 0;
        g->leg = (uint8_t)(roll(2) == 0 ? LEG_PREFILL : LEG_DECODE);
        g->flags = (uint8_t)(LINK_CROSSOVER | roll(3));
        g->n_picks = (uint8_t)(step.kind > LINK_DRAFT ? 0 : roll(3));
        step.n_ids += g->n;
    }
    if (step.kind == LINK_EXPERTS)
        step.n_ids = roll(9);
    for (int32_t i = 0; i < step.n_ids && i < STEP_TOKENS_MAX; i++)
        step.ids[i] = roll(VOCAB);
    return step;
}

/* What a step that has run changes. */
static void note_run(const struct link_step *step, struct link_limits *limits)
{
    struct link_pool *pool = &limits->pools[step->pool];
    for (int32_t i = 0; i < step->n_segments; i++) {
        const struct link_segment *g = &step->segments[i];
        struct link_timeline *t = &limits->timelines[g->timeline];
        bool feeds = step->kind == LINK_STEP || step->kind == LINK_LAYER;
        t->length = g->length + (feeds ? g->n : 0);
        t->drafted = g->drafted + (step->kind == LINK_DRAFT && g->beyond == 0 ? g->n : 0);
        if (step->kind == LINK_OPEN)
            *t = (struct link_timeline){.room = step->room};
        if (step->kind == LINK_RESET || step->kind == LINK_CLOSE)
            *t = (struct link_timeline){.room = step->kind == LINK_RESET ? t->room : 0};
        if (step->kind == LINK_LOAD && step->tail != 0)
            t->length = t->drafted = step->at;
    }
    if (step->kind == LINK_POOL_OPEN)
        *pool = (struct link_pool){step->n_blocks, step->n_tails};
    if (step->kind == LINK_POOL_CLOSE)
        *pool = (struct link_pool){0, 0};
}

static void test_any_steps(void **state)
{
    (void)state;
    enum { STEPS = 70, TRIES = 1000000 };
    static const struct profile *profile;
    struct link_limits limits = {.vocab = VOCAB, .drafts = true};
    struct remote *r = NULL;
    struct error err;
    int32_t ran[LINK_KINDS] = {0};
    const struct model_options options = {
        .isa = ISA_BASELINE, .threads = 1, .worker = "/proc/self/exe"};
    assert_int_equal(remote_open(MODEL_DIR, &options, &r, &err), OK);
    limits.layers = remote_config(r)->num_hidden_layers;
    limits.step_tokens = remote_step_tokens(r);
    random_state = 7;
    for (int32_t n = 0, tries = 0; n < STEPS; tries++) {
        assert_true(tries < TRIES);
        struct link_step step = any_step(&limits);
        profile = profile_builtin_at((enum profile_column)roll(PROFILE_BUILTINS));
        if (step.kind == LINK_PUT) /* mixed timelines take float32 only */
            profile = profile_builtin_at(PROFILE_REFERENCE);
        if (link_step_wrong(&step, &limits) != NULL)
            continue;
        struct link_step *asked = remote_step(r, (enum link_kind)step.kind, profile);
        const float *numbers;
        for (int i = 0; i < LINK_TIMELINES * 3; i++) /* penalties for nothing, masks of any bits */
            remote_picks(r)->picks[i] = (struct link_pick){
                .temperature = roll(2), .top_p = 1, .n_top = roll(3) - 1, .masked = roll(2) != 0};
        step.number = asked->number;
        memcpy(step.values, asked->values, sizeof step.values);
        *asked = step;
        if (!remote_run(r, &numbers))
            fail_msg("step %d of kind %u: %s", (int)n, step.kind, remote_lost(r));
        note_run(&step, &limits);
        ran[step.kind]++;
        n++;
    }
    for (int kind = 0; kind < LINK_KINDS; kind++)
        if (ran[kind] == 0) /* each of them must have come */
            fail_msg("no step of kind %d", kind);
    remote_close(r);
}

/* What one profile has packed goes on under no other, whoever says it may. */
static void test_forms(void **state)
{
    (void)state;
    struct remote *r = NULL;
    struct error err;
    const struct model_options options = {
        .isa = ISA_BASELINE, .threads = 1, .worker = "/proc/self/exe"};
    assert_int_equal(remote_open(MODEL_DIR, &options, &r, &err), OK);
    assert_true(remote_packs(r));
    const float *numbers;
    for (int turn = 0; turn < 3; turn++) {
        struct link_step *step =
            remote_step(r, turn == 0 ? LINK_OPEN : LINK_STEP,
                        turn == 2 ? profile_builtin_at(PROFILE_REFERENCE) : OFFICIAL);
        step->room = turn == 0 ? 8 : 0;
        step->n_segments = 1;
        step->n_ids = turn > 0;
        step->segments[0] = (struct link_segment){.timeline = 1,
                                                  .length = turn == 2,
                                                  .n = turn > 0,
                                                  .leg = LEG_DECODE,
                                                  .flags = turn == 2 ? LINK_CROSSOVER : 0};
        assert_int_equal(remote_run(r, &numbers), turn < 2);
    }
    assert_non_null(strstr(remote_lost(r), "another form of state"));
    remote_close(r);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "steps") == 0)
        return strchr(argv[3], ':') != NULL ? lie(argv[3]) : cmd_steps(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picks_of_liars), cmocka_unit_test(test_no_program),
        cmocka_unit_test(test_no_model),       cmocka_unit_test(test_lies),
        cmocka_unit_test(test_gauges),         cmocka_unit_test(test_signals),
        cmocka_unit_test(test_starts),         cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bits),           cmocka_unit_test(test_any_steps),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
