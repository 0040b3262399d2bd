/*
 * The listening socket: ADDR:PORT, [ADDR6]:PORT or unix:PATH.  Knows no HTTP.
 */
#ifndef V4BOX_ENGINE_API_LISTEN_H
#define V4BOX_ENGINE_API_LISTEN_H

#include "engine/base/status.h"

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

#endif
