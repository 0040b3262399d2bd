/* What the place brings along. */
#include "init/site.h"

#include "config/box.h"
#include "init/files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum site_result site_copy(const char *from, const char *to, uid_t owner)
{
    static char bytes[BOOT_SITE_BYTES_MAX];
    ssize_t n = file_load(from, bytes, sizeof bytes);
    if (n < 0)
        return errno == ENOENT ? SITE_ABSENT : SITE_REFUSED;
    if (n == 0 || memchr(bytes, '\0', (size_t)n) != NULL || access(to, F_OK) == 0)
        return SITE_REFUSED;
    return file_save(to, bytes, (size_t)n, owner) ? SITE_COPIED : SITE_REFUSED;
}
