/* Where init's own lines and those of its services go. */
#include "init/journal.h"

#include "init/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void journal_line(struct journal *j, const char *who, const char *line, size_t n)
{
    char stamped[LOG_LINE_BYTES + 1];
    struct text t = text_over(stamped, sizeof stamped);
    int64_t now_ms = clock_ms();
    if (j->watch != NULL)
        j->watch(who, line, n);
    text_printf(&t, "%6lld.%03d %s: ", (long long)(now_ms / 1000), (int)(now_ms % 1000), who);
    size_t room = LOG_LINE_BYTES - t.len;
    text_add_printable(&t, line, n < room ? n : room);
    ring_add(&j->ring, t.data, t.len);
    if (j->echo_fd >= 0 && (write(j->echo_fd, t.data, t.len) < 0 || write(j->echo_fd, "\n", 1) < 0))
        j->echo_fd = -1; /* a serial line that refuses bytes must not stop the boot */
}

void journal_printf(struct journal *j, const char *who, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        journal_line(j, who, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}
