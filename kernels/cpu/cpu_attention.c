/* Attention on the CPU (model.md 2.3): rotation, queries, window entries, the weighted sum. */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

#define NOPE (HEAD_DIM - ROPE_HEAD_DIM)

void cpu_rope_table(struct backend *base, const struct rope_table_params *p)
{
    (void)base;
    for (int64_t t = 0; t < p->n; t++) {
        for (int i = 0; i < ROPE_HEAD_DIM / 2; i++) {
            double angle = p->positions[t] * p->frequency[i];
            p->rows[t * ROPE_ROW + 2 * i] = cos(angle);
            p->rows[t * ROPE_ROW + 2 * i + 1] = sin(angle);
        }
    }
}

void cpu_rope_row(const struct cpu_vector *v, float *x, const double *rope, enum round round,
                  bool inverse)
{
    for (int i = 0; i < ROPE_HEAD_DIM; i += 2) {
        double a = x[i], b = x[i + 1], c = rope[i], s = inverse ? -rope[i + 1] : rope[i + 1];
        x[i] = (float)(a * c - b * s);
        x[i + 1] = (float)(a * s + b * c);
    }
    v->round(round, x, ROPE_HEAD_DIM, x);
}

struct query_job {
    const struct cpu_backend *b;
    const struct query_params *p;
};

/* Units are heads of tokens. */
static void query_units(void *context, int thread, int32_t begin, int32_t end)
{
    (void)thread;
    const struct cpu_vector *v = ((const struct query_job *)context)->b->v;
    const struct query_params *p = ((const struct query_job *)context)->p;
    for (int32_t unit = begin; unit < end; unit++) {
        float *q = p->q + (int64_t)unit * HEAD_DIM;
        const double *rope = p->rope + (int64_t)(unit / p->heads) * ROPE_ROW;
        double factor = 1.0 / sqrt(v->square_sum(q, HEAD_DIM) / HEAD_DIM + RMS_NORM_EPS);
        v->scale_norm(q, NULL, factor, HEAD_DIM, q);
        v->round(p->round, q, HEAD_DIM, q);
        cpu_rope_row(v, q + NOPE, rope, p->round, false);
    }
}

void cpu_query(struct backend *base, const struct query_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct query_job job = {b, p};
    pool_run(b->pool, query_units, &job, p->n * p->heads,
             cpu_grain(b, p->n * p->heads, 4 * HEAD_DIM));
}

void cpu_kv_store(struct backend *base, const struct kv_store_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->ring_slots >= SLIDING_WINDOW - 1 + p->n); /* nothing a query of this step needs */
    for (int64_t t = 0; t < p->n; t++) {
        float *entry = p->ring + (p->position + t) % p->ring_slots * HEAD_DIM;
        cpu_norm_row(b->v, p->kv + t * HEAD_DIM, &p->weight, HEAD_DIM, p->round, entry);
        cpu_rope_row(b->v, entry + NOPE, p->rope + t * ROPE_ROW, p->round, false);
        b->v->round(p->round_nope, entry, NOPE, entry);
    }
}

/* The entries that a query at `position` sees: window oldest first, then blocks upwards. */
static int32_t keys_of(const struct attention_params *p, int64_t t, const float **keys)
{
    int64_t position = p->position + t;
    int32_t n = 0;
    int64_t oldest = position >= SLIDING_WINDOW ? position - SLIDING_WINDOW + 1 : 0;
    for (int64_t at = oldest; at <= position; at++)
        keys[n++] = p->ring + at % p->ring_slots * HEAD_DIM;
    if (p->ratio == 0)
        return n;
    if (p->selected == NULL) {
        for (int64_t j = 0; j < (position + 1) / p->ratio; j++)
            keys[n++] = p->compressed + j * HEAD_DIM;
    } else {
        for (int32_t i = 0; i < p->n_selected[t]; i++)
            keys[n++] = p->compressed + (int64_t)p->selected[t * p->topk + i] * HEAD_DIM;
    }
    return n;
}

struct attention_job {
    const struct cpu_backend *b;
    const struct attention_params *p;
};

/* Some heads of one token; out gets the normalised sum, rotated back. */
static void attend(const struct cpu_backend *b, const struct attention_params *p,
                   const struct cpu_scratch *s, int64_t t, int32_t head, int32_t n_heads)
{
    const float *q[WEIGHTED_HEADS], *probability[WEIGHTED_HEADS];
    float *scores[WEIGHTED_HEADS], *out[WEIGHTED_HEADS];
    for (int64_t h = 0; h < n_heads; h++) {
        int64_t at = (t * p->heads + head + h) * HEAD_DIM;
        q[h] = p->q + at;
        out[h] = p->out + at;
        probability[h] = scores[h] = s->scores + h * (ATTENDED_MAX + 16);
    }
    int32_t n = keys_of(p, t, s->keys);
    const struct cpu_sums *sums = &b->v->sums[p->precise];
    sums->dots(s->keys, n, q, n_heads, HEAD_DIM, scores);
    double denominator[WEIGHTED_HEADS];
    for (int32_t h = 0; h < n_heads; h++) {
        /* The sink is one more logit, without a value and without the scale of the others. */
        float sink = ((const float *)p->sink.data)[head + h];
        double most, sum;
        sums->softmax(scores[h], n, (float)0.044194173824159216, sink, &most, &sum);
        denominator[h] = sum + exp(sink - most); /* scale: HEAD_DIM^-0.5 */
    }
    sums->weighted_rows(s->keys, n, probability, n_heads, HEAD_DIM, out);
    for (int32_t h = 0; h < n_heads; h++) {
        b->v->scale_norm(out[h], NULL, 1.0 / denominator[h], HEAD_DIM, out[h]);
        b->v->round(p->round, out[h], HEAD_DIM, out[h]);
        cpu_rope_row(b->v, out[h] + NOPE, p->rope + t * ROPE_ROW, p->round, true);
    }
}

/* Units are groups of WEIGHTED_HEADS heads of one token. */
static void attention_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct attention_job *job = context;
    int32_t groups = (job->p->heads + WEIGHTED_HEADS - 1) / WEIGHTED_HEADS;
    for (int32_t unit = begin; unit < end; unit++) {
        int32_t head = unit % groups * WEIGHTED_HEADS, left = job->p->heads - head;
        attend(job->b, job->p, &job->b->threads[thread], unit / groups, head,
               left < WEIGHTED_HEADS ? left : WEIGHTED_HEADS);
    }
}

void cpu_attention(struct backend *base, const struct attention_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->sink.store == STORE_F32 && p->sink.rows == p->heads);
    ASSERT(p->ratio == 0 || p->ratio == RATIO_HCA || p->selected != NULL);
    ASSERT(p->position <= POSITIONS_MAX - p->n && p->topk <= INDEX_TOPK_MAX);
    struct attention_job job = {b, p};
    int32_t units = p->n * ((p->heads + WEIGHTED_HEADS - 1) / WEIGHTED_HEADS);
    int64_t work = (int64_t)2 * WEIGHTED_HEADS * HEAD_DIM * SLIDING_WINDOW;
    pool_run(b->pool, attention_units, &job, units, cpu_grain(b, units, work));
}
