/*
 * The API's errors: one table (errors.def), one JSON form.  Knows no HTTP library and no client
 * text: what varies is the path of the field (our own words and indices) and plain numbers.
 */
#ifndef V4BOX_ENGINE_API_ERRORS_H
#define V4BOX_ENGINE_API_ERRORS_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Measured to make clients compact their session; context size and prompt length (api.md 5). */
#define API_OVERFLOW_FORMAT                                                                        \
    "This model's maximum context length is %lld tokens. However, your messages resulted in %lld " \
    "tokens. Please reduce the length of the messages."

/* The same for clients of the Messages API: prompt length, then context size. */
#define ANTHROPIC_OVERFLOW_FORMAT "prompt is too long: %lld tokens > %lld maximum"

enum api_code {
    API_OK = 0,
#define API_ERROR(name, status, type, code, retry_s, text) API_##name,
#include "engine/api/errors.def"
#undef API_ERROR
    API_CODES,
};

#define API_PARAM_BYTES 96 /* "messages[16383].tool_calls[511].function.arguments" and room */

struct api_error {
    enum api_code code;          /* API_OK: none */
    char param[API_PARAM_BYTES]; /* path of the field; "": none */
    int64_t limit, got, offset;  /* NUMBER_NONE: not said */
    int32_t retry_s;             /* 0: what the table says */
};

#define NUMBER_NONE (-1)

/* One row of the table. */
struct api_error_row {
    int status;
    const char *type, *code;
    int retry_s; /* 0: hopeless */
    const char *text;
};

const struct api_error_row *api_error_row(enum api_code code);

/** Fills *err, with a printf path of the field or NULL.  @return false, for `return api_fail(..)`
 */
_Bool api_fail(struct api_error *err, enum api_code code, const char *param, ...)
    __attribute__((format(printf, 3, 4)));
/** The same with the limit that was crossed and what came instead (NUMBER_NONE: not said). */
_Bool api_fail_limit(struct api_error *err, enum api_code code, const char *param, int64_t limit,
                     int64_t got);

/* A path may begin with `from`, or go on with it, in which case `to` stands for it. */
struct api_path_row {
    const char *from, *to;
    bool front;
};

/** The path of a field in the words of another API: the first row that fits, else as it is. */
void api_path(const struct api_path_row *rows, size_t n_rows, const char *path,
              char out[API_PARAM_BYTES]);

/** Appends {"error":{"message","type","param","code"[,"limit","got","offset"]}}. */
void api_error_dump(struct buf *out, const struct api_error *err);

#endif
