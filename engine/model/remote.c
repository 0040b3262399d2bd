/* The engine's side of the link to a worker. */
#include "engine/model/remote.h"

#include "engine/base/clock.h"
#include "engine/model/config.h"
#include "kernels/check.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct remote {
    struct link *link; /* owns */
    int fd;            /* owns; -1: none */
    pid_t process;     /* owns; 0: gone */
    uint32_t number, step_ms;
    const struct model_config *config;
    struct link_step step;
};

/* ---- the process ---------------------------------------------------------------------------- */

static enum status start(struct remote *r, const struct remote_options *o, struct error *err)
{
    char threads[16];
    snprintf(threads, sizeof threads, "%d", o->model.threads);
    const char *argv[10] = {o->program, "steps", "--model", o->dir};
    int n = 4;
    if (o->model.isa != ISA_AUTO) {
        argv[n++] = "--isa";
        argv[n++] = isa_name(o->model.isa);
    }
    if (o->model.threads != 0) {
        argv[n++] = "--threads";
        argv[n++] = threads;
    }
    char *nothing[] = {NULL};
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return error_set(err, ERR_IO, "%s: %s", o->program, strerror(code));
    code = posix_spawn_file_actions_adddup2(&actions, r->fd, LINK_FD);
    if (code == 0)
        code = posix_spawn(&r->process, o->program, &actions, NULL, (char *const *)argv, nothing);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
        r->process = 0;
        return error_set(err, ERR_IO, "%s: %s", o->program, strerror(code));
    }
    return OK;
}

/* Its own words, if they are some. */
static void reason_copy(const struct link *link, char text[ERROR_TEXT_BYTES])
{
    size_t n = 0;
    for (; n + 1 < ERROR_TEXT_BYTES; n++) {
        char c = *(const volatile char *)&link->reason[n];
        if (c == '\0')
            break;
        text[n] = c >= ' ' && c <= '~' ? c : '?';
    }
    text[n] = '\0';
}

static enum status ended(const struct remote *r, int how, struct error *err)
{
    char reason[ERROR_TEXT_BYTES];
    reason_copy(r->link, reason);
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
static enum status await(struct remote *r, _Atomic uint32_t *word, uint32_t seen, uint64_t ms,
                         const char *what, uint32_t *now, struct error *err)
{
    uint64_t deadline = clock_ms() + ms;
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
    char name[LINK_FIELD_BYTES];
    memcpy(name, r->link->config, sizeof name);
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        if (strncmp(MODEL_CONFIGS[i].name, name, sizeof name) == 0)
            r->config = &MODEL_CONFIGS[i];
    }
    if (r->config == NULL || r->config->vocab_size > LINK_VOCAB_MAX)
        return error_set(err, ERR_CHECK, "the worker has loaded no known configuration");
    return OK;
}

static enum status load_await(struct remote *r, struct error *err)
{
    uint32_t state;
    enum status status = await(r, &r->link->state, LINK_LOADING, 1000ull * WORKER_LOAD_SECONDS,
                               "model loaded", &state, err);
    if (status != OK)
        return status;
    if (state == LINK_READY)
        return config_find(r, err);
    char reason[ERROR_TEXT_BYTES];
    reason_copy(r->link, reason);
    return error_set(err, ERR_CHECK, "the worker does not serve: %.400s", reason);
}

enum status remote_open(const struct remote_options *options, struct remote **out,
                        struct error *err)
{
    struct remote *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set(err, ERR_CAPACITY, "out of memory");
    r->fd = -1;
    r->step_ms = options->step_ms;
    r->link = link_create(options->slots, options->tokens_max, &r->fd);
    enum status status = OK;
    if (r->link == NULL) {
        r->fd = -1;
        status = error_set(err, ERR_IO, "memory for the worker: %s", strerror(errno));
    }
    if (status == OK)
        status = start(r, options, err);
    if (status == OK)
        status = load_await(r, err);
    if (status != OK) {
        remote_close(r);
        return status;
    }
    *out = r;
    return OK;
}

void remote_close(struct remote *r)
{
    if (r == NULL)
        return;
    end(r);
    link_unmap(r->link);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
}

const struct model_config *remote_config(const struct remote *r)
{
    return r->config;
}

int remote_process(const struct remote *r)
{
    return r->process;
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct link_step *remote_step(struct remote *r)
{
    return &r->step;
}

static enum status answer_check(const struct link_answer *answer, uint32_t number, uint32_t done,
                                struct error *err)
{
    char refused[LINK_FIELD_BYTES];
    memcpy(refused, answer->refused, sizeof refused);
    if (done != number || *(const volatile uint32_t *)&answer->number != number)
        return error_set(err, ERR_CHECK, "the worker has answered another step");
    for (size_t i = 0; i < sizeof refused; i++) {
        if (refused[i] != '\0' && (refused[i] < ' ' || refused[i] > '~'))
            refused[i] = '?';
    }
    if (refused[0] != '\0')
        return error_set(err, ERR_CHECK, "the worker refuses the step: %.31s", refused);
    return OK;
}

enum status remote_run(struct remote *r, const struct profile *profile, const float **rows,
                       struct error *err)
{
    ASSERT(r->process != 0);
    struct link *link = r->link;
    uint32_t before = r->number++, slot = r->number % LINK_STEPS, done;
    r->step.number = r->number;
    memset(r->step.values, 0, sizeof r->step.values);
    memcpy(r->step.values, profile->values, sizeof profile->values);
    link->steps[slot] = r->step;
    link_tell(&link->posted, r->number);
    enum status status = await(r, &link->done, before, r->step_ms, "answer", &done, err);
    if (status == OK)
        status = answer_check(&link->answers[slot], r->number, done, err);
    if (status != OK) {
        end(r);
        return status;
    }
    *rows = link->answers[slot].logits;
    return OK;
}
