/*
 * Operations that are cut: each rank does them for its slice (kernels/slice.h), and where the
 * others need the results they get them.  Of the heads every rank has its own alone, packed, from
 * the queries' matrix to the grouped output.
 */
#include "kernels/ranks_inside.h"

#include "kernels/check.h"

#include <stdlib.h>

static int32_t n_ranks(const struct rank *rank)
{
    return ranks_plan(rank->all)->ranks;
}

/* A rank's groups of heads. */
static struct slice groups_of(const struct rank *rank)
{
    return slice_share(ranks_plan(rank->all)->limits.groups, rank->number, n_ranks(rank));
}

/* The same as heads, rows of a matrix or numbers: `all` of them belong to all groups. */
static struct slice share_of(const struct rank *rank, int32_t all)
{
    struct slice groups = groups_of(rank);
    int32_t each = all / ranks_plan(rank->all)->limits.groups;
    ASSERT(all % ranks_plan(rank->all)->limits.groups == 0);
    return (struct slice){groups.first * each, groups.n * each};
}

static struct gather_params gather_of(const struct rank *rank)
{
    return (struct gather_params){.rank = rank->number, .ranks = n_ranks(rank)};
}

void rank_linear(struct rank *rank, const void *asked, void *own)
{
    const struct linear_params *p = asked;
    struct linear_params *mine = own;
    struct gather_params gather = gather_of(rank);
    size_t used = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < p->n_outs; i++) {
        const struct tensor *w = &p->outs[i].w;
        enum slice_axis axis = ranks_axis(rank->all, w);
        struct slice rows = {0, w->rows};
        mine->outs[kept] = mine->outs[i];
        if (axis == SLICE_GROUPS) {
            rows = share_of(rank, w->rows);
            rank->q = p->outs[i].y;
        } else if (axis == SLICE_ROWS) {
            rows = slice_rows(w->rows, SLICE_UNIT, rank->number, n_ranks(rank));
            mine->outs[kept].y = rank->part + used;
            used = rank_piece(rank, &gather, used, p->n, w->rows, SLICE_UNIT, p->outs[i].y);
        }
        mine->outs[kept].w = slice_of_tensor(w, rows);
        kept += rows.n > 0;
    }
    mine->n_outs = kept;
    if (kept > 0)
        rank->backend->ops->linear(rank->backend, mine);
    rank_gather(rank, &gather, &p->place, p->n);
}

void rank_query(struct rank *rank, const void *asked, void *own)
{
    const struct query_params *p = asked;
    struct query_params *mine = own;
    ASSERT(p->q == rank->q);
    mine->heads = share_of(rank, p->heads).n;
    if (mine->heads > 0)
        rank->backend->ops->query(rank->backend, mine);
}

void rank_attention(struct rank *rank, const void *asked, void *own)
{
    const struct attention_params *p = asked;
    struct attention_params *mine = own;
    struct slice heads = share_of(rank, p->heads);
    ptrdiff_t width = (ptrdiff_t)p->heads * HEAD_DIM, row = (p->q - rank->q) / width;
    ptrdiff_t own_row = row * heads.n * HEAD_DIM;
    mine->sink = slice_of_tensor(&p->sink, heads);
    mine->heads = heads.n;
    mine->q = (const float *)rank_own(rank, rank->q) + own_row;
    mine->out = (float *)rank_own(rank, p->out - row * width) + own_row;
    if (heads.n > 0)
        rank->backend->ops->attention(rank->backend, mine);
}

void rank_grouped(struct rank *rank, const void *asked, void *own)
{
    const struct grouped_params *p = asked;
    struct grouped_params *mine = own;
    struct gather_params gather = gather_of(rank);
    struct slice groups = groups_of(rank);
    struct slice rows = {groups.first * p->rank, groups.n * p->rank};
    mine->w = slice_of_tensor(&p->w, rows);
    mine->groups = groups.n;
    mine->y = rank->part;
    if (groups.n > 0)
        rank->backend->ops->grouped(rank->backend, mine);
    rank_piece(rank, &gather, 0, p->n, p->w.rows, p->rank, p->y);
    rank_gather(rank, &gather, &p->place, p->n);
}

/* A rank's slices of a table of experts, made once. */
static const struct expert *experts_of(struct rank *rank, const struct expert *whole, int32_t n)
{
    int32_t i = 0;
    while (rank->experts[i].whole != NULL && rank->experts[i].whole != whole)
        i++;
    ASSERT(i < ranks_plan(rank->all)->blocks);
    struct rank_experts *table = &rank->experts[i];
    if (table->whole != NULL)
        return table->own;
    table->whole = whole;
    table->own = calloc((size_t)n, sizeof *table->own);
    ASSERT(table->own != NULL);
    struct slice inner = slice_rows(whole->w1.rows, SLICE_UNIT, rank->number, n_ranks(rank));
    struct slice hidden = slice_rows(whole->w2.rows, SLICE_UNIT, rank->number, n_ranks(rank));
    for (int32_t e = 0; e < n; e++)
        table->own[e] = (struct expert){slice_of_tensor(&whole[e].w1, inner),
                                        slice_of_tensor(&whole[e].w2, hidden),
                                        slice_of_tensor(&whole[e].w3, inner)};
    return table->own;
}

/* The rows of a tensor that operations of this rank read. */
static struct slice rows_of(const struct rank *rank, const struct tensor *w)
{
    switch (ranks_axis(rank->all, w)) {
    case SLICE_ROWS:
        return slice_rows(w->rows, SLICE_UNIT, rank->number, n_ranks(rank));
    case SLICE_GROUPS:
    case SLICE_GATHERED:
        return share_of(rank, w->rows);
    case SLICE_NONE:
        break;
    }
    return (struct slice){0, w->rows};
}

const char *rank_load(struct rank *rank, const struct load_params *p)
{
    struct load_params mine = *p;
    struct tensor *tensors = calloc((size_t)p->n, sizeof *tensors);
    const struct expert **experts = calloc((size_t)p->blocks, sizeof *experts);
    ASSERT(tensors != NULL && experts != NULL);
    for (int32_t i = 0; i < p->n; i++) {
        tensors[i] = p->tensors[i];
        if (tensors[i].data != NULL)
            tensors[i] = slice_of_tensor(&p->tensors[i], rows_of(rank, &p->tensors[i]));
    }
    for (int32_t block = 0; block < p->blocks; block++)
        experts[block] = experts_of(rank, p->experts[block], p->n_experts);
    mine.tensors = tensors;
    mine.experts = experts;
    const char *wrong = rank->backend->ops->load(rank->backend, &mine);
    free(tensors);
    free(experts);
    return wrong;
}

/* Both halves, with an exchange behind each. */
void rank_experts(struct rank *rank, const void *asked, void *own)
{
    const struct experts_params *p = asked;
    struct experts_params *mine = own;
    struct slice inner = slice_rows(p->inner, SLICE_UNIT, rank->number, n_ranks(rank));
    struct slice hidden = slice_rows(p->hidden, SLICE_UNIT, rank->number, n_ranks(rank));
    struct gather_params first = gather_of(rank), second = gather_of(rank);
    mine->experts = experts_of(rank, p->experts, p->n_routed + p->n_shared);
    mine->half = EXPERTS_INNER;
    mine->inner = inner.n;
    mine->h = rank->part;
    if (inner.n > 0)
        rank->backend->ops->experts(rank->backend, mine);
    rank_piece(rank, &first, 0, p->n * (p->top + p->n_shared), p->inner, SLICE_UNIT, NULL);
    rank_gather(rank, &first, &p->place, p->n);

    mine->half = EXPERTS_OUTER;
    mine->inner = p->inner;
    mine->hidden = hidden.n;
    mine->h = rank->inner;
    mine->out = rank->part;
    if (hidden.n > 0)
        rank->backend->ops->experts(rank->backend, mine);
    rank_piece(rank, &second, 0, p->n, p->hidden, SLICE_UNIT, p->out);
    rank_gather(rank, &second, &p->place, p->n);
}
