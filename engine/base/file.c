/* Whole files, read or mapped. */
#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
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
