/*
 * A network in another process: starts a worker, sends it steps over kernels/link.h, and says what
 * became of it.  Believes nothing of what the worker writes; knows nothing of how it computes.
 */
#ifndef V4BOX_ENGINE_MODEL_REMOTE_H
#define V4BOX_ENGINE_MODEL_REMOTE_H

#include "engine/model/model.h"
#include "kernels/link.h"

struct remote;

struct remote_options {
    const char *program; /* "steps" of it is started: engine or worker */
    const char *dir;     /* of the checkpoint */
    struct model_options model;
    int32_t slots, tokens_max;
    uint32_t step_ms; /* a step that takes longer hangs */
};

/** Starts the worker and waits until it has loaded.
 *  @own remote_close  @err ERR_CHECK, ERR_IO: why it does not serve, in its own words if it has any
 */
enum status MUST_CHECK remote_open(const struct remote_options *options, struct remote **out,
                                   struct error *err);
/** Ends the worker, whatever it is doing, and waits until it is gone. */
void remote_close(struct remote *remote);

/** The row of the closed list that the worker has loaded. */
const struct model_config *remote_config(const struct remote *remote);
/** Its process id; for who watches it. */
int remote_process(const struct remote *remote);

/** A step to be filled in: kind, segments and ids; number and values are remote_run's. */
struct link_step *remote_step(struct remote *remote);

/** Runs the step of remote_step under a profile and waits for the answer.
 *  @param rows  out: [n_ids, vocab], borrowed until the next call; the worker may still write
 * there: look at each number once, or copy
 *  @err ERR_CHECK: the worker has died, hangs, or answers what is no answer; it is ended then, and
 *       only remote_close is left */
enum status MUST_CHECK remote_run(struct remote *remote, const struct profile *profile,
                                  const float **rows, struct error *err);

#endif
