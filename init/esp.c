/* The EFI partition while it is used. */
#include "init/esp.h"

#include "config/slots.h"
#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 128

bool esp_enter(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

bool esp_mount(const char *device, bool writable)
{
    char path[PATH_BYTES];
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW;
    snprintf(path, sizeof path, "/dev/%s", device);
    if (mkdir(SLOT_MOUNT, 0700) != 0 && errno != EEXIST)
        return false;
    return mount(path, SLOT_MOUNT, "vfat", writable ? flags : flags | MS_RDONLY, "umask=0077") == 0;
}

bool esp_unmount(void)
{
    return umount2(SLOT_MOUNT, 0) == 0;
}

static int open_file(const char *path, int flags)
{
    char full[PATH_BYTES];
    if (snprintf(full, sizeof full, SLOT_MOUNT "/%s", path) >= (int)sizeof full) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(full, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Cut to its length only when it was longer: that is the one change to the table of a FAT. */
bool esp_write(const char *path, const uint8_t *bytes, size_t n)
{
    struct stat st;
    int fd = open_file(path, O_WRONLY | O_CREAT);
    if (fd < 0)
        return false;
    bool good = file_write(fd, bytes, n) && fstat(fd, &st) == 0 &&
                (st.st_size == (off_t)n || ftruncate(fd, (off_t)n) == 0) && fsync(fd) == 0;
    int code = errno;
    if (close(fd) != 0 && good) {
        good = false;
        code = errno;
    }
    errno = code;
    return good;
}

ssize_t esp_read(const char *path, uint8_t *bytes, size_t cap)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd = open_file(path, O_RDONLY);
    if (fd < 0)
        return -1;
    do {
        n = read(fd, bytes + len, cap - len);
        if (n > 0)
            len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int code = errno;
    close(fd);
    errno = code;
    return n < 0 ? -1 : (ssize_t)len;
}
