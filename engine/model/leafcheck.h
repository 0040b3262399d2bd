/*
 * Checks mapped files against the hashes of their leaves, LEAF_BYTES each, with several threads: a
 * disk reads faster than one of them hashes.  What was checked is what the mapping holds from then
 * on.  Knows neither manifests nor tensors.
 *
 *   leaves.sha256   sha256 newline, for each leaf of each file in order; 64 lower-case hex digits
 */
#ifndef V4BOX_ENGINE_MODEL_LEAFCHECK_H
#define V4BOX_ENGINE_MODEL_LEAFCHECK_H

#include "engine/base/buf.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

#include <stddef.h>

struct leafcheck_file {
    const char *path;   /* borrows; for messages */
    struct mapping map; /* owned by the caller */
};

/**
 * Hashes every leaf of every file; `text` is that of leaves.sha256, called `path` in messages.
 * @err  ERR_CHECK naming file and byte of the first leaf that differs.  ERR_INPUT: the text is
 *       malformed, or not of these files.
 */
enum status MUST_CHECK leafcheck(const struct leafcheck_file *files, size_t count, const char *path,
                                 const struct buf *text, struct error *err);

#endif
