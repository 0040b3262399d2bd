/*
 * The HTTP server: one daemon of libmicrohttpd, its limits, the checks every request passes, and
 * the ways to answer.  What the paths mean is a table of routes owned by the caller (api.c).
 *
 * Order of checks (api.md 5): limits of the library, head, route, key, media type, length, then the
 * body; the route's handler sees only what has passed them all.
 */
#ifndef V4BOX_ENGINE_API_HTTP_H
#define V4BOX_ENGINE_API_HTTP_H

#include "engine/api/connections.h"
#include "engine/api/errors.h"
#include "engine/api/head.h"
#include "engine/api/keys.h"
#include "engine/api/meter.h"
#include "engine/api/metrics.h"
#include "engine/base/buf.h"
#include "engine/precision/profile.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct http_server;
struct exchange;

/**
 * Answers a request whose body is complete.  Either replies, or suspends the connection
 * (stream_next) and is called again when it resumes.
 * @return MHD_NO closes the connection without an answer
 */
typedef enum MHD_Result http_handler(struct exchange *x);

/* How the routes of an API differ from the others beside their handlers. */
struct dialect {
    bool x_api_key; /* takes the key in x-api-key too; Authorization goes first */
    /* NULL: OpenAI's form */
    void (*dump_error)(struct buf *out, const struct exchange *x, const struct api_error *err);
};

struct route {
    const char *method; /* GET serves HEAD too */
    const char *path;   /* ends in '*': any rest that is not empty and has no '/' */
    bool open;          /* needs no key */
    bool body;          /* takes a JSON body */
    http_handler *run;
    const struct dialect *dialect; /* borrows; NULL: OpenAI's */
};

struct http_options {
    int take_listen_fd;         /* closed by the server, also when it does not start */
    const struct route *routes; /* borrows [n_routes] */
    int n_routes;
    struct keys *keys;        /* borrows */
    struct meter *meter;      /* borrows */
    struct metrics *metrics;  /* borrows; NULL: errors are not counted */
    const char *const *names; /* borrows [n_names]: what Host may say, see head.h */
    int n_names;
    int64_t body_bytes_max;
    int front_uid; /* of the proxy, the only user that may connect; 0: everybody may */
    /* What requests that come now run under, for x-v4box-profile; called with `user`. */
    void (*profile)(void *user, struct profile *out);
    void *user; /* for the handlers */
};

#define REQUEST_ID_CHARS 28 /* "req_" and 24 hex digits */

/* One request and its answer. */
struct exchange {
    struct http_server *server;        /* borrows */
    struct MHD_Connection *connection; /* borrows */
    struct peer *peer;                 /* borrows */
    void *user;                        /* http_options.user */
    const struct route *route;         /* borrows; NULL when none matches */
    const char *rest;                  /* what '*' stood for, in the library's memory */
    struct profile profile;            /* what it runs under */
    struct key key;                    /* whose request it is */
    bool metered;                      /* meter_end is due */
    struct head head;
    char id[REQUEST_ID_CHARS + 1];
    struct buf body;
    struct api_error error; /* found before the body came, told after it */
    const char *allow;      /* for 405 */
    int64_t body_dropped, body_reserved, started_ms;
    bool running; /* the handler has been called */
    int status;   /* 0: not answered yet */
    void *state;  /* owns through state_free: what the handler keeps until the request is over */
    void (*state_free)(void *state);
};

/** @own http_stop  @err ERR_IO */
enum status MUST_CHECK http_start(const struct http_options *options, struct http_server **out,
                                  struct error *err);
/** Refuses new requests, ends streams with an error event, closes everything.  Accepts NULL. */
void http_stop(struct http_server *server);

/** Answers with a whole body, which is taken.  @own take_body */
enum MHD_Result http_reply(struct exchange *x, int status, const char *media,
                           struct buf *take_body);
enum MHD_Result http_reply_text(struct exchange *x, int status, const char *constant);
enum MHD_Result http_reply_error(struct exchange *x, const struct api_error *err);
/** Answers 200 with what `reader` gives, until it ends; `reader` may use stream_next to wait. */
enum MHD_Result http_reply_reader(struct exchange *x, const char *media,
                                  MHD_ContentReaderCallback reader, void *user);

/** The body is not needed any more: frees it and the room it held. */
void http_body_done(struct exchange *x);

/** Heartbeats, hang-ups and shutdown reach this stream until the request is over. */
void http_watch(struct exchange *x, struct stream *stream);

#endif
