/*
 * A laboratory on the model that serves: steps, layers and experts with sequences of its own, under
 * any profile and with numbers changed on purpose, each call between two steps of the engine.  What
 * the laboratory's calls witness is kept apart from what the traffic did.
 * Knows no table of proofs and no ranking: those are its users, each in a thread of its own.
 */
#ifndef V4BOX_ENGINE_PRECISION_LAB_H
#define V4BOX_ENGINE_PRECISION_LAB_H

#include "engine/engine.h"
#include "engine/model/inspect.h"
#include "engine/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs `work` on the model and waits for it.  @return false: the model is going away */
typedef bool lab_host_fn(void *host, engine_work_fn *work, void *user);

struct lab {
    lab_host_fn *run;
    void *host; /* borrows */
    const struct model_config *config;
    int32_t step_tokens;          /* model_step_tokens */
    struct witness_table seen;    /* by the laboratory since lab_forget */
    struct witness_table traffic; /* by everybody else since the laboratory was opened */
    double seconds;               /* that its calls took, as model_seconds counts them */
    uint32_t life;                /* model_life that its sequences belong to */
    bool begun;                   /* a call has been made since lab_begin */
    bool gone;                    /* a call was refused, or the network was lost in it: all later
                                     ones do nothing */
};

/** On the model of a serving engine. */
void lab_open_engine(struct lab *lab, struct engine *engine);
/** On a model that nobody else uses. */
void lab_open_model(struct lab *lab, struct model *model);
/** Lets it work on the network that is there now: one that was gone may be back. */
void lab_begin(struct lab *lab);
/** Forgets what the laboratory has seen. */
void lab_forget(struct lab *lab);
/** Any work on the model, as one call of the laboratory.  @return false: the model is gone */
bool lab_work(struct lab *lab, engine_work_fn *work, void *user);

/** @own lab_sequence_destroy  @return NULL: no memory, or the model is gone */
struct sequence *lab_sequence_create(struct lab *lab, int32_t tokens_max);
/** Accepts NULL. */
void lab_sequence_destroy(struct lab *lab, struct sequence *sequence);
void lab_sequence_reset(struct lab *lab, struct sequence *sequence);

/* What a call computes under. */
struct lab_under {
    const struct profile *profile;
    const struct perturbation *perturbation; /* NULL: none */
};

/** model_step; what a sequence holds is read whoever wrote it.  @return false: the model is gone,
 * as below */
bool lab_step(struct lab *lab, const struct lab_under *under, const struct segment *segments,
              int n_segments);
/** model_draft, of one sequence, in the same way.  @param rewind to so many draft rows first; -1:
 * not
 */
bool lab_draft(struct lab *lab, const struct lab_under *under, const struct draft_segment *segment,
               int32_t rewind);

/* Rows of one layer, fed to a sequence that serves this layer alone. */
struct lab_layer {
    struct sequence *sequence;
    int32_t rewind; /* to so many tokens first; -1: not */
    int32_t layer;
    enum leg leg;
    const int32_t *ids; /* [n] */
    int32_t n, step;    /* rows, and how many of them at once; n is a multiple of step */
    const float *in;    /* [n, HC_MULT, hidden] */
    float *out;         /* [n, HC_MULT, hidden] */
    const float *until; /* as out: ends behind the first step that gives other bits; NULL: not */
};
bool lab_layer(struct lab *lab, const struct lab_under *under, const struct lab_layer *rows);

/* Rows of the experts of one block. */
struct lab_experts {
    int32_t block;
    enum leg leg;
    const int32_t *ids; /* [n] */
    int32_t n;
    const float *in; /* [n, hidden] */
    float *out;      /* [n, hidden] */
};
bool lab_experts(struct lab *lab, const struct lab_under *under, const struct lab_experts *rows);

/** Fills `out` with numbers of mean 0 and deviation 1 that `seed` names. */
void lab_noise(float *out, size_t n, uint64_t seed);
/** Fills `out` with token ids below `vocab_size` that `seed` names. */
void lab_ids(int32_t *out, size_t n, int32_t vocab_size, uint64_t seed);

#endif
