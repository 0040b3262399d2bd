/* Three requests of the proof's own, and what their events tell. */
#include "engine/precision/served.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/precision/lab.h"
#include "kernels/check.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

/* More than the largest step takes, and not a multiple of any. */
#define PROMPT_TOKENS (STEP_TOKENS_MAX + 9)
/* A short one, and the tokens behind its answer that make a next one of it. */
#define SHORT_TOKENS 9
#define MORE_TOKENS  2

/* A request under way; all below is under the lock. */
struct watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool first, ended;
    int32_t done, piece, reused, guessed, n_answer;
    int32_t answer[PROOF_ANSWER_TOKENS];
    enum end_reason reason;
};

static void on_event(void *user, const struct engine_event *event)
{
    struct watch *w = user;
    pthread_mutex_lock(&w->lock);
    switch (event->kind) {
    case EVENT_PREFILL:
        if (!w->first && event->done - w->done > w->piece)
            w->piece = event->done - w->done;
        w->first = false;
        w->done = event->done;
        w->reused = event->reused;
        break;
    case EVENT_TOKEN:
        ASSERT(w->n_answer < PROOF_ANSWER_TOKENS);
        w->answer[w->n_answer++] = event->id;
        break;
    case EVENT_END:
        w->ended = true;
        w->reason = event->reason;
        w->guessed = event->guessed;
        pthread_cond_signal(&w->changed);
        break;
    }
    pthread_mutex_unlock(&w->lock);
}

/* @return false: not taken, or not answered to the end */
static bool ask(struct engine *engine, const struct engine_request *request, struct watch *w)
{
    uint64_t number;
    struct error err;
    *w = (struct watch){.first = true};
    ASSERT(pthread_mutex_init(&w->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&w->changed, NULL) == 0);
    bool taken = engine_submit(engine, request, on_event, w, &number, &err) == OK;
    pthread_mutex_lock(&w->lock);
    while (taken && !w->ended)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    return taken && w->reason == END_LENGTH;
}

bool served_run(void *user, const struct profile *profile, struct proof_served *out)
{
    struct engine *engine = user;
    struct engine_stats before, after;
    int32_t ids[PROMPT_TOKENS];
    struct watch w;
    struct engine_request request = {.ids = ids,
                                     .n_ids = PROMPT_TOKENS,
                                     .tokens_max = PROOF_ANSWER_TOKENS,
                                     .sampling = {.top_p = 1}, /* greedy */
                                     .deadline_ms = clock_ms() + PROOF_SERVE_MS,
                                     .profile = profile};
    randombytes_buf(&request.reuse_namespace, sizeof request.reuse_namespace);
    lab_ids(ids, PROMPT_TOKENS, engine_model_config(engine)->vocab_size, 2);
    engine_stats_get(engine, &before);
    if (!ask(engine, &request, &w))
        return false;
    *out = (struct proof_served){.piece = w.piece, .guessed = w.guessed};
    memcpy(out->answer, w.answer, sizeof out->answer);
    request.n_ids = SHORT_TOKENS;
    request.tokens_max = 1; /* what it says does not count */
    randombytes_buf(&request.reuse_namespace, sizeof request.reuse_namespace);
    if (!ask(engine, &request, &w))
        return false;
    ids[SHORT_TOKENS] = w.answer[0];
    request.n_ids = SHORT_TOKENS + 1 + MORE_TOKENS;
    if (!ask(engine, &request, &w))
        return false;
    out->reused = w.reused;
    engine_stats_get(engine, &after);
    out->alone = before.running + before.waiting == 0 && after.requests == before.requests + 3;
    return true;
}
