/* Init's control socket. */
#include "init/control.h"

#include "init/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char MALFORMED[] = "not a request";

void control_init(struct control *c)
{
    c->listen_fd = -1;
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        c->client[i].fd = -1;
}

bool control_open(struct control *c, const char *path, uid_t peer,
                  void (*handle)(void *context, const struct request *request, struct text *answer),
                  void *context)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    control_init(c);
    c->handle = handle;
    c->context = context;
    c->peer = peer;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(address.sun_path, path);
    c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->listen_fd < 0)
        return false;
    unlink(path);
    mode_t mask = umask(0177);
    bool open = bind(c->listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                (peer == getuid() || chown(path, peer, (gid_t)-1) == 0) &&
                listen(c->listen_fd, CONTROL_CLIENTS_MAX) == 0;
    umask(mask);
    if (!open)
        control_close(c);
    return open;
}

static void drop(struct control_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

void control_close(struct control *c)
{
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        drop(&c->client[i]);
    if (c->listen_fd >= 0)
        close(c->listen_fd);
    c->listen_fd = -1;
}

static bool full(const struct control *c)
{
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        if (c->client[i].fd < 0)
            return false;
    return true;
}

int control_poll_fds(const struct control *c, struct pollfd *fds)
{
    int n = 0;
    if (c->listen_fd >= 0 && !full(c))
        fds[n++] = (struct pollfd){.fd = c->listen_fd, .events = POLLIN};
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        const struct control_client *client = &c->client[i];
        if (client->fd >= 0)
            fds[n++] = (struct pollfd){.fd = client->fd,
                                       .events = client->answer.len > 0 ? POLLOUT : POLLIN};
    }
    return n;
}

static bool may_speak(const struct control *c, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == 0 || peer.uid == c->peer);
}

static void welcome(struct control *c)
{
    int fd = accept4(c->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (!may_speak(c, fd)) {
        close(fd);
        return;
    }
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct control_client *client = &c->client[i];
        if (client->fd >= 0)
            continue;
        client->fd = fd;
        client->deadline_ms = clock_ms() + CONTROL_CLIENT_MS;
        client->in_len = client->sent = 0;
        client->answer = text_over(client->out, sizeof client->out);
        return;
    }
    close(fd);
}

static void send_answer(struct control_client *client)
{
    while (client->sent < client->answer.len) {
        ssize_t n = send(client->fd, client->answer.data + client->sent,
                         client->answer.len - client->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break;
        client->sent += (size_t)n;
    }
    drop(client);
}

static void answer_request(struct control *c, struct control_client *client, size_t line_len)
{
    struct request request;
    if (request_parse(&request, client->in, line_len))
        c->handle(c->context, &request, &client->answer);
    else
        answer_write(&client->answer, false, MALFORMED, strlen(MALFORMED), NULL, 0);
    send_answer(client);
}

static void receive(struct control *c, struct control_client *client)
{
    ssize_t n =
        recv(client->fd, client->in + client->in_len, sizeof client->in - client->in_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(client);
        return;
    }
    client->in_len += (size_t)n;
    const char *newline = memchr(client->in, '\n', client->in_len);
    if (newline != NULL)
        answer_request(c, client, (size_t)(newline - client->in));
    else if (client->in_len == sizeof client->in)
        drop(client);
}

void control_serve(struct control *c, int fd)
{
    if (fd == c->listen_fd) {
        welcome(c);
        return;
    }
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct control_client *client = &c->client[i];
        if (client->fd != fd)
            continue;
        if (client->answer.len > 0)
            send_answer(client);
        else
            receive(c, client);
        return;
    }
}

int control_timers(struct control *c)
{
    int64_t now_ms = clock_ms(), next_ms = INT64_MAX;
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct control_client *client = &c->client[i];
        if (client->fd >= 0 && client->deadline_ms <= now_ms)
            drop(client);
        if (client->fd >= 0 && client->deadline_ms < next_ms)
            next_ms = client->deadline_ms;
    }
    return next_ms == INT64_MAX ? -1 : (int)(next_ms - now_ms);
}
