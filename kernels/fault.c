/* How a process ends that cannot go on. */
#include "kernels/fault.h"

#include "config/limits.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    void (*listener)(void *user, const char *line);
    void *user;
    atomic_flag spoken;
} fault = {.spoken = ATOMIC_FLAG_INIT};

void fault_tell(void (*listener)(void *user, const char *line), void *user)
{
    fault.listener = listener;
    fault.user = user;
}

void fault_end(const char *format, ...)
{
    char line[ERROR_TEXT_BYTES];
    va_list args;
    while (atomic_flag_test_and_set(&fault.spoken))
        pause(); /* another thread ends the process */
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", line);
    if (fault.listener != NULL)
        fault.listener(fault.user, line);
    _exit(EXIT_FAILURE);
}
