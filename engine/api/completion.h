/*
 * One answer in the making: takes tokens from a stream and makes of them what a client reads in the
 * form of a surface (surface.h), event by event or as a whole.  Both forms come out of the same
 * steps, so that their texts, finish reasons and usage cannot differ.
 *
 * Every answer ends in exactly one of: a finish reason (stop, length) and [DONE]; an error event
 * and a broken connection; an error status, when nothing has been sent yet.  Harnesses repeat a
 * request for ever when a stream ends in any other way (api.md 0, finding 1).
 */
#ifndef V4BOX_ENGINE_API_COMPLETION_H
#define V4BOX_ENGINE_API_COMPLETION_H

#include "engine/api/api.h"
#include "engine/api/request.h"
#include "engine/api/surface.h"

#include <microhttpd.h>

struct completion;

/* How far a whole answer is. */
enum completion_state {
    COMPLETION_WAITS,  /* the connection is suspended */
    COMPLETION_SLOW,   /* a sign of life is due: answer 200 and let completion_read go on */
    COMPLETION_DONE,   /* completion_take has it */
    COMPLETION_FAILED, /* *err says why; API_OK: the client is gone */
};

/**
 * Submits a rendered prompt.  `request` is needed only during the call.  `take_receipt`: see struct
 * reply; taken when it goes well.
 * @own  completion_free
 * @err  false, with *err: API_OVERFLOW, API_QUEUE, API_ENGINE
 */
bool completion_start(const struct api *api, const struct exchange *x,
                      const struct surface *surface, const struct request *request,
                      const struct ids *prompt, struct buf *take_receipt, struct completion **out,
                      struct api_error *err);

/** Cancels what still runs.  Takes void so that it serves as exchange.state_free. */
void completion_free(void *completion);

/** The stream to watch.  Borrowed from the completion. */
struct stream *completion_stream(struct completion *completion);

/** Goes on with a whole answer. */
enum completion_state completion_collect(struct completion *completion, struct api_error *err);
/** The finished whole answer.  @own the caller */
struct buf completion_take(struct completion *completion);

/** An MHD_ContentReaderCallback over a completion, for event streams and slow whole answers. */
ssize_t completion_read(void *completion, uint64_t position, char *out, size_t n_max);

#endif
