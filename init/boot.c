/* The steps of the boot that are not services. */
#include "init/boot.h"

#include "config/box.h"
#include "init/confine.h"
#include "init/files.h"
#include "init/loading.h"
#include "init/network.h"
#include "init/panic.h"
#include "init/site.h"
#include "init/stored.h"
#include "init/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TTY_GROUP "5" /* of rootfs/etc/group; devpts gives terminals to it */

static const struct {
    const char *type, *path;
    unsigned long flags;
    const char *data;
    mode_t mode;
} MOUNTS[] = {
    {"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "", 0555},
    {"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, "", 0555},
    {"devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755", 0755},
    {"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666,gid=" TTY_GROUP, 0755},
    {"tmpfs", "/run", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=16m", 0755},
    {"tmpfs", "/tmp", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=16m", 0755},
};

static bool step_mounts(struct box *box)
{
    (void)box;
    for (size_t i = 0; i < sizeof MOUNTS / sizeof MOUNTS[0]; i++) {
        if (mkdir(MOUNTS[i].path, MOUNTS[i].mode) != 0 && errno != EEXIST)
            return false;
        if (mount(MOUNTS[i].type, MOUNTS[i].path, MOUNTS[i].type, MOUNTS[i].flags,
                  MOUNTS[i].data) != 0 &&
            errno != EBUSY) /* the kernel has mounted devtmpfs by itself */
            panic("cannot mount %s: %s", MOUNTS[i].path, strerror(errno));
    }
    return true;
}

/* The kernel gives PID 1 a console only when the image has the node; from here on there is one. */
static bool step_console(struct box *box)
{
    int fd = open("/dev/console", O_RDWR | O_NOCTTY);
    if (fd < 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (fd != i && dup2(fd, i) < 0)
            return false;
    if (fd > 2)
        close(fd);
    box->journal.echo_fd = STDOUT_FILENO;
    return true;
}

/* Reads a small file of the kernel or the image; 0 bytes when it is absent. */
static size_t read_small(const char *path, char *bytes, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, bytes, cap);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

static bool write_small(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

static bool step_options(struct box *box)
{
    char cmdline[BOOT_CMDLINE_BYTES], complaints[BOOT_CMDLINE_BYTES];
    struct text t = text_over(complaints, sizeof complaints);
    size_t n = read_small("/proc/cmdline", cmdline, sizeof cmdline);
    options_parse(&box->options, cmdline, n, &t);
    for (char *line = strtok(t.data, "\n"); line != NULL; line = strtok(NULL, "\n"))
        journal_line(&box->journal, "init", line, strlen(line));
    return n > 0;
}

/* The kernel's errno, 0: it has taken it. */
static int load_module(int fd)
{
    return syscall(SYS_finit_module, fd, "", 0) == 0 ? 0 : errno;
}

/* Each line is something that people must know. */
static void note_lines(struct box *box, char *lines)
{
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n"))
        storage_note(&box->storage, &box->journal, "%s", line);
}

/* Loads the modules of a list, a path a line; how many faults there were, -1: no list. */
static int load_list(struct box *box, const char *path_of_list)
{
    static char list[BOOT_MODULES_MAX * 128];
    size_t n = read_small(path_of_list, list, sizeof list - 1);
    struct loading loading = {.wanted = 0};
    list[n] = '\0';
    for (char *path = strtok(list, "\n"); path != NULL; path = strtok(NULL, "\n")) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        const char *said = loading_count(&loading, fd >= 0, fd < 0 ? 0 : load_module(fd));
        if (fd >= 0)
            close(fd);
        if (said != NULL)
            journal_printf(&box->journal, "init", "%s: %s", path, said);
    }
    journal_printf(&box->journal, "init", "modules: %d of %d", loading.loaded, loading.wanted);
    return n > 0 ? loading.faults : -1;
}

static bool step_modules(struct box *box)
{
    return load_list(box, BOX_MODULES) >= 0;
}

/* Everything that is ever loaded is loaded before the seal. */
static bool step_gpu(struct box *box)
{
    char bytes[BOOT_NOTE_BYTES] = "";
    struct text note = text_over(bytes, sizeof bytes);
    bool good =
        gpu_open(&box->gpu, &box->storage.disk, box->slots.known ? box->slots.running : 0, &note);
    if (!box->gpu.ready) {
        note_lines(box, bytes);
        return good;
    }
    if (note.len >
        0) /* the partition of the other slot may be of another driver, and is no fault */
        journal_printf(&box->journal, "init", "%s", bytes);
    journal_printf(&box->journal, "init", "gpu: driver %s, whole, on %s", box->gpu.verity.version,
                   box->gpu.device);
    box->gpu.sound =
        write_small("/sys/module/firmware_class/parameters/path", BOX_GPU "/firmware") &&
        load_list(box, BOX_GPU_MODULES) == 0;
    good = box->gpu.sound && gpu_make_nodes(BOX_UID_ENGINE);
    if (good)
        box->options.value[OPTION_WORKER] = BOX_GPU_WORKER;
    return good;
}

/* Defaults hold where the file can not be used; check_stored has put back what it could. */
static bool step_settings(struct box *box)
{
    bool good = netplan_open(&box->net, BOX_SETTINGS);
    const char *name = box->net.now.value[SETTING_HOSTNAME];
    if (strcmp(box->net.now.value[SETTING_METRICS], "open") == 0)
        box->options.value[OPTION_METRICS] = BOX_METRICS_NET;
    return sethostname(name, strlen(name)) == 0 && good;
}

/* Another disk's models are looked for in any case, and waited for when one of them must serve. */
static bool step_model(struct box *box)
{
    const char *name = box->net.now.value[SETTING_MODEL];
    int size = (int)sizeof box->model_folder;
    modelplan_init(&box->model, name);
    box->options.value[OPTION_MODEL] = box->model_folder;
    bool here = modelplan_find(name, box->model_folder, size) || strcmp(name, BOX_MODEL_NAME) == 0;
    storage_attach(&box->storage, &box->journal, here ? 0 : STORAGE_WAIT_MS);
    if (modelplan_find(name, box->model_folder, size))
        return true;
    snprintf(box->model_folder, sizeof box->model_folder, BOX_MODELS "/%s", name);
    storage_note(&box->storage, &box->journal,
                 "there is no model %s; `model list` says what there is, `model use` takes another",
                 name);
    return false;
}

static bool step_network(struct box *box)
{
    (void)box;
    return network_loopback() && network_wait(BOX_INTERFACE, BOOT_INTERFACE_WAIT_MS);
}

static bool step_storage(struct box *box)
{
    bool wanted = strcmp(box->options.value[OPTION_STORAGE], "disk") == 0;
    return storage_open(&box->storage, &box->journal, wanted);
}

/* A machine without one is none the worse at its work. */
static bool step_watchdog(struct box *box)
{
    if (watchdog_open(&box->watchdog, WATCHDOG_DEVICE))
        journal_printf(&box->journal, "init", "watchdog: %d s", WATCHDOG_S);
    else if (box->watchdog.fd >= 0)
        journal_printf(&box->journal, "init", "watchdog: does not take %d s: %s", WATCHDOG_S,
                       strerror(errno));
    watchdog_keep(&box->watchdog, WATCHDOG_FEED_MS, WATCHDOG_BOOT_MS);
    return true;
}

/* A kernel started directly, or from another disk, has no slots, and nothing to fall back to. */
static bool step_slots(struct box *box)
{
    char folder[64], bytes[BOOT_NOTE_BYTES] = "";
    struct text note = text_over(bytes, sizeof bytes);
    if (!box->storage.has_disk || access(EFI_VARIABLES, F_OK) != 0)
        return true;
    if (mount("efivarfs", EFI_VARIABLES, "efivarfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "") != 0)
        return false;
    snprintf(folder, sizeof folder, "/sys/class/block/%s", box->storage.disk.device[DISK_ESP]);
    bool good = slots_open(&box->slots, EFI_VARIABLES, folder, BOX_STARTS, &note);
    note_lines(box, bytes);
    if (!box->slots.known)
        return true;
    journal_printf(&box->journal, "init", "slot %c, good is %c, start %d without a good end",
                   slot_letter(box->slots.running), slot_letter(box->slots.good),
                   box->slots.state.tries);
    if (box->slots.rescue)
        storage_note(&box->storage, &box->journal,
                     "RESCUE: %d starts went wrong; network and SSH, but no engine; `reboot` tries "
                     "again, `rollback` and `update` change the system",
                     BOOT_TRIES_MAX);
    return good;
}

/* What the config partition may hold, each looked at before anybody uses it. */
static const struct {
    struct stored file;
    const char *lost; /* what follows when it is gone */
} STORED[] = {
    {{"keys", BOX_KEYS, BOX_UID_ENGINE, stored_keys_good}, "the API is closed to all old keys"},
    {{"authorized_keys", BOX_AUTHORIZED, BOX_UID_ROOT, stored_authorized_good},
     "nobody gets in over SSH"},
    {{"settings", BOX_SETTINGS, BOX_UID_ROOT, settings_good}, "defaults hold"},
    {{"ssh_host_key", BOX_HOST_KEY, BOX_UID_ROOT, stored_host_key_good},
     "SSH clients will see a new one"},
};

static bool check_stored(struct box *box)
{
    bool good = true;
    for (size_t i = 0; i < sizeof STORED / sizeof STORED[0]; i++) {
        enum stored_result result = stored_check(&STORED[i].file, BOX_CONFIG_GOOD);
        if (result == STORED_GOOD || result == STORED_ABSENT)
            continue;
        good = false;
        if (result == STORED_RESTORED)
            storage_note(&box->storage, &box->journal,
                         "config: %s was damaged; the copy of an earlier boot took its place",
                         STORED[i].file.name);
        else
            storage_note(&box->storage, &box->journal, "config: %s was damaged, without a copy: %s",
                         STORED[i].file.name, STORED[i].lost);
    }
    return good;
}

/* The place seeds a box that has nothing of its own; what the box keeps goes first. */
static bool import(struct box *box, const char *name, const char *to, uid_t owner)
{
    char from[256];
    if (access(to, F_OK) == 0)
        return true;
    snprintf(from, sizeof from, "%s/%s/raw", BOX_FW_CFG, name);
    enum site_result result = site_copy(from, to, owner);
    if (result == SITE_REFUSED)
        journal_printf(&box->journal, "init", "site data '%s' refused", name);
    return result != SITE_REFUSED;
}

/* Sticky: the engine keeps its sockets there and can not remove init's. */
static bool step_folders(struct box *box)
{
    (void)box;
    return mkdir(BOX_RUN, 0755) == 0 && chown(BOX_RUN, BOX_UID_ROOT, BOX_UID_ENGINE) == 0 &&
           chmod(BOX_RUN, 01775) == 0 && folder_make(FRONT_RUN, 0700, BOX_UID_FRONT) &&
           folder_make(BOX_CONFIG_ENGINE, 0700, BOX_UID_ENGINE) &&
           folder_make(BOX_AUDITS, 0700, BOX_UID_ENGINE) &&
           folder_make(BOX_ADMIN_HOME, 0700, BOX_UID_ROOT) &&
           folder_make(BOX_ADMIN_SSH, 0700, BOX_UID_ROOT) &&
           folder_make(BOX_CONFIG_GOOD, 0700, BOX_UID_ROOT);
}

static bool step_site(struct box *box)
{
    bool stored = check_stored(box);
    bool keys = import(box, "keys", BOX_KEYS, BOX_UID_ENGINE);
    bool authorized = import(box, "authorized_keys", BOX_AUTHORIZED, BOX_UID_ROOT);
    box->has_authorized = access(BOX_AUTHORIZED, F_OK) == 0;
    return stored && keys && authorized;
}

struct speaker {
    struct box *box;
    const char *name;
};

static void say_line(void *context, const char *line, size_t n)
{
    struct speaker *speaker = context;
    journal_line(&speaker->box->journal, speaker->name, line, n);
}

/* Reads a program's output until it ends or the time is over; true when it ended. */
static bool listen_to(struct box *box, const char *name, int fd, int64_t end_ms)
{
    struct speaker speaker = {box, name};
    struct line_splitter lines = {.len = 0};
    char bytes[512];
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_ms - clock_ms();
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) < 0)
            return false;
        ssize_t n = wait.revents != 0 ? read(fd, bytes, sizeof bytes) : -1;
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        line_splitter_feed(&lines, bytes, (size_t)n, say_line, &speaker);
    }
}

/* Runs a program as `uid` with its output in the journal; true when it ended well. */
static bool run_program(struct box *box, uid_t uid, const char *name, const char *path,
                        const char *const argv[])
{
    int ends[2], status = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        if (confine_user(uid) == 0)
            execv(path, (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    bool good = pid > 0 && listen_to(box, name, ends[0], clock_ms() + BOOT_HOST_KEY_MS);
    close(ends[0]);
    if (pid > 0) {
        if (!good)
            kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    return good && status == 0;
}

static bool dropbearkey(struct box *box, const char *option, const char *value, const char *path)
{
    const char *const argv[] = {"dropbearkey", "-f", path, option, value, NULL};
    return run_program(box, BOX_UID_ROOT, "ssh", "/bin/dropbearkey", argv);
}

/* Looked at by its owner; a file that PID 1 did not parse can not harm it. */
static bool step_certificate(struct box *box)
{
    const char *const argv[] = {"tls", "boot", NULL};
    folder_make(BOX_TLS, 0700, BOX_UID_FRONT); /* a full disk has no room for it */
    box->has_certificate = run_program(box, BOX_UID_FRONT, "tls", "/bin/tls", argv);
    return box->has_certificate;
}

/* Made once, in memory, and stored as a whole; its fingerprint stands in the log of every boot. */
static bool step_host_key(struct box *box)
{
    static const char FRESH[] = BOX_RUN "/ssh_host_key";
    char bytes[BOOT_HOST_KEY_BYTES];
    if (access(BOX_HOST_KEY, F_OK) == 0) {
        box->has_host_key = dropbearkey(box, "-y", NULL, BOX_HOST_KEY);
        return box->has_host_key;
    }
    if (!dropbearkey(box, "-t", "ed25519", FRESH))
        return false;
    ssize_t n = file_load(FRESH, bytes, sizeof bytes);
    box->has_host_key = n > 0 && file_save(BOX_HOST_KEY, bytes, (size_t)n, BOX_UID_ROOT);
    memset(bytes, 0, sizeof bytes);
    unlink(FRESH);
    return box->has_host_key;
}

static const struct {
    const char *path, *value;
} SEALS[] = {
    {"/proc/sys/kernel/modules_disabled", "1"}, /* for good: only a reboot lifts it */
    {"/proc/sys/kernel/kptr_restrict", "2"},
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "443"}, /* the front never was root */
    {"/proc/sys/kernel/dmesg_restrict", "1"},
    {"/proc/sys/kernel/sysrq",
     "176"}, /* a BREAK on the serial line: sync, read-only, reboot only */
};

/* From here on no module can be loaded, nothing in the image changed, and nobody leaves a core. */
static bool step_seal(struct box *box)
{
    struct rlimit none = {0, 0};
    bool sealed = setrlimit(RLIMIT_CORE, &none) == 0;
    for (size_t i = 0; i < sizeof SEALS / sizeof SEALS[0]; i++) {
        if (write_small(SEALS[i].path, SEALS[i].value))
            continue;
        journal_printf(&box->journal, "init", "%s: %s", SEALS[i].path, strerror(errno));
        sealed = false;
    }
    return mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0 && sealed;
}

static const struct {
    const char *name;
    bool (*run)(struct box *box);
    bool vital;
} STEPS[] = {
    {"mounts", step_mounts, true},
    {"console", step_console, false},
    {"options", step_options, false},
    {"modules", step_modules, false},
    {"watchdog", step_watchdog, false},
    {"storage", step_storage, false},
    {"folders", step_folders, false},
    {"slots", step_slots, false},
    {"network card", step_network, false},
    {"site data", step_site, false},
    {"settings", step_settings, false},
    {"model", step_model, false},
    {"gpu", step_gpu, false},
    {"ssh host key", step_host_key, false},
    {"certificate", step_certificate, false},
    {"seal", step_seal, true},
};

void boot_run(struct box *box)
{
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        errno = 0;
        bool good = STEPS[i].run(box);
        PANIC_UNLESS(good || !STEPS[i].vital, "boot step '%s' failed: %s", STEPS[i].name,
                     strerror(errno));
        journal_printf(&box->journal, "init", "%s: %s", STEPS[i].name,
                       good ? "ok" : "FAILED, going on without");
    }
    watchdog_release(&box->watchdog);
}
