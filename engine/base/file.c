/* Whole files, read, mapped or replaced. */
#include "engine/base/file.h"

#include "kernels/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_map(const char *path, struct mapping *out, struct error *err)
{
    /* O_NONBLOCK: a FIFO in a model folder must be refused below, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(err, ERR_IO, "%s: not a regular file", path);
    }
    void *data = NULL;
    if (st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            close(fd);
            return error_set(err, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
        }
    }
    close(fd);
    *out = (struct mapping){.data = data, .size = (size_t)st.st_size};
    return OK;
}

void file_unmap(struct mapping *m)
{
    if (m->data != NULL)
        munmap((void *)m->data, m->size);
    *m = (struct mapping){0};
}

enum status file_read(const char *path, size_t bytes_max, struct buf *out, struct error *err)
{
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    enum status status = OK;
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
            break;
        }
        if ((size_t)n > bytes_max - out->len) {
            status = error_set(err, ERR_INPUT, "%s: larger than %zu bytes", path, bytes_max);
            break;
        }
        buf_add(out, chunk, (size_t)n);
    }
    if (fd != STDIN_FILENO)
        close(fd);
    return status;
}

/* ---- replacing ------------------------------------------------------------------------------ */

static bool write_all(int fd, const void *from, size_t len)
{
    const char *data = from;
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* Makes a rename last: the folder is synced too. */
static bool sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash == NULL ? snprintf(folder, sizeof folder, ".")
                          : snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path);
    ASSERT(n > 0 && (size_t)n < sizeof folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fsync(fd) == 0;
    close(fd);
    return good;
}

/* @return false: the path is too long */
static bool temp_path(const char *path, char temp[PATH_MAX])
{
    return snprintf(temp, PATH_MAX, "%s.new", path) < PATH_MAX;
}

enum status file_new_begin(const char *path, struct file_new *out, struct error *err)
{
    char temp[PATH_MAX];
    if (!temp_path(path, temp))
        return error_set(err, ERR_IO, "%.64s..: the path is too long", path);
    unlink(temp); /* left over from a crash; O_EXCL below refuses to follow a link in its place */
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", temp, strerror(errno));
    *out = (struct file_new){.path = path, .fd = fd};
    if (fchmod(fd, 0600) != 0)
        out->code = errno;
    return OK;
}

void file_new_write(struct file_new *f, const void *data, size_t len)
{
    if (f->code == 0 && !write_all(f->fd, data, len))
        f->code = errno;
}

enum status file_new_finish(struct file_new *f, struct error *err)
{
    char temp[PATH_MAX];
    ASSERT(temp_path(f->path, temp));
    if (f->code == 0 && fsync(f->fd) != 0)
        f->code = errno;
    close(f->fd);
    if (f->code == 0 && rename(temp, f->path) == 0 && sync_folder(f->path))
        return OK;
    if (f->code == 0)
        f->code = errno;
    unlink(temp);
    return error_set(err, ERR_IO, "%s: cannot write: %s", f->path, strerror(f->code));
}

enum status file_replace(const char *path, const struct buf *text, struct error *err)
{
    struct file_new file;
    enum status status = file_new_begin(path, &file, err);
    if (status != OK)
        return status;
    file_new_write(&file, text->data, text->len);
    return file_new_finish(&file, err);
}
