/* The table of limits, and its three kinds of values. */
#include "engine/api/key_limits.h"

#include "kernels/check.h"

#include <stdio.h>
#include <string.h>

#define DAY_S      86400
#define DATE_CHARS 10 /* YYYY-MM-DD */
#define YEAR_MIN   2000

enum kind { NUMBER, DATE, FLAG };

static const struct row {
    const char *word, *help;
    enum kind kind;
    int64_t min, max;
} ROWS[KEY_LIMITS] = {
#define KEY_LIMIT(name, word, kind, min, max, help) [KEY_##name] = {word, help, kind, min, max},
#include "config/key_limits.def"
#undef KEY_LIMIT
};

int key_limit_find(const char *word, size_t len)
{
    for (int i = 0; i < KEY_LIMITS; i++) {
        if (strlen(ROWS[i].word) == len && memcmp(ROWS[i].word, word, len) == 0)
            return i;
    }
    return -1;
}

const char *key_limit_word(enum key_limit limit)
{
    return ROWS[limit].word;
}

const char *key_limit_help(enum key_limit limit)
{
    return ROWS[limit].help;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Decimal digits without a zero in front.  @return -1: anything else, or too long */
static int64_t digits(const char *text, size_t len)
{
    int64_t value = 0;
    if (len == 0 || len > 15 || (len > 1 && text[0] == '0'))
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

struct date {
    int year, month, day; /* from 1 */
};

/* Days from 1970-01-01; years begin in March, so that a leap day ends one (Gregorian calendar). */
static int64_t days_of(struct date date)
{
    int64_t year = date.month <= 2 ? date.year - 1 : date.year;
    int64_t month = (date.month + 9) % 12;
    return 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + date.day - 1 -
           719468;
}

static struct date date_of(int64_t days)
{
    days += 719468;
    int64_t era = days / 146097, rest = days % 146097;
    int64_t year = (rest - rest / 1460 + rest / 36524 - rest / 146096) / 365;
    int64_t day = rest - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * day + 2) / 153;
    return (struct date){.year = (int)(400 * era + year + (month >= 10)),
                         .month = (int)(month < 10 ? month + 3 : month - 9),
                         .day = (int)(day - (153 * month + 2) / 5 + 1)};
}

static int number_at(const char *text, size_t n)
{
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static bool parse_date(const char *text, size_t len, int64_t *out)
{
    if (len != DATE_CHARS || text[4] != '-' || text[7] != '-')
        return false;
    struct date date = {number_at(text, 4), number_at(text + 5, 2), number_at(text + 8, 2)};
    if (date.year < YEAR_MIN || date.month < 1 || date.month > 12 || date.day < 1)
        return false;
    struct date same = date_of(days_of(date)); /* of the 31st of April, the 1st of May */
    if (same.month != date.month || same.day != date.day)
        return false;
    *out = days_of(date);
    return true;
}

const char *key_limit_parse(enum key_limit limit, const char *text, size_t len, int64_t *out)
{
    const struct row *row = &ROWS[limit];
    int64_t value = digits(text, len);
    switch (row->kind) {
    case NUMBER:
        if (value < row->min || value > row->max)
            return "must be a whole number in its range";
        *out = value;
        return NULL;
    case DATE:
        return parse_date(text, len, out) ? NULL : "must be a day, YYYY-MM-DD";
    case FLAG:
        if (len != 3 || memcmp(text, "yes", 3) != 0)
            return "must be yes";
        *out = 1;
        return NULL;
    }
    ASSERT(!"a kind of limit");
}

void key_limit_print(enum key_limit limit, int64_t value, struct buf *out)
{
    if (ROWS[limit].kind == DATE) {
        struct date date = date_of(value);
        buf_printf(out, "%04d-%02d-%02d", date.year, date.month, date.day);
    } else if (ROWS[limit].kind == FLAG) {
        buf_puts(out, "yes");
    } else {
        buf_printf(out, "%lld", (long long)value);
    }
}

void key_limits_print(const struct key_limits *limits, struct buf *out)
{
    for (int i = 0; i < KEY_LIMITS; i++) {
        if (limits->values[i] == 0)
            continue;
        buf_printf(out, " %s=", ROWS[i].word);
        key_limit_print((enum key_limit)i, limits->values[i], out);
    }
}

bool key_limits_allow(const struct key_limits *limits, int64_t now_s)
{
    int64_t last_day = limits->values[KEY_EXPIRES];
    return limits->values[KEY_DISABLED] == 0 && (last_day == 0 || now_s / DAY_S <= last_day);
}
