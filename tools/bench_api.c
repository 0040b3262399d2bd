/*
 * What streaming costs:  bench_api MODEL THREADS
 * The same answers are taken from the serving core itself and through the HTTP server, by 1, 16 and
 * 128 clients at once, in this process.  Other programs share the machine: both ways take turns in
 * pairs of a second or less, each pair gives a ratio, and of the ratios the median counts, with its
 * quartiles beside it.  Time of the processor is that of all threads but the clients'; what it says
 * does not depend on who else is waiting for it.  One JSON object a line.
 */
#include "engine/api/api.h"
#include "engine/api/profiles.h"

#include "config/limits.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "kernels/check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT     1024
#define STREAMS_MAX 128
#define PAIRS_MAX   21
#define QUESTION    "Tell me about jazz music."
#define HEAD_BYTES  8192 /* the head of an answer and its first event */

static const struct {
    int streams;
    int32_t tokens; /* of each answer */
    int pairs;      /* odd, so that there is one in the middle */
} RUNS[] = {{1, 256, 21}, {16, 64, 15}, {STREAMS_MAX, 32, 7}};
#define N_RUNS (sizeof RUNS / sizeof RUNS[0])

struct bench {
    struct engine *engine;
    struct tokenizer *tokenizer;
    struct mask_vocab *masks;
    struct turns *turns;
    struct keys *keys;
    struct meter *meter;
    struct http_server *http;
    struct api api;
    struct sockaddr_un address;
    socklen_t address_len;
    char secret[KEY_SECRET_CHARS + 1], keys_path[64];
    struct ids prompt; /* of QUESTION */
};

/* One way to take the answers, once. */
struct timing {
    double wall_s, user_s, cpu_s;       /* user_s, cpu_s: of all threads but this one */
    double first_byte_s, first_token_s; /* mean over the clients */
};

static double clock_s(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* What has been used so far; the clients live in the thread that calls. */
static struct timing timing_now(void)
{
    struct rusage all, own;
    ASSERT(getrusage(RUSAGE_SELF, &all) == 0 && getrusage(RUSAGE_THREAD, &own) == 0);
    double user_s = seconds(all.ru_utime) - seconds(own.ru_utime);
    double system_s = seconds(all.ru_stime) - seconds(own.ru_stime);
    return (struct timing){clock_s(CLOCK_MONOTONIC), user_s, user_s + system_s, 0, 0};
}

static void timing_end(struct timing *t)
{
    struct timing now = timing_now();
    t->wall_s = now.wall_s - t->wall_s;
    t->user_s = now.user_s - t->user_s;
    t->cpu_s = now.cpu_s - t->cpu_s;
}

/* ---- answers of equal length ----------------------------------------------------------------- */

enum status __real_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err);
enum status __wrap_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err);
/* In place of engine_submit: no token ends an answer, and nothing is left for the next round. */
enum status __wrap_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err)
{
    struct engine_request endless = *request;
    endless.n_stop_ids = 0;
    endless.reuse_namespace = 0;
    return __real_engine_submit(engine, &endless, on_event, user, out, err);
}

/* ---- from the serving core ------------------------------------------------------------------- */

struct core_client {
    double begin_s, first_s;
    int32_t n;
    struct core *core;
};

struct core {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int left; /* lock */
    struct core_client clients[STREAMS_MAX];
};

static void core_event(void *user, const struct engine_event *event)
{
    struct core_client *c = user;
    if (event->kind == EVENT_TOKEN && c->n++ == 0)
        c->first_s = clock_s(CLOCK_MONOTONIC);
    if (event->kind != EVENT_END)
        return;
    pthread_mutex_lock(&c->core->lock);
    c->core->left--;
    pthread_cond_signal(&c->core->ended);
    pthread_mutex_unlock(&c->core->lock);
}

static struct timing run_core(struct bench *b, int streams, int32_t tokens)
{
    static struct core core;
    core = (struct core){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct timing t = timing_now();
    struct engine_request r = {.ids = b->prompt.data,
                               .n_ids = (int32_t)b->prompt.len,
                               .tokens_max = tokens,
                               .sampling = {.temperature = 0, .top_p = 1}};
    struct error err;
    uint64_t number;
    core.left = streams;
    for (int i = 0; i < streams; i++) {
        core.clients[i] = (struct core_client){.begin_s = clock_s(CLOCK_MONOTONIC), .core = &core};
        ASSERT(engine_submit(b->engine, &r, core_event, &core.clients[i], &number, &err) == OK);
    }
    pthread_mutex_lock(&core.lock);
    while (core.left > 0)
        pthread_cond_wait(&core.ended, &core.lock);
    pthread_mutex_unlock(&core.lock);
    for (int i = 0; i < streams; i++) {
        ASSERT(core.clients[i].n == tokens);
        t.first_token_s += (core.clients[i].first_s - core.clients[i].begin_s) / streams;
    }
    t.first_byte_s = t.first_token_s;
    timing_end(&t);
    return t;
}

/* ---- through the server ---------------------------------------------------------------------- */

struct http_client {
    int fd; /* -1: over */
    double begin_s, byte_s, token_s;
    char head[HEAD_BYTES + 1]; /* how the answer begins */
    size_t n_head;
    char tail[64]; /* and how it ends */
};

static void http_ask(struct bench *b, struct http_client *c, int32_t tokens)
{
    char body[512], request[1024];
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"%s\",\"temperature\":0,\"max_tokens\":%d,\"stream\":true,"
                     "\"messages\":[{\"role\":\"user\",\"content\":\"" QUESTION "\"}]}",
                     b->api.model, tokens);
    int len = snprintf(request, sizeof request,
                       "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                       "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                       "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                       b->secret, n, body);
    *c = (struct http_client){.begin_s = clock_s(CLOCK_MONOTONIC)};
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(c->fd >= 0);
    ASSERT(connect(c->fd, (struct sockaddr *)&b->address, b->address_len) == 0);
    ASSERT(send(c->fd, request, (size_t)len, MSG_NOSIGNAL) == len);
}

/* Takes what came.  @return false: the answer is over */
static bool http_hear(struct http_client *c)
{
    char bytes[16384];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    double now = clock_s(CLOCK_MONOTONIC);
    if (c->byte_s == 0)
        c->byte_s = now;
    if (c->token_s == 0) {
        size_t room = HEAD_BYTES - c->n_head, part = (size_t)n < room ? (size_t)n : room;
        memcpy(c->head + c->n_head, bytes, part);
        c->n_head += part;
        /* the first event has empty content */
        const char *first = strstr(c->head, "\"content\":\"\"");
        if (first != NULL && strstr(first + 1, "\"content\":\"") != NULL)
            c->token_s = now;
    }
    size_t keep = (size_t)n < sizeof c->tail ? (size_t)n : sizeof c->tail;
    memmove(c->tail, c->tail + keep, sizeof c->tail - keep);
    memcpy(c->tail + sizeof c->tail - keep, bytes + n - keep, keep);
    return true;
}

static struct timing run_http(struct bench *b, int streams, int32_t tokens)
{
    static struct http_client clients[STREAMS_MAX];
    struct pollfd polled[STREAMS_MAX];
    struct timing t = timing_now();
    int left = streams;
    for (int i = 0; i < streams; i++) {
        http_ask(b, &clients[i], tokens);
        polled[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
    }
    while (left > 0) {
        ASSERT(poll(polled, (nfds_t)streams, -1) > 0);
        for (int i = 0; i < streams; i++) {
            if (polled[i].revents != 0 && !http_hear(&clients[i])) {
                polled[i].fd = -1;
                left--;
            }
        }
    }
    for (int i = 0; i < streams; i++) {
        struct http_client *c = &clients[i];
        ASSERT(memmem(c->tail, sizeof c->tail, "data: [DONE]", 12) != NULL);
        t.first_byte_s += (c->byte_s - c->begin_s) / streams;
        t.first_token_s += (c->token_s - c->begin_s) / streams;
    }
    timing_end(&t);
    return t;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int listen_anywhere(struct bench *b)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT(fd >= 0);
    b->address.sun_family = AF_UNIX;
    b->address_len = sizeof b->address;
    ASSERT(bind(fd, (struct sockaddr *)&b->address, sizeof b->address.sun_family) == 0);
    ASSERT(getsockname(fd, (struct sockaddr *)&b->address, &b->address_len) == 0);
    ASSERT(listen(fd, SOMAXCONN) == 0);
    return fd;
}

static enum status open_all(struct bench *b, const char *dir, int threads, struct error *err)
{
    struct model_options model_options = {.threads = threads};
    struct engine_options options = {.sessions_max = SESSIONS_MAX,
                                     .context_max = CONTEXT,
                                     .queue_max = STREAMS_MAX,
                                     .profile = profile_builtin("official")};
    struct http_options http = {.profile = api_profile_now, .user = &b->api};
    struct model *model;
    struct key key;
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    snprintf(b->keys_path, sizeof b->keys_path, "/tmp/v4box-bench-%d", (int)getpid());
    enum status status = model_open(dir, &model_options, &model, err);
    if (status == OK)
        status = engine_create(model, &options, &b->engine, err);
    if (status == OK)
        status = tokenizer_open(path, &b->tokenizer, err);
    if (status == OK)
        status = api_init(&b->api, b->engine, b->tokenizer, "auto", err);
    if (status == OK)
        status = mask_vocab_create(b->tokenizer, &b->api.tokens, &b->masks, err);
    if (status == OK)
        status = keys_open(b->keys_path, &b->keys, err);
    if (status == OK)
        status = keys_create(b->keys, "bench", &key, b->secret, err);
    if (status != OK)
        return status;
    b->api.masks = b->masks;
    b->api.turns = b->turns = turns_create();
    http.take_listen_fd = listen_anywhere(b);
    http.keys = b->keys;
    http.meter = b->api.meter = b->meter = meter_create();
    http.body_bytes_max = api_body_bytes_max(&b->api);
    http.routes = api_routes(&http.n_routes);
    return http_start(&http, &b->http, err);
}

/* What QUESTION looks like to the model. */
static void make_prompt(struct bench *b)
{
    static const char MESSAGES[] = "[{\"role\":\"user\",\"content\":\"" QUESTION "\"}]";
    struct chat_request request = {0};
    struct error err;
    ASSERT(json_parse(MESSAGES, sizeof MESSAGES - 1, &request.messages, NULL, &err) == OK);
    ASSERT(chat_render(b->tokenizer, &b->api.tokens, &request, &b->prompt, NULL, &err) == OK);
    json_object_put(request.messages);
}

/* ---- what came out --------------------------------------------------------------------------- */

struct pair {
    struct timing core, http;
};

/* What is told of each pair. */
enum figure {
    CORE_SPEED, /* tokens a second */
    API_SPEED,
    SPEED_RATIO,
    USER_RATIO,
    CPU_RATIO,
    API_US, /* of the processor, a token */
    FIRST_BYTE_MS,
    FIRST_TOKEN_MS,
    CORE_FIRST_TOKEN_MS,
    FIGURES
};

static const struct {
    const char *name;
    bool quartiles;
} NAMES[FIGURES] = {
    [CORE_SPEED] = {"core_tokens_per_s", false},
    [API_SPEED] = {"api_tokens_per_s", false},
    [SPEED_RATIO] = {"speed_ratio", true},
    [USER_RATIO] = {"user_ratio", true},
    [CPU_RATIO] = {"cpu_ratio", true},
    [API_US] = {"api_cpu_us_per_token", true},
    [FIRST_BYTE_MS] = {"first_byte_ms", false},
    [FIRST_TOKEN_MS] = {"first_token_ms", false},
    [CORE_FIRST_TOKEN_MS] = {"core_first_token_ms", false},
};

static void figures_of(const struct pair *pair, double tokens, double out[FIGURES])
{
    const struct timing *core = &pair->core, *http = &pair->http;
    out[CORE_SPEED] = tokens / core->wall_s;
    out[API_SPEED] = tokens / http->wall_s;
    out[SPEED_RATIO] = core->wall_s / http->wall_s;
    out[USER_RATIO] = core->user_s / http->user_s;
    out[CPU_RATIO] = core->cpu_s / http->cpu_s;
    out[API_US] = (http->cpu_s - core->cpu_s) / tokens * 1e6;
    out[FIRST_BYTE_MS] = http->first_byte_s * 1e3;
    out[FIRST_TOKEN_MS] = http->first_token_s * 1e3;
    out[CORE_FIRST_TOKEN_MS] = core->first_token_s * 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(int streams, int32_t tokens, const struct pair *pairs, int n)
{
    double figures[PAIRS_MAX][FIGURES], sorted[PAIRS_MAX];
    for (int i = 0; i < n; i++)
        figures_of(&pairs[i], (double)streams * tokens, figures[i]);
    printf("{\"streams\": %d, \"tokens\": %d, \"pairs\": %d", streams, (int)tokens, n);
    for (int f = 0; f < FIGURES; f++) {
        for (int i = 0; i < n; i++)
            sorted[i] = figures[i][f];
        qsort(sorted, (size_t)n, sizeof *sorted, compare);
        printf(", \"%s\": %.4g", NAMES[f].name, sorted[n / 2]);
        if (NAMES[f].quartiles)
            printf(", \"%s_quartiles\": [%.4g, %.4g]", NAMES[f].name, sorted[n / 4],
                   sorted[n - 1 - n / 4]);
    }
    printf("}\n");
    fflush(stdout);
}

/* Who goes first changes from pair to pair: what one leaves in the caches helps neither. */
static void run_pairs(struct bench *b, int streams, int32_t tokens, struct pair *out, int n)
{
    for (int i = 0; i < n; i++) {
        if (i % 2 == 0)
            out[i].core = run_core(b, streams, tokens);
        out[i].http = run_http(b, streams, tokens);
        if (i % 2 == 1)
            out[i].core = run_core(b, streams, tokens);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct error err = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: bench_api MODEL THREADS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (open_all(&b, argv[1], atoi(argv[2]), &err) != OK) {
        fprintf(stderr, "bench_api: %s\n", err.text);
        return 2;
    }
    make_prompt(&b);
    for (size_t i = 0; i < N_RUNS; i++) {
        struct pair pairs[PAIRS_MAX];
        run_pairs(&b, RUNS[i].streams, RUNS[i].tokens, pairs, RUNS[i].pairs);
        report(RUNS[i].streams, RUNS[i].tokens, pairs, RUNS[i].pairs);
    }
    http_stop(b.http);
    meter_destroy(b.meter);
    engine_destroy(b.engine);
    turns_destroy(b.turns);
    mask_vocab_destroy(b.masks);
    keys_close(b.keys);
    tokenizer_close(b.tokenizer);
    ids_free(&b.prompt);
    unlink(b.keys_path);
    return 0;
}
