/* The counters under one lock, and their text. */
#include "engine/api/metrics.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MAX 24

/* Upper bounds, as vLLM has them for the same things, so that histograms of both can be added. */
enum buckets { SECONDS, TOKENS, BUCKET_LISTS };
static const struct {
    int n;
    double bounds[BUCKETS_MAX];
} BUCKETS[BUCKET_LISTS] = {
    [SECONDS] = {21, {0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,
                      2.5,   5,     10,   20,    40,   80,    160, 320,  640, 2560}},
    [TOKENS] = {18,
                {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
                 200000, 500000}},
};

enum histogram {
#define HISTOGRAM(id, buckets, name, help) HISTOGRAM_##id,
#include "config/histograms.def"
#undef HISTOGRAM
    HISTOGRAMS,
};

static const struct {
    enum buckets buckets;
    const char *name, *help;
} ROWS[HISTOGRAMS] = {
#define HISTOGRAM(id, buckets, name, help) [HISTOGRAM_##id] = {buckets, name, help},
#include "config/histograms.def"
#undef HISTOGRAM
};

struct counts {
    uint64_t in[BUCKETS_MAX + 1]; /* the last: beyond all bounds */
    uint64_t n;
    double sum;
};

/* Answers under one profile. */
struct served {
    char name[PROFILE_NAME_BYTES], hash[PROFILE_HASH_BYTES];
    uint64_t answers, tokens;
};

struct metrics {
    pthread_mutex_t lock; /* protects everything below */
    struct counts histograms[HISTOGRAMS];
    uint64_t finishes[METRICS_FINISHES];
    uint64_t errors[API_CODES];
    uint64_t unknown_fields, control_texts;
    struct served served[METRICS_PROFILES_MAX + 1]; /* the last: all that came later */
    int n_served;
};

struct metrics *metrics_create(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    ASSERT(m != NULL);
    ASSERT(pthread_mutex_init(&m->lock, NULL) == 0);
    return m;
}

void metrics_destroy(struct metrics *m)
{
    if (m == NULL)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- counting -------------------------------------------------------------------------------- */

static void observe(struct metrics *m, enum histogram which, double value)
{
    struct counts *counts = &m->histograms[which];
    enum buckets list = ROWS[which].buckets;
    int i = 0;
    while (i < BUCKETS[list].n && value > BUCKETS[list].bounds[i])
        i++;
    counts->in[i]++;
    counts->n++;
    counts->sum += value;
}

static void observe_ms(struct metrics *m, enum histogram which, int64_t ms)
{
    if (ms > 0)
        observe(m, which, (double)ms / 1000);
}

/* A profile that was changed is another one: numbers before and after it must not be mixed. */
static void count_served(struct metrics *m, const struct metrics_answer *a)
{
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(a->profile, hash);
    int i = 0;
    while (i < m->n_served && (strcmp(m->served[i].hash, hash) != 0 ||
                               strcmp(m->served[i].name, a->profile->name) != 0))
        i++;
    struct served *s = &m->served[i];
    if (i == m->n_served && i < METRICS_PROFILES_MAX) {
        m->n_served++;
        memcpy(s->name, a->profile->name, sizeof s->name);
        memcpy(s->hash, hash, sizeof s->hash);
    } else if (i == METRICS_PROFILES_MAX) {
        memcpy(s->name, "other", sizeof "other");
    }
    s->answers++;
    s->tokens += (uint64_t)a->answer_tokens;
}

void metrics_answer(struct metrics *m, const struct metrics_answer *a)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    m->finishes[a->finish]++;
    count_served(m, a);
    observe_ms(m, HISTOGRAM_QUEUE, a->started_ms);
    observe_ms(m, HISTOGRAM_FIRST_TOKEN, a->first_token_ms);
    observe_ms(m, HISTOGRAM_WHOLE, a->ended_ms);
    if (a->answer_tokens > 1)
        observe(m, HISTOGRAM_PER_TOKEN,
                (double)(a->last_token_ms - a->first_token_ms) / 1000 / (a->answer_tokens - 1));
    observe(m, HISTOGRAM_PROMPT, a->prompt_tokens);
    observe(m, HISTOGRAM_ANSWER, a->answer_tokens);
    pthread_mutex_unlock(&m->lock);
}

void metrics_error(struct metrics *m, enum api_code code)
{
    if (m == NULL)
        return;
    ASSERT(code > API_OK && code < API_CODES);
    pthread_mutex_lock(&m->lock);
    m->errors[code]++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_request(struct metrics *m, int32_t unknown_fields, size_t control_texts)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    m->unknown_fields += (uint64_t)unknown_fields;
    m->control_texts += control_texts;
    pthread_mutex_unlock(&m->lock);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void dump_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The label that all have; vLLM's have "engine" too. */
static void dump_labels(struct buf *out, const struct metrics_sample *sample)
{
    buf_printf(out, "model_name=\"%s\",engine=\"0\"", sample->model);
}

static void dump_histogram(struct buf *out, enum histogram which, const struct counts *counts,
                           const struct metrics_sample *sample)
{
    const char *name = ROWS[which].name;
    enum buckets list = ROWS[which].buckets;
    uint64_t below = 0;
    dump_head(out, name, "histogram", ROWS[which].help);
    for (int i = 0; i <= BUCKETS[list].n; i++) {
        below += counts->in[i];
        buf_printf(out, "%s_bucket{", name);
        dump_labels(out, sample);
        if (i < BUCKETS[list].n)
            buf_printf(out, ",le=\"%g\"} %llu\n", BUCKETS[list].bounds[i],
                       (unsigned long long)below);
        else
            buf_printf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    buf_printf(out, "%s_sum{", name);
    dump_labels(out, sample);
    buf_printf(out, "} %.9g\n%s_count{", counts->sum, name);
    dump_labels(out, sample);
    buf_printf(out, "} %llu\n", (unsigned long long)counts->n);
}

/* Counters with a label of their own. */
static void dump_labelled(struct buf *out, const struct metrics_sample *sample, const char *name,
                          const char *label, const char *value, uint64_t count)
{
    buf_printf(out, "%s{", name);
    dump_labels(out, sample);
    buf_printf(out, ",%s=\"%s\"} %llu\n", label, value, (unsigned long long)count);
}

static void dump_numbers(const struct metrics_sample *sample, struct buf *out)
{
    const struct {
        const char *type, *name, *help;
        uint64_t value;
    } NUMBERS[] = {
#define METRIC(member, type, name, help) {type, name, help, sample->member},
#include "config/metrics.def"
#undef METRIC
    };
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        dump_head(out, NUMBERS[i].name, NUMBERS[i].type, NUMBERS[i].help);
        buf_printf(out, "%s{", NUMBERS[i].name);
        dump_labels(out, sample);
        buf_printf(out, "} %llu\n", (unsigned long long)NUMBERS[i].value);
    }
}

static void dump_served(const struct metrics *m, const struct metrics_sample *sample,
                        struct buf *out)
{
    static const struct {
        const char *name, *help;
        size_t member;
    } COUNTERS[] = {
        {"v4box_profile_answers_total", "Answers by the profile that they ran under.",
         offsetof(struct served, answers)},
        {"v4box_profile_tokens_total", "Generated tokens by the profile that they ran under.",
         offsetof(struct served, tokens)},
    };
    for (size_t c = 0; c < sizeof COUNTERS / sizeof COUNTERS[0]; c++) {
        dump_head(out, COUNTERS[c].name, "counter", COUNTERS[c].help);
        for (int i = 0; i <= METRICS_PROFILES_MAX; i++) {
            const struct served *s = &m->served[i];
            uint64_t count;
            memcpy(&count, (const char *)s + COUNTERS[c].member, sizeof count);
            if (s->answers == 0)
                continue;
            buf_printf(out, "%s{", COUNTERS[c].name);
            dump_labels(out, sample);
            buf_printf(out, ",profile=\"%s\",hash=\"%s\"} %llu\n", s->name, s->hash,
                       (unsigned long long)count);
        }
    }
}

/* What is not known has no line. */
static void dump_heat(const struct metrics_sample *sample, struct buf *out)
{
    static const char DEGREES[] = "v4box_temperature_celsius", ALARM[] = "v4box_temperature_alarm";
    dump_head(out, DEGREES, "gauge", "The hottest of its kind.");
    for (int i = 0; i < SENSORS; i++) {
        if (sample->heat.celsius[i] != GAUGE_UNKNOWN)
            dump_labelled(out, sample, DEGREES, "sensor", sensor_name((enum sensor)i),
                          (uint64_t)sample->heat.celsius[i]);
    }
    dump_head(out, ALARM, "gauge", "1: it is too hot.");
    for (int i = 0; i < SENSORS; i++)
        dump_labelled(out, sample, ALARM, "sensor", sensor_name((enum sensor)i),
                      sample->heat.alarm[i]);
}

/* Bus ids come from a worker, clean, but for quotes and backslashes. */
static bool is_bus(const char *bus)
{
    return bus[0] != '\0' && strspn(bus, "0123456789abcdef:.") == strlen(bus);
}

static void dump_gpus(const struct metrics_sample *sample, struct buf *out)
{
    const struct gauges *g = sample->gpus;
    if (g == NULL || g->n == 0)
        return;
    for (int row = 0; row < GAUGES; row++) {
        char name[96];
        snprintf(name, sizeof name, "v4box_gpu_%s", gauge_name((enum gauge)row));
        dump_head(out, name, "gauge", gauge_help((enum gauge)row));
        for (int32_t i = 0; i < g->n; i++) {
            if (is_bus(g->gpu[i].bus) && g->gpu[i].value[row] != GAUGE_UNKNOWN)
                dump_labelled(out, sample, name, "gpu", g->gpu[i].bus,
                              (uint64_t)g->gpu[i].value[row]);
        }
    }
}

void metrics_dump(struct metrics *m, const struct metrics_sample *sample, struct buf *out)
{
    static const char *const FINISHES[] = {[METRICS_STOP] = "stop",
                                           [METRICS_LENGTH] = "length",
                                           [METRICS_ABORT] = "abort",
                                           [METRICS_ERROR] = "error"};
    static const char *const ERRORS[API_CODES] = {
#define API_ERROR(name, status, type, code, retry_s, text) [API_##name] = #name,
#include "engine/api/errors.def"
#undef API_ERROR
    };
    static const char SUCCESS[] = "vllm:request_success_total", FAULTS[] = "v4box_errors_total";
    pthread_mutex_lock(&m->lock);
    struct metrics_sample all = *sample;
    all.unknown_fields = m->unknown_fields;
    all.control_texts = m->control_texts;
    dump_numbers(&all, out);
    dump_head(out, SUCCESS, "counter", "Count of successfully processed requests.");
    for (int i = 0; i < METRICS_FINISHES; i++)
        dump_labelled(out, sample, SUCCESS, "finished_reason", FINISHES[i], m->finishes[i]);
    dump_head(out, FAULTS, "counter", "Errors that clients were told, by row of the error table.");
    for (int i = API_OK + 1; i < API_CODES; i++)
        dump_labelled(out, sample, FAULTS, "error", ERRORS[i], m->errors[i]);
    dump_head(out, "v4box_profile_info", "gauge", "The precision profile that is live.");
    buf_puts(out, "v4box_profile_info{");
    dump_labels(out, sample);
    buf_printf(out, ",profile=\"%s\",hash=\"%s\"} 1\n", sample->profile, sample->profile_hash);
    dump_served(m, sample, out);
    dump_heat(sample, out);
    dump_gpus(sample, out);
    for (int i = 0; i < HISTOGRAMS; i++)
        dump_histogram(out, (enum histogram)i, &m->histograms[i], sample);
    pthread_mutex_unlock(&m->lock);
}
