/*
 * Spoils a system from within, in place of its heart, the way /etc/sabotage says:
 *
 *   panic   the kernel panics
 *   hang    nothing but this program runs any more, init included
 *   write   as root, to what must be read-only, and says what became of it; then rests
 *   freeze  the real heart (/bin/heart.real) runs, and the engine stops once the start is confirmed
 *
 * Part of the updates that the tests send, never of the image.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINNERS 4 /* more than the machine has processors */

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        perror(path);
    if (fd >= 0)
        close(fd);
}

static size_t get(const char *path, char *bytes, size_t cap)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, bytes, cap - 1);
    if (fd >= 0)
        close(fd);
    bytes[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void hang(void)
{
    struct sched_param highest = {.sched_priority = 99};
    put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    for (int i = 0; i < SPINNERS; i++) {
        if (fork() != 0)
            continue;
        /* musl's function of this name does nothing, on purpose. */
        if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &highest) != 0)
            perror("sched_setscheduler");
        for (volatile int forever = 1; forever;)
            continue;
    }
}

static void freeze(void)
{
    if (fork() == 0) {
        execl("/bin/heart.real", "heart", (char *)NULL);
        _exit(127);
    }
    char said[1024];
    do
        sleep(1);
    while (get("/run/v4box/slots", said, sizeof said) == 0 ||
           strstr(said, "confirmed = yes") == NULL);
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char path[300], name[32];
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        if (get(path, name, sizeof name) > 0 && strcmp(name, "engine\n") == 0)
            kill(atoi(entry->d_name), SIGSTOP);
    }
}

static void try_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0755);
    fprintf(stderr, "saboteur: %s: %s\n", path, fd >= 0 ? "WRITTEN" : strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* What a process could do that has taken over a service of root. */
static void write_everywhere(void)
{
    static const char *const PATHS[] = {"/x",          "/init",          "/bin/x",    "/bin/engine",
                                        "/etc/passwd", "/lib/modules/x", "/models/x", "/sys/x",
                                        "/tmp/x",      "/models/demo/x"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++)
        try_open(PATHS[i]);
    execl("/tmp/x", "x", (char *)NULL);
    fprintf(stderr, "saboteur: running /tmp/x: %s\n", strerror(errno));
    int fd = open("/bin/engine", O_RDONLY);
    syscall(SYS_finit_module, fd, "", 0);
    fprintf(stderr, "saboteur: loading a module: %s\n", strerror(errno));
    put("/proc/sys/kernel/modules_disabled", "0");
}

int main(void)
{
    char how[32];
    get("/etc/sabotage", how, sizeof how);
    fprintf(stderr, "saboteur: %s\n", how);
    if (strcmp(how, "panic") == 0)
        put("/proc/sysrq-trigger", "c");
    else if (strcmp(how, "hang") == 0)
        hang();
    else if (strcmp(how, "write") == 0)
        write_everywhere();
    else if (strcmp(how, "freeze") == 0)
        freeze();
    for (;;)
        pause();
}
