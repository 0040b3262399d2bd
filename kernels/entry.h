/*
 * How the rows lie that a timeline keeps for later tokens: entries (HEAD_DIM channels) and index
 * keys (INDEX_HEAD_DIM).  Besides float32 there is a form for what each rounding of kv.entry and
 * index.keys leaves; it holds exactly those values, so what is read back has the same bits.  Knows
 * the bytes only: backends write and read them, engine/model plans memory by them.
 *
 *   ENTRY_F32      4 bytes a channel
 *   ENTRY_BF16     2 bytes a channel
 *   ENTRY_FP8      448 e4m3 | 64 rotated channels in bf16 | 7 scales, of 64 channels each | 1 zero
 *   ENTRY_KEY_FP8  128 e4m3 | 1 scale | 3 zeros
 *   ENTRY_KEY_FP4  64 bytes, the even channel in the low half | 4 scales, of 32 channels each
 *
 * Scales are E8M0: a power of two as its exponent + 127.  model.md P5, P6, 7.4.
 */
#ifndef V4BOX_KERNELS_ENTRY_H
#define V4BOX_KERNELS_ENTRY_H

#include "config/model.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum entry_format {
    ENTRY_F32,
    ENTRY_BF16,
    ENTRY_FP8,     /* HEAD_DIM only */
    ENTRY_KEY_FP8, /* INDEX_HEAD_DIM only */
    ENTRY_KEY_FP4, /* INDEX_HEAD_DIM only */
    ENTRY_FORMATS
};

/* Unrotated channels of an entry, and how many share a scale. */
#define ENTRY_NOPE  (HEAD_DIM - ROPE_HEAD_DIM)
#define ENTRY_GROUP 64

#define ENTRY_FP8_SCALES    (ENTRY_NOPE + 2 * ROPE_HEAD_DIM) /* where they start */
#define ENTRY_FP8_BYTES     (ENTRY_FP8_SCALES + ENTRY_NOPE / ENTRY_GROUP + 1)
#define ENTRY_KEY_FP8_BYTES (INDEX_HEAD_DIM + 4)
#define ENTRY_KEY_FP4_BYTES (INDEX_HEAD_DIM / 2 + INDEX_HEAD_DIM / 32)
static_assert(ENTRY_NOPE % ENTRY_GROUP == 0 && ENTRY_FP8_BYTES == 584, "model.md 7.4");
static_assert(ENTRY_KEY_FP8_BYTES == 132 && ENTRY_KEY_FP4_BYTES == 68, "model.md 7.4");

/** @param dim  HEAD_DIM or INDEX_HEAD_DIM  @unit bytes of one row, a multiple of 4 */
static inline size_t entry_bytes(enum entry_format format, int32_t dim)
{
    switch (format) {
    case ENTRY_BF16:
        return (size_t)dim * 2;
    case ENTRY_FP8:
        return ENTRY_FP8_BYTES;
    case ENTRY_KEY_FP8:
        return ENTRY_KEY_FP8_BYTES;
    case ENTRY_KEY_FP4:
        return ENTRY_KEY_FP4_BYTES;
    default:
        return (size_t)dim * 4;
    }
}

/** Row i of rows that lie one behind another. */
static inline void *entry_row(const void *rows, enum entry_format format, int32_t dim, int64_t i)
{
    return (uint8_t *)(uintptr_t)rows + i * (int64_t)entry_bytes(format, dim);
}

/* Rows that lie in pages, 1 << shift of them in each, `offset` bytes from its start.  `at` is NULL:
 * they lie one behind another, and only so may a backend get them that does not take pages. */
struct entry_pages {
    void *const *at; /* borrows; [pages] */
    size_t offset;
    int32_t shift;
};

/** Row i, in pages or, without them, of `rows`. */
static inline void *entry_find(const void *rows, const struct entry_pages *pages,
                               enum entry_format format, int32_t dim, int64_t i)
{
    if (pages->at == NULL)
        return entry_row(rows, format, dim, i);
    const uint8_t *page = (const uint8_t *)pages->at[i >> pages->shift] + pages->offset;
    return entry_row(page, format, dim, i & (((int64_t)1 << pages->shift) - 1));
}

#endif
