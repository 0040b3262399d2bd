/*
 * Where an engine request and an HTTP connection meet: the engine thread drops token ids in, an
 * HTTP thread takes them out and suspends its connection while there are none.  Room for every
 * token the request may give is taken at the start, so the engine never waits and nothing is ever
 * lost. Knows no text and no JSON.
 *
 * Two owners, the HTTP request and the engine request: each lets go once, the last one frees.
 * Lock order: stream, then whatever the HTTP library locks.  No engine call is made under the lock.
 */
#ifndef V4BOX_ENGINE_API_STREAM_H
#define V4BOX_ENGINE_API_STREAM_H

#include "engine/engine.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct stream;

/* What there is to do next, most urgent first. */
enum stream_news {
    STREAM_GONE,      /* the client hung up */
    STREAM_STOPPING,  /* the server goes down */
    STREAM_UNSTARTED, /* waited too long for a slot */
    STREAM_WALL,      /* took too long altogether */
    STREAM_TOKEN,     /* one id */
    STREAM_END,       /* the engine's last word: reason */
    STREAM_HEARTBEAT, /* nothing was said for a while */
    STREAM_NOTHING,
};

struct stream_item {
    int32_t id; /* STREAM_TOKEN .. */
    /* .. and, if they are kept, how likely it and its alternatives were: [1 + n_top], the token
     * itself first; borrowed from the stream */
    const struct token_logprob *logprobs;
    int32_t n_top;
    enum end_reason reason; /* STREAM_END */
};

/** A stream for at most tokens_max tokens, owned by the caller (the HTTP side).  With n_logprobs it
 *  keeps so many for each: of the token and its alternatives; 0: none.
 *  @unit heartbeat_ms: silence after which STREAM_HEARTBEAT comes  @own stream_release */
struct stream *stream_create(int32_t tokens_max, int32_t n_logprobs, int64_t heartbeat_ms);

/** Keeps an object, which is taken, until the last owner has let go.  Once, before stream_retain.
 *  @own take_object */
void stream_keep(struct stream *stream, void *take_object, void (*destroy)(void *object));

/** The engine takes its share: call it right before engine_submit, and stream_release if that
 * fails. */
void stream_retain(struct stream *stream);
void stream_release(struct stream *stream);

/** The engine's callback; `user` is the stream.  Lets go of the engine's share at EVENT_END. */
void stream_on_event(void *user, const struct engine_event *event);

/**
 * Takes the most urgent news.  With nothing to tell and `connection` not NULL the connection is
 * suspended, in one step with looking, and resumed by whatever comes next.
 * @thread the one that serves the connection
 */
enum stream_news stream_next(struct stream *stream, struct MHD_Connection *connection,
                             struct stream_item *out);

/** Something was sent: the silence that STREAM_HEARTBEAT ends begins anew.  Tokens alone
 *  do not say anything: a call is told when it is complete, a whole answer at its end. */
void stream_spoke(struct stream *stream);

/** The connection is finished: nothing will resume it any more. */
void stream_detach(struct stream *stream);

/* How far the engine is with it. */
struct stream_progress {
    int32_t reused;   /* prompt tokens that were taken from an earlier timeline, .. */
    int32_t computed; /* .. and that were computed so far */
    /* When its work began, its first and its latest token came; since the stream was created, 0:
     * not yet. */
    int64_t started_ms, first_token_ms, last_token_ms;
    int64_t age_ms; /* now */
};
void stream_progress_get(struct stream *stream, struct stream_progress *out);

/** Called from time to time, with clock_ms: heartbeats and the bounds on waiting. */
void stream_tick(struct stream *stream, int64_t now_ms);
void stream_hang_up(struct stream *stream);
void stream_stop(struct stream *stream);

#endif
