/*
 * From one request line to one answer line of the admin socket.  Knows no sockets.
 */
#ifndef V4BOX_ENGINE_ADMIN_COMMANDS_H
#define V4BOX_ENGINE_ADMIN_COMMANDS_H

#include "engine/admin/admin.h"
#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Carries out one request and appends its answer, newline included.  Any bytes may come in; an
 * answer is always given, or comes from a job.
 * `file` is what came behind its line, empty unless admin_file_max lets one follow.
 * @unit uptime_s: seconds since admin_start
 * @return the job whose result is the answer (admin_answer_job); 0: it is in `out`
 */
uint64_t admin_answer(const struct admin_scope *scope, long long uptime_s, const char *line,
                      size_t len, const struct buf *file, struct buf *out);

/** Bytes of the file that may follow a request line, until the sender's end; 0: none does. */
size_t admin_file_max(const char *line, size_t len);

/** Appends the answer of a job.  @return false: it runs still */
bool admin_answer_job(const struct admin_scope *scope, uint64_t job, struct buf *out);

/** Appends {"ok":false,"text":reason} and a newline. */
void admin_refuse(struct buf *out, const char *reason);

#endif
