/*
 * What the verdicts of a report rest on: the proof that the profile's rows run, and what each value
 * costs alone.  Puts the members "rows" and "ranking" of a report beside its tests.  Knows how a
 * proof is judged, not how it is made (engine/precision/proof.h, rank.h).
 */
#ifndef V4BOX_ENGINE_AUDIT_EVIDENCE_H
#define V4BOX_ENGINE_AUDIT_EVIDENCE_H

#include "engine/audit/report.h"
#include "engine/precision/proof.h"
#include "engine/precision/rank.h"

/** True when verdicts must not rest on a row in this state (AUDIT_EVIDENCE). */
bool evidence_counts(const struct proof_cell *cell);

/** Judges the proofs of a profile and of the reference (NULL: has the same values): INVALID when
 * one was not finished or a cell of it counts, else PASS.
 *  @return the report's test "prove"; sets the members "rows" and "reference_rows" of `report`
 *  @own the caller: json_object_put */
struct json_object *evidence_proof(const struct proof *proof, const struct proof *reference,
                                   struct json_object *report, enum audit_verdict *verdict);

/** Judges a ranking: FAIL when a value of `profile` alone costs more than its row's budget,
 *  UNDECIDED when it was not finished, else PASS.
 *  @return the report's test "rank"; sets the member "ranking" of `report`
 *  @own the caller: json_object_put */
struct json_object *evidence_rank(const struct rank *rank, const struct profile *profile,
                                  struct json_object *report, enum audit_verdict *verdict);

/** Both in a laboratory, what is compared with is proven, too; a proof takes some seconds on the
 * embedded model, a ranking of all values about a minute, of those of the profile (`own`) a fifth.
 *  @shape prompt [n]  @own as above */
struct json_object *evidence_prove_in(struct lab *lab, const struct proof_options *options,
                                      const struct profile *reference, struct json_object *report,
                                      enum audit_verdict *verdict);
struct json_object *evidence_rank_in(struct lab *lab, const struct profile *profile, bool own,
                                     const int32_t *prompt, int32_t n, struct json_object *report,
                                     enum audit_verdict *verdict);

#endif
