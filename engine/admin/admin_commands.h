/*
 * From one request line to one answer line of the admin socket.  Knows no sockets.
 */
#ifndef V4BOX_ENGINE_ADMIN_COMMANDS_H
#define V4BOX_ENGINE_ADMIN_COMMANDS_H

#include "engine/admin/admin.h"
#include "engine/base/buf.h"

#include <stddef.h>

/**
 * Carries out one request and appends its answer, newline included.  Any bytes may come in; an
 * answer is always given.
 * @unit uptime_s: seconds since admin_start
 */
void admin_answer(const struct admin_scope *scope, long long uptime_s, const char *line, size_t len,
                  struct buf *out);

/** Appends {"ok":false,"text":reason} and a newline. */
void admin_refuse(struct buf *out, const char *reason);

#endif
