/*
 * What a client is told of an answer, in the words of its API.  completion.c knows what there is to
 * tell and when; a surface knows only how to write it, event by event or as a whole, so that two
 * APIs cannot differ in anything but their form.
 */
#ifndef V4BOX_ENGINE_API_SURFACE_H
#define V4BOX_ENGINE_API_SURFACE_H

#include "engine/api/api.h"
#include "engine/api/request.h"

/* Why an answer ended. */
enum finish {
    FINISH_NONE,   /* it has not, or a fault ended it */
    FINISH_STOP,   /* the model was done */
    FINISH_STRING, /* at a stop string */
    FINISH_LENGTH,
    FINISH_CALLS,
};

/* An answer as far as it is known. */
struct reply {
    const struct api *api;        /* borrows */
    uint8_t seal[SEAL_KEY_BYTES]; /* of the client's key */
    char id[REQUEST_ID_CHARS + 1];
    int64_t created_s;
    struct profile profile; /* that the answer is computed under */
    char fingerprint[FINGERPRINT_BYTES];
    struct buf receipt; /* owns: members of usage.v4box beside the counts, each behind a comma */
    bool include_usage;
    int32_t prompt_tokens, answer_tokens, reasoning_tokens, reused_tokens;
    enum finish finish;
    struct buf stop;               /* owns: the stop string of FINISH_STRING */
    struct buf reasoning, content; /* own: of the answer so far; reasoning comes first */
    bool has_logprobs;
    struct buf logprobs;     /* owns: of the content's tokens so far, entries of a JSON list */
    struct turn_call *calls; /* owns [n_calls]: the complete ones, with their ids */
    int32_t n_calls;
    /* what the events have said */
    size_t reasoning_told, content_told, logprobs_told;
    int32_t calls_told;
    int32_t blocks;           /* begun so far: surfaces that number their parts */
    const char *block;        /* kind of the one that is open, or NULL */
    int32_t events;           /* surfaces that number them too */
    int64_t silent_ms;        /* of heartbeats since an event that all clients count */
    struct json_object *echo; /* owns: of the request, or NULL */
    struct buf sealed;        /* owns: the reasoning, once it is sealed */
    struct buf out;           /* owns: to be sent */
    size_t out_taken;
};

struct surface {
    /** Parses and checks the body of `x`.  @own request_clear, also after false  @err false */
    bool (*parse)(const struct exchange *x, struct request *out, struct api_error *err);
    /* Events, appended to reply->out. */
    void (*begin)(struct reply *reply);
    void (*more)(struct reply *reply); /* what was not told yet */
    void (*end)(struct reply *reply);
    void (*fault)(struct reply *reply, const struct api_error *err);
    /* Says that the answer is still being worked on, in a way that clients' own watchdogs count. */
    void (*heartbeat)(struct reply *reply);
    /** The whole answer, appended to reply->out. */
    void (*whole)(struct reply *reply);
};

extern const struct surface OPENAI_SURFACE;    /* openai.c */
extern const struct surface ANTHROPIC_SURFACE; /* anthropic.c */
extern const struct surface RESPONSES_SURFACE; /* responses.c */

/** A heartbeat that is no event: bytes keep these clients waiting. */
void surface_comment(struct reply *reply);

/** How much of the text from `from` on fits one event, in whole characters; 0: nothing is left. */
size_t surface_fragment(const struct buf *text, size_t from);

/** Writes `"name":` and the bytes of `text` from `from` on. */
void surface_text(struct buf *out, const char *name, const struct buf *text, size_t from);

/** Writes the entries of reply->logprobs from *told on, and tells them. */
void surface_logprobs(struct reply *reply, size_t *told);

/** Writes `"v4box": and what the box says of every answer beside its API: the context receipt. */
void surface_receipt(struct reply *reply);

/** Serves one request of a route; see http_handler. */
enum MHD_Result surface_answer(struct exchange *x, const struct surface *surface);

#endif
