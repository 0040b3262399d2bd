/* Small files and folders. */
#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 256 /* all paths are constants of config/box.h, or of tests */

/* O_NONBLOCK: a FIFO in place of the file must not hold up the boot. */
int file_open(const char *path, int flags, off_t *size)
{
    struct stat st;
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = st.st_size;
        return fd;
    }
    if (fd >= 0) {
        close(fd);
        errno = EINVAL;
    }
    return -1;
}

ssize_t file_load(const char *path, char *bytes, size_t cap)
{
    off_t size;
    size_t len = 0;
    ssize_t n = -1;
    int fd = file_open(path, O_RDONLY, &size);
    if (fd < 0)
        return -1;
    for (;;) {
        char beyond;
        n = len < cap ? read(fd, bytes + len, cap - len) : read(fd, &beyond, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || len == cap)
            break;
        len += (size_t)n;
    }
    int code = n > 0 ? EFBIG : errno;
    close(fd);
    errno = code;
    return n == 0 ? (ssize_t)len : -1;
}

bool file_write(int fd, const void *bytes, size_t n)
{
    for (size_t len = 0; len < n;) {
        ssize_t done = write(fd, (const char *)bytes + len, n - len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        len += (size_t)done;
    }
    return true;
}

/* Makes a rename last. */
static bool sync_folder(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fsync(fd) == 0;
    close(fd);
    return good;
}

bool file_save(const char *path, const char *bytes, size_t n, uid_t owner)
{
    char temp[PATH_BYTES];
    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp) {
        errno = ENAMETOOLONG;
        return false;
    }
    unlink(temp); /* of a power cut; O_EXCL below follows no link in its place */
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = fchmod(fd, 0600) == 0 && fchown(fd, owner, owner) == 0 &&
                file_write(fd, bytes, n) && fsync(fd) == 0;
    int code = errno;
    close(fd);
    if (good && rename(temp, path) == 0 && sync_folder(path))
        return true;
    if (good)
        code = errno;
    unlink(temp);
    errno = code;
    return false;
}

bool folder_make(const char *path, mode_t mode, uid_t owner)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return false;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fchown(fd, owner, owner) == 0 && fchmod(fd, mode) == 0;
    close(fd);
    return good;
}
