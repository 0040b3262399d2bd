/*
 * The heart: asks the engine and the front before it for a sign of life and tells init.  Once they
 * are healthy and have given one token they are tested, and from then on the engine is asked
 * whether it still answers between two steps, and the front whether it answers at all. Runs with no
 * right but to connect, and reads two kinds of answers: lines of the admin protocol, and HTTP from
 * this machine's own front, of which it wants a status and one number.
 */
#include "config/box.h"
#include "config/slots.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/journal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SECRET_CHARS 44 /* of an API key, engine/api/keys.h */
#define NAME_BYTES   128

static struct client client; /* large: it holds whole answers */

/* ---- the two sockets ---------------------------------------------------------------------------
 */

/* Asks with up to two arguments; true: answered, and well.  The answer lies in `client`. */
static bool ask(const char *path, const char *command, const char *first, const char *second)
{
    const char *const words[] = {command, first, second};
    struct request request = {.count = 0};
    for (int i = 0; i < 3 && words[i] != NULL; i++)
        snprintf(request.word[request.count++], CONTROL_WORD_BYTES + 1, "%s", words[i]);
    return client_ask(&client, path, &request, HEART_ANSWER_MS) == CLIENT_ANSWERED &&
           client.answer.ok;
}

/* ---- HTTP --------------------------------------------------------------------------------------
 */

/* The way of the clients but for TLS, which is configured or the front does not run. */
static int connect_front(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = FRONT_HEART};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Everything up to the end of the connection, NUL-terminated; what does not fit is left out. */
static bool receive(int fd, char *bytes, size_t cap, int64_t end_ms)
{
    size_t len = 0;
    for (;;) {
        char rest[512];
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_ms - clock_ms();
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) != 1)
            return false;
        bool room = len + 1 < cap;
        ssize_t n = recv(fd, room ? bytes + len : rest, room ? cap - 1 - len : sizeof rest, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            bytes[len] = '\0';
            return n == 0;
        }
        len += room ? (size_t)n : 0;
    }
}

/* One exchange; true when the answer has status 200. */
static bool exchange(const char *request, size_t n, char *answer, size_t cap, int timeout_ms)
{
    static const char GOOD[] = "HTTP/1.1 200 ";
    int fd = connect_front();
    if (fd < 0)
        return false;
    bool good = send(fd, request, n, MSG_NOSIGNAL) == (ssize_t)n &&
                receive(fd, answer, cap, clock_ms() + timeout_ms) &&
                strncmp(answer, GOOD, strlen(GOOD)) == 0;
    close(fd);
    return good;
}

/* `path` is answered with status 200. */
static bool answers(const char *path)
{
    char request[128], answer[HEART_ANSWER_BYTES / 16];
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    return exchange(request, (size_t)n, answer, sizeof answer, HEART_ANSWER_MS);
}

/* ---- the self-test ------------------------------------------------------------------------------
 */

/* The word behind `name` at the start of one of the answer's lines. */
static bool find_value(const char *name, char *value, size_t cap)
{
    const char *line = client.answer.text.data;
    for (; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strlen(name);
        if (strncmp(line, name, n) != 0 || line[n] != ' ')
            continue;
        line += n + strspn(line + n, " ");
        size_t length = strcspn(line, " \n");
        if (length == 0 || length >= cap)
            return false;
        memcpy(value, line, length);
        value[length] = '\0';
        return true;
    }
    return false;
}

/* At least one token was answered. */
static bool has_token(const char *answer)
{
    static const char NAME[] = "\"completion_tokens\":";
    const char *found = strstr(answer, NAME);
    return found != NULL && strtol(found + strlen(NAME), NULL, 10) >= 1;
}

static bool one_token(const char *model, const char *secret)
{
    static char answer[HEART_ANSWER_BYTES];
    char body[512], request[1024];
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"%s\",\"max_tokens\":1,\"temperature\":0,"
                     "\"messages\":[{\"role\":\"user\",\"content\":\"Good day!\"}]}",
                     model);
    n = snprintf(request, sizeof request,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                 "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                 "Content-Length: %d\r\nConnection: close\r\n\r\n%s",
                 secret, n, body);
    return n > 0 && (size_t)n < sizeof request &&
           exchange(request, (size_t)n, answer, sizeof answer, HEART_TOKEN_MS) && has_token(answer);
}

static bool self_test(void)
{
    char model[NAME_BYTES], secret[SECRET_CHARS + 1];
    if (!ask(BOX_ENGINE_SOCK, "status", NULL, NULL) || !find_value("model", model, sizeof model))
        return false;
    if (!ask(BOX_ENGINE_SOCK, "keys", "pass", NULL))
        return false;
    snprintf(secret, sizeof secret, "%.*s", SECRET_CHARS, client.answer.text.data);
    return one_token(model, secret);
}

int main(void)
{
    bool tested = false;
    if (confine_process() != 0 || confine_capabilities() != 0 || confine_files(NULL, 0) != 0) {
        fprintf(stderr, "heart: cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    for (;;) {
        /* /healthz only until it was tested: each request is a line of the engine's log.  The other
         * one is answered by the front itself. */
        bool alive = answers(tested ? HEART_FRONT_PATH : "/healthz") &&
                     ask(BOX_ENGINE_SOCK, "status", NULL, NULL);
        if (alive && !tested) {
            alive = tested = self_test();
            fprintf(stderr, "heart: self-test %s\n", tested ? "passed" : "failed");
        }
        if (alive && !ask(BOX_INIT_SOCK, "heart", NULL, NULL))
            fprintf(stderr, "heart: init does not listen\n");
        usleep(HEART_PERIOD_MS * 1000);
    }
}
