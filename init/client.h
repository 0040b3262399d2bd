/*
 * The asking side of the admin protocol: connect, one request, one answer, each wait bounded.
 */
#ifndef V4BOX_INIT_CLIENT_H
#define V4BOX_INIT_CLIENT_H

#include "init/protocol.h"

enum client_result {
    CLIENT_ANSWERED,
    CLIENT_ABSENT, /* nobody listens there */
    CLIENT_SILENT, /* no answer in time */
    CLIENT_BROKEN  /* an answer that is none */
};

/* One answer with the memory it lives in. */
struct client {
    struct answer answer;
    size_t line_len;
    char line[CONSOLE_ANSWER_BYTES]; /* as received, without the newline */
    char text[CONSOLE_ANSWER_BYTES];
};

/** Asks the server at `path`.  Only CLIENT_ANSWERED fills the answer. */
enum client_result client_ask(struct client *c, const char *path, const struct request *request,
                              int timeout_ms);

/**
 * The same with everything that `input` gives behind the request line, until its end.  The server
 * may answer sooner.  No time limit on the input itself: that is the server's.
 */
enum client_result client_stream(struct client *c, const char *path, const struct request *request,
                                 int input, int timeout_ms);

/** Why there is no answer, for people. */
const char *client_result_text(enum client_result result);

#endif
