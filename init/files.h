/*
 * Small files and folders on a disk that anybody may have written: read whole and bounded, replaced
 * whole or not at all.  Follows no symbolic link in the last part of a path.  Knows no content.
 */
#ifndef V4BOX_INIT_FILES_H
#define V4BOX_INIT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/**
 * Opens a regular file, made with mode 0600 when `flags` say O_CREAT; tells its size.
 * @own close()  @err -1 with errno: EINVAL no regular file, or as open()
 */
int file_open(const char *path, int flags, off_t *size);

/**
 * Reads a regular file of at most `cap` bytes; returns how many.
 * @err -1 with errno: ENOENT absent, EFBIG larger, EINVAL no regular file, or of the disk
 */
ssize_t file_load(const char *path, char *bytes, size_t cap);

/** Writes all of it at the descriptor's place.  @err false with errno */
bool file_write(int fd, const void *bytes, size_t n);

/**
 * Replaces a file, mode 0600: written beside it, synced, renamed, and the folder synced, so that a
 * power cut at any moment leaves the old or the new one.  @err false with errno; the old one stays
 */
bool file_save(const char *path, const char *bytes, size_t n, uid_t owner);

/**
 * Makes a folder, or gives the one that is there this mode and owner.
 * @err false with errno; ENOTDIR or ELOOP: something else is in its place
 */
bool folder_make(const char *path, mode_t mode, uid_t owner);

#endif
