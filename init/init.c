/*
 * PID 1: boots, keeps the services alive, answers on the control socket, and ends the machine.
 * Everything it knows is in config/; it parses no network input.  Called dhcp-event, the same
 * program is udhcpc's helper.
 */
#include "config/box.h"
#include "config/version.h"
#include "init/boot.h"
#include "init/control.h"
#include "init/network.h"
#include "init/panic.h"
#include "init/sshkeys.h"
#include "init/status.h"
#include "init/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGV(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define FILES(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SERVICE(name, policy, condition, output, uid, argv, ...)                                   \
    {name, policy, condition, output, uid, argv, __VA_ARGS__},
static const struct service_spec SERVICES[] = {
#include "config/services.def"
};
#undef SERVICE
#define SERVICE_COUNT ((int)(sizeof SERVICES / sizeof SERVICES[0]))

static struct box box;
static struct supervisor services;
static struct control control;
static int64_t boot_ms;
static int ending;     /* 0, or the argument for reboot() */
static bool resetting; /* on the way, config becomes new */

/* ---- commands of the control socket ------------------------------------------------------------
 */

static void say(struct text *answer, bool ok, const char *text)
{
    answer_write(answer, ok, text, strlen(text), NULL, 0);
}

static void command_status(const struct request *request, struct text *answer)
{
    (void)request;
    status_answer(answer, &services, &box.storage, boot_ms);
}

static void command_log(const struct request *request, struct text *answer)
{
    char *end = NULL;
    unsigned long count = LOG_LINES_DEFAULT;
    if (request->count == 2) {
        count = strtoul(request->word[1], &end, 10);
        if (*end != '\0' || request->word[1][0] < '0' || request->word[1][0] > '9' || count == 0 ||
            count > LOG_LINES_MAX) {
            say(answer, false, "log: a number of lines from 1 to 2000");
            return;
        }
    }
    log_answer(answer, &box.journal, count);
}

static void command_poweroff(const struct request *request, struct text *answer)
{
    (void)request;
    ending = RB_POWER_OFF;
    say(answer, true, "the box is shutting down\n");
}

static void command_reboot(const struct request *request, struct text *answer)
{
    (void)request;
    ending = RB_AUTOBOOT;
    say(answer, true, "the box is rebooting\n");
}

/* The word keeps a slip of the hand, or a line in a script, from erasing a box. */
static void command_factory_reset(const struct request *request, struct text *answer)
{
    if (request->count != 2 || strcmp(request->word[1], "erase") != 0) {
        say(answer, false,
            "erases API keys, SSH keys, host key and settings, keeps the models, and "
            "reboots; to do it: factory-reset erase");
        return;
    }
    if (!box.storage.has_disk) {
        say(answer, false, "there is no disk: a reboot forgets everything");
        return;
    }
    resetting = true;
    ending = RB_AUTOBOOT;
    say(answer, true, "the box starts anew\n");
}

/* SSH is not started on a box that nobody could log in to; the first key does. */
static void start_ssh(void)
{
    for (int i = 0; i < SERVICE_COUNT && box.has_host_key; i++)
        if (SERVICES[i].condition == WHEN_AUTHORIZED)
            supervisor_add(&services, &SERVICES[i]);
}

static void command_ssh_keys(const struct request *request, struct text *answer)
{
    static char bytes[BOOT_SITE_BYTES_MAX + 1];
    struct text t = text_over(bytes, sizeof bytes);
    const char(*word)[CONTROL_WORD_BYTES + 1] = request->word;
    const char *wrong = "ssh-keys list | add ssh-ed25519 KEY NAME | delete NAME";
    if (request->count == 2 && strcmp(word[1], "list") == 0)
        wrong = ssh_keys_list(BOX_AUTHORIZED, &t);
    else if (request->count == 5 && strcmp(word[1], "add") == 0)
        wrong = ssh_keys_add(BOX_AUTHORIZED, word[2], word[3], word[4]);
    else if (request->count == 3 && strcmp(word[1], "delete") == 0)
        wrong = ssh_keys_delete(BOX_AUTHORIZED, word[2]);
    if (wrong != NULL) {
        say(answer, false, wrong);
        return;
    }
    journal_printf(&box.journal, "init", "ssh-keys %s", word[1]);
    start_ssh();
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

static const struct {
    const char *name;
    void (*run)(const struct request *request, struct text *answer);
    int args_max;
} COMMANDS[] = {
    {"status", command_status, 0},
    {"log", command_log, 1},
    {"poweroff", command_poweroff, 0},
    {"reboot", command_reboot, 0},
    {"factory-reset", command_factory_reset, 1},
    {"ssh-keys", command_ssh_keys, 4},
};

static void handle(void *context, const struct request *request, struct text *answer)
{
    (void)context;
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strcmp(COMMANDS[i].name, request->word[0]) != 0)
            continue;
        if (request->count - 1 > COMMANDS[i].args_max)
            say(answer, false, "too many arguments");
        else
            COMMANDS[i].run(request, answer);
        return;
    }
    say(answer, false, "unknown command");
}

/* ---- the loop -----------------------------------------------------------------------------------
 */

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT); /* the kernel's Ctrl-Alt-Del, once RB_DISABLE_CAD is set */
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    PANIC_UNLESS(fd >= 0, "no signalfd");
    return fd;
}

static void take_signals(int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            supervisor_reap(&services);
        else
            ending = info.ssi_signo == SIGINT ? RB_AUTOBOOT : RB_POWER_OFF;
    }
}

static int sooner(int a_ms, int b_ms)
{
    return a_ms < 0 ? b_ms : b_ms < 0 ? a_ms : a_ms < b_ms ? a_ms : b_ms;
}

/* Waits for something to happen, at most `limit_ms` (-1: no limit), and serves it. */
static void turn(int signal_fd, int limit_ms)
{
    struct pollfd fds[1 + SERVICES_MAX + 1 + CONTROL_CLIENTS_MAX];
    int n_control = control_poll_fds(&control, fds + 1);
    int n = 1 + n_control + supervisor_poll_fds(&services, fds + 1 + n_control);
    fds[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    int wait_ms = sooner(supervisor_timers(&services), control_timers(&control));
    if (poll(fds, (nfds_t)n, sooner(wait_ms, limit_ms)) <= 0)
        return;
    for (int i = 1; i < n; i++) {
        if (fds[i].revents == 0)
            continue;
        if (i <= n_control)
            control_serve(&control, fds[i].fd);
        else
            supervisor_read(&services, fds[i].fd);
    }
    if (fds[0].revents != 0)
        take_signals(signal_fd);
}

/* Ends what still runs: the services by their states, then everything else, then the machine. */
_Noreturn static void end_machine(int signal_fd)
{
    int64_t end_ms = clock_ms() + SERVICE_STOP_MS + END_SETTLE_MS;
    turn(signal_fd, END_SETTLE_MS);
    control_close(&control);
    supervisor_stop(&services);
    while (!supervisor_idle(&services) && clock_ms() < end_ms)
        turn(signal_fd, END_SETTLE_MS);
    kill(-1, SIGTERM);
    usleep(END_SETTLE_MS * 1000);
    kill(-1, SIGKILL);
    storage_close(&box.storage);
    if (resetting && !storage_reset(&box.storage))
        dprintf(STDOUT_FILENO, "init: factory-reset failed: %s\r\n", strerror(errno));
    sync();
    reboot(ending);
    panic("the kernel refused to end");
}

static bool wanted(enum service_condition condition)
{
    switch (condition) {
    case WHEN_ALWAYS:
        return true;
    case WHEN_AUTHORIZED:
        return box.has_authorized;
    case WHEN_NO_KEYS:
        return !box.has_keys;
    }
    return false;
}

_Noreturn static void run_box(void)
{
    box.journal.echo_fd = -1;
    panic_on_crash();
    reboot(RB_DISABLE_CAD);
    umask(022);
    options_init(&box.options);
    boot_run(&box);
    supervisor_init(&services, SERVICES, SERVICE_COUNT, wanted, &box.journal, &box.options);
    int signal_fd = open_signals();
    if (!control_open(&control, BOX_INIT_SOCK, handle, NULL))
        journal_printf(&box.journal, "init", "no control socket at %s", BOX_INIT_SOCK);
    boot_ms = clock_ms();
    journal_printf(&box.journal, "init", "v4box %s booted in %lld ms", V4BOX_VERSION,
                   (long long)boot_ms);
    box.journal.echo_fd = -1; /* the serial line belongs to the console now */
    supervisor_start(&services);
    while (ending == 0)
        turn(signal_fd, -1);
    end_machine(signal_fd);
}

int main(int argc, char **argv)
{
    if (getpid() == 1)
        run_box();
    const char *slash = strrchr(argv[0], '/');
    if (strcmp(slash == NULL ? argv[0] : slash + 1, "dhcp-event") == 0)
        return network_dhcp_event(argc, argv);
    fprintf(stderr, "init %s: runs as PID 1 only\n", V4BOX_VERSION);
    return 2;
}
