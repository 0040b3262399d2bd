/* The log.  Formats into a fixed line and writes it in one call; never allocates, never fails. */
#include "engine/base/log.h"

#include "kernels/check.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(LOG_LINE_BYTES <= PIPE_BUF, "a line to a pipe must be one atomic write");

static const char *const LEVELS[] = {
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_ERROR] = "error",
};

size_t log_format(char out[LOG_LINE_BYTES], long long seconds, int ms, enum log_level level,
                  const char *room, const char *text)
{
    time_t when = (time_t)seconds;
    struct tm tm;
    ASSERT(gmtime_r(&when, &tm) != NULL);
    char stamp[64];
    size_t n_stamp = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    ASSERT(n_stamp > 0 && (unsigned)ms < 1000 && (size_t)level < sizeof LEVELS / sizeof LEVELS[0]);
    int n = snprintf(out, LOG_LINE_BYTES, "%s.%03dZ %s %.32s: %s", stamp, ms, LEVELS[level], room,
                     text);
    ASSERT(n > 0);
    size_t len = (size_t)n;
    if (len > LOG_LINE_BYTES - 1) { /* the newline takes the place of the NUL */
        len = LOG_LINE_BYTES - 1;
        memcpy(out + len - 3, "...", 3);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)out[i] < 0x20 || out[i] == 0x7f)
            out[i] = '?';
    }
    out[len] = '\n';
    return len + 1;
}

void log_line(enum log_level level, const char *room, const char *format, ...)
{
    char text[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char line[LOG_LINE_BYTES];
    size_t len = log_format(line, now.tv_sec, (int)(now.tv_nsec / 1000000), level, room, text);
    /* A log that can not be written is no reason to stop answering. */
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
}
