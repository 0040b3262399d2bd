/*
 * How the serving core compares with itself:  bench_serve MODEL CASES THREADS
 * CASES is tests/data/golden/demo-cases.json: conversations of the kind that the model was trained
 * on, whose answers are written again.  Every ratio is of two runs that take turns in this process;
 * other programs share the machine, so the best of some rounds counts.  One JSON object a line.
 */
#include "engine/engine.h"

#include "config/limits.h"
#include "engine/base/json.h"
#include "engine/model/config.h"
#include "engine/model/network.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT      4096
#define ROUNDS       3
#define BATCH_MAX    32
#define BATCH_PROMPT 64
#define BATCH_ANSWER 32
#define LONG_PROMPT  2048 /* eight steps */
#define NEXT_TURN    40
#define PROMPTS_MAX  16
#define FILE_BYTES   (1 << 20)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Time on the clock, and time on the processors: the second one hardly knows who else is there. */
struct spent {
    double wall, cpu;
};

static struct spent spent_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (struct spent){now(), (double)t.tv_sec + (double)t.tv_nsec * 1e-9};
}

/* Keeps the best of each. */
static void spent_best(struct spent *best, struct spent from)
{
    struct spent to = spent_now();
    best->wall = to.wall - from.wall < best->wall ? to.wall - from.wall : best->wall;
    best->cpu = to.cpu - from.cpu < best->cpu ? to.cpu - from.cpu : best->cpu;
}

/* ---- clients -------------------------------------------------------------------------------- */

struct client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double submitted, first; /* time of the first token */
    int32_t n_answer, reused;
    int32_t answer[CONTEXT];
    bool over;
};

static void on_event(void *user, const struct engine_event *event)
{
    struct client *c = user;
    pthread_mutex_lock(&c->lock);
    if (event->kind == EVENT_PREFILL)
        c->reused = event->reused;
    if (event->kind == EVENT_TOKEN) {
        if (c->n_answer == 0)
            c->first = now();
        c->answer[c->n_answer++] = event->id;
    }
    c->over = event->kind == EVENT_END;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void submit(struct engine *engine, struct client *c, const int32_t *ids, int32_t n,
                   int32_t tokens, uint64_t name)
{
    static const int32_t EOS = 1;
    struct error err;
    uint64_t number;
    *c = (struct client){.submitted = now()};
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0 && pthread_cond_init(&c->changed, NULL) == 0);
    struct engine_request r = {
        .ids = ids,
        .n_ids = n,
        .tokens_max = tokens,
        .sampling = {.temperature = 0, .top_p = 1},
        .reuse_namespace = name,
        .stop_ids = &EOS,
        .n_stop_ids = n == BATCH_PROMPT ? 0 : 1, /* batches compare equal numbers of tokens */
    };
    ASSERT(engine_submit(engine, &r, on_event, c, &number, &err) == OK);
}

static void wait_end(struct client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->over)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
}

static struct engine *start(const char *dir, int threads, int32_t sessions, int32_t draft_depth)
{
    struct model_options options = {.threads = threads};
    struct profile profile = *profile_builtin_at(PROFILE_OFFICIAL);
    ASSERT(profile_set(&profile, ROW_DRAFT_DEPTH, draft_depth));
    struct engine_options engine_options = {.sessions_max = sessions,
                                            .context_max = CONTEXT,
                                            .queue_max = BATCH_MAX,
                                            .prefix_bytes = PREFIX_BYTES_DEFAULT,
                                            .profile = &profile};
    struct model *model = NULL;
    struct engine *engine = NULL;
    struct error err;
    if (model_open(dir, &options, &model, &err) != OK ||
        engine_create(model, &engine_options, &engine, &err) != OK) {
        fprintf(stderr, "bench_serve: %s\n", err.text);
        exit(2);
    }
    return engine;
}

/* Ids without meaning; another text for every seed. */
static const int32_t *text(struct engine *engine, uint32_t seed)
{
    static int32_t ids[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) {
        seed = seed * 1664525 + 1013904223;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)engine_model_config(engine)->vocab_size);
    }
    return ids;
}

/* ---- what is measured ----------------------------------------------------------------------- */

static struct client clients[BATCH_MAX];

/* n requests, all at once or one after another. */
static void batch_run(struct engine *engine, int32_t n, bool together, struct spent *best)
{
    struct spent from = spent_now();
    for (int32_t i = 0; i < n; i++) {
        submit(engine, &clients[i], text(engine, (uint32_t)i), BATCH_PROMPT, BATCH_ANSWER, 0);
        if (!together)
            wait_end(&clients[i]);
    }
    for (int32_t i = 0; i < n && together; i++)
        wait_end(&clients[i]);
    spent_best(best, from);
}

static void bench_batch(const char *dir, int threads)
{
    static const int32_t SIZES[] = {1, 4, 16, 32};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct engine *engine = start(dir, threads, SIZES[i], 0);
        struct spent together = {1e9, 1e9}, one_by_one = {1e9, 1e9};
        for (int round = 0; round < ROUNDS; round++) {
            batch_run(engine, SIZES[i], true, &together);
            batch_run(engine, SIZES[i], false, &one_by_one);
        }
        printf("{\"bench\": \"batch\", \"threads\": %d, \"requests\": %d, \"tokens_s\": %.0f, "
               "\"times_sequential\": %.2f, \"times_sequential_cpu\": %.2f}\n",
               threads, SIZES[i], SIZES[i] * (BATCH_PROMPT + BATCH_ANSWER) / together.wall,
               one_by_one.wall / together.wall, one_by_one.cpu / together.cpu);
        fflush(stdout);
        engine_destroy(engine);
    }
}

/* Seconds to the first token of a prompt. */
static double first_token(struct engine *engine, const int32_t *ids, int32_t n, uint64_t name,
                          int32_t *reused)
{
    submit(engine, &clients[0], ids, n, 1, name);
    wait_end(&clients[0]);
    *reused = clients[0].reused;
    return clients[0].first - clients[0].submitted;
}

/* The second turn of a conversation whose timeline was given away: from the cache, and cold. */
static void bench_cached(const char *dir, int threads)
{
    struct engine *engine = start(dir, threads, 1, 0);
    double cached = 1e9, cold = 1e9;
    int32_t reused = 0, none = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        first_token(engine, text(engine, 50 + round), LONG_PROMPT, 1, &none);
        first_token(engine, text(engine, 99), BATCH_PROMPT, 2, &none); /* takes the timeline */
        double a =
            first_token(engine, text(engine, 50 + round), LONG_PROMPT + NEXT_TURN, 1, &reused);
        double b = first_token(engine, text(engine, 50 + round), LONG_PROMPT + NEXT_TURN, 3, &none);
        ASSERT(reused == LONG_PROMPT && none == 0);
        cached = a < cached ? a : cached;
        cold = b < cold ? b : cold;
    }
    printf("{\"bench\": \"second turn\", \"prompt\": %d, \"reused\": %d, \"cold_ms\": %.1f, "
           "\"cached_ms\": %.1f, \"times_faster\": %.1f, \"prefill_tokens_s\": %.0f}\n",
           LONG_PROMPT + NEXT_TURN, reused, 1e3 * cold, 1e3 * cached, cold / cached,
           (LONG_PROMPT + NEXT_TURN) / cold);
    fflush(stdout);
    engine_destroy(engine);
}

/* A short prompt that comes while a long one is being read, against the same one alone. */
static void bench_mixed(const char *dir, int threads)
{
    struct engine *engine = start(dir, threads, 2, 0);
    double beside = 1e9, alone = 1e9, behind = 1e9;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int32_t none;
        double a = first_token(engine, text(engine, round), BATCH_PROMPT, 0, &none);
        submit(engine, &clients[1], text(engine, 70 + round), LONG_PROMPT, 1, 0);
        double b = first_token(engine, text(engine, 80 + round), BATCH_PROMPT, 0, &none);
        wait_end(&clients[1]);
        double c = clients[1].first - clients[1].submitted;
        alone = a < alone ? a : alone;
        beside = b < beside ? b : beside;
        behind = c < behind ? c : behind;
    }
    printf("{\"bench\": \"first token\", \"prompt\": %d, \"beside_prefill_of\": %d, "
           "\"alone_ms\": %.1f, \"beside_ms\": %.1f, \"times_alone\": %.1f, "
           "\"share_of_waiting_behind\": %.2f}\n",
           BATCH_PROMPT, LONG_PROMPT, 1e3 * alone, 1e3 * beside, beside / alone, beside / behind);
    fflush(stdout);
    engine_destroy(engine);
}

/* ---- memory --------------------------------------------------------------------------------- */

static double resident_bytes(void)
{
    unsigned long long pages[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    ASSERT(file != NULL && fscanf(file, "%llu %llu", &pages[0], &pages[1]) == 2);
    fclose(file);
    return (double)pages[1] * (double)sysconf(_SC_PAGESIZE);
}

/* That timelines take by the count of those that admit requests. */
static double planned_bytes(struct engine *engine)
{
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    return (double)stats.state_bytes;
}

/* What a timeline grows by with each token, and what it takes however short it is. */
static void print_state(const struct model *model, const struct profile *profile)
{
    enum { FEW = 1 << 17, MANY = 1 << 18 };
    double few = (double)sequence_bytes_under(model, profile, FEW);
    double a_token = ((double)sequence_bytes_under(model, profile, MANY) - few) / (MANY - FEW);
    printf("{\"bench\": \"memory\", \"shape\": \"%s\", \"profile\": \"%s\", "
           "\"bytes_a_token\": %.1f, \"fixed_bytes\": %.0f, \"prefix_block_bytes\": %llu, "
           "\"prefix_tail_bytes\": %llu}\n",
           model->config->name, profile->name, a_token, few - a_token * FEW,
           (unsigned long long)snapshot_block_bytes(model, profile),
           (unsigned long long)snapshot_tail_bytes(model, profile));
}

/* A session's state by the plan, of this model and of the published one, and what the second of two
 * equal sessions really makes resident: the first one has touched what they share. */
static void bench_memory(const char *dir, int threads)
{
    const struct profile *official = profile_builtin_at(PROFILE_OFFICIAL);
    struct model shape = {.packs = true};
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        shape.config = &MODEL_CONFIGS[i];
        if (strcmp(shape.config->name, "flash") != 0 && strcmp(shape.config->name, "demo") != 0)
            continue;
        print_state(&shape, official);
        print_state(&shape, profile_builtin_at(PROFILE_REFERENCE));
        if (strcmp(shape.config->name, "demo") != 0)
            continue;
        struct engine *engine = start(dir, threads, 2, 0);
        double resident[2];
        int32_t none;
        for (uint32_t session = 0; session < 2; session++) {
            double before = resident_bytes();
            first_token(engine, text(engine, 30 + session), LONG_PROMPT, session + 1, &none);
            resident[session] = resident_bytes() - before;
        }
        printf(
            "{\"bench\": \"session\", \"prompt\": %d, \"resident_bytes\": %.0f, "
            "\"planned_bytes\": %llu, \"cache_bytes\": %llu}\n",
            LONG_PROMPT, resident[1],
            (unsigned long long)sequence_bytes_under(&shape, official, LONG_PROMPT),
            (unsigned long long)(LONG_PROMPT / SNAPSHOT_TOKENS) *
                (snapshot_block_bytes(&shape, official) + snapshot_tail_bytes(&shape, official)));
        engine_destroy(engine);
    }
    fflush(stdout);
}

/* What a further conversation takes that begins as others do, and one that begins alone. */
static void bench_branches(const char *dir, int threads)
{
    enum { BRANCHES = 8, PROMPT = LONG_PROMPT + NEXT_TURN };
    struct engine *engine = start(dir, threads, 2 * BRANCHES + 2, 0);
    double apiece[2], planned[2];
    int32_t ids[PROMPT], reused = 0;
    for (int shared = 1; shared >= 0; shared--) {
        double before = 0, planned_before = 0;
        for (uint32_t i = 0; i <= BRANCHES; i++) { /* the first one touches what all have */
            before = i == 1 ? resident_bytes() : before;
            planned_before = i == 1 ? planned_bytes(engine) : planned_before;
            memcpy(ids, text(engine, shared ? 60 : 200 + i), LONG_PROMPT * sizeof *ids);
            memcpy(ids + LONG_PROMPT, text(engine, 100 + i), NEXT_TURN * sizeof *ids);
            first_token(engine, ids, PROMPT, shared ? 1 : 10 + i, &reused);
            ASSERT(reused == (shared && i > 0 ? LONG_PROMPT : 0));
        }
        apiece[shared] = (resident_bytes() - before) / BRANCHES;
        planned[shared] = (planned_bytes(engine) - planned_before) / BRANCHES;
    }
    printf("{\"bench\": \"branches\", \"n\": %d, \"prompt\": %d, \"in_common\": %d, "
           "\"resident_bytes_apiece\": %.0f, \"alone_bytes_apiece\": %.0f, "
           "\"planned_bytes_apiece\": %.0f, \"planned_alone_bytes_apiece\": %.0f}\n",
           BRANCHES, PROMPT, LONG_PROMPT, apiece[1], apiece[0], planned[1], planned[0]);
    fflush(stdout);
    engine_destroy(engine);
}

struct prompts {
    int32_t ids[PROMPTS_MAX][CONTEXT], n_ids[PROMPTS_MAX], n;
};

/* Answers all prompts, one at a time.  @return tokens */
static int32_t answer_all(struct engine *engine, const struct prompts *p, struct spent *best)
{
    int32_t tokens = 0;
    struct spent from = spent_now();
    for (int32_t i = 0; i < p->n; i++) {
        submit(engine, &clients[0], p->ids[i], p->n_ids[i], CONTEXT - p->n_ids[i], 1);
        wait_end(&clients[0]);
        tokens += clients[0].n_answer;
    }
    spent_best(best, from);
    return tokens;
}

/* One conversation at a time, with and without guesses: the case that they are for.  All but the
 * first round find the prompts in the prefix cache, so that most of the time is decoding. */
static void bench_draft(const char *dir, const struct prompts *prompts, int threads, int32_t depth)
{
    struct engine *engines[2] = {start(dir, threads, 1, 0), start(dir, threads, 1, depth)};
    struct spent best[2] = {{1e9, 1e9}, {1e9, 1e9}};
    int32_t tokens = 0;
    for (int round = 0; round < 2 * ROUNDS; round++)
        tokens = answer_all(engines[round % 2], prompts, &best[round % 2]);
    struct engine_stats stats;
    engine_stats_get(engines[1], &stats);
    printf(
        "{\"bench\": \"draft\", \"depth\": %d, \"threads\": %d, \"tokens\": %d, \"right\": %.2f, "
        "\"tokens_s_without\": %.0f, \"tokens_s_with\": %.0f, \"times_faster\": %.2f, "
        "\"times_faster_cpu\": %.2f}\n",
        (int)depth, threads, tokens, (double)stats.drafts_right / (double)stats.drafts,
        tokens / best[0].wall, tokens / best[1].wall, best[0].wall / best[1].wall,
        best[0].cpu / best[1].cpu);
    fflush(stdout);
    engine_destroy(engines[0]);
    engine_destroy(engines[1]);
}

/* The prompts of the cases: their ids in front of the answer. */
static enum status prompts_read(const char *path, struct prompts *out, struct error *err)
{
    struct json_object *root;
    enum status status = json_parse_file(path, FILE_BYTES, &root, err);
    if (status != OK)
        return status;
    bool is_null;
    json_object_object_foreach(root, name, value)
    {
        struct json_object *ids = json_member(value, "ids", &is_null);
        struct json_object *from = json_member(value, "answer_from", &is_null);
        int32_t n = from == NULL ? 0 : json_object_get_int(from);
        if (ids == NULL || n < 1 || n >= CONTEXT / 2 || out->n == PROMPTS_MAX) {
            json_object_put(root);
            return error_set(err, ERR_INPUT, "%s: %s: no usable prompt", path, name);
        }
        for (int32_t i = 0; i < n; i++)
            out->ids[out->n][i] = json_object_get_int(json_object_array_get_idx(ids, (size_t)i));
        out->n_ids[out->n++] = n;
    }
    json_object_put(root);
    return OK;
}

int main(int argc, char **argv)
{
    static struct prompts prompts;
    int threads = argc == 4 ? atoi(argv[3]) : 0;
    struct error err;
    if (threads < 1 || threads > CPU_THREADS_MAX) {
        fprintf(stderr, "usage: bench_serve MODEL CASES THREADS\n");
        return 2;
    }
    enum status status = prompts_read(argv[2], &prompts, &err);
    if (status != OK) {
        fprintf(stderr, "bench_serve: %s\n", err.text);
        return status_exit_code(status);
    }
    bench_memory(argv[1], threads);
    bench_branches(argv[1], threads);
    /* One thread, and all of them: three minutes hold no more. */
    for (int n = 1; n <= threads; n = n == threads ? n + 1 : threads) {
        for (int32_t depth = 1; depth <= DRAFT_DEPTH_MAX; depth++)
            bench_draft(argv[1], &prompts, n, depth);
        bench_batch(argv[1], n);
    }
    bench_cached(argv[1], threads);
    bench_mixed(argv[1], threads);
    return 0;
}
