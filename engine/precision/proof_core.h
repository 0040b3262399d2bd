/*
 * Inside the proof: what proof.c (driving and judging) and proof_sites.c (places where a value is
 * exchanged and a number is changed) share.
 */
#ifndef V4BOX_ENGINE_PRECISION_PROOF_CORE_H
#define V4BOX_ENGINE_PRECISION_PROOF_CORE_H

#include "engine/precision/proof.h"

/** Calls a cell `state` unless it is called worse already. */
void proof_mark(struct proof *proof, enum precision_row row, int kind, enum leg leg,
                enum proof_state state, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/** True when numbers of the row come about on this leg: rows of the state leg are written while
 * prefilling and decoding. */
bool proof_leg_acts(enum precision_row row, enum leg leg);
/** Bits 1 << enum layer_kind of the kinds that the model has. */
uint32_t proof_kinds(const struct model_config *config);

/** Exchanges values and changes numbers at every site of the model; adds to `own` what the profile
 * itself witnessed there. */
void proof_sites_run(struct proof *proof, struct lab *lab, struct witness_table *own);

/** Judges the rows of the engine around the network by what it does with requests under the
 * profile, and whether it answers what the network says. */
void proof_serve_run(struct proof *proof, struct lab *lab, const struct proof_options *options);

#endif
