/*
 * The memory of a token timeline (model.md 2.9).  Appending only; nothing of a step is ever taken
 * back, and what is visible follows from the length alone (network.c).  Knows no arithmetic.
 */
#include "engine/model/network.h"
#include "kernels/check.h"

#include <stdlib.h>

void *carve_take(struct carve *carve, int64_t count, size_t size)
{
    ASSERT(count >= 0 && (uint64_t)count <= SIZE_MAX / 2 / size);
    void *at = carve->base == NULL ? NULL : carve->base + carve->used;
    carve->used += ((size_t)count * size + 63) / 64 * 64; /* vectors start on a cache line */
    return at;
}

/* @param grows_here  tokens whose rows lie here too; 0: they lie in pages */
static void state_carve(struct block_state *s, int32_t ratio, int32_t grows_here,
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
    if (grows_here > 0)
        s->compressed = carve_take(carve, grows_here / ratio, entry);
    if (!csa)
        return;
    rows = (int64_t)CSA_SLOTS * 2 * INDEX_HEAD_DIM;
    s->index_kappa = carve_take(carve, rows, sizeof(float));
    s->index_gamma = carve_take(carve, rows, sizeof(float));
    if (grows_here > 0)
        s->index_keys =
            carve_take(carve, grows_here / RATIO_CSA, entry_bytes(format.key, INDEX_HEAD_DIM));
}

static void sequence_carve(struct sequence *s, struct state_format format, struct carve *carve)
{
    const struct model_config *c = s->model->config;
    int32_t grows_here = s->n_pages > 0 ? 0 : s->tokens_max;
    for (int32_t block = 0; block < model_blocks(c); block++)
        state_carve(&s->blocks[block], c->compress_ratios[block], grows_here, format, carve);
    if (c->num_nextn_predict_layers > 0)
        s->streams =
            carve_take(carve, (int64_t)STREAM_SLOTS * HC_MULT * c->hidden_size, sizeof(float));
}

size_t state_bytes(const struct sequence *s, struct state_format format)
{
    struct sequence measured = *s;
    measured.n_pages = 0; /* it takes the same bytes wherever they lie */
    struct carve carve = {NULL, 0};
    sequence_carve(&measured, format, &carve);
    return carve.used;
}

/* The rows of a layer that lie in one page.  @return bytes of them */
static size_t page_rows(struct entry_pages *pages, void *const *at, size_t offset, int32_t ratio,
                        size_t row)
{
    int32_t shift = 0;
    while (ratio << shift < SNAPSHOT_TOKENS)
        shift++;
    *pages = (struct entry_pages){at, offset, shift};
    return row << shift;
}

/* Where in a page the rows of each layer lie: as in a block of a pool.  @return bytes of a page */
static size_t pages_carve(const struct model_config *c, struct state_format format, void *const *at,
                          struct block_state *blocks)
{
    size_t used = 0;
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        int32_t ratio = c->compress_ratios[layer];
        struct block_state *s = &blocks[layer];
        if (ratio == 0)
            continue;
        used +=
            page_rows(&s->compressed_pages, at, used, ratio, entry_bytes(format.entry, HEAD_DIM));
        if (ratio == RATIO_CSA)
            used += page_rows(&s->index_pages, at, used, ratio,
                              entry_bytes(format.key, INDEX_HEAD_DIM));
    }
    return used;
}

size_t page_bytes(const struct model_config *c, struct state_format format)
{
    struct block_state blocks[LAYERS_MAX];
    return pages_carve(c, format, NULL, blocks);
}

static void pages_lay_out(struct sequence *s)
{
    if (s->n_pages > 0)
        s->page_bytes = pages_carve(s->model->config, s->format, s->pages_at, s->blocks);
}

void state_lay_out(struct sequence *s, struct state_format format)
{
    struct carve carve = {s->memory, 0};
    ASSERT(s->length == 0);
    s->format = s->mixed ? (struct state_format){ENTRY_F32, ENTRY_F32} : format;
    if (s->memory == NULL) /* a worker has it */
        return;
    sequence_carve(s, s->format, &carve);
    ASSERT(carve.used <= s->memory_bytes);
    pages_lay_out(s);
}

bool state_takes(const struct sequence *s, const struct profile *profile)
{
    struct state_format f = state_format_of(s->model, profile);
    return s->mixed || s->length == 0 || (s->format.entry == f.entry && s->format.key == f.key);
}

/* ---- memory --------------------------------------------------------------------------------- */

void sequence_page_set(const struct sequence *s, int32_t i, int32_t page)
{
    ASSERT(i >= 0 && i < s->n_pages);
    s->pages[i] = page;
    s->pages_at[i] = page_at(s->model->pages, page);
}

void sequence_pages_own(struct sequence *s, int32_t n)
{
    if (s->n_pages == 0)
        return;
    for (int32_t i = s->length / SNAPSHOT_TOKENS; i <= (s->length + n - 1) / SNAPSHOT_TOKENS; i++)
        sequence_page_set(s, i, page_own(s->model->pages, s->pages[i], s->page_bytes));
}

void sequence_pages_forget(struct sequence *s, int32_t from, int32_t to)
{
    int32_t i = (from + SNAPSHOT_TOKENS - 1) / SNAPSHOT_TOKENS;
    for (; i < s->n_pages && (int64_t)i * SNAPSHOT_TOKENS < to; i++) {
        page_drop(s->model->pages, s->pages[i]);
        sequence_page_set(s, i, PAGE_NONE);
    }
}

static bool pages_reserve(struct sequence *s)
{
    int32_t n = (s->tokens_max + SNAPSHOT_TOKENS - 1) / SNAPSHOT_TOKENS;
    s->pages = calloc((size_t)n, sizeof *s->pages);
    s->pages_at = calloc((size_t)n, sizeof *s->pages_at);
    if (s->pages == NULL || s->pages_at == NULL || !pages_promise(s->model->pages, n))
        return false;
    s->n_pages = n;
    for (int32_t i = 0; i < n; i++)
        sequence_page_set(s, i, PAGE_NONE);
    return true;
}

bool local_reserve(struct sequence *s)
{
    if (s->model->pages != NULL && !pages_reserve(s)) {
        local_release(s);
        return false;
    }
    struct carve carve = {NULL, 0};
    sequence_carve(s, (struct state_format){ENTRY_F32, ENTRY_F32}, &carve);
    s->memory_bytes = carve.used;
    s->memory = s->model->backend->ops->reserve(s->model->backend, s->memory_bytes);
    if (s->memory == NULL)
        local_release(s);
    return s->memory != NULL;
}

void local_release(struct sequence *s)
{
    sequence_pages_forget(s, 0, s->tokens_max);
    if (s->n_pages > 0)
        pages_return(s->model->pages, s->n_pages);
    free(s->pages);
    free(s->pages_at);
    s->model->backend->ops->release(s->model->backend, s->memory, s->memory_bytes);
}

void local_clear(struct sequence *s)
{
    sequence_pages_forget(s, 0, s->tokens_max);
    s->model->backend->ops->clear(s->model->backend, s->memory, s->memory_bytes);
}
