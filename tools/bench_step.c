/*
 * Times of whole steps on GPUs, as serving asks for them, with the host's launches and recorded:
 *
 *   bench-step demo [DIR [quick]]      the embedded model (rootfs/models/demo), or another; quick:
 *                                      of one sequence alone, and no prompts
 *   bench-step flash LAYERS [RANKS [TOKENS [STEP]]]
 *                                      the published model's shape, so many of its layers, its
 *                                      weights made of a seed, by ranks on a GPU each; of a prompt
 *                                      of so many tokens alone, STEP of them a step
 *
 * A token is picked behind every row, by top-p.  Both ways start from the same random state; all
 * tokens are compared, and logits byte by byte: of the last sequence, whose text is that of the one
 * sequence alone, so that those must be the same too.  Behind them whole prompts, what reading the
 * weights would take at best, and what picking takes by itself.
 */
#include "config/limits.h"
#include "engine/base/fnv.h"
#include "engine/model/config.h"
#include "engine/model/network.h"
#include "engine/model/options.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONTEXT 8192 /* tokens before the first step: all residues are 0 */
#define ROOM    (2 * SPAN_TOKENS_MAX)
#define TOLD    16384 /* tokens of a prompt between two lines */
#define STEPS   32    /* decode: each of the four places of a block is recorded after two of it */
#define WARM    8
#define BATCH   128
#define SEED    5

static const int BATCHES[] = {1, 8, 32, 64, BATCH};
static const int32_t PROMPTS[] = {CONTEXT, 4 * CONTEXT};

/* The backends that compute, by rank. */
static struct backend *opened[RANKS_MAX];

enum status model_backend_open(const struct model_options *options, int32_t rank,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *err)
{
    const char *reason;
    int device = backend_cuda_devices() < options->ranks ? 0 : rank;
    *out = backend_cuda_create(device, limits, &reason);
    opened[rank] = *out;
    if (*out == NULL)
        return error_set(err, ERR_CAPACITY, "GPU %d: %s", device, reason);
    return OK;
}

int32_t model_backend_ranks(const struct model_options *options, uint64_t weights)
{
    (void)options;
    (void)weights;
    return 1;
}

int32_t model_backend_gpus(void)
{
    return backend_cuda_devices();
}

/* ---- what reading the weights takes --------------------------------------------------------- */

/* Of the published model, by the sizes in its header: what every rank reads for a token, what is
 * shared between ranks, and one of 256 experts in each of 43 layers.  @unit GB */
#define READ_BY_ALL    1.31
#define READ_BY_SHARES 6.47
#define READ_EXPERT    0.575
#define GB_PER_MS      4.3 /* that reads and writes of one GPU reach */

/* @unit ms */
static double floor_of(int batch, int ranks)
{
    double experts = 256 * (1 - pow(250.0 / 256, batch)); /* of six each, by chance */
    return (READ_BY_ALL + (READ_BY_SHARES + READ_EXPERT * experts) / ranks) / GB_PER_MS;
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* Some sequences, in one piece of memory.  @return false: there is no memory for them */
static bool sequences_open(const struct model *m, struct sequence *list, int n, int32_t tokens)
{
    const struct state_format format = {ENTRY_F32, ENTRY_F32}; /* the GPU's */
    struct sequence s = {.model = m, .tokens_max = tokens};
    s.memory_bytes = s.bytes = (state_bytes(&s, format) + 255) / 256 * 256;
    char *memory = m->backend->ops->reserve(m->backend, (size_t)n * s.bytes);
    for (int i = 0; i < n && memory != NULL; i++) {
        list[i] = s;
        list[i].memory = memory + (size_t)i * s.bytes;
        state_lay_out(&list[i], format);
    }
    if (memory == NULL)
        printf("no memory for %d sequences (%zu bytes each)\n", n, s.bytes);
    return memory != NULL;
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
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct bench {
    struct model m;
    struct model_config config;
    int32_t ranks;
    bool quick;
    int32_t prompt;         /* 0: all of the bench; else this prompt alone */
    int32_t step;           /* tokens of a prompt that a step takes */
    struct sequence filled; /* what every sequence begins with */
    struct sequence sequences[BATCH];
    int n_sequences;
    /* own; [STEPS, vocab] of the last sequence: by launches, recorded, and of one alone */
    float *logits[3];
    int32_t picked[2][STEPS][BATCH];
};

static const struct sampling SERVED = {.temperature = 1, .top_p = 0.95, .seed = SEED};

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

/* One step of n tokens for each of some sequences: those of a batch end like those of a smaller
 * one. */
static void step_run(struct bench *s, struct sequence *sequences, int batch, int32_t n,
                     enum leg leg, float *logits, int32_t *picked, uint32_t *seed)
{
    int32_t ids[BATCH];
    struct segment segments[BATCH];
    struct pick picks[BATCH];
    uint32_t random = *seed;
    for (int i = batch * n - 1; i >= 0; i--) {
        random = random * 1664525 + 1013904223;
        ids[i] = (int32_t)((random >> 8) % (uint32_t)s->m.config->vocab_size);
    }
    *seed = *seed * 22695477 + 1;
    for (int i = 0; i < batch; i++) {
        picks[i] = (struct pick){.sampling = SERVED, .position = *seed};
        segments[i] = (struct segment){.sequence = &sequences[i],
                                       .ids = ids + i * n,
                                       .n = n,
                                       .logits_last = i == batch - 1 ? logits : NULL,
                                       .picks = &picks[i],
                                       .n_picks = picked != NULL,
                                       .leg = leg};
    }
    local_step(&s->m, profile_builtin("official"), segments, batch);
    for (int i = 0; i < batch; i++) {
        sequences[i].length += n;
        if (picked != NULL)
            picked[i] = picks[i].id;
    }
}

/* Steps of a token for each of `batch` sequences.  @unit ms; the median */
static double decode_run(struct bench *s, int batch, float *logits, int32_t picked[][BATCH])
{
    double times[STEPS];
    uint32_t seed = 11;
    size_t vocab = (size_t)s->m.config->vocab_size;
    for (int i = 0; i < batch; i++) {
        s->m.backend->ops->copy(s->m.backend, s->sequences[i].memory, s->filled.memory,
                                s->filled.bytes);
        s->sequences[i].length = CONTEXT;
    }
    for (int step = 0; step < STEPS; step++) {
        double from = now_ms();
        step_run(s, s->sequences, batch, 1, LEG_DECODE, logits + (size_t)step * vocab, picked[step],
                 &seed);
        times[step] = now_ms() - from;
    }
    qsort(times + WARM, STEPS - WARM, sizeof *times, compare_doubles);
    return times[WARM + (STEPS - WARM) / 2];
}

static bool decode_compare(struct bench *s, int batch)
{
    double ms[2];
    size_t bytes = (size_t)STEPS * (size_t)s->m.config->vocab_size * sizeof(float);
    if (!sequences_open(&s->m, s->sequences + s->n_sequences, batch - s->n_sequences,
                        CONTEXT + ROOM))
        return true;
    s->n_sequences = batch;
    for (int on = 0; on < 2; on++) {
        for (int32_t rank = 0; rank < s->ranks; rank++)
            backend_cuda_recording(opened[rank], on == 1);
        ms[on] = decode_run(s, batch, s->logits[on], s->picked[on]);
    }
    if (batch == 1)
        memcpy(s->logits[2], s->logits[0], bytes);
    bool same = memcmp(s->logits[0], s->logits[1], bytes) == 0 &&
                memcmp(s->logits[0], s->logits[2], bytes) == 0;
    for (int step = 0; step < STEPS; step++)
        same = same &&
               memcmp(s->picked[0][step], s->picked[1][step], (size_t)batch * sizeof(int32_t)) == 0;
    bool number = s->logits[0][0] == s->logits[0][0];
    double best = ms[0] < ms[1] ? ms[0] : ms[1];
    printf("%3d sequences, one token each: %8.3f ms a step by launches, %8.3f recorded: %s%s; "
           "%.0f tokens/s\n",
           batch, ms[0], ms[1], same ? "the same bits" : "NOT THE SAME BITS",
           number ? "" : ", not numbers", 1e3 * batch / best);
    if (s->m.config == &s->config) {
        double least = floor_of(batch, s->ranks) * s->config.num_hidden_layers / 43;
        printf("    reading the weights: %.2f ms, %.0f %% of it; %.0f tokens/s\n", least,
               100 * least / best, 1e3 * batch / least);
    }
    fflush(stdout);
    return same;
}

/* The same tokens however they are cut: the sum of the last logits' bytes must be the same too. */
static void prompt_run(struct bench *s, int32_t tokens)
{
    struct sequence q;
    if (!sequences_open(&s->m, &q, 1, tokens))
        return;
    double from = now_ms();
    for (int32_t at = 0; at < tokens; at += s->step) {
        bool told = at + s->step == tokens || (at + s->step) % TOLD == 0;
        int32_t ids[STEP_TOKENS_MAX];
        for (int32_t i = 0; i < s->step; i++)
            ids[i] = (int32_t)(sampler_uniform(13, (uint64_t)(at + i)) * s->m.config->vocab_size);
        const struct segment segment = {.sequence = &q,
                                        .ids = ids,
                                        .n = s->step,
                                        .logits_last = told ? s->logits[0] : NULL,
                                        .leg = LEG_PREFILL};
        local_step(&s->m, profile_builtin("official"), &segment, 1);
        q.length += s->step;
        if (told && s->prompt > 0) /* the logits were waited for */
            printf("    %d tokens after %.2f s\n", (int)(at + s->step), (now_ms() - from) / 1e3);
        fflush(stdout);
    }
    double ms = now_ms() - from;
    uint64_t sum = FNV_BASIS;
    for (int32_t i = 0; i < s->m.config->vocab_size; i++) {
        uint32_t bits;
        memcpy(&bits, &s->logits[0][i], sizeof bits);
        sum = fnv_add(sum, bits);
    }
    printf("a prompt of %d tokens, %d a step: %.2f s, %.0f tokens/s; its logits: %016llx\n",
           (int)tokens, (int)s->step, ms / 1e3, 1e3 * tokens / ms, (unsigned long long)sum);
    fflush(stdout);
    local_release(&q);
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* What picking behind n rows takes, and the same on the host.  @unit ms
 * @return whether both pick the same tokens */
static bool picks_compare(struct bench *s, struct sampler *sampler, const float *row,
                          const struct pick *how, int32_t n)
{
    enum { TIMES = 9 };
    const struct backend_ops *ops = s->m.backend->ops;
    int32_t vocab = s->m.config->vocab_size;
    size_t bytes = (size_t)vocab * sizeof *row;
    struct pick picks[BATCH], own[BATCH];
    struct pick_row rows[BATCH];
    double times[TIMES], from;
    bool same = true;
    for (int time = 0; time < TIMES; time++) {
        for (int32_t i = 0; i < n; i++) {
            ops->upload(s->m.backend, s->m.step.logits + (size_t)i * (size_t)vocab, row, bytes);
            picks[i] = *how;
            picks[i].position = (uint64_t)i;
            rows[i] = (struct pick_row){i, &picks[i]};
        }
        memcpy(own, picks, sizeof own);
        from = now_ms();
        ops->pick(s->m.backend, &(struct pick_params){s->m.step.logits, rows, n, vocab});
        times[time] = now_ms() - from;
    }
    from = now_ms();
    for (int32_t i = 0; i < n; i++) {
        ops->download(s->m.backend, s->logits[1], s->m.step.logits, bytes);
        sampler_take(sampler, s->logits[1], &own[i]);
    }
    double host = now_ms() - from;
    for (int32_t i = 0; i < n; i++)
        same = same && picks[i].id == own[i].id &&
               memcmp(&picks[i].told, &own[i].told, sizeof own[i].told) == 0;
    qsort(times, TIMES, sizeof *times, compare_doubles);
    printf(" %8.3f, on the host %8.3f%s", times[TIMES / 2], host, same ? "" : " NOT THE SAME");
    return same;
}

static bool picks_bench(struct bench *s)
{
    static const struct {
        const char *name;
        struct pick how;
    } WAYS[] = {
        {"greedy", {.sampling = {.top_p = 1}}},
        {"temperature", {.sampling = {.temperature = 1, .top_p = 1}}},
        {"top-p", {.sampling = {.temperature = 1, .top_p = 0.95}}},
        {"top-k and top-p", {.sampling = {.temperature = 1, .top_p = 0.95, .top_k = 50}}},
        {"greedy, 5 logprobs", {.sampling = {.top_p = 1}, .logprobs = true, .n_top = 5}},
    };
    struct sampler sampler;
    bool same = true;
    float *row = s->logits[0];
    sampler_init(&sampler, s->m.config->vocab_size);
    for (int32_t i = 0; i < s->m.config->vocab_size; i++) /* roughly normal */
        row[i] = (float)(10 * (sampler_uniform(1, (uint64_t)i) + sampler_uniform(2, (uint64_t)i) +
                               sampler_uniform(3, (uint64_t)i)));
    for (size_t w = 0; w < sizeof WAYS / sizeof *WAYS; w++) {
        for (int32_t n = 1; n <= 64; n *= 64) {
            printf("picking behind %2d rows, %s, ms:", (int)n, WAYS[w].name);
            same = picks_compare(s, &sampler, row, &WAYS[w].how, n) && same;
            printf("\n");
        }
    }
    fflush(stdout);
    sampler_clear(&sampler);
    return same;
}

static enum status network_open(struct bench *s, int argc, char **argv, struct error *err)
{
    int32_t layers;
    s->ranks = 1;
    if (argc >= 2 && strcmp(argv[1], "demo") == 0) {
        const char *dir = argc > 2 ? argv[2] : "rootfs/models/demo";
        s->quick = argc > 3 && strcmp(argv[3], "quick") == 0;
        return local_open(dir, &(struct model_options){0}, &s->m, err);
    }
    if (argc < 3 || argc > 6 || strcmp(argv[1], "flash") != 0 ||
        !number_parse(argv[2], 1, 43, &layers) ||
        (argc > 3 && !number_parse(argv[3], 1, RANKS_MAX, &s->ranks)) ||
        (argc > 4 && !number_parse(argv[4], SPAN_TOKENS_MAX, POSITIONS_MAX, &s->prompt)) ||
        (argc > 5 && !number_parse(argv[5], 1, STEP_TOKENS_MAX, &s->step)))
        return error_set(err, ERR_USAGE,
                         "usage: bench-step demo [DIR [quick]] | "
                         "flash LAYERS [RANKS [TOKENS [STEP]]]");
    ASSERT(strcmp(MODEL_CONFIGS[0].name, "flash") == 0);
    s->config = MODEL_CONFIGS[0];
    if (layers < s->config.num_hidden_layers)
        s->config.num_nextn_predict_layers = 0;
    s->config.num_hidden_layers = layers;
    return local_open_made(&s->config, SEED, &(struct model_options){.ranks = s->ranks}, &s->m,
                           err);
}

int main(int argc, char **argv)
{
    static struct bench s;
    struct error err;
    uint32_t seed = 17;
    double begin = now_ms();
    if (network_open(&s, argc, argv, &err) != OK) {
        fprintf(stderr, "bench-step: %s\n", err.text);
        return 2;
    }
    double open = now_ms() - begin;
    if (s.step == 0 || s.step > s.m.step_tokens)
        s.step = s.m.step_tokens;
    if (s.prompt % s.step != 0) {
        fprintf(stderr, "bench-step: %d tokens are no whole steps\n", (int)s.prompt);
        return 2;
    }
    size_t row = (size_t)s.m.config->vocab_size * sizeof(float);
    for (int i = 0; i < 3; i++) {
        s.logits[i] = malloc(STEPS * row);
        ASSERT(s.logits[i] != NULL);
    }
    if (!sequences_open(&s.m, &s.filled, 1, CONTEXT + ROOM))
        return 2;
    step_run(&s, &s.filled, 1, 1, LEG_DECODE, s.logits[0], NULL, &seed);
    printf("%s, %d layers, %d ranks, %d tokens of context; open after %.1f s, the first step is "
           "done after %.1f s\n",
           s.m.config->name, s.m.config->num_hidden_layers, s.ranks, CONTEXT, open / 1e3,
           (now_ms() - begin) / 1e3);
    fflush(stdout);
    if (s.prompt > 0) {
        prompt_run(&s, s.prompt);
        return 0;
    }
    sequence_fill(&s.filled);
    bool same = true;
    for (size_t i = 0; i < (s.quick ? 1 : sizeof BATCHES / sizeof *BATCHES); i++)
        same = decode_compare(&s, BATCHES[i]) && same;
    same = picks_bench(&s) && same;
    for (size_t i = 0; i < (s.quick ? 0 : sizeof PROMPTS / sizeof *PROMPTS); i++)
        prompt_run(&s, PROMPTS[i]);
    return same ? 0 : 1;
}
