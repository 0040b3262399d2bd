/*
 * The laboratory: every call is one piece of work that first sets aside what the traffic has
 * witnessed, then runs under its own profile and perturbation, and takes both away again.
 */
#include "engine/precision/lab.h"

#include "kernels/check.h"

#include <string.h>
#include <time.h>

struct call {
    struct lab *lab;
    const struct lab_under *under;
    const void *what;
    int n;
    void (*run)(struct call *call, struct model *model);
    struct sequence *sequence; /* made or to be destroyed */
    engine_work_fn *work;
    void *user; /* borrows, of `work` */
};

/* On the engine thread. */
static void call_run(void *user, struct model *model)
{
    struct call *call = user;
    struct lab *lab = call->lab;
    struct witness_table table;
    if (!lab->begun)
        lab->life = model_life(model);
    lab->begun = true;
    if (lab->life != model_life(model) || model_lost(model) != NULL) {
        lab->gone = true;
        return;
    }
    model_witness(model, &table);
    witness_add(&lab->traffic, &table);
    if (call->under != NULL)
        model_perturb(model, call->under->perturbation);
    double begin = model_seconds(model);
    call->run(call, model);
    lab->seconds += model_seconds(model) - begin;
    if (call->under != NULL)
        model_perturb(model, NULL);
    model_witness(model, &table);
    witness_add(&lab->seen, &table);
    lab->gone = lab->gone || model_lost(model) != NULL;
}

static bool call_host(struct call *call)
{
    struct lab *lab = call->lab;
    if (!lab->gone && !lab->run(lab->host, call_run, call))
        lab->gone = true;
    return !lab->gone;
}

/* ---- opening -------------------------------------------------------------------------------- */

static bool run_between(void *host, engine_work_fn *work, void *user)
{
    return engine_between_steps(host, work, user);
}

static bool run_here(void *host, engine_work_fn *work, void *user)
{
    work(user, host);
    return true;
}

void lab_open_engine(struct lab *lab, struct engine *engine)
{
    *lab = (struct lab){.run = run_between,
                        .host = engine,
                        .config = engine_model_config(engine),
                        .step_tokens = engine_step_tokens(engine)};
}

void lab_open_model(struct lab *lab, struct model *model)
{
    *lab = (struct lab){.run = run_here,
                        .host = model,
                        .config = model_config(model),
                        .step_tokens = model_step_tokens(model)};
}

void lab_begin(struct lab *lab)
{
    lab->gone = lab->begun = false;
}

void lab_forget(struct lab *lab)
{
    lab->seen = (struct witness_table){0};
}

static void work_run(struct call *call, struct model *model)
{
    call->work(call->user, model);
}

bool lab_work(struct lab *lab, engine_work_fn *work, void *user)
{
    struct call call = {.lab = lab, .run = work_run, .work = work, .user = user};
    return call_host(&call);
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void make(struct call *call, struct model *model)
{
    struct error err;
    if (sequence_create_mixed(model, call->n, &call->sequence, &err) != OK)
        call->sequence = NULL;
}

struct sequence *lab_sequence_create(struct lab *lab, int32_t tokens_max)
{
    struct call call = {.lab = lab, .n = tokens_max, .run = make};
    call_host(&call);
    return call.sequence;
}

static void destroy(void *user, struct model *model)
{
    (void)model;
    sequence_destroy(user);
}

void lab_sequence_destroy(struct lab *lab, struct sequence *sequence)
{
    /* Also when the network is gone: the engine goes on without it. */
    if (sequence != NULL && !lab->run(lab->host, destroy, sequence))
        sequence_destroy(sequence); /* the engine's thread has ended: nobody else calls */
}

static void reset(struct call *call, struct model *model)
{
    (void)model;
    sequence_reset(call->sequence);
}

void lab_sequence_reset(struct lab *lab, struct sequence *sequence)
{
    struct call call = {.lab = lab, .run = reset, .sequence = sequence};
    call_host(&call);
}

/* ---- computing ------------------------------------------------------------------------------ */

static void step(struct call *call, struct model *model)
{
    const struct segment *segments = call->what;
    for (int i = 0; i < call->n; i++)
        sequence_crossover(segments[i].sequence, NULL);
    model_step(model, call->under->profile, segments, call->n);
}

bool lab_step(struct lab *lab, const struct lab_under *under, const struct segment *segments,
              int n_segments)
{
    struct call call = {.lab = lab, .under = under, .what = segments, .n = n_segments, .run = step};
    return call_host(&call);
}

static void draft(struct call *call, struct model *model)
{
    const struct draft_segment *segment = call->what;
    if (call->n >= 0)
        sequence_draft_rewind(segment->sequence, call->n);
    sequence_crossover(segment->sequence, NULL);
    model_draft(model, call->under->profile, segment, 1);
}

bool lab_draft(struct lab *lab, const struct lab_under *under, const struct draft_segment *segment,
               int32_t rewind)
{
    struct call call = {.lab = lab, .under = under, .what = segment, .n = rewind, .run = draft};
    return call_host(&call);
}

static void layer(struct call *call, struct model *model)
{
    const struct lab_layer *rows = call->what;
    size_t width = (size_t)HC_MULT * (size_t)call->lab->config->hidden_size;
    bool other = false;
    if (rows->rewind >= 0)
        sequence_rewind(rows->sequence, rows->rewind);
    sequence_crossover(rows->sequence, NULL);
    for (int32_t row = 0; row < rows->n && !other; row += rows->step) {
        size_t at = (size_t)row * width;
        model_layer(model, call->under->profile, rows->sequence, rows->layer, rows->leg,
                    rows->ids + row, rows->step, rows->in + at, rows->out + at);
        other = rows->until != NULL && memcmp(rows->until + at, rows->out + at,
                                              (size_t)rows->step * width * sizeof(float)) != 0;
    }
}

bool lab_layer(struct lab *lab, const struct lab_under *under, const struct lab_layer *rows)
{
    struct call call = {.lab = lab, .under = under, .what = rows, .run = layer};
    return call_host(&call);
}

static void experts(struct call *call, struct model *model)
{
    const struct lab_experts *rows = call->what;
    model_moe(model, call->under->profile, rows->block, rows->leg, rows->ids, rows->n, rows->in,
              rows->out);
}

bool lab_experts(struct lab *lab, const struct lab_under *under, const struct lab_experts *rows)
{
    struct call call = {.lab = lab, .under = under, .what = rows, .run = experts};
    return call_host(&call);
}

/* ---- inputs --------------------------------------------------------------------------------- */

/* SplitMix64: a stream of 64-bit numbers that depends on the seed and the place alone. */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

void lab_noise(float *out, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        /* Four 16-bit numbers: their sum is bell-shaped, with a variance of 4 / 12. */
        uint64_t bits = mix(mix(seed) + i);
        double sum = 0;
        for (int part = 0; part < 4; part++)
            sum += (double)(bits >> 16 * part & 0xFFFF) / 65536 - 0.5;
        out[i] = (float)(sum * 1.7320508075688772);
    }
}

void lab_ids(int32_t *out, size_t n, int32_t vocab_size, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)(mix(mix(seed) + i) % (uint64_t)vocab_size);
}
