/* The table of slices, and rows cut out of tensors. */
#include "kernels/slice.h"

#include "config/limits.h"
#include "config/model.h"
#include "kernels/check.h"

#include <stddef.h>
#include <string.h>

/* What is not here is small, or needed by every rank for itself: its rows would have to be given to
 * the others for less than it costs to read them. */
static const struct {
    const char *name;
    enum slice_axis axis;
} SLICES[] = {
    {"head.weight", SLICE_ROWS},
    {"attn.wq_b", SLICE_GROUPS}, /* queries, attention and its output belong to a head */
    {"attn.attn_sink", SLICE_GROUPS},
    {"attn.wo_a", SLICE_GATHERED},
    {"attn.wo_b", SLICE_ROWS},
    {"attn.compressor.wkv.weight", SLICE_ROWS},
    {"attn.compressor.wgate.weight", SLICE_ROWS},
    {"attn.indexer.compressor.wkv.weight", SLICE_ROWS},
    {"attn.indexer.compressor.wgate.weight", SLICE_ROWS},
    {"w1", SLICE_ROWS},
    {"w2", SLICE_ROWS},
    {"w3", SLICE_ROWS},
    {"ffn.shared_experts.w1", SLICE_ROWS},
    {"ffn.shared_experts.w2", SLICE_ROWS},
    {"ffn.shared_experts.w3", SLICE_ROWS},
};

enum slice_axis slice_axis_of(const char *name)
{
    for (size_t i = 0; i < sizeof SLICES / sizeof *SLICES; i++) {
        if (strcmp(SLICES[i].name, name) == 0)
            return SLICES[i].axis;
    }
    return SLICE_NONE;
}

int32_t slice_ranks(uint64_t weights, int32_t gpus, uint64_t memory)
{
    int32_t ranks = 1;
    uint64_t room = memory / 100 * RANKS_FILL_PERCENT;
    while (weights / (uint64_t)ranks > room && 2 * ranks <= gpus && 2 * ranks <= RANKS_MAX)
        ranks *= 2;
    return ranks;
}

static int32_t up(int64_t units, int32_t rank, int32_t ranks)
{
    return (int32_t)((units * rank + ranks - 1) / ranks);
}

struct slice slice_share(int32_t units, int32_t rank, int32_t ranks)
{
    ASSERT(units >= 1 && rank >= 0 && rank < ranks);
    int32_t first = up(units, rank, ranks);
    return (struct slice){first, up(units, rank + 1, ranks) - first};
}

struct slice slice_rows(int32_t rows, int32_t unit, int32_t rank, int32_t ranks)
{
    struct slice units = slice_share((rows + unit - 1) / unit, rank, ranks);
    int32_t first = units.first * unit, end = first + units.n * unit;
    first = first < rows ? first : rows;
    return (struct slice){first, (end < rows ? end : rows) - first};
}

/* How a row lies in memory.  A row of FP8's scales is that of SLICE_UNIT rows. */
static const struct {
    uint8_t bytes, values; /* so many bytes hold so many values */
    uint8_t scaled;        /* values of a row under one scale; 0: there are none */
} STORES[] = {
    [STORE_BF16] = {2, 1, 0},        [STORE_F32] = {4, 1, 0},
    [STORE_I64] = {8, 1, 0},         [STORE_FP8] = {1, 1, FP8_BLOCK},
    [STORE_FP4] = {1, 2, FP4_GROUP}, [STORE_NVFP4] = {1, 2, NVFP4_GROUP},
};
_Static_assert(SLICE_UNIT == FP8_BLOCK, "a slice begins with a row of scales");

struct tensor slice_of_tensor(const struct tensor *whole, struct slice rows)
{
    ASSERT(rows.first >= 0 && rows.n >= 0 && rows.n <= whole->rows - rows.first);
    struct tensor t = *whole;
    size_t cols = whole->cols == 0 ? 1 : (size_t)whole->cols, first = (size_t)rows.first;
    t.rows = rows.n;
    if (rows.n == 0) {
        t.data = NULL;
        t.scale = NULL;
        return t;
    }
    t.data =
        (const char *)whole->data + first * cols * STORES[t.store].bytes / STORES[t.store].values;
    if (t.store == STORE_FP8) {
        ASSERT(first % FP8_BLOCK == 0);
        first /= FP8_BLOCK;
    }
    if (t.scale != NULL)
        t.scale += first * ((cols + STORES[t.store].scaled - 1) / STORES[t.store].scaled);
    return t;
}
