/*
 * `soak`: round after round, each one test of budget `quick` on items of its own, drawn from the
 * seed; what all of them say together is one verdict.  A round says its test and seed, so that
 * `engine audit TEST --budget quick --seed N` is that round again.  Between rounds the whole state
 * is the report's member, so that who keeps it can stop and go on.
 * A text that is the same in every round must give the same bits in every round.
 * Knows no clock beyond what a round took.
 */
#ifndef V4BOX_ENGINE_AUDIT_SOAK_H
#define V4BOX_ENGINE_AUDIT_SOAK_H

#include "engine/audit/tests.h"

/** Runs one round more; one that the end of the time (run->until_ms) cuts counts only when it
 *  fails, and is the last.
 *  @param before  the member so far, or NULL; borrowed
 *  @return the member with this round.  @own the caller: json_object_put */
struct json_object *soak_round(const struct audit_run *run, int32_t seed,
                               struct json_object *before, enum audit_verdict *verdict);
/** Whether the time has cut a round, or another would not fit what is left; where the budget
 *  promises no time, whether every test had its round. */
bool soak_over(struct json_object *member, const struct audit_budget *budget, double left_s);

#endif
