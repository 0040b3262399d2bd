/*
 * From the values of a profile to what operations are told: one line a row of the table.
 * Knows no sequence and runs nothing.
 */
#include "engine/model/network.h"

#include <math.h>
#include <string.h>

static const enum round ROUND_OF_ACT_STORE[] = {
    [ACT_STORE_FP32] = ROUND_NONE, [ACT_STORE_BF16] = ROUND_BF16};
static const enum round ROUND_OF_HC_STREAMS[] = {
    [HC_STREAMS_FP32] = ROUND_NONE, [HC_STREAMS_BF16] = ROUND_BF16};
static const enum round ROUND_OF_DENSE_LINEAR[] = {
    [DENSE_LINEAR_W8A16] = ROUND_NONE, [DENSE_LINEAR_W8A8] = ROUND_FP8_128};
static const enum round ROUND_OF_ATTN_OUT[] = {
    [ATTN_OUT_W8A16] = ROUND_NONE, [ATTN_OUT_W8A8] = ROUND_FP8_128};
static const enum round ROUND_OF_KV_ENTRY[] = {
    [KV_ENTRY_FP32] = ROUND_NONE, [KV_ENTRY_BF16] = ROUND_BF16, [KV_ENTRY_FP8] = ROUND_BF16};
static const enum round NOPE_OF_KV_ENTRY[] = {
    [KV_ENTRY_FP32] = ROUND_NONE, [KV_ENTRY_BF16] = ROUND_NONE, [KV_ENTRY_FP8] = ROUND_FP8_64};
static const enum round ROUND_OF_INDEX_KEYS[] = {
    [INDEX_KEYS_FP32] = ROUND_NONE,
    [INDEX_KEYS_BF16] = ROUND_BF16,
    [INDEX_KEYS_FP8] = ROUND_BF16,
    [INDEX_KEYS_FP4] = ROUND_BF16,
};
static const enum round ROTATED_OF_INDEX_KEYS[] = {
    [INDEX_KEYS_FP32] = ROUND_NONE,
    [INDEX_KEYS_BF16] = ROUND_NONE,
    [INDEX_KEYS_FP8] = ROUND_FP8_128,
    [INDEX_KEYS_FP4] = ROUND_FP4_32,
};
/* What those leave needs no more than this. */
static const enum entry_format FORMAT_OF_KV_ENTRY[] = {
    [KV_ENTRY_FP32] = ENTRY_F32, [KV_ENTRY_BF16] = ENTRY_BF16, [KV_ENTRY_FP8] = ENTRY_FP8};
static const enum entry_format FORMAT_OF_INDEX_KEYS[] = {
    [INDEX_KEYS_FP32] = ENTRY_F32,
    [INDEX_KEYS_BF16] = ENTRY_BF16,
    [INDEX_KEYS_FP8] = ENTRY_KEY_FP8,
    [INDEX_KEYS_FP4] = ENTRY_KEY_FP4,
};
static const enum round ROUND_OF_COMP_PROJECT[] = {
    [COMP_PROJECT_FP32] = ROUND_NONE, [COMP_PROJECT_BF16] = ROUND_BF16};
static const enum round ROUND_OF_MOE_ROUTE[] = {
    [MOE_ROUTE_FP32] = ROUND_NONE, [MOE_ROUTE_BF16] = ROUND_BF16};
static const enum round ROUND_OF_MOE_EXPERTS[] = {
    [MOE_EXPERTS_W4A16] = ROUND_NONE,
    [MOE_EXPERTS_W4A8] = ROUND_FP8_128,
    [MOE_EXPERTS_W4A4] = ROUND_FP4_32,
    [MOE_EXPERTS_NVFP4] = ROUND_NVFP4,
};
static const enum round ROUND_OF_HEAD_LOGITS[] = {
    [HEAD_LOGITS_FP32] = ROUND_NONE, [HEAD_LOGITS_BF16] = ROUND_BF16};

/* A new value without a rounding would read beyond its table. */
#define COMPLETE(table, row)                                                                       \
    _Static_assert(sizeof table / sizeof *table == row##_VALUES, "a rounding for every value")
COMPLETE(ROUND_OF_ACT_STORE, ACT_STORE);
COMPLETE(ROUND_OF_HC_STREAMS, HC_STREAMS);
COMPLETE(ROUND_OF_DENSE_LINEAR, DENSE_LINEAR);
COMPLETE(ROUND_OF_ATTN_OUT, ATTN_OUT);
COMPLETE(ROUND_OF_KV_ENTRY, KV_ENTRY);
COMPLETE(NOPE_OF_KV_ENTRY, KV_ENTRY);
COMPLETE(ROUND_OF_INDEX_KEYS, INDEX_KEYS);
COMPLETE(ROTATED_OF_INDEX_KEYS, INDEX_KEYS);
COMPLETE(FORMAT_OF_KV_ENTRY, KV_ENTRY);
COMPLETE(FORMAT_OF_INDEX_KEYS, INDEX_KEYS);
COMPLETE(ROUND_OF_COMP_PROJECT, COMP_PROJECT);
COMPLETE(ROUND_OF_MOE_ROUTE, MOE_ROUTE);
COMPLETE(ROUND_OF_MOE_EXPERTS, MOE_EXPERTS);
COMPLETE(ROUND_OF_HEAD_LOGITS, HEAD_LOGITS);

struct numerics numerics_of(const struct profile *profile, const struct model_config *config,
                            const struct perturbation *p)
{
    const uint8_t *v = profile->values;
    struct numerics n = {
        .activation = ROUND_OF_ACT_STORE[v[ROW_ACT_STORE]],
        .streams = ROUND_OF_HC_STREAMS[v[ROW_HC_STREAMS]],
        .linear_in = ROUND_OF_DENSE_LINEAR[v[ROW_DENSE_LINEAR]],
        .group_in = ROUND_OF_ATTN_OUT[v[ROW_ATTN_OUT]],
        .entry = ROUND_OF_KV_ENTRY[v[ROW_KV_ENTRY]],
        .entry_nope = NOPE_OF_KV_ENTRY[v[ROW_KV_ENTRY]],
        .key = ROUND_OF_INDEX_KEYS[v[ROW_INDEX_KEYS]],
        .key_rotated = ROTATED_OF_INDEX_KEYS[v[ROW_INDEX_KEYS]],
        .project = ROUND_OF_COMP_PROJECT[v[ROW_COMP_PROJECT]],
        .route = ROUND_OF_MOE_ROUTE[v[ROW_MOE_ROUTE]],
        .routed_in = ROUND_OF_MOE_EXPERTS[v[ROW_MOE_EXPERTS]],
        .logits = ROUND_OF_HEAD_LOGITS[v[ROW_HEAD_LOGITS]],
        .precise = v[ROW_SUM] == SUM_F64,
        .precise_entries = v[ROW_SUM_ENTRY] == SUM_ENTRY_F64,
        .rotate_queries = v[ROW_INDEX_ROTATE] == INDEX_ROTATE_ON && !p->rotate_keys_only,
        .rotate_keys = v[ROW_INDEX_ROTATE] == INDEX_ROTATE_ON || p->rotate_keys_only,
        .attention = {[LEG_PREFILL] = (enum attn_math)v[ROW_ATTN_PREFILL],
                      [LEG_DECODE] = (enum attn_math)v[ROW_ATTN_DECODE]},
        .query = v[ROW_ATTN_QUERY],
        .query_norm = v[ROW_ATTN_QNORM],
        .score = v[ROW_INDEX_SCORE],
        .choice = v[ROW_INDEX_TOPK],
        .mix = v[ROW_HC_MIX],
        .scale = v[ROW_MOE_SCALE],
        .limit = v[ROW_MOE_CLAMP] == MOE_CLAMP_OFF ? (double)INFINITY
                 : p->clamp_limit > 0              ? p->clamp_limit
                                                   : SWIGLU_LIMIT,
        .scaling = config->routed_scaling_factor,
        .topk = p->index_topk > 0 && p->index_topk < config->index_topk ? p->index_topk
                                                                        : config->index_topk,
        .hc_transposed = p->hc_transposed,
    };
    if (p->routed_factor > 0)
        n.scaling *= p->routed_factor;
    if (p->routed_zero)
        n.scaling = 0;
    return n;
}

struct state_format state_format_of(const struct model *model, const struct profile *profile)
{
    const uint8_t *v = profile->values;
    if (!model->packs)
        return (struct state_format){ENTRY_F32, ENTRY_F32};
    return (struct state_format){FORMAT_OF_KV_ENTRY[v[ROW_KV_ENTRY]],
                                 FORMAT_OF_INDEX_KEYS[v[ROW_INDEX_KEYS]]};
}

uint64_t numerics_hash(const struct profile *profile, const struct perturbation *p)
{
    const uint64_t parts[] = {
        witness_parameter(p->clamp_limit),
        witness_parameter(p->routed_factor),
        p->routed_zero,
        (uint64_t)p->index_topk,
        p->rotate_keys_only,
        p->hc_transposed,
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = hash * 0x100000001b3u + parts[i]; /* nothing perturbed: 0 */
    return profile->hash ^ hash;
}
