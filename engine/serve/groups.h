/*
 * Several engines as one: each is a group with a model, a thread, timelines, a queue and stored
 * prefixes of its own, and every request is given to one of them as it comes.  To the group that
 * has computed the longest beginning of its prompt, as far as is remembered, unless that one has no
 * place for it at once and another has; else to the one with the least to do.  One that is lost
 * gets none while another computes.  Knows engines only by engine.h.
 */
#ifndef V4BOX_ENGINE_SERVE_GROUPS_H
#define V4BOX_ENGINE_SERVE_GROUPS_H

#include "engine/engine.h"

struct groups;

/** @own groups_destroy, which destroys the engines too */
struct groups *groups_create(struct engine *const *take, int32_t n, int32_t sessions_max);
/** Ends the engines, one behind another.  Accepts NULL. */
void groups_destroy(struct groups *groups);

int32_t groups_count(const struct groups *groups);
struct engine *groups_at(const struct groups *groups, int32_t i);

/** Until groups_let no other thread is between these two. */
void groups_hold(struct groups *groups);
void groups_let(struct groups *groups);

/** The group that a request goes to. */
struct engine *groups_place(struct groups *groups, const struct engine_request *request);
/** All their numbers together; of two processes the first, and lost when any is. */
void groups_stats(const struct groups *groups, struct engine_stats *out);
/** All their GPUs, each once.  @return false: none has told anything */
bool groups_gauges(const struct groups *groups, struct gauges *out);

#endif
