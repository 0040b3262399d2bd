/* The CPU backend as an object: processor detection, scratch memory, plain memory, the table. */
#include "kernels/cpu/cpu.h"

#include "kernels/cpu/cpu_ops.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool cpu_isa_available(enum cpu_isa isa)
{
    __builtin_cpu_init(); /* asks the processor and, through xgetbv, the kernel */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
    switch (isa) {
    case CPU_BASELINE:
        return true; /* all of the program is built for x86-64-v2 */
    case CPU_AVX2:
        return avx2;
    case CPU_AVX512:
        /* every extension that the Makefile allows the compiler to use in *_avx512.c */
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vbmi");
    default:
        return false;
    }
}

enum cpu_isa cpu_isa_best(void)
{
    for (enum cpu_isa isa = CPU_AVX512; isa > CPU_BASELINE; isa--) {
        if (cpu_isa_available(isa))
            return isa;
    }
    return CPU_BASELINE;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void *reserve(struct backend *b, size_t bytes)
{
    (void)b;
    /* A reservation is for the longest timeline; pages come when they are written. */
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void release(struct backend *b, void *memory, size_t bytes)
{
    (void)b;
    if (memory != NULL)
        ASSERT(munmap(memory, bytes) == 0);
}

static void clear(struct backend *b, void *memory, size_t bytes)
{
    (void)b;
    /* Gives the pages back; the next touch finds zeros. */
    ASSERT(madvise(memory, bytes, MADV_DONTNEED) == 0);
}

static void upload(struct backend *b, void *device, const void *host, size_t bytes)
{
    (void)b;
    memcpy(device, host, bytes);
}

static void download(struct backend *b, void *host, const void *device, size_t bytes)
{
    (void)b;
    memcpy(host, device, bytes);
}

static void copy(struct backend *b, void *device_to, const void *device_from, size_t bytes)
{
    (void)b;
    memcpy(device_to, device_from, bytes);
}

#define ROWS_BYTES ((size_t)ROWS_READ_MAX * HEAD_DIM * sizeof(float))

/* ---- the object ----------------------------------------------------------------------------- */

static void scratch_free(struct cpu_scratch *s)
{
    free(s->slab);
    free(s->keys);
    free(s->scores);
    free(s->index_dots);
    free(s->index_keys);
    free(s->heap);
    free(s->streams);
    free(s->tile);
    free(s->partial);
}

static bool scratch_take(struct cpu_scratch *s, const struct backend_limits *limits)
{
    s->slab = calloc((size_t)ROW_BLOCK * (size_t)limits->cols, sizeof *s->slab);
    s->keys = calloc(ATTENDED_MAX, sizeof *s->keys);
    s->scores = calloc((size_t)WEIGHTED_HEADS * (ATTENDED_MAX + 16), sizeof *s->scores);
    s->index_dots = calloc((size_t)INDEX_HEADS_MAX * INDEX_CHUNK, sizeof *s->index_dots);
    s->index_keys = calloc((size_t)INDEX_CHUNK * INDEX_HEAD_DIM, sizeof *s->index_keys);
    s->heap = calloc(INDEX_TOPK_MAX, sizeof *s->heap);
    s->streams = calloc((size_t)HC_MULT * (size_t)limits->hidden, sizeof *s->streams);
    s->tile = calloc((size_t)(ATTN_TILE + WEIGHTED_HEADS) * HEAD_DIM, sizeof *s->tile);
    s->partial = calloc((size_t)2 * WEIGHTED_HEADS * HEAD_DIM, sizeof *s->partial);
    return s->slab && s->keys && s->scores && s->index_dots && s->index_keys && s->heap &&
           s->streams && s->tile && s->partial;
}

static void destroy(struct backend *base)
{
    if (base == NULL)
        return;
    struct cpu_backend *b = (struct cpu_backend *)base;
    int threads = b->pool == NULL ? 0 : pool_threads(b->pool);
    pool_destroy(b->pool);
    for (int i = 0; i < threads && b->threads != NULL; i++)
        scratch_free(&b->threads[i]);
    free(b->threads);
    free(b->rounded);
    free(b->rounded_shared);
    free(b->rounded_groups);
    free(b->mix_weights);
    free(b->x_rows);
    free(b->y_rows);
    release(base, b->index_scores, CPU_INDEX_SCORES_MAX * sizeof *b->index_scores);
    release(base, b->rows, ROWS_BYTES);
    free(b->rows_at);
    free(b->router);
    free(b->entry_at);
    free(b->active);
    free(b->entry_token);
    free(b->entry_of);
    free(b->entry_weight);
    free(b->gate);
    free(b->up);
    free(b->down);
    sampler_clear(&b->sampler);
    free(b);
}

static const char *variant(const struct backend *base)
{
    return ((const struct cpu_backend *)base)->v->name;
}

static void cpu_pick(struct backend *base, const struct pick_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    if (b->sampler.vocab_size == 0) /* many backends pick nothing */
        sampler_init(&b->sampler, p->vocab);
    ASSERT(b->sampler.vocab_size == p->vocab);
    for (int32_t i = 0; i < p->n; i++)
        sampler_take(&b->sampler, p->logits + (int64_t)p->rows[i].row * p->vocab, p->rows[i].pick);
}

static const struct backend_ops OPS = {
    .destroy = destroy,
    .variant = variant,
    .reserve = reserve,
    .release = release,
    .clear = clear,
    .upload = upload,
    .download = download,
    .copy = copy,
    .embed = cpu_embed,
    .hc_pre = cpu_hc_pre,
    .hc_post = cpu_hc_post,
    .hc_head = cpu_hc_head,
    .rms_norm = cpu_rms_norm,
    .linear = cpu_linear,
    .grouped = cpu_grouped,
    .rope_table = cpu_rope_table,
    .query = cpu_query,
    .kv_store = cpu_kv_store,
    .compressor_store = cpu_compressor_store,
    .compressor_pool = cpu_compressor_pool,
    .index_query = cpu_index_query,
    .index_select = cpu_index_select,
    .attention = cpu_attention,
    .route = cpu_route,
    .experts = cpu_experts,
    .mtp_join = cpu_mtp_join,
    .pick = cpu_pick,
    .meet = cpu_meet,
    .gather = cpu_gather,
    .witness_read = cpu_witness_read,
    .packs = true,
    .pages = true,
    .step_tokens = SPAN_TOKENS_MAX,
};

static bool take_memory(struct cpu_backend *b)
{
    const struct backend_limits *l = &b->limits;
    size_t tokens = (size_t)l->tokens, entries = tokens * (size_t)l->top;
    size_t experts = (size_t)l->experts;
    int threads = pool_threads(b->pool);
    b->threads = calloc((size_t)threads, sizeof *b->threads);
    if (b->threads == NULL)
        return false;
    for (int i = 0; i < threads; i++) {
        if (!scratch_take(&b->threads[i], l))
            return false;
    }
    b->rounded = calloc(tokens * (size_t)l->cols, sizeof *b->rounded);
    b->rounded_shared = calloc(tokens * (size_t)l->hidden, sizeof *b->rounded_shared);
    b->rounded_groups = calloc(tokens * (size_t)l->group_cols, sizeof *b->rounded_groups);
    b->mix_weights = calloc((size_t)HC_MIX * (size_t)l->cols, sizeof *b->mix_weights);
    size_t rows = tokens * (size_t)(l->top > l->groups ? l->top : l->groups);
    b->x_rows = calloc(rows, sizeof *b->x_rows);
    b->y_rows = calloc(LINEAR_OUTS_MAX * entries, sizeof *b->y_rows);
    b->index_scores = reserve(&b->base, CPU_INDEX_SCORES_MAX * sizeof *b->index_scores);
    b->rows = reserve(&b->base, ROWS_BYTES);
    b->rows_at = calloc(ROWS_READ_MAX, sizeof *b->rows_at);
    b->router = calloc(tokens * experts, sizeof *b->router);
    b->entry_at = calloc(experts + 1, sizeof *b->entry_at);
    b->active = calloc(experts, sizeof *b->active);
    b->entry_token = calloc(entries, sizeof *b->entry_token);
    b->entry_of = calloc(entries, sizeof *b->entry_of);
    b->entry_weight = calloc(entries, sizeof *b->entry_weight);
    b->gate = calloc(entries * (size_t)l->inner, sizeof *b->gate);
    b->up = calloc(entries * (size_t)l->inner, sizeof *b->up);
    b->down = calloc(entries * (size_t)l->hidden, sizeof *b->down);
    return b->rounded && b->rounded_shared && b->rounded_groups && b->mix_weights && b->x_rows &&
           b->y_rows && b->index_scores && b->rows && b->rows_at && b->router && b->entry_at &&
           b->active && b->entry_token && b->entry_of && b->entry_weight && b->gate && b->up &&
           b->down;
}

struct backend *backend_cpu_create(enum cpu_isa isa, int threads,
                                   const struct backend_limits *limits)
{
    static const struct cpu_vector *const VECTORS[CPU_ISAS] = {
        [CPU_BASELINE] = &CPU_VECTOR_BASELINE,
        [CPU_AVX2] = &CPU_VECTOR_AVX2,
        [CPU_AVX512] = &CPU_VECTOR_AVX512,
    };
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    ASSERT(cpu_isa_available(isa));
    ASSERT(limits->index_heads <= INDEX_HEADS_MAX && limits->topk <= INDEX_TOPK_MAX);
    pthread_once(&filled, cpu_tables_fill);
    struct cpu_backend *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->base.ops = &OPS;
    b->v = VECTORS[isa];
    b->limits = *limits;
    b->pool = pool_create(threads);
    if (b->pool == NULL || !take_memory(b)) {
        destroy(&b->base);
        return NULL;
    }
    return &b->base;
}

int32_t cpu_grain(const struct cpu_backend *b, int32_t units, int64_t work_of_unit)
{
    int64_t enough = CPU_WORK_MIN / 2 / (work_of_unit > 0 ? work_of_unit : 1) + 1;
    if (enough * 2 > units)
        return units > 0 ? units : 1;                    /* not worth a second thread */
    int64_t share = units / (pool_threads(b->pool) * 4); /* pieces small enough to even out */
    return (int32_t)(share > enough ? share : enough);
}
