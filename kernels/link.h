/*
 * The memory that the engine and a worker share: steps down, answers up.  The engine makes it
 * (memfd), starts the worker with it as LINK_FD, and both map it; they sleep on two of its words
 * (futex).  Fixed width types and fixed places only: the two may be of different C libraries, and a
 * captured graph may read ids and positions where they lie.
 *
 * Neither side trusts the other.  The engine reads nothing back of what it wrote; the worker copies
 * a step before it looks at it, and runs only what link_step_wrong finds nothing in.
 * Knows no network: of timelines and pieces it knows how many there are and how long they are.
 */
#ifndef V4BOX_KERNELS_LINK_H
#define V4BOX_KERNELS_LINK_H

#include "config/limits.h"
#include "kernels/gauges.h"
#include "kernels/precision.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LINK_FD      3          /* in the worker */
#define LINK_MAGIC   0x6b6c3476 /* "v4lk" */
#define LINK_VERSION 5          /* of everything below; another one is refused */

/* What the engine can ask for.  State stays in the worker: timelines and pools of pieces of
 * prefixes (engine/model/snapshot.h) are numbers here, which the engine gives. */
enum link_kind {
    LINK_STEP,       /* tokens through the layers */
    LINK_DRAFT,      /* tokens through the draft block, which follows the layers */
    LINK_LAYER,      /* given rows through one layer, in a timeline of its own */
    LINK_EXPERTS,    /* given rows through the experts of one block */
    LINK_OPEN,       /* makes a timeline */
    LINK_CLOSE,      /* ends one */
    LINK_RESET,      /* empties one: nothing of it can be read any more */
    LINK_POOL_OPEN,  /* makes a pool of pieces */
    LINK_POOL_CLOSE, /* ends one */
    LINK_SAVE,       /* a piece of a timeline into the pool */
    LINK_LOAD,       /* and back */
    LINK_GET,        /* a piece of the pool to the engine */
    LINK_PUT,        /* and back */
    LINK_WITNESS,    /* what ran since it was last asked for */
    LINK_KINDS
};

enum link_flag {
    LINK_WANT_LAST = 1, /* logits of the last token */
    LINK_WANT_ALL = 2,  /* logits of every token, without LINK_WANT_LAST */
    LINK_CROSSOVER = 4, /* goes on with what another profile has left */
    LINK_FLAGS = 7
};

/* A timeline, brought back to where the engine has it, and some tokens behind that. */
struct link_segment {
    int32_t timeline;
    int32_t length, drafted; /* tokens that the layers, the draft block keep or leave out */
    int32_t n;
    int32_t beyond;     /* LINK_DRAFT: row beyond the timeline, as draft_segment has it */
    uint8_t leg, flags; /* enum leg, enum link_flag */
    uint8_t n_picks;    /* LINK_STEP, LINK_DRAFT: tokens picked behind the last rows */
    uint8_t zero;
};

/* How a token is picked (kernels/pick.h). */
struct link_pick {
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    uint64_t seed, position;
    int32_t top_k;
    int32_t n_top;  /* alternatives told with it; -1: no logprobs */
    int32_t n_said; /* tokens that the penalties are for */
    uint8_t masked; /* 1: link_picks.allowed says which may be picked */
    uint8_t zero[3];
};

/* A token that was said, and how often in the answer. */
struct link_said {
    int32_t id, count;
};

/* The picks of a step, of all segments one behind another.  Any bits are good in a mask. */
struct link_picks {
    struct link_pick picks[LINK_PICKS];
    uint64_t allowed[LINK_PICKS][LINK_VOCAB_MAX / 64];
    struct link_said said[LINK_PICKS][LINK_VOCAB_MAX];
};

/* What was picked; as an answer believed only after a look at every member. */
struct link_choice {
    int32_t id; /* below 0: none (SAMPLE_FAULT, SAMPLE_BARRED) */
    int32_t n_top;
    float logprob;
    int32_t top_ids[LOGPROBS_TOP_MAX];
    float top_logprobs[LOGPROBS_TOP_MAX];
};

/* Numbers changed on purpose (engine/model/inspect.h); all zero: none. */
struct link_perturbation {
    double clamp_limit, routed_factor;
    int32_t index_topk;
    uint8_t routed_zero, rotate_keys_only, hc_transposed;
    uint8_t zero;
};

struct link_step {
    uint32_t number; /* 1 for the first step; wraps */
    uint32_t kind;
    struct link_perturbation perturbation;
    uint8_t values[PRECISION_ROWS_MAX]; /* of the profile, by row; zero behind the last row */
    int32_t room;                       /* LINK_OPEN: tokens of the timeline */
    int32_t block; /* LINK_LAYER: the layer; LINK_EXPERTS: that, or behind the last the draft's */
    int32_t leg;   /* LINK_EXPERTS */
    int32_t pool, n_blocks, n_tails; /* LINK_POOL_OPEN; the others name the pool alone */
    int32_t tail;                    /* the piece is 0: a block, 1: a tail */
    int32_t piece;                   /* its place in the pool */
    int32_t
        at; /* LINK_SAVE, LINK_LOAD: number of the block, or tokens in front of the tail's end */
    int32_t mixed; /* LINK_OPEN: 1: several profiles feed the timeline */
    int32_t n_segments, n_ids;
    struct link_segment segments[LINK_TIMELINES];
    int32_t ids[STEP_TOKENS_MAX]; /* of all segments, one behind another */
};

/* Rows or a piece that the engine gives along.  Any bytes are good: they are only computed with. */
struct link_given {
    float numbers[LINK_GIVEN_FLOATS];
};

/* Written by the engine before the worker starts. */
struct link_head {
    uint32_t magic, version;
    uint64_t bytes; /* of struct link */
    uint32_t rows;  /* PRECISION_ROWS, PRECISION_TABLE_VERSION */
    uint32_t table;
    int32_t engine; /* process */
    uint32_t zero;
};

/* What the worker tells of its GPUs; `turn` is odd while it is written. */
struct link_board {
    _Atomic uint32_t turn;
    uint32_t zero;
    struct gauges gauges;
};

enum link_state { LINK_LOADING, LINK_READY, LINK_FAILED };

/* The only thing that a good step can be refused for: LINK_OPEN, LINK_POOL_OPEN. */
#define LINK_NO_MEMORY "memory"

struct link_answer {
    uint32_t number;                /* of the step */
    char refused[LINK_FIELD_BYTES]; /* the field that was wrong; "": none */
    struct link_choice choices[LINK_PICKS];
    /* The rows that were wanted, one behind another, each of the configuration's vocabulary; the
     * rows of a layer; a piece; a struct witness_table. */
    _Alignas(64) float numbers[LOGITS_ROWS_MAX * LINK_VOCAB_MAX];
};

struct link {
    struct link_head head;
    /* written by the engine */
    _Atomic uint32_t posted;            /* number of the last step */
    struct link_step steps[LINK_STEPS]; /* step k lies in k mod LINK_STEPS */
    struct link_given given[LINK_STEPS];
    struct link_picks picks[LINK_STEPS];
    /* written by the worker */
    _Atomic uint32_t state;         /* enum link_state */
    _Atomic uint32_t done;          /* number of the last step answered */
    char config[LINK_FIELD_BYTES];  /* READY: name of the row of config/model.h */
    char variant[LINK_FIELD_BYTES]; /* READY: of the backend */
    uint32_t packs;                 /* READY: 1: timelines lie in the forms of kernels/entry.h */
    int32_t ranks;                  /* READY: that compute it together */
    int32_t gpus;                   /* READY: that the worker sees; 0: processors compute */
    uint32_t step_tokens;           /* READY: of its backend (kernels/backend.h) */
    char reason[ERROR_TEXT_BYTES];  /* FAILED: one line */
    struct link_board board;        /* of its GPUs, from READY on */
    struct link_answer answers[LINK_STEPS];
};

/* What a worker knows of a timeline, of a pool. */
struct link_timeline {
    int32_t room; /* 0: there is none */
    int32_t length, drafted;
};
struct link_pool {
    int32_t n_blocks, n_tails; /* 0: there is none */
};

/* What a worker has. */
struct link_limits {
    struct link_timeline timelines[LINK_TIMELINES];
    struct link_pool pools[LINK_POOLS];
    int32_t vocab, layers;
    int32_t step_tokens; /* of its backend */
    bool drafts;
};

/** New shared memory, its head filled.  *fd closes itself in children.
 *  @own link_unmap, close  @return NULL: the system refused (errno) */
struct link *link_create(int *fd);
/** Maps what a parent handed down.  @own link_unmap  @return NULL: *wrong says what about it */
struct link *link_map(int fd, const char **wrong);
void link_unmap(struct link *link);

/** @return the first field of a head that this program does not serve; NULL: none */
const char *link_head_wrong(const struct link_head *head);
/** @param step  a copy that nobody else writes
 *  @return the first field that is not as it must be; NULL: it may run */
const char *link_step_wrong(const struct link_step *step, const struct link_limits *limits);
/** The same of a pick, but for the numbers that sampling_check knows. */
const char *link_pick_wrong(const struct link_pick *pick, int32_t vocab);

/** Shows a record to the engine.  @thread one writer */
void link_show(struct link_board *board, const struct gauges *gauges);
/** Takes the record over, clean whatever stands there.
 *  @return false: it was being written every time; *out is as it was */
bool link_look(const struct link_board *board, struct gauges *out);

/** Sleeps until *word is not `seen`, ms have passed, or for no reason: ask again.
 *  @unit milliseconds */
void link_sleep(_Atomic uint32_t *word, uint32_t seen, uint32_t ms);
/** Changes the word and wakes who sleeps on it; what was written before is seen by them. */
void link_tell(_Atomic uint32_t *word, uint32_t value);

#endif
