/*
 * `engine steps`, `worker steps`: the worker's side of the link (kernels/link.h).  Loads the model,
 * then does what the engine posts until that is gone.  Checks every step before it runs: what
 * network.h asserts is refused here, by the name of the field.  Knows no text, no requests, no
 * sockets.
 */
#include "engine/commands.h"
#include "engine/model/network.h"
#include "engine/model/options.h"
#include "kernels/check.h"
#include "kernels/fault.h"
#include "kernels/link.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct steps_run {
    struct link *link;   /* owns */
    struct model *model; /* owns */
    struct link_head head;
    struct sequence *sequences[LINK_TIMELINES]; /* own; NULL: there is none */
    struct snapshots *pools[LINK_POOLS];        /* own; NULL: there is none */
    struct link_limits limits;
    struct link_step step; /* what is checked and run: the engine cannot write here */
    struct profile profile;
    const float *given; /* what came along with the step */
    float *numbers;     /* where its answer goes */
    const struct link_picks *asked;
    struct link_choice *choices;
    struct pick picks[LINK_PICKS];
    struct token_said *said; /* owns; [LINK_PICKS, vocab]: the engine cannot write here */
    int32_t n_picks;
};

/* ---- the end -------------------------------------------------------------------------------- */

/* Why this process ends, where the engine will look for it. */
static void last_words(void *user, const char *line)
{
    struct link *link = user;
    size_t n = strnlen(line, sizeof link->reason - 1);
    memcpy(link->reason, line, n);
    link->reason[n] = '\0';
}

/* ---- loading -------------------------------------------------------------------------------- */

static enum status link_take(struct steps_run *run, struct error *err)
{
    const char *wrong;
    /* Whatever else the engine had open is not for this program. */
    if (syscall(SYS_close_range, LINK_FD + 1, UINT_MAX, 0) != 0)
        return error_set(err, ERR_IO, "descriptors: %s", strerror(errno));
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
    const char *variant = model_isa_name(run->model);
    run->said = calloc((size_t)LINK_PICKS * (size_t)config->vocab_size, sizeof *run->said);
    if (run->said == NULL)
        return error_set(err, ERR_CAPACITY, "steps: no memory for penalties");
    ASSERT(config->vocab_size <= LINK_VOCAB_MAX && strlen(config->name) < LINK_FIELD_BYTES &&
           strlen(variant) < LINK_FIELD_BYTES);
    run->limits.vocab = config->vocab_size;
    run->limits.layers = config->num_hidden_layers;
    run->limits.step_tokens = run->model->step_tokens;
    run->limits.drafts = config->num_nextn_predict_layers > 0;
    memcpy(run->link->config, config->name, strlen(config->name) + 1);
    memcpy(run->link->variant, variant, strlen(variant) + 1);
    run->link->packs = run->model->packs;
    run->link->ranks = run->model->ranks;
    run->link->gpus = model_backend_gpus();
    run->link->step_tokens = (uint32_t)run->model->step_tokens;
    return OK;
}

/* ---- picks ---------------------------------------------------------------------------------- */

/* @return false: one is outside the vocabulary */
static bool said_take(const struct link_said *from, int32_t n, int32_t vocab, struct token_said *to)
{
    for (int32_t i = 0; i < n; i++) {
        to[i] = (struct token_said){from[i].id, from[i].count};
        if (to[i].id < 0 || to[i].id >= vocab || to[i].count < 0)
            return false;
    }
    return true;
}

/* Takes over pick i of the step.  @return what is wrong with it; NULL: nothing */
static const char *pick_take(struct steps_run *run, int32_t i)
{
    struct link_pick p = run->asked->picks[i];
    struct token_said *said = run->said + (int64_t)i * run->limits.vocab;
    struct error err;
    const char *wrong = link_pick_wrong(&p, run->limits.vocab);
    if (wrong != NULL)
        return wrong;
    run->picks[i] = (struct pick){.sampling = {.temperature = p.temperature,
                                               .top_p = p.top_p,
                                               .min_p = p.min_p,
                                               .top_k = p.top_k,
                                               .seed = p.seed,
                                               .presence_penalty = p.presence_penalty,
                                               .frequency_penalty = p.frequency_penalty,
                                               .repetition_penalty = p.repetition_penalty},
                                  .position = p.position,
                                  .allowed = p.masked != 0 ? run->asked->allowed[i] : NULL,
                                  .said = said,
                                  .n_said = p.n_said,
                                  .logprobs = p.n_top >= 0,
                                  .n_top = p.n_top >= 0 ? p.n_top : 0};
    if (sampling_check(&run->picks[i].sampling, &err) != OK)
        return "sampling";
    return said_take(run->asked->said[i], p.n_said, run->limits.vocab, said) ? NULL : "said";
}

static const char *picks_take(struct steps_run *run)
{
    int32_t n = 0;
    const char *wrong = NULL;
    for (int32_t i = 0; i < run->step.n_segments; i++)
        n += run->step.segments[i].n_picks;
    for (int32_t i = 0; i < n && wrong == NULL; i++)
        wrong = pick_take(run, i);
    run->n_picks = n;
    return wrong;
}

static void picks_tell(const struct steps_run *run)
{
    for (int32_t i = 0; i < run->n_picks; i++) {
        const struct pick *pick = &run->picks[i];
        struct link_choice *c = &run->choices[i];
        c->id = pick->id;
        c->n_top = pick->told.n_top;
        c->logprob = pick->told.chosen;
        for (int32_t k = 0; k < pick->told.n_top; k++) {
            c->top_ids[k] = pick->told.top[k].id;
            c->top_logprobs[k] = pick->told.top[k].logprob;
        }
    }
}

/* ---- tokens and rows ------------------------------------------------------------------------ */

static float *wanted(const struct steps_run *run, const struct link_segment *g, enum link_flag how,
                     int32_t *row)
{
    float *at = run->numbers + (int64_t)*row * run->limits.vocab;
    if ((g->flags & how) == 0)
        return NULL;
    *row += how == LINK_WANT_ALL ? g->n : 1;
    return at;
}

static void run_step(struct steps_run *run)
{
    struct segment segments[LINK_TIMELINES];
    int32_t row = 0, taken = 0, picked = 0;
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        segments[i] = (struct segment){.sequence = run->sequences[g->timeline],
                                       .ids = run->step.ids + taken,
                                       .n = g->n,
                                       .logits_last = wanted(run, g, LINK_WANT_LAST, &row),
                                       .logits_all = wanted(run, g, LINK_WANT_ALL, &row),
                                       .picks = run->picks + picked,
                                       .n_picks = g->n_picks,
                                       .leg = (enum leg)g->leg};
        taken += g->n;
        picked += g->n_picks;
    }
    model_step(run->model, &run->profile, segments, run->step.n_segments);
}

static void run_draft(struct steps_run *run)
{
    struct draft_segment segments[LINK_TIMELINES];
    int32_t row = 0, taken = 0, picked = 0;
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        segments[i] = (struct draft_segment){.sequence = run->sequences[g->timeline],
                                             .next_ids = run->step.ids + taken,
                                             .n = g->n,
                                             .logits_last = wanted(run, g, LINK_WANT_LAST, &row),
                                             .logits_all = wanted(run, g, LINK_WANT_ALL, &row),
                                             .pick = g->n_picks > 0 ? run->picks + picked : NULL,
                                             .beyond = g->beyond};
        taken += g->n;
        picked += g->n_picks;
    }
    model_draft(run->model, &run->profile, segments, run->step.n_segments);
}

static void run_layer(struct steps_run *run)
{
    const struct link_segment *g = &run->step.segments[0];
    model_layer(run->model, &run->profile, run->sequences[g->timeline], run->step.block,
                (enum leg)g->leg, run->step.ids, g->n, run->given, run->numbers);
}

static void run_experts(struct steps_run *run)
{
    model_moe(run->model, &run->profile, run->step.block, (enum leg)run->step.leg, run->step.ids,
              run->step.n_ids, run->given, run->numbers);
}

static void run_witness(struct steps_run *run)
{
    struct witness_table table;
    model_witness(run->model, &table);
    memcpy(run->numbers, &table, sizeof table);
}

/* ---- timelines and pieces ------------------------------------------------------------------- */

static void run_close(struct steps_run *run)
{
    int32_t number = run->step.segments[0].timeline;
    sequence_destroy(run->sequences[number]);
    run->sequences[number] = NULL;
    run->limits.timelines[number].room = 0;
}

static void run_reset(struct steps_run *run)
{
    sequence_reset(run->sequences[run->step.segments[0].timeline]);
}

static void run_pool_close(struct steps_run *run)
{
    snapshots_destroy(run->pools[run->step.pool]);
    run->pools[run->step.pool] = NULL;
    run->limits.pools[run->step.pool].n_blocks = 0;
}

static void run_save(struct steps_run *run)
{
    const struct sequence *sequence = run->sequences[run->step.segments[0].timeline];
    (run->step.tail != 0 ? snapshot_save_tail : snapshot_save_block)(
        run->pools[run->step.pool], run->step.piece, sequence, run->step.at);
}

static void run_load(struct steps_run *run)
{
    (run->step.tail != 0 ? snapshot_load_tail : snapshot_load_block)(
        run->pools[run->step.pool], run->step.piece, run->sequences[run->step.segments[0].timeline],
        run->step.at);
}

static void run_get(struct steps_run *run)
{
    (run->step.tail != 0 ? snapshot_get_tail : snapshot_get_block)(
        run->pools[run->step.pool], run->step.piece, &run->profile, run->numbers);
}

static void run_put(struct steps_run *run)
{
    (run->step.tail != 0 ? snapshot_put_tail : snapshot_put_block)(
        run->pools[run->step.pool], run->step.piece, &run->profile, run->given);
}

static void (*const RUNS[LINK_KINDS])(struct steps_run *run) = {
    [LINK_STEP] = run_step,
    [LINK_DRAFT] = run_draft,
    [LINK_LAYER] = run_layer,
    [LINK_EXPERTS] = run_experts,
    [LINK_CLOSE] = run_close,
    [LINK_RESET] = run_reset,
    [LINK_POOL_CLOSE] = run_pool_close,
    [LINK_SAVE] = run_save,
    [LINK_LOAD] = run_load,
    [LINK_GET] = run_get,
    [LINK_PUT] = run_put,
    [LINK_WITNESS] = run_witness,
};

/* ---- one step ------------------------------------------------------------------------------- */

/* The two that the machine can refuse.  @return "": it is made */
static const char *open_timeline(struct steps_run *run)
{
    int32_t number = run->step.segments[0].timeline;
    struct error err;
    if ((run->step.mixed != 0 ? sequence_create_mixed : sequence_create)(
            run->model, run->step.room, &run->sequences[number], &err) != OK)
        return LINK_NO_MEMORY;
    run->limits.timelines[number] = (struct link_timeline){.room = run->step.room};
    return "";
}

static const char *open_pool(struct steps_run *run)
{
    const struct link_step *s = &run->step;
    struct error err;
    if (snapshots_create(run->model, s->n_blocks, s->n_tails, &run->pools[s->pool], &err) != OK)
        return LINK_NO_MEMORY;
    run->limits.pools[s->pool] = (struct link_pool){s->n_blocks, s->n_tails};
    return "";
}

/* Brings the timelines to where the engine has them.  @return the field that keeps the step from
 * running: state that another profile made serves nobody else; "": none */
static const char *bring(struct steps_run *run, const struct perturbation *perturbation)
{
    bool feeds =
        run->step.kind == LINK_STEP || run->step.kind == LINK_DRAFT || run->step.kind == LINK_LAYER;
    uint64_t hash = numerics_hash(&run->profile, perturbation);
    for (int32_t i = 0; i < run->step.n_segments; i++) {
        const struct link_segment *g = &run->step.segments[i];
        struct sequence *s = run->sequences[g->timeline];
        if ((g->flags & LINK_CROSSOVER) != 0)
            sequence_crossover(s, NULL);
        if (feeds && sequence_profile_hash(s) != 0 && sequence_profile_hash(s) != hash)
            return "values: another profile's state";
        if (g->drafted < sequence_draft_length(s))
            sequence_draft_rewind(s, g->drafted);
        sequence_rewind(s, g->length);
        sequence_draft_skip(s, g->drafted);
        if (feeds && !state_takes(s, &run->profile))
            return "values: another form of state";
        if (run->step.kind == LINK_LOAD &&
            !piece_fits(run->pools[run->step.pool], run->step.tail != 0, run->step.piece, s))
            return "piece: another form of state";
    }
    return "";
}

static const char *step_perform(struct steps_run *run)
{
    const struct link_perturbation *p = &run->step.perturbation;
    const struct perturbation perturbation = {p->clamp_limit,           p->routed_factor,
                                              p->routed_zero != 0,      p->index_topk,
                                              p->rotate_keys_only != 0, p->hc_transposed != 0};
    if (run->step.kind == LINK_OPEN)
        return open_timeline(run);
    if (run->step.kind == LINK_POOL_OPEN)
        return open_pool(run);
    run->profile = *profile_builtin_at(PROFILE_REFERENCE);
    for (int row = 0; row < (int)PRECISION_ROWS; row++)
        ASSERT(profile_set(&run->profile, (enum precision_row)row, run->step.values[row]));
    const char *wrong = bring(run, &perturbation);
    if (wrong[0] != '\0')
        return wrong;
    model_perturb(run->model, &perturbation);
    RUNS[run->step.kind](run);
    return "";
}

/* @return the field that keeps the step from running; "": it has run */
static const char *step_run(struct steps_run *run)
{
    for (int32_t i = 0; i < LINK_TIMELINES; i++) {
        if (run->sequences[i] == NULL)
            continue;
        run->limits.timelines[i].length = sequence_length(run->sequences[i]);
        run->limits.timelines[i].drafted = sequence_draft_length(run->sequences[i]);
    }
    const char *wrong = link_step_wrong(&run->step, &run->limits);
    if (wrong == NULL)
        wrong = picks_take(run);
    if (wrong == NULL)
        wrong = step_perform(run);
    if (wrong[0] == '\0')
        picks_tell(run);
    return wrong;
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
        run->given = link->given[done % LINK_STEPS].numbers;
        run->numbers = answer->numbers;
        run->asked = &link->picks[done % LINK_STEPS];
        run->choices = answer->choices;
        const char *refused = run->step.number != done ? "number" : step_run(run);
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
    int32_t threads = 0, ranks = 0;
    struct model_options options = {0};
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &dir, .required = true},
        {"--isa", FLAG_ISA, &options.isa, .required = false},
        {"--threads", FLAG_NUMBER, &threads, .required = false},
        {"--ranks", FLAG_NUMBER, &ranks, .required = false},
        {"--weights", FLAG_TEXT, &options.weights, .required = false},
        {"--gpu", FLAG_NUMBER, &options.gpu, .required = false},
        {"--group", FLAG_NUMBER, &options.group, .max = GROUPS_MAX - 1},
        {"--apart", FLAG_SWITCH, &options.apart, .required = false},
        {"--step-ms", FLAG_NUMBER, &options.worker_step_ms, .required = false},
    };
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, &err);
    options.threads = threads;
    options.ranks = ranks;
    if (status == OK)
        status = link_take(&run, &err);
    if (status == OK) {
        fault_tell(last_words, run.link);
        status = load(&run, dir, &options, &err);
    }
    if (status == OK) {
        options.ranks = run.model->ranks;
        model_backend_watch(&options, &run.link->board);
        link_tell(&run.link->state, LINK_READY);
        serve(&run); /* until the engine ends it */
    }
    fprintf(stderr, "engine steps: %s\n", err.text);
    if (run.link != NULL) {
        memcpy(run.link->reason, err.text, sizeof run.link->reason);
        link_tell(&run.link->state, LINK_FAILED);
    }
    model_close(run.model);
    free(run.said);
    link_unmap(run.link);
    return status_exit_code(status);
}
