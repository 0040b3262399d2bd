/*
 * Times of whole steps on a GPU, as serving asks for them, with the host's launches and recorded:
 *
 *   bench-step demo [DIR]       the embedded model (rootfs/models/demo)
 *   bench-step flash LAYERS     the published model's shape, so many of its layers, random weights
 *
 * Both ways start from the same random state, and their logits are compared byte by byte.
 */
#include "config/limits.h"
#include "engine/model/config.h"
#include "engine/model/network.h"
#include "engine/model/options.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CONTEXT 8192 /* tokens before the first step: all residues are 0 */
#define ROOM    (2 * STEP_TOKENS_MAX)
#define STEPS   48 /* decode: each of the four places of a block is recorded after two of it */
#define WARM    8
#define BATCH   8
/* Addresses of tensors without memory behind them: more than the published model has. */
#define NAMES_BYTES ((size_t)1 << 40)

static bool random_weights;

/* This program's network computes on the first GPU. */
enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    const char *reason;
    (void)options;
    (void)rank;
    *out = backend_cuda_create(0, limits, &reason);
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "GPU 0: %s", reason);
    if (random_weights)
        backend_cuda_synth(*out, 5);
    return OK;
}

/* ---- a network without a checkpoint --------------------------------------------------------- */

static char *name_next;

static struct tensor named(enum store store, int32_t rows, int32_t cols)
{
    size_t bytes = (size_t)rows * (size_t)(cols == 0 ? 1 : cols) * 8;
    bool scaled = store == STORE_FP8 || store == STORE_FP4;
    struct tensor t = {
        name_next, scaled ? (const uint8_t *)name_next + bytes : NULL, rows, cols, store, 0};
    name_next += (2 * bytes + 4095) / 4096 * 4096;
    return t;
}

static void layer_name(const struct model_config *c, int32_t layer, struct layer_weights *w)
{
    int32_t ratio = c->compress_ratios[layer];
    (void)ratio;
#define SCOPE_GLOBAL(...)
#define SCOPE_MTP(...)
#define SCOPE_LAYER(field, store, rows, cols, present)                                             \
    if (present)                                                                                   \
        w->field = named(STORE_##store, rows, cols);
#define SCOPE_SHARED SCOPE_LAYER
#define SCOPE_EXPERT(...)
#define WEIGHT(scope, field, name, store, fill, rows, cols, present)                               \
    SCOPE_##scope(field, store, rows, cols, present)
#include "config/weights.def"
#undef WEIGHT
#undef SCOPE_LAYER
#undef SCOPE_EXPERT
#undef SCOPE_SHARED
    w->experts = calloc((size_t)c->n_routed_experts, sizeof *w->experts);
    ASSERT(w->experts != NULL);
    for (int32_t e = 0; e < c->n_routed_experts; e++) {
#define SCOPE_LAYER(...)
#define SCOPE_SHARED(...)
#define SCOPE_EXPERT(field, store, rows, cols, present)                                            \
    w->experts[e].field = named(STORE_##store, rows, cols);
#define WEIGHT(scope, field, name, store, fill, rows, cols, present)                               \
    SCOPE_##scope(field, store, rows, cols, present)
#include "config/weights.def"
#undef WEIGHT
    }
}

/* The first layers of `flash`; all of them choose by score. */
static enum status flash_open(struct model *m, int32_t layers, struct error *err)
{
    static struct model_config config;
    struct model_weights *w = calloc(1, sizeof *w);
    ASSERT(w != NULL && strcmp(MODEL_CONFIGS[0].name, "flash") == 0);
    config = MODEL_CONFIGS[0];
    config.num_hidden_layers = layers, config.num_hash_layers = 0;
    config.num_nextn_predict_layers = 0;
    name_next =
        mmap(NULL, NAMES_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(name_next != MAP_FAILED);
    w->embed = named(STORE_BF16, config.vocab_size, config.hidden_size);
    w->head = named(STORE_BF16, config.vocab_size, config.hidden_size);
    w->norm = named(STORE_BF16, config.hidden_size, 0);
    w->hc_head_fn = named(STORE_F32, HC_MULT, HC_MULT * config.hidden_size);
    w->hc_head_base = named(STORE_F32, HC_MULT, 0);
    w->hc_head_scale = named(STORE_F32, 1, 0);
    for (int32_t layer = 0; layer < layers; layer++)
        layer_name(&config, layer, &w->layers[layer]);
    m->config = &config, m->weights = w;
    random_weights = true;
    return local_bind(&(struct model_options){0}, m, err);
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void sequence_open(const struct model *m, struct sequence *s)
{
    *s = (struct sequence){.model = m, .tokens_max = CONTEXT + ROOM};
    const struct state_format format = {ENTRY_F32, ENTRY_F32}; /* the GPU's */
    s->bytes = state_bytes(s, format);
    if (!local_reserve(s)) {
        fprintf(stderr, "bench-step: no memory for a sequence (%zu bytes)\n", s->bytes);
        exit(EXIT_FAILURE);
    }
    state_lay_out(s, format);
}

/* The same numbers each time; small ones that bfloat16 holds. */
static void sequence_fill(struct sequence *s)
{
    enum { PIECE = 1 << 20 };
    static float numbers[PIECE];
    uint32_t seed = 7;
    for (int i = 0; i < PIECE; i++) {
        seed = seed * 1664525 + 1013904223;
        numbers[i] = (float)((int)(seed >> 24) - 128) / 128;
    }
    for (size_t at = 0; at < s->bytes; at += sizeof numbers) {
        size_t left = s->bytes - at;
        s->model->backend->ops->upload(s->model->backend, (char *)s->memory + at, numbers,
                                       left < sizeof numbers ? left : sizeof numbers);
    }
    s->length = CONTEXT;
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct bench {
    struct model m;
    struct sequence sequences[BATCH];
    float *logits[2]; /* own; [STEPS, vocab] of the first sequence */
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Steps of n tokens for each of `batch` sequences.  @unit ms; the median */
static double steps_run(struct bench *s, int batch, int32_t n, int steps, enum leg leg,
                        float *logits)
{
    int32_t ids[STEP_TOKENS_MAX], vocab = s->m.config->vocab_size;
    double times[STEPS];
    struct segment segments[BATCH];
    uint32_t seed = 11;
    for (int i = 0; i < batch; i++)
        sequence_fill(&s->sequences[i]);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < batch * n; i++) {
            seed = seed * 1664525 + 1013904223;
            ids[i] = (int32_t)((seed >> 8) % (uint32_t)vocab);
        }
        for (int i = 0; i < batch; i++)
            segments[i] = (struct segment){
                .sequence = &s->sequences[i],
                .ids = ids + i * n,
                .n = n,
                .logits_last = i == 0 ? logits + (size_t)step * (size_t)vocab : NULL,
                .leg = leg};
        double from = now_ms();
        local_step(&s->m, profile_builtin("official"), segments, batch);
        times[step] = now_ms() - from;
        for (int i = 0; i < batch; i++)
            s->sequences[i].length += n;
    }
    int warm = steps > WARM ? WARM : 1;
    qsort(times + warm, (size_t)(steps - warm), sizeof *times, compare_doubles);
    return times[warm + (steps - warm) / 2];
}

static bool decode_compare(struct bench *s, int batch)
{
    double ms[2];
    size_t bytes = (size_t)STEPS * (size_t)s->m.config->vocab_size * sizeof(float);
    for (int on = 0; on < 2; on++) {
        backend_cuda_recording(s->m.backend, on == 1);
        ms[on] = steps_run(s, batch, 1, STEPS, LEG_DECODE, s->logits[on]);
    }
    bool same = memcmp(s->logits[0], s->logits[1], bytes) == 0;
    bool number = s->logits[0][0] == s->logits[0][0];
    printf("%3d sequences, one token each: %8.3f ms a step by launches, %8.3f recorded: %s%s\n",
           batch, ms[0], ms[1], same ? "the same bits" : "NOT THE SAME BITS",
           number ? "" : ", not numbers");
    fflush(stdout);
    return same;
}

static enum status network_open(struct bench *s, int argc, char **argv, struct error *err)
{
    int32_t layers;
    if (argc >= 2 && strcmp(argv[1], "demo") == 0) {
        const char *dir = argc > 2 ? argv[2] : "rootfs/models/demo";
        return local_open(dir, &(struct model_options){0}, &s->m, err);
    }
    if (argc != 3 || strcmp(argv[1], "flash") != 0 || !number_parse(argv[2], 1, 43, &layers))
        return error_set(err, ERR_USAGE, "usage: bench-step demo [DIR] | flash LAYERS");
    return flash_open(&s->m, layers, err);
}

int main(int argc, char **argv)
{
    static struct bench s;
    struct error err;
    double begin = now_ms();
    if (network_open(&s, argc, argv, &err) != OK) {
        fprintf(stderr, "bench-step: %s\n", err.text);
        return 2;
    }
    size_t row = (size_t)s.m.config->vocab_size * sizeof(float);
    for (int i = 0; i < BATCH; i++)
        sequence_open(&s.m, &s.sequences[i]);
    for (int i = 0; i < 2; i++) {
        s.logits[i] = malloc(STEPS * row);
        ASSERT(s.logits[i] != NULL);
    }
    steps_run(&s, 1, 1, 1, LEG_DECODE, s.logits[0]);
    printf("%s, %d layers, %d tokens of context; the first step is done after %.1f s\n",
           s.m.config->name, s.m.config->num_hidden_layers, CONTEXT, (now_ms() - begin) / 1e3);
    bool same = decode_compare(&s, 1);
    same = decode_compare(&s, BATCH) && same;
    double ms = steps_run(&s, 1, STEP_TOKENS_MAX, 2, LEG_PREFILL, s.logits[0]);
    printf("%d tokens of a prompt: %.3f ms\n", STEP_TOKENS_MAX, ms);
    return same ? 0 : 1;
}
