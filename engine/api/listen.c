/* The listening socket.  Addresses are numbers: a box resolves no names. */
#include "engine/api/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

/* "1.2.3.4:80" or "[::1]:80". */
static bool parse_inet(const char *where, union address *out, socklen_t *len)
{
    char host[INET6_ADDRSTRLEN];
    const char *colon = strrchr(where, ':');
    if (colon == NULL || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    long port = strtol(colon + 1, NULL, 10);
    size_t n = (size_t)(colon - where);
    bool v6 = n >= 2 && where[0] == '[' && where[n - 1] == ']';
    if (v6) {
        where++;
        n -= 2;
    }
    if (port > 65535 || n == 0 || n >= sizeof host)
        return false;
    memcpy(host, where, n);
    host[n] = '\0';
    memset(out, 0, sizeof *out);
    if (v6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        *len = sizeof out->v6;
        return inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    *len = sizeof out->v4;
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
}

/* A socket that nobody answers is left over from a crash and may go. */
static void remove_dead(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
        errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
}

static void describe(struct listener *l, const char *where, int family)
{
    union address bound;
    socklen_t len = sizeof bound;
    char host[INET6_ADDRSTRLEN];
    l->path = NULL;
    if (family == AF_UNIX || getsockname(l->fd, &bound.any, &len) != 0) {
        snprintf(l->text, sizeof l->text, "%s", where);
        if (family == AF_UNIX)
            l->path = l->text + strlen("unix:");
        return;
    }
    if (family == AF_INET6) {
        inet_ntop(AF_INET6, &bound.v6.sin6_addr, host, sizeof host);
        snprintf(l->text, sizeof l->text, "[%s]:%d", host, ntohs(bound.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &bound.v4.sin_addr, host, sizeof host);
        snprintf(l->text, sizeof l->text, "%s:%d", host, ntohs(bound.v4.sin_port));
    }
}

enum status listener_open(const char *where, struct listener *out, struct error *err)
{
    union address address;
    socklen_t len = 0;
    if (strncmp(where, "unix:", 5) == 0) {
        const char *path = where + 5;
        memset(&address, 0, sizeof address);
        if (path[0] == '\0' || strlen(path) >= sizeof address.local.sun_path)
            return error_set(err, ERR_USAGE,
                             "--listen: the path of a unix socket has 1 to %zu bytes",
                             sizeof address.local.sun_path - 1);
        address.local.sun_family = AF_UNIX;
        memcpy(address.local.sun_path, path, strlen(path));
        len = sizeof address.local;
        remove_dead(&address.local);
    } else if (!parse_inet(where, &address, &len)) {
        return error_set(err, ERR_USAGE, "--listen: want ADDR:PORT, [ADDR6]:PORT or unix:PATH");
    }
    int one = 1;
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, ERR_IO, "--listen %s: %s", where, strerror(errno));
    if (address.any.sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &address.any, len) != 0 || listen(fd, SOMAXCONN) != 0) {
        int code = errno;
        close(fd);
        return error_set(err, ERR_IO, "--listen %s: %s", where, strerror(code));
    }
    out->fd = fd;
    describe(out, where, address.any.sa_family);
    return OK;
}

enum status listener_share(const struct listener *listener, struct error *err)
{
    if (listener->path == NULL)
        return error_set(err, ERR_USAGE, "--front: --listen must be unix:PATH");
    /* Connecting takes the right to write.  Not before bind(), where the umask would take it. */
    if (chmod(listener->path, 0666) != 0)
        return error_set(err, ERR_IO, "--listen %s: %s", listener->text, strerror(errno));
    return OK;
}

bool listener_peer_is(int fd, uid_t uid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == uid;
}

void listener_close(struct listener *listener)
{
    if (listener->fd >= 0)
        close(listener->fd);
    if (listener->path != NULL)
        unlink(listener->path);
    listener->fd = -1;
}
