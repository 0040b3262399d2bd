/*
 * The memory that the engine and a worker share: steps down, answers up.  The engine makes it
 * (memfd), starts the worker with it as LINK_FD, and both map it; they sleep on two of its words
 * (futex).  Fixed width types and fixed places only: the two may be of different C libraries, and a
 * captured graph may read ids and positions where they lie.
 *
 * Neither side trusts the other.  The engine reads nothing back of what it wrote; the worker copies
 * a step before it looks at it, and runs only what link_step_wrong finds nothing in.
 * Knows no network: timelines are numbers here.
 */
#ifndef V4BOX_KERNELS_LINK_H
#define V4BOX_KERNELS_LINK_H

#include "config/limits.h"
#include "kernels/precision.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LINK_FD      3          /* in the worker */
#define LINK_MAGIC   0x6b6c3476 /* "v4lk" */
#define LINK_VERSION 1          /* of everything below; another one is refused */

enum link_kind {
    LINK_STEP,  /* tokens through the layers */
    LINK_DRAFT, /* tokens through the draft block, which follows the layers */
    LINK_KINDS
};

enum link_flag {
    LINK_WANT_ALL = 1,  /* logits of every token; without it of the last one */
    LINK_CROSSOVER = 2, /* goes on with what another profile has left */
    LINK_FLAGS = 3
};

/* Some tokens of one timeline. */
struct link_segment {
    int32_t slot;     /* the timeline */
    int32_t position; /* of the first token: where the timeline ends; 0 begins it anew */
    int32_t n;
    uint8_t leg, flags; /* enum leg, enum link_flag */
    uint8_t zero[2];
};

struct link_step {
    uint32_t number; /* 1 for the first step; wraps */
    uint32_t kind;
    int32_t n_segments, n_ids;
    uint8_t values[PRECISION_ROWS_MAX]; /* of the profile, by row; zero behind the last row */
    struct link_segment segments[LINK_SEGMENTS_MAX];
    int32_t ids[STEP_TOKENS_MAX]; /* of all segments, one behind another */
};

/* Written by the engine before the worker starts. */
struct link_head {
    uint32_t magic, version;
    uint64_t bytes; /* of struct link */
    uint32_t rows;  /* PRECISION_ROWS, PRECISION_TABLE_VERSION */
    uint32_t table;
    int32_t slots, tokens_max; /* timelines, and the room of each */
    int32_t engine;            /* process */
    uint32_t zero;
};

enum link_state { LINK_LOADING, LINK_READY, LINK_FAILED };

struct link_answer {
    uint32_t number;                /* of the step */
    char refused[LINK_FIELD_BYTES]; /* the field that was wrong; "": none */
    /* Row r belongs to ids[r] and is of the configuration's vocabulary; only what was wanted is
     * written. */
    float logits[STEP_TOKENS_MAX * LINK_VOCAB_MAX];
};

struct link {
    struct link_head head;
    /* written by the engine */
    _Atomic uint32_t posted;            /* number of the last step */
    struct link_step steps[LINK_STEPS]; /* step k lies in k mod LINK_STEPS */
    /* written by the worker */
    _Atomic uint32_t state;        /* enum link_state */
    _Atomic uint32_t done;         /* number of the last step answered */
    char config[LINK_FIELD_BYTES]; /* READY: name of the row of config/model.h */
    char reason[ERROR_TEXT_BYTES]; /* FAILED: one line */
    struct link_answer answers[LINK_STEPS];
};

/* What a worker knows of a timeline. */
struct link_timeline {
    int32_t length, draft_length;
};

/* What a worker has. */
struct link_limits {
    const struct link_timeline *timelines; /* [slots] */
    int32_t slots, tokens_max, vocab;
    bool drafts;
};

/** New shared memory, its head filled.  *fd closes itself in children.
 *  @own link_unmap, close  @return NULL: the system refused (errno) */
struct link *link_create(int32_t slots, int32_t tokens_max, int *fd);
/** Maps what a parent handed down.  @own link_unmap  @return NULL: *wrong says what about it */
struct link *link_map(int fd, const char **wrong);
void link_unmap(struct link *link);

/** @return the first field of a head that this program does not serve; NULL: none */
const char *link_head_wrong(const struct link_head *head);
/** @param step  a copy that nobody else writes
 *  @return the first field that is not as it must be; NULL: it may run */
const char *link_step_wrong(const struct link_step *step, const struct link_limits *limits);

/** Sleeps until *word is not `seen`, ms have passed, or for no reason: ask again.
 *  @unit milliseconds */
void link_sleep(_Atomic uint32_t *word, uint32_t seen, uint32_t ms);
/** Changes the word and wakes who sleeps on it; what was written before is seen by them. */
void link_tell(_Atomic uint32_t *word, uint32_t value);

#endif
