/*
 * Finds the row behind a failing test: connects tests.h with the search of isolate.h.
 */
#ifndef V4BOX_ENGINE_AUDIT_CULPRIT_H
#define V4BOX_ENGINE_AUDIT_CULPRIT_H

#include "engine/audit/isolate.h"
#include "engine/audit/tests.h"

/**
 * Searches among the rows in which run->profile differs from run->reference and that the tests
 * exercise.  A verdict on recall or needles is taken on up to AUDIT_FAILING_MAX items that failed
 * with everything live; on logits by the profile's gate of the mean; on replay and prompt by
 * equality; each up to run->repeats times.  Rows that change what is asked are named in
 * "prompt_rows" whatever the test: no number is to blame for them.
 * With run->given the verdict is whether its answer has the expected text, in each way to carry it
 * that failed with everything live; `test` is then TEST_RECALL.  "places" says where a convicted
 * row departs (locate.h) and how little of the given conversation shows it (shorten.h).
 * @return the report's "isolation".  @own the caller: json_object_put
 */
struct json_object *culprit_search(const struct audit_run *run, enum audit_test test,
                                   enum isolate_outcome *outcome);

#endif
