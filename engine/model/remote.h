/*
 * A worker: a process that computes, started and watched from here.  Asks it things over
 * kernels/link.h, one at a time, and starts it anew when it is lost.  Believes nothing of what it
 * writes; knows nothing of how it computes, and no sequences.
 */
#ifndef V4BOX_ENGINE_MODEL_REMOTE_H
#define V4BOX_ENGINE_MODEL_REMOTE_H

#include "engine/model/model.h"
#include "kernels/link.h"

struct remote;

/** Starts the worker that the options name and waits until it has loaded.
 *  @own remote_close  @err ERR_CHECK, ERR_IO: why it does not serve, in its own words if it has any
 */
enum status MUST_CHECK remote_open(const char *dir, const struct model_options *options,
                                   struct remote **out, struct error *err);
/** Ends the worker, whatever it is doing, and waits until it is gone.  Accepts NULL. */
void remote_close(struct remote *remote);

/** The row of the closed list that the worker has loaded, what its backend is called, and whether
 * that packs (kernels/backend.h); later workers must have the same. */
const struct model_config *remote_config(const struct remote *remote);
const char *remote_variant(const struct remote *remote);
bool remote_packs(const struct remote *remote);
/** How many ranks compute it, as the worker says, and how many GPUs that sees: 0 are processors. */
int32_t remote_ranks(const struct remote *remote);
int32_t remote_gpus(const struct remote *remote);
/** Tokens that it takes in one step; as of remote_packs. */
int32_t remote_step_tokens(const struct remote *remote);
/** Its process; 0: it has none now. */
int remote_process(const struct remote *remote);
/** What it tells of its GPUs.  @return false: nothing yet, or it is gone; *out is as it was */
bool remote_gauges(const struct remote *remote, struct gauges *out);
/** Time that it took to answer, all together.  @unit seconds */
double remote_seconds(const struct remote *remote);
int remote_starts_failed(const struct remote *remote);

/** Why it is lost; looks whether it has died.  @return NULL: it is there, or being started */
const char *remote_lost(struct remote *remote);
/** One look at a lost worker: starts it when its pause is over, never waits longer than
 *  WORKER_LOOK_MS.  @return true: a new one has just loaded, and is to be told what it has to have
 */
bool remote_restart(struct remote *remote);
/** It was told: it is lost no more. */
void remote_settled(struct remote *remote);
/** Ends a worker that is of no use; it is started again like one that died. */
void remote_drop(struct remote *remote, const char *why);

/** What is asked next, to be filled in: all zero but for its kind and values. */
struct link_step *remote_step(struct remote *remote, enum link_kind kind,
                              const struct profile *profile);
/** What goes along with it.  @shape [LINK_GIVEN_FLOATS] */
float *remote_given(struct remote *remote);

/** How tokens are picked behind its rows.  @shape borrowed: written until remote_run */
struct link_picks *remote_picks(struct remote *remote);
/** What was picked by the answer before: borrowed, and as untrue as its numbers. */
const volatile struct link_choice *remote_choices(const struct remote *remote);

/** Asks what remote_step has, and waits for the answer.
 *  @param numbers  out: borrowed until the next call; the worker may still write there: look at
 *                  each number once, or copy
 *  @return false: it has no memory for that, or is lost (remote_lost) */
bool MUST_CHECK remote_run(struct remote *remote, const float **numbers);

#endif
