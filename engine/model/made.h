/*
 * A network whose weights are made of a seed (kernels/synth.h) instead of read: which tensor of a
 * configuration is made how, and addresses for all of them.  The bytes are those of a checkpoint
 * that tools/synth writes.  Knows no files and no backend.
 */
#ifndef V4BOX_ENGINE_MODEL_MADE_H
#define V4BOX_ENGINE_MODEL_MADE_H

#include "engine/model/tensors.h"
#include "kernels/synth.h"

/* Root mean square of the stored codes of FP4: what a scale makes up for. */
#define MADE_RMS_FP4 2.93

/** How a stored tensor of a weight is filled.
 *  @param part  STORED_DATA or STORED_SCALE; `name` is that of the stored tensor */
struct synth made_stored(const struct model_config *config, const struct weight_spec *spec,
                         int part, const char *name, uint64_t seed);
/** fnv1a64(name) XOR seed */
uint64_t made_state(const char *name, uint64_t seed);

struct made;

/** "synth:SEED".  @return false: it is none */
_Bool made_seed(const char *text, uint64_t *seed);

/** Addresses for all weights of a configuration; nothing is there yet.
 *  @own made_close  @err ERR_CAPACITY: no such addresses on this machine */
enum status MUST_CHECK made_open(const struct model_config *config, uint64_t seed,
                                 struct made **out, struct error *err);
void made_close(struct made *made);

const struct model_weights *made_weights(const struct made *made);
/** Which of them is what; borrowed. */
const struct synth_table *made_table(const struct made *made);
/** Puts the bytes there, for who computes with host memory.
 *  @err ERR_CAPACITY: they are more than this machine's memory */
enum status MUST_CHECK made_fill(struct made *made, struct error *err);

#endif
