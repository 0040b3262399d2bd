/* Requests of the proof's own, and what their events tell. */
#include "engine/precision/served.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/precision/lab.h"
#include "kernels/check.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

/* What two prompts share: a stored block, and half of the next one. */
#define SHARED_TOKENS (RATIO_HCA + RATIO_HCA / 2)
/* A short prompt, its answer, whose last token was not fed yet, and what makes a next prompt of
 * them. */
#define SHORT_TOKENS  9
#define ANSWER_TOKENS 2
#define MORE_TOKENS   2
#define NEXT_TOKENS   (SHORT_TOKENS + ANSWER_TOKENS + MORE_TOKENS)
static_assert(SHARED_TOKENS < PROOF_PROMPT_TOKENS && NEXT_TOKENS < PROOF_PROMPT_TOKENS, "fit");

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

struct asker {
    struct engine *engine; /* borrows */
    struct engine_request request;
    uint64_t asked;     /* requests so far */
    struct watch watch; /* of the last request */
};

static bool ask_for(struct asker *a, const int32_t *ids, int32_t n, int32_t answer)
{
    a->request.ids = ids;
    a->request.n_ids = n;
    a->request.tokens_max = answer;
    a->asked++;
    return ask(a->engine, &a->request, &a->watch);
}

/* Asks what stands in `said`, and keeps the answer. */
static bool say(struct asker *a, struct proof_said *said)
{
    bool whole = ask_for(a, said->prompt, said->n_prompt, PROOF_ANSWER_TOKENS);
    memcpy(said->answer, a->watch.answer, sizeof said->answer);
    return whole;
}

/* From here on nothing of what was said before is known. */
static void begin_anew(struct asker *a)
{
    randombytes_buf(&a->request.reuse_namespace, sizeof a->request.reuse_namespace);
}

/* A short prompt, and a next one behind its answer, whose first id is moved by `apart`. */
static bool say_next(struct asker *a, const int32_t *ids, int32_t apart, struct proof_said *next)
{
    int32_t vocab = engine_model_config(a->engine)->vocab_size;
    begin_anew(a);
    if (!ask_for(a, ids, SHORT_TOKENS, ANSWER_TOKENS))
        return false;
    next->n_prompt = NEXT_TOKENS;
    memcpy(next->prompt, ids, NEXT_TOKENS * sizeof *ids);
    memcpy(next->prompt + SHORT_TOKENS, a->watch.answer, ANSWER_TOKENS * sizeof *ids);
    next->prompt[SHORT_TOKENS] = (next->prompt[SHORT_TOKENS] + apart) % vocab;
    return say(a, next);
}

bool served_run(void *user, const struct profile *profile, struct proof_served *out)
{
    struct engine_stats before, after;
    int32_t vocab = engine_model_config(user)->vocab_size;
    struct asker a = {.engine = user,
                      .request = {.sampling = {.top_p = 1}, /* greedy */
                                  .deadline_ms = clock_ms() + PROOF_SERVE_MS,
                                  .profile = profile}};
    struct proof_said *cold = &out->said[TALK_COLD], *branched = &out->said[TALK_BRANCHED];
    *out = (struct proof_served){0};
    engine_stats_get(a.engine, &before);
    cold->n_prompt = branched->n_prompt = PROOF_PROMPT_TOKENS;
    lab_ids(cold->prompt, PROOF_PROMPT_TOKENS, vocab, 2);
    lab_ids(branched->prompt, PROOF_PROMPT_TOKENS, vocab, 3);
    memcpy(branched->prompt, cold->prompt, SHARED_TOKENS * sizeof *cold->prompt);
    begin_anew(&a);
    if (!say(&a, cold))
        return false;
    out->piece = a.watch.piece;
    out->guessed = a.watch.guessed;
    if (!say(&a, branched) || !say_next(&a, cold->prompt, 1, &out->said[TALK_CHANGED]) ||
        !say_next(&a, cold->prompt, 0, &out->said[TALK_CONTINUED]))
        return false;
    out->reused = a.watch.reused;
    engine_stats_get(a.engine, &after);
    out->alone =
        before.running + before.waiting == 0 && after.requests == before.requests + a.asked;
    return true;
}
