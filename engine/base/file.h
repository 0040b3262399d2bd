/*
 * Whole files, read, mapped or replaced.  Errors name the path.
 */
#ifndef V4BOX_ENGINE_FILE_H
#define V4BOX_ENGINE_FILE_H

#include "engine/base/buf.h"
#include "engine/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct mapping {
    const uint8_t *data; /* owns; NULL when the file is empty */
    size_t size;
};

/** Maps a regular file read-only.  @err ERR_IO */
enum status MUST_CHECK file_map(const char *path, struct mapping *out, struct error *err);
void file_unmap(struct mapping *m);

/** Reads a whole file ("-": stdin).  @err ERR_IO, ERR_INPUT when larger than bytes_max */
enum status MUST_CHECK file_read(const char *path, size_t bytes_max, struct buf *out,
                                 struct error *err);

/** Puts `text` in place of the file, mode 0600: a power cut leaves the old content or the new, and
 * nothing follows links.  PATH.new is used on the way.  @err ERR_IO */
enum status MUST_CHECK file_replace(const char *path, const struct buf *text, struct error *err);

#endif
