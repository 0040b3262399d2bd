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

enum round cpu_rope_row(const struct cpu_vector *v, float *x, const double *rope, enum round round,
                        bool inverse)
{
    for (int i = 0; i < ROPE_HEAD_DIM; i += 2) {
        double a = x[i], b = x[i + 1], c = rope[i], s = inverse ? -rope[i + 1] : rope[i + 1];
        x[i] = (float)(a * c - b * s);
        x[i + 1] = (float)(a * s + b * c);
    }
    return v->round(round, x, ROPE_HEAD_DIM, x);
}

/* HEAD_DIM^-0.5: the scale of attention logits. */
#define SOFTMAX_SCALE 0.044194173824159216

struct query_job {
    const struct cpu_backend *b;
    const struct query_params *p;
};

static float to_bf16(const struct cpu_vector *v, double x)
{
    float value = (float)x;
    v->round(ROUND_BF16, &value, 1, &value);
    return value;
}

/* The norm as the published code computes it: every step stored in bf16. */
static void norm_in_bf16(const struct cpu_vector *v, float *q)
{
    float squares[HEAD_DIM];
    double sum = 0;
    for (int i = 0; i < HEAD_DIM; i++)
        squares[i] = q[i] * q[i];
    v->round(ROUND_BF16, squares, HEAD_DIM, squares);
    for (int i = 0; i < HEAD_DIM; i++)
        sum += squares[i];
    float mean = to_bf16(v, sum / HEAD_DIM);
    float factor = to_bf16(v, 1.0 / sqrt(to_bf16(v, mean + RMS_NORM_EPS)));
    v->scale_norm(q, NULL, factor, HEAD_DIM, q);
    v->round(ROUND_BF16, q, HEAD_DIM, q);
}

static enum precision_ATTN_QNORM query_norm(const struct cpu_vector *v,
                                            enum precision_ATTN_QNORM norm, float *q)
{
    if (norm == ATTN_QNORM_BF16) {
        norm_in_bf16(v, q);
        return ATTN_QNORM_BF16;
    }
    double factor = 1.0 / sqrt(v->square_sum(q, HEAD_DIM) / HEAD_DIM + RMS_NORM_EPS);
    v->scale_norm(q, NULL, factor, HEAD_DIM, q);
    return ATTN_QNORM_FP32;
}

/* Units are heads of tokens. */
static void query_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct cpu_backend *b = ((const struct query_job *)context)->b;
    const struct query_params *p = ((const struct query_job *)context)->p;
    const struct cpu_vector *v = b->v;
    struct cpu_scratch *s = &b->threads[thread];
    enum round round = p->store == ATTN_QUERY_FP32 ? ROUND_NONE : ROUND_BF16;
    for (int32_t unit = begin; unit < end; unit++) {
        float *q = p->q + (int64_t)unit * HEAD_DIM;
        const double *rope = p->rope + (int64_t)(unit / p->heads) * ROPE_ROW;
        cpu_saw(s, ROW_ATTN_QNORM, query_norm(v, p->norm, q));
        enum round did = v->round(round, q, HEAD_DIM, q);
        cpu_rope_row(v, q + NOPE, rope, round, false);
        if (p->store == ATTN_QUERY_BF16_SCALED) {
            v->scale_norm(q, NULL, SOFTMAX_SCALE, HEAD_DIM, q);
            did = v->round(ROUND_BF16, q, HEAD_DIM, q);
            cpu_saw(s, ROW_ATTN_QUERY,
                    did == ROUND_BF16 ? ATTN_QUERY_BF16_SCALED : ATTN_QUERY_FP32);
        } else {
            cpu_saw(s, ROW_ATTN_QUERY, did == ROUND_BF16 ? ATTN_QUERY_BF16 : ATTN_QUERY_FP32);
        }
    }
}

void cpu_query(struct backend *base, const struct query_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct query_job job = {b, p};
    pool_run(b->pool, query_units, &job, p->n * p->heads,
             cpu_grain(b, p->n * p->heads, 4 * HEAD_DIM));
    cpu_testify(b, ROW_ATTN_QNORM, &p->place, p->n);
    cpu_testify(b, ROW_ATTN_QUERY, &p->place, p->n);
}

void cpu_kv_store(struct backend *base, const struct kv_store_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->ring_slots >= SLIDING_WINDOW - 1 + p->n); /* nothing a query of this step needs */
    for (int64_t t = 0; t < p->n; t++) {
        float entry[HEAD_DIM];
        enum round all =
            cpu_norm_row(b->v, p->kv + t * HEAD_DIM, &p->weight, HEAD_DIM, p->round, entry);
        cpu_rope_row(b->v, entry + NOPE, p->rope + t * ROPE_ROW, p->round, false);
        cpu_saw_entry(&b->threads[0], all, b->v->round(p->round_nope, entry, NOPE, entry));
        int64_t slot = (*p->at + t) % p->ring_slots;
        b->v->entry_write(p->format, entry, HEAD_DIM,
                          entry_row(p->ring, p->format, HEAD_DIM, slot));
    }
    cpu_testify(b, ROW_KV_ENTRY, &p->place, p->n);
}

/* ---- which entries a query sees ------------------------------------------------------------- */

/* Some tokens of a step whose entries are read together, and where the rows of those begin among
 * the rows that are read: the window, then blocks. */
struct readers {
    int32_t first, n; /* tokens */
    int64_t oldest;   /* position of the first row */
    int32_t window;   /* rows of the window */
    bool apart; /* the blocks of each token by themselves, topk apart; else all, from the first */
};

static int64_t oldest_of(int64_t position)
{
    return position >= SLIDING_WINDOW ? position - SLIDING_WINDOW + 1 : 0;
}

static int64_t blocks_of(const struct attention_params *p, int64_t t)
{
    return p->ratio == 0 ? 0 : (*p->at + t + 1) / p->ratio;
}

/* As many tokens from `first` on as there is room for the rows of. */
static struct readers readers_from(const struct attention_params *p, int32_t first)
{
    struct readers r = {.first = first, .oldest = oldest_of(*p->at + first)};
    int64_t last = p->n - 1, blocks = blocks_of(p, last),
            room = ROWS_READ_MAX - SPAN_TOKENS_MAX - SLIDING_WINDOW;
    r.apart = p->selected != NULL && blocks > (int64_t)p->topk * (p->n - first);
    r.apart = r.apart || blocks > room;
    r.n = p->n - first;
    if (r.apart && p->format != ENTRY_F32 && r.n > room / p->topk)
        r.n = (int32_t)(room / p->topk);
    r.window = (int32_t)(*p->at + first + r.n - r.oldest);
    return r;
}

static const void *compressed_row(const struct attention_params *p, int64_t j)
{
    return entry_find(p->compressed, &p->pages, p->format, HEAD_DIM, j);
}

/* The entries that token t sees, in the order in which they are added: window oldest first, then
 * blocks upwards.  In float32 they are where they were stored, else where they were read to. */
static int32_t keys_of(const struct attention_params *p, const struct readers *r, const float *rows,
                       int64_t t, const float **keys)
{
    int64_t position = *p->at + t, blocks = blocks_of(p, t);
    const float *read = rows + (int64_t)r->window * HEAD_DIM;
    bool stored = p->format == ENTRY_F32;
    int32_t n = 0;
    for (int64_t at = oldest_of(position); at <= position; at++)
        keys[n++] =
            stored ? p->ring + at % p->ring_slots * HEAD_DIM : rows + (at - r->oldest) * HEAD_DIM;
    if (p->selected == NULL) {
        for (int64_t j = 0; j < blocks; j++)
            keys[n++] = stored ? compressed_row(p, j) : read + j * HEAD_DIM;
        return n;
    }
    const int32_t *selected = p->selected + t * p->topk;
    for (int32_t i = 0; i < p->n_selected[t]; i++) {
        int64_t at = stored || !r->apart ? selected[i] : (t - r->first) * p->topk + i;
        keys[n++] = stored ? compressed_row(p, at) : read + at * HEAD_DIM;
    }
    return n;
}

/* Where the rows lie that some tokens read.  @return how many */
static int32_t rows_list(const struct attention_params *p, const struct readers *r,
                         const void **rows_at)
{
    int32_t n = 0;
    for (; n < r->window; n++)
        rows_at[n] = entry_row(p->ring, p->format, HEAD_DIM, (r->oldest + n) % p->ring_slots);
    if (!r->apart) {
        for (int64_t j = 0; j < blocks_of(p, r->first + r->n - 1); j++)
            rows_at[n++] = compressed_row(p, j);
        return n;
    }
    for (int64_t t = r->first; t < r->first + r->n; t++) {
        for (int32_t i = 0; i < p->topk; i++, n++)
            rows_at[n] =
                i < p->n_selected[t] ? compressed_row(p, p->selected[t * p->topk + i]) : NULL;
    }
    return n;
}

struct read_job {
    const struct cpu_backend *b;
    enum entry_format format;
};

static void read_rows(void *context, int thread, int32_t begin, int32_t end)
{
    const struct read_job *job = context;
    const struct cpu_backend *b = job->b;
    (void)thread;
    for (int32_t i = begin; i < end; i++) {
        if (b->rows_at[i] != NULL)
            b->v->entry_read(job->format, b->rows_at[i], HEAD_DIM, b->rows + (int64_t)i * HEAD_DIM);
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

struct attention_job {
    const struct cpu_backend *b;
    const struct attention_params *p;
    struct readers readers;
};

/* Some heads of one token. */
struct heads {
    const float *q[WEIGHTED_HEADS];
    float *out[WEIGHTED_HEADS];
    float sink[WEIGHTED_HEADS]; /* one more logit, without a value and without the others' scale */
    double denominator[WEIGHTED_HEADS];
    int32_t n;
    float scale; /* of the logits */
};

/* ATTN_FP32: one softmax over all keys; out gets the sums. */
static enum attn_math attend_at_once(const struct cpu_backend *b, struct cpu_scratch *s,
                                     bool precise, int32_t n, struct heads *heads)
{
    const float *probability[WEIGHTED_HEADS];
    float *scores[WEIGHTED_HEADS];
    const struct cpu_sums *sums = &b->v->sums[precise];
    for (int32_t h = 0; h < heads->n; h++)
        probability[h] = scores[h] = s->scores + (int64_t)h * (ATTENDED_MAX + 16);
    sums->dots(s->keys, n, heads->q, heads->n, HEAD_DIM, scores);
    for (int32_t h = 0; h < heads->n; h++) {
        double most, sum;
        sums->softmax(scores[h], n, heads->scale, heads->sink[h], &most, &sum);
        heads->denominator[h] = sum + exp(heads->sink[h] - most);
    }
    sums->weighted_rows(s->keys, n, probability, heads->n, HEAD_DIM, heads->out);
    cpu_saw(s, ROW_SUM, sums->value);
    return ATTN_FP32;
}

/* A softmax that is not finished: sums of values and probabilities under a maximum. */
struct running {
    float most, sum;
    float *values; /* [HEAD_DIM] */
};

/* Adds another one, whose maximum may be higher. */
static void running_join(struct running *to, const struct running *more)
{
    float most = more->most > to->most ? more->most : to->most;
    float mine = expf(to->most - most), theirs = expf(more->most - most);
    to->sum = to->sum * mine + more->sum * theirs;
    for (int i = 0; i < HEAD_DIM; i++)
        to->values[i] = to->values[i] * mine + more->values[i] * theirs;
    to->most = most;
}

/* Scores, probabilities and sums of one tile of keys, as a tensor core takes them: bf16 operands,
 * float32 sums.  The denominator is of probabilities that are not rounded yet. */
static void attend_tile(const struct cpu_backend *b, const struct cpu_scratch *s,
                        const struct heads *heads, const float *const *keys, int32_t n,
                        struct running *running)
{
    const struct cpu_sums *sums = &b->v->sums[false];
    const float *rows[ATTN_TILE], *q[WEIGHTED_HEADS], *probability[WEIGHTED_HEADS];
    float *scores[WEIGHTED_HEADS], *values[WEIGHTED_HEADS];
    struct running tile[WEIGHTED_HEADS];
    for (int32_t i = 0; i < n; i++) {
        rows[i] = s->tile + (int64_t)i * HEAD_DIM;
        b->v->round(ROUND_BF16, keys[i], HEAD_DIM, s->tile + (int64_t)i * HEAD_DIM);
    }
    for (int32_t h = 0; h < heads->n; h++) {
        q[h] = s->tile + (int64_t)(ATTN_TILE + h) * HEAD_DIM;
        probability[h] = scores[h] = s->scores + (int64_t)h * (ATTENDED_MAX + 16);
        values[h] = s->partial + (int64_t)h * HEAD_DIM;
    }
    sums->dots(rows, n, q, heads->n, HEAD_DIM, scores);
    for (int32_t h = 0; h < heads->n; h++) {
        double most, sum;
        sums->softmax(scores[h], n, heads->scale, running[h].most, &most, &sum);
        tile[h] = (struct running){(float)most, (float)sum, values[h]};
        b->v->round(ROUND_BF16, scores[h], n, scores[h]);
    }
    sums->weighted_rows(rows, n, probability, heads->n, HEAD_DIM, values);
    for (int32_t h = 0; h < heads->n; h++)
        running_join(&running[h], &tile[h]);
}

/* ATTN_BF16 and, in splits of ATTN_SPLIT keys, ATTN_BF16_SPLIT_K. */
static enum attn_math attend_in_tiles(const struct cpu_backend *b, const struct cpu_scratch *s,
                                      int32_t split, int32_t n, struct heads *heads)
{
    struct running all[WEIGHTED_HEADS], part[WEIGHTED_HEADS];
    for (int32_t h = 0; h < heads->n; h++) {
        all[h] = (struct running){-INFINITY, 0, heads->out[h]};
        memset(heads->out[h], 0, HEAD_DIM * sizeof(float));
        b->v->round(ROUND_BF16, heads->q[h], HEAD_DIM,
                    s->tile + (int64_t)(ATTN_TILE + h) * HEAD_DIM);
    }
    for (int32_t from = 0; from < n; from += split) {
        int32_t end = n - from < split ? n : from + split;
        bool alone = split < n; /* a split knows nothing of the others */
        for (int32_t h = 0; h < heads->n; h++) {
            part[h] = (struct running){-INFINITY, 0,
                                       s->partial + (int64_t)(WEIGHTED_HEADS + h) * HEAD_DIM};
            memset(part[h].values, 0, HEAD_DIM * sizeof(float));
        }
        for (int32_t at = from; at < end; at += ATTN_TILE)
            attend_tile(b, s, heads, s->keys + at, end - at < ATTN_TILE ? end - at : ATTN_TILE,
                        alone ? part : all);
        for (int32_t h = 0; h < heads->n && alone; h++)
            running_join(&all[h], &part[h]);
    }
    for (int32_t h = 0; h < heads->n; h++)
        heads->denominator[h] = all[h].sum + exp((double)heads->sink[h] - all[h].most);
    return split == ATTN_SPLIT ? ATTN_BF16_SPLIT_K : ATTN_BF16;
}

/* Some heads of one token; out gets the normalised sum, rotated back. */
static void attend(const struct attention_job *job, struct cpu_scratch *s, int64_t t, int32_t head,
                   int32_t n_heads)
{
    const struct cpu_backend *b = job->b;
    const struct attention_params *p = job->p;
    struct heads heads = {.n = n_heads, .scale = p->q_scaled ? 1.0f : (float)SOFTMAX_SCALE};
    for (int64_t h = 0; h < n_heads; h++) {
        int64_t at = (t * p->heads + head + h) * HEAD_DIM;
        heads.q[h] = p->q + at;
        heads.out[h] = p->out + at;
        heads.sink[h] = ((const float *)p->sink.data)[head + h];
    }
    int32_t n = keys_of(p, &job->readers, b->rows, t, s->keys);
    enum attn_math did =
        p->math == ATTN_FP32
            ? attend_at_once(b, s, p->precise, n, &heads)
            : attend_in_tiles(b, s, p->math == ATTN_BF16 ? ATTENDED_MAX : ATTN_SPLIT, n, &heads);
    cpu_saw(s, p->place.n_decode > 0 ? ROW_ATTN_DECODE : ROW_ATTN_PREFILL, (int)did);
    for (int32_t h = 0; h < n_heads; h++) {
        float *out = heads.out[h];
        b->v->scale_norm(out, NULL, 1.0 / heads.denominator[h], HEAD_DIM, out);
        cpu_saw_round(s, ROW_ACT_STORE, b->v->round(p->round, out, HEAD_DIM, out));
        cpu_rope_row(b->v, out + NOPE, p->rope + t * ROPE_ROW, p->round, true);
    }
}

/* Units are groups of WEIGHTED_HEADS heads of one token. */
static void attention_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct attention_job *job = context;
    int32_t groups = (job->p->heads + WEIGHTED_HEADS - 1) / WEIGHTED_HEADS;
    for (int32_t unit = begin; unit < end; unit++) {
        int32_t head = unit % groups * WEIGHTED_HEADS, left = job->p->heads - head;
        attend(job, &job->b->threads[thread], job->readers.first + unit / groups, head,
               left < WEIGHTED_HEADS ? left : WEIGHTED_HEADS);
    }
}

void cpu_attention(struct backend *base, const struct attention_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->sink.store == STORE_F32 && p->sink.rows == p->heads);
    ASSERT(p->ratio == 0 || p->ratio == RATIO_HCA || p->selected != NULL);
    ASSERT(*p->at <= p->reach - p->n && p->reach <= POSITIONS_MAX && p->topk <= INDEX_TOPK_MAX);
    ASSERT(p->place.n_decode == 0 || p->place.n_decode == p->n);
    ASSERT(p->n <= SPAN_TOKENS_MAX);
    struct attention_job job = {.b = b, .p = p};
    int32_t groups = (p->heads + WEIGHTED_HEADS - 1) / WEIGHTED_HEADS;
    int64_t work = (int64_t)2 * WEIGHTED_HEADS * HEAD_DIM * SLIDING_WINDOW;
    for (int32_t t = 0; t < p->n; t += job.readers.n) {
        job.readers = readers_from(p, t);
        if (p->format != ENTRY_F32) {
            struct read_job reading = {b, p->format};
            int32_t n = rows_list(p, &job.readers, b->rows_at);
            pool_run(b->pool, read_rows, &reading, n, cpu_grain(b, n, HEAD_DIM));
        }
        int32_t units = job.readers.n * groups;
        pool_run(b->pool, attention_units, &job, units, cpu_grain(b, units, work));
    }
    cpu_testify(b, ROW_ATTN_PREFILL, &p->place, p->n);
    cpu_testify(b, ROW_ATTN_DECODE, &p->place, p->n);
    cpu_testify(b, ROW_ACT_STORE, &p->place, p->n);
    cpu_testify(b, ROW_SUM, &p->place, p->n);
}
