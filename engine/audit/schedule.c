/* Days of 86,400 seconds, UTC: no box is set to local time. */
#include "engine/audit/schedule.h"

#include "engine/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DAY_S            86400
#define FILE_BYTES_MAX   64 /* "daily HH:MM", a budget, and 20 digits */
#define SINCE_DIGITS_MAX 12

static bool two_digits(const char *text, int32_t below, int32_t *out)
{
    if (strspn(text, "0123456789") < 2)
        return false;
    *out = (text[0] - '0') * 10 + text[1] - '0';
    return *out < below;
}

bool schedule_parse(const char *time, const char *budget, int64_t now_s, struct audit_schedule *out)
{
    int32_t hour, minute;
    const struct audit_budget *found = audit_budget(budget);
    if (found == NULL || strlen(time) != 5 || time[2] != ':' || !two_digits(time, 24, &hour) ||
        !two_digits(time + 3, 60, &minute))
        return false;
    *out = (struct audit_schedule){found, hour * 60 + minute, now_s};
    return true;
}

void schedule_print(const struct audit_schedule *s, struct buf *out)
{
    if (s->budget == NULL)
        buf_puts(out, "off");
    else
        buf_printf(out, "daily %02d:%02d %s", (int)(s->minute / 60), (int)(s->minute % 60),
                   s->budget->name);
}

/* @return false: no line of this form */
static bool line_parse(char *line, struct audit_schedule *out)
{
    char *rest, *words[4];
    size_t n = 0;
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (n == 4)
            return false;
        words[n++] = word;
    }
    if (n != 4 || strcmp(words[0], "daily") != 0)
        return false;
    size_t digits = strspn(words[3], "0123456789");
    return digits >= 1 && digits <= SINCE_DIGITS_MAX && words[3][digits] == '\0' &&
           schedule_parse(words[1], words[2], strtoll(words[3], NULL, 10), out);
}

enum status schedule_read(const char *path, struct audit_schedule *out, struct error *err)
{
    struct buf text = {0};
    *out = (struct audit_schedule){0};
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return OK;
    enum status status = file_read(path, FILE_BYTES_MAX, &text, err);
    if (status != OK)
        return status;
    bool good = text.len > 1 && text.data[text.len - 1] == '\n' &&
                memchr(text.data, '\0', text.len) == NULL;
    if (good) {
        text.data[text.len - 1] = '\0';
        good = line_parse(text.data, out);
    }
    buf_free(&text);
    return good ? OK : error_set(err, ERR_INPUT, "%s: is no schedule", path);
}

enum status schedule_write(const char *path, const struct audit_schedule *s, struct error *err)
{
    struct buf text = {0};
    if (s->budget == NULL) {
        if (unlink(path) != 0 && errno != ENOENT)
            return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        return OK;
    }
    schedule_print(s, &text);
    buf_printf(&text, " %lld\n", (long long)s->since_s);
    enum status status = file_replace(path, &text, err);
    buf_free(&text);
    return status;
}

bool schedule_due(const struct audit_schedule *s, int64_t last_s, int64_t now_s)
{
    if (s->budget == NULL)
        return false;
    int64_t due_s = now_s - now_s % DAY_S + (int64_t)s->minute * 60;
    if (due_s > now_s)
        due_s -= DAY_S;
    return s->since_s < due_s && last_s < due_s;
}
