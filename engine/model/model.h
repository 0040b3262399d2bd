/*
 * The network as the serving layer sees it: open a checkpoint, keep token timelines (sequences),
 * feed them tokens in any chunking, read logits or sample from them.  Shapes and tensors stay
 * behind this header.
 *
 * Promise: for one profile, one ISA and the same tokens on the same legs the results are
 * bit-identical for every way of cutting the tokens into calls, and for whatever else shares a
 * step.
 */
#ifndef V4BOX_ENGINE_MODEL_MODEL_H
#define V4BOX_ENGINE_MODEL_MODEL_H

#include "config/model.h"
#include "engine/base/status.h"
#include "engine/model/sampler.h"
#include "engine/precision/profile.h"
#include "kernels/gauges.h"

#include <stdint.h>

struct model;    /* weights, backend, scratch; one caller at a time */
struct sequence; /* one token timeline with its window, compressor and index state (model.md 2.9) */

enum isa { ISA_AUTO, ISA_BASELINE, ISA_AVX2, ISA_AVX512 };

struct model_options {
    enum isa isa; /* forced, or ISA_AUTO: the best this processor has */
    int threads;  /* 0: one for each online processor */
    int ranks;    /* that compute it together (kernels/ranks.h), with the same bits; 0: as many as
                   * its backend wants */
    int gpu;      /* of rank 0; the others have those behind it.  Only for who computes on GPUs */
    int group;    /* of several such models: its GPUs lie behind those of the groups before it */
    bool apart;   /* every rank has a GPU of its own, or it is refused.  For a worker */
    /* "synth:SEED": weights are made of a seed (engine/model/made.h), and of the checkpoint only
     * config.json is read; NULL: they are those of the checkpoint. */
    const char *weights;
    /* A program that computes in a process of its own ("steps" of it is started: engine, or
     * worker); NULL: this process does. */
    const char *worker;
    int32_t worker_step_ms; /* a step that takes longer hangs; 0: WORKER_STEP_SECONDS */
    int32_t worker_load_ms; /* the same of loading; 0: WORKER_LOAD_SECONDS */
};

/** Opens and binds a checkpoint folder, takes all scratch memory; or lets a worker do so, and
 * waits.
 *  @own model_close  @err ERR_INPUT/ERR_IO naming file and field; ERR_USAGE: ISA not available
 * here; ERR_CHECK: why the worker does not serve, in its own words if it has any
 */
enum status MUST_CHECK model_open(const char *dir, const struct model_options *options,
                                  struct model **out, struct error *err);
void model_close(struct model *model);

const struct model_config *model_config(const struct model *model);
/** Tokens that it takes in one step: SPAN_TOKENS_MAX to STEP_TOKENS_MAX; it never changes. */
int32_t model_step_tokens(const struct model *model);
/** "baseline", "avx2" or "avx512": what is really running; it never changes. */
const char *model_isa_name(const struct model *model);

/** Why the network computes nothing any more: its worker has died, hangs, or answers what is no
 * answer.  From then on calls do nothing; what they gave since this was last asked is worth
 * nothing.
 * @return NULL: it computes */
const char *model_lost(const struct model *model);
/** What is done about it: one look at a lost network, no longer than WORKER_LOOK_MS.  Its worker is
 * started again, with longer and longer pauses.
 * @return true: it computes again; every sequence is empty then, and what pieces held is gone */
_Bool model_recover(struct model *model);
/** Another number behind every recovery. */
uint32_t model_life(const struct model *model);
/** Starts in a row that came to nothing since the network was lost. */
int model_starts_failed(const struct model *model);
/** The worker's process, for who watches it; 0: there is none now. */
int model_worker(const struct model *model);
/** How many ranks compute it, and how many GPUs whoever does so sees; 0: they are processors. */
int32_t model_ranks(const struct model *model);
int32_t model_gpus(const struct model *model);
/** What the worker tells of its GPUs.  @return false: there is no worker, or nothing was told */
_Bool model_gauges(const struct model *model, struct gauges *out);
/** How many pages timelines and prefixes hold.  @return false: none, or a worker keeps them */
struct pages_stats;
_Bool model_pages(const struct model *model, struct pages_stats *out);
/** Time that the network has worked.  @unit seconds: of this process's processors, or those that a
 * worker took to answer */
double model_seconds(const struct model *model);
const char *isa_name(enum isa isa);
/** @return false when the name is none of "auto", "baseline", "avx2", "avx512" */
_Bool isa_parse(const char *name, enum isa *out);

/** A timeline with room for tokens_max tokens, all memory reserved now, for whichever profile needs
 * the most; what is touched of it follows from the profile that feeds it (sequence_bytes_under).
 *  @own sequence_destroy  @err ERR_CAPACITY */
enum status MUST_CHECK sequence_create(const struct model *model, int32_t tokens_max,
                                       struct sequence **out, struct error *err);
/** The same for one that several profiles feed (sequence_crossover).  It takes the most under every
 * profile; the answers are the same bits.  @own sequence_destroy  @err ERR_CAPACITY */
enum status MUST_CHECK sequence_create_mixed(const struct model *model, int32_t tokens_max,
                                             struct sequence **out, struct error *err);
void sequence_destroy(struct sequence *sequence);
/** Back to length 0; nothing of the former content can be read any more. */
void sequence_reset(struct sequence *sequence);
int32_t sequence_length(const struct sequence *sequence);
/** Back to `length` tokens, as if the others had never been fed: nothing of them is visible, and
 * the next ones take their places.  ASSERTs that no more than SLIDING_WINDOW go, and none that the
 * draft block has taken: the rings hold no more. */
void sequence_rewind(struct sequence *sequence, int32_t length);
/** Hash of the profile that made the state; 0: nothing was fed since the last reset, or the state
 * was loaded and nobody has said whose it is. */
uint64_t sequence_profile_hash(const struct sequence *sequence);
/** Says that the state may be fed under `profile` from now on, whoever made it: for loading stored
 * state of that profile, and for an audit that lets one profile read what another has written, in a
 * timeline of sequence_create_mixed (ASSERTed when it is fed).
 * NULL: by whoever feeds it next, perturbed or not. */
void sequence_crossover(struct sequence *sequence, const struct profile *profile);
/** Bytes reserved for this timeline's state. */
uint64_t sequence_bytes(const struct sequence *sequence);
/** Which page has what grows of each SNAPSHOT_TOKENS tokens (pages.h): timelines with the same
 * number at the same place share it, and it counts once.
 * @return borrowed as long as the sequence lives; NULL: nothing of it is ever shared */
const int32_t *sequence_pages(const struct sequence *sequence);
/** Bytes of the state of a timeline that so many tokens fill under this profile. */
uint64_t sequence_bytes_under(const struct model *model, const struct profile *profile,
                              int32_t tokens);

/* What one sequence contributes to a step. */
struct segment {
    struct sequence *sequence;
    const int32_t *ids; /* [n], each in 0..vocab_size-1 (ASSERTed: the caller checks input) */
    int32_t n;          /* at least 1; all segments together at most model_step_tokens */
    float *logits_last; /* [vocab_size] for the last of the n tokens, or NULL */
    float *logits_all;  /* [n, vocab_size], or NULL; rows of all at most LOGITS_ROWS_MAX */
    struct pick *picks; /* [n_picks] behind the last n_picks tokens: sampled where it is computed */
    int32_t n_picks;    /* at most n, PICKS_MAX */
    enum leg leg;       /* LEG_PREFILL: tokens of a prompt; LEG_DECODE: sampled or guessed ones */
};

/** Runs one step under one profile: appends every segment's tokens to its sequence and computes
 * what was asked for.  A sequence appears at most once in a step, must have room, and must not hold
 * state that another profile made, by its hash (ASSERTed). */
void model_step(struct model *model, const struct profile *profile, const struct segment *segments,
                int n_segments);

/* What the draft block does for one sequence (model.md 2.8).  Its timeline follows the sequence's:
 * row i joins the streams of position i with the token at i + 1 and predicts the token at i + 2. */
struct draft_segment {
    struct sequence *sequence;
    const int32_t *next_ids; /* [n], the tokens behind positions draft_length.. of the sequence */
    int32_t n;               /* at least 1; all together at most SPAN_TOKENS_MAX */
    float *logits_last;      /* [vocab_size] of the last row, or NULL */
    float *logits_all;       /* [n, vocab_size], or NULL */
    struct pick *pick;       /* behind the last row, or NULL */
    /* 0: as above.  k: the k-th row beyond the sequence, behind the one before in a call of its
     * own; joins what that one left in front of its head with a guessed token, n is 1.  It counts
     * for nothing: model_draft takes the row again when the token is fed. */
    int32_t beyond;
};

/** Appends rows to the draft timelines, on the decode leg.  The sequence holds the streams of its
 * last SPAN_TOKENS_MAX + 1 positions, so this may run behind model_step by so many; further is
 * ASSERTed. Only for configurations with num_nextn_predict_layers > 0. */
void model_draft(struct model *model, const struct profile *profile,
                 const struct draft_segment *segments, int n_segments);
/** Positions that the draft block has taken or left out. */
int32_t sequence_draft_length(const struct sequence *sequence);
/** The draft block takes the rows from `length` on once more, as if it never had: for a laboratory
 * that compares them.  ASSERTs that no more than SLIDING_WINDOW go. */
void sequence_draft_rewind(struct sequence *sequence, int32_t length);
/** Leaves out the positions in front of `length`.  The block has one layer, whose entries depend on
 *  their own row alone: rows that are SLIDING_WINDOW - 1 behind see no difference. */
void sequence_draft_skip(struct sequence *sequence, int32_t length);

#endif
