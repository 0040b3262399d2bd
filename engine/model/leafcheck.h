/*
 * Checks mapped files against the hashes of their leaves (common/leaves.h), with several threads: a
 * disk reads faster than one of them hashes.  What was checked is what the mapping holds from then
 * on.  Knows neither folders nor tensors.
 */
#ifndef V4BOX_ENGINE_MODEL_LEAFCHECK_H
#define V4BOX_ENGINE_MODEL_LEAFCHECK_H

#include "common/leaves.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

struct leafcheck_file {
    const char *path;   /* borrows; for messages */
    struct mapping map; /* owned by the caller; of the size that the manifest says */
};

/**
 * Hashes every leaf of every file.  @shape files [m->files], in the manifest's order
 * @err  ERR_CHECK naming file and byte of the first leaf that differs
 */
enum status MUST_CHECK leafcheck(const struct leaves *m, const struct leafcheck_file *files,
                                 struct error *err);

#endif
