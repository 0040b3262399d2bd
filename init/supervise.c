/* Starts, watches and ends the services of a table. */
#include "init/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES   4096
#define READS_MAX    16 /* a chatty service must not keep init from the others */
#define EXIT_NO_EXEC 127

static struct child *take_over(struct supervisor *s, const struct service_spec *spec)
{
    struct child *c = &s->child[s->count++];
    *c = (struct child){.spec = spec, .output_fd = -1, .last_status = -1};
    service_init(&c->life, spec->policy);
    return c;
}

void supervisor_init(struct supervisor *s, const struct service_spec *specs, int spec_count,
                     bool (*wanted)(enum service_condition), struct journal *journal,
                     const struct options *options)
{
    *s = (struct supervisor){.journal = journal, .options = options, .serial_path = BOX_SERIAL};
    for (int i = 0; i < spec_count && s->count < SERVICES_MAX; i++)
        if (wanted(specs[i].condition))
            take_over(s, &specs[i]);
}

/* ---- the child's side ----------------------------------------------------------------------- */

/* Says on stderr why the service can not start, and ends; stderr is the service's output by now. */
_Noreturn static void give_up(const char *what)
{
    dprintf(STDERR_FILENO, "%s: %s\n", what, strerror(errno));
    _exit(EXIT_NO_EXEC);
}

/* stdin, stdout and stderr as the service's row says. */
static void connect_output(const struct supervisor *s, const struct service_spec *spec, int pipe_fd)
{
    bool terminal = spec->output == OUTPUT_TERMINAL;
    int out = terminal ? open(s->serial_path, O_RDWR | O_NOCTTY) : pipe_fd;
    int in = terminal ? out : open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(out, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(in, STDIN_FILENO) < 0)
        _exit(EXIT_NO_EXEC);
    if (terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 1) != 0)
        give_up(s->serial_path);
}

static void confine(const struct service_spec *spec)
{
    size_t rules = 0;
    while (rules < SERVICE_PATHS_MAX && spec->files[rules].path != NULL)
        rules++;
    if (confine_user(spec->uid) != 0)
        give_up("cannot change user");
    if (confine_process() != 0)
        give_up("cannot give up privileges");
    if (rules > 0 && confine_files(spec->files, rules) != 0)
        give_up("cannot restrict files");
}

/* "@name" stands for the kernel command line's option, "%name" for a setting. */
static const char *argument(const struct supervisor *s, const char *word)
{
    if (word[0] == '@' && s->options != NULL)
        return options_value(s->options, word + 1);
    if (word[0] == '%' && s->settings != NULL)
        return settings_value(s->settings, word + 1);
    return word;
}

_Noreturn static void run(const struct supervisor *s, const struct service_spec *spec, int pipe_fd)
{
    static const char *const ENVIRONMENT[] = {"PATH=/bin", "HOME=/", "TERM=vt100", NULL};
    const char *argv[SERVICE_ARGS_MAX + 1] = {NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    connect_output(s, spec, pipe_fd);
    for (int i = 0; i < SERVICE_ARGS_MAX && spec->argv[i] != NULL; i++)
        argv[i] = argument(s, spec->argv[i]);
    confine(spec);
    execve(argv[0], (char *const *)argv, (char *const *)ENVIRONMENT);
    give_up(argv[0]);
}

/* ---- init's side ------------------------------------------------------------------------------
 */

static bool spawn(struct supervisor *s, struct child *c)
{
    int ends[2] = {-1, -1};
    if (c->spec->output == OUTPUT_LOG && pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        run(s, c->spec, ends[1]);
    if (ends[1] >= 0)
        close(ends[1]);
    if (pid < 0) {
        if (ends[0] >= 0)
            close(ends[0]);
        return false;
    }
    if (ends[0] >= 0)
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    c->pid = pid;
    c->output_fd = ends[0];
    c->started_ms = clock_ms();
    return true;
}

/* The service and what it started; a child that has not made its own session yet is alone. */
static void signal_group(pid_t pid, int signal)
{
    if (pid > 0 && kill(-pid, signal) != 0)
        kill(pid, signal);
}

/* Feeds one event to the state machine and does what it says, until it says nothing more. */
static void apply(struct supervisor *s, struct child *c, enum service_event event)
{
    enum service_state before = c->life.state;
    enum service_action action = service_step(&c->life, event, clock_ms());
    if (action == SERVICE_DO_SPAWN && !spawn(s, c)) {
        journal_printf(s->journal, "init", "%s: cannot start: %s", c->spec->name, strerror(errno));
        action = service_step(&c->life, SERVICE_EXIT_BAD, clock_ms());
    }
    if (action == SERVICE_DO_TERM || action == SERVICE_DO_KILL)
        signal_group(c->pid, action == SERVICE_DO_TERM ? SIGTERM : SIGKILL);
    if (c->life.state != before)
        journal_printf(s->journal, "init", "%s: %s", c->spec->name,
                       service_state_name(c->life.state));
}

struct speaker {
    struct journal *journal;
    struct child *child;
};

static void say(void *context, const char *line, size_t n)
{
    const struct speaker *speaker = context;
    struct child *c = speaker->child;
    journal_line(speaker->journal, c->spec->name, line, n);
    snprintf(c->last_line, sizeof c->last_line, "%.*s", (int)n, line);
}

/* Reads what has arrived; false when the pipe is at its end. */
static bool drain(struct supervisor *s, struct child *c)
{
    struct speaker speaker = {s->journal, c};
    char bytes[READ_BYTES];
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t n = read(c->output_fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        if (n == 0)
            return false;
        line_splitter_feed(&c->output, bytes, (size_t)n, say, &speaker);
    }
    return true;
}

static void close_output(struct supervisor *s, struct child *c)
{
    struct speaker speaker = {s->journal, c};
    if (c->output_fd < 0)
        return;
    line_splitter_end(&c->output, say, &speaker);
    close(c->output_fd);
    c->output_fd = -1;
}

static void ended(struct supervisor *s, struct child *c, int status)
{
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (c->output_fd >= 0)
        drain(s, c);
    close_output(s, c);
    c->pid = 0;
    c->last_status = status;
    if (!good && WIFSIGNALED(status))
        journal_printf(s->journal, "init", "%s: killed by signal %d", c->spec->name,
                       WTERMSIG(status));
    else if (!good)
        journal_printf(s->journal, "init", "%s: exit code %d", c->spec->name, WEXITSTATUS(status));
    apply(s, c, good ? SERVICE_EXIT_GOOD : SERVICE_EXIT_BAD);
    if (c->again)
        apply(s, c, SERVICE_START);
    c->again = false;
}

void supervisor_reap(struct supervisor *s)
{
    int status;
    for (;;) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        struct child *found = NULL;
        for (int i = 0; i < s->count; i++)
            if (s->child[i].pid == pid)
                found = &s->child[i];
        if (found != NULL)
            ended(s, found, status);
        else
            s->orphans++;
    }
}

void supervisor_start(struct supervisor *s)
{
    for (int i = 0; i < s->count; i++)
        apply(s, &s->child[i], SERVICE_START);
}

static struct child *find(struct supervisor *s, const struct service_spec *spec)
{
    for (int i = 0; i < s->count; i++)
        if (s->child[i].spec == spec)
            return &s->child[i];
    return NULL;
}

bool supervisor_add(struct supervisor *s, const struct service_spec *spec)
{
    if (find(s, spec) != NULL)
        return true;
    if (s->count == SERVICES_MAX)
        return false;
    apply(s, take_over(s, spec), SERVICE_START);
    return true;
}

void supervisor_switch(struct supervisor *s, struct child *c, bool on)
{
    apply(s, c, on ? SERVICE_START : SERVICE_STOP);
}

void supervisor_renew(struct supervisor *s, const struct service_spec *spec, bool on)
{
    struct child *c = find(s, spec);
    if (c == NULL) {
        if (on)
            supervisor_add(s, spec);
        return;
    }
    apply(s, c, SERVICE_STOP);
    c->again = on && c->pid != 0;
    if (on && c->pid == 0)
        apply(s, c, SERVICE_START);
}

void supervisor_stop(struct supervisor *s)
{
    for (int i = s->count; i-- > 0;) {
        s->child[i].again = false;
        apply(s, &s->child[i], SERVICE_STOP);
    }
}

bool supervisor_idle(const struct supervisor *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->child[i].pid > 0)
            return false;
    return true;
}

int supervisor_timers(struct supervisor *s)
{
    int64_t next_ms = INT64_MAX, now_ms = clock_ms();
    for (int i = 0; i < s->count; i++) {
        struct child *c = &s->child[i];
        if (c->life.deadline_ms >= 0 && c->life.deadline_ms <= now_ms)
            apply(s, c, SERVICE_TIMER);
        if (c->life.deadline_ms >= 0 && c->life.deadline_ms < next_ms)
            next_ms = c->life.deadline_ms;
    }
    if (next_ms == INT64_MAX)
        return -1;
    return next_ms > now_ms ? (int)(next_ms - now_ms) : 0;
}

int supervisor_poll_fds(const struct supervisor *s, struct pollfd *fds)
{
    int n = 0;
    for (int i = 0; i < s->count; i++)
        if (s->child[i].output_fd >= 0)
            fds[n++] = (struct pollfd){.fd = s->child[i].output_fd, .events = POLLIN};
    return n;
}

void supervisor_read(struct supervisor *s, int fd)
{
    for (int i = 0; i < s->count; i++)
        if (s->child[i].output_fd == fd && !drain(s, &s->child[i]))
            close_output(s, &s->child[i]);
}
