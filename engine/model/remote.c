/* The engine's side of the link to a worker. */
#include "engine/model/remote.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/model/config.h"
#include "kernels/check.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum remote_state {
    REMOTE_UP,
    REMOTE_LOST,    /* waits for its next start */
    REMOTE_LOADING, /* was started again */
    REMOTE_LOADED,  /* and is told what it has to have */
};

struct remote {
    char *program, *dir, *weights; /* own; weights NULL: the checkpoint's */
    struct model_options options;
    uint32_t step_ms, load_ms;
    struct link *link; /* owns */
    int fd;            /* owns; -1: none */
    pid_t process;     /* owns; 0: gone */
    enum remote_state state;
    struct error lost; /* why it is, or was last */
    uint32_t number;
    int64_t since_ms;  /* REMOTE_UP, REMOTE_LOADING: when that began; REMOTE_LOST: when it ends */
    int64_t lost_ms;   /* when it was lost */
    uint32_t pause_ms; /* in front of the next start but one */
    int starts_failed;
    int64_t waited_ms;
    const struct model_config *config;
    char variant[LINK_FIELD_BYTES];
    bool packs;
    int32_t ranks, gpus;
    int32_t step_tokens;
    struct link_step step;
};

/* ---- the process ---------------------------------------------------------------------------- */

static enum status spawn(struct remote *r, struct error *err)
{
    char threads[16], ranks[16], gpu[16], group[16], step_ms[16];
    snprintf(threads, sizeof threads, "%d", r->options.threads);
    const char *argv[22] = {r->program, "steps", "--model", r->dir};
    int n = 4;
    if (r->options.isa != ISA_AUTO) {
        argv[n++] = "--isa";
        argv[n++] = isa_name(r->options.isa);
    }
    if (r->options.threads != 0) {
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    snprintf(ranks, sizeof ranks, "%d", r->options.ranks);
    if (r->options.ranks != 0) {
        argv[n++] = "--ranks";
        argv[n++] = ranks;
    }
    snprintf(gpu, sizeof gpu, "%d", r->options.gpu);
    if (r->options.gpu != 0) {
        argv[n++] = "--gpu";
        argv[n++] = gpu;
    }
    snprintf(group, sizeof group, "%d", r->options.group);
    if (r->options.group != 0) {
        argv[n++] = "--group";
        argv[n++] = group;
    }
    if (r->options.apart)
        argv[n++] = "--apart";
    snprintf(step_ms, sizeof step_ms, "%d", (int)r->options.worker_step_ms);
    if (r->options.worker_step_ms != 0) {
        argv[n++] = "--step-ms";
        argv[n++] = step_ms;
    }
    if (r->weights != NULL) {
        argv[n++] = "--weights";
        argv[n++] = r->weights;
    }
    char *nothing[] = {NULL};
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return error_set(err, ERR_IO, "%s: %s", r->program, strerror(code));
    code = posix_spawn_file_actions_adddup2(&actions, r->fd, LINK_FD);
    if (code == 0)
        code = posix_spawn(&r->process, r->program, &actions, NULL, (char *const *)argv, nothing);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
        r->process = 0;
        return error_set(err, ERR_IO, "%s: %s", r->program, strerror(code));
    }
    return OK;
}

static void link_drop(struct remote *r)
{
    link_unmap(r->link);
    if (r->fd >= 0)
        close(r->fd);
    r->link = NULL;
    r->fd = -1;
}

/* A new process with new memory: nothing of an old one is left there. */
static enum status start(struct remote *r, struct error *err)
{
    link_drop(r);
    r->number = 0;
    r->link = link_create(&r->fd);
    if (r->link == NULL) {
        r->fd = -1;
        return error_set(err, ERR_IO, "memory for the worker: %s", strerror(errno));
    }
    return spawn(r, err);
}

/* Words of the worker, as far as they are some. */
static void words_copy(const char *from, size_t size, char *to)
{
    size_t n = 0;
    for (; n + 1 < size; n++) {
        char c = *(const volatile char *)&from[n];
        if (c == '\0')
            break;
        to[n] = c >= ' ' && c <= '~' ? c : '?';
    }
    to[n] = '\0';
}

static enum status ended(const struct remote *r, int how, struct error *err)
{
    char reason[ERROR_TEXT_BYTES];
    words_copy(r->link->reason, sizeof reason, reason);
    if (WIFSIGNALED(how))
        return error_set(err, ERR_CHECK, "the worker was ended by signal %d", WTERMSIG(how));
    return error_set(err, ERR_CHECK, "the worker ended with status %d: %.400s", WEXITSTATUS(how),
                     reason[0] == '\0' ? "no reason given" : reason);
}

/* @return false: it runs */
static bool gone(struct remote *r, int *how)
{
    pid_t got;
    do
        got = waitpid(r->process, how, WNOHANG);
    while (got < 0 && errno == EINTR);
    ASSERT(got == 0 || got == r->process); /* nobody else waits for it */
    if (got != 0)
        r->process = 0;
    return got != 0;
}

static void end(struct remote *r)
{
    if (r->process == 0)
        return;
    kill(r->process, SIGKILL);
    while (waitpid(r->process, NULL, 0) < 0 && errno == EINTR)
        continue;
    r->process = 0;
}

/* Until *word is not `seen`; what it is then goes to *now. */
static enum status await(struct remote *r, _Atomic uint32_t *word, uint32_t seen, int64_t ms,
                         const char *what, uint32_t *now, struct error *err)
{
    int64_t deadline = clock_ms() + ms;
    for (;;) {
        int how;
        /* Death first: what it has told before it died is there all the same. */
        bool dead = gone(r, &how);
        *now = atomic_load_explicit(word, memory_order_acquire);
        if (*now != seen)
            return OK;
        if (dead)
            return ended(r, how, err);
        if (clock_ms() >= deadline)
            return error_set(err, ERR_CHECK, "the worker hangs: no %s within %u ms", what,
                             (unsigned)ms);
        link_sleep(word, seen, WORKER_LOOK_MS);
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

static enum status config_find(struct remote *r, struct error *err)
{
    char name[LINK_FIELD_BYTES], variant[LINK_FIELD_BYTES];
    const struct model_config *config = NULL;
    words_copy(r->link->config, sizeof name, name);
    words_copy(r->link->variant, sizeof variant, variant);
    bool packs = *(const volatile uint32_t *)&r->link->packs != 0;
    int32_t ranks = *(const volatile int32_t *)&r->link->ranks;
    int32_t gpus = *(const volatile int32_t *)&r->link->gpus;
    uint32_t tokens = *(const volatile uint32_t *)&r->link->step_tokens;
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        if (strcmp(MODEL_CONFIGS[i].name, name) == 0)
            config = &MODEL_CONFIGS[i];
    }
    if (config == NULL || config->vocab_size > LINK_VOCAB_MAX ||
        (int64_t)SPAN_TOKENS_MAX * HC_MULT * config->hidden_size > LINK_GIVEN_FLOATS)
        return error_set(err, ERR_CHECK, "the worker has loaded no known configuration");
    if (tokens < SPAN_TOKENS_MAX || tokens > STEP_TOKENS_MAX)
        return error_set(err, ERR_CHECK, "there are no steps of %u tokens, which the worker takes",
                         tokens);
    if (r->config != NULL && (r->config != config || strcmp(r->variant, variant) != 0 ||
                              r->packs != packs || r->step_tokens != (int32_t)tokens))
        return error_set(err, ERR_CHECK, "the worker has loaded another network than before");
    r->config = config;
    r->packs = packs;
    r->ranks = ranks >= 1 && ranks <= RANKS_MAX ? ranks : 1;
    r->gpus = gpus >= 0 ? gpus : 0;
    r->step_tokens = (int32_t)tokens;
    memcpy(r->variant, variant, sizeof variant);
    return OK;
}

static enum status loaded(struct remote *r, uint32_t state, struct error *err)
{
    if (state == LINK_READY)
        return config_find(r, err);
    char reason[ERROR_TEXT_BYTES];
    words_copy(r->link->reason, sizeof reason, reason);
    return error_set(err, ERR_CHECK, "the worker does not serve: %.400s", reason);
}

static void up(struct remote *r)
{
    r->state = REMOTE_UP;
    r->since_ms = clock_ms();
}

static uint32_t limit_ms(int32_t given, uint32_t seconds)
{
    return given > 0 ? (uint32_t)given : seconds * 1000;
}

enum status remote_open(const char *dir, const struct model_options *options, struct remote **out,
                        struct error *err)
{
    uint32_t state;
    struct remote *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set(err, ERR_CAPACITY, "out of memory");
    r->fd = -1;
    r->options = *options;
    r->step_ms = limit_ms(options->worker_step_ms, WORKER_STEP_SECONDS);
    r->load_ms = limit_ms(options->worker_load_ms, WORKER_LOAD_SECONDS);
    r->program = strdup(options->worker);
    r->dir = strdup(dir);
    if (options->weights != NULL)
        r->weights = strdup(options->weights);
    bool copied =
        r->program != NULL && r->dir != NULL && (r->weights != NULL) == (options->weights != NULL);
    enum status status = !copied ? error_set(err, ERR_CAPACITY, "out of memory") : start(r, err);
    if (status == OK)
        status = await(r, &r->link->state, LINK_LOADING, r->load_ms, "model loaded", &state, err);
    if (status == OK)
        status = loaded(r, state, err);
    if (status != OK) {
        remote_close(r);
        return status;
    }
    up(r);
    *out = r;
    return OK;
}

void remote_close(struct remote *r)
{
    if (r == NULL)
        return;
    end(r);
    link_drop(r);
    free(r->program);
    free(r->dir);
    free(r->weights);
    free(r);
}

const struct model_config *remote_config(const struct remote *r)
{
    return r->config;
}

const char *remote_variant(const struct remote *r)
{
    return r->variant;
}

bool remote_packs(const struct remote *r)
{
    return r->packs;
}

int32_t remote_ranks(const struct remote *r)
{
    return r->ranks;
}

int32_t remote_gpus(const struct remote *r)
{
    return r->gpus;
}

int32_t remote_step_tokens(const struct remote *r)
{
    return r->step_tokens;
}

int remote_process(const struct remote *r)
{
    return r->process;
}

bool remote_gauges(const struct remote *r, struct gauges *out)
{
    return r->state == REMOTE_UP && link_look(&r->link->board, out);
}

double remote_seconds(const struct remote *r)
{
    return 1e-3 * (double)r->waited_ms;
}

/* ---- losing it and starting again ----------------------------------------------------------- */

/* r->lost says why. */
static void lose(struct remote *r)
{
    int64_t now = clock_ms();
    bool lasted = r->state == REMOTE_UP && now - r->since_ms >= WORKER_LASTED_MS;
    uint32_t pause = lasted ? 0 : r->pause_ms;
    if (r->state == REMOTE_UP)
        r->lost_ms = now;
    else
        r->starts_failed++;
    end(r);
    r->pause_ms = pause == 0 ? WORKER_PAUSE_MS_MIN : 2 * pause;
    if (r->pause_ms > WORKER_PAUSE_MS_MAX)
        r->pause_ms = WORKER_PAUSE_MS_MAX;
    r->state = REMOTE_LOST;
    r->since_ms = now + pause;
    log_line(LOG_LEVEL_ERROR, "worker", "%s; starts again in %u ms", r->lost.text, (unsigned)pause);
}

int remote_starts_failed(const struct remote *r)
{
    return r->starts_failed;
}

const char *remote_lost(struct remote *r)
{
    int how;
    if (r->state == REMOTE_UP && gone(r, &how)) {
        if (ended(r, how, &r->lost) != OK)
            lose(r);
    }
    return r->state == REMOTE_UP ? NULL : r->lost.text;
}

/* One look at a worker that loads.  @return true: it has */
static bool loading_look(struct remote *r)
{
    uint32_t state = LINK_LOADING;
    int64_t spent = clock_ms() - r->since_ms;
    int how;
    link_sleep(&r->link->state, LINK_LOADING, WORKER_LOOK_MS);
    bool dead = gone(r, &how);
    state = atomic_load_explicit(&r->link->state, memory_order_acquire);
    enum status status = OK;
    if (state != LINK_LOADING)
        status = loaded(r, state, &r->lost);
    else if (dead)
        status = ended(r, how, &r->lost);
    else if (spent >= r->load_ms)
        status = error_set(&r->lost, ERR_CHECK, "the worker hangs: no model loaded within %u ms",
                           (unsigned)r->load_ms);
    if (status != OK)
        lose(r);
    return status == OK && state != LINK_LOADING;
}

bool remote_restart(struct remote *r)
{
    int64_t now = clock_ms();
    if (r->state == REMOTE_LOST && now < r->since_ms) {
        int64_t left = r->since_ms - now;
        usleep((useconds_t)(left < WORKER_LOOK_MS ? left : WORKER_LOOK_MS) * 1000);
        return false;
    }
    if (r->state == REMOTE_LOST) {
        r->state = REMOTE_LOADING;
        r->since_ms = now;
        if (start(r, &r->lost) != OK)
            lose(r);
        return false;
    }
    ASSERT(r->state == REMOTE_LOADING);
    if (!loading_look(r))
        return false;
    r->state = REMOTE_LOADED;
    return true;
}

void remote_settled(struct remote *r)
{
    ASSERT(r->state == REMOTE_LOADED);
    up(r);
    r->starts_failed = 0;
    log_line(LOG_LEVEL_INFO, "worker", "computes again after %u ms",
             (unsigned)(clock_ms() - r->lost_ms));
}

void remote_drop(struct remote *r, const char *why)
{
    if (r->state == REMOTE_LOST)
        return;
    (void)error_set(&r->lost, ERR_CHECK, "the worker %.400s", why);
    lose(r);
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct link_step *remote_step(struct remote *r, enum link_kind kind, const struct profile *profile)
{
    r->step = (struct link_step){.number = r->number + 1, .kind = kind};
    if (profile != NULL)
        memcpy(r->step.values, profile->values, sizeof profile->values);
    return &r->step;
}

float *remote_given(struct remote *r)
{
    return r->link->given[(r->number + 1) % LINK_STEPS].numbers;
}

struct link_picks *remote_picks(struct remote *r)
{
    return &r->link->picks[(r->number + 1) % LINK_STEPS];
}

const volatile struct link_choice *remote_choices(const struct remote *r)
{
    return r->link->answers[r->number % LINK_STEPS].choices;
}

enum answer { ANSWER_GOOD, ANSWER_NO_MEMORY, ANSWER_BAD };

/* @param err  what is bad about it */
static enum answer answer_judge(const struct remote *r, const struct link_answer *answer,
                                uint32_t done, struct error *err)
{
    char refused[LINK_FIELD_BYTES];
    bool opens = r->step.kind == LINK_OPEN || r->step.kind == LINK_POOL_OPEN;
    words_copy(answer->refused, sizeof refused, refused);
    if (done != r->number || *(const volatile uint32_t *)&answer->number != r->number) {
        (void)error_set(err, ERR_CHECK, "the worker has answered another step");
        return ANSWER_BAD;
    }
    if (refused[0] == '\0')
        return ANSWER_GOOD;
    if (opens && strcmp(refused, LINK_NO_MEMORY) == 0)
        return ANSWER_NO_MEMORY;
    (void)error_set(err, ERR_CHECK, "the worker refuses the step: %s", refused);
    return ANSWER_BAD;
}

bool remote_run(struct remote *r, const float **numbers)
{
    if (r->state != REMOTE_UP && r->state != REMOTE_LOADED)
        return false;
    struct link *link = r->link;
    uint32_t before = r->number++, slot = r->number % LINK_STEPS, done;
    int64_t begin = clock_ms();
    link->steps[slot] = r->step;
    link_tell(&link->posted, r->number);
    const struct link_answer *answer = &link->answers[slot];
    enum status status = await(r, &link->done, before, r->step_ms, "answer", &done, &r->lost);
    r->waited_ms += clock_ms() - begin;
    *numbers = answer->numbers;
    enum answer judged = status == OK ? answer_judge(r, answer, done, &r->lost) : ANSWER_BAD;
    if (judged == ANSWER_BAD)
        lose(r);
    return judged == ANSWER_GOOD;
}
