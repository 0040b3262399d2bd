/* A socket whose requests are each served by a child. */
#include "init/servant.h"

#include "config/box.h"
#include "config/slots.h"
#include "init/journal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

size_t servant_receive(const struct asked *asked, void *bytes, size_t n)
{
    size_t len = 0;
    while (len < n) {
        struct pollfd wait = {.fd = asked->fd, .events = POLLIN};
        bool late = clock_ms() >= asked->end_ms;
        ssize_t got = !late && poll(&wait, 1, SERVANT_STALL_MS) == 1
                          ? read(asked->fd, (char *)bytes + len, n - len)
                          : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    return len;
}

/* A byte at a time: what follows the line is not the protocol's. */
static size_t receive_line(const struct asked *asked, char *line, size_t cap)
{
    size_t n = 0;
    while (n < cap && servant_receive(asked, line + n, 1) == 1 && line[n] != '\n')
        n++;
    return n;
}

static void send_all(int fd, const struct text *out)
{
    for (size_t sent = 0; sent < out->len;) {
        ssize_t done = send(fd, out->data + sent, out->len - sent, MSG_NOSIGNAL);
        if (done <= 0)
            return;
        sent += (size_t)done;
    }
}

_Noreturn static void serve_client(int fd, int limit_ms,
                                   bool (*answer)(const struct asked *asked, struct text *text))
{
    static char line[CONTROL_REQUEST_BYTES], bytes[SERVANT_TEXT_BYTES],
        escaped[2 * SERVANT_TEXT_BYTES];
    struct text text = text_over(bytes, sizeof bytes), out = text_over(escaped, sizeof escaped);
    struct asked asked = {.fd = fd, .end_ms = clock_ms() + limit_ms};
    size_t n = receive_line(&asked, line, sizeof line);
    bool ok = request_parse(&asked.request, line, n);
    if (ok)
        ok = answer(&asked, &text);
    else
        text_printf(&text, "not a request");
    answer_write(&out, ok, text.data, text.len, NULL, 0);
    send_all(fd, &out);
    _exit(0);
}

static int open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    umask(0177); /* this user, and root, who may everything */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4) != 0)
        return -1;
    return fd;
}

static bool is_root(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == BOX_UID_ROOT;
}

int servant_run(const char *path, int limit_ms,
                bool (*answer)(const struct asked *asked, struct text *text))
{
    int listen_fd = open_socket(path);
    if (listen_fd < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 2;
    }
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        pid_t pid = is_root(fd) ? fork() : -1;
        if (pid == 0)
            serve_client(fd, limit_ms, answer);
        close(fd);
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
}
