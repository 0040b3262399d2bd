/* The error table and its JSON form.  Knows no HTTP library. */
#include "engine/api/errors.h"

#include "engine/base/json.h"
#include "kernels/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct api_error_row ROWS[API_CODES] = {
#define API_ERROR(name, status, type, code, retry_s, text)                                         \
    [API_##name] = {status, type, code, retry_s, text},
#include "engine/api/errors.def"
#undef API_ERROR
};

const struct api_error_row *api_error_row(enum api_code code)
{
    ASSERT(code > API_OK && code < API_CODES);
    return &ROWS[code];
}

_Bool api_fail(struct api_error *err, enum api_code code, const char *param, ...)
{
    *err = (struct api_error){
        .code = code, .limit = NUMBER_NONE, .got = NUMBER_NONE, .offset = NUMBER_NONE};
    if (param != NULL) {
        va_list args;
        va_start(args, param);
        vsnprintf(err->param, sizeof err->param, param, args);
        va_end(args);
    }
    return 0;
}

_Bool api_fail_limit(struct api_error *err, enum api_code code, const char *param, int64_t limit,
                     int64_t got)
{
    api_fail(err, code, param == NULL ? NULL : "%s", param);
    err->limit = limit;
    err->got = got;
    return 0;
}

void api_path(const struct api_path_row *rows, size_t n_rows, const char *path,
              char out[API_PARAM_BYTES])
{
    snprintf(out, API_PARAM_BYTES, "%s", path);
    for (size_t i = 0; i < n_rows; i++) {
        size_t n = strlen(rows[i].from);
        const char *at = strstr(path, rows[i].from);
        bool ends = at != NULL && strchr(".[", at[n]) != NULL; /* the terminating NUL too */
        if (!ends || (rows[i].front && at != path))
            continue;
        snprintf(out, API_PARAM_BYTES, "%.*s%s%s", (int)(at - path), path, rows[i].to, at + n);
        return;
    }
}

static void dump_number(struct buf *out, const char *name, int64_t value)
{
    if (value != NUMBER_NONE)
        buf_printf(out, ",\"%s\":%lld", name, (long long)value);
}

void api_error_dump(struct buf *out, const struct api_error *err)
{
    const struct api_error_row *row = api_error_row(err->code);
    buf_puts(out, "{\"error\":{\"message\":\"");
    if (err->code == API_OVERFLOW)
        buf_printf(out, API_OVERFLOW_FORMAT, (long long)err->limit, (long long)err->got);
    else
        buf_puts(out, row->text);
    buf_printf(out, "\",\"type\":\"%s\",\"param\":", row->type);
    if (err->param[0] == '\0')
        buf_puts(out, "null");
    else
        json_dump_string(out, err->param, strlen(err->param));
    buf_printf(out, ",\"code\":\"%s\"", row->code);
    dump_number(out, "limit", err->limit);
    dump_number(out, "got", err->got);
    dump_number(out, "offset", err->offset);
    buf_puts(out, "}}");
}
