/*
 * Which segments go into the next step.  A pure function of what every timeline has to be fed: no
 * clock, no I/O, no allocation, no state, so that its promises can be tested for every input.
 *
 * Promises: every decoding timeline gets its token in every step; every prefilling one gets at
 * least one token in every step; prompts share what is left evenly, and in a step that decodes they
 * get at most STEP_PREFILL_MIXED_MAX tokens together; nothing that could be fed within these bounds
 * waits.
 */
#ifndef V4BOX_ENGINE_SCHEDULE_H
#define V4BOX_ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* What one timeline could be fed; both zero: nothing. */
struct schedule_slot {
    int32_t prefill; /* prompt tokens not yet fed */
    bool decode;     /* a sampled token waits to be fed; excludes prefill */
};

/**
 * Fills take [n_slots] with how many tokens each timeline feeds in the next step.
 * @shape n_slots at most SESSIONS_MAX
 * @return the sum, at most STEP_TOKENS_MAX; 0 only when nothing waits
 */
int32_t schedule_step(const struct schedule_slot *slots, int n_slots, int32_t *take);

#endif
