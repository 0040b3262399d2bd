/* Dense stages of the CPU backend: embedding, RMS norm, matrix products. */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

/* ---- embedding and norm --------------------------------------------------------------------- */

struct embed_job {
    const struct cpu_backend *b;
    const struct embed_params *p;
};

static void embed_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    (void)thread;
    const struct embed_params *p = ((const struct embed_job *)context)->p;
    int64_t hidden = p->table.cols;
    for (int32_t t = begin; t < end; t++) {
        ASSERT(p->ids[t] >= 0 && p->ids[t] < p->table.rows);
        const uint16_t *row = (const uint16_t *)p->table.data + p->ids[t] * hidden;
        float *first = p->out + t * p->copies * hidden;
        for (int64_t c = 0; c < hidden; c++) {
            uint32_t bits = (uint32_t)row[c] << 16;
            memcpy(first + c, &bits, sizeof bits);
        }
        for (int64_t m = 1; m < p->copies; m++)
            memcpy(first + m * hidden, first, (size_t)hidden * sizeof *first);
    }
}

void cpu_embed(struct backend *base, const struct embed_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->table.store == STORE_BF16);
    struct embed_job job = {b, p};
    pool_run(b->pool, embed_tokens, &job, p->n, cpu_grain(b, p->n, p->table.cols));
}

enum round cpu_norm_row(const struct cpu_vector *v, const float *x, const struct tensor *weight,
                        int32_t n, enum round round, float *out)
{
    double factor = 1.0 / sqrt(v->square_sum(x, n) / n + RMS_NORM_EPS);
    v->scale_norm(x, weight->data, factor, n, out);
    return v->round(round, out, n, out);
}

struct norm_job {
    const struct cpu_backend *b;
    const struct rms_norm_params *p;
};

static void norm_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct norm_job *job = context;
    const struct rms_norm_params *p = job->p;
    for (int64_t t = begin; t < end; t++) {
        enum round did = cpu_norm_row(job->b->v, p->x + t * p->width, &p->weight, p->width,
                                      p->round, p->out + t * p->width);
        cpu_saw_round(&job->b->threads[thread], ROW_ACT_STORE, did);
    }
}

void cpu_rms_norm(struct backend *base, const struct rms_norm_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->weight.store == STORE_BF16 && p->weight.rows == p->width && p->width % 32 == 0);
    struct norm_job job = {b, p};
    pool_run(b->pool, norm_tokens, &job, p->n, cpu_grain(b, p->n, p->width));
    cpu_testify(b, ROW_ACT_STORE, &p->place, p->n);
}

/* ---- matrix products ------------------------------------------------------------------------ */

struct round_job {
    const struct cpu_backend *b;
    enum precision_row row;
    enum round round;
    const float *x;
    int32_t width;
    float *to;
};

static void round_tokens(void *context, int thread, int32_t begin, int32_t end)
{
    const struct round_job *job = context;
    for (int64_t t = begin; t < end; t++) {
        enum round did = job->b->v->round(job->round, job->x + t * job->width, job->width,
                                          job->to + t * job->width);
        cpu_saw_round(&job->b->threads[thread], job->row, did);
    }
}

const float *cpu_rounded(struct cpu_backend *b, enum precision_row row, enum round round,
                         const float *x, int32_t n, int32_t width, float *to)
{
    if (round == ROUND_NONE) {
        cpu_saw_round(&b->threads[0], row, ROUND_NONE);
        return x;
    }
    struct round_job job = {b, row, round, x, width, to};
    pool_run(b->pool, round_tokens, &job, n, cpu_grain(b, n, 2 * (int64_t)width));
    return to;
}

void cpu_product_rows(const struct cpu_backend *b, const struct cpu_product *product, int thread,
                      int32_t row0, int32_t row1)
{
    struct matmul m = {product->w, product->x, product->y, product->n, product->precise};
    struct cpu_scratch *s = &b->threads[thread];
    enum round did = ROUND_NONE;
    bool precise = b->v->matmul(&m, row0, row1, s->slab);
    cpu_saw(s, product->sum_row, precise ? SUM_F64 : SUM_F32);
    for (int32_t t = 0; t < product->n && product->round_out != ROUND_NONE; t++)
        did = b->v->round(product->round_out, product->y[t] + row0, row1 - row0,
                          product->y[t] + row0);
    cpu_saw_round(s, product->round_row, did);
}
static_assert((int)SUM_F64 == (int)SUM_ENTRY_F64 && (int)SUM_F32 == (int)SUM_ENTRY_F32,
              "both rows of sums have the same values");

static int32_t row_blocks(const struct tensor *w)
{
    return (w->rows + ROW_BLOCK - 1) / ROW_BLOCK;
}

struct products_job {
    const struct cpu_backend *b;
    const struct cpu_product *products;
    int32_t n;
};

/* Units are row blocks, counted on through all products. */
static void products_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct products_job *job = context;
    int32_t first = 0; /* unit of the product's first block */
    for (int32_t i = 0; i < job->n && first < end; i++) {
        const struct cpu_product *product = &job->products[i];
        int32_t blocks = row_blocks(&product->w);
        int32_t from = begin > first ? begin - first : 0;
        int32_t to = end - first < blocks ? end - first : blocks;
        if (from < to) {
            int32_t row1 = to * ROW_BLOCK < product->w.rows ? to * ROW_BLOCK : product->w.rows;
            cpu_product_rows(job->b, product, thread, from * ROW_BLOCK, row1);
        }
        first += blocks;
    }
}

/* Products of one row of the table count as one call of the operation. */
static void cpu_testify_products(struct cpu_backend *b, const struct cpu_product *products,
                                 int32_t n, const struct place *place)
{
    for (int32_t i = 0; i < n; i++) { /* what was counted once is counted no more */
        cpu_testify(b, products[i].round_row, place, products[i].n);
        cpu_testify(b, products[i].sum_row, place, products[i].n);
    }
}

void cpu_products_run(struct cpu_backend *b, const struct cpu_product *products, int32_t n)
{
    struct products_job job = {b, products, n};
    int32_t units = 0;
    for (int32_t i = 0; i < n; i++) {
        ASSERT(products[i].w.cols <= b->limits.cols);
        units += row_blocks(&products[i].w);
    }
    int64_t work = (int64_t)ROW_BLOCK * products[0].w.cols * products[0].n;
    pool_run(b->pool, products_units, &job, units, cpu_grain(b, units, work));
}

/* The rows of the precision table that a product answers for. */
static const struct {
    enum precision_row round, sum;
} USES[] = {
    [LINEAR_PLAIN] = {ROW_ACT_STORE, ROW_SUM},
    [LINEAR_ENTRY] = {ROW_ACT_STORE, ROW_SUM_ENTRY},
    [LINEAR_COMPRESSOR] = {ROW_COMP_PROJECT, ROW_SUM},
    [LINEAR_HEAD] = {ROW_HEAD_LOGITS, ROW_SUM},
};

/* Inputs of matrices in bf16 are as they are. */
static const float *linear_input(struct cpu_backend *b, const struct linear_params *p)
{
    ASSERT((int64_t)p->n * p->cols <= (int64_t)b->limits.tokens * b->limits.cols);
    if (p->outs[0].w.store == STORE_BF16) {
        ASSERT(p->round_in == ROUND_NONE);
        return p->x;
    }
    const float *x = cpu_rounded(b, ROW_DENSE_LINEAR, p->round_in, p->x, p->n, p->cols, b->rounded);
    cpu_testify(b, ROW_DENSE_LINEAR, &p->place, p->n);
    return x;
}

void cpu_linear(struct backend *base, const struct linear_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct cpu_product products[LINEAR_OUTS_MAX];
    ASSERT(p->n_outs >= 1 && p->n_outs <= LINEAR_OUTS_MAX && p->n <= b->limits.tokens);
    const float *x = linear_input(b, p);
    for (int64_t t = 0; t < p->n; t++)
        b->x_rows[t] = x + t * p->cols;
    for (int32_t i = 0; i < p->n_outs; i++) {
        float **y = b->y_rows + (int64_t)i * b->limits.tokens;
        const struct tensor *w = &p->outs[i].w;
        ASSERT(w->cols == p->cols);
        for (int64_t t = 0; t < p->n; t++)
            y[t] = p->outs[i].y + t * w->rows;
        products[i] = (struct cpu_product){*w,
                                           b->x_rows,
                                           y,
                                           p->n,
                                           p->outs[i].round,
                                           p->outs[i].precise,
                                           USES[p->outs[i].use].round,
                                           USES[p->outs[i].use].sum};
    }
    cpu_products_run(b, products, p->n_outs);
    cpu_testify_products(b, products, p->n_outs, &p->place);
}

struct grouped_job {
    const struct cpu_backend *b;
    const struct grouped_params *p;
};

/* Units are row blocks; a group is a whole number of them. */
static void grouped_units(void *context, int thread, int32_t begin, int32_t end)
{
    const struct grouped_job *job = context;
    const struct grouped_params *p = job->p;
    struct cpu_backend const *b = job->b;
    int32_t blocks = p->rank / ROW_BLOCK; /* of a group */
    for (int32_t at = begin; at < end;) {
        int32_t group = at / blocks;
        int32_t stop = (group + 1) * blocks < end ? (group + 1) * blocks : end;
        struct cpu_product product = {p->w,          b->x_rows + (int64_t)group * p->n,
                                      b->y_rows,     p->n,
                                      p->round,      p->precise,
                                      ROW_ACT_STORE, ROW_SUM};
        cpu_product_rows(b, &product, thread, at * ROW_BLOCK, stop * ROW_BLOCK);
        at = stop;
    }
}

void cpu_grouped(struct backend *base, const struct grouped_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(p->w.rows == p->groups * p->rank && p->w.cols == p->cols && p->rank % ROW_BLOCK == 0);
    ASSERT(p->cols <= b->limits.cols && p->n <= b->limits.tokens);
    ASSERT(p->groups <= b->limits.groups);
    ASSERT((int64_t)p->groups * p->cols <= (int64_t)b->limits.group_cols);
    const float *x = cpu_rounded(b, ROW_ATTN_OUT, p->round_in, p->x, p->n, p->groups * p->cols,
                                 b->rounded_groups);
    for (int64_t t = 0; t < p->n; t++) {
        for (int64_t g = 0; g < p->groups; g++)
            b->x_rows[g * p->n + t] = x + (t * p->groups + g) * p->cols;
        b->y_rows[t] = p->y + t * p->w.rows;
    }
    struct grouped_job job = {b, p};
    int32_t units = p->w.rows / ROW_BLOCK;
    int64_t work = (int64_t)ROW_BLOCK * p->cols * p->n;
    pool_run(b->pool, grouped_units, &job, units, cpu_grain(b, units, work));
    cpu_testify(b, ROW_ATTN_OUT, &p->place, p->n);
    cpu_testify(b, ROW_ACT_STORE, &p->place, p->n);
    cpu_testify(b, ROW_SUM, &p->place, p->n);
}
