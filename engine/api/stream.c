/* The meeting point of engine and HTTP: a bounded array of ids and a few flags under one lock. */
#include "engine/api/stream.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stdlib.h>

struct stream {
    pthread_mutex_t lock; /* protects everything below */
    int owners;
    struct MHD_Connection
        *suspended; /* borrows; NULL while the connection is not suspended by us */
    bool detached;
    int32_t *ids; /* owns [tokens_max] */
    int32_t tokens_max, n_ids, taken;
    struct token_logprob *logprobs; /* owns [tokens_max, n_logprobs]; NULL: none */
    int32_t n_logprobs;
    struct stream_progress progress;
    bool started, ended;
    enum end_reason reason;
    bool gone, stopping, unstarted, wall, heartbeat;
    int64_t heartbeat_ms, created_ms, spoke_ms;
    void *kept; /* owns through destroy_kept; may be NULL */
    void (*destroy_kept)(void *kept);
};

struct stream *stream_create(int32_t tokens_max, int32_t n_logprobs, int64_t heartbeat_ms)
{
    ASSERT(n_logprobs >= 0 && n_logprobs <= 1 + LOGPROBS_TOP_MAX);
    ASSERT(tokens_max >= 1 && tokens_max <= ANSWER_TOKENS_MAX);
    struct stream *s = calloc(1, sizeof *s);
    ASSERT(s != NULL);
    s->ids = malloc((size_t)tokens_max * sizeof *s->ids);
    ASSERT(s->ids != NULL);
    s->n_logprobs = n_logprobs;
    if (n_logprobs > 0) {
        s->logprobs = malloc((size_t)tokens_max * (size_t)n_logprobs * sizeof *s->logprobs);
        ASSERT(s->logprobs != NULL);
    }
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    s->owners = 1;
    s->tokens_max = tokens_max;
    s->heartbeat_ms = heartbeat_ms;
    s->created_ms = s->spoke_ms = clock_ms();
    return s;
}

void stream_keep(struct stream *s, void *take_object, void (*destroy)(void *object))
{
    ASSERT(s->kept == NULL && s->owners == 1);
    s->kept = take_object;
    s->destroy_kept = destroy;
}

void stream_retain(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->owners++;
    pthread_mutex_unlock(&s->lock);
}

void stream_release(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->owners == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&s->lock);
    if (s->kept != NULL)
        s->destroy_kept(s->kept);
    free(s->ids);
    free(s->logprobs);
    free(s);
}

/* Resuming under the lock: with it held the connection can neither finish nor suspend again. */
static void wake(struct stream *s)
{
    if (s->suspended != NULL)
        MHD_resume_connection(s->suspended);
    s->suspended = NULL;
}

/* At least 1: 0 says that it was not. */
static int64_t since(const struct stream *s)
{
    int64_t ms = clock_ms() - s->created_ms;
    return ms > 0 ? ms : 1;
}

static struct token_logprob *logprobs_of(struct stream *s, int32_t token_idx)
{
    return s->n_logprobs == 0 ? NULL : s->logprobs + (int64_t)token_idx * s->n_logprobs;
}

static void keep_token(struct stream *s, const struct engine_event *event)
{
    ASSERT(s->n_ids < s->tokens_max);
    s->progress.last_token_ms = since(s);
    if (s->n_ids == 0)
        s->progress.first_token_ms = s->progress.last_token_ms;
    struct token_logprob *to = logprobs_of(s, s->n_ids);
    s->ids[s->n_ids++] = event->id;
    if (to == NULL)
        return;
    ASSERT(event->logprobs != NULL && event->logprobs->n_top == s->n_logprobs - 1);
    to[0] = (struct token_logprob){.id = event->id, .logprob = event->logprobs->chosen};
    for (int32_t i = 0; i < event->logprobs->n_top; i++)
        to[1 + i] = event->logprobs->top[i];
}

void stream_on_event(void *user, const struct engine_event *event)
{
    struct stream *s = user;
    bool end = event->kind == EVENT_END;
    pthread_mutex_lock(&s->lock);
    ASSERT(!s->ended);
    if (event->kind == EVENT_PREFILL) {
        if (!s->started)
            s->progress.started_ms = since(s);
        s->started = true;
        s->progress.reused = event->reused;
        s->progress.computed = event->done - event->reused;
    } else if (end) {
        s->ended = true;
        s->reason = event->reason;
        wake(s);
    } else {
        keep_token(s, event);
        wake(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (end)
        stream_release(s);
}

static enum stream_news take(struct stream *s, struct stream_item *out)
{
    if (s->gone)
        return STREAM_GONE;
    if (s->stopping)
        return STREAM_STOPPING;
    if (s->unstarted)
        return STREAM_UNSTARTED;
    if (s->wall)
        return STREAM_WALL;
    if (s->taken < s->n_ids) {
        out->logprobs = logprobs_of(s, s->taken);
        out->n_top = s->n_logprobs - 1;
        out->id = s->ids[s->taken++];
        return STREAM_TOKEN;
    }
    if (s->ended) {
        out->reason = s->reason;
        return STREAM_END;
    }
    return s->heartbeat ? STREAM_HEARTBEAT : STREAM_NOTHING;
}

static void spoke(struct stream *s)
{
    s->heartbeat = false;
    s->spoke_ms = clock_ms();
}

enum stream_news stream_next(struct stream *s, struct MHD_Connection *connection,
                             struct stream_item *out)
{
    pthread_mutex_lock(&s->lock);
    enum stream_news news = take(s, out);
    if (news == STREAM_HEARTBEAT)
        spoke(s);
    if (news == STREAM_NOTHING && connection != NULL) {
        ASSERT(!s->detached);
        s->suspended = connection;
        MHD_suspend_connection(connection);
    }
    pthread_mutex_unlock(&s->lock);
    return news;
}

void stream_spoke(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    spoke(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_detach(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->suspended = NULL;
    s->detached = true;
    pthread_mutex_unlock(&s->lock);
}

void stream_progress_get(struct stream *s, struct stream_progress *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->progress;
    out->age_ms = clock_ms() - s->created_ms;
    pthread_mutex_unlock(&s->lock);
}

void stream_tick(struct stream *s, int64_t now_ms)
{
    pthread_mutex_lock(&s->lock);
    s->unstarted = s->unstarted || (!s->started && now_ms - s->created_ms > QUEUE_WAIT_MS_MAX);
    s->wall = s->wall || now_ms - s->created_ms > ANSWER_MS_MAX;
    s->heartbeat = s->heartbeat || now_ms - s->spoke_ms >= s->heartbeat_ms;
    if (s->unstarted || s->wall || s->heartbeat)
        wake(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_hang_up(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->gone = true;
    wake(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_stop(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    wake(s);
    pthread_mutex_unlock(&s->lock);
}
