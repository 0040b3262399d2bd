/*
 * Limits of keys as text: what is read is what is printed, days are those of the calendar, and
 * nothing else is read.
 */
#include "engine/api/key_limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void values(void **state)
{
    static const struct {
        enum key_limit limit;
        const char *text;
        int64_t value; /* 0: refused */
    } ROWS[] = {
        {KEY_RATE, "1", 1},
        {KEY_RATE, "100000", 100000},
        {KEY_RATE, "100001", 0},
        {KEY_RATE, "0", 0},
        {KEY_RATE, "-1", 0},
        {KEY_RATE, "+1", 0},
        {KEY_RATE, "01", 0},
        {KEY_RATE, "1 ", 0},
        {KEY_RATE, "1e3", 0},
        {KEY_RATE, "", 0},
        {KEY_TOKENS, "1000000000000", INT64_C(1000000000000)},
        {KEY_TOKENS, "9999999999999999999999", 0},
        {KEY_CONTEXT, "127", 0},
        {KEY_CONTEXT, "4096", 4096},
        {KEY_EXPIRES, "2000-01-01", 10957},
        {KEY_EXPIRES, "2000-02-29", 11016},
        {KEY_EXPIRES, "2100-02-29", 0},
        {KEY_EXPIRES, "2027-02-29", 0},
        {KEY_EXPIRES, "2027-04-31", 0},
        {KEY_EXPIRES, "2027-13-01", 0},
        {KEY_EXPIRES, "2027-00-10", 0},
        {KEY_EXPIRES, "1999-12-31", 0},
        {KEY_EXPIRES, "9999-12-31", 2932896},
        {KEY_EXPIRES, "2027-1-01", 0},
        {KEY_EXPIRES, "2027-01-01 ", 0},
        {KEY_DISABLED, "yes", 1},
        {KEY_DISABLED, "no", 0},
        {KEY_PROFILES, "yes", 1},
        {KEY_PRIORITY, "1", 1},
        {KEY_PRIORITY, "9", 9},
        {KEY_PRIORITY, "10", 0},
        {KEY_PRIORITY, "-4", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int64_t value = 0;
        struct buf text = {0};
        const char *wrong =
            key_limit_parse(ROWS[i].limit, ROWS[i].text, strlen(ROWS[i].text), &value);
        assert_int_equal(wrong == NULL, ROWS[i].value != 0);
        assert_int_equal(value, ROWS[i].value);
        if (value == 0)
            continue;
        key_limit_print(ROWS[i].limit, value, &text);
        assert_string_equal(buf_cstr(&text), ROWS[i].text);
        buf_free(&text);
    }
}

/* Every day of four centuries against the C library's calendar. */
static void days(void **state)
{
    (void)state;
    for (int64_t day = 10957; day < 10957 + 146097; day++) {
        time_t seconds = (time_t)(day * 86400);
        struct tm tm;
        char want[16];
        int64_t value = 0;
        struct buf text = {0};
        assert_non_null(gmtime_r(&seconds, &tm));
        strftime(want, sizeof want, "%Y-%m-%d", &tm);
        key_limit_print(KEY_EXPIRES, day, &text);
        assert_string_equal(buf_cstr(&text), want);
        assert_null(key_limit_parse(KEY_EXPIRES, want, strlen(want), &value));
        assert_int_equal(value, day);
        buf_free(&text);
    }
}

static void who_may_enter(void **state)
{
    struct key_limits limits = {0};
    (void)state;
    assert_true(key_limits_allow(&limits, 0));
    limits.values[KEY_EXPIRES] = 11016; /* the whole of its last day */
    assert_true(key_limits_allow(&limits, 11016 * 86400LL + 86399));
    assert_false(key_limits_allow(&limits, 11017 * 86400LL));
    limits.values[KEY_DISABLED] = 1;
    assert_false(key_limits_allow(&limits, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(days),
        cmocka_unit_test(who_may_enter),
    };
    return cmocka_run_group_tests_name("key_limits", tests, NULL, NULL);
}
