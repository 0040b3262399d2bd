/*
 * A checkpoint folder: config.json compared against a row of config/model.h, safetensors (one file,
 * or shards with an index) mapped read-only, every tensor's name, dtype, shape and bounds checked
 * against config/weights.def, and bound to struct model_weights.  Knows no arithmetic.
 *
 * Every bound tensor is aligned to its element (2, 4 or 8 bytes): the format does not promise that,
 * so the few that are not are copied once.
 */
#ifndef V4BOX_ENGINE_MODEL_CHECKPOINT_H
#define V4BOX_ENGINE_MODEL_CHECKPOINT_H

#include "engine/base/status.h"
#include "engine/model/weights.h"

#include <stddef.h>

struct checkpoint;

/* How much of the values is looked at. */
enum value_check {
    VALUES_INDICES, /* what could index memory: the token-to-expert tables */
    VALUES_ALL,     /* also NaN and infinity in every stored form; reads the whole checkpoint */
};

/**
 * Opens DIR and checks everything but the hashes.  Values: all of them up to
 * CHECKPOINT_VALUES_AT_OPEN_BYTES_MAX, beyond that VALUES_INDICES.
 * @own  checkpoint_close; weights borrow from it.
 * @err  ERR_INPUT or ERR_IO, naming the file and the field or tensor.
 */
enum status MUST_CHECK checkpoint_open(const char *dir, struct checkpoint **out, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

/** Opens DIR as above but looks at no values.  @own, @err as checkpoint_open */
enum status MUST_CHECK checkpoint_bind(const char *dir, struct checkpoint **out, struct error *err);

/** Looks at the stored values.  @err ERR_CHECK naming the tensor and the element */
enum status MUST_CHECK checkpoint_check_values(const struct checkpoint *checkpoint,
                                               enum value_check depth, struct error *err);

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);
const struct model_weights *checkpoint_weights(const struct checkpoint *checkpoint);
/** Bytes of tensor data. */
uint64_t checkpoint_tensor_bytes(const struct checkpoint *checkpoint);
size_t checkpoint_tensor_count(const struct checkpoint *checkpoint);

#endif
