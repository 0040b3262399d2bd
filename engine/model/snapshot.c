/*
 * The pool of pieces.  Which rows of a sequence make up a piece is said once, in block_rows and
 * tail_rows; saving, loading and measuring walk the same rows.  Where there are pages, a block is
 * one (pages_carve of state.c lays it out as block_rows does), and changes hands without a copy.
 */
#include "engine/model/snapshot.h"

#include "config/limits.h"
#include "engine/model/network.h"
#include "kernels/check.h"

#include <sodium.h>
#include <stdlib.h>

_Static_assert(SNAPSHOT_TOKENS % RATIO_CSA == 0 && SNAPSHOT_TOKENS % RATIO_HCA == 0,
               "no block is open where a prefix ends");
_Static_assert(SNAPSHOT_TOKENS >= SLIDING_WINDOW, "the window of the first prefix is full");

/* Some rows of one array of a sequence. */
struct rows {
    void *base;
    int32_t slots; /* of the ring; INT32_MAX: no ring */
    int32_t first, n;
    size_t stride, bytes; /* from row to row, and of a row those that count */
};

enum way { MEASURE, SAVE, LOAD };

/* A walk over the rows of a piece. */
struct walk {
    enum way way;
    struct backend *backend;
    char *piece; /* device */
    size_t used;
};

static void walk_rows(struct walk *walk, const struct rows *r)
{
    for (int32_t i = 0; i < r->n; i++, walk->used += r->bytes) {
        if (walk->way == MEASURE)
            continue;
        char *row = (char *)r->base + (size_t)((r->first + i) % r->slots) * r->stride;
        char *kept = walk->piece + walk->used;
        const struct backend_ops *ops = walk->backend->ops;
        if (walk->way == SAVE)
            ops->copy(walk->backend, kept, row, r->bytes);
        else
            ops->copy(walk->backend, row, kept, r->bytes);
    }
}

static void block_rows(struct walk *walk, const struct model_config *c,
                       const struct sequence *sequence, int32_t block)
{
    size_t entry = entry_bytes(sequence->format.entry, HEAD_DIM);
    size_t key = entry_bytes(sequence->format.key, INDEX_HEAD_DIM);
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        int32_t ratio = c->compress_ratios[layer];
        if (ratio == 0)
            continue;
        const struct block_state *s = &sequence->blocks[layer];
        int32_t n = SNAPSHOT_TOKENS / ratio;
        walk_rows(walk, &(struct rows){s->compressed, INT32_MAX, block * n, n, entry, entry});
        if (ratio == RATIO_CSA)
            walk_rows(walk, &(struct rows){s->index_keys, INT32_MAX, block * n, n, key, key});
    }
}

static void tail_rows(struct walk *walk, const struct model_config *c,
                      const struct sequence *sequence, int32_t length)
{
    const size_t half = HEAD_DIM * sizeof(float), index_half = INDEX_HEAD_DIM * sizeof(float);
    size_t entry = entry_bytes(sequence->format.entry, HEAD_DIM);
    int32_t window = SLIDING_WINDOW - 1, open = length - RATIO_CSA;
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        const struct block_state *s = &sequence->blocks[layer];
        walk_rows(walk,
                  &(struct rows){s->window, WINDOW_SLOTS, length - window, window, entry, entry});
        if (c->compress_ratios[layer] != RATIO_CSA)
            continue;
        float *const mains[] = {s->kappa, s->gamma};
        float *const indexes[] = {s->index_kappa, s->index_gamma};
        for (int i = 0; i < 2; i++) {
            walk_rows(walk, &(struct rows){mains[i], CSA_SLOTS, open, RATIO_CSA, 2 * half, half});
            walk_rows(walk, &(struct rows){indexes[i], CSA_SLOTS, open, RATIO_CSA, 2 * index_half,
                                           index_half});
        }
    }
}

static size_t tail_bytes(const struct model *model, struct state_format format)
{
    struct walk walk = {.way = MEASURE};
    tail_rows(&walk, model->config, &(struct sequence){.format = format}, SNAPSHOT_TOKENS);
    return walk.used;
}

uint64_t snapshot_block_bytes(const struct model *model, const struct profile *profile)
{
    return page_bytes(model->config, state_format_of(model, profile));
}

uint64_t snapshot_tail_bytes(const struct model *model, const struct profile *profile)
{
    return tail_bytes(model, state_format_of(model, profile));
}

enum status snapshots_create(const struct model *model, int32_t n_blocks, int32_t n_tails,
                             struct snapshots **out, struct error *err)
{
    ASSERT(n_blocks > 0 && n_tails > 0);
    struct snapshots *p = calloc(1, sizeof *p);
    if (p == NULL)
        return error_set(err, ERR_CAPACITY, "snapshots: out of memory");
    p->model = model;
    p->n_blocks = n_blocks;
    p->n_tails = n_tails;
    p->block_bytes = page_bytes(model->config, (struct state_format){ENTRY_F32, ENTRY_F32});
    p->tail_bytes = tail_bytes(model, (struct state_format){ENTRY_F32, ENTRY_F32});
    p->formats = calloc((size_t)n_blocks + (size_t)n_tails, sizeof *p->formats);
    if (p->formats == NULL || !model->ops->pool_reserve(p)) {
        free(p->formats);
        free(p);
        return error_set(err, ERR_CAPACITY, "snapshots: no memory for %d blocks and %d tails",
                         (int)n_blocks, (int)n_tails);
    }
    *out = p;
    return OK;
}

void snapshots_destroy(struct snapshots *p)
{
    if (p == NULL)
        return;
    p->model->ops->pool_release(p);
    free(p->formats);
    free(p);
}

static bool pages_reserve(struct snapshots *p)
{
    int32_t *pages = malloc((size_t)p->n_blocks * sizeof *pages);
    if (pages == NULL || !pages_promise(p->model->pages, p->n_blocks)) {
        free(pages);
        return false;
    }
    for (int32_t i = 0; i < p->n_blocks; i++)
        pages[i] = PAGE_NONE;
    p->pages = pages;
    return true;
}

bool local_pool_reserve(struct snapshots *p)
{
    struct backend *b = p->model->backend;
    p->tails = b->ops->reserve(b, (size_t)p->n_tails * p->tail_bytes);
    if (p->model->pages == NULL)
        p->blocks = b->ops->reserve(b, (size_t)p->n_blocks * p->block_bytes);
    if (p->tails != NULL && (p->blocks != NULL || (p->model->pages != NULL && pages_reserve(p))))
        return true;
    local_pool_release(p);
    return false;
}

void local_pool_release(struct snapshots *p)
{
    struct backend *b = p->model->backend;
    b->ops->release(b, p->blocks, (size_t)p->n_blocks * p->block_bytes);
    b->ops->release(b, p->tails, (size_t)p->n_tails * p->tail_bytes);
    if (p->pages == NULL)
        return;
    for (int32_t i = 0; i < p->n_blocks; i++)
        page_drop(p->model->pages, p->pages[i]);
    pages_return(p->model->pages, p->n_blocks);
    free(p->pages);
}

/* ---- one piece ------------------------------------------------------------------------------ */

/* A block that is a page: it is shared with timelines, never copied. */
static void page_piece(const struct snapshots *p, const struct piece *piece)
{
    struct backend *b = p->model->backend;
    struct pages *pages = p->model->pages;
    int32_t *kept = &p->pages[piece->slot], was = *kept;
    switch (piece->way) {
    case PIECE_SAVE:
        *kept = page_hold(pages, piece->sequence->pages[piece->at]);
        break;
    case PIECE_LOAD:
        was = piece->sequence->pages[piece->at];
        sequence_page_set(piece->sequence, piece->at, page_hold(pages, *kept));
        break;
    case PIECE_GET:
        b->ops->download(b, piece->to, page_at(pages, *kept), piece_bytes(p, piece));
        return;
    case PIECE_PUT:
        page_drop(pages, was);
        *kept = page_take(pages);
        b->ops->upload(b, page_at(pages, *kept), piece->from, piece_bytes(p, piece));
        return;
    case PIECE_DROP:
        *kept = PAGE_NONE;
        break;
    }
    page_drop(pages, was);
}

void local_piece(const struct snapshots *p, const struct piece *piece)
{
    struct backend *b = p->model->backend;
    if (p->pages != NULL && !piece->tail) {
        page_piece(p, piece);
        return;
    }
    size_t stride = piece->tail ? p->tail_bytes : p->block_bytes;
    char *at = (piece->tail ? p->tails : p->blocks) + (size_t)piece->slot * stride;
    struct walk walk = {piece->way == PIECE_SAVE ? SAVE : LOAD, b, at, 0};
    switch (piece->way) {
    case PIECE_GET:
        b->ops->download(b, piece->to, at, piece_bytes(p, piece));
        return;
    case PIECE_PUT:
        b->ops->upload(b, at, piece->from, piece_bytes(p, piece));
        return;
    case PIECE_SAVE:
    case PIECE_LOAD:
        (piece->tail ? tail_rows : block_rows)(&walk, p->model->config, piece->sequence, piece->at);
        ASSERT(walk.used <= stride);
        return;
    case PIECE_DROP:
        return; /* the place is written when it is used again */
    }
}

size_t piece_bytes(const struct snapshots *p, const struct piece *piece)
{
    return piece->tail ? snapshot_tail_bytes(p->model, piece->profile)
                       : snapshot_block_bytes(p->model, piece->profile);
}

const char *snapshots_lost(const struct snapshots *p)
{
    return p->model->ops->lost(p->model);
}

/* The format of what a slot holds. */
static struct state_format *format_of(const struct snapshots *p, bool tail, int32_t slot)
{
    ASSERT(slot >= 0 && slot < (tail ? p->n_tails : p->n_blocks));
    return &p->formats[tail ? p->n_blocks + slot : slot];
}

bool piece_fits(const struct snapshots *p, bool tail, int32_t slot, const struct sequence *sequence)
{
    struct state_format format = *format_of(p, tail, slot);
    return !sequence->mixed || (format.entry == ENTRY_F32 && format.key == ENTRY_F32);
}

static void save(struct snapshots *p, bool tail, int32_t slot, const struct sequence *sequence,
                 int32_t at)
{
    *format_of(p, tail, slot) = sequence->format;
    p->model->ops->piece(p,
                         &(struct piece){PIECE_SAVE, tail, slot, at, sequence, NULL, NULL, NULL});
}

static void load(const struct snapshots *p, bool tail, int32_t slot, struct sequence *sequence,
                 int32_t at)
{
    struct state_format format = *format_of(p, tail, slot);
    ASSERT(sequence->length == 0 && sequence->draft_length == 0);
    ASSERT(piece_fits(p, tail, slot, sequence));
    state_lay_out(sequence, format);
    p->model->ops->piece(p,
                         &(struct piece){PIECE_LOAD, tail, slot, at, sequence, NULL, NULL, NULL});
}

static void get(const struct snapshots *p, bool tail, int32_t slot, const struct profile *profile,
                void *host)
{
    p->model->ops->piece(p, &(struct piece){PIECE_GET, tail, slot, 0, NULL, profile, host, NULL});
}

static void put(struct snapshots *p, bool tail, int32_t slot, const struct profile *profile,
                const void *host)
{
    *format_of(p, tail, slot) = state_format_of(p->model, profile);
    p->model->ops->piece(p, &(struct piece){PIECE_PUT, tail, slot, 0, NULL, profile, NULL, host});
}

void snapshot_save_block(struct snapshots *p, int32_t slot, const struct sequence *sequence,
                         int32_t block)
{
    ASSERT(block >= 0 && (int64_t)(block + 1) * SNAPSHOT_TOKENS <= sequence->length);
    save(p, false, slot, sequence, block);
}

void snapshot_save_tail(struct snapshots *p, int32_t slot, const struct sequence *sequence,
                        int32_t length)
{
    ASSERT(length > 0 && length % SNAPSHOT_TOKENS == 0 && length <= sequence->length);
    ASSERT(sequence->length - length < SPAN_TOKENS_MAX);
    save(p, true, slot, sequence, length);
}

void snapshot_load_block(const struct snapshots *p, int32_t slot, struct sequence *sequence,
                         int32_t block)
{
    ASSERT(block >= 0 && (int64_t)(block + 1) * SNAPSHOT_TOKENS <= sequence->tokens_max);
    load(p, false, slot, sequence, block);
}

void snapshot_load_tail(const struct snapshots *p, int32_t slot, struct sequence *sequence,
                        int32_t length)
{
    ASSERT(length > 0 && length % SNAPSHOT_TOKENS == 0 && length <= sequence->tokens_max);
    load(p, true, slot, sequence, length);
    sequence->length = sequence->draft_length = length;
}

void snapshot_get_block(const struct snapshots *p, int32_t slot, const struct profile *profile,
                        void *host)
{
    get(p, false, slot, profile, host);
}

void snapshot_put_block(struct snapshots *p, int32_t slot, const struct profile *profile,
                        const void *host)
{
    put(p, false, slot, profile, host);
}

void snapshot_get_tail(const struct snapshots *p, int32_t slot, const struct profile *profile,
                       void *host)
{
    get(p, true, slot, profile, host);
}

void snapshot_put_tail(struct snapshots *p, int32_t slot, const struct profile *profile,
                       const void *host)
{
    put(p, true, slot, profile, host);
}

int32_t snapshot_page(const struct snapshots *p, int32_t slot)
{
    ASSERT(slot >= 0 && slot < p->n_blocks);
    return p->pages == NULL ? PAGE_NONE : p->pages[slot];
}

void snapshot_drop_block(struct snapshots *p, int32_t slot)
{
    p->model->ops->piece(p, &(struct piece){PIECE_DROP, false, slot, 0, NULL, NULL, NULL, NULL});
}

/* ---- the probe ------------------------------------------------------------------------------ */

/* Feeds a text in which any token may follow any other. */
static void probe_feed(struct model *model, const struct profile *profile,
                       struct sequence *sequence)
{
    uint32_t random = 1;
    int32_t ids[SNAPSHOT_PROBE_TOKENS];
    for (int32_t i = 0; i < SNAPSHOT_PROBE_TOKENS; i++) {
        random = random * 1664525u + 1013904223u; /* Numerical Recipes */
        ids[i] = (int32_t)((uint64_t)random * (uint32_t)model->config->vocab_size >> 32);
    }
    for (int32_t at = 0, n; at < SNAPSHOT_PROBE_TOKENS; at += n) {
        n = SNAPSHOT_PROBE_TOKENS - at < SPAN_TOKENS_MAX ? SNAPSHOT_PROBE_TOKENS - at
                                                         : SPAN_TOKENS_MAX;
        const struct segment segment = {
            .sequence = sequence, .ids = ids + at, .n = n, .leg = LEG_PREFILL};
        model_step(model, profile, &segment, 1);
    }
}

enum status snapshot_probe(struct model *model, const struct profile *profile,
                           uint8_t digest[SNAPSHOT_PROBE_BYTES], struct error *err)
{
    enum { BLOCKS = SNAPSHOT_PROBE_TOKENS / SNAPSHOT_TOKENS };
    struct sequence *sequence = NULL;
    struct snapshots *pool = NULL;
    enum status status = sequence_create(model, SNAPSHOT_PROBE_TOKENS, &sequence, err);
    if (status == OK)
        status = snapshots_create(model, BLOCKS, 1, &pool, err);
    void *piece = NULL;
    if (status == OK) {
        piece = malloc(pool->block_bytes > pool->tail_bytes ? pool->block_bytes : pool->tail_bytes);
        if (piece == NULL)
            status = error_set(err, ERR_CAPACITY, "snapshots: no memory for the probe");
    }
    if (status == OK) {
        crypto_generichash_state hash;
        crypto_generichash_init(&hash, NULL, 0, SNAPSHOT_PROBE_BYTES);
        probe_feed(model, profile, sequence);
        for (int32_t i = 0; i < BLOCKS; i++) {
            snapshot_save_block(pool, i, sequence, i);
            snapshot_get_block(pool, i, profile, piece);
            crypto_generichash_update(&hash, piece, snapshot_block_bytes(model, profile));
        }
        snapshot_save_tail(pool, 0, sequence, SNAPSHOT_PROBE_TOKENS);
        snapshot_get_tail(pool, 0, profile, piece);
        crypto_generichash_update(&hash, piece, snapshot_tail_bytes(model, profile));
        crypto_generichash_final(&hash, digest, SNAPSHOT_PROBE_BYTES);
        if (model_lost(model) != NULL)
            status = error_set(err, ERR_CHECK, "snapshots: %.400s", model_lost(model));
    }
    free(piece);
    snapshots_destroy(pool);
    sequence_destroy(sequence);
    return status;
}
