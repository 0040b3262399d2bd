/*
 * The log: one line an event on stderr, "time level room: text".  init keeps the lines of the box.
 * Never called with content: no prompt, no answer, no header, no key (ids of keys are fine).
 */
#ifndef V4BOX_ENGINE_LOG_H
#define V4BOX_ENGINE_LOG_H

#include "config/limits.h"

#include <stddef.h>

enum log_level { LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/**
 * Writes one line to stderr with one write(2), so that lines of several threads stay whole.
 * Control bytes in the text become '?', a text that is too long ends in "...".
 * @thread any
 */
void log_line(enum log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * The line that log_line writes, newline included, for a given time.
 * @unit  seconds and milliseconds since the epoch (UTC)
 * @return bytes in `out`, at most LOG_LINE_BYTES; no NUL behind them
 */
size_t log_format(char out[LOG_LINE_BYTES], long long seconds, int ms, enum log_level level,
                  const char *room, const char *text);

#endif
