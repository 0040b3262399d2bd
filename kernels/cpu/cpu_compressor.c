/* Compressed entries on the CPU (model.md 2.4, 2.5): pooling, and the indexer that chooses. */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

void cpu_compressor_store(struct backend *base, const struct compressor_store_params *p)
{
    (void)base;
    ASSERT(p->ape.store == STORE_F32 && p->ape.rows == p->ratio && p->ape.cols == p->width);
    for (int64_t t = 0; t < p->n; t++) {
        int64_t position = *p->at + t, slot = position % p->ring_slots * p->width;
        const float *ape = (const float *)p->ape.data + position % p->ratio * p->width;
        const float *gamma = p->gamma + t * p->width;
        memcpy(p->kappa_ring + slot, p->kappa + t * p->width, (size_t)p->width * sizeof *gamma);
        for (int32_t c = 0; c < p->width; c++)
            p->gamma_ring[slot + c] = gamma[c] + ape[c];
    }
}

struct pool_job {
    const struct cpu_backend *b;
    const struct compressor_pool_params *p;
};

/* The rows a block pools: its own tokens and, when blocks overlap, the first halves of the block
 * before (absent in front of block 0) with the second halves of its own. */
static int32_t rows_of_block(const struct compressor_pool_params *p, int64_t block,
                             const float **kappa, const float **gamma)
{
    bool overlap = p->width == 2 * p->dim;
    int64_t first = block * p->ratio, from = overlap && block > 0 ? first - p->ratio : first;
    int32_t n = 0;
    for (int64_t at = from; at < first + p->ratio; at++, n++) {
        int64_t offset = at % p->ring_slots * p->width + (overlap && at >= first ? p->dim : 0);
        kappa[n] = p->kappa_ring + offset;
        gamma[n] = p->gamma_ring + offset;
    }
    return n;
}

/* The Hadamard transform of an index key or query, or none. */
static void rotate_key(const struct cpu_vector *v, struct cpu_scratch *s, bool rotate,
                       enum round round, float *x)
{
    if (!rotate) {
        cpu_saw(s, ROW_INDEX_ROTATE, INDEX_ROTATE_OFF);
        return;
    }
    v->hadamard(x);
    v->round(round, x, INDEX_HEAD_DIM, x);
    cpu_saw(s, ROW_INDEX_ROTATE, INDEX_ROTATE_ON);
}

static void pool_blocks(void *context, int thread, int32_t begin, int32_t end)
{
    const struct cpu_backend *b = ((const struct pool_job *)context)->b;
    const struct compressor_pool_params *p = ((const struct pool_job *)context)->p;
    const struct cpu_vector *v = b->v;
    struct cpu_scratch *s = &b->threads[thread];
    const float *kappa[RATIO_HCA], *gamma[RATIO_HCA];
    for (int64_t i = begin; i < end; i++) {
        float out[HEAD_DIM], *rotated = out + p->dim - ROPE_HEAD_DIM;
        int64_t block = *p->at / p->ratio + i;
        uint8_t *row = entry_find(p->cache, &p->pages, p->format, p->dim, block);
        int32_t n = rows_of_block(p, block, kappa, gamma);
        const struct cpu_sums *sums = &v->sums[p->precise];
        sums->pool(kappa, gamma, n, p->dim, out);
        cpu_saw(s, ROW_SUM, sums->value);
        v->round(p->round, out, p->dim, out);
        enum round all = cpu_norm_row(v, out, &p->weight, p->dim, p->round, out);
        cpu_rope_row(v, rotated, p->rope + i * ROPE_ROW, p->round, false);
        if (!p->index) {
            cpu_saw_entry(s, all, v->round(p->round_nope, out, p->dim - ROPE_HEAD_DIM, out));
        } else {
            rotate_key(v, s, p->rotate, p->round, out);
            cpu_saw_key(s, all, v->round(p->round_rotated, out, p->dim, out));
        }
        v->entry_write(p->format, out, p->dim, row);
    }
}

void cpu_compressor_pool(struct backend *base, const struct compressor_pool_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->width == p->dim || p->width == 2 * p->dim);
    ASSERT(p->ratio <= RATIO_HCA && p->dim == (p->index ? INDEX_HEAD_DIM : HEAD_DIM));
    struct pool_job job = {b, p};
    int64_t work = (int64_t)16 * p->ratio * p->width;
    pool_run(b->pool, pool_blocks, &job, p->n, cpu_grain(b, p->n, work));
    cpu_testify(b, ROW_SUM, &p->place, p->n);
    cpu_testify(b, ROW_KV_ENTRY, &p->place, p->n);
    cpu_testify(b, ROW_INDEX_ROTATE, &p->place, p->n);
    cpu_testify(b, ROW_INDEX_KEYS, &p->place, p->n);
}

/* ---- the indexer ---------------------------------------------------------------------------- */

struct index_query_job {
    const struct cpu_backend *b;
    const struct index_query_params *p;
};

/* Units are heads of tokens. */
static void index_query_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct cpu_backend *b = ((const struct index_query_job *)context)->b;
    const struct index_query_params *p = ((const struct index_query_job *)context)->p;
    const struct cpu_vector *v = b->v;
    struct cpu_scratch *s = &b->threads[thread];
    for (int32_t unit = begin; unit < end; unit++) {
        float *q = p->q + (int64_t)unit * INDEX_HEAD_DIM;
        const double *rope = p->rope + (int64_t)(unit / p->heads) * ROPE_ROW;
        float *rotated = q + INDEX_HEAD_DIM - ROPE_HEAD_DIM;
        enum round all = cpu_rope_row(v, rotated, rope, p->round, false);
        rotate_key(v, s, p->rotate, p->round, q);
        cpu_saw_key(s, all, v->round(p->round_rotated, q, INDEX_HEAD_DIM, q));
    }
}

void cpu_index_query(struct backend *base, const struct index_query_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct index_query_job job = {b, p};
    pool_run(b->pool, index_query_units, &job, p->n * p->heads,
             cpu_grain(b, p->n * p->heads, 16 * INDEX_HEAD_DIM));
    cpu_testify(b, ROW_INDEX_ROTATE, &p->place, p->n);
    cpu_testify(b, ROW_INDEX_KEYS, &p->place, p->n);
}

struct select_job {
    const struct cpu_backend *b;
    const struct index_select_params *p;
    int32_t token;  /* first of the tokens whose scores are held now */
    int32_t n;      /* and how many those are */
    int32_t stride; /* scores held for a token, a multiple of INDEX_CHUNK */
};

static int32_t visible_blocks(const struct index_select_params *p, int32_t token)
{
    return (int32_t)(((int64_t)*p->at + token + 1) / RATIO_CSA);
}

/* Sums over heads are in double, where the products of FP4 values and bf16 weights are exact, so
 * that equal scores tie. */
static enum precision_INDEX_SCORE add_heads(const struct cpu_vector *v, float *const *dots,
                                            const float *weights, int32_t heads, double *score)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * heads);
    for (int32_t h = 0; h < heads; h++)
        v->relu_add(score, dots[h], weights[h] * scale, INDEX_CHUNK);
    return INDEX_SCORE_FP32;
}

/* As the published code: products, weights, weighted terms and their sum are stored in bf16. */
static enum precision_INDEX_SCORE add_heads_bf16(const struct cpu_vector *v, float *const *dots,
                                                 const float *weights, int32_t heads, double *score)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * heads);
    float sum[INDEX_CHUNK] = {0};
    for (int32_t h = 0; h < heads; h++) {
        float weight = (float)(weights[h] * scale), *terms = dots[h];
        v->round(ROUND_BF16, &weight, 1, &weight);
        v->round(ROUND_BF16, terms, INDEX_CHUNK, terms);
        for (int32_t i = 0; i < INDEX_CHUNK; i++)
            terms[i] = (terms[i] > 0 ? terms[i] : 0) * weight;
        v->round(ROUND_BF16, terms, INDEX_CHUNK, terms);
        for (int32_t i = 0; i < INDEX_CHUNK; i++)
            sum[i] += terms[i];
    }
    v->round(ROUND_BF16, sum, INDEX_CHUNK, sum);
    for (int32_t i = 0; i < INDEX_CHUNK; i++)
        score[i] = sum[i];
    return INDEX_SCORE_BF16;
}

/* INDEX_CHUNK keys from `from` on, as many as the last of the tokens sees: in float32 where they
 * lie, else read. */
static void keys_read(const struct select_job *job, struct cpu_scratch *s, int32_t from, int32_t n)
{
    const struct index_select_params *p = job->p;
    for (int32_t j = 0; j < n; j++) {
        float *read = s->index_keys + (int64_t)j * INDEX_HEAD_DIM;
        const void *row =
            entry_find(p->keys, &p->pages, p->format, INDEX_HEAD_DIM, (int64_t)from + j);
        s->keys[j] = p->format == ENTRY_F32 ? row : read;
        if (p->format != ENTRY_F32)
            job->b->v->entry_read(p->format, row, INDEX_HEAD_DIM, read);
    }
}

/* Scores of one token over the first n of the keys that were read, which start at `from`. */
static void score_chunk(const struct select_job *job, struct cpu_scratch *s, int32_t index,
                        int32_t from, int32_t n)
{
    const struct index_select_params *p = job->p;
    const struct cpu_vector *v = job->b->v;
    int32_t token = job->token + index;
    const float *q[INDEX_HEADS_MAX];
    float *dots[INDEX_HEADS_MAX];
    double *score = job->b->index_scores + (int64_t)index * job->stride + from;
    for (int32_t h = 0; h < p->heads; h++) {
        q[h] = p->q + ((int64_t)token * p->heads + h) * INDEX_HEAD_DIM;
        dots[h] = s->index_dots + (int64_t)h * INDEX_CHUNK;
    }
    v->sums[p->precise].dots(s->keys, n, q, p->heads, INDEX_HEAD_DIM, dots);
    cpu_saw(s, ROW_SUM, v->sums[p->precise].value);
    memset(score, 0, INDEX_CHUNK * sizeof *score);
    const float *weights = p->weights + (int64_t)token * p->heads;
    cpu_saw(s, ROW_INDEX_SCORE,
            p->score == INDEX_SCORE_BF16 ? add_heads_bf16(v, dots, weights, p->heads, score)
                                         : add_heads(v, dots, weights, p->heads, score));
}

static int32_t chunk_of(int32_t n)
{
    return n < 0 ? 0 : n < INDEX_CHUNK ? n : INDEX_CHUNK;
}

/* Units are (INDEX_TOKENS tokens, chunk of keys). */
static void score_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct select_job *job = context;
    struct cpu_scratch *s = &job->b->threads[thread];
    int32_t chunks = job->stride / INDEX_CHUNK;
    for (int32_t unit = begin; unit < end; unit++) {
        int32_t first = unit / chunks * INDEX_TOKENS, from = unit % chunks * INDEX_CHUNK;
        int32_t last = first + INDEX_TOKENS < job->n ? first + INDEX_TOKENS : job->n;
        keys_read(job, s, from, chunk_of(visible_blocks(job->p, job->token + last - 1) - from));
        for (int32_t index = first; index < last; index++) {
            int32_t n = chunk_of(visible_blocks(job->p, job->token + index) - from);
            if (n > 0)
                score_chunk(job, s, index, from, n);
        }
    }
}

/* True when entry a ranks below entry b: a lower score, or an equal one with a higher index.
 * A NaN ranks lowest, so that the order stays total. */
static bool worse(const double *score, int32_t a, int32_t b)
{
    double x = isnan(score[a]) ? -(double)INFINITY : score[a];
    double y = isnan(score[b]) ? -(double)INFINITY : score[b];
    return x < y || (x == y && a > b);
}

/* Restores a heap with the worst entry on top, whose root may be misplaced. */
static void sift_down(const double *score, int32_t *heap, int32_t n)
{
    for (int32_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(score, heap[child + 1], heap[child]))
            child++;
        if (worse(score, heap[at], heap[child]))
            return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Marks below: an entry is selected when it does not rank below the worst of the best. */
static enum precision_INDEX_TOPK select_best(const double *score, int32_t n, int32_t topk,
                                             int32_t *heap, int32_t *out)
{
    int32_t held = 0;
    for (int32_t i = 0; i < topk; i++) { /* sift up */
        int32_t at = held++;
        for (; at > 0 && worse(score, i, heap[(at - 1) / 2]); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = i;
    }
    for (int32_t i = topk; i < n; i++) {
        if (worse(score, heap[0], i)) {
            heap[0] = i;
            sift_down(score, heap, topk);
        }
    }
    int32_t last = heap[0], count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!worse(score, i, last))
            out[count++] = i;
    }
    ASSERT(count == topk);
    return INDEX_TOPK_EXACT;
}

/* The best by what one pass of a radix selection sees of a score: sign, exponent and 3 bits of
 * fraction.  Overwrites the scores. */
static enum precision_INDEX_TOPK select_roughly(double *score, int32_t n, int32_t topk,
                                                int32_t *heap, int32_t *out)
{
    for (int32_t i = 0; i < n; i++) {
        union {
            float f;
            uint32_t u;
        } bits = {.f = (float)score[i]};
        bits.u &= 0xfff00000u;
        score[i] = bits.f;
    }
    select_best(score, n, topk, heap, out);
    return INDEX_TOPK_APPROXIMATE;
}

static void select_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct select_job *job = context;
    const struct index_select_params *p = job->p;
    for (int32_t index = begin; index < end; index++) {
        int32_t token = job->token + index, n = visible_blocks(p, token);
        int32_t *out = p->selected + (int64_t)token * p->topk;
        p->n_selected[token] = n < p->topk ? n : p->topk;
        if (n > p->topk) {
            struct cpu_scratch *s = &job->b->threads[thread];
            double *score = job->b->index_scores + (int64_t)index * job->stride;
            cpu_saw(s, ROW_INDEX_TOPK,
                    p->choice == INDEX_TOPK_EXACT
                        ? select_best(score, n, p->topk, s->heap, out)
                        : select_roughly(score, n, p->topk, s->heap, out));
            continue;
        }
        for (int32_t j = 0; j < n; j++)
            out[j] = j;
    }
}

void cpu_index_select(struct backend *base, const struct index_select_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->topk >= 1 && p->topk <= b->limits.topk && p->heads <= b->limits.index_heads);
    ASSERT(*p->at <= p->reach - p->n && p->reach <= POSITIONS_MAX);
    struct select_job job = {.b = b, .p = p};
    int32_t most = visible_blocks(p, p->n - 1);
    job.stride = (most + INDEX_CHUNK - 1) / INDEX_CHUNK * INDEX_CHUNK;
    int32_t held = job.stride == 0 ? p->n : CPU_INDEX_SCORES_MAX / job.stride;
    for (job.token = 0; job.token < p->n; job.token += held) {
        int32_t n = p->n - job.token < held ? p->n - job.token : held;
        job.n = n;
        if (most > p->topk) { /* else everything visible is selected, whatever it scores */
            int32_t units = (n + INDEX_TOKENS - 1) / INDEX_TOKENS * (job.stride / INDEX_CHUNK);
            int64_t work = (int64_t)INDEX_TOKENS * INDEX_CHUNK * p->heads * INDEX_HEAD_DIM;
            pool_run(b->pool, score_units, &job, units, cpu_grain(b, units, work));
        }
        pool_run(b->pool, select_tokens, &job, n, cpu_grain(b, n, most > p->topk ? 4 * most : 1));
    }
    cpu_testify(b, ROW_SUM, &p->place, p->n);
    cpu_testify(b, ROW_INDEX_SCORE, &p->place, p->n);
    cpu_testify(b, ROW_INDEX_TOPK, &p->place, p->n);
}
