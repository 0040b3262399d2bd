/*
 * A pinned request computed again: its own tokens under its own profile and under another, side by
 * side, and where the answers part.  Teacher-forced: behind the first parting both still see what
 * was really said, so that one flipped near tie is not taken for a lost memory.
 * What comes out are numbers and positions, no token of the request.
 */
#ifndef V4BOX_ENGINE_AUDIT_PINNED_H
#define V4BOX_ENGINE_AUDIT_PINNED_H

#include "engine/audit/machine.h"
#include "engine/audit/recorder.h"
#include "engine/audit/report.h"

/**
 * Runs it.  PASS: its own profile samples the recorded answer again, and `profile` the same; FAIL:
 * one of them does not; UNDECIDED: not its own, but a rule of the request may have barred tokens,
 * or there is nothing to compare.
 * @shape prompt and answer fit the machine's context (else UNDECIDED)
 * @return a member of a report's tests  @own json_object_put
 */
struct json_object *pinned_replay(struct audit_machine *machine, const struct recording *recording,
                                  const struct profile *profile, enum audit_verdict *verdict);

#endif
