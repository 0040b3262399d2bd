/*
 * The supervisor on real processes of this machine: output into the journal, restart after a kill,
 * crash loops, stop, orphans.  Waits are bounded by a number of turns, not by a clock.
 */
#include "init/supervise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURN_MS   20
#define TURNS_MAX 1500 /* 30 s of a machine that does nothing else; a restart takes 1 s */

static struct supervisor s;
static struct journal journal = {.echo_fd = -1};

static bool always(enum service_condition condition)
{
    return condition == WHEN_ALWAYS;
}

static void turn(void)
{
    struct pollfd fds[SERVICES_MAX];
    int n = supervisor_poll_fds(&s, fds);
    poll(fds, (nfds_t)n, TURN_MS);
    for (int i = 0; i < n; i++)
        if (fds[i].revents != 0)
            supervisor_read(&s, fds[i].fd);
    supervisor_reap(&s);
    supervisor_timers(&s);
}

static bool wait_state(int child, enum service_state state)
{
    for (int i = 0; i < TURNS_MAX && s.child[child].life.state != state; i++)
        turn();
    return s.child[child].life.state == state;
}

static void find(void *context, const char *line, size_t n)
{
    const char **needle = context;
    if (*needle != NULL && memmem(line, n, *needle, strlen(*needle)) != NULL)
        *needle = NULL;
}

static bool logged(const char *needle)
{
    ring_tail(&journal.ring, SIZE_MAX, find, &needle);
    return needle == NULL;
}

static bool wait_log(const char *needle)
{
    for (int i = 0; i < TURNS_MAX && !logged(needle); i++)
        turn();
    return logged(needle);
}

static void start(const struct service_spec *specs, int n)
{
    memset(&journal.ring, 0, sizeof journal.ring);
    supervisor_init(&s, specs, n, always, &journal, NULL);
    supervisor_start(&s);
}

static void stop(void)
{
    supervisor_stop(&s);
    for (int i = 0; i < TURNS_MAX && !supervisor_idle(&s); i++)
        turn();
    assert_true(supervisor_idle(&s));
}

/* The first name, argv and policy; everything else as most services have it. */
#define SPEC(name_, policy_, ...)                                                                  \
    {                                                                                              \
        .name = name_, .policy = policy_, .condition = WHEN_ALWAYS, .output = OUTPUT_LOG,          \
        .uid = 0, .argv = {__VA_ARGS__},                                                           \
    }

static void output_goes_to_the_journal(void **state)
{
    (void)state;
    struct service_spec specs[] = {
        SPEC("talker", RESTART_NEVER, "/bin/sh", "-c", "echo to stdout; echo to stderr >&2"),
        SPEC("unwanted", RESTART_ALWAYS, "/bin/false"),
    };
    specs[0].uid = getuid();
    specs[1].condition = WHEN_UNCLAIMED;
    start(specs, 2);
    assert_int_equal(s.count, 1); /* the second one's condition does not hold */
    assert_true(wait_state(0, SERVICE_STOPPED));
    assert_true(logged("talker: to stdout"));
    assert_true(logged("talker: to stderr"));
    assert_false(logged("talker: to nobody"));
    assert_int_equal(s.child[0].life.restarts, 0);
    assert_int_equal(s.child[0].output_fd, -1);
}

static void a_killed_daemon_comes_back(void **state)
{
    (void)state;
    struct service_spec specs[] = {SPEC("daemon", RESTART_ALWAYS, "/bin/sleep", "1000")};
    specs[0].uid = getuid();
    start(specs, 1);
    pid_t first = s.child[0].pid;
    assert_true(first > 0);
    kill(first, SIGKILL);
    assert_true(wait_state(0, SERVICE_BACKOFF));
    assert_true(wait_log("daemon: killed by signal 9"));
    assert_true(wait_state(0, SERVICE_STARTING));
    assert_int_equal(s.child[0].life.restarts, 1);
    assert_true(s.child[0].pid > 0 && s.child[0].pid != first);
    stop();
    assert_int_equal(s.child[0].life.state, SERVICE_STOPPED);
}

static void what_can_not_start_is_reported(void **state)
{
    (void)state;
    struct service_spec specs[] = {SPEC("absent", RESTART_ALWAYS, "/nonexistent/program")};
    specs[0].uid = getuid();
    start(specs, 1);
    assert_true(wait_state(0, SERVICE_BACKOFF));
    assert_true(logged("absent: /nonexistent/program: No such file"));
    assert_true(logged("absent: exit code 127"));
    stop();
}

/* A service that ignores SIGTERM is killed; one that spawned children takes them with it. */
static void stop_is_final(void **state)
{
    (void)state;
    struct service_spec specs[] = {
        SPEC("stubborn", RESTART_ALWAYS, "/bin/sh", "-c",
             "trap '' TERM; sleep 1000 & echo deaf; while :; do sleep 1; done"),
    };
    specs[0].uid = getuid();
    start(specs, 1);
    assert_true(wait_log("stubborn: deaf"));
    pid_t pid = s.child[0].pid;
    stop();
    assert_true(logged("stubborn: killed by signal 9"));
    assert_int_equal(kill(pid, 0), -1);
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(s.child[0].life.state, SERVICE_STOPPED);
    assert_int_equal(s.child[0].pid, 0);
}

/* Grandchildren come to PID 1 when their parent dies; here to this test, as subreaper. */
static void orphans_are_reaped(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    struct service_spec specs[] = {
        SPEC("parent", RESTART_NEVER, "/bin/sh", "-c", "sleep 0.2 & sleep 0.3 &"),
    };
    specs[0].uid = getuid();
    start(specs, 1);
    for (int i = 0; i < TURNS_MAX && s.orphans < 2; i++)
        turn();
    assert_int_equal(s.orphans, 2);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void a_flood_is_bounded(void **state)
{
    (void)state;
    struct service_spec specs[] = {
        SPEC("flood", RESTART_NEVER, "/bin/sh", "-c",
             "yes 0123456789012345678901234567890 | head -c "
             "4000000; echo; echo the end"),
    };
    specs[0].uid = getuid();
    start(specs, 1);
    assert_true(wait_state(0, SERVICE_STOPPED));
    assert_true(logged("flood: the end"));
    assert_true(journal.ring.used_bytes <= LOG_RING_BYTES);
    assert_true(journal.ring.dropped > 0);
}

static void confinement_holds(void **state)
{
    (void)state;
    struct service_spec specs[] = {
        SPEC("kept", RESTART_NEVER, "/bin/sh", "-c",
             "ulimit -c; grep NoNewPrivs /proc/self/status"),
    };
    specs[0].uid = getuid();
    start(specs, 1);
    assert_true(wait_state(0, SERVICE_STOPPED));
    assert_true(logged("kept: 0"));
    assert_true(logged("kept: NoNewPrivs:\t1"));
    /* Landlock, where this machine's kernel has it: a listed folder opens, another does not. */
    pid_t pid = fork();
    if (pid == 0) {
        const struct file_rule rules[] = {{"/proc", FILE_READ}};
        if (confine_files(rules, 1) != 0)
            _exit(77);
        FILE *allowed = fopen("/proc/self/status", "r");
        _exit(allowed != NULL && fopen("/etc/passwd", "r") == NULL ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

static struct settings settings;

/* What is started with a setting begins anew when told so, with the value of then. */
static void a_changed_setting_is_taken(void **state)
{
    (void)state;
    struct service_spec specs[] = {SPEC("sender", RESTART_ALWAYS, "/bin/sh", "-c",
                                        "echo to $0; exec sleep 1000", "%log.remote")};
    specs[0].uid = getuid();
    settings_init(&settings);
    assert_null(settings_set(&settings, "log.remote", "192.0.2.7:514"));
    start(specs, 0);
    s.settings = &settings;
    supervisor_renew(&s, &specs[0], false); /* it is not there, and need not be */
    assert_int_equal(s.count, 0);
    supervisor_renew(&s, &specs[0], true);
    assert_true(wait_log("sender: to 192.0.2.7:514"));
    pid_t first = s.child[0].pid;
    assert_null(settings_set(&settings, "log.remote", "192.0.2.8:514"));
    supervisor_renew(&s, &specs[0], true);
    assert_true(wait_log("sender: to 192.0.2.8:514"));
    assert_true(s.child[0].pid != first);
    assert_int_equal(s.count, 1);
    supervisor_renew(&s, &specs[0], false);
    assert_true(wait_state(0, SERVICE_STOPPED));
    supervisor_renew(&s, &specs[0], true);
    assert_true(wait_state(0, SERVICE_STARTING));
    supervisor_renew(&s, &specs[0], true); /* an end of everything comes in between */
    stop();
    assert_int_equal(s.child[0].life.state, SERVICE_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_goes_to_the_journal),
        cmocka_unit_test(a_killed_daemon_comes_back),
        cmocka_unit_test(what_can_not_start_is_reported),
        cmocka_unit_test(stop_is_final),
        cmocka_unit_test(orphans_are_reaped),
        cmocka_unit_test(a_flood_is_bounded),
        cmocka_unit_test(confinement_holds),
        cmocka_unit_test(a_changed_setting_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
