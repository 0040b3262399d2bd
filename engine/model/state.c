/*
 * The memory of a token timeline (model.md 2.9).  Appending only; nothing of a step is ever taken
 * back, and what is visible follows from the length alone (network.c).  Knows no arithmetic.
 */
#include "engine/model/network.h"
#include "kernels/check.h"

void *carve_take(struct carve *carve, int64_t count, size_t size)
{
    ASSERT(count >= 0 && (uint64_t)count <= SIZE_MAX / 2 / size);
    void *at = carve->base == NULL ? NULL : carve->base + carve->used;
    carve->used += ((size_t)count * size + 63) / 64 * 64; /* vectors start on a cache line */
    return at;
}

static void state_carve(struct block_state *s, int32_t ratio, int32_t tokens_max,
                        struct state_format format, struct carve *carve)
{
    size_t entry = entry_bytes(format.entry, HEAD_DIM);
    s->window = carve_take(carve, WINDOW_SLOTS, entry);
    if (ratio == 0)
        return;
    bool csa = ratio == RATIO_CSA;
    int64_t rows = (int64_t)(csa ? CSA_SLOTS : HCA_SLOTS) * (csa ? 2 : 1) * HEAD_DIM;
    s->kappa = carve_take(carve, rows, sizeof(float));
    s->gamma = carve_take(carve, rows, sizeof(float));
    s->compressed = carve_take(carve, tokens_max / ratio, entry);
    if (!csa)
        return;
    rows = (int64_t)CSA_SLOTS * 2 * INDEX_HEAD_DIM;
    s->index_kappa = carve_take(carve, rows, sizeof(float));
    s->index_gamma = carve_take(carve, rows, sizeof(float));
    s->index_keys =
        carve_take(carve, tokens_max / RATIO_CSA, entry_bytes(format.key, INDEX_HEAD_DIM));
}

static void sequence_carve(struct sequence *s, struct state_format format, struct carve *carve)
{
    const struct model_config *c = s->model->config;
    for (int32_t block = 0; block < model_blocks(c); block++)
        state_carve(&s->blocks[block], c->compress_ratios[block], s->tokens_max, format, carve);
    if (c->num_nextn_predict_layers > 0)
        s->streams =
            carve_take(carve, (int64_t)STREAM_SLOTS * HC_MULT * c->hidden_size, sizeof(float));
}

size_t state_bytes(const struct sequence *s, struct state_format format)
{
    struct sequence measured = *s;
    struct carve carve = {NULL, 0};
    sequence_carve(&measured, format, &carve);
    return carve.used;
}

void state_lay_out(struct sequence *s, struct state_format format)
{
    struct carve carve = {s->memory, 0};
    ASSERT(s->length == 0);
    s->format = s->mixed ? (struct state_format){ENTRY_F32, ENTRY_F32} : format;
    if (s->memory == NULL) /* a worker has it */
        return;
    sequence_carve(s, s->format, &carve);
    ASSERT(carve.used <= s->bytes);
}

bool state_takes(const struct sequence *s, const struct profile *profile)
{
    struct state_format f = state_format_of(s->model, profile);
    return s->mixed || s->length == 0 || (s->format.entry == f.entry && s->format.key == f.key);
}

bool local_reserve(struct sequence *s)
{
    s->memory = s->model->backend->ops->reserve(s->model->backend, s->bytes);
    return s->memory != NULL;
}

void local_release(struct sequence *s)
{
    s->model->backend->ops->release(s->model->backend, s->memory, s->bytes);
}

void local_clear(struct sequence *s)
{
    s->model->backend->ops->clear(s->model->backend, s->memory, s->bytes);
}
