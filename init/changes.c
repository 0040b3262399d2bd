/* The log of changes. */
#include "init/changes.h"

#include "config/box.h"
#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 256

/* File systems in memory may not know the flag; they keep nothing anyway. */
static void set_append_only(int fd, bool on)
{
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0)
        return;
    flags = on ? flags | FS_APPEND_FL : flags & ~FS_APPEND_FL;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static const char *older_path(char older[PATH_BYTES], const char *path)
{
    snprintf(older, PATH_BYTES, "%s.1", path);
    return older;
}

static void allow_rename(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    set_append_only(fd, false);
    close(fd);
}

/* Neither may be append-only while one takes the other's place. */
static bool turn_over(const char *path)
{
    char older[PATH_BYTES];
    allow_rename(path);
    allow_rename(older_path(older, path));
    return rename(path, older) == 0;
}

/* What a power cut left of a line gets its end, so that the next one begins. */
static bool ends_open(int fd, off_t size)
{
    char last;
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static void add_stamp(struct text *line)
{
    struct tm tm;
    time_t now = time(NULL);
    char stamp[32];
    if (gmtime_r(&now, &tm) == NULL ||
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        stamp[0] = '\0';
    text_printf(line, "%s ", stamp);
}

static void add_what(struct text *line, const char *what)
{
    for (; *what != '\0' && line->len + 2 < line->cap; what++) {
        char byte = *what >= ' ' && *what <= '~' ? *what : '?';
        text_add(line, &byte, 1);
    }
    text_add(line, "\n", 1);
}

bool changes_add(const char *path, const char *who, const char *role, const char *what)
{
    char bytes[CHANGES_LINE_BYTES];
    struct text line = text_over(bytes, sizeof bytes);
    off_t size = 0;
    add_stamp(&line);
    text_printf(&line, "%.64s %.16s: ", who, role);
    add_what(&line, what);
    int fd = file_open(path, O_RDWR | O_APPEND | O_CREAT, &size);
    if (fd >= 0 && size + (off_t)line.len + 1 > CHANGES_FILE_BYTES) {
        close(fd);
        fd = turn_over(path) ? file_open(path, O_RDWR | O_APPEND | O_CREAT, &size) : -1;
    }
    if (fd < 0)
        return false;
    if (size == 0)
        set_append_only(fd, true);
    bool good = (!ends_open(fd, size) || write(fd, "\n", 1) == 1) &&
                write(fd, line.data, line.len) == (ssize_t)line.len && fdatasync(fd) == 0;
    int code = errno;
    close(fd);
    errno = good ? 0 : code == 0 ? ENOSPC : code;
    return good;
}

bool changes_tail(const char *path, size_t count, struct text *out)
{
    static char bytes[2 * CHANGES_FILE_BYTES];
    char older[PATH_BYTES];
    ssize_t before = file_load(older_path(older, path), bytes, CHANGES_FILE_BYTES);
    size_t n = before < 0 ? 0 : (size_t)before;
    ssize_t now = file_load(path, bytes + n, CHANGES_FILE_BYTES);
    if (before < 0 && now < 0)
        return false;
    n += now < 0 ? 0 : (size_t)now;
    size_t at = text_last_lines(bytes, n, count);
    text_add(out, bytes + at, n - at);
    return true;
}
