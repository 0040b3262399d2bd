/*
 * The mixture of experts on the CPU (model.md 2.6).  Tokens are sorted by expert, so that one
 * expert's weights are decoded once for all its tokens; sums go by expert number within a token.
 */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

/* ---- routing -------------------------------------------------------------------------------- */

struct route_job {
    const struct cpu_backend *b;
    const struct route_params *p;
};

/* sqrt(log(1 + e^z)), stable on both sides */
static double sqrt_softplus(double z)
{
    return sqrt(fmax(z, 0) + log1p(exp(-fabs(z))));
}

static void sort_ascending(int32_t *list, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t value = list[i], at = i;
        for (; at > 0 && list[at - 1] > value; at--)
            list[at] = list[at - 1];
        list[at] = value;
    }
}

/* The `top` experts of the highest score + bias, the lowest number first on ties. */
static void choose_best(const double *score, const float *bias, int32_t n, int32_t top,
                        int32_t *chosen)
{
    bool taken[EXPERTS_MAX] = {false};
    for (int32_t i = 0; i < top; i++) {
        int32_t best = -1;
        for (int32_t e = 0; e < n; e++) {
            if (!taken[e] && (best < 0 || score[e] + bias[e] > score[best] + bias[best]))
                best = e;
        }
        taken[best] = true;
        chosen[i] = best;
    }
}

static void route_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct route_job *job = context;
    const struct route_params *p = job->p;
    int32_t experts = p->gate.rows;
    double score[EXPERTS_MAX];
    for (int64_t t = begin; t < end; t++) {
        int32_t *chosen = p->experts + t * p->top;
        double scaling = 1;
        for (int32_t e = 0; e < experts; e++)
            score[e] = sqrt_softplus(job->b->router[t * experts + e]);
        if (p->tid2eid.data != NULL) {
            ASSERT(p->ids[t] >= 0 && p->ids[t] < p->tid2eid.rows);
            const char *row = (const char *)p->tid2eid.data + p->ids[t] * (int64_t)p->top * 8;
            for (int32_t i = 0; i < p->top; i++) {
                int64_t expert;
                memcpy(&expert, row + i * 8, sizeof expert);
                ASSERT(expert >= 0 && expert < experts); /* the loader checked the table */
                chosen[i] = (int32_t)expert;
            }
        } else {
            choose_best(score, p->bias.data, experts, p->top, chosen);
        }
        sort_ascending(chosen, p->top);
        double sum = 0;
        for (int32_t i = 0; i < p->top; i++)
            sum += score[chosen[i]];
        if (p->scale == MOE_SCALE_GATE) {
            scaling = p->scaling;
            cpu_saw_parameter(&job->b->threads[thread], ROW_MOE_SCALE, MOE_SCALE_GATE, scaling);
        }
        for (int32_t i = 0; i < p->top; i++)
            p->weights[t * p->top + i] = (float)(score[chosen[i]] / sum * scaling);
    }
}

void cpu_route(struct backend *base, const struct route_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->gate.rows <= b->limits.experts && p->gate.rows <= EXPERTS_MAX);
    ASSERT((p->bias.data == NULL) != (p->tid2eid.data == NULL) && p->top <= p->gate.rows);
    for (int64_t t = 0; t < p->n; t++) {
        b->x_rows[t] = p->x + t * p->hidden;
        b->y_rows[t] = b->router + t * p->gate.rows;
    }
    struct cpu_product product = {p->gate,  b->x_rows,  b->y_rows,     p->n,
                                  p->round, p->precise, ROW_MOE_ROUTE, ROW_SUM};
    cpu_products_run(b, &product, 1);
    struct route_job job = {b, p};
    /* a transcendental function is worth about 50 multiply-adds */
    pool_run(b->pool, route_tokens, &job, p->n, cpu_grain(b, p->n, (int64_t)100 * p->gate.rows));
    cpu_testify(b, ROW_MOE_ROUTE, &p->place, p->n);
    cpu_testify(b, ROW_SUM, &p->place, p->n);
    cpu_testify(b, ROW_MOE_SCALE, &p->place, p->n);
}

/* ---- experts -------------------------------------------------------------------------------- */

struct experts_job {
    const struct cpu_backend *b;
    const struct experts_params *p;
    int32_t n_active;
    int32_t blocks; /* row blocks of one expert's matrix */
    int32_t width;  /* choices of a token, the shared experts included */
    float *h;       /* [entries, inner] gate, then SwiGLU of it */
};

/* Fills entry_*: counting sort of (token, choice) by expert. */
static void sort_by_expert(struct cpu_backend *b, struct experts_job *job)
{
    const struct experts_params *p = job->p;
    int32_t experts = p->n_routed + p->n_shared, *at = b->entry_at;
    memset(at, 0, ((size_t)experts + 1) * sizeof *at);
    for (int64_t i = 0; i < (int64_t)p->n * p->top; i++) {
        ASSERT(p->chosen[i] >= 0 && p->chosen[i] < p->n_routed);
        at[p->chosen[i] + 1]++;
    }
    for (int32_t e = p->n_routed; e < experts; e++)
        at[e + 1] = p->n;
    job->n_active = 0;
    for (int32_t e = 0; e < experts; e++) {
        if (at[e + 1] > 0)
            b->active[job->n_active++] = e;
        at[e + 1] += at[e];
    }
    int32_t next[EXPERTS_MAX + 1];
    ASSERT(experts <= EXPERTS_MAX + 1);
    memcpy(next, at, (size_t)experts * sizeof *next);
    for (int32_t t = 0; t < p->n; t++) {
        for (int32_t i = 0; i < job->width; i++) {
            bool routed = i < p->top;
            int64_t choice = (int64_t)t * p->top + i;
            int32_t expert = routed ? p->chosen[choice] : p->n_routed + i - p->top;
            int32_t entry = next[expert]++;
            b->entry_token[entry] = t;
            b->entry_weight[entry] = routed ? p->weights[choice] : 1.0f;
            b->entry_of[(int64_t)t * job->width + i] = entry;
        }
    }
}

/* Rows of w over all entries of an expert; `rows`: where entry i's input and output lie. */
static void expert_rows(const struct experts_job *job, int thread, int32_t expert,
                        const struct tensor *w, float *const *y, int32_t row0, int32_t row1)
{
    const struct cpu_backend *b = job->b;
    int32_t first = b->entry_at[expert], n = b->entry_at[expert + 1] - first;
    struct cpu_product product = {
        *w,     b->x_rows + first, y + first, n, job->p->round_out, job->p->precise, ROW_ACT_STORE,
        ROW_SUM};
    cpu_product_rows(b, &product, thread, row0, row1);
}

/* Units are (active expert, row block) of w1 and w3 together; ends with h in gate. */
static void inner_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct experts_job *job = context;
    const struct experts_params *p = job->p;
    const struct cpu_backend *b = job->b;
    int64_t entries = (int64_t)b->limits.tokens * b->limits.top;
    for (int32_t unit = begin; unit < end; unit++) {
        int32_t expert = b->active[unit / job->blocks];
        int32_t row = unit % job->blocks * ROW_BLOCK;
        expert_rows(job, thread, expert, &p->experts[expert].w1, b->y_rows, row, row + ROW_BLOCK);
        expert_rows(job, thread, expert, &p->experts[expert].w3, b->y_rows + entries, row,
                    row + ROW_BLOCK);
        for (int64_t i = b->entry_at[expert]; i < b->entry_at[expert + 1]; i++) {
            float *h = job->h + i * p->inner + row;
            const struct cpu_sums *sums = &b->v->sums[p->precise];
            float limit = sums->swiglu(h, b->up + i * p->inner + row, (float)p->limit,
                                       b->entry_weight[i], ROW_BLOCK, h);
            cpu_saw(&b->threads[thread], ROW_SUM, sums->value);
            cpu_saw_parameter(&b->threads[thread], ROW_MOE_CLAMP,
                              isfinite(limit) ? MOE_CLAMP_ON : MOE_CLAMP_OFF, limit);
            b->v->round(p->round_out, h, ROW_BLOCK, h);
        }
    }
}

static void round_entries(void *context, int thread, int32_t begin, int32_t end)
{
    const struct experts_job *job = context;
    const struct cpu_backend *b = job->b;
    int32_t shared = b->entry_at[job->p->n_routed];
    for (int64_t i = begin; i < end; i++) {
        float *h = job->h + i * job->p->inner;
        bool routed = i < shared;
        enum round did =
            b->v->round(routed ? job->p->round_in : job->p->round_shared, h, job->p->inner, h);
        cpu_saw_round(&b->threads[thread], routed ? ROW_MOE_EXPERTS : ROW_DENSE_LINEAR, did);
    }
}

static void down_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct experts_job *job = context;
    for (int32_t unit = begin; unit < end; unit++) {
        int32_t expert = job->b->active[unit / job->blocks];
        int32_t row = unit % job->blocks * ROW_BLOCK;
        expert_rows(job, thread, expert, &job->p->experts[expert].w2, job->b->y_rows, row,
                    row + ROW_BLOCK);
    }
}

static void sum_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct experts_job *job = context;
    const struct experts_params *p = job->p;
    struct cpu_scratch *s = &job->b->threads[thread];
    const struct cpu_sums *sums = &job->b->v->sums[p->precise];
    const float *rows[TOP_EXPERTS_MAX + 1], *weights;
    float weight[TOP_EXPERTS_MAX + 1];
    weights = weight;
    for (int64_t t = begin; t < end; t++) {
        float *out = p->out + t * p->hidden;
        for (int32_t i = 0; i < job->width; i++) {
            rows[i] = job->b->down + (int64_t)job->b->entry_of[t * job->width + i] * p->hidden;
            weight[i] = 1.0f;
        }
        int32_t from = 0; /* rows that are summed and scaled already */
        if (p->scale == MOE_SCALE_KERNEL) {
            sums->weighted_rows(rows, p->top, &weights, 1, p->hidden, &out);
            from = p->top - 1; /* the sum takes the place of the last routed row */
            rows[from] = out;
            weight[from] = (float)p->scaling;
            cpu_saw_parameter(s, ROW_MOE_SCALE, MOE_SCALE_KERNEL, weight[from]);
        }
        const float *rest = weight + from;
        sums->weighted_rows(rows + from, job->width - from, &rest, 1, p->hidden, &out);
        cpu_saw_round(s, ROW_ACT_STORE, job->b->v->round(p->round_out, out, p->hidden, out));
    }
}

static void testify(struct cpu_backend *b, const struct experts_params *p)
{
    static const enum precision_row ROWS[] = {ROW_MOE_EXPERTS, ROW_DENSE_LINEAR, ROW_MOE_SCALE,
                                              ROW_MOE_CLAMP,   ROW_ACT_STORE,    ROW_SUM};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        cpu_testify(b, ROWS[i], &p->place, p->n);
}

/* x to h. */
static void inner_run(struct cpu_backend *b, struct experts_job *job)
{
    const struct experts_params *p = job->p;
    int32_t n = p->n * job->width;
    int64_t entries = (int64_t)b->limits.tokens * b->limits.top;
    const float *x =
        cpu_rounded(b, ROW_MOE_EXPERTS, p->round_in, p->x, p->n, p->hidden, b->rounded);
    const float *x_shared =
        cpu_rounded(b, ROW_DENSE_LINEAR, p->round_shared, p->x, p->n, p->hidden, b->rounded_shared);
    for (int64_t i = 0; i < n; i++) {
        const float *from = i < b->entry_at[p->n_routed] ? x : x_shared;
        b->x_rows[i] = from + (int64_t)b->entry_token[i] * p->hidden;
        b->y_rows[i] = job->h + i * p->inner;
        b->y_rows[entries + i] = b->up + i * p->inner;
    }
    int64_t tokens = n / job->n_active + 1; /* of an average expert */
    job->blocks = p->inner / ROW_BLOCK;
    int32_t units = job->n_active * job->blocks;
    pool_run(b->pool, inner_units, job, units,
             cpu_grain(b, units, 2 * ROW_BLOCK * tokens * p->hidden));
}

/* h to out. */
static void outer_run(struct cpu_backend *b, struct experts_job *job)
{
    const struct experts_params *p = job->p;
    int32_t n = p->n * job->width;
    pool_run(b->pool, round_entries, job, n, cpu_grain(b, n, 2 * (int64_t)p->inner));
    for (int64_t i = 0; i < n; i++) {
        b->x_rows[i] = job->h + i * p->inner;
        b->y_rows[i] = b->down + i * p->hidden;
    }
    int64_t tokens = n / job->n_active + 1;
    job->blocks = p->hidden / ROW_BLOCK;
    int32_t units = job->n_active * job->blocks;
    pool_run(b->pool, down_units, job, units, cpu_grain(b, units, ROW_BLOCK * tokens * p->inner));
    pool_run(b->pool, sum_tokens, job, p->n, cpu_grain(b, p->n, (int64_t)job->width * p->hidden));
}

void cpu_experts(struct backend *base, const struct experts_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct experts_job job = {.b = b, .p = p, .width = p->top + p->n_shared};
    ASSERT(job.width <= b->limits.top && job.width <= TOP_EXPERTS_MAX + 1);
    ASSERT(p->n <= b->limits.tokens && p->inner <= b->limits.inner);
    ASSERT(p->inner % ROW_BLOCK == 0 && p->hidden % ROW_BLOCK == 0);
    ASSERT((p->half == EXPERTS_WHOLE) == (p->h == NULL));
    job.h = p->half == EXPERTS_WHOLE ? b->gate : p->h;
    sort_by_expert(b, &job);
    if (p->half != EXPERTS_OUTER)
        inner_run(b, &job);
    if (p->half == EXPERTS_INNER)
        return; /* the other half testifies of both */
    outer_run(b, &job);
    testify(b, p);
}
