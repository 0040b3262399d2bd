/* Error texts and exit codes.  Knows no caller. */
#include "engine/base/status.h"

#include <stdarg.h>
#include <stdio.h>

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

int status_exit_code(enum status status)
{
    switch (status) {
    case OK:
        return 0;
    case ERR_CHECK:
        return 1;
    default:
        return 2;
    }
}
