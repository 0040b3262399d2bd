/*
 * What every switch costs and what it buys: the reference with one value exchanged, on one text,
 * against the reference.  The text is a prompt and what the reference itself continues it with, so
 * that both legs are scored on what the model would see.
 * Knows no engine, no store and no socket.
 */
#ifndef V4BOX_ENGINE_PRECISION_RANK_H
#define V4BOX_ENGINE_PRECISION_RANK_H

#include "engine/base/buf.h"
#include "engine/precision/lab.h"
#include "engine/precision/profile.h"

#include <stdbool.h>
#include <stdint.h>

/* Risk by what the logits lose (fidelity.md 8.5); RANK_EQUAL: not one bit differs. */
enum rank_tier { RANK_EQUAL, RANK_STRICT, RANK_BALANCED, RANK_FAST, RANK_BEYOND, RANK_TIERS };

/* One value of one row, alone in the reference. */
struct rank_entry {
    enum precision_row row;
    int value;
    bool ran;        /* false: its hardware is not here, nothing below counts */
    bool equal;      /* all logits have the bits of the reference */
    double kl[LEGS]; /* mean over the positions of LEG_PREFILL and LEG_DECODE, in nats */
    double kl_mean, kl_max;
    double top1_loss;   /* share of positions whose likeliest token is another */
    double exposure;    /* share of tokens and layers that it acts on, by what was witnessed */
    double speed[LEGS]; /* the reference's processor time over this one's: 1.1 is a tenth faster */
    enum rank_tier tier;
};

#define RANK_ENTRIES_MAX (PRECISION_ROWS * PRECISION_VALUES_MAX)

struct rank {
    bool complete;        /* false: the model went away */
    int32_t tokens[LEGS]; /* scored, of LEG_PREFILL and LEG_DECODE */
    double rate[LEGS];    /* tokens a second of processor time, of the reference */
    double seconds;
    int64_t time_s;
    int n;
    struct rank_entry entries[RANK_ENTRIES_MAX]; /* the most harmful first: KL times exposure */
};

/**
 * Ranks every value of every row that changes numbers; with `only`, those that this profile has.
 * @shape prompt [n]: at most RANK_PROMPT_MAX tokens are used
 */
void rank_run(struct lab *lab, const int32_t *prompt, int32_t n, const struct profile *only,
              struct rank *out);

const char *rank_tier_name(enum rank_tier tier);
/** A table, or one JSON object. */
void rank_text(const struct rank *rank, struct buf *out);
void rank_json(const struct rank *rank, struct buf *out);

#endif
