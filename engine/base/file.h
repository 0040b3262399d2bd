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

/* A file on its way to another's place. */
struct file_new {
    const char *path; /* borrows */
    int fd;           /* owns */
    int code;         /* errno of the first write that failed; 0 */
};

/** Begins PATH.new, mode 0600; what is left of an earlier one is gone.  Nothing follows links.
 *  @own file_new_finish  @err ERR_IO */
enum status MUST_CHECK file_new_begin(const char *path, struct file_new *out, struct error *err);
/** Appends; a failure shows in file_new_finish. */
void file_new_write(struct file_new *file, const void *data, size_t len);
/** Puts it in the place of the file: a power cut leaves the old content or the new.  Removes it
 * when a write failed.  @err ERR_IO */
enum status MUST_CHECK file_new_finish(struct file_new *file, struct error *err);

/** Puts `text` in place of the file, all of the above at once.  @err ERR_IO */
enum status MUST_CHECK file_replace(const char *path, const struct buf *text, struct error *err);

#endif
