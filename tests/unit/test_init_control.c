/*
 * Both ends of a control socket in one process: a child asks with client.c or with raw bytes, the
 * parent serves with control.c.
 */
#include "init/client.h"
#include "init/control.h"
#include "init/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS_MAX 2000 /* of 10 ms: the longest test waits CONTROL_CLIENT_MS */

static struct control control;
static struct client client;
static char folder[] = "/tmp/v4box-control-XXXXXX", path[64];

/* Echoes the words; `large` answers with as many bytes as fit. */
static void handle(void *context, const struct request *request, struct text *answer)
{
    static char bytes[CONTROL_ANSWER_BYTES - 64];
    (void)context;
    struct text t = text_over(bytes, sizeof bytes);
    if (strcmp(request->word[0], "large") == 0) {
        memset(bytes, 'x', sizeof bytes - 1);
        answer_write(answer, true, bytes, sizeof bytes - 1, NULL, 0);
        return;
    }
    for (int i = 0; i < request->count; i++)
        text_printf(&t, "[%s]", request->word[i]);
    answer_write(answer, strcmp(request->word[0], "no") != 0, t.data, t.len, "{\"n\":1}", 7);
}

/* Serves until the child has ended; returns its exit code, -1 when it did not end. */
static int serve_until(pid_t pid)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        struct pollfd fds[1 + CONTROL_CLIENTS_MAX];
        int n = control_poll_fds(&control, fds);
        poll(fds, (nfds_t)n, 10);
        for (int k = 0; k < n; k++)
            if (fds[k].revents != 0)
                control_serve(&control, fds[k].fd);
        control_timers(&control);
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return -1;
}

static int connect_raw(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

/* In the child: ends with the line of the first condition that does not hold. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            _exit(__LINE__ % 200 + 1);                                                             \
    } while (0)

static bool ask(const char *line)
{
    struct request request;
    return request_from_line(&request, line, strlen(line)) &&
           client_ask(&client, path, &request, 20000) == CLIENT_ANSWERED;
}

static void answers_arrive(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        REQUIRE(ask("keys create a"));
        REQUIRE(client.answer.ok && strcmp(client.text, "[keys][create][a]") == 0);
        REQUIRE(client.answer.data_len == 7);
        REQUIRE(ask("no"));
        REQUIRE(!client.answer.ok);
        REQUIRE(ask("large"));
        REQUIRE(client.answer.text.len == CONTROL_ANSWER_BYTES - 65);
        _exit(0);
    }
    assert_int_equal(serve_until(pid), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void hostile_clients_do_not_block_others(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        int silent[CONTROL_CLIENTS_MAX];
        static char flood[CONTROL_REQUEST_BYTES + 1];
        memset(flood, ' ', sizeof flood);
        for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
            REQUIRE((silent[i] = connect_raw()) >= 0);
        /* All places are taken by silence: the next one waits until the first are dropped. */
        REQUIRE(ask("status"));
        for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
            char byte;
            REQUIRE(read(silent[i], &byte, 1) == 0);
            close(silent[i]);
        }
        /* A request without an end is cut off at its limit. */
        int fd = connect_raw();
        size_t sent = 0;
        ssize_t n;
        while (sent < sizeof flood && (n = send(fd, flood, sizeof flood - sent, MSG_NOSIGNAL)) > 0)
            sent += (size_t)n;
        char byte;
        REQUIRE(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
        REQUIRE(ask("status"));
        _exit(0);
    }
    assert_int_equal(serve_until(pid), 0);
}

static void requests_byte_by_byte_and_malformed(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        static const char LINE[] = "{\"command\":\"status\",\"args\":[]}\n";
        char answer[256] = "";
        int fd = connect_raw();
        for (const char *p = LINE; *p != '\0'; p++)
            REQUIRE(write(fd, p, 1) == 1);
        REQUIRE(recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0);
        REQUIRE(strstr(answer, "\"ok\":true") != NULL);
        close(fd);
        fd = connect_raw();
        memset(answer, 0, sizeof answer);
        REQUIRE(write(fd, "GET / HTTP/1.1\r\n", 16) == 16);
        REQUIRE(recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0);
        REQUIRE(strstr(answer, "\"ok\":false") != NULL);
        close(fd);
        fd = connect_raw();
        REQUIRE(write(fd, LINE, 10) == 10);
        close(fd); /* gone in the middle */
        REQUIRE(ask("status"));
        _exit(0);
    }
    assert_int_equal(serve_until(pid), 0);
}

static void servers_that_are_none(void **state)
{
    (void)state;
    struct request request;
    assert_true(request_from_line(&request, "status", 6));
    assert_int_equal(client_ask(&client, "/nonexistent/socket", &request, 1000), CLIENT_ABSENT);
    static char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    assert_int_equal(client_ask(&client, longer, &request, 1000), CLIENT_ABSENT);
    assert_false(control_open(&control, longer, getuid(), handle, NULL));
    /* Accepted by the kernel's queue, never answered. */
    assert_true(control_open(&control, path, getuid(), handle, NULL));
    assert_int_equal(client_ask(&client, path, &request, 50), CLIENT_SILENT);
}

static int open_control(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/sock", folder);
    return control_open(&control, path, getuid(), handle, NULL) ? 0 : -1;
}

static int close_control(void **state)
{
    (void)state;
    control_close(&control);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_arrive),
        cmocka_unit_test(hostile_clients_do_not_block_others),
        cmocka_unit_test(requests_byte_by_byte_and_malformed),
        cmocka_unit_test(servers_that_are_none),
    };
    return cmocka_run_group_tests(tests, open_control, close_control);
}
