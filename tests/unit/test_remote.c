/*
 * A network in another process: bit-equal with the one in this process, every byte of a step
 * checked, and every way a worker can fail named.  This program is the worker, too: "steps" of it
 * is that of the engine, or that of a liar when the model's folder names a lie.
 */
#include "engine/commands.h"
#include "engine/model/config.h"
#include "engine/model/remote.h"
#include "kernels/link.h"

#include <fcntl.h>
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
#define TOKENS    300
#define PATIENT   120000 /* milliseconds; a busy machine takes seconds */

/* ---- liars ---------------------------------------------------------------------------------- */

static int lie(const char *what)
{
    const char *wrong;
    struct link *link = link_map(LINK_FD, &wrong);
    if (link == NULL || strcmp(what, "lie:exit") == 0)
        return 3;
    strcpy(link->config, strcmp(what, "lie:config") == 0 ? "nobody" : "demo");
    memset(link->reason, '\n', sizeof link->reason); /* neither text nor an end */
    link_tell(&link->state, strcmp(what, "lie:state") == 0 ? 77 : LINK_READY);
    while (atomic_load(&link->posted) == 0)
        link_sleep(&link->posted, 0, 1000);
    struct link_answer *answer = &link->answers[1 % LINK_STEPS];
    answer->number = strcmp(what, "lie:number") == 0 ? 9 : 1;
    if (strcmp(what, "lie:refused") == 0)
        memset(answer->refused, 7, sizeof answer->refused);
    if (strcmp(what, "lie:silent") != 0)
        link_tell(&link->done, strcmp(what, "lie:done") == 0 ? 2 : 1);
    for (;;)
        pause();
}

static enum status open_as(const char *dir, uint32_t step_ms, struct remote **out,
                           struct error *err)
{
    struct remote_options options = {"/proc/self/exe", dir, {ISA_BASELINE, 1}, 2, TOKENS, step_ms};
    return remote_open(&options, out, err);
}

static struct link_step *step_fill(struct remote *r)
{
    struct link_step *step = remote_step(r);
    *step = (struct link_step){.kind = LINK_STEP, .n_segments = 1, .n_ids = 3};
    step->segments[0] = (struct link_segment){.n = 3, .leg = LEG_PREFILL};
    return step;
}

static void test_lies(void **state)
{
    (void)state;
    static const struct {
        const char *what, *said;
    } LIES[] = {
        {"lie:exit", "ended with status 3: no reason given"},
        {"lie:config", "no known configuration"},
        {"lie:state", "does not serve: ????"},
        {"lie:number", "answered another step"},
        {"lie:done", "answered another step"},
        {"lie:refused", "refuses the step: ????"},
        {"lie:silent", "hangs: no answer"},
    };
    for (size_t i = 0; i < sizeof LIES / sizeof *LIES; i++) {
        struct remote *r = NULL;
        struct error err = {0};
        const float *rows;
        enum status status = open_as(LIES[i].what, 300, &r, &err);
        if (status == OK) {
            step_fill(r);
            status = remote_run(r, profile_builtin_at(PROFILE_OFFICIAL), &rows, &err);
        }
        assert_int_equal(status, ERR_CHECK);
        if (strstr(err.text, LIES[i].said) == NULL)
            fail_msg("%s: %s", LIES[i].what, err.text);
        remote_close(r);
    }
}

/* ---- a worker that fails -------------------------------------------------------------------- */

static void test_no_program(void **state)
{
    (void)state;
    struct remote_options options = {"/nonexistent", MODEL_DIR, {ISA_BASELINE, 1}, 1,
                                     TOKENS,         PATIENT};
    struct remote *r;
    struct error err = {0};
    assert_int_equal(remote_open(&options, &r, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent"));
}

static void test_no_model(void **state)
{
    (void)state;
    struct remote *r;
    struct error err = {0};
    assert_int_equal(open_as("/nonexistent", PATIENT, &r, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "/nonexistent")); /* in the worker's own words */
}

/* Ended by a signal, or stopped by one, in front of a step. */
static void test_signals(void **state)
{
    (void)state;
    static const struct {
        int signal;
        const char *said;
    } SIGNALS[] = {{SIGKILL, "ended by signal 9"}, {SIGSTOP, "hangs"}};
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        struct remote *r;
        struct error err = {0};
        const float *rows;
        assert_int_equal(open_as(MODEL_DIR, 500, &r, &err), OK);
        assert_string_equal(remote_config(r)->name, "demo");
        pid_t process = remote_process(r);
        assert_int_equal(kill(process, SIGNALS[i].signal), 0);
        step_fill(r);
        assert_int_equal(remote_run(r, profile_builtin_at(PROFILE_OFFICIAL), &rows, &err),
                         ERR_CHECK);
        if (strstr(err.text, SIGNALS[i].said) == NULL)
            fail_msg("%s", err.text);
        assert_int_equal(kill(process, 0), -1); /* and nothing is left of it */
        remote_close(r);
    }
}

/* ---- the same bits -------------------------------------------------------------------------- */

/* One text in two timelines of a worker, cut differently, drafts behind; beside this process. */
static void test_bits(void **state)
{
    (void)state;
    static const int32_t CUTS[2][3] = {{200, 8, 1}, {8, 200, 1}}; /* together: room in a step */
    static float want[TOKENS * VOCAB], draft_want[TOKENS * VOCAB];
    int32_t ids[TOKENS], n = 209;
    struct model *model;
    struct sequence *sequence;
    struct remote *r;
    struct error err;
    const struct profile *profile = profile_builtin_at(PROFILE_OFFICIAL);
    for (int32_t i = 0; i < n; i++)
        ids[i] = (i * 7919 + 13) % VOCAB;
    assert_int_equal(model_open(MODEL_DIR, &(struct model_options){ISA_BASELINE, 1}, &model, &err),
                     OK);
    assert_int_equal(sequence_create(model, TOKENS, &sequence, &err), OK);
    model_step(model, profile,
               &(struct segment){sequence, ids, n, .logits_all = want, .leg = LEG_PREFILL}, 1);
    model_draft(model, profile,
                &(struct draft_segment){sequence, ids + 1, n - 1, .logits_all = draft_want}, 1);
    assert_int_equal(open_as(MODEL_DIR, PATIENT, &r, &err), OK);
    int32_t at[2] = {0, 0};
    for (int cut = 0; cut < 3; cut++) {
        struct link_step *step = remote_step(r);
        *step = (struct link_step){.kind = LINK_STEP, .n_segments = 2};
        for (int s = 0; s < 2; s++) {
            int32_t m = CUTS[s][cut];
            step->segments[s] = (struct link_segment){s, at[s], m, LEG_PREFILL, LINK_WANT_ALL, {0}};
            memcpy(step->ids + step->n_ids, ids + at[s], (size_t)m * sizeof *ids);
            step->n_ids += m;
        }
        const float *rows;
        if (remote_run(r, profile, &rows, &err) != OK)
            fail_msg("%s", err.text);
        for (int s = 0; s < 2; s++) {
            size_t floats = (size_t)CUTS[s][cut] * VOCAB;
            assert_memory_equal(rows, want + (size_t)at[s] * VOCAB, floats * sizeof *rows);
            rows += floats;
            at[s] += CUTS[s][cut];
        }
    }
    struct link_step *step = remote_step(r);
    *step = (struct link_step){.kind = LINK_DRAFT, .n_segments = 1, .n_ids = n - 1};
    step->segments[0] = (struct link_segment){1, 0, n - 1, LEG_DECODE, 0, {0}};
    memcpy(step->ids, ids + 1, (size_t)(n - 1) * sizeof *ids);
    const float *rows;
    if (remote_run(r, profile, &rows, &err) != OK)
        fail_msg("%s", err.text);
    size_t last = (size_t)(n - 2) * VOCAB;
    assert_memory_equal(rows + last, draft_want + last, VOCAB * sizeof *rows);
    /* What one profile made does not serve another. */
    step_fill(r)->segments[0].position = n;
    assert_int_equal(remote_run(r, profile_builtin_at(PROFILE_FAST), &rows, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "another profile"));
    remote_close(r);
    sequence_destroy(sequence);
    model_close(model);
}

/* ---- byte by byte --------------------------------------------------------------------------- */

static const struct link_timeline TIMELINES[3] = {{40, 38}, {7, 7}, {0, 0}};
static const struct link_limits LIMITS = {TIMELINES, 3, 64, 500, true};

static struct link_step good_step(uint32_t kind)
{
    struct link_step step = {.number = 5, .kind = kind, .n_segments = 2, .n_ids = 5};
    step.segments[0] = (struct link_segment){0, 40, 4, LEG_PREFILL, LINK_WANT_ALL, {0}};
    step.segments[1] = (struct link_segment){2, 0, 1, LEG_DECODE, LINK_CROSSOVER, {0}};
    if (kind == LINK_DRAFT) {
        step.n_segments = 1;
        step.n_ids = 2;
        step.segments[0] = (struct link_segment){0, 38, 2, LEG_DECODE, 0, {0}};
    }
    for (int32_t i = 0; i < step.n_ids; i++)
        step.ids[i] = 499 - i;
    return step;
}

/* What the network asserts, said once more. */
static void assert_runs(const struct link_step *step)
{
    int64_t rows = 0;
    assert_true(step->kind <= 1 && step->n_segments >= 1 && step->n_segments <= 3);
    for (int32_t i = 0; i < step->n_segments; i++) {
        const struct link_segment *g = &step->segments[i];
        assert_in_range(g->slot, 0, 2);
        int32_t end = step->kind == LINK_DRAFT ? TIMELINES[g->slot].length : 64;
        int32_t at =
            step->kind == LINK_DRAFT ? TIMELINES[g->slot].draft_length : TIMELINES[g->slot].length;
        assert_true(g->position == at || (step->kind == LINK_STEP && g->position == 0));
        assert_true(g->n >= 1 && (int64_t)g->position + g->n <= end);
        assert_true(g->leg == LEG_DECODE || (step->kind == LINK_STEP && g->leg == LEG_PREFILL));
        for (int32_t j = 0; j < i; j++)
            assert_int_not_equal(g->slot, step->segments[j].slot);
        rows += g->n;
    }
    assert_true(rows <= STEP_TOKENS_MAX && rows == step->n_ids);
    for (int64_t i = 0; i < rows; i++)
        assert_in_range(step->ids[i], 0, 499);
}

static void test_step_bytes(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
        struct link_step good = good_step(kind);
        assert_null(link_step_wrong(&good, &LIMITS));
        size_t refused = 0, used = offsetof(struct link_step, segments) + 2 * 16;
        for (size_t at = 0; at < sizeof good; at++) {
            for (int value = 0; value < 256; value++) {
                struct link_step step = good;
                ((uint8_t *)&step)[at] = (uint8_t)value;
                if (link_step_wrong(&step, &LIMITS) == NULL)
                    assert_runs(&step);
                else
                    refused += at < used;
            }
        }
        /* Nearly nothing else is a step; were nothing checked, there would be none. */
        assert_true(refused > 20000);
    }
    struct link_limits undrafted = LIMITS;
    undrafted.drafts = false;
    struct link_step step = good_step(LINK_DRAFT);
    assert_string_equal(link_step_wrong(&step, &undrafted), "kind");
}

static void test_head_bytes(void **state)
{
    (void)state;
    int fd;
    const char *wrong;
    struct link *link = link_create(4, 1000, &fd);
    assert_non_null(link);
    assert_null(link_head_wrong(&link->head));
    for (size_t at = 0; at < sizeof link->head; at++) {
        for (int value = 0; value < 256; value++) {
            struct link_head head = link->head;
            ((uint8_t *)&head)[at] = (uint8_t)value;
            if (link_head_wrong(&head) != NULL || memcmp(&head, &link->head, sizeof head) == 0)
                continue;
            /* Only these may differ, within their limits. */
            assert_true(at >= offsetof(struct link_head, slots) &&
                        at < offsetof(struct link_head, zero));
            assert_true(head.slots >= 1 && head.slots <= LINK_SEGMENTS_MAX &&
                        head.tokens_max >= 1 && head.tokens_max <= POSITIONS_MAX);
        }
    }
    assert_int_equal(ftruncate(fd, 4096), -1); /* nobody takes it away from under the other */
    link_unmap(link);
    close(fd);
    assert_null(link_map(-1, &wrong));
    /* The right size, and nothing keeps it so: a file, memory without seals. */
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), sizeof(struct link)), 0);
    assert_null(link_map(fileno(file), &wrong));
    fclose(file);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, sizeof(struct link)), 0);
    assert_null(link_map(fd, &wrong));
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "steps") == 0)
        return strncmp(argv[3], "lie:", 4) == 0 ? lie(argv[3]) : cmd_steps(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_bytes), cmocka_unit_test(test_step_bytes),
        cmocka_unit_test(test_no_program), cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_lies),       cmocka_unit_test(test_signals),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
