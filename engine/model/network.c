/*
 * The network that callers see: checks what they ask for, keeps account of lengths and of whose
 * state is whose, and lets this process compute or a worker.  Knows neither arithmetic nor links.
 */
#include "engine/model/network.h"

#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A draft block that is a window behind, behind a step that is taken back by a window. */
_Static_assert(STREAM_SLOTS > 2 * SLIDING_WINDOW, "the streams that are needed are still there");

/* ---- a network of this process -------------------------------------------------------------- */

static const char *local_lost(const struct model *m)
{
    (void)m;
    return NULL;
}

static bool local_recover(struct model *m)
{
    (void)m;
    return true;
}

/* Processor time: what else the machine does counts neither for nor against a profile. */
static double local_seconds(const struct model *m)
{
    (void)m;
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void local_witness(struct model *m, struct witness_table *out)
{
    m->backend->ops->witness_read(m->backend, out);
}

static const struct network_ops LOCAL = {
    .close = local_close,
    .lost = local_lost,
    .recover = local_recover,
    .seconds = local_seconds,
    .witness = local_witness,
    .reserve = local_reserve,
    .release = local_release,
    .clear = local_clear,
    .step = local_step,
    .draft = local_draft,
    .rows = local_rows,
    .pool_reserve = local_pool_reserve,
    .pool_release = local_pool_release,
    .piece = local_piece,
};

/* ---- opening -------------------------------------------------------------------------------- */

static const char *const ISA_NAMES[] = {
    [ISA_AUTO] = "auto",
    [ISA_BASELINE] = "baseline",
    [ISA_AVX2] = "avx2",
    [ISA_AVX512] = "avx512",
};

const char *isa_name(enum isa isa)
{
    return ISA_NAMES[isa];
}

_Bool isa_parse(const char *name, enum isa *out)
{
    for (size_t i = 0; i < sizeof ISA_NAMES / sizeof *ISA_NAMES; i++) {
        if (strcmp(name, ISA_NAMES[i]) == 0) {
            *out = (enum isa)i;
            return true;
        }
    }
    return false;
}

enum status model_open(const char *dir, const struct model_options *options, struct model **out,
                       struct error *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return error_set(err, ERR_CAPACITY, "model: out of memory");
    m->ops = &LOCAL;
    enum status status = options->worker == NULL ? local_open(dir, options, m, err)
                                                 : remote_network_open(dir, options, m, err);
    if (status != OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return OK;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    m->ops->close(m);
    free(m);
}

const struct model_config *model_config(const struct model *m)
{
    return m->config;
}

int32_t model_step_tokens(const struct model *m)
{
    return m->step_tokens;
}

const char *model_isa_name(const struct model *m)
{
    return m->variant;
}

const char *model_lost(const struct model *m)
{
    return m->ops->lost(m);
}

_Bool model_recover(struct model *m)
{
    return m->ops->recover(m);
}

uint32_t model_life(const struct model *m)
{
    return m->remote == NULL ? 0 : remote_network_life(m->remote);
}

int model_starts_failed(const struct model *m)
{
    return m->remote == NULL ? 0 : remote_network_starts_failed(m->remote);
}

int model_worker(const struct model *m)
{
    return m->remote == NULL ? 0 : remote_network_process(m->remote);
}

int32_t model_ranks(const struct model *m)
{
    return m->ranks;
}

int32_t model_gpus(const struct model *m)
{
    return m->remote == NULL ? model_backend_gpus() : remote_network_gpus(m->remote);
}

_Bool model_gauges(const struct model *m, struct gauges *out)
{
    return m->remote != NULL && remote_network_gauges(m->remote, out);
}

_Bool model_pages(const struct model *m, struct pages_stats *out)
{
    if (m->pages == NULL)
        return false;
    pages_stats_get(m->pages, out);
    return true;
}

double model_seconds(const struct model *m)
{
    return m->ops->seconds(m);
}

void model_witness(struct model *m, struct witness_table *out)
{
    m->ops->witness(m, out);
}

void model_perturb(struct model *m, const struct perturbation *perturbation)
{
    m->perturbation = perturbation == NULL ? (struct perturbation){0} : *perturbation;
}

void model_trace_set(struct model *m, model_trace_fn *fn, void *user)
{
    m->trace = fn; /* a network in another process never calls it */
    m->trace_user = user;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static enum status create(const struct model *model, int32_t tokens_max, bool mixed,
                          struct sequence **out, struct error *err)
{
    if (tokens_max < 1 || tokens_max > POSITIONS_MAX)
        return error_set(err, ERR_CAPACITY, "sequence: %d tokens; 1 to %d are possible",
                         (int)tokens_max, POSITIONS_MAX);
    struct sequence *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_CAPACITY, "sequence: out of memory");
    s->model = model;
    s->tokens_max = tokens_max;
    s->mixed = mixed;
    s->bytes = state_bytes(s, (struct state_format){ENTRY_F32, ENTRY_F32});
    if (!model->ops->reserve(s)) {
        size_t bytes = s->bytes;
        free(s);
        return error_set(err, ERR_CAPACITY, "sequence: no memory for %d tokens (%zu bytes)",
                         (int)tokens_max, bytes);
    }
    *out = s;
    return OK;
}

enum status sequence_create(const struct model *model, int32_t tokens_max, struct sequence **out,
                            struct error *err)
{
    return create(model, tokens_max, false, out, err);
}

enum status sequence_create_mixed(const struct model *model, int32_t tokens_max,
                                  struct sequence **out, struct error *err)
{
    return create(model, tokens_max, true, out, err);
}

void sequence_destroy(struct sequence *s)
{
    if (s == NULL)
        return;
    s->model->ops->release(s);
    free(s);
}

void sequence_reset(struct sequence *s)
{
    s->model->ops->clear(s);
    s->length = s->draft_length = 0;
    s->profile_hash = 0;
    s->crossed = false;
}

uint64_t sequence_profile_hash(const struct sequence *s)
{
    return s->profile_hash;
}

void sequence_crossover(struct sequence *s, const struct profile *profile)
{
    s->profile_hash = profile == NULL ? 0 : profile->hash;
    s->crossed = true;
}

void sequence_rewind(struct sequence *s, int32_t length)
{
    ASSERT(length >= s->draft_length && length <= s->length);
    ASSERT(s->length - length <= SLIDING_WINDOW);
    sequence_pages_forget(s, length, s->length);
    s->length = length;
}

int32_t sequence_length(const struct sequence *s)
{
    return s->length;
}

int32_t sequence_draft_length(const struct sequence *s)
{
    return s->draft_length;
}

void sequence_draft_rewind(struct sequence *s, int32_t length)
{
    ASSERT(length >= 0 && length <= s->draft_length);
    ASSERT(s->draft_length - length <= SLIDING_WINDOW);
    s->draft_length = length;
}

void sequence_draft_skip(struct sequence *s, int32_t length)
{
    ASSERT(length >= s->draft_length && length <= s->length);
    s->draft_length = length;
}

uint64_t sequence_bytes(const struct sequence *s)
{
    return s->bytes;
}

const int32_t *sequence_pages(const struct sequence *s)
{
    return s->pages;
}

uint64_t sequence_bytes_under(const struct model *model, const struct profile *profile,
                              int32_t tokens)
{
    const struct sequence s = {.model = model, .tokens_max = tokens};
    return state_bytes(&s, state_format_of(model, profile));
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Nobody reads what another profile wrote. */
static void claim(struct model *m, const struct profile *profile, struct sequence *s)
{
    uint64_t hash = numerics_hash(profile, &m->perturbation);
    if (s->length == 0)
        state_lay_out(s, state_format_of(m, profile));
    ASSERT(state_takes(s, profile)); /* only a mixed timeline is handed from one to another */
    ASSERT(s->profile_hash == 0 || s->profile_hash == hash);
    s->profile_hash = hash;
}

static void advance(struct sequence *s, int32_t n)
{
    s->length += n;
    s->crossed = false;
}

void model_step(struct model *m, const struct profile *profile, const struct segment *segments,
                int n_segments)
{
    for (int i = 0; i < n_segments; i++) {
        ASSERT(segments[i].n_picks >= 0 && segments[i].n_picks <= segments[i].n &&
               segments[i].n_picks <= PICKS_MAX);
        claim(m, profile, segments[i].sequence);
    }
    m->ops->step(m, profile, segments, n_segments);
    for (int i = 0; i < n_segments; i++)
        advance(segments[i].sequence, segments[i].n);
}

void model_draft(struct model *m, const struct profile *profile,
                 const struct draft_segment *segments, int n_segments)
{
    ASSERT(m->config->num_nextn_predict_layers == 1);
    for (int i = 0; i < n_segments; i++) {
        const struct draft_segment *g = &segments[i];
        const struct sequence *s = g->sequence;
        ASSERT(g->beyond == 0 ? g->n <= s->length - s->draft_length
                              : g->n == 1 && s->length == s->draft_length);
        ASSERT(s->length - s->draft_length <= STREAM_SLOTS);
        claim(m, profile, g->sequence);
    }
    m->ops->draft(m, profile, segments, n_segments);
    for (int i = 0; i < n_segments; i++) {
        segments[i].sequence->draft_length += segments[i].beyond == 0 ? segments[i].n : 0;
        segments[i].sequence->crossed = false;
    }
}

void model_layer(struct model *m, const struct profile *profile, struct sequence *sequence,
                 int32_t layer, enum leg leg, const int32_t *ids, int32_t n, const float *in,
                 float *out)
{
    ASSERT(layer >= 0 && layer < m->config->num_hidden_layers && n >= 1 && n <= SPAN_TOKENS_MAX);
    size_t width = (size_t)HC_MULT * (size_t)m->config->hidden_size;
    claim(m, profile, sequence);
    m->ops->rows(m, profile, &(struct layer_rows){sequence, layer, leg, ids, n, width, in, out});
    advance(sequence, n);
}

void model_moe(struct model *m, const struct profile *profile, int32_t block, enum leg leg,
               const int32_t *ids, int32_t n, const float *in, float *out)
{
    ASSERT(block >= 0 && block < model_blocks(m->config) && n >= 1 && n <= SPAN_TOKENS_MAX);
    m->ops->rows(
        m, profile,
        &(struct layer_rows){NULL, block, leg, ids, n, (size_t)m->config->hidden_size, in, out});
}
