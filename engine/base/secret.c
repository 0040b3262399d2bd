/* Key files. */
#include "engine/base/secret.h"

#include "engine/base/buf.h"
#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status secret_make(const char *path, uint8_t *out, size_t len, struct error *err)
{
    struct file_new file;
    enum status status = file_new_begin(path, &file, err);
    if (status != OK)
        return status;
    randombytes_buf(out, len);
    file_new_write(&file, out, len);
    return file_new_finish(&file, err);
}

enum status secret_open(const char *path, uint8_t *out, size_t len, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return secret_make(path, out, len, err);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    struct stat st;
    enum status status = OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != len)
        status = error_set(err, ERR_INPUT, "%s: not a file of %zu bytes", path, len);
    else if ((st.st_mode & 077) != 0)
        status = error_set(err, ERR_INPUT, "%s: others may read or write it", path);
    else if (read(fd, out, len) != (ssize_t)len)
        status = error_set(err, ERR_IO, "%s: cannot read %zu bytes", path, len);
    close(fd);
    return status;
}
