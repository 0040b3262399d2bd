/*
 * A serving core that does what a script says, in place of engine/serve: for tests of the API
 * alone. Included by one test program, which defines fake_script.
 */
#ifndef V4BOX_TESTS_FAKE_ENGINE_H
#define V4BOX_TESTS_FAKE_ENGINE_H

#include "engine/engine.h"
#include "kernels/check.h"
#include "tests/unit/fake_groups.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAKE_CONTEXT      8192
#define FAKE_REQUESTS_MAX 4096
#define FAKE_LOGPROB(id)  (-(float)((id) % 7) / 4) /* exact */

struct fake_request {
    atomic_bool cancelled;
    atomic_bool ended;
    struct engine_request asked; /* without the arrays */
    engine_event_fn *on_event;
    void *user;
    pthread_t thread;
};

static struct fake_request fake_requests[FAKE_REQUESTS_MAX];
static atomic_int fake_count;
static atomic_bool fake_full; /* the queue refuses */

/* Plays one request on a thread of its own; must end it. */
static void fake_script(struct fake_request *r);

static inline void fake_wait(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static inline void fake_prefill(struct fake_request *r, int32_t reused)
{
    r->on_event(r->user, &(struct engine_event){
                             .kind = EVENT_PREFILL, .total = r->asked.n_ids, .reused = reused});
}

static inline void fake_token(struct fake_request *r, int32_t id)
{
    struct token_logprobs logprobs = {.chosen = FAKE_LOGPROB(id), .n_top = r->asked.top_logprobs};
    for (int32_t i = 0; i < logprobs.n_top; i++)
        logprobs.top[i] = (struct token_logprob){.id = id + i, .logprob = FAKE_LOGPROB(id + i)};
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_TOKEN,
                                                .id = id,
                                                .logprobs = r->asked.logprobs ? &logprobs : NULL});
}

static inline void fake_end(struct fake_request *r, enum end_reason reason)
{
    atomic_store(&r->ended, true);
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_END, .reason = reason});
}

static inline void *fake_thread(void *user)
{
    fake_script(user);
    return NULL;
}

enum status engine_submit(struct engine *engine, const struct engine_request *request,
                          engine_event_fn *on_event, void *user, uint64_t *out, struct error *err)
{
    (void)engine;
    if (atomic_load(&fake_full))
        return error_set(err, ERR_CAPACITY, "full");
    int i = atomic_fetch_add(&fake_count, 1);
    ASSERT(i < FAKE_REQUESTS_MAX);
    struct fake_request *r = &fake_requests[i];
    r->asked = *request;
    r->asked.ids = NULL;
    r->on_event = on_event;
    r->user = user;
    *out = (uint64_t)i + 1;
    ASSERT(pthread_create(&r->thread, NULL, fake_thread, r) == 0);
    return OK;
}

#define FAKE_RETRY_S 7

int32_t engine_retry_after_s(struct engine *engine)
{
    (void)engine;
    return FAKE_RETRY_S;
}

void engine_stats_get(struct engine *engine, struct engine_stats *out)
{
    (void)engine;
    *out = (struct engine_stats){.requests = (uint64_t)atomic_load(&fake_count)};
}

void engine_cancel(struct engine *engine, uint64_t number)
{
    (void)engine;
    if (number >= 1 && number <= (uint64_t)atomic_load(&fake_count))
        atomic_store(&fake_requests[number - 1].cancelled, true);
}

void engine_profile_get(struct engine *engine, struct profile *out)
{
    (void)engine;
    *out = *profile_builtin_at(PROFILE_OFFICIAL);
}

/* Switching is not what these tests are about. */
enum status engine_profile_set(struct engine *engine, const struct profile *profile,
                               struct error *err)
{
    (void)engine, (void)profile, (void)err;
    ASSERT(0);
}

void engine_profiles_apart(struct engine *engine, bool apart)
{
    (void)engine, (void)apart;
    ASSERT(0);
}

bool engine_between_steps(struct engine *engine, engine_work_fn *work, void *user)
{
    (void)engine, (void)work, (void)user;
    ASSERT(0);
}

enum status engine_save(struct engine *engine, struct error *err)
{
    (void)engine, (void)err;
    ASSERT(0);
}

bool engine_gauges_get(struct engine *engine, struct gauges *out)
{
    (void)engine, (void)out;
    return false;
}

int32_t engine_context_max(const struct engine *engine)
{
    (void)engine;
    return FAKE_CONTEXT;
}

int32_t engine_step_tokens(const struct engine *engine)
{
    (void)engine;
    return SPAN_TOKENS_MAX;
}

const struct model_config *engine_model_config(const struct engine *engine)
{
    static const struct model_config ROW = {.name = "demo", .vocab_size = 4096};
    (void)engine;
    return &ROW;
}

/* All requests must have ended. */
static inline void fake_join(void)
{
    int n = atomic_load(&fake_count);
    for (int i = 0; i < n; i++) {
        pthread_join(fake_requests[i].thread, NULL);
        ASSERT(atomic_load(&fake_requests[i].ended));
    }
    memset(fake_requests, 0, sizeof fake_requests[0] * (size_t)n);
    atomic_store(&fake_count, 0);
}

#endif
