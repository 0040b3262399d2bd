/*
 * Sequences: the memory of a token timeline (model.md 2.9).  Appending only; nothing of a step is
 * ever taken back, and what is visible follows from the length alone.  Knows no arithmetic.
 */
#include "engine/model/network.h"
#include "kernels/check.h"

#include <stdlib.h>

/* A draft block that is a window behind, behind a step that is taken back by a window. */
_Static_assert(STREAM_SLOTS > 2 * SLIDING_WINDOW, "the streams that are needed are still there");

void *carve_take(struct carve *carve, int64_t count, size_t size)
{
    ASSERT(count >= 0 && (uint64_t)count <= SIZE_MAX / 2 / size);
    void *at = carve->base == NULL ? NULL : carve->base + carve->used;
    carve->used += ((size_t)count * size + 63) / 64 * 64; /* vectors start on a cache line */
    return at;
}

static void state_carve(struct block_state *s, int32_t ratio, int32_t tokens_max,
                        struct carve *carve)
{
    s->window = carve_take(carve, (int64_t)WINDOW_SLOTS * HEAD_DIM, sizeof(float));
    if (ratio == 0)
        return;
    bool csa = ratio == RATIO_CSA;
    int64_t rows = (int64_t)(csa ? CSA_SLOTS : HCA_SLOTS) * (csa ? 2 : 1) * HEAD_DIM;
    s->kappa = carve_take(carve, rows, sizeof(float));
    s->gamma = carve_take(carve, rows, sizeof(float));
    s->compressed = carve_take(carve, (int64_t)(tokens_max / ratio) * HEAD_DIM, sizeof(float));
    if (!csa)
        return;
    rows = (int64_t)CSA_SLOTS * 2 * INDEX_HEAD_DIM;
    s->index_kappa = carve_take(carve, rows, sizeof(float));
    s->index_gamma = carve_take(carve, rows, sizeof(float));
    s->index_keys =
        carve_take(carve, (int64_t)(tokens_max / RATIO_CSA) * INDEX_HEAD_DIM, sizeof(float));
}

static void sequence_carve(struct sequence *s, struct carve *carve)
{
    const struct model_config *c = s->model->config;
    for (int32_t block = 0; block < model_blocks(c); block++)
        state_carve(&s->blocks[block], c->compress_ratios[block], s->tokens_max, carve);
    if (c->num_nextn_predict_layers > 0)
        s->streams =
            carve_take(carve, (int64_t)STREAM_SLOTS * HC_MULT * c->hidden_size, sizeof(float));
}

enum status sequence_create(const struct model *model, int32_t tokens_max, struct sequence **out,
                            struct error *err)
{
    if (tokens_max < 1 || tokens_max > POSITIONS_MAX)
        return error_set(err, ERR_CAPACITY, "sequence: %d tokens; 1 to %d are possible",
                         (int)tokens_max, POSITIONS_MAX);
    struct sequence *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_CAPACITY, "sequence: out of memory");
    s->model = model;
    s->tokens_max = tokens_max;
    struct carve carve = {NULL, 0};
    sequence_carve(s, &carve);
    s->bytes = carve.used;
    s->memory = model->backend->ops->reserve(model->backend, s->bytes);
    if (s->memory == NULL) {
        free(s);
        return error_set(err, ERR_CAPACITY, "sequence: no memory for %d tokens (%zu bytes)",
                         (int)tokens_max, carve.used);
    }
    carve = (struct carve){s->memory, 0};
    sequence_carve(s, &carve);
    *out = s;
    return OK;
}

void sequence_destroy(struct sequence *s)
{
    if (s == NULL)
        return;
    s->model->backend->ops->release(s->model->backend, s->memory, s->bytes);
    free(s);
}

void sequence_reset(struct sequence *s)
{
    s->model->backend->ops->clear(s->model->backend, s->memory, s->bytes);
    s->length = s->draft_length = 0;
    s->profile_hash = 0;
}

uint64_t sequence_profile_hash(const struct sequence *s)
{
    return s->profile_hash;
}

void sequence_crossover(struct sequence *s, const struct profile *profile)
{
    s->profile_hash = profile == NULL ? 0 : profile->hash;
}

void sequence_rewind(struct sequence *s, int32_t length)
{
    ASSERT(length >= s->draft_length && length <= s->length);
    ASSERT(s->length - length <= SLIDING_WINDOW);
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
