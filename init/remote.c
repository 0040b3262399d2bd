/*
 * Sends the log to where log.remote says, too: asks init for what is new, as the keeper does.  What
 * waits to be sent is init's ring, so that nothing grows when nobody listens; what the ring has
 * lost by then is counted.  Reads nothing that the other side says.
 *
 *   remote INIT-SOCKET [tcp:]ADDRESS:PORT
 */
#include "config/box.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/journal.h"
#include "init/syslog.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct client client; /* large: it holds whole answers */

static struct {
    struct syslog_target target;
    const char *name; /* of it, as it was given */
    char host[HOST_NAME_BYTES + 1];
    int fd;        /* owns, or -1 */
    uint64_t next; /* number of the first line that was not sent */
    uint64_t lost; /* lines that nobody heard */
    bool told;     /* that it is not reached */
} sender = {.fd = -1};

static bool wait_for(int fd, short events)
{
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, SYSLOG_SEND_MS) == 1;
}

static bool open_target(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(sender.target.port),
                             .sin_addr.s_addr = sender.target.address};
    int kind = sender.target.tcp ? SOCK_STREAM : SOCK_DGRAM, error = 0;
    socklen_t size = sizeof error;
    sender.fd = socket(AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (sender.fd < 0)
        return false;
    if (connect(sender.fd, (struct sockaddr *)&to, sizeof to) == 0)
        return true;
    errno = errno == EINPROGRESS && !wait_for(sender.fd, POLLOUT) ? ETIMEDOUT : errno;
    if (errno == EINPROGRESS && getsockopt(sender.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0)
        errno = error;
    return errno == 0;
}

static void close_target(void)
{
    int error = errno;
    if (sender.fd >= 0)
        close(sender.fd);
    sender.fd = -1;
    errno = error;
}

/* A stream that the other side has ended would take one more message, and lose it. */
static bool has_ended(void)
{
    char ignored[SYSLOG_MESSAGE_BYTES];
    ssize_t n = 1;
    for (int i = 0; i < SYSLOG_IGNORED_MAX && n > 0; i++)
        n = recv(sender.fd, ignored, sizeof ignored, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool send_bytes(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(sender.fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN && wait_for(sender.fd, POLLOUT))
            continue;
        if (sent < 0 && errno == EAGAIN)
            errno = ETIMEDOUT;
        if (sent < 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_line(const char *line, size_t n, int64_t start_us)
{
    char bytes[SYSLOG_MESSAGE_BYTES + 8];
    struct text message = text_over(bytes, sizeof bytes);
    syslog_message(&message, line, n, sender.host, start_us, sender.target.tcp);
    return send_bytes(message.data, message.len);
}

static int64_t start_of_kernel_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - clock_ms() * 1000;
}

/* The lines from number `next` on, as far as there are any.  False: init does not answer. */
static bool fetch(const char *path, const char **lines, uint64_t *end)
{
    struct request request = {.count = 2};
    char *rest;
    snprintf(request.word[0], sizeof request.word[0], "log-since");
    snprintf(request.word[1], sizeof request.word[1], "%" PRIu64, sender.next);
    if (client_ask(&client, path, &request, CONSOLE_ANSWER_MS) != CLIENT_ANSWERED ||
        !client.answer.ok)
        return false;
    *end = strtoull(client.answer.text.data, &rest, 10);
    *lines = *rest == '\n' ? rest + 1 : rest;
    return true;
}

/* Sends what there is.  False: the target takes no more for now; the rest waits in the ring. */
static bool send_new(const char *path)
{
    const char *lines;
    uint64_t end, count = 0;
    if (!fetch(path, &lines, &end))
        return true; /* init is ending the machine */
    for (const char *p = lines; (p = strchr(p, '\n')) != NULL; p++)
        count++;
    if (end >= count && end - count > sender.next) {
        sender.lost += end - count - sender.next;
        sender.next = end - count;
    }
    if (sender.fd >= 0 && sender.target.tcp && has_ended())
        close_target();
    if (count > 0 && sender.fd < 0 && !open_target())
        return false;
    int64_t start_us = start_of_kernel_us();
    for (const char *newline; (newline = strchr(lines, '\n')) != NULL; lines = newline + 1) {
        if (!send_line(lines, (size_t)(newline - lines), start_us))
            return false;
        sender.next++;
    }
    return true;
}

/* Once each: a complaint is one more line to send. */
static void tell(bool good)
{
    if (!good && !sender.told)
        printf("%s is not reached: %s; lines wait\n", sender.name, strerror(errno));
    if (good && sender.told)
        printf("%s is reached; %" PRIu64 " lines were lost\n", sender.name, sender.lost);
    sender.told = !good;
    if (good)
        sender.lost = 0;
}

int main(int argc, char **argv)
{
    if (argc != 3 || !syslog_target_parse(&sender.target, argv[2])) {
        fprintf(stderr, "usage: remote INIT-SOCKET [tcp:]ADDRESS:PORT\n");
        return 2;
    }
    sender.name = argv[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (gethostname(sender.host, sizeof sender.host) != 0 || confine_process() != 0 ||
        confine_capabilities() != 0 || confine_no_files() != 0) {
        fprintf(stderr, "cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    for (int pause_ms = SYSLOG_PERIOD_MS;;) {
        bool good = send_new(argv[1]);
        if (!good)
            close_target();
        tell(good);
        pause_ms = good                                 ? SYSLOG_PERIOD_MS
                   : pause_ms * 2 < SYSLOG_RETRY_MAX_MS ? pause_ms * 2
                                                        : SYSLOG_RETRY_MAX_MS;
        usleep((useconds_t)pause_ms * 1000);
    }
}
