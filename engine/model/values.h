/*
 * The stored values of bound weights: what must never reach the arithmetic.  Knows no files.
 *
 *   I64            an expert number outside 0 .. n_routed_experts - 1 would index memory
 *   BF16, F32      NaN and infinity (exponent field all ones)
 *   FP8            the two NaN bytes, 0x7f and 0xff (e4m3fn has no infinity)
 *   E8M0 scales    the NaN byte, 255
 *   NVFP4 scales   NaN and anything with a sign
 *   FP4            every nibble is a number
 */
#ifndef V4BOX_ENGINE_MODEL_VALUES_H
#define V4BOX_ENGINE_MODEL_VALUES_H

#include "engine/base/status.h"
#include "engine/model/checkpoint.h"
#include "engine/model/weights.h"

/** Looks at every weight as deep as `depth` says.  `place` opens the error text.
 *  @err ERR_CHECK naming the tensor and the element */
enum status MUST_CHECK values_check(const struct model_config *config,
                                    const struct model_weights *weights, enum value_check depth,
                                    const char *place, struct error *err);

#endif
