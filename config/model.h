/*
 * The closed list of networks this engine runs: one row a fixed configuration.
 *
 * A checkpoint's config.json is compared against a row and refused on any difference, with the
 * field named; it is never a source of values.  Widths that kernels rely on are equal in all rows
 * and are constants here; counts are run-time numbers taken from the row.
 * No logic: whoever needs a derived number (per-head sizes, totals) computes it where it is used.
 */
#ifndef V4BOX_CONFIG_MODEL_H
#define V4BOX_CONFIG_MODEL_H

#include <stdint.h>

/* ---- widths equal in every row (model.md 1.1); kernels may rely on them -------------------- */
#define HEAD_DIM       512 /* one key/value vector; [nope 448 | rope 64] */
#define ROPE_HEAD_DIM  64  /* the last channels of every head, rotated in adjacent pairs */
#define INDEX_HEAD_DIM 128 /* indexer query and key width; Hadamard size */
#define SLIDING_WINDOW 128 /* current token included */
#define RATIO_CSA      4   /* overlapping compressor with indexer */
#define RATIO_HCA      128 /* plain compressor */
#define HC_MULT        4   /* residual streams */
#define HC_MIX         ((2 + HC_MULT) * HC_MULT) /* pre 4, post 4, comb 16 */
#define HC_SINKHORN    20                        /* column normalisations */
#define FP8_BLOCK      128                       /* weight block edge and activation group */
#define FP8_KV_GROUP   64 /* KV entry quantisation group, on the nope channels */
#define FP4_GROUP      32 /* expert weight group and indexer activation group */
#define NVFP4_GROUP    16 /* weight and activation group of NVIDIA's format (model.md 3.3) */
#define RMS_NORM_EPS   1e-6
#define HC_EPS         1e-6
#define ROPE_THETA     10000.0  /* window-only layers and MTP blocks, no YaRN */
#define COMPRESS_THETA 160000.0 /* layers with a compressor, with YaRN */
#define YARN_FACTOR    16.0
#define YARN_ORIGINAL  65536.0
#define YARN_BETA_FAST 32.0
#define YARN_BETA_SLOW 1.0
#define SWIGLU_LIMIT   10.0
#define POSITIONS_MAX  1048576

/* ---- bounds of the counts, so that tables can be static ------------------------------------ */
#define LAYERS_MAX      64  /* 43 + drafts in flash */
#define EXPERTS_MAX     256 /* routed experts */
#define TOP_EXPERTS_MAX 8
#define HEADS_MAX       64
#define INDEX_HEADS_MAX 64
#define INDEX_TOPK_MAX  512

/* One fixed configuration.  Names follow config.json. */
struct model_config {
    const char *name;
    int32_t vocab_size, hidden_size, num_hidden_layers, num_hash_layers, num_nextn_predict_layers;
    int32_t num_attention_heads, q_lora_rank, o_groups, o_lora_rank;
    int32_t index_n_heads, index_topk;
    int32_t n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size;
    double routed_scaling_factor;
    uint8_t compress_ratios[LAYERS_MAX]; /* [num_hidden_layers + num_nextn_predict_layers] */
};

/* clang-format off */
/* Designated initialisers, one block a row; sources beside each. */
#define MODEL_CONFIG_ROWS                                                                          \
    { /* DeepSeek-V4-Flash, April 2026 preview (model.md 1.1) */                                   \
      .name = "flash", .vocab_size = 129280, .hidden_size = 4096, .num_hidden_layers = 43,         \
      .num_hash_layers = 3, .num_nextn_predict_layers = 1, .num_attention_heads = 64,              \
      .q_lora_rank = 1024, .o_groups = 8, .o_lora_rank = 1024, .index_n_heads = 64,                \
      .index_topk = 512, .n_routed_experts = 256, .num_experts_per_tok = 6, .n_shared_experts = 1, \
      .moe_intermediate_size = 2048, .routed_scaling_factor = 1.5,                                 \
      .compress_ratios = {0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,    \
                          4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,  \
                          4, 128, 4, 128, 4, 128, 4, 0} },                                         \
    { /* the embedded model, rootfs/models/demo */                                                 \
      .name = "demo", .vocab_size = 4096, .hidden_size = 256, .num_hidden_layers = 6,              \
      .num_hash_layers = 2, .num_nextn_predict_layers = 1, .num_attention_heads = 8,               \
      .q_lora_rank = 128, .o_groups = 4, .o_lora_rank = 128, .index_n_heads = 8,                   \
      .index_topk = 64, .n_routed_experts = 8, .num_experts_per_tok = 2, .n_shared_experts = 1,    \
      .moe_intermediate_size = 128, .routed_scaling_factor = 1.5,                                  \
      .compress_ratios = {0, 0, 4, 128, 4, 4, 0} },                                                \
    { /* tests/data/golden: every layer kind, small */                                             \
      .name = "golden-nano", .vocab_size = 512, .hidden_size = 256, .num_hidden_layers = 6,        \
      .num_hash_layers = 3, .num_nextn_predict_layers = 1, .num_attention_heads = 4,               \
      .q_lora_rank = 128, .o_groups = 2, .o_lora_rank = 128, .index_n_heads = 16,                  \
      .index_topk = 32, .n_routed_experts = 16, .num_experts_per_tok = 4, .n_shared_experts = 1,   \
      .moe_intermediate_size = 128, .routed_scaling_factor = 1.5,                                  \
      .compress_ratios = {0, 0, 4, 128, 4, 128, 0} },                                              \
    { /* tests/data/golden: other sizes, so that nothing can be hard-coded */                      \
      .name = "golden-wide", .vocab_size = 1024, .hidden_size = 384, .num_hidden_layers = 4,       \
      .num_hash_layers = 1, .num_nextn_predict_layers = 1, .num_attention_heads = 8,               \
      .q_lora_rank = 256, .o_groups = 4, .o_lora_rank = 128, .index_n_heads = 32,                  \
      .index_topk = 48, .n_routed_experts = 32, .num_experts_per_tok = 6, .n_shared_experts = 1,   \
      .moe_intermediate_size = 256, .routed_scaling_factor = 2.5,                                  \
      .compress_ratios = {0, 4, 128, 4, 0} },                                                      \
    { /* tests/data/precision: every layer kind once, for processors that are emulated */          \
      .name = "precision-tiny", .vocab_size = 4096, .hidden_size = 128, .num_hidden_layers = 3,    \
      .num_hash_layers = 1, .num_nextn_predict_layers = 1, .num_attention_heads = 2,               \
      .q_lora_rank = 128, .o_groups = 1, .o_lora_rank = 128, .index_n_heads = 4,                   \
      .index_topk = 16, .n_routed_experts = 4, .num_experts_per_tok = 2, .n_shared_experts = 1,    \
      .moe_intermediate_size = 128, .routed_scaling_factor = 1.5,                                  \
      .compress_ratios = {0, 4, 128, 0} }
/* clang-format on */

#endif
