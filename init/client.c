/* The asking side of the admin protocol. */
#include "init/client.h"

#include "init/journal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENT_PIECE_BYTES 65536 /* of a stream, at once */

static bool wait_for(int fd, short events, int64_t end_ms)
{
    int64_t left_ms = end_ms - clock_ms();
    struct pollfd wait = {.fd = fd, .events = events};
    return left_ms > 0 && poll(&wait, 1, (int)left_ms) == 1;
}

static bool send_all(int fd, const char *bytes, size_t n, int64_t end_ms)
{
    while (n > 0) {
        if (!wait_for(fd, POLLOUT, end_ms))
            return false;
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
    }
    return true;
}

/* Reads up to the newline; the server closes behind it, so more is not waited for. */
static enum client_result receive_line(struct client *c, int fd, int64_t end_ms)
{
    c->line_len = 0;
    while (c->line_len < sizeof c->line) {
        if (!wait_for(fd, POLLIN, end_ms))
            return CLIENT_SILENT;
        ssize_t n = recv(fd, c->line + c->line_len, sizeof c->line - c->line_len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return CLIENT_BROKEN;
        const char *newline = memchr(c->line + c->line_len, '\n', (size_t)n);
        c->line_len += (size_t)n;
        if (newline != NULL) {
            c->line_len = (size_t)(newline - c->line);
            return CLIENT_ANSWERED;
        }
    }
    return CLIENT_BROKEN;
}

/* Passes the input on until it ends, or the server has heard enough. */
static void forward(int fd, int input, int timeout_ms)
{
    char bytes[CLIENT_PIECE_BYTES];
    for (;;) {
        ssize_t n = read(input, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || !send_all(fd, bytes, (size_t)n, clock_ms() + timeout_ms))
            break;
    }
    shutdown(fd, SHUT_WR);
}

static enum client_result talk(struct client *c, int fd, const struct request *request, int input,
                               int timeout_ms)
{
    char line[CONTROL_REQUEST_BYTES];
    struct text t = text_over(line, sizeof line);
    request_write(&t, request);
    if (!send_all(fd, t.data, t.len, clock_ms() + timeout_ms))
        return CLIENT_SILENT;
    if (input >= 0)
        forward(fd, input, timeout_ms);
    enum client_result result = receive_line(c, fd, clock_ms() + timeout_ms);
    if (result == CLIENT_ANSWERED &&
        !answer_parse(&c->answer, c->line, c->line_len, c->text, sizeof c->text))
        return CLIENT_BROKEN;
    return result;
}

enum client_result client_stream(struct client *c, const char *path, const struct request *request,
                                 int input, int timeout_ms)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return CLIENT_ABSENT;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return CLIENT_ABSENT;
    enum client_result result = CLIENT_ABSENT;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        result = talk(c, fd, request, input, timeout_ms);
    close(fd);
    return result;
}

enum client_result client_ask(struct client *c, const char *path, const struct request *request,
                              int timeout_ms)
{
    return client_stream(c, path, request, -1, timeout_ms);
}

const char *client_result_text(enum client_result result)
{
    static const char *const TEXTS[] = {
        [CLIENT_ANSWERED] = "answered",
        [CLIENT_ABSENT] = "not running",
        [CLIENT_SILENT] = "no answer in time",
        [CLIENT_BROKEN] = "the answer was cut off or malformed",
    };
    return TEXTS[result];
}
