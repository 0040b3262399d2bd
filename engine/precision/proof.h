/*
 * Is what a profile says also what runs?  A proof makes the model work under the profile, in every
 * layer kind and on every leg, and believes three things only: what the operations witnessed, that
 * another value of a row gives other bits, and that a number changed on purpose has the effect it
 * must have.  Configuration is never evidence.
 * Knows no engine, no store and no socket.
 */
#ifndef V4BOX_ENGINE_PRECISION_PROOF_H
#define V4BOX_ENGINE_PRECISION_PROOF_H

#include "config/limits.h"
#include "engine/base/buf.h"
#include "engine/precision/lab.h"
#include "engine/precision/profile.h"

#include <stdbool.h>
#include <stdint.h>

/* Layer kinds, and the engine around the network. */
#define KIND_BOX    LAYER_KINDS
#define PROOF_KINDS (LAYER_KINDS + 1)

/* From good to bad: what a cell has been called last only gets worse. */
enum proof_state {
    PROOF_NONE,     /* the row does not act here */
    PROOF_LIVE,     /* witnessed, and it makes the difference it must make */
    PROOF_UNPROVEN, /* did not run here */
    PROOF_INERT,    /* another value, or a number changed on purpose, makes no difference */
    PROOF_WRONG,    /* something else ran */
    PROOF_STATES
};

struct proof_cell {
    enum proof_state state;
    bool missing;  /* it should have run here, and nothing was witnessed */
    uint64_t rows; /* witnessed under the profile's value */
    char why[PROOF_WHY_BYTES];
};

struct proof {
    struct profile profile;
    int64_t time_s; /* since the epoch, at the end */
    double seconds; /* of processor time that the model worked for it */
    bool complete;  /* false: the model went away, nothing below counts */
    bool good;      /* nothing is inert, wrong or missing */
    int counts[PROOF_STATES];
    /* A row of the state leg has cells on prefill and decode, where its numbers are written. */
    struct proof_cell cells[PRECISION_ROWS][PROOF_KINDS][LEGS];
};

/** Renders what the prompt rows can change: token ids of fixed conversations under `profile`.
 *  @own out: the caller's */
typedef void proof_render_fn(void *user, const struct profile *profile, struct ids *out);

/* What is asked, by what the engine holds of it. */
enum proof_talk {
    TALK_COLD,
    TALK_BRANCHED,  /* the cold one up to the middle of a stored block, then another */
    TALK_CONTINUED, /* an earlier one with its answer and more */
    TALK_CHANGED,   /* the same, and the last token that was fed is another */
    PROOF_TALKS
};
struct proof_said {
    int32_t prompt[PROOF_PROMPT_TOKENS], n_prompt; /* zero behind its end */
    int32_t answer[PROOF_ANSWER_TOKENS];           /* greedy */
};

/* What the engine did with requests of the proof's own, by the events that it told of them. */
struct proof_served {
    int32_t piece;   /* most tokens of the cold prompt that one step took */
    int32_t reused;  /* tokens of the continued prompt that were there */
    int32_t guessed; /* most tokens guessed ahead at once */
    struct proof_said said[PROOF_TALKS];
    bool alone; /* nobody else was served meanwhile */
};
/** Lets a request run under `profile` from its prompt to its end.  @return false: it could not */
typedef bool proof_serve_fn(void *user, const struct profile *profile, struct proof_served *out);

struct proof_options {
    const struct profile *profile;
    proof_render_fn *render; /* NULL: rows of the prompt stay unproven */
    void *render_user;
    proof_serve_fn *serve; /* NULL: rows of the engine around the network stay unproven */
    void *serve_user;
};

/** Proves one profile; takes some seconds on the embedded model. */
void proof_run(struct lab *lab, const struct proof_options *options, struct proof *out);

const char *proof_state_name(enum proof_state state);
const char *proof_kind_name(int kind);
/** One line: how many cells are what, and the first that is not good. */
void proof_summary(const struct proof *proof, struct buf *out);
/** A line for each row, with what is live where, and one for each cell that is not. */
void proof_text(const struct proof *proof, struct buf *out);
/** One JSON object. */
void proof_json(const struct proof *proof, struct buf *out);

#endif
