/*
 * How fast the network is on this machine:  bench_model MODEL THREADS [ISA [PROFILE]]
 * For every instruction set and built-in profile: tokens a second in prefill (whole steps) and in
 * decode (one token a step) behind that prompt, the arithmetic this is, and its share of what a
 * loop of multiply-adds in registers reaches in the same run.  One JSON object a line.
 */
#include "engine/model/model.h"
#include "kernels/cpu/cpu.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROMPT_TOKENS 1024 /* enough for every visible set to be full in the embedded model */
#define DECODE_TOKENS 64
#define ROUNDS        2 /* the best of; other programs share the machine */
#define PEAK_LOOPS    20000000
#define PEAK_CHAINS   12 /* more than latency times units on any of these processors */

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void)
{
    return seconds(CLOCK_MONOTONIC);
}

/* ---- the limit: multiply-adds in registers -------------------------------------------------- */

/* Each returns the multiply-adds it did; `sink` keeps the compiler from leaving them out. */
static volatile float sink;

static double peak_baseline(void)
{
    __m128 acc[PEAK_CHAINS], a = _mm_set1_ps(0.999f), b = _mm_set1_ps(0.001f);
    for (int c = 0; c < PEAK_CHAINS; c++)
        acc[c] = _mm_set1_ps((float)c);
    for (int i = 0; i < PEAK_LOOPS / PEAK_CHAINS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < PEAK_CHAINS; c++)
            acc[c] = _mm_add_ps(_mm_mul_ps(acc[c], a), b);
    }
    for (int c = 0; c < PEAK_CHAINS; c++)
        sink = _mm_cvtss_f32(acc[c]);
    return 4.0 * (PEAK_LOOPS / PEAK_CHAINS) * PEAK_CHAINS;
}

__attribute__((target("avx2,fma"))) static double peak_avx2(void)
{
    __m256 acc[PEAK_CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int c = 0; c < PEAK_CHAINS; c++)
        acc[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < PEAK_LOOPS / PEAK_CHAINS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < PEAK_CHAINS; c++)
            acc[c] = _mm256_fmadd_ps(acc[c], a, b);
    }
    for (int c = 0; c < PEAK_CHAINS; c++)
        sink = _mm256_cvtss_f32(acc[c]);
    return 8.0 * (PEAK_LOOPS / PEAK_CHAINS) * PEAK_CHAINS;
}

__attribute__((target("avx512f"))) static double peak_avx512(void)
{
    __m512 acc[PEAK_CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int c = 0; c < PEAK_CHAINS; c++)
        acc[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < PEAK_LOOPS / PEAK_CHAINS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < PEAK_CHAINS; c++)
            acc[c] = _mm512_fmadd_ps(acc[c], a, b);
    }
    for (int c = 0; c < PEAK_CHAINS; c++)
        sink = _mm512_cvtss_f32(acc[c]);
    return 16.0 * (PEAK_LOOPS / PEAK_CHAINS) * PEAK_CHAINS;
}

typedef double peak_fn(void);

static void *peak_thread(void *context)
{
    peak_fn *const *run = context;
    (*run)();
    return NULL;
}

/* Multiply-adds a second of all threads together; the best of ROUNDS. */
static double peak_rate(peak_fn *run, int threads)
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t others[CPU_THREADS_MAX];
        int started = 0;
        double start = now();
        while (started < threads - 1 &&
               pthread_create(&others[started], NULL, peak_thread, &run) == 0)
            started++;
        double work = run() * (started + 1);
        for (int i = 0; i < started; i++)
            pthread_join(others[i], NULL);
        double rate = work / (now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- the network ---------------------------------------------------------------------------- */

/* Multiply-adds of one token with a full window, without the indexer's scores. */
static double token_work(const struct model_config *c)
{
    double hidden = c->hidden_size, heads = (double)c->num_attention_heads * HEAD_DIM, sum = 0;
    for (int layer = 0; layer < c->num_hidden_layers; layer++) {
        int ratio = c->compress_ratios[layer];
        double entries = ratio == 0           ? 0
                         : ratio == RATIO_CSA ? c->index_topk
                                              : PROMPT_TOKENS / RATIO_HCA;
        sum += hidden * c->q_lora_rank + c->q_lora_rank * heads + hidden * HEAD_DIM;
        sum += heads * c->o_lora_rank + (double)c->o_groups * c->o_lora_rank * hidden;
        sum += 2 * heads * (SLIDING_WINDOW + entries);
        sum += ratio == 0 ? 0 : 2 * (ratio == RATIO_CSA ? 2 : 1) * HEAD_DIM * hidden;
        if (ratio == RATIO_CSA)
            sum += 4 * INDEX_HEAD_DIM * hidden +
                   (double)c->index_n_heads * (INDEX_HEAD_DIM * c->q_lora_rank + hidden);
        sum +=
            3 * hidden * c->moe_intermediate_size * (c->num_experts_per_tok + c->n_shared_experts);
        sum += hidden * c->n_routed_experts + 2.0 * HC_MIX * HC_MULT * hidden;
    }
    return sum;
}

struct rates {
    double prefill, decode;         /* tokens a second */
    double prefill_cpu, decode_cpu; /* tokens a second of processor time, whoever else is there */
};

struct moment {
    double wall, cpu;
};

static struct moment moment(void)
{
    return (struct moment){now(), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static void keep_best(double *rate, int tokens, double from, double to)
{
    if (tokens / (to - from) > *rate)
        *rate = tokens / (to - from);
}

static struct rates rates_measure(struct model *model, const struct profile *profile,
                                  struct sequence *sequence, float *logits)
{
    int32_t ids[PROMPT_TOKENS + DECODE_TOKENS];
    struct rates best = {0};
    uint32_t state = 1;
    for (int i = 0; i < PROMPT_TOKENS + DECODE_TOKENS; i++) {
        state = state * 1664525 + 1013904223; /* a fixed text of no meaning */
        ids[i] = (int32_t)((state >> 8) % (uint32_t)model_config(model)->vocab_size);
    }
    for (int round = 0; round < ROUNDS; round++) {
        sequence_reset(sequence);
        struct moment start = moment();
        for (int at = 0; at < PROMPT_TOKENS; at += SPAN_TOKENS_MAX) {
            struct segment s = {.sequence = sequence,
                                .ids = ids + at,
                                .n = SPAN_TOKENS_MAX,
                                .logits_last = logits,
                                .leg = LEG_PREFILL};
            model_step(model, profile, &s, 1);
        }
        struct moment middle = moment();
        for (int at = PROMPT_TOKENS; at < PROMPT_TOKENS + DECODE_TOKENS; at++) {
            struct segment s = {.sequence = sequence,
                                .ids = ids + at,
                                .n = 1,
                                .logits_last = logits,
                                .leg = LEG_DECODE};
            model_step(model, profile, &s, 1);
        }
        struct moment end = moment();
        keep_best(&best.prefill, PROMPT_TOKENS, start.wall, middle.wall);
        keep_best(&best.decode, DECODE_TOKENS, middle.wall, end.wall);
        keep_best(&best.prefill_cpu, PROMPT_TOKENS, start.cpu, middle.cpu);
        keep_best(&best.decode_cpu, DECODE_TOKENS, middle.cpu, end.cpu);
    }
    return best;
}

static enum status variant_run(const char *dir, enum isa isa, const struct profile *profile,
                               int threads, double peak, struct error *err)
{
    struct model_options options = {.isa = isa, .threads = threads};
    struct model *model = NULL;
    struct sequence *sequence = NULL;
    float *logits = NULL;
    enum status status = model_open(dir, &options, &model, err);
    if (status == OK)
        status = sequence_create(model, PROMPT_TOKENS + DECODE_TOKENS, &sequence, err);
    if (status == OK) {
        logits = calloc((size_t)model_config(model)->vocab_size, sizeof *logits);
        if (logits == NULL)
            status = error_set(err, ERR_CAPACITY, "out of memory");
    }
    if (status == OK) {
        double work = token_work(model_config(model));
        struct rates rates = rates_measure(model, profile, sequence, logits);
        printf(
            "{\"isa\": \"%s\", \"profile\": \"%s\", \"threads\": %d, \"prefill_tokens_s\": %.0f, "
            "\"decode_tokens_s\": %.0f, \"prefill_tokens_cpu_s\": %.0f, \"decode_tokens_cpu_s\": "
            "%.0f, "
            "\"prefill_gflop_s\": %.1f, \"decode_gflop_s\": %.1f, "
            "\"peak_gflop_s\": %.1f, \"prefill_share\": %.2f, \"decode_share\": %.2f}\n",
            model_isa_name(model), profile->name, threads, rates.prefill, rates.decode,
            rates.prefill_cpu, rates.decode_cpu, 2e-9 * work * rates.prefill,
            2e-9 * work * rates.decode, 2e-9 * peak, work * rates.prefill / peak,
            work * rates.decode / peak);
        fflush(stdout);
    }
    free(logits);
    sequence_destroy(sequence);
    model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    static const struct {
        enum cpu_isa isa;
        enum isa forced;
        peak_fn *peak;
    } VARIANTS[] = {
        {CPU_BASELINE, ISA_BASELINE, peak_baseline},
        {CPU_AVX2, ISA_AVX2, peak_avx2},
        {CPU_AVX512, ISA_AVX512, peak_avx512},
    };
    int threads = argc >= 3 ? atoi(argv[2]) : 0;
    enum isa only = ISA_AUTO;
    if (argc > 5 || (argc >= 4 && !isa_parse(argv[3], &only)) || threads < 1 ||
        threads > CPU_THREADS_MAX) {
        fprintf(stderr, "usage: bench_model MODEL THREADS [ISA [PROFILE]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof VARIANTS / sizeof *VARIANTS; i++) {
        if (!cpu_isa_available(VARIANTS[i].isa) || (only != ISA_AUTO && only != VARIANTS[i].forced))
            continue;
        double peak = peak_rate(VARIANTS[i].peak, threads);
        for (int column = 0; column < PROFILE_BUILTINS; column++) {
            const struct profile *profile = profile_builtin_at((enum profile_column)column);
            if (argc == 5 && strcmp(profile->name, argv[4]) != 0)
                continue;
            struct error err = {0};
            enum status status =
                variant_run(argv[1], VARIANTS[i].forced, profile, threads, peak, &err);
            if (status != OK) {
                fprintf(stderr, "bench_model: %s\n", err.text);
                return status_exit_code(status);
            }
        }
    }
    return 0;
}
