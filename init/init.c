/*
 * PID 1: boots, keeps the services alive, answers on the control socket, and ends the machine.
 * Everything it knows is in config/; it parses no network input.  Called dhcp-event, the same
 * program is udhcpc's helper.
 */
#include "config/box.h"
#include "config/version.h"
#include "init/boot.h"
#include "init/changes.h"
#include "init/commands.h"
#include "init/control.h"
#include "init/files.h"
#include "init/gate.h"
#include "init/keeplog.h"
#include "init/network.h"
#include "init/owner.h"
#include "init/panic.h"
#include "init/pci.h"
#include "init/serving.h"
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
static struct owner owner;
static int64_t boot_ms;
static int ending;     /* 0, or the argument for reboot() */
static bool resetting; /* on the way, config becomes new */
static struct gate gate;
static bool starved;       /* the watchdog is fed no more */
static struct xids xids;   /* of the GPUs' driver */
static int64_t restart_ms; /* when the machine restarts by itself; 0: not */

/* ---- commands of the control socket ------------------------------------------------------------
 */

static void say(struct text *answer, bool ok, const char *text)
{
    answer_write(answer, ok, text, strlen(text), NULL, 0);
}

static void command_status(const struct request *request, struct text *answer)
{
    (void)request;
    struct status status = {&services, &box.storage, &box.slots, boot_ms, owner.claimed};
    status_answer(answer, &status);
}

static void command_gpu(const struct request *request, struct text *answer)
{
    char text_bytes[GPU_TEXT_BYTES], data_bytes[GPU_TEXT_BYTES];
    struct text text = text_over(text_bytes, sizeof text_bytes);
    struct text data = text_over(data_bytes, sizeof data_bytes);
    (void)request;
    pci_tell(PCI_DEVICES, PCI_DRIVER, &box.gpu, &xids, &text, &data);
    answer_write(answer, true, text.data, text.len, data.cut ? NULL : data.data, data.len);
}

/* Only the kernel's words are believed to be the kernel's. */
static void watch_kernel(const char *who, const char *line, size_t n)
{
    if (strcmp(who, "kernel") == 0)
        xid_take(&xids, line, n, clock_ms());
}

/* `log changes [LINES]` */
static bool tell_changes(size_t count, struct text *t)
{
    return changes_tail(BOX_CHANGES, count, t);
}

/* `log stored [LINES]` */
static bool tell_stored(size_t count, struct text *t)
{
    static const struct keeplog log = {BOX_LOG, KEEPLOG_FILE_BYTES, KEEPLOG_FILES};
    return keeplog_tail(&log, count, t);
}

static const struct {
    const char *word, *nothing;
    bool (*tell)(size_t count, struct text *t);
} LOGS[] = {
    {"changes", "nothing was changed yet\n", tell_changes},
    {"stored", "nothing is stored\n", tell_stored},
};

static int find_log(const struct request *request)
{
    for (int i = 0; i < (int)(sizeof LOGS / sizeof LOGS[0]); i++)
        if (request->count > 1 && strcmp(request->word[1], LOGS[i].word) == 0)
            return i;
    return -1;
}

static void command_log(const struct request *request, struct text *answer)
{
    static char bytes[KEEPLOG_TAIL_BYTES + 1];
    struct text t = text_over(bytes, sizeof bytes);
    char *end = NULL;
    unsigned long count = LOG_LINES_DEFAULT;
    int log = find_log(request), words = 1 + (log >= 0);
    if (request->count > words) {
        const char *word = request->word[words];
        count = strtoul(word, &end, 10);
        if (*end != '\0' || word[0] < '0' || word[0] > '9' || count == 0 || count > LOG_LINES_MAX ||
            request->count > words + 1) {
            say(answer, false, "log: a number of lines from 1 to 2000");
            return;
        }
    }
    if (log < 0) {
        log_answer(answer, &box.journal, count);
        return;
    }
    if (!LOGS[log].tell(count, &t))
        text_printf(&t, "%s", LOGS[log].nothing);
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

/* Of the keeper alone: the number of lines so far, and those since a number it was told before. */
static void command_log_since(const struct request *request, struct text *answer)
{
    static char bytes[LOG_RING_BYTES + 32];
    struct text t = text_over(bytes, sizeof bytes);
    const struct ring *ring = &box.journal.ring;
    uint64_t now = ring->dropped + ring->line_count;
    uint64_t seen = request->count == 2 ? strtoull(request->word[1], NULL, 10) : 0;
    text_printf(&t, "%llu\n", (unsigned long long)now);
    log_lines(&t, &box.journal, seen < now ? (size_t)(now - seen) : 0);
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

/* Of the console alone, before it passes a command on: change WHO ROLE PIECE ... */
static void command_change(const struct request *request, struct text *answer)
{
    char bytes[CHANGES_LINE_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    for (int i = 3; i < request->count; i++)
        text_printf(&t, "%s", request->word[i]);
    bool good =
        request->count > 3 && changes_add(BOX_CHANGES, request->word[1], request->word[2], t.data);
    if (!good)
        journal_printf(&box.journal, "init", "a change is not recorded: %s", strerror(errno));
    say(answer, good, good ? "" : "the change can not be recorded");
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
    if (box.slots.known)
        slots_forget_tries(&box.slots);
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

static void start_services(enum service_condition condition)
{
    for (int i = 0; i < SERVICE_COUNT; i++)
        if (SERVICES[i].condition == condition)
            supervisor_add(&services, &SERVICES[i]);
}

static struct child *child_of(enum service_condition condition)
{
    for (int i = 0; i < services.count; i++)
        if (services.child[i].spec->condition == condition)
            return &services.child[i];
    return NULL;
}

/* The first key ends the claim, and the same port is then SSH's: once it is free. */
static void look_after_ssh(void)
{
    struct child *door = child_of(WHEN_UNCLAIMED);
    if (!owner.claimed || !box.has_host_key)
        return;
    if (door != NULL && door->life.state != SERVICE_STOPPED && door->life.state != SERVICE_STOPPING)
        supervisor_switch(&services, door, false);
    if (door == NULL || door->life.state == SERVICE_STOPPED)
        start_services(WHEN_AUTHORIZED);
}

static void command_claim(const struct request *request, struct text *answer)
{
    (void)request;
    owner_tell(&owner, answer);
}

static void command_ssh_keys(const struct request *request, struct text *answer)
{
    static char bytes[BOOT_SITE_BYTES_MAX + 1];
    struct text t = text_over(bytes, sizeof bytes);
    const char(*word)[CONTROL_WORD_BYTES + 1] = request->word;
    enum role role = ROLE_ADMIN;
    const char *wrong = "ssh-keys list | add ssh-ed25519 KEY NAME [ROLE] | delete NAME; a ROLE is "
                        "viewer, operator or admin, which it is without one";
    if (request->count == 2 && strcmp(word[1], "list") == 0)
        wrong = ssh_keys_list(BOX_AUTHORIZED, &t);
    else if (request->count >= 5 && strcmp(word[1], "add") == 0 &&
             (request->count == 5 || role_parse(word[5], &role)))
        wrong = ssh_keys_add(BOX_AUTHORIZED, word[2], word[3], word[4], role);
    else if (request->count == 3 && strcmp(word[1], "delete") == 0)
        wrong = ssh_keys_delete(BOX_AUTHORIZED, word[2]);
    if (wrong != NULL) {
        say(answer, false, wrong);
        return;
    }
    journal_printf(&box.journal, "init", "ssh-keys %s", word[1]);
    if (strcmp(word[1], "add") == 0)
        owner_claimed(&owner);
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

/* ---- settings and network ----------------------------------------------------------------------
 */

static bool wanted(enum service_condition condition);

/* Whether the service is started with a setting that differs between the two. */
static bool is_started_with(const struct service_spec *spec, const struct settings *a,
                            const struct settings *b)
{
    for (int i = 0; i < SERVICE_ARGS_MAX && spec->argv[i] != NULL; i++)
        if (spec->argv[i][0] == '%' &&
            strcmp(settings_value(a, spec->argv[i] + 1), settings_value(b, spec->argv[i] + 1)) != 0)
            return true;
    return false;
}

/* What takes a changed setting begins anew with it. */
static void apply_settings(const struct settings *before)
{
    for (int i = 0; i < SERVICE_COUNT; i++)
        if (is_started_with(&SERVICES[i], before, &box.net.now))
            supervisor_renew(&services, &SERVICES[i], wanted(SERVICES[i].condition));
}

static void command_settings(const struct request *request, struct text *answer)
{
    char bytes[SETTING_COUNT * 256];
    struct text t = text_over(bytes, sizeof bytes);
    struct settings changed = box.net.saved, before = box.net.now;
    const char *wrong = "settings | settings NAME VALUE", *value = request->word[2];
    char reason[128];
    if (request->count == 1) {
        settings_list(&box.net.now, &t);
        answer_write(answer, true, t.data, t.len, NULL, 0);
        return;
    }
    if (request->count == 3 && strncmp(request->word[1], "net.", 4) == 0)
        wrong = "the network is set by the command net";
    else if (request->count == 3 && strcmp(request->word[1], "model") == 0)
        wrong = "the model is set by the command model";
    else if (request->count == 3 && box.net.trying)
        wrong = "a change of the network is being tried: net confirm, or wait";
    else if (request->count == 3)
        wrong = settings_set(&changed, request->word[1], strcmp(value, "-") == 0 ? "" : value);
    if (wrong == NULL && strcmp(request->word[1], "gpus") == 0)
        wrong = pci_layout_wrong(PCI_DEVICES, value, reason, sizeof reason);
    if (wrong == NULL)
        wrong = netplan_change(&box.net, &changed, 0, clock_ms());
    if (wrong == NULL)
        apply_settings(&before);
    say(answer, wrong == NULL, wrong == NULL ? "set\n" : wrong);
}

/* Takes `--try SECONDS` off the end; false: there is something else. */
static bool take_try(struct request *request, int *try_s)
{
    char *end = NULL;
    *try_s = 0;
    if (request->count < 3 || strcmp(request->word[request->count - 2], "--try") != 0)
        return true;
    const char *word = request->word[request->count - 1];
    long seconds = strtol(word, &end, 10);
    *try_s = (int)seconds;
    request->count -= 2;
    return end != word && *end == '\0' && seconds > 0 && seconds <= NET_TRY_S_MAX;
}

static const char *change_network(const struct request *request, int try_s)
{
    struct settings to = box.net.saved;
    const char(*word)[CONTROL_WORD_BYTES + 1] = request->word;
    bool dhcp = request->count == 2 && strcmp(word[1], "dhcp") == 0;
    bool fixed = (request->count == 3 || request->count == 4) && strcmp(word[1], "static") == 0;
    if (!dhcp && !fixed)
        return "net | net dhcp | net static ADDRESS/LENGTH [ROUTER]; with --try SECONDS it goes "
               "back by itself unless: net confirm";
    const char *wrong = settings_set(&to, "net.mode", word[1]);
    if (wrong == NULL && fixed)
        wrong = settings_set(&to, "net.address", word[2]);
    if (wrong == NULL && fixed)
        wrong = settings_set(&to, "net.router", request->count == 4 ? word[3] : "");
    return wrong != NULL ? wrong : netplan_change(&box.net, &to, try_s, clock_ms());
}

static void list_network(struct text *answer)
{
    char bytes[SETTING_COUNT * 256];
    struct text t = text_over(bytes, sizeof bytes);
    settings_list(&box.net.now, &t);
    if (box.net.trying)
        text_printf(&t, "tried: goes back in %lld s unless you say: net confirm\n",
                    (long long)(box.net.revert_ms - clock_ms()) / 1000);
    answer_write(answer, true, t.data, t.len, NULL, 0);
}

static void command_net(const struct request *request, struct text *answer)
{
    struct request own = *request;
    int try_s;
    const char *wrong = NULL;
    if (own.count == 1) {
        list_network(answer);
        return;
    }
    if (!take_try(&own, &try_s))
        wrong = "--try takes 1 to 3600 seconds";
    else if (own.count == 2 && strcmp(own.word[1], "confirm") == 0)
        wrong = netplan_confirm(&box.net);
    else
        wrong = change_network(&own, try_s);
    if (wrong == NULL)
        journal_printf(&box.journal, "init", "net %s%s", own.word[1], try_s > 0 ? ", tried" : "");
    say(answer, wrong == NULL, wrong == NULL ? "done\n" : wrong);
}

/* Its address is gone first, or a late answer of the DHCP program would be the last word. */
static void set_address(const struct child *dhcp)
{
    struct lease lease;
    const char(*value)[SETTING_BYTES] = box.net.now.value;
    if (dhcp != NULL && dhcp->pid != 0)
        return;
    if (!lease_from_text(&lease, value[SETTING_NET_ADDRESS], value[SETTING_NET_ROUTER]) ||
        !network_set(BOX_INTERFACE, &lease))
        journal_printf(&box.journal, "init", "%s does not take %s: %s", BOX_INTERFACE,
                       value[SETTING_NET_ADDRESS], strerror(errno));
    else
        journal_printf(&box.journal, "init", "%s has %s", BOX_INTERFACE,
                       value[SETTING_NET_ADDRESS]);
    netplan_done(&box.net);
}

/* Milliseconds until it has to be looked again. */
static int look_after_network(void)
{
    struct child *dhcp = child_of(WHEN_DHCP);
    bool lives =
        dhcp != NULL && dhcp->life.state != SERVICE_STOPPED && dhcp->life.state != SERVICE_STOPPING;
    switch (netplan_turn(&box.net, lives, clock_ms())) {
    case NETPLAN_STOP_DHCP:
        supervisor_switch(&services, dhcp, false);
        break;
    case NETPLAN_START_DHCP:
        if (dhcp == NULL)
            start_services(WHEN_DHCP);
        else
            supervisor_switch(&services, dhcp, true);
        break;
    case NETPLAN_SET_ADDRESS:
        set_address(dhcp);
        break;
    case NETPLAN_NOTHING:
        break;
    }
    return box.net.trying ? 1000 : WATCHDOG_FEED_MS;
}

/* Of the heart alone; the console's table does not have it. */
static void command_heart(const struct request *request, struct text *answer)
{
    (void)request;
    gate_beat(&gate, clock_ms());
    say(answer, true, "");
}

/* Of the updater, once a slot holds what its signed header says. */
static void command_slot_try(const struct request *request, struct text *answer)
{
    bool good = request->count == 3 && strlen(request->word[1]) == 1;
    const char *wrong = !good ? "slot-try SLOT VERSION"
                              : slots_try(&box.slots, request->word[1][0] - 'a', request->word[2]);
    if (wrong != NULL) {
        say(answer, false, wrong);
        return;
    }
    journal_printf(&box.journal, "init", "slot %s is tried next", request->word[1]);
    restart_ms = clock_ms() + END_TRY_MS;
    say(answer, true, "the box restarts to try it, and comes back by itself if it is no good\n");
}

/* Of the models' program: model-now; model-use NAME [--try], of a model that it has looked at. */
static void command_model_now(const struct request *request, struct text *answer)
{
    (void)request;
    say(answer, true, box.model.now);
}

static void command_model_use(const struct request *request, struct text *answer)
{
    bool try = request->count == 3 && strcmp(request->word[2], "--try") == 0;
    const char *wrong = "model-use NAME [--try]";
    if (request->count == 2 || try)
        wrong = serving_use(&box, &services, &gate, request->word[1], try);
    say(answer, wrong == NULL,
        wrong != NULL ? wrong
        : try ? "the engine starts with it, and goes back by itself unless it gives a token\n"
              : "the engine starts with it\n");
}

static const struct {
    const char *name;
    void (*run)(const struct request *request, struct text *answer);
    int args_max;
} COMMANDS[] = {
    {"status", command_status, 0},
    {"gpu", command_gpu, 0},
    {"log", command_log, 2},
    {"log-since", command_log_since, 1},
    {"change", command_change, 1 + CONTROL_ARGS_MAX},
    {"poweroff", command_poweroff, 0},
    {"reboot", command_reboot, 0},
    {"factory-reset", command_factory_reset, 1},
    {"claim", command_claim, 0},
    {"ssh-keys", command_ssh_keys, 5},
    {"settings", command_settings, 2},
    {"net", command_net, 5},
    {"heart", command_heart, 0},
    {"slot-try", command_slot_try, 2},
    {"model-now", command_model_now, 0},
    {"model-use", command_model_use, 2},
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

/* ---- whether this start is good, and goes on ----------------------------------------------------
 */

static void tell_updater(void)
{
    static char bytes[4096];
    struct text t = text_over(bytes, sizeof bytes);
    if (!box.slots.known)
        return;
    const char(*device)[STORAGE_NAME_BYTES] = box.storage.disk.device;
    slots_tell(&box.slots, device[DISK_ESP], device[DISK_GPU_A], device[DISK_GPU_B], &t);
    if (!file_save(UPDATE_STATE, t.data, t.len, BOX_UID_ROOT))
        journal_printf(&box.journal, "init", "%s: %s", UPDATE_STATE, strerror(errno));
}

/* The engine, and the front without which nobody reaches it; failed when one of them is.  So is the
 * trial of a system whose GPU payload is of no use: the box would go on without its cards. */
static struct gate_engine engine_now(const char **failed)
{
    struct gate_engine engine = {.wanted = false};
    *failed = NULL;
    if (box.slots.running != box.slots.good && box.gpu.wanted && !box.gpu.sound)
        *failed = "the GPU payload can not be used";
    for (int i = 0; i < services.count; i++) {
        const struct child *c = &services.child[i];
        bool is_engine = strcmp(c->spec->name, "engine") == 0;
        if (is_engine)
            engine = (struct gate_engine){true, c->life.state, c->started_ms};
        if (c->life.state == SERVICE_FAILED && (is_engine || strcmp(c->spec->name, "front") == 0))
            *failed = is_engine ? "the engine crashes" : "the front crashes";
    }
    if (*failed != NULL)
        engine.state = SERVICE_FAILED;
    return engine;
}

static void confirm_start(void)
{
    journal_printf(&box.journal, "init", "this start is good, %lld ms after power-on",
                   (long long)clock_ms());
    if (!box.slots.known)
        return;
    if (!slots_confirm(&box.slots))
        storage_note(&box.storage, &box.journal, "slot %c can not be made the good one: %s",
                     slot_letter(box.slots.running), strerror(errno));
    tell_updater();
    start_services(WHEN_CONFIRMED);
}

/* Another start helps only where there is another slot, or where starts are counted. */
static void give_up_start(const char *failed)
{
    const char *reason = failed != NULL ? failed : "no token in time";
    bool trial = box.slots.running != box.slots.good;
    bool again = box.slots.known && (trial || box.storage.config == STORAGE_DISK);
    journal_printf(&box.journal, "init", "this start is no good: %s%s", reason,
                   again ? "; restarting" : "");
    if (!again)
        return;
    if (!slots_give_up(&box.slots, reason))
        journal_printf(&box.journal, "init", "the reason can not be kept: %s", strerror(errno));
    restart_ms = clock_ms() + GIVE_UP_MS;
}

/* Milliseconds until it has to be looked again. */
static int look_after_start(void)
{
    int64_t now_ms = clock_ms();
    const char *failed;
    struct gate_engine engine = engine_now(&failed);
    switch (gate_turn(&gate, &engine, now_ms)) {
    case GATE_CONFIRM:
        confirm_start();
        break;
    case GATE_GIVE_UP:
        give_up_start(failed);
        break;
    case GATE_NOTHING:
        break;
    }
    if (box.slots.rescue && restart_ms == 0 && now_ms >= RESCUE_MS) {
        slots_forget_tries(&box.slots);
        restart_ms = now_ms;
    }
    if (restart_ms != 0 && now_ms >= restart_ms && ending == 0)
        ending = RB_AUTOBOOT;
    bool alive = gate_is_alive(&gate, &engine, now_ms);
    if (!alive && !starved)
        journal_printf(&box.journal, "init", "the engine gives no sign of life%s",
                       box.watchdog.fd >= 0 ? "; the watchdog will reset the machine" : "");
    starved = !alive;
    if (alive)
        watchdog_feed(&box.watchdog, now_ms);
    return restart_ms != 0 ? END_SETTLE_MS : WATCHDOG_FEED_MS;
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
    struct pollfd fds[1 + SERVICES_MAX + 2 * (1 + CONTROL_CLIENTS_MAX)];
    int n_control = control_poll_fds(&control, fds + 1);
    n_control += control_poll_fds(&owner.control, fds + 1 + n_control);
    int n = 1 + n_control + supervisor_poll_fds(&services, fds + 1 + n_control);
    fds[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    int wait_ms = sooner(supervisor_timers(&services), control_timers(&control));
    wait_ms = sooner(wait_ms, control_timers(&owner.control));
    wait_ms = sooner(wait_ms, look_after_start());
    if (ending == 0) {
        wait_ms = sooner(wait_ms, look_after_network());
        wait_ms = sooner(wait_ms, serving_turn(&box, &services, &gate));
        look_after_ssh();
    }
    if (poll(fds, (nfds_t)n, sooner(wait_ms, limit_ms)) <= 0)
        return;
    for (int i = 1; i < n; i++) {
        if (fds[i].revents == 0)
            continue;
        if (i <= n_control) {
            control_serve(&control, fds[i].fd);
            control_serve(&owner.control, fds[i].fd);
        } else
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
    control_close(&owner.control);
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
    case WHEN_DHCP:
        return strcmp(box.net.now.value[SETTING_NET_MODE], "dhcp") == 0;
    case WHEN_AUTHORIZED:
        return owner.claimed;
    case WHEN_UNCLAIMED:
        return owner.claim.open && box.has_host_key;
    case WHEN_ENGINE:
        return !box.slots.rescue;
    case WHEN_SLOTS:
        return box.slots.known;
    case WHEN_CERTIFICATE:
        return box.has_certificate && !box.slots.rescue;
    case WHEN_LOG:
        return box.storage.log == STORAGE_DISK;
    case WHEN_REMOTE:
        return box.net.now.value[SETTING_LOG_REMOTE][0] != '\0';
    case WHEN_MODELS:
        return box.storage.models == STORAGE_DISK;
    case WHEN_CONFIRMED:
        return false; /* comes later */
    }
    return false;
}

_Noreturn static void run_box(void)
{
    box.journal.echo_fd = -1;
    box.journal.watch = watch_kernel;
    panic_on_crash();
    reboot(RB_DISABLE_CAD);
    umask(022);
    options_init(&box.options);
    boot_run(&box);
    owner_open(&owner, box.has_authorized, &box.journal);
    supervisor_init(&services, SERVICES, SERVICE_COUNT, wanted, &box.journal, &box.options);
    services.settings = &box.net.now;
    int signal_fd = open_signals();
    if (!control_open(&control, BOX_INIT_SOCK, BOX_UID_ROOT, handle, NULL))
        journal_printf(&box.journal, "init", "no control socket at %s", BOX_INIT_SOCK);
    boot_ms = clock_ms();
    journal_printf(&box.journal, "init", "v4box %s booted in %lld ms", V4BOX_VERSION,
                   (long long)boot_ms);
    box.journal.echo_fd = -1; /* the serial line belongs to the console now */
    tell_updater();
    gate_init(&gate, boot_ms);
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
