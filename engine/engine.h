/*
 * The serving core seen from outside: submit a rendered prompt, get events, cancel.
 * Works on token ids only: text, HTTP and keys are the caller's.
 * One engine thread owns the model and every sequence; all calls below may come from any thread.
 */
#ifndef V4BOX_ENGINE_ENGINE_H
#define V4BOX_ENGINE_ENGINE_H

#include "config/limits.h"
#include "engine/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/**
 * Says which tokens may be sampled next.  Called on the engine thread before each token of an
 * answer, and behind guesses of what it goes on with, which may turn out wrong; never after
 * EVENT_END was delivered; must not block and must not call the engine.
 * @shape  answer_ids [n]: the answer so far; bits [(vocab_size + 63) / 64]: id i is bit i % 64 of
 *         word i / 64, set when allowed; all clear before the call
 * @return false: all are allowed, whatever is in `bits`.  With no bit set the answer is a fault.
 */
typedef bool engine_mask_fn(void *user, const int32_t *answer_ids, int32_t n, uint64_t *bits);

struct engine_mask {
    engine_mask_fn *fn; /* NULL: none */
    void *user;         /* borrows, until EVENT_END was delivered */
};

struct engine_request {
    const int32_t *ids; /* [n_ids], copied */
    int32_t n_ids;
    int32_t tokens_max;      /* answer tokens, at least 1 */
    const int32_t *stop_ids; /* [n_stop_ids], copied: end the answer, not delivered */
    int32_t n_stop_ids;
    struct sampling sampling;
    struct engine_mask mask;
    bool logprobs;        /* EVENT_TOKEN carries them */
    int32_t top_logprobs; /* alternatives beside the chosen token, 0 to LOGPROBS_TOP_MAX */
    int32_t priority;     /* -PRIORITY_MAX to PRIORITY_MAX: who waits with more goes first */
    int64_t deadline_ms;  /* by clock_ms: then it ends within one step; 0: none */
    const struct profile *profile; /* computes it from start to end, copied; NULL: the engine's */
    uint64_t reuse_namespace; /* later requests may continue what this one leaves behind: its whole
                                 timeline, or a prefix of it at a multiple of 128 tokens; inside one
                                 namespace (one API key) only; 0: never reuse */
};

enum engine_event_kind {
    EVENT_PREFILL, /* progress: done, total, reused; the first one comes before any work */
    EVENT_TOKEN,   /* id, logprobs */
    EVENT_END,     /* reason; always the last event of a request, exactly once */
};

enum end_reason {
    END_STOP,
    END_LENGTH,
    END_CANCELLED,
    END_FAULT,
    END_DEADLINE,
    END_LOST /* the network was lost under it (model_lost); asking again will help */
};

struct engine_event {
    enum engine_event_kind kind;
    int32_t id;                  /* EVENT_TOKEN */
    int32_t done, total, reused; /* EVENT_PREFILL: prompt tokens; reused ones were not computed */
    int32_t guessed;             /* EVENT_END: most tokens that were guessed ahead at once */
    enum end_reason reason;
    const struct token_logprobs *logprobs; /* EVENT_TOKEN: during the call; NULL: not asked for */
};

/* Called on the engine thread; must not block and must not call the engine back, except cancel. */
typedef void engine_event_fn(void *user, const struct engine_event *event);

struct engine_options {
    int32_t sessions_max; /* timelines in flight */
    int32_t context_max;  /* tokens a timeline can hold */
    int32_t queue_max;    /* requests waiting beyond that */
    /* What timelines may take, in the bytes that the profiles of their requests leave.  A request
     * starts when its prompt and the longest answer to it fit beside those that run, where what it
     * shares with one of them is there already; for that, idle timelines are given up, the oldest
     * first.  0: sessions_max full contexts under
     * `profile`, and at least one under whichever profile takes the most. */
    uint64_t state_bytes;
    uint64_t prefix_bytes; /* memory of the prefix cache; 0: only whole timelines are continued */
    const struct profile *profile; /* copied; NULL: PROFILE_DEFAULT */
    /* Where the prefix cache is read from at creation and written to by engine_save; NULL: it ends
     * with the engine.  A file that can not be used is removed, and the log says why. */
    const char *prefix_path;                   /* borrows, as long as the engine lives */
    uint8_t prefix_key[PREFIX_FILE_KEY_BYTES]; /* what the file is sealed with */
};

/** A model that is lost (model_lost) ends what runs and is started again while the queue goes on.
 *
 * Takes the model (owned from here on: closed also when this fails), all memory of the timelines
 * and the queue, and starts the engine thread.
 *  @own engine_destroy  @err ERR_INPUT: an option is out of range; ERR_CAPACITY */
enum status MUST_CHECK engine_create(struct model *take_model, const struct engine_options *options,
                                     struct engine **out, struct error *err);
/** Cancels what runs, delivers the last events, joins the thread.  Accepts NULL. */
void engine_destroy(struct engine *engine);

/** Makes one engine of several with the same model and options (owned from here on): requests are
 * given to one of these groups each, and go on to another one that has a place when they wait; what
 * is said of profiles holds for all, and their numbers come together.  Work between steps runs in
 * the first, or in the group that is asked for it.  Before the first request.
 *  @param take  [n], 1 to GROUPS_MAX  @own engine_destroy */
struct engine *engine_join(struct engine *const *take, int32_t n);
/** How many groups an engine has, and one of them; alone it is its own. */
int32_t engine_groups(const struct engine *engine);
struct engine *engine_group(struct engine *engine, int32_t i);

/** @err ERR_CAPACITY: the queue is full, or the engine goes down; ERR_INPUT: prompt and answer do
 * not fit the context or state_bytes, an id is outside the vocabulary, more than STOP_IDS_MAX stop
 * ids, or sampling, top_logprobs or priority is out of range.
 *  @return the request's number in *out (never reused) */
enum status MUST_CHECK engine_submit(struct engine *engine, const struct engine_request *request,
                                     engine_event_fn *on_event, void *user, uint64_t *out,
                                     struct error *err);
/** Writes what the prefix cache holds to its file, between two steps.
 *  @err ERR_INPUT: it has none; ERR_IO; ERR_CAPACITY
 */
enum status MUST_CHECK engine_save(struct engine *engine, struct error *err);

/** For who was told that the queue is full: when a place in it should be free, by how long requests
 * ran lately.  @unit seconds, 1 to RETRY_AFTER_S_MAX */
int32_t engine_retry_after_s(struct engine *engine);
/** Requests that name no profile get this one from now on (copied); those that were submitted end
 * under their own.  Profiles with equal values continue each other's conversations, others never.
 *  @err ERR_INPUT naming the row: it must not serve, or this model has not what it takes */
enum status MUST_CHECK engine_profile_set(struct engine *engine, const struct profile *profile,
                                          struct error *err);
void engine_profile_get(struct engine *engine, struct profile *out);
/** Whether a request waits while any runs under other values; otherwise they share the machine. */
void engine_profiles_apart(struct engine *engine, bool apart);
/** The request ends with END_CANCELLED within one step; unknown numbers are ignored. */
void engine_cancel(struct engine *engine, uint64_t number);

/* Work on the model, with sequences and logits of its own.  Must not call the engine. */
typedef void engine_work_fn(void *user, struct model *model);

/**
 * Runs a piece of work on the engine thread between two steps, and returns when it is done.
 * Requests wait meanwhile, so it should not take longer than a step; whoever has more to do calls
 * again, and every running request gets a step in between.  Callers of several threads take turns;
 * none may be left when engine_destroy ends.
 * @return false: the engine goes down and nothing was run
 */
bool engine_between_steps(struct engine *engine, engine_work_fn *work, void *user);

struct engine_stats {
    uint64_t requests, prompt_tokens, reused_tokens, answer_tokens, steps;
    int32_t running, waiting;
    int32_t prefix_blocks, prefix_tails; /* held by the prefix cache (engine/model/prefix.h) */
    int32_t prefix_blocks_max, prefix_tails_max; /* that it has room for */
    uint64_t prefix_evicted;
    uint64_t prefix_bytes, prefix_bytes_max; /* of both, as their profiles make them */
    /* Of timelines: planned for now, what several share once; and the most. */
    uint64_t state_bytes, state_bytes_max;
    /* Pages of SNAPSHOT_TOKENS tokens with one holder, timeline or prefix, with several, and those
     * with none; all 0: the network's worker keeps them, or there are none. */
    int32_t state_pages_own, state_pages_shared, state_pages_free;
    uint64_t session_bytes; /* of a timeline whose context is full, under the engine's profile */
    bool prefix_file;       /* one was named: engine_save has where to write to */
    int32_t prefix_saved_blocks;   /* the last engine_save wrote */
    int64_t prefix_saved_s;        /* when that was, since the epoch; 0: never */
    uint64_t drafts, drafts_right; /* tokens guessed ahead, and those that were right */
    int32_t worker;                /* its process; 0: there is none */
    bool lost;                     /* the network is lost; those who wait stay */
    uint64_t losses, recovered_ms; /* how often it was, and how long the last time took */
};
void engine_stats_get(struct engine *engine, struct engine_stats *out);
/** What the worker tells of its GPUs, a second old at most.
 *  @return false: there is none, or it has told nothing; *out is as it was */
bool engine_gauges_get(struct engine *engine, struct gauges *out);
const struct model_config *engine_model_config(const struct engine *engine);
/** Tokens that its model takes in one step. */
int32_t engine_step_tokens(const struct engine *engine);
int32_t engine_context_max(const struct engine *engine);

#endif
