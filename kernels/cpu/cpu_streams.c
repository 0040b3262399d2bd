/*
 * Hyper-connections on the CPU (model.md 2.2, 2.7) and the joint in front of a draft block (2.8).
 * Unless hc.mix says otherwise all of it is in double: it is little work, and every layer's input
 * passes through it.
 */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>

static double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

struct streams_job {
    const struct cpu_backend *b;
    const void *p;
    struct tensor fn; /* of the mixes, as hc.mix wants it */
};

/* Roundings of the streams and weights that are multiplied, and of the result. */
static const struct {
    enum round in, out;
} MIXES[] = {
    [HC_MIX_FP32] = {ROUND_NONE, ROUND_NONE},
    [HC_MIX_TF32] = {ROUND_TF32, ROUND_NONE},
    [HC_MIX_BF16] = {ROUND_BF16, ROUND_BF16},
};
static_assert(sizeof MIXES / sizeof *MIXES == HC_MIX_VALUES, "roundings for every value");

struct weights_job {
    const struct cpu_backend *b;
    const struct tensor *fn;
    enum round round;
};

static void round_weights(void *context, int thread, int32_t begin, int32_t end)
{
    (void)thread;
    const struct weights_job *job = context;
    int64_t cols = job->fn->cols;
    for (int32_t row = begin; row < end; row++)
        job->b->v->round(job->round, (const float *)job->fn->data + row * cols, job->fn->cols,
                         job->b->mix_weights + row * cols);
}

/* The weights as hc.mix wants them: themselves, or rounded in b->mix_weights. */
static struct tensor weights_for(struct cpu_backend *b, const struct tensor *fn,
                                 enum precision_HC_MIX mix)
{
    struct tensor rounded = *fn;
    if (MIXES[mix].in == ROUND_NONE)
        return rounded;
    struct weights_job job = {b, fn, MIXES[mix].in};
    pool_run(b->pool, round_weights, &job, fn->rows, cpu_grain(b, fn->rows, fn->cols));
    rounded.data = b->mix_weights;
    return rounded;
}

/* mixes = fn . flat, times the RMS factor of the flattened streams; F32 rows need no slab.
 * Unrounded products are summed in double: a rounding that flips in `u` here moves the entries that
 * later queries read. */
static void mixes_of(const struct streams_job *job, struct cpu_scratch *s,
                     enum precision_HC_MIX mix, const float *streams, double *mixes)
{
    const struct cpu_vector *v = job->b->v;
    const struct tensor *fn = &job->fn;
    double factor = 1.0 / sqrt(v->square_sum(streams, fn->cols) / fn->cols + RMS_NORM_EPS);
    float dots[HC_MIX];
    float *y = dots;
    const float *x = streams;
    enum round did = ROUND_NONE;
    if (MIXES[mix].in != ROUND_NONE) {
        did = v->round(MIXES[mix].in, streams, fn->cols, s->streams);
        x = s->streams;
    }
    struct matmul m = {*fn, &x, &y, 1, mix == HC_MIX_FP32};
    v->matmul(&m, 0, fn->rows, NULL);
    for (int i = 0; i < fn->rows; i++) {
        mixes[i] = dots[i] * factor;
        dots[i] = (float)mixes[i];
    }
    if (MIXES[mix].out != ROUND_NONE) {
        v->round(MIXES[mix].out, dots, fn->rows, dots);
        for (int i = 0; i < fn->rows; i++)
            mixes[i] = dots[i];
    }
    cpu_saw_round(s, ROW_HC_MIX, did);
}

static void normalise_rows(double k[HC_MULT][HC_MULT])
{
    for (int j = 0; j < HC_MULT; j++) {
        double sum = HC_EPS;
        for (int i = 0; i < HC_MULT; i++)
            sum += k[j][i];
        for (int i = 0; i < HC_MULT; i++)
            k[j][i] /= sum;
    }
}

static void normalise_columns(double k[HC_MULT][HC_MULT])
{
    for (int i = 0; i < HC_MULT; i++) {
        double sum = HC_EPS;
        for (int j = 0; j < HC_MULT; j++)
            sum += k[j][i];
        for (int j = 0; j < HC_MULT; j++)
            k[j][i] /= sum;
    }
}

/* From logits to a matrix whose columns sum to one; ends on a column normalisation. */
static void sinkhorn(double k[HC_MULT][HC_MULT])
{
    for (int j = 0; j < HC_MULT; j++) {
        double most = k[j][0], sum = 0;
        for (int i = 1; i < HC_MULT; i++)
            most = fmax(most, k[j][i]);
        for (int i = 0; i < HC_MULT; i++)
            sum += k[j][i] = exp(k[j][i] - most);
        for (int i = 0; i < HC_MULT; i++)
            k[j][i] = k[j][i] / sum + HC_EPS;
    }
    normalise_columns(k);
    for (int round = 1; round < HC_SINKHORN; round++) {
        normalise_rows(k);
        normalise_columns(k);
    }
}

/* out = sum over streams of pre[j] * streams[j] */
static enum round mix_down(const struct cpu_vector *v, const float *streams, const double *pre,
                           int32_t hidden, enum round round, float *out)
{
    const float *rows[HC_MULT];
    for (int64_t j = 0; j < HC_MULT; j++)
        rows[j] = streams + j * hidden;
    v->mix_rows(rows, HC_MULT, pre, hidden, out);
    return v->round(round, out, hidden, out);
}

static void pre_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct streams_job *job = context;
    const struct hc_pre_params *p = job->p;
    struct cpu_scratch *s = &job->b->threads[thread];
    const float *scale = p->scale.data, *bias = p->base.data;
    for (int64_t t = begin; t < end; t++) {
        const float *streams = p->streams + t * HC_MULT * p->hidden;
        double *post = p->post + t * HC_MULT, *comb = p->comb + t * HC_MULT * HC_MULT;
        double mixes[HC_MIX], pre[HC_MULT], k[HC_MULT][HC_MULT];
        mixes_of(job, s, p->mix, streams, mixes);
        for (int j = 0; j < HC_MULT; j++) {
            pre[j] = sigmoid(mixes[j] * scale[0] + bias[j]) + HC_EPS;
            int at = HC_MULT + j;
            post[j] = 2 * sigmoid(mixes[at] * scale[1] + bias[at]);
            for (int i = 0; i < HC_MULT; i++) {
                at = 2 * HC_MULT + j * HC_MULT + i;
                k[j][i] = mixes[at] * scale[2] + bias[at];
            }
        }
        sinkhorn(k);
        for (int j = 0; j < HC_MULT; j++) {
            for (int i = 0; i < HC_MULT; i++)
                comb[j * HC_MULT + i] = k[j][i];
        }
        cpu_saw_round(
            s, ROW_ACT_STORE,
            mix_down(job->b->v, streams, pre, p->hidden, p->round, p->out + t * p->hidden));
    }
}

void cpu_hc_pre(struct backend *base, const struct hc_pre_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->fn.store == STORE_F32 && p->fn.rows == HC_MIX && p->fn.cols == HC_MULT * p->hidden);
    struct streams_job job = {b, p, weights_for(b, &p->fn, p->mix)};
    int64_t work = (int64_t)(HC_MIX + 1) * HC_MULT * p->hidden;
    pool_run(b->pool, pre_tokens, &job, p->n, cpu_grain(b, p->n, work));
    cpu_testify(b, ROW_HC_MIX, &p->place, p->n);
    cpu_testify(b, ROW_ACT_STORE, &p->place, p->n);
}

static void post_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct streams_job *job = context;
    const struct hc_post_params *p = job->p;
    const struct cpu_vector *v = job->b->v;
    for (int64_t t = begin; t < end; t++) {
        const double *post = p->post + t * HC_MULT, *comb = p->comb + t * HC_MULT * HC_MULT;
        const float *rows[HC_MULT + 1] = {p->y + t * p->hidden};
        for (int64_t k = 0; k < HC_MULT; k++)
            rows[1 + k] = p->streams + (t * HC_MULT + k) * p->hidden;
        for (int64_t k = 0; k < HC_MULT; k++) {
            float *out = p->streams_out + (t * HC_MULT + k) * p->hidden;
            double weight[HC_MULT + 1] = {post[k]};
            for (int j = 0; j < HC_MULT; j++)
                weight[1 + j] = p->transposed ? comb[k * HC_MULT + j] : comb[j * HC_MULT + k];
            v->mix_rows(rows, HC_MULT + 1, weight, p->hidden, out);
            cpu_saw_round(&job->b->threads[thread], ROW_HC_STREAMS,
                          v->round(p->round, out, p->hidden, out));
        }
    }
}

void cpu_hc_post(struct backend *base, const struct hc_post_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->streams != p->streams_out);
    struct streams_job job = {.b = b, .p = p};
    int64_t work = (int64_t)(HC_MULT + 1) * HC_MULT * p->hidden;
    pool_run(b->pool, post_tokens, &job, p->n, cpu_grain(b, p->n, work));
    cpu_testify(b, ROW_HC_STREAMS, &p->place, p->n);
}

static void head_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct streams_job *job = context;
    const struct hc_head_params *p = job->p;
    struct cpu_scratch *s = &job->b->threads[thread];
    const float *scale = p->scale.data, *bias = p->base.data;
    for (int64_t t = begin; t < end; t++) {
        const float *streams = p->streams + t * HC_MULT * p->hidden;
        double mixes[HC_MIX], pre[HC_MULT];
        mixes_of(job, s, p->mix, streams, mixes);
        for (int j = 0; j < HC_MULT; j++)
            pre[j] = sigmoid(mixes[j] * scale[0] + bias[j]) + HC_EPS;
        cpu_saw_round(
            s, ROW_ACT_STORE,
            mix_down(job->b->v, streams, pre, p->hidden, p->round, p->out + t * p->hidden));
    }
}

void cpu_hc_head(struct backend *base, const struct hc_head_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->fn.store == STORE_F32 && p->fn.rows == HC_MULT && p->fn.cols == HC_MULT * p->hidden);
    struct streams_job job = {b, p, weights_for(b, &p->fn, p->mix)};
    int64_t work = (int64_t)(HC_MULT + 1) * HC_MULT * p->hidden;
    pool_run(b->pool, head_tokens, &job, p->n, cpu_grain(b, p->n, work));
    cpu_testify(b, ROW_HC_MIX, &p->place, p->n);
    cpu_testify(b, ROW_ACT_STORE, &p->place, p->n);
}

void cpu_mtp_join(struct backend *base, const struct mtp_join_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    for (int64_t t = 0; t < p->n; t++) {
        const float *e = p->e + t * p->hidden;
        for (int64_t m = 0; m < HC_MULT; m++) {
            int64_t at = (t * HC_MULT + m) * p->hidden;
            for (int32_t c = 0; c < p->hidden; c++)
                p->streams[at + c] = e[c] + p->h[at + c];
            cpu_saw_round(&b->threads[0], ROW_HC_STREAMS,
                          b->v->round(p->round, p->streams + at, p->hidden, p->streams + at));
        }
    }
    cpu_testify(b, ROW_HC_STREAMS, &p->place, p->n);
}
