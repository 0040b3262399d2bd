/* What outlives a reboot. */
#include "init/storage.h"

#include "config/box.h"
#include "init/format.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYS_CLASS_BLOCK "/sys/class/block"
#define MOUNT_FLAGS     (MS_NOSUID | MS_NODEV | MS_NOEXEC)
#define DEVICE_BYTES    (sizeof "/dev/" + STORAGE_NAME_BYTES)

/* data=journal: a file's new content is in the journal before its name points to it, and the
   journal is replayed by mounting.  So a power cut needs no fsck, and the image has none: what a
   replay can not mend is damage of the disk, which is told and ends with a reset. */
static const struct mount_spec {
    enum disk_part part;
    const char *name, *path, *data;
    unsigned long flags;
    bool format;  /* when blank */
    bool guarded; /* written only by who lifts that for himself; everybody else reads */
} CONFIG = {DISK_CONFIG, "config", BOX_CONFIG, "data=journal,errors=remount-ro",
            MOUNT_FLAGS, true,     false},
  LOG = {DISK_LOG, "log", BOX_LOG, "errors=remount-ro", MOUNT_FLAGS, true, false},
  MODELS = {DISK_MODELS, "models", BOX_MODELS, "errors=remount-ro", MOUNT_FLAGS, false, true},
  /* Nothing is written to somebody's disk, its journal included. */
    ATTACHED = {DISK_ATTACHED,           "attached", BOX_ATTACHED, "noload",
                MOUNT_FLAGS | MS_RDONLY, false,      false};

const char *storage_place_name(enum storage_place place)
{
    static const char *const NAMES[] = {
        [STORAGE_UNUSED] = "memory",
        [STORAGE_DISK] = "disk",
        [STORAGE_MISSING] = "missing",
        [STORAGE_BROKEN] = "broken",
    };
    return NAMES[place];
}

void storage_note(struct storage *s, struct journal *journal, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    journal_printf(journal, "init", "%s", line);
    text_printf(&s->notes, "%s\n", line);
}

static enum disk_result wait_for_disk(struct disk *disk)
{
    int64_t end_ms = clock_ms() + STORAGE_WAIT_MS;
    for (;;) {
        enum disk_result result = disk_find(disk, SYS_CLASS_BLOCK);
        if (result != DISK_ABSENT || clock_ms() >= end_ms)
            return result;
        usleep(STORAGE_POLL_MS * 1000);
    }
}

static void device_path(const struct disk *disk, enum disk_part part, char path[DEVICE_BYTES])
{
    snprintf(path, DEVICE_BYTES, "/dev/%s", disk->device[part]);
}

/* In a child, since a dying disk can hold up a call for minutes: exit code 0, or an errno. */
_Noreturn static void prepare(const struct mount_spec *spec, const char *device)
{
    if (spec->format && format_is_blank(device) && !format_device(device, BOX_CONFIG_FORMAT))
        _exit(errno);
    _exit(mount(device, BOX_STAGE, "ext4", spec->flags, spec->data) == 0 ? 0 : errno);
}

/* Waits for a child until the time is over; its exit code, or ETIMEDOUT. */
static int code_of(pid_t pid)
{
    int64_t end_ms = clock_ms() + STORAGE_MOUNT_MS;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_ms() >= end_ms) {
            kill(pid, SIGKILL); /* reaped with the orphans, whenever the kernel lets go of it */
            return ETIMEDOUT;
        }
        usleep(STORAGE_POLL_MS * 100);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* Mounts beside, then moves: a mount that comes after its time is nowhere in the way. */
static int attach(const struct disk *disk, const struct mount_spec *spec)
{
    char device[DEVICE_BYTES];
    device_path(disk, spec->part, device);
    if (mkdir(BOX_STAGE, 0700) != 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0)
        prepare(spec, device);
    int code = pid < 0 ? errno : code_of(pid);
    if (code == 0 && mount(BOX_STAGE, spec->path, NULL, MS_MOVE, NULL) != 0)
        code = errno;
    if (code == 0 && spec->guarded &&
        mount(NULL, spec->path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | spec->flags, NULL) != 0)
        code = errno;
    rmdir(BOX_STAGE);
    return code;
}

static enum storage_place place_of(struct storage *s, struct journal *journal,
                                   const struct mount_spec *spec, const char *remedy)
{
    int code = attach(&s->disk, spec);
    if (code == 0)
        return STORAGE_DISK;
    storage_note(s, journal, "the %s partition %s can not be used: %s; %s", spec->name,
                 s->disk.device[spec->part], strerror(code), remedy);
    return STORAGE_BROKEN;
}

bool storage_open(struct storage *s, struct journal *journal, bool wanted)
{
    *s = (struct storage){.config = STORAGE_UNUSED,
                          .models = STORAGE_UNUSED,
                          .log = STORAGE_UNUSED,
                          .attached = STORAGE_UNUSED};
    s->notes = text_over(s->bytes, sizeof s->bytes);
    enum disk_result result = wanted ? wait_for_disk(&s->disk) : DISK_ABSENT;
    s->has_disk = result == DISK_FOUND;
    if (wanted && !s->has_disk) {
        s->config = s->models = s->log = STORAGE_MISSING;
        storage_note(s, journal, "%s; nothing that is changed now outlives a reboot",
                     result == DISK_AMBIGUOUS
                         ? "two disks have the partitions of a box: take one out"
                         : "no disk has the partitions of a box");
    }
    if (s->has_disk) {
        s->config =
            place_of(s, journal, &CONFIG, "defaults hold until a factory-reset makes a new one");
        s->log = place_of(s, journal, &LOG, "the log ends with each start until a factory-reset");
        s->models = place_of(s, journal, &MODELS, "there is no model until one is put there");
    }
    bool good = s->notes.len == 0;
    if (s->config != STORAGE_DISK)
        good = mount("tmpfs", BOX_CONFIG, "tmpfs", MOUNT_FLAGS, "mode=0755,size=4m") == 0 && good;
    return good;
}

bool storage_attach(struct storage *s, struct journal *journal, int wait_ms)
{
    int64_t end_ms = clock_ms() + wait_ms;
    while (s->has_disk && s->disk.device[DISK_ATTACHED][0] == '\0' && clock_ms() < end_ms) {
        struct disk disk;
        if (disk_find(&disk, SYS_CLASS_BLOCK) == DISK_FOUND)
            s->disk = disk;
        usleep(STORAGE_POLL_MS * 1000);
    }
    if (!s->has_disk || s->disk.device[DISK_ATTACHED][0] == '\0' || s->attached == STORAGE_DISK)
        return s->attached == STORAGE_DISK;
    s->attached = place_of(s, journal, &ATTACHED, "its models are not there");
    return s->attached == STORAGE_DISK;
}

/* Whoever still holds a file there has been killed by now; what can not be unmounted is synced. */
void storage_close(struct storage *s)
{
    const struct {
        enum storage_place place;
        const char *path;
    } PARTS[] = {{s->config, BOX_CONFIG}, {s->log, BOX_LOG}, {s->models, BOX_MODELS}};
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++)
        if (PARTS[i].place == STORAGE_DISK && umount2(PARTS[i].path, 0) != 0)
            sync();
}

bool storage_reset(const struct storage *s)
{
    char device[DEVICE_BYTES];
    if (!s->has_disk)
        return false;
    device_path(&s->disk, DISK_CONFIG, device);
    bool good = format_device(device, BOX_CONFIG_FORMAT);
    device_path(&s->disk, DISK_LOG, device);
    return format_device(device, BOX_CONFIG_FORMAT) && good;
}
