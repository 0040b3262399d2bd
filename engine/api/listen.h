/*
 * The listening socket: ADDR:PORT, [ADDR6]:PORT or unix:PATH, and who may connect to the last one.
 * Knows no HTTP.
 */
#ifndef V4BOX_ENGINE_API_LISTEN_H
#define V4BOX_ENGINE_API_LISTEN_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define LISTEN_TEXT_BYTES 128 /* "unix:" and sun_path, or the longest address */

struct listener {
    int fd;                       /* owns; non-blocking */
    char text[LISTEN_TEXT_BYTES]; /* what was bound, with the port that port 0 became */
    const char *path;             /* borrows from `text`: the unix socket to remove, or NULL */
};

/**
 * Opens the socket.  A dead unix socket in the way is removed, a live one or any other file is not.
 * @own listener_close  @err ERR_USAGE: the text; ERR_IO: the system refused
 */
enum status MUST_CHECK listener_open(const char *where, struct listener *out, struct error *err);
void listener_close(struct listener *listener);

/**
 * Lets other users reach the unix socket; who they are is then asked of each connection.
 * @err ERR_USAGE: it is no unix socket; ERR_IO
 */
enum status MUST_CHECK listener_share(const struct listener *listener, struct error *err);

/** Whether the process that opened this connection to a unix socket belongs to `uid`. */
bool listener_peer_is(int fd, uid_t uid);

#endif
