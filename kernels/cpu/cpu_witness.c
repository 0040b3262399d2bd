/*
 * Witnesses of the CPU backend: what its threads saw themselves do, by row of the precision table.
 * Each thread counts in its own memory; the operation adds up when the job is done.
 */
#include "kernels/cpu/cpu_ops.h"

#include <string.h>

/* One more than the value of a row that a rounding is; 0: it is none. */
static const uint8_t VALUE_OF_ROUND[PRECISION_ROWS][ROUNDS] = {
    [ROW_ACT_STORE] = {[ROUND_NONE] = 1 + ACT_STORE_FP32, [ROUND_BF16] = 1 + ACT_STORE_BF16},
    [ROW_DENSE_LINEAR] =
        {[ROUND_NONE] = 1 + DENSE_LINEAR_W8A16, [ROUND_FP8_128] = 1 + DENSE_LINEAR_W8A8},
    [ROW_ATTN_OUT] = {[ROUND_NONE] = 1 + ATTN_OUT_W8A16, [ROUND_FP8_128] = 1 + ATTN_OUT_W8A8},
    [ROW_COMP_PROJECT] =
        {[ROUND_NONE] = 1 + COMP_PROJECT_FP32, [ROUND_BF16] = 1 + COMP_PROJECT_BF16},
    [ROW_HC_MIX] = {[ROUND_NONE] = 1 + HC_MIX_FP32,
                    [ROUND_TF32] = 1 + HC_MIX_TF32,
                    [ROUND_BF16] = 1 + HC_MIX_BF16},
    [ROW_HC_STREAMS] = {[ROUND_NONE] = 1 + HC_STREAMS_FP32, [ROUND_BF16] = 1 + HC_STREAMS_BF16},
    [ROW_MOE_ROUTE] = {[ROUND_NONE] = 1 + MOE_ROUTE_FP32, [ROUND_BF16] = 1 + MOE_ROUTE_BF16},
    [ROW_MOE_EXPERTS] = {[ROUND_NONE] = 1 + MOE_EXPERTS_W4A16,
                         [ROUND_FP8_128] = 1 + MOE_EXPERTS_W4A8,
                         [ROUND_FP4_32] = 1 + MOE_EXPERTS_W4A4,
                         [ROUND_NVFP4] = 1 + MOE_EXPERTS_NVFP4},
    [ROW_HEAD_LOGITS] = {[ROUND_NONE] = 1 + HEAD_LOGITS_FP32, [ROUND_BF16] = 1 + HEAD_LOGITS_BF16},
};

void cpu_saw_round(struct cpu_scratch *s, enum precision_row row, enum round did)
{
    int found = VALUE_OF_ROUND[row][did];
    ASSERT(found > 0); /* a rounding that the table does not have must not run */
    cpu_saw(s, row, found - 1);
}

void cpu_saw_entry(struct cpu_scratch *s, enum round all, enum round part)
{
    if (all == ROUND_NONE)
        cpu_saw(s, ROW_KV_ENTRY, KV_ENTRY_FP32); /* beside fp8 this shows as a mixture */
    if (part == ROUND_FP8_64)
        cpu_saw(s, ROW_KV_ENTRY, KV_ENTRY_FP8);
    else if (all == ROUND_BF16)
        cpu_saw(s, ROW_KV_ENTRY, KV_ENTRY_BF16);
}

void cpu_saw_key(struct cpu_scratch *s, enum round all, enum round part)
{
    if (all == ROUND_NONE)
        cpu_saw(s, ROW_INDEX_KEYS, INDEX_KEYS_FP32);
    if (part == ROUND_FP4_32)
        cpu_saw(s, ROW_INDEX_KEYS, INDEX_KEYS_FP4);
    else if (part == ROUND_FP8_128)
        cpu_saw(s, ROW_INDEX_KEYS, INDEX_KEYS_FP8);
    else if (all == ROUND_BF16)
        cpu_saw(s, ROW_INDEX_KEYS, INDEX_KEYS_BF16);
}

void cpu_testify(struct cpu_backend *b, enum precision_row row, const struct place *place,
                 int32_t n)
{
    double parameter = 0;
    uint64_t units[PRECISION_VALUES_MAX] = {0}, all = 0;
    for (int i = 0; i < pool_threads(b->pool); i++) {
        uint32_t *seen = b->threads[i].seen[row];
        for (int value = 0; value < PRECISION_VALUES_MAX; value++) {
            units[value] += seen[value];
            all += seen[value];
            if (seen[value] > 0)
                parameter = b->threads[i].used[row];
            seen[value] = 0;
        }
    }
    for (int value = 0; value < PRECISION_VALUES_MAX; value++) {
        if (units[value] == 0)
            continue;
        /* Of a mixture each value gets its share of the rows, and at least one. */
        int32_t rows = (int32_t)((uint64_t)n * units[value] / all), decode = place->n_decode;
        rows = rows > 0 ? rows : 1;
        struct place where = {place->kind, decode < rows ? decode : rows};
        witness_note(&b->witness, row, value, &where, rows, parameter);
    }
}

void cpu_witness_read(struct backend *base, struct witness_table *out)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    *out = b->witness;
    memset(&b->witness, 0, sizeof b->witness);
}
