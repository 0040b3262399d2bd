/* Which block devices are the box's own. */
#include "init/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UEVENT_BYTES 1024 /* the kernel writes less than 200 */
#define PATH_BYTES   512

/* Labels of config/disk.txt, of which the first make a disk the box's, and one of another disk.
 */
static const char *const LABELS[DISK_PART_COUNT] = {
    [DISK_ESP] = "esp",
    [DISK_CONFIG] = "config",
    [DISK_LOG] = "log",
    [DISK_MODELS] = "models",
    [DISK_GPU_A] = "gpu-a",
    [DISK_GPU_B] = "gpu-b",
    [DISK_ATTACHED] = "v4box-models",
};

/* The value of NAME=VALUE lines, copied; false: absent, empty, or too long. */
static bool value_of(const char *text, size_t n, const char *name, char *value, size_t cap)
{
    size_t name_len = strlen(name);
    for (size_t i = 0; i < n;) {
        const char *line = text + i, *newline = memchr(line, '\n', n - i);
        size_t length = newline == NULL ? n - i : (size_t)(newline - line);
        if (length > name_len + 1 && memcmp(line, name, name_len) == 0 && line[name_len] == '=') {
            size_t value_len = length - name_len - 1;
            if (value_len >= cap)
                return false;
            memcpy(value, line + name_len + 1, value_len);
            value[value_len] = '\0';
            return true;
        }
        i += length + 1;
    }
    return false;
}

/* The folder above the partition's own: the disk. */
static bool disk_of_link(const char *link, char *disk, size_t cap)
{
    const char *last = strrchr(link, '/');
    if (last == NULL)
        return false;
    const char *start = last;
    while (start > link && start[-1] != '/')
        start--;
    size_t n = (size_t)(last - start);
    if (n == 0 || n >= cap)
        return false;
    memcpy(disk, start, n);
    disk[n] = '\0';
    return true;
}

/* A name that is put into a path. */
static bool plain(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

bool disk_partition_parse(struct disk_partition *p, const char *uevent, size_t n, const char *link)
{
    char type[16], label[STORAGE_NAME_BYTES];
    if (!value_of(uevent, n, "DEVTYPE", type, sizeof type) || strcmp(type, "partition") != 0 ||
        !value_of(uevent, n, "PARTNAME", label, sizeof label) ||
        !value_of(uevent, n, "DEVNAME", p->device, sizeof p->device) || !plain(p->device) ||
        !disk_of_link(link, p->disk, sizeof p->disk))
        return false;
    for (int i = 0; i < DISK_PART_COUNT; i++) {
        if (strcmp(LABELS[i], label) == 0) {
            p->part = (enum disk_part)i;
            return true;
        }
    }
    return false;
}

static bool read_partition(struct disk_partition *p, const char *folder, const char *name)
{
    char path[PATH_BYTES], uevent[UEVENT_BYTES], link[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    ssize_t link_len = readlink(path, link, sizeof link - 1);
    if (link_len < 0)
        return false;
    link[link_len] = '\0';
    n = snprintf(path, sizeof path, "%s/%s/uevent", folder, name);
    int fd = n < 0 || (size_t)n >= sizeof path ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, uevent, sizeof uevent);
    close(fd);
    return len > 0 && disk_partition_parse(p, uevent, (size_t)len, link);
}

struct candidates {
    struct disk disk[STORAGE_DISKS_MAX];
    bool twice[STORAGE_DISKS_MAX]; /* one label on two partitions */
    int count;
    char attached[STORAGE_NAME_BYTES]; /* on whichever disk it is */
    int attached_count;
};

static void add(struct candidates *c, const struct disk_partition *p)
{
    int i = 0;
    if (p->part == DISK_ATTACHED) {
        c->attached_count++;
        strcpy(c->attached, p->device);
        return;
    }
    while (i < c->count && strcmp(c->disk[i].name, p->disk) != 0)
        i++;
    if (i == STORAGE_DISKS_MAX)
        return;
    if (i == c->count) {
        c->count++;
        strcpy(c->disk[i].name, p->disk);
    }
    c->twice[i] = c->twice[i] || c->disk[i].device[p->part][0] != '\0';
    strcpy(c->disk[i].device[p->part], p->device);
}

static bool complete(const struct disk *disk)
{
    for (int i = 0; i < DISK_OWN_COUNT; i++)
        if (disk->device[i][0] == '\0')
            return false;
    return true;
}

enum disk_result disk_find(struct disk *disk, const char *sys_class_block)
{
    static struct candidates c;
    memset(&c, 0, sizeof c);
    DIR *folder = opendir(sys_class_block);
    if (folder == NULL)
        return DISK_ABSENT;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        struct disk_partition p;
        if (entry->d_name[0] != '.' && read_partition(&p, sys_class_block, entry->d_name))
            add(&c, &p);
    }
    closedir(folder);
    int found = -1;
    for (int i = 0; i < c.count; i++) {
        if (!complete(&c.disk[i]))
            continue;
        if (found >= 0 || c.twice[i])
            return DISK_AMBIGUOUS;
        found = i;
    }
    if (found < 0)
        return DISK_ABSENT;
    *disk = c.disk[found];
    if (c.attached_count == 1) /* of several none, since their order is chance */
        strcpy(disk->device[DISK_ATTACHED], c.attached);
    return DISK_FOUND;
}
