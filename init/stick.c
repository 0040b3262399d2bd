/* A file on a USB stick. */
#include "init/stick.h"

#include "init/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYS_CLASS_BLOCK "/sys/class/block"
#define ON_USB          "/usb" /* a folder of every way to a device on USB: .../usb2/2-1/... */
#define MOUNT           "/run/stick"
#define PATH_BYTES      512

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_on_usb(const char *folder, const char *name)
{
    char path[PATH_BYTES], link[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n < 0)
        return false;
    link[n] = '\0';
    return strstr(link, ON_USB) != NULL;
}

int stick_find(char device[STORAGE_DISKS_MAX][STORAGE_NAME_BYTES], const char *sys_class_block)
{
    DIR *folder = opendir(sys_class_block);
    struct dirent *entry;
    int count = 0;
    if (folder == NULL)
        return 0;
    while (count < STORAGE_DISKS_MAX && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= STORAGE_NAME_BYTES ||
            !is_on_usb(sys_class_block, entry->d_name))
            continue;
        strcpy(device[count++], entry->d_name);
    }
    closedir(folder);
    qsort(device, (size_t)count, sizeof device[0], by_name);
    return count;
}

/* The mount goes with the file: what is open keeps it, and nobody finds it by a name. */
static int open_on(const char *device, const char *name)
{
    char path[PATH_BYTES];
    off_t size;
    snprintf(path, sizeof path, "/dev/%s", device);
    if ((mkdir(MOUNT, 0700) != 0 && errno != EEXIST) ||
        mount(path, MOUNT, "vfat", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW,
              "umask=0077") != 0)
        return -1;
    snprintf(path, sizeof path, MOUNT "/%s", name);
    int fd = file_open(path, O_RDONLY, &size);
    umount2(MOUNT, MNT_DETACH);
    return fd;
}

int stick_open(const char *name)
{
    static char device[STORAGE_DISKS_MAX][STORAGE_NAME_BYTES];
    int count = stick_find(device, SYS_CLASS_BLOCK), fd = -1;
    for (int i = 0; i < count && fd < 0; i++)
        fd = open_on(device[i], name);
    return fd;
}
