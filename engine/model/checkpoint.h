/*
 * A checkpoint folder: config.json compared against a row of config/model.h, safetensors (one file,
 * or shards with an index) mapped read-only, every tensor's name, dtype, shape and bounds checked
 * against config/weights.def, and bound to struct model_weights.  Knows no arithmetic.
 */
#ifndef V4BOX_ENGINE_MODEL_CHECKPOINT_H
#define V4BOX_ENGINE_MODEL_CHECKPOINT_H

#include "engine/base/status.h"
#include "engine/model/weights.h"

struct checkpoint;

/**
 * Opens DIR and checks everything but the hashes.
 * @own  checkpoint_close; weights borrow from it.
 * @err  ERR_INPUT or ERR_IO, naming the file and the field or tensor.
 */
enum status MUST_CHECK checkpoint_open(const char *dir, struct checkpoint **out, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);
const struct model_weights *checkpoint_weights(const struct checkpoint *checkpoint);
/** Bytes of tensor data. */
uint64_t checkpoint_tensor_bytes(const struct checkpoint *checkpoint);

#endif
