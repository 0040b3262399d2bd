/*
 * A client of the serving core for its tests: submits, collects what is delivered, and notes the
 * first breach of the order of events that engine.h promises.  Knows no network.
 */
#ifndef V4BOX_TESTS_ENGINE_CLIENT_H
#define V4BOX_TESTS_ENGINE_CLIENT_H

#include "engine/engine.h"
#include "kernels/check.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WAIT_S      60 /* a wait longer than this is a hang: the test ends */
#define ANSWER_MAX  600
#define NAMESPACE_A 7
#define NAMESPACE_B 8

static inline void wait_or_die(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    ASSERT(pthread_cond_timedwait(cond, lock, &until) == 0);
}

struct client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct engine *engine;
    uint64_t number;
    int32_t answer[ANSWER_MAX], n_answer;
    struct token_logprobs logprobs[ANSWER_MAX];
    int32_t n_logprobs;
    int32_t n_prefill, done, total, reused, ends;
    int32_t cancel_at; /* cancels from the callback after so many tokens; 0: never */
    int32_t order;     /* how many requests had started before this one */
    enum end_reason reason;
    const char *wrong; /* first breach of the event order */
};

static int32_t client_started; /* engine thread only, until it is joined */

static inline void note(struct client *c, bool good, const char *what)
{
    if (!good && c->wrong == NULL)
        c->wrong = what;
}

static inline void on_event(void *user, const struct engine_event *event)
{
    struct client *c = user;
    pthread_mutex_lock(&c->lock);
    note(c, c->ends == 0, "an event after the end");
    switch (event->kind) {
    case EVENT_PREFILL:
        if (c->n_prefill == 0) {
            c->order = client_started++;
            c->reused = event->reused;
            c->total = event->total;
            note(c, event->done == event->reused, "the first progress is not what was reused");
        } else {
            note(c, event->done > c->done, "progress without progress");
        }
        note(c, c->n_answer == 0, "prefill after a token");
        note(c, event->reused == c->reused && event->total == c->total, "changed its mind");
        note(c, event->done <= event->total && event->reused < event->total, "progress too far");
        c->done = event->done;
        c->n_prefill++;
        break;
    case EVENT_TOKEN:
        note(c, c->n_prefill > 0 && c->done == c->total, "a token before the prompt was done");
        note(c, c->n_answer < ANSWER_MAX, "too many tokens");
        if (c->n_answer == ANSWER_MAX)
            break;
        if (event->logprobs != NULL)
            c->logprobs[c->n_logprobs++] = *event->logprobs;
        c->answer[c->n_answer++] = event->id;
        break;
    case EVENT_END:
        c->reason = event->reason;
        c->ends++;
        break;
    }
    bool cancel = c->cancel_at > 0 && c->n_answer == c->cancel_at;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (cancel)
        engine_cancel(c->engine, c->number);
}

static inline struct client *client_create(struct engine *engine)
{
    struct client *c = calloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->engine = engine;
    return c;
}

static inline void client_destroy(struct client *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

static inline void client_wait(struct client *c, int32_t n_answer)
{
    pthread_mutex_lock(&c->lock);
    while (c->ends == 0 && c->n_answer < n_answer)
        wait_or_die(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static inline void client_wait_end(struct client *c)
{
    client_wait(c, INT32_MAX);
    if (c->wrong != NULL)
        fail_msg("%s", c->wrong);
    assert_int_equal(c->ends, 1);
}

static inline struct engine_request request(const int32_t *ids, int32_t n_ids, int32_t tokens_max)
{
    return (struct engine_request){
        .ids = ids,
        .n_ids = n_ids,
        .tokens_max = tokens_max,
        .sampling = {.temperature = 1, .top_p = 0.95, .seed = 11},
    };
}

static inline struct client *submit(struct engine *engine, const struct engine_request *r)
{
    struct client *c = client_create(engine);
    struct error err;
    assert_int_equal(engine_submit(engine, r, on_event, c, &c->number, &err), OK);
    return c;
}

#endif
