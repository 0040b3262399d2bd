/* What the place brings along. */
#include "init/site.h"

#include "config/box.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Reads all of a file; -1 when it is larger than `cap` or can not be read. */
static ssize_t read_all(int fd, char *bytes, size_t cap)
{
    size_t len = 0;
    for (;;) {
        char beyond;
        ssize_t n = len < cap ? read(fd, bytes + len, cap - len) : read(fd, &beyond, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || (n > 0 && len == cap))
            return -1;
        if (n == 0)
            return (ssize_t)len;
        len += (size_t)n;
    }
}

enum site_result site_copy(const char *from, const char *to, uid_t owner)
{
    static char bytes[BOOT_SITE_BYTES_MAX];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return errno == ENOENT ? SITE_ABSENT : SITE_REFUSED;
    ssize_t n = read_all(in, bytes, sizeof bytes);
    close(in);
    if (n <= 0 || memchr(bytes, '\0', (size_t)n) != NULL)
        return SITE_REFUSED;
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return SITE_REFUSED;
    bool good = write(out, bytes, (size_t)n) == n && fchown(out, owner, owner) == 0;
    return close(out) == 0 && good ? SITE_COPIED : SITE_REFUSED;
}
