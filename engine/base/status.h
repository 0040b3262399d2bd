/*
 * How a fallible call of the engine answers: a status and, for people, one line of text.
 * Errors are of three kinds (see README): broken invariants abort (ASSERT), start-up faults end the
 * program with an exit code, and input faults are returned with the file or field named.
 */
#ifndef V4BOX_ENGINE_STATUS_H
#define V4BOX_ENGINE_STATUS_H

#include "config/limits.h"

#define MUST_CHECK __attribute__((warn_unused_result))

enum status {
    OK = 0,
    ERR_USAGE,    /* a flag or subcommand: exit 2 */
    ERR_INPUT,    /* a file or field is wrong: exit 2 */
    ERR_IO,       /* the system refused: exit 2 */
    ERR_CHECK,    /* the thing checked is not as it should be: exit 1 */
    ERR_CAPACITY, /* a stated limit is reached */
};

struct error {
    enum status status;
    char text[ERROR_TEXT_BYTES]; /* NUL-terminated; never client text or secrets */
};

/** Fills *err (may be NULL) and returns `status`, so that a caller can `return error_set(...)`. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The exit code that belongs to a status: 0 good, 1 the check failed, 2 usage or input. */
int status_exit_code(enum status status);

#endif
