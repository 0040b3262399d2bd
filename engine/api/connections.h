/*
 * The open connections and the thread that watches them.  The HTTP library bounds idle time only,
 * and nothing at all while a connection is suspended; here every phase has an absolute deadline,
 * streams get their heartbeats, and a client that hangs up is noticed.  Knows sockets and streams,
 * no HTTP. Lock order: connections, then stream.
 */
#ifndef V4BOX_ENGINE_API_CONNECTIONS_H
#define V4BOX_ENGINE_API_CONNECTIONS_H

#include "engine/api/stream.h"
#include "engine/base/status.h"

struct connections;
struct peer; /* one connection */

/* What a connection is doing; each phase has its bound in connections.c. */
enum peer_phase {
    PEER_HEAD,   /* accepted, the first head is not complete */
    PEER_IDLE,   /* between requests, or in the head of a later one */
    PEER_BODY,   /* the body comes in */
    PEER_ANSWER, /* the answer is made or written */
    PEER_PHASES,
};

/** Starts the watching thread.  @own connections_destroy  @err ERR_IO */
enum status MUST_CHECK connections_create(struct connections **out, struct error *err);
/** Ends the thread and closes what lingers; the library must have closed all connections before. */
void connections_destroy(struct connections *connections);

/** @own connections_remove, before the library closes fd */
struct peer *connections_add(struct connections *connections, int fd);
void connections_remove(struct connections *connections, struct peer *peer);

void connections_phase(struct connections *connections, struct peer *peer, enum peer_phase phase);

/** Watches a stream for this connection until it is told NULL.  Borrows the stream. */
void connections_watch(struct connections *connections, struct peer *peer, struct stream *stream);

/** The peer may still be sending: read and drop that for a while after the answer. */
void connections_linger(struct connections *connections, struct peer *peer);

/** Tells every stream, now and later, to end, then shuts every connection; waits at most
 *  HTTP_STOP_MS_MAX for each. */
void connections_stop(struct connections *connections);

#endif
