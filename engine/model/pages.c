/* The store of pages: references, what is free, and where pages lie. */
#include "engine/model/pages.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* One reservation; the store grows by one when more is promised than there is room for. */
struct region {
    char *base; /* owns (device) */
    int32_t n;  /* pages */
};

struct pages {
    struct backend *backend; /* borrows */
    size_t bytes;            /* from page to page */
    struct region *regions;  /* owns; [n_regions] */
    int32_t n_regions;
    char **at;           /* owns; [all] */
    int32_t *holders;    /* owns; [all] */
    int32_t *free_pages; /* owns; [n_free] of [all], a stack */
    int64_t promised;
    char *zeros; /* owns (device); one page that nobody writes */
    int32_t all, n_free, n_own, n_shared;
};

struct pages *pages_create(struct backend *backend, size_t bytes)
{
    struct pages *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->backend = backend;
    p->bytes = (bytes + PAGE_ALIGN_BYTES - 1) / PAGE_ALIGN_BYTES * PAGE_ALIGN_BYTES;
    p->zeros = backend->ops->reserve(backend, p->bytes);
    if (p->zeros == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

void pages_destroy(struct pages *p)
{
    if (p == NULL)
        return;
    ASSERT(p->promised == 0 && p->n_free == p->all);
    for (int32_t i = 0; i < p->n_regions; i++)
        p->backend->ops->release(p->backend, p->regions[i].base,
                                 (size_t)p->regions[i].n * p->bytes);
    p->backend->ops->release(p->backend, p->zeros, p->bytes);
    free(p->regions);
    free(p->at);
    free(p->holders);
    free(p->free_pages);
    free(p);
}

/* ---- room ----------------------------------------------------------------------------------- */

/* @return false: no memory; what there was stays */
static bool array_grow(void *array, int64_t n, size_t element)
{
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)n * element);
    if (grown == NULL)
        return false;
    memcpy(array, &grown, sizeof grown);
    return true;
}

static bool grow(struct pages *p, int32_t n)
{
    int64_t all = (int64_t)p->all + n;
    if (all > INT32_MAX || !array_grow(&p->regions, p->n_regions + 1, sizeof *p->regions) ||
        !array_grow(&p->at, all, sizeof *p->at) ||
        !array_grow(&p->holders, all, sizeof *p->holders) ||
        !array_grow(&p->free_pages, all, sizeof *p->free_pages))
        return false;
    char *base = p->backend->ops->reserve(p->backend, (size_t)n * p->bytes);
    if (base == NULL)
        return false;
    p->regions[p->n_regions++] = (struct region){base, n};
    for (int32_t i = n - 1; i >= 0; i--) {
        p->at[p->all + i] = base + (size_t)i * p->bytes;
        p->holders[p->all + i] = 0;
        p->free_pages[p->n_free++] = p->all + i;
    }
    p->all = (int32_t)all;
    return true;
}

bool pages_promise(struct pages *p, int32_t n)
{
    ASSERT(n >= 0);
    int64_t missing = p->promised + n - p->all;
    if (missing > INT32_MAX || (missing > 0 && !grow(p, (int32_t)missing)))
        return false;
    p->promised += n;
    return true;
}

void pages_return(struct pages *p, int32_t n)
{
    p->promised -= n;
    ASSERT(n >= 0 && p->promised >= p->n_own + p->n_shared);
}

/* ---- references ----------------------------------------------------------------------------- */

/* Moves a page from one count to another by its number of holders. */
static void holders_set(struct pages *p, int32_t page, int32_t n)
{
    int32_t was = p->holders[page];
    p->n_own += (n == 1) - (was == 1);
    p->n_shared += (n > 1) - (was > 1);
    p->holders[page] = n;
    ASSERT(p->n_free + p->n_own + p->n_shared == p->all);
}

static void check_held(const struct pages *p, int32_t page)
{
    ASSERT(page >= 0 && page < p->all && p->holders[page] > 0);
}

int32_t page_take(struct pages *p)
{
    ASSERT(p->n_free > 0);
    int32_t page = p->free_pages[--p->n_free];
    ASSERT(p->holders[page] == 0);
    holders_set(p, page, 1);
    return page;
}

int32_t page_hold(struct pages *p, int32_t page)
{
    if (page == PAGE_NONE)
        return page;
    check_held(p, page);
    holders_set(p, page, p->holders[page] + 1);
    return page;
}

void page_drop(struct pages *p, int32_t page)
{
    if (page == PAGE_NONE)
        return;
    check_held(p, page);
    if (p->holders[page] == 1) {
        p->backend->ops->clear(p->backend, p->at[page], p->bytes);
        p->free_pages[p->n_free++] = page;
    }
    holders_set(p, page, p->holders[page] - 1);
}

int32_t page_own(struct pages *p, int32_t page, size_t bytes)
{
    if (page == PAGE_NONE)
        return page_take(p);
    check_held(p, page);
    ASSERT(bytes <= p->bytes);
    if (p->holders[page] == 1)
        return page;
    int32_t own = page_take(p);
    p->backend->ops->copy(p->backend, p->at[own], p->at[page], bytes);
    page_drop(p, page);
    return own;
}

void *page_at(const struct pages *p, int32_t page)
{
    if (page == PAGE_NONE)
        return p->zeros;
    check_held(p, page);
    return p->at[page];
}

void pages_stats_get(const struct pages *p, struct pages_stats *out)
{
    *out = (struct pages_stats){p->all, p->n_free, p->n_own, p->n_shared};
}
