/*
 * What a serving engine does with a request under a profile, seen from its events alone: how much
 * of the prompt a step took, what was continued, how far was guessed ahead.  For the proof of rows
 * that no operation of the network witnesses.  Knows no table of values and judges nothing.
 */
#ifndef V4BOX_ENGINE_PRECISION_SERVED_H
#define V4BOX_ENGINE_PRECISION_SERVED_H

#include "engine/precision/proof.h"

/** A proof_serve_fn; user: a struct engine.  Requests in namespaces that nobody else has; each
 * takes its turn between those of clients.
 *  @return false: the engine took none, or not in time */
bool served_run(void *engine, const struct profile *profile, struct proof_served *out);

#endif
