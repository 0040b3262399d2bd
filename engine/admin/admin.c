/*
 * The admin socket's server: one thread, one poll, a fixed table of clients.  A client is read
 * until its line is whole, answered, written until all is sent, and closed; whoever is slower than
 * ADMIN_WAIT_MS_MAX is closed unanswered.
 */
#include "engine/admin/admin.h"

#include "engine/admin/admin_commands.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "kernels/check.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A console that can not be accepted (no descriptors left) is tried again after this long. */
#define ACCEPT_RETRY_MS 100

struct client {
    int fd; /* owns; -1: free */
    int64_t deadline_ms;
    uint64_t job; /* whose result is the answer; 0: none */
    size_t n_in, n_sent;
    size_t line, file_max;                /* bytes of a line behind which a file follows; 0 */
    struct buf file;                      /* owns */
    struct buf out;                       /* owns; the answer, empty until the line is whole */
    char in[ADMIN_REQUEST_BYTES_MAX + 1]; /* one more than a request may have, to see that it is */
};

struct admin {
    struct admin_scope scope;
    struct sockaddr_un address;
    int listener, stop; /* own; stop is an eventfd */
    int64_t started_ms;
    pthread_t thread;
    struct client clients[ADMIN_CLIENTS_MAX];
};

/* ---- one client ----------------------------------------------------------------------------- */

static void client_close(struct client *c)
{
    close(c->fd);
    c->fd = -1;
    if (c->out.cap > 0)
        sodium_memzero(c->out.data, c->out.cap); /* it may have shown a new key */
    buf_free(&c->out);
    buf_free(&c->file);
    c->n_in = c->n_sent = c->line = c->file_max = 0;
    c->job = 0;
}

static void client_answer(struct admin *a, struct client *c)
{
    c->job = admin_answer(&a->scope, (clock_ms() - a->started_ms) / 1000, c->in, c->line, &c->file,
                          &c->out);
    if (c->job != 0)
        c->deadline_ms = clock_ms() + ADMIN_JOB_MS_MAX;
    buf_free(&c->file);
}

static void file_add(struct client *c, const char *bytes, size_t n)
{
    if (n > c->file_max - c->file.len)
        admin_refuse(&c->out, "the file is larger than one may be");
    else
        buf_add(&c->file, bytes, n);
}

/* What follows the line, until the sender's end. */
static void client_read_file(struct admin *a, struct client *c)
{
    char bytes[ADMIN_REQUEST_BYTES_MAX];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        client_close(c);
    else if (n > 0)
        file_add(c, bytes, (size_t)n);
    else
        client_answer(a, c);
}

static void client_take_line(struct admin *a, struct client *c, size_t line)
{
    c->line = line;
    c->file_max = admin_file_max(c->in, line);
    size_t more = c->n_in - line - 1;
    if (c->file_max > 0) {
        c->deadline_ms = clock_ms() + ADMIN_FILE_MS_MAX;
        file_add(c, c->in + line + 1, more);
    } else if (more > 0) {
        admin_refuse(&c->out, "one request a connection");
    } else {
        client_answer(a, c);
    }
}

static void client_read(struct admin *a, struct client *c)
{
    ssize_t n = recv(c->fd, c->in + c->n_in, sizeof c->in - c->n_in, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        client_close(c);
        return;
    }
    char *newline = memchr(c->in + c->n_in, '\n', (size_t)n);
    c->n_in += (size_t)n;
    size_t line = newline != NULL ? (size_t)(newline - c->in) : c->n_in;
    if (line > ADMIN_REQUEST_BYTES_MAX - 1) /* the newline counts */
        admin_refuse(&c->out, "the request is larger than 64 KiB");
    else if (newline == NULL && n == 0 && c->n_in == 0)
        client_close(c);
    else if (newline == NULL && n == 0)
        admin_refuse(&c->out, "the request has no end of line");
    else if (newline != NULL)
        client_take_line(a, c, line);
}

static void client_write(struct client *c)
{
    ssize_t n = send(c->fd, c->out.data + c->n_sent, c->out.len - c->n_sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        c->n_sent += (size_t)n;
    if (n < 0 || c->n_sent == c->out.len)
        client_close(c);
}

/* Root and the engine's own user may speak; the socket's mode says so too, this does not depend on
 * who made the folder. */
static bool peer_good(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static void client_accept(struct admin *a, struct client *free_client)
{
    int fd = accept4(a->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            poll(NULL, 0, ACCEPT_RETRY_MS);
        return;
    }
    if (!peer_good(fd)) {
        log_line(LOG_LEVEL_WARN, "admin", "refused a peer of another user");
        close(fd);
        return;
    }
    free_client->fd = fd;
    free_client->deadline_ms = clock_ms() + ADMIN_WAIT_MS_MAX;
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Answers who waited for a job that is done. */
static void sweep_jobs(struct admin *a)
{
    for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        struct client *c = &a->clients[i];
        if (c->fd < 0 || c->job == 0 || !admin_answer_job(&a->scope, c->job, &c->out))
            continue;
        c->job = 0;
        c->deadline_ms = clock_ms() + ADMIN_WAIT_MS_MAX;
    }
}

/* Closes who is late.  @return ms until the next deadline or look at a job, -1: nobody is here */
static int sweep_deadlines(struct admin *a)
{
    int64_t now = clock_ms(), next = -1;
    for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        struct client *c = &a->clients[i];
        if (c->fd < 0)
            continue;
        if (c->deadline_ms <= now)
            client_close(c);
        else if (next < 0 || c->deadline_ms - now < next)
            next = c->deadline_ms - now;
        if (c->fd >= 0 && c->job != 0 && next > ADMIN_JOB_LOOK_MS)
            next = ADMIN_JOB_LOOK_MS;
    }
    return (int)next;
}

static struct client *free_client(struct admin *a)
{
    for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        if (a->clients[i].fd < 0)
            return &a->clients[i];
    }
    return NULL;
}

static void *run(void *context)
{
    struct admin *a = context;
    struct pollfd polls[2 + ADMIN_CLIENTS_MAX];
    for (;;) {
        sweep_jobs(a);
        int timeout_ms = sweep_deadlines(a);
        struct client *spare = free_client(a);
        polls[0] = (struct pollfd){.fd = a->stop, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = spare != NULL ? a->listener : -1, .events = POLLIN};
        for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
            struct client *c = &a->clients[i];
            short events = c->job != 0 ? 0 : c->out.len > 0 ? POLLOUT : POLLIN;
            polls[2 + i] = (struct pollfd){.fd = c->fd, .events = events};
        }
        if (poll(polls, 2 + ADMIN_CLIENTS_MAX, timeout_ms) < 0)
            continue; /* EINTR: all signals are blocked, but a debugger may stop us */
        if (polls[0].revents != 0)
            return NULL;
        for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
            struct client *c = &a->clients[i];
            if (polls[2 + i].revents == 0)
                continue;
            if (c->job != 0)
                client_close(c); /* hung up; the job goes on */
            else if (c->out.len > 0)
                client_write(c);
            else if (c->file_max > 0)
                client_read_file(a, c);
            else
                client_read(a, c);
        }
        if (polls[1].revents != 0)
            client_accept(a, spare);
    }
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Makes room for the socket: removes one that nobody serves, refuses everything else. */
static enum status path_clear(const struct sockaddr_un *address, struct error *err)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? OK : error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, ERR_INPUT, "%s: is there already and no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    bool dead = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                errno == ECONNREFUSED;
    close(fd);
    if (!dead)
        return error_set(err, ERR_INPUT, "%s: is in use", path);
    if (unlink(path) != 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    return OK;
}

static enum status listen_at(struct admin *a, struct error *err)
{
    enum status status = path_clear(&a->address, err);
    if (status != OK)
        return status;
    a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* On Linux a socket's file gets the mode of its descriptor: there is no moment at which others
     * could connect, and no umask to change for the whole process. */
    if (a->listener < 0 || fchmod(a->listener, 0600) != 0 ||
        bind(a->listener, (const struct sockaddr *)&a->address, sizeof a->address) != 0 ||
        listen(a->listener, ADMIN_CLIENTS_MAX) != 0)
        return error_set(err, ERR_IO, "%s: %s", a->address.sun_path, strerror(errno));
    return OK;
}

static void admin_free(struct admin *a)
{
    for (int i = 0; i < ADMIN_CLIENTS_MAX; i++) {
        if (a->clients[i].fd >= 0)
            client_close(&a->clients[i]);
    }
    if (a->listener >= 0)
        close(a->listener);
    if (a->stop >= 0)
        close(a->stop);
    free(a);
}

enum status admin_start(const char *path, const struct admin_scope *scope, struct admin **out,
                        struct error *err)
{
    struct admin *a = calloc(1, sizeof *a);
    ASSERT(a != NULL);
    a->scope = *scope;
    a->started_ms = clock_ms();
    a->listener = -1;
    for (int i = 0; i < ADMIN_CLIENTS_MAX; i++)
        a->clients[i].fd = -1;
    a->address.sun_family = AF_UNIX;
    enum status status = OK;
    a->stop = eventfd(0, EFD_CLOEXEC);
    if (a->stop < 0)
        status = error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    else if (path[0] == '\0' || strlen(path) >= sizeof a->address.sun_path)
        status = error_set(err, ERR_INPUT, "the path of the admin socket must have 1 to %zu bytes",
                           sizeof a->address.sun_path - 1);
    if (status == OK) {
        memcpy(a->address.sun_path, path, strlen(path));
        status = listen_at(a, err);
    }
    if (status == OK) {
        status = thread_start(&a->thread, "admin", run, a, err);
        if (status != OK)
            unlink(path);
    }
    if (status != OK) {
        admin_free(a);
        return status;
    }
    *out = a;
    return OK;
}

void admin_stop(struct admin *a)
{
    if (a == NULL)
        return;
    ASSERT(eventfd_write(a->stop, 1) == 0);
    ASSERT(pthread_join(a->thread, NULL) == 0);
    unlink(a->address.sun_path);
    admin_free(a);
}
