/*
 * manifest.sha256 of a model folder: what every file of it must be (common/leaves.h).
 *
 * Every regular file of the folder except the manifest itself stands in it, so that nothing can be
 * added unseen.  Folders inside are no part of the model.  Knows no tensors.
 */
#ifndef V4BOX_ENGINE_MODEL_MANIFEST_H
#define V4BOX_ENGINE_MODEL_MANIFEST_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct manifest_result {
    bool present; /* the folder has a manifest; without one nothing was checked */
    size_t files;
    uint64_t bytes;
};

/**
 * Checks a folder against its manifest.
 * @err  ERR_CHECK naming the file: missing, of another size or hash, or not listed.
 *       ERR_INPUT naming the line: manifest or leaves are malformed.  ERR_IO.
 */
enum status MUST_CHECK manifest_verify(const char *dir, struct manifest_result *out,
                                       struct error *err);

#endif
