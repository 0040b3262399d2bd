/*
 * The serving side of the admin protocol for programs whose requests bring bytes or take long: a
 * socket for root, and a child for each request, one after the other, so that memory and mounts of
 * a request end with it.  Knows no command.
 */
#ifndef V4BOX_INIT_SERVANT_H
#define V4BOX_INIT_SERVANT_H

#include "init/protocol.h"
#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One request being served. */
struct asked {
    int fd;
    int64_t end_ms; /* of the request: nobody holds up the next one for ever */
    struct request request;
};

/** Reads up to `n` bytes that follow the request; fewer at their end, or when the sender stalls. */
size_t servant_receive(const struct asked *asked, void *bytes, size_t n);

/**
 * Answers on `path` for ever; a request may take `limit_ms`.  `answer` says whether it went well
 * and writes why, and runs in a process of its own.
 * @err returns 2, with the reason on stderr, when it can not listen
 */
int servant_run(const char *path, int limit_ms,
                bool (*answer)(const struct asked *asked, struct text *text));

#endif
