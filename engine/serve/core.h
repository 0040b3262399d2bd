/*
 * Inside the serving core: the request, the timeline and the engine that engine.c (queue, thread,
 * what others call), timeline.c (what a timeline holds and continues) and step.c (one step of all
 * of them) share.  Nobody else includes this.
 *
 * Ownership: a request record belongs to the queue or to one timeline until request_finish frees
 * it; the timelines belong to the engine thread alone.  `lock` protects what other threads see.
 * No callback runs under it.
 */
#ifndef V4BOX_ENGINE_SERVE_CORE_H
#define V4BOX_ENGINE_SERVE_CORE_H

#include "config/limits.h"
#include "engine/engine.h"
#include "engine/model/prefix_file.h"
#include "engine/serve/groups.h"
#include "engine/serve/schedule.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_RUNNING };

struct request {
    enum request_state state; /* lock */
    bool cancel;              /* lock */
    uint64_t number;          /* lock */
    int32_t *ids;             /* owns; [context_max], the prompt */
    int32_t n_ids, tokens_max, n_stop_ids;
    int32_t stop_ids[STOP_IDS_MAX];
    struct sampling sampling;
    struct engine_mask mask;
    bool logprobs;
    int32_t top_logprobs;
    struct schedule_waiting waiting; /* lock */
    int64_t started_ms, deadline_ms;
    uint64_t state_bytes; /* of a timeline that holds the prompt and all of the answer */
    struct profile profile;
    uint64_t reuse_namespace;
    engine_event_fn *on_event;
    void *user;       /* borrows */
    int32_t n_reused; /* prompt tokens that its timeline held already */
    int32_t n_answer; /* tokens delivered */
    double right;     /* share of the guesses of late that were right; 1 at the start */
    int32_t quiet;    /* tokens since the last guess */
    int32_t guessed;  /* most tokens guessed ahead at once */
};

/* A token timeline: what the model has been fed, kept after the answer for a later continuation. */
struct timeline {
    struct sequence *sequence; /* owns */
    int32_t *ids;              /* owns; [context_max], the tokens fed */
    int32_t n_ids;             /* equals sequence_length */
    uint64_t reuse_namespace;  /* who may continue it; 0: nobody, and then it is empty */
    uint64_t profile_hash;     /* of what made it */
    int32_t starved;           /* steps under other profiles that it waited for its own */
    uint64_t used;             /* turn of its last request: the smallest is given away first */
    uint64_t planned;        /* bytes: of all that its request may come to, else of what it holds */
    uint64_t page_bytes;     /* of a page that it may share, under its profile */
    struct request *request; /* borrows; NULL: idle */
    /* Fed next: the sampled token, then guesses of what follows it.  None: n_next is 0. */
    int32_t next[PICKS_MAX], n_next;
    /* Of the rows of its next step, and what they refer to. */
    struct pick picks[PICKS_MAX];
    uint64_t *allowed;       /* owns; [PICKS_MAX, (vocab_size + 63) / 64] */
    struct token_said *said; /* owns; [PICKS_MAX, vocab_size] */
};

struct engine {
    struct groups
        *groups;         /* owns; it is the face of these, and has nothing else; NULL: it serves */
    struct model *model; /* owns */
    struct engine_options options;
    struct prefix *prefix;            /* owns; NULL: no prefix cache */
    int32_t *counts;                  /* owns; [vocab_size] zero between calls of sampler_said */
    int32_t *pages;                   /* owns; [context_max / SNAPSHOT_TOKENS] of one prefix */
    struct timeline *timelines;       /* owns; [sessions_max] */
    struct request *requests;         /* owns; [n_requests] */
    int32_t n_requests;               /* sessions_max + queue_max */
    uint64_t state_bytes_max;         /* that timelines may take together */
    uint64_t turn;                    /* requests started so far */
    int64_t lost_ms;                  /* when the network was lost; 0: it computes */
    int64_t gauges_ms;                /* when it was last asked how its GPUs fare */
    int starts_failed;                /* of it, those that were told to who waited */
    struct schedule_waiting *waiting; /* owns; [n_requests], of the queue at one moment */
    pthread_t thread;

    bool halted; /* the thread was joined */

    pthread_mutex_t lock;              /* protects all below and the marked members of requests */
    struct groups *beside;             /* borrows; of which this is one; NULL: it is alone */
    pthread_cond_t work;               /* something was submitted, or stopping */
    struct request **queue;            /* owns; [n_requests], oldest first */
    double mean_ms;                    /* how long requests ran lately; 0: none did */
    uint64_t next_number, number_step; /* groups have different numbers */
    struct profile profile;            /* of requests that name none */
    bool apart;                        /* no request starts while one of another profile runs */
    bool stopping;
    bool watched;            /* the network may be lost while nobody asks for anything */
    engine_work_fn *work_fn; /* to be run between two steps; NULL: none */
    void *work_user;         /* borrows */
    uint64_t works_given, works_done;
    pthread_cond_t worked; /* one was run, or the engine is down */
    bool down;             /* the thread has ended */
    struct engine_stats stats;
    struct gauges gauges; /* all zero: nothing was told */
};

/* ---- engine.c ------------------------------------------------------------------------------- */

/** Frees the record, then delivers the last event: who is told may submit again at once. */
void request_finish(struct engine *engine, struct request *request, enum end_reason reason);
/** Removes a place of the queue.  Under the lock. */
void queue_close_gap(struct engine *engine, int32_t at);
/** A record that nobody has.  Under the lock.  @return NULL: all are taken */
struct request *request_free(struct engine *engine);
/** Zeroed memory, or an abort: only while the engine is created.  @own free() */
void *take_memory(int64_t count, size_t element);

/* ---- timeline.c ----------------------------------------------------------------------------- */

/** @own timeline_clear, which also takes what this left half done  @err ERR_CAPACITY */
enum status MUST_CHECK timeline_init(struct timeline *timeline, const struct model *model,
                                     int32_t context_max, struct error *err);
void timeline_clear(struct timeline *timeline);
/** The idle timeline that fits best: the longest continuation, unless the prefix cache holds more;
 * else an empty one, else the one that was used longest ago.  @return NULL: all are running */
struct timeline *timeline_choose(struct engine *engine, const struct request *request);
/** Bytes of a timeline that so many tokens fill under this profile, by whole pages. */
uint64_t timeline_bytes(const struct engine *engine, const struct profile *profile, int32_t tokens);
/** Makes room in memory for the request in this timeline, by emptying idle ones.  What it would
 * share with another timeline is there already.
 *  @return false: what runs leaves none; nothing was changed */
bool timeline_make_room(struct engine *engine, struct timeline *timeline,
                        const struct request *request);
/** Brings the timeline to the longest prefix of the prompt that it or the cache holds, and makes it
 * the request's. */
void timeline_begin(struct engine *engine, struct timeline *timeline, struct request *request);
/** Takes note of `n` tokens that the timeline has for good, and keeps the prefixes that it has
 * grown over. */
void timeline_keep(struct engine *engine, struct timeline *timeline, const int32_t *ids, int32_t n);
/** Lets other threads see what the prefix cache holds. */
void note_prefixes(struct engine *engine);
/** Lets other threads see how many pages are held. */
void note_pages(struct engine *engine);
/** Ends a timeline's request.  What was fed stays for a continuation, unless it can not be trusted
 * or nobody may have it. */
void timeline_finish(struct engine *engine, struct timeline *timeline, enum end_reason reason);
/** Ends all requests of a network that is lost, and forgets what timelines and prefixes held. */
void timelines_lose(struct engine *engine);

/* ---- share.c -------------------------------------------------------------------------------- */

/** Whose answer is that of all groups; alone it is its own. */
const struct engine *group_first(const struct engine *engine);
/** Passes on what waits here for a place that another group has.  @thread the engine's */
void group_share(struct engine *engine);
/** engine_cancel, whichever group has it. */
void group_cancel(struct groups *groups, uint64_t number);

/* ---- step.c --------------------------------------------------------------------------------- */

/** Tells how much of the prompt is done. */
void tell_prefill(const struct timeline *timeline);
/** Feeds every running timeline its share of one step, samples, and delivers. */
void step_run(struct engine *engine);

#endif
