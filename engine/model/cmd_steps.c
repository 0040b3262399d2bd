/*
 * `engine steps`, `worker steps`: the worker's side of the link (kernels/link.h).  Loads the model,
 * then runs the steps that the engine posts until that is gone.  Knows no text, no requests, no
 * sockets.
 */
#include "engine/commands.h"
#include "engine/model/options.h"
#include "kernels/check.h"
#include "kernels/link.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct steps_run {
    struct link *link;   /* owns */
    struct model *model; /* owns */
    struct link_head head;
    int32_t vocab;
    struct sequence *sequences[LINK_SEGMENTS_MAX]; /* owns; [head.slots] */
    struct link_timeline timelines[LINK_SEGMENTS_MAX];
    struct link_step step; /* what is checked and run: the engine cannot write here */
};

/* ---- loading -------------------------------------------------------------------------------- */

static enum status link_take(struct steps_run *run, struct error *err)
{
    const char *wrong;
    run->link = link_map(LINK_FD, &wrong);
    if (run->link == NULL)
        return error_set(err, ERR_USAGE, "descriptor %d: %s", LINK_FD, wrong);
    run->head = run->link->head;
    wrong = link_head_wrong(&run->head);
    if (wrong != NULL)
        return error_set(err, ERR_INPUT, "link head: %s is not as this program has it", wrong);
    /* It ends with the engine; which may be gone already. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != run->head.engine)
        return error_set(err, ERR_INPUT, "link head: engine is not the parent");
    return OK;
}

static enum status load(struct steps_run *run, const char *dir, const struct model_options *options,
                        struct error *err)
{
    enum status status = model_open(dir, options, &run->model, err);
    if (status != OK)
        return status;
    const struct model_config *config = model_config(run->model);
    ASSERT(config->vocab_size <= LINK_VOCAB_MAX && strlen(config->name) < LINK_FIELD_BYTES);
    run->vocab = config->vocab_size;
    for (int32_t i = 0; i < run->head.slots && status == OK; i++)
        status = sequence_create(run->model, run->head.tokens_max, &run->sequences[i], err);
    if (status == OK)
        memcpy(run->link->config, config->name, strlen(config->name) + 1);
    return status;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Timelines that begin anew are empty, and crossed ones belong to this profile. */
static void timelines_prepare(struct steps_run *run, const struct profile *profile)
{
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        if (run->step.kind == LINK_STEP && g->position == 0)
            sequence_reset(run->sequences[g->slot]);
        if ((g->flags & LINK_CROSSOVER) != 0)
            sequence_crossover(run->sequences[g->slot], profile);
    }
}

/* State that another profile made serves nobody else. */
static bool profile_fits(const struct steps_run *run, const struct profile *profile)
{
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        uint64_t made_by = sequence_profile_hash(run->sequences[g->slot]);
        bool anew = run->step.kind == LINK_STEP && g->position == 0;
        if (!anew && (g->flags & LINK_CROSSOVER) == 0 && made_by != 0 && made_by != profile->hash)
            return false;
    }
    return true;
}

static void layers_run(struct steps_run *run, const struct profile *profile, float *logits)
{
    struct segment segments[LINK_SEGMENTS_MAX];
    int32_t row = 0;
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        bool all = (g->flags & LINK_WANT_ALL) != 0;
        float *first = logits + (int64_t)row * run->vocab;
        float *last = logits + (int64_t)(row + g->n - 1) * run->vocab;
        segments[i] =
            (struct segment){run->sequences[g->slot], run->step.ids + row, g->n,
                             all ? NULL : last,       all ? first : NULL,  (enum leg)g->leg};
        row += g->n;
    }
    model_step(run->model, profile, segments, run->step.n_segments);
}

static void drafts_run(struct steps_run *run, const struct profile *profile, float *logits)
{
    struct draft_segment segments[LINK_SEGMENTS_MAX];
    int32_t row = 0;
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        bool all = (g->flags & LINK_WANT_ALL) != 0;
        segments[i] = (struct draft_segment){
            .sequence = run->sequences[g->slot],
            .next_ids = run->step.ids + row,
            .n = g->n,
            .logits_last = all ? NULL : logits + (int64_t)(row + g->n - 1) * run->vocab,
            .logits_all = all ? logits + (int64_t)row * run->vocab : NULL};
        row += g->n;
    }
    model_draft(run->model, profile, segments, run->step.n_segments);
}

/* @return the field that keeps the step from running; "": it has run */
static const char *step_run(struct steps_run *run, float *logits)
{
    for (int32_t i = 0; i < run->head.slots; i++)
        run->timelines[i] = (struct link_timeline){sequence_length(run->sequences[i]),
                                                   sequence_draft_length(run->sequences[i])};
    struct link_limits limits = {run->timelines, run->head.slots, run->head.tokens_max, run->vocab,
                                 model_config(run->model)->num_nextn_predict_layers > 0};
    const char *wrong = link_step_wrong(&run->step, &limits);
    if (wrong != NULL)
        return wrong;
    struct profile profile = *profile_builtin_at(PROFILE_REFERENCE);
    for (int row = 0; row < (int)PRECISION_ROWS; row++)
        ASSERT(profile_set(&profile, (enum precision_row)row, run->step.values[row]));
    if (!profile_fits(run, &profile))
        return "values: another profile's state";
    timelines_prepare(run, &profile);
    (run->step.kind == LINK_DRAFT ? drafts_run : layers_run)(run, &profile, logits);
    return "";
}

static _Noreturn void serve(struct steps_run *run)
{
    struct link *link = run->link;
    for (uint32_t done = 0;;) {
        uint32_t posted = atomic_load_explicit(&link->posted, memory_order_acquire);
        if (posted == done) {
            link_sleep(&link->posted, done, WORKER_STEP_SECONDS * 1000);
            continue;
        }
        done++;
        struct link_answer *answer = &link->answers[done % LINK_STEPS];
        run->step = link->steps[done % LINK_STEPS];
        const char *refused = run->step.number != done ? "number" : step_run(run, answer->logits);
        memset(answer->refused, 0, sizeof answer->refused);
        memcpy(answer->refused, refused, strnlen(refused, sizeof answer->refused - 1));
        answer->number = done;
        link_tell(&link->done, done);
    }
}

int cmd_steps(int argc, char **argv)
{
    static struct steps_run run; /* large, and once in a program */
    struct error err = {0};
    const char *dir = NULL;
    int32_t threads = 0;
    struct model_options options = {0};
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &dir, .required = true},
        {"--isa", FLAG_ISA, &options.isa, .required = false},
        {"--threads", FLAG_NUMBER, &threads, .required = false},
    };
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, &err);
    options.threads = threads;
    if (status == OK)
        status = link_take(&run, &err);
    if (status == OK)
        status = load(&run, dir, &options, &err);
    if (status == OK) {
        link_tell(&run.link->state, LINK_READY);
        serve(&run); /* until the engine ends it */
    }
    fprintf(stderr, "engine steps: %s\n", err.text);
    if (run.link != NULL) {
        memcpy(run.link->reason, err.text, sizeof run.link->reason);
        link_tell(&run.link->state, LINK_FAILED);
    }
    for (int32_t i = 0; i < run.head.slots && i < LINK_SEGMENTS_MAX; i++)
        sequence_destroy(run.sequences[i]);
    model_close(run.model);
    link_unmap(run.link);
    return status_exit_code(status);
}
