/*
 * Which request starts next, what timelines take together, and which segments go into the next
 * step.  Pure functions of what waits and of what every timeline holds and has to be fed: no clock,
 * no I/O, no allocation, no state, so that their promises can be tested for every input.
 *
 * Promises of the queue: of two requests of one priority the older one starts first; a waiting one
 * is passed by at most PRIORITY_PATIENCE younger ones for each step of priority that they have
 * more.
 *
 * Promises of a step: it computes under one profile, that of whoever waits longest, so that with p
 * profiles each is served in one of p steps.  Of those every decoding timeline gets its token in
 * every step; every prefilling one gets at least one token in every step; prompts share what is
 * left evenly, and in a step that decodes they get at most STEP_PREFILL_MIXED_MAX tokens together;
 * nothing that could be fed within these bounds waits.
 */
#ifndef V4BOX_ENGINE_SCHEDULE_H
#define V4BOX_ENGINE_SCHEDULE_H

#include "engine/precision/profile.h"

#include <stdbool.h>
#include <stdint.h>

/* A request that waits. */
struct schedule_waiting {
    int32_t priority;
    int32_t passed; /* younger ones that were started before it */
};

/** @shape waiting [n], oldest first, n at least 1  @return which one starts next */
int32_t schedule_first(const struct schedule_waiting *waiting, int32_t n);

/** @unit mean_ms: how long requests ran lately; 0: none did
 *  @return seconds until one of n_slots should be free, 1 to RETRY_AFTER_S_MAX */
int32_t schedule_retry_after_s(double mean_ms, int32_t n_slots);

/* What one timeline may come to. */
struct schedule_claim {
    uint64_t bytes;       /* were it alone; pages included */
    const int32_t *pages; /* borrows; [n_pages] that it writes no more, by number; negative: none */
    int32_t n_pages;
    uint64_t page_bytes; /* of one of them */
};

/** Bytes of all of them together.  Who has the same page at the same place shares it: it counts
 * once, for the first of them, and so for the next when that one ends: what one end gives back is
 * what nobody else has.
 * @shape claims [n]  @return at most the sum of their bytes */
uint64_t schedule_taken(const struct schedule_claim *claims, int n);

/* What one timeline could be fed; both zero: nothing. */
struct schedule_slot {
    uint64_t profile; /* a step computes under one */
    int32_t starved;  /* steps under other profiles since its last one */
    int32_t prefill;  /* prompt tokens not yet fed */
    bool decode;      /* a sampled token waits to be fed; excludes prefill */
};

/** How many tokens a timeline should have guessed.
 *  @unit right: share of its guesses of late that were right, 0 to 1; quiet: tokens since the last
 *        one; n_decode: timelines in this step that could guess
 *  @return 0 to depth_max: deep enough that the last one is still likely to be of use */
int32_t schedule_draft_depth(int32_t depth_max, int32_t n_decode, double right, int32_t quiet);

/** The most tokens of a prompt that one step takes: the profile's row prefill.chunk.
 *  @unit step_tokens: of the model (model_step_tokens) */
int32_t schedule_chunk(const struct profile *profile, int32_t step_tokens);

/**
 * Fills take [n_slots] with how many tokens each timeline feeds in the next step.
 * @shape n_slots at most SESSIONS_MAX
 * @unit step_tokens: of the model (model_step_tokens)
 * @return the sum, at most step_tokens; 0 only when nothing waits
 */
int32_t schedule_step(const struct schedule_slot *slots, int n_slots, int32_t step_tokens,
                      int32_t *take);

#endif
