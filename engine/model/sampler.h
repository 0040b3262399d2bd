/*
 * The sampler (kernels/sampler.h), and what a request may ask of it.
 */
#ifndef V4BOX_ENGINE_MODEL_SAMPLER_H
#define V4BOX_ENGINE_MODEL_SAMPLER_H

#include "engine/base/status.h"
#include "kernels/sampler.h"

/** @err ERR_INPUT naming the field that is out of range */
enum status MUST_CHECK sampling_check(const struct sampling *sampling, struct error *err);

#endif
