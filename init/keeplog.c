/* A log on a disk. */
#include "init/keeplog.h"

#include "config/box.h"
#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 128

/* File 0 is the one that is written. */
static const char *path_of(const struct keeplog *k, int file, char path[PATH_BYTES])
{
    if (file == 0)
        snprintf(path, PATH_BYTES, "%s/current", k->folder);
    else
        snprintf(path, PATH_BYTES, "%s/%d", k->folder, file);
    return path;
}

static void turn_over(const struct keeplog *k)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    for (int file = k->files; file > 0; file--)
        (void)rename(path_of(k, file - 1, from), path_of(k, file, to));
}

static bool drop_oldest(const struct keeplog *k)
{
    char path[PATH_BYTES];
    for (int file = k->files; file > 0; file--)
        if (unlink(path_of(k, file, path)) == 0)
            return true;
    errno = ENOSPC; /* still */
    return false;
}

static int open_file(const struct keeplog *k, int file, int flags, off_t *size)
{
    char path[PATH_BYTES];
    return file_open(path_of(k, file, path), flags, size);
}

/* What did not fit is taken back, so that no line stands there in part. */
static bool write_lines(const struct keeplog *k, const char *lines, size_t n)
{
    off_t size = 0;
    int fd = open_file(k, 0, O_WRONLY | O_APPEND | O_CREAT, &size);
    if (fd < 0)
        return false;
    errno = ENOSPC; /* what a short write means */
    bool good = write(fd, lines, n) == (ssize_t)n && fdatasync(fd) == 0;
    int code = errno;
    if (!good)
        (void)ftruncate(fd, size);
    close(fd);
    errno = code;
    return good;
}

bool keeplog_append(const struct keeplog *k, const char *lines, size_t n)
{
    off_t size = 0;
    int fd = open_file(k, 0, O_RDONLY, &size);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && (size_t)size + n > k->file_bytes)
        turn_over(k);
    bool good = write_lines(k, lines, n);
    while (!good && errno == ENOSPC && drop_oldest(k))
        good = write_lines(k, lines, n);
    return good;
}

/* The end of a file, at most `cap` bytes of it; returns how many. */
static size_t read_end(const struct keeplog *k, int file, char *bytes, size_t cap)
{
    off_t size = 0;
    int fd = open_file(k, file, O_RDONLY, &size);
    if (fd < 0)
        return 0;
    off_t from = (size_t)size > cap ? size - (off_t)cap : 0;
    ssize_t n = pread(fd, bytes, cap, from);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

bool keeplog_tail(const struct keeplog *k, size_t count, struct text *out)
{
    static char bytes[KEEPLOG_TAIL_BYTES];
    size_t newest = read_end(k, 0, bytes, sizeof bytes);
    size_t before = sizeof bytes - newest;
    memmove(bytes + before, bytes, newest);
    size_t older = read_end(k, 1, bytes, before);
    memmove(bytes + before - older, bytes, older);
    const char *start = bytes + before - older;
    size_t n = older + newest, at = text_last_lines(start, n, count);
    text_add(out, start + at, n - at);
    return n > 0;
}
