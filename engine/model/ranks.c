/*
 * Opening the ranks that compute a network of this process together: which tensor is cut how, and a
 * backend for each.  Knows no operation.
 */
#include "kernels/ranks.h"
#include "engine/model/network.h"
#include "engine/model/tensors.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* What weights_visit is asked for. */
struct listing {
    struct model *model;
    struct ranks_tensor *tensors; /* owns; NULL: they are counted */
    int32_t n;
};

/* A tensor's name without the block that it belongs to. */
static const char *name_of(const struct weight_spec *spec)
{
    const char *name = spec->name;
    int words = spec->scope == SCOPE_GLOBAL ? 0 : spec->scope == SCOPE_EXPERT ? 5 : 2;
    for (int i = 0; i < words; i++) { /* "layers.0.", and "ffn.experts.7." behind it */
        name = strchr(name, '.');
        ASSERT(name != NULL);
        name++;
    }
    return name;
}

static enum status list_tensor(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct listing *listing = user;
    struct model *m = listing->model;
    enum slice_axis axis = slice_axis_of(name_of(spec));
    if (axis == SLICE_NONE || spec->scope == SCOPE_EXPERT)
        return OK;
    const struct tensor *tensor =
        weight_member((struct model_weights *)m->weights, m->config, spec);
    if (listing->tensors != NULL)
        listing->tensors[listing->n] = (struct ranks_tensor){tensor->data, axis};
    listing->n++;
    return OK;
}

static enum status add_bytes(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct stored_tensor stored[STORED_MAX];
    uint64_t *bytes = user;
    for (int i = weight_stored(spec, stored) - 1; i >= 0; i--)
        *bytes += stored[i].bytes;
    return OK;
}

/* How many ranks there are, where the options do not say. */
static int32_t ranks_find(const struct model_options *options, const struct model_config *config)
{
    struct error err;
    uint64_t bytes = 0;
    enum status status = weights_visit(config, add_bytes, &bytes, &err);
    ASSERT(status == OK); /* nothing there fails */
    return model_backend_ranks(options, bytes);
}

/* What a rank's thread is asked to open. */
struct opening {
    const struct model_options *options;
    const struct backend_limits *limits;
    struct error err[RANKS_MAX];
    enum status status[RANKS_MAX];
};

static struct backend *open_rank(void *user, int32_t rank)
{
    struct opening *o = user;
    struct backend *backend = NULL;
    o->status[rank] = model_backend_open(o->options, rank, o->limits, &backend, &o->err[rank]);
    return backend;
}

static enum status refusal(const struct opening *o, int32_t ranks, struct error *err)
{
    for (int32_t i = 0; i < ranks; i++) {
        if (o->status[i] != OK)
            return error_set(err, o->status[i], "rank %d: %.400s", (int)i, o->err[i].text);
    }
    return error_set(err, ERR_CAPACITY, "no memory or threads for %d ranks", (int)ranks);
}

/* Less than whoever waits for the step: they are told which rank it is. */
static uint32_t rank_limit(const struct model_options *options)
{
    uint32_t step = options->worker_step_ms > 0 ? (uint32_t)options->worker_step_ms
                                                : WORKER_STEP_SECONDS * 1000;
    return step / 4 * 3;
}

enum status model_ranks_open(const struct model_options *options,
                             const struct backend_limits *limits, struct model *m,
                             struct error *err)
{
    if (options->ranks < 0 || options->ranks > RANKS_MAX)
        return error_set(err, ERR_USAGE, "--ranks: 1 to %d", RANKS_MAX);
    struct model_options all = *options;
    if (all.ranks == 0)
        all.ranks = ranks_find(options, m->config);
    m->ranks = all.ranks;
    if (all.ranks == 1)
        return model_backend_open(&all, 0, limits, &m->backend, err);
    struct listing listing = {.model = m};
    struct opening *opening = calloc(1, sizeof *opening);
    enum status status = weights_visit(m->config, list_tensor, &listing, err);
    ASSERT(status == OK && opening != NULL); /* nothing there fails */
    listing.tensors = calloc((size_t)listing.n, sizeof *listing.tensors);
    ASSERT(listing.tensors != NULL);
    listing.n = 0;
    status = weights_visit(m->config, list_tensor, &listing, err);
    opening->options = &all;
    opening->limits = limits;
    m->backend = backend_ranks_create(&(struct ranks_plan){.ranks = all.ranks,
                                                           .limits = *limits,
                                                           .blocks = model_blocks(m->config),
                                                           .limit_ms = rank_limit(options),
                                                           .tensors = listing.tensors,
                                                           .n_tensors = listing.n,
                                                           .open = open_rank,
                                                           .user = opening});
    if (m->backend == NULL)
        status = refusal(opening, all.ranks, err);
    free(listing.tensors);
    free(opening);
    return status;
}
