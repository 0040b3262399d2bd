/* The GPU payload. */
#include "init/gpu.h"

#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEVICE_BYTES  (sizeof "/dev/" + STORAGE_NAME_BYTES)
#define ROOT_BYTES    256
#define DEVICES_BYTES 8192 /* of /proc/devices: 800 on a server */
/* Linux' list of devices: NVIDIA's cards are 195, of which the last minor is the driver itself. */
#define NVIDIA_MAJOR   195
#define NVIDIA_CONTROL 255

static bool mount_payload(struct gpu *g, const char *name, struct text *note)
{
    char device[DEVICE_BYTES], mapped[DEVICE_BYTES];
    uint64_t bad;
    snprintf(device, sizeof device, "/dev/%s", name);
    if (!verity_open(&g->verity, device, mapped, sizeof mapped)) {
        text_printf(note, "the GPU payload on %s can not be opened: %s\n", name, strerror(errno));
        return false;
    }
    if (!verity_read_all(&g->verity, mapped, &bad)) {
        text_printf(
            note, "the GPU payload on %s is not the one of this system, or damaged, at byte %llu\n",
            name, (unsigned long long)bad);
    } else if (mount(mapped, BOX_GPU, "erofs", MS_RDONLY | MS_NOSUID | MS_NODEV, "") != 0) {
        text_printf(note, "the GPU payload on %s can not be mounted: %s\n", name, strerror(errno));
    } else {
        snprintf(g->device, sizeof g->device, "%s", name);
        return true;
    }
    verity_close();
    return false;
}

bool gpu_open(struct gpu *g, const struct disk *disk, int slot, struct text *note)
{
    char text[ROOT_BYTES];
    *g = (struct gpu){.wanted = false};
    ssize_t n = file_load(BOX_GPU_ROOT, text, sizeof text);
    if (n < 0)
        return errno == ENOENT;
    g->wanted = true;
    if (!verity_parse(&g->verity, text, (size_t)n)) {
        text_printf(note, "%s is malformed; the engine computes on the processor\n", BOX_GPU_ROOT);
        return false;
    }
    for (int i = 0; i < 2 && !g->ready; i++) {
        const char *name = disk->device[DISK_GPU_A + ((slot == 1) ^ (i == 1))];
        if (name[0] != '\0')
            g->ready = mount_payload(g, name, note);
    }
    if (!g->ready)
        text_printf(note,
                    "no GPU payload: the engine computes on the processor; write the image again, "
                    "or roll back\n");
    return g->ready;
}

int gpu_major(const char *devices, size_t n, const char *name)
{
    for (size_t i = 0; i < n;) {
        const char *line = devices + i, *newline = memchr(line, '\n', n - i);
        size_t length = newline == NULL ? n - i : (size_t)(newline - line);
        char text[64];
        int major, end = 0;
        snprintf(text, sizeof text, "%.*s", (int)length, line);
        if (sscanf(text, "%d %n", &major, &end) == 1 && end > 0 && strcmp(text + end, name) == 0)
            return major;
        i += length + 1;
        if (strncmp(text, "Block devices", strlen("Block devices")) == 0)
            break;
    }
    return -1;
}

static bool node(const char *path, int major, int minor, uid_t owner)
{
    return (mknod(path, S_IFCHR | 0600, makedev((unsigned)major, (unsigned)minor)) == 0 ||
            errno == EEXIST) &&
           chown(path, owner, owner) == 0;
}

bool gpu_make_nodes(uid_t owner)
{
    char text[DEVICES_BYTES], path[64];
    int fd = open("/proc/devices", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    int uvm = n < 0 ? -1 : gpu_major(text, (size_t)n, "nvidia-uvm");
    bool good = uvm >= 0 && node("/dev/nvidiactl", NVIDIA_MAJOR, NVIDIA_CONTROL, owner) &&
                node("/dev/nvidia-uvm", uvm, 0, owner) &&
                node("/dev/nvidia-uvm-tools", uvm, 1, owner);
    for (int i = 0; i < BOX_GPUS_MAX && good; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        good = node(path, NVIDIA_MAJOR, i, owner);
    }
    return good;
}
