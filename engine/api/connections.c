/* The registry of connections and its watchdog thread. */
#include "engine/api/connections.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/base/thread.h"
#include "kernels/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Longest stay in a phase.  An answer has its own bounds in stream.c; this one catches clients that
 * take it a byte at a time. */
static const int64_t PHASE_MS_MAX[PEER_PHASES] = {
    [PEER_HEAD] = HTTP_HEADER_MS_MAX,
    [PEER_IDLE] = HTTP_IDLE_S_MAX * 1000 + HTTP_HEADER_MS_MAX,
    [PEER_BODY] = HTTP_BODY_MS_MAX,
    [PEER_ANSWER] = ANSWER_MS_MAX + HTTP_BODY_MS_MAX,
};

struct peer {
    struct peer *next, *previous;
    int fd; /* borrows: the library closes it after connections_remove */
    enum peer_phase phase;
    int64_t since_ms;
    struct stream *stream; /* borrows, or NULL */
    bool linger;
};

struct lingering {
    int fd; /* owns; -1: free */
    int64_t until_ms;
};

struct connections {
    pthread_mutex_t lock;   /* protects everything below */
    pthread_cond_t changed; /* wakes the watchdog early */
    struct peer *first;
    struct lingering lingering[HTTP_LINGER_MAX];
    bool stopping; /* streams are told to end */
    bool closing;  /* connections are shut as they come */
    bool ending;   /* the thread is */
    pthread_t thread;
};

/* True when the other side has closed, or only its sending half: no client that still wants its
 * answer does that, and a machine that is off does not say more. */
static bool hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void watch_peers(struct connections *c, int64_t now)
{
    for (struct peer *p = c->first; p != NULL; p = p->next) {
        if (now - p->since_ms > PHASE_MS_MAX[p->phase])
            shutdown(p->fd, SHUT_RDWR);
        /* The library may miss a hang-up that came together with the request. */
        bool gone = (p->stream != NULL || p->phase == PEER_IDLE) && hung_up(p->fd);
        if (gone)
            shutdown(p->fd, SHUT_RDWR);
        if (gone && p->stream != NULL)
            stream_hang_up(p->stream);
        else if (p->stream != NULL)
            stream_tick(p->stream, now);
    }
}

/* Drops what has come in on one lingering socket.  @return false when it is over */
static bool drain(struct lingering *l, int64_t now)
{
    char dropped[16384];
    for (int i = 0; i < 64; i++) { /* 1 MiB a tick */
        ssize_t n = recv(l->fd, dropped, sizeof dropped, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n < 0)
            break;
    }
    return now < l->until_ms;
}

static void watch_lingering(struct connections *c, int64_t now)
{
    for (int i = 0; i < HTTP_LINGER_MAX; i++) {
        struct lingering *l = &c->lingering[i];
        if (l->fd >= 0 && !drain(l, now)) {
            close(l->fd);
            l->fd = -1;
        }
    }
}

static void *watch(void *user)
{
    struct connections *c = user;
    pthread_mutex_lock(&c->lock);
    while (!c->ending) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += HTTP_TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->changed, &c->lock, &until);
        int64_t now = clock_ms();
        watch_peers(c, now);
        watch_lingering(c, now);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

enum status connections_create(struct connections **out, struct error *err)
{
    struct connections *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    for (int i = 0; i < HTTP_LINGER_MAX; i++)
        c->lingering[i].fd = -1;
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&c->changed, NULL) == 0);
    enum status status = thread_start(&c->thread, "connections", watch, c, err);
    if (status == OK)
        *out = c;
    else
        free(c);
    return status;
}

void connections_destroy(struct connections *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    ASSERT(c->first == NULL);
    c->ending = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < HTTP_LINGER_MAX; i++) {
        if (c->lingering[i].fd >= 0)
            close(c->lingering[i].fd);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct peer *connections_add(struct connections *c, int fd)
{
    struct peer *p = calloc(1, sizeof *p);
    ASSERT(p != NULL);
    p->fd = fd;
    p->since_ms = clock_ms();
    pthread_mutex_lock(&c->lock);
    p->next = c->first;
    if (c->first != NULL)
        c->first->previous = p;
    c->first = p;
    if (c->closing)
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
    return p;
}

/* A second descriptor keeps the socket open when the library closes its own; that one has shut the
 * sending half down by then, so the peer sees the end of the answer at once. */
static void keep_lingering(struct connections *c, int fd)
{
    for (int i = 0; i < HTTP_LINGER_MAX; i++) {
        struct lingering *l = &c->lingering[i];
        if (l->fd >= 0)
            continue;
        l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        l->until_ms = clock_ms() + HTTP_LINGER_MS_MAX;
        return;
    }
}

void connections_remove(struct connections *c, struct peer *p)
{
    pthread_mutex_lock(&c->lock);
    ASSERT(p->stream == NULL);
    if (p->linger && !c->stopping)
        keep_lingering(c, p->fd);
    if (p->previous != NULL)
        p->previous->next = p->next;
    else
        c->first = p->next;
    if (p->next != NULL)
        p->next->previous = p->previous;
    pthread_mutex_unlock(&c->lock);
    free(p);
}

void connections_phase(struct connections *c, struct peer *p, enum peer_phase phase)
{
    pthread_mutex_lock(&c->lock);
    p->phase = phase;
    p->since_ms = clock_ms();
    pthread_mutex_unlock(&c->lock);
}

void connections_watch(struct connections *c, struct peer *p, struct stream *stream)
{
    pthread_mutex_lock(&c->lock);
    p->stream = stream;
    if (stream != NULL && c->stopping)
        stream_stop(stream);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void connections_linger(struct connections *c, struct peer *p)
{
    pthread_mutex_lock(&c->lock);
    p->linger = true;
    pthread_mutex_unlock(&c->lock);
}

static bool any_stream(const struct connections *c)
{
    for (const struct peer *p = c->first; p != NULL; p = p->next) {
        if (p->stream != NULL)
            return true;
    }
    return false;
}

static bool any_peer(const struct connections *c)
{
    return c->first != NULL;
}

/* With the lock held, except while it sleeps. */
static void wait_while(struct connections *c, bool (*any)(const struct connections *c))
{
    int64_t until = clock_ms() + HTTP_STOP_MS_MAX;
    while (any(c) && clock_ms() < until) {
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000L}, NULL);
        pthread_mutex_lock(&c->lock);
    }
}

void connections_stop(struct connections *c)
{
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    for (struct peer *p = c->first; p != NULL; p = p->next) {
        if (p->stream != NULL)
            stream_stop(p->stream);
    }
    wait_while(c, any_stream);
    /* libmicrohttpd 0.9.75 crashes when a malformed head meets it while it stops. */
    c->closing = true;
    for (struct peer *p = c->first; p != NULL; p = p->next)
        shutdown(p->fd, SHUT_RDWR);
    wait_while(c, any_peer);
    pthread_mutex_unlock(&c->lock);
}
