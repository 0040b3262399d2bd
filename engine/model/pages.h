/*
 * Pages: what timelines and snapshots keep the entries and index keys of SNAPSHOT_TOKENS tokens in,
 * of all layers together.  One store for a network; whoever holds a page has a reference to it.
 *
 * A page that one holder has may be written by it; one that several have never is: who wants to
 * write gets one of its own (page_own).  Prefixes end where pages end, so that a branch copies none
 * at all; only a timeline that was taken back over the end of a stored prefix copies one.
 *
 * Nothing can run out: who will hold pages says how many at most (pages_promise), and the store
 * reserves as many.  Reserved is address space; memory is what was written, in the bytes that a
 * profile leaves, and it goes back with the last reference.
 *
 * Kernels find rows through a table of pages (struct entry_pages).  The other way, pages of a file
 * that are mapped one behind another, so that rows lie flat, fails on sizes: 32 rows of 584 bytes
 * end in the middle of a processor's page.  Padding them costs a tenth of the memory, and a mapping
 * for each layer and page is half a million at a million tokens, where Linux allows 65,530
 * (vm.max_map_count).  The table is one load for each row of 68 to 2048 bytes: no difference is
 * measurable (make bench-model).
 *
 * Knows no layers and no formats.  @thread  one caller at a time, the one that steps the model
 */
#ifndef V4BOX_ENGINE_MODEL_PAGES_H
#define V4BOX_ENGINE_MODEL_PAGES_H

#include "kernels/backend.h"

#include <stdbool.h>

#define PAGE_NONE (-1)

struct pages;

/** An empty store of pages of up to `bytes`.  @param backend  borrows; it takes pages
 *  @own pages_destroy  @return NULL: no memory */
struct pages *pages_create(struct backend *backend, size_t bytes);
/** ASSERTs that nobody holds a page or a promise.  Accepts NULL. */
void pages_destroy(struct pages *pages);

/** Somebody may hold n more from now on.  @return false: no memory for so many */
bool pages_promise(struct pages *pages, int32_t n);
/** The same n, given back; it holds none of them any more. */
void pages_return(struct pages *pages, int32_t n);

/** A page of zeros with one reference.  ASSERTs that no promise is broken. */
int32_t page_take(struct pages *pages);
/** One more reference; of PAGE_NONE: nothing.  @return page */
int32_t page_hold(struct pages *pages, int32_t page);
/** Gives up a reference; of PAGE_NONE: nothing. */
void page_drop(struct pages *pages, int32_t page);
/** For a holder that wants to write: the same page when nobody else has it, else a copy of its
 * first `bytes` for the reference that is given up; of PAGE_NONE: a new one. */
int32_t page_own(struct pages *pages, int32_t page, size_t bytes);
/** Where it lies (device); of PAGE_NONE: a page of zeros that must not be written. */
void *page_at(const struct pages *pages, int32_t page);

/* all = free + own + shared, at any moment (ASSERTed). */
struct pages_stats {
    int32_t all, free;
    int32_t own;    /* with one holder */
    int32_t shared; /* with several */
};
void pages_stats_get(const struct pages *pages, struct pages_stats *out);

#endif
