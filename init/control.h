/*
 * Init's control socket: bounded clients, one request and one answer each, never blocking PID 1.
 * Knows the protocol's lines and root's right to speak, not the commands.
 */
#ifndef V4BOX_INIT_CONTROL_H
#define V4BOX_INIT_CONTROL_H

#include "config/box.h"
#include "init/protocol.h"
#include "init/text.h"

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

struct control_client {
    int fd; /* owns; -1: free */
    int64_t deadline_ms;
    size_t in_len, sent; /* bytes of `in` filled, bytes of `answer` sent */
    char in[CONTROL_REQUEST_BYTES];
    struct text answer; /* over `out` */
    char out[CONTROL_ANSWER_BYTES];
};

struct control {
    int listen_fd; /* owns; -1: not open */
    uid_t peer;    /* who else than root may speak; owns the socket */
    void (*handle)(void *context, const struct request *request, struct text *answer);
    void *context; /* borrows */
    struct control_client client[CONTROL_CLIENTS_MAX];
};

/** One that is not open: what follows may be called, and does nothing. */
void control_init(struct control *c);

/** Listens on `path`, mode 0600.  @err false with errno */
bool control_open(struct control *c, const char *path, uid_t peer,
                  void (*handle)(void *context, const struct request *request, struct text *answer),
                  void *context);
void control_close(struct control *c);

/** Adds what to wait for to a poll set; returns how many, at most 1 + CONTROL_CLIENTS_MAX. */
int control_poll_fds(const struct control *c, struct pollfd *fds);

/** Serves one descriptor that poll reported. */
void control_serve(struct control *c, int fd);

/** Drops clients whose time is over; returns milliseconds until the next one's is, -1: none. */
int control_timers(struct control *c);

#endif
