/*
 * Tests of a GPU backend run each operation twice, with the same random numbers: on the CPU
 * backend with sums in double, and on the GPU.  A `side` is one of them: it hands out memory of its
 * backend, filled or poisoned, and keeps what came out.  Weights stay until the program ends, as
 * the GPU backend knows them by their address.
 */
#ifndef V4BOX_TESTS_GPU_SIDES_H
#define V4BOX_TESTS_GPU_SIDES_H

#include "kernels/backend.h"
#include "kernels/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OUTS_MAX   8
#define MEMORY_MAX 64

enum out_kind { OUT_FLOAT, OUT_DOUBLE, OUT_INT };

struct out {
    enum out_kind kind;
    size_t n, width; /* values, and of a row */
    void *device;    /* borrows */
    void *host;      /* owns; after the run */
};

struct side {
    struct backend *b;
    bool reference; /* sums in double, whatever the case says */
    uint64_t random;
    struct out outs[OUTS_MAX];
    int n_outs;
    struct {
        void *at;
        size_t bytes;
    } memory[MEMORY_MAX];
    int n_memory;
};

static inline uint64_t random_word(struct side *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (-1, 1). */
static inline double random_unit(struct side *s)
{
    return ((double)(random_word(s) >> 11) * 0x1p-52) - 1;
}

static inline void *side_reserve(struct side *s, size_t bytes)
{
    void *at = s->b->ops->reserve(s->b, bytes);
    ASSERT(at != NULL && s->n_memory < MEMORY_MAX);
    s->memory[s->n_memory].at = at;
    s->memory[s->n_memory++].bytes = bytes;
    return at;
}

/* Memory of the backend with these bytes. */
static inline void *side_put(struct side *s, const void *host, size_t bytes)
{
    void *at = side_reserve(s, bytes);
    s->b->ops->upload(s->b, at, host, bytes);
    return at;
}

/* Where a sequence stands. */
static inline int32_t *side_at(struct side *s, int32_t position)
{
    return side_put(s, &position, sizeof position);
}

static inline float *side_floats(struct side *s, size_t n, double scale)
{
    float *x = calloc(n, sizeof *x);
    ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(random_unit(s) * scale);
    float *at = side_put(s, x, n * sizeof *x);
    free(x);
    return at;
}

static inline float bf16_near(double value)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = (float)value};
    v.u &= 0xffff0000u;
    return v.f;
}

/* Values that bfloat16 holds, as the published numerics leave between operations; every seventh
 * row is full float32 all the same. */
static inline float *side_mixed(struct side *s, size_t rows, size_t width, double scale)
{
    float *x = calloc(rows * width, sizeof *x);
    ASSERT(x != NULL);
    for (size_t i = 0; i < rows * width; i++) {
        double value = random_unit(s) * scale;
        x[i] = i / width % 7 == 3 ? (float)value : bf16_near(value);
    }
    float *at = side_put(s, x, rows * width * sizeof *x);
    free(x);
    return at;
}

static inline double *side_doubles(struct side *s, size_t n)
{
    double *x = calloc(n, sizeof *x);
    ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = random_unit(s);
    double *at = side_put(s, x, n * sizeof *x);
    free(x);
    return at;
}

/* Poisoned memory for n values; what lies there after the run is compared. */
static inline void *side_out(struct side *s, enum out_kind kind, size_t n, size_t width)
{
    size_t bytes = n * (kind == OUT_DOUBLE ? 8 : 4);
    uint8_t *poison = malloc(bytes);
    ASSERT(poison != NULL && s->n_outs < OUTS_MAX);
    memset(poison, 0xf1, bytes); /* -2.4e30, a value no operation here makes */
    s->outs[s->n_outs++] = (struct out){kind, n, width, side_put(s, poison, bytes), NULL};
    free(poison);
    return s->outs[s->n_outs - 1].device;
}

/* The same over memory that the operation also reads. */
static inline void *side_inout(struct side *s, float *device, size_t n, size_t width)
{
    s->outs[s->n_outs++] = (struct out){OUT_FLOAT, n, width, device, NULL};
    return device;
}

/* A random stored matrix; finite values of moderate size. */
static inline struct tensor side_tensor(struct side *s, enum store store, int32_t rows,
                                        int32_t cols)
{
    size_t n = (size_t)rows * (size_t)(cols == 0 ? 1 : cols);
    uint8_t *data = calloc(n, 8), *scale = calloc(n / NVFP4_GROUP + 1024, 1);
    ASSERT(data != NULL && scale != NULL);
    for (size_t i = 0; i < n; i++) {
        float f = (float)random_unit(s);
        uint16_t bits = (uint16_t)(0x3c00 + random_word(s) % 0x300 + (random_word(s) & 0x8000));
        uint8_t code = (uint8_t)random_word(s);
        if (store == STORE_F32)
            memcpy(data + 4 * i, &f, 4);
        else if (store == STORE_BF16)
            memcpy(data + 2 * i, &bits, 2);
        else if (store == STORE_FP8)
            data[i] = (code & 127) == 127 ? 0 : code;
        else if ((store == STORE_FP4 || store == STORE_NVFP4) && i % 2 == 0)
            data[i / 2] = code;
    }
    for (size_t i = 0; i < n / NVFP4_GROUP + 1024; i++)
        scale[i] =
            (uint8_t)(store == STORE_NVFP4 ? 0x20 + random_word(s) % 95 : 118 + random_word(s) % 9);
    bool scaled = store == STORE_FP8 || store == STORE_FP4 || store == STORE_NVFP4;
    if (!scaled)
        free(scale);
    return (struct tensor){data, scaled ? scale : NULL, rows, cols, store, 0.000137f};
}

static inline void side_end(struct side *s)
{
    for (int i = 0; i < s->n_outs; i++) {
        struct out *out = &s->outs[i];
        size_t bytes = out->n * (out->kind == OUT_DOUBLE ? 8 : 4);
        out->host = malloc(bytes);
        ASSERT(out->host != NULL);
        s->b->ops->download(s->b, out->host, out->device, bytes);
    }
    for (int i = 0; i < s->n_memory; i++)
        s->b->ops->release(s->b, s->memory[i].at, s->memory[i].bytes);
    s->n_memory = 0;
}

static inline void side_clear(struct side *s)
{
    for (int i = 0; i < s->n_outs; i++)
        free(s->outs[i].host);
    s->n_outs = 0;
}

/* What must be the same bits however many tokens a call has; each is reported (alone.c). */
void alone_run(struct backend *b, void (*report)(bool good, const char *what));
/* Tokens picked, against the CPU's sampler: cases whose name contains the word (picks.c). */
void picks_run(struct backend *b, const char *word, void (*report)(bool good, const char *what));

/* The same of calls for several sequences: those cases whose name contains `word` (spans.c). */
void spans_run(struct backend *b, const char *word, void (*report)(bool good, const char *what));

#endif
