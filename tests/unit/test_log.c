/* The log's line: its form, its bound, and that nothing in a text can forge a second line. */
#include "engine/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_line(const char *text, const char *line)
{
    char out[LOG_LINE_BYTES];
    size_t len = log_format(out, 1785542399, 7, LOG_LEVEL_WARN, "api", text);
    assert_int_equal(len, strlen(line));
    assert_memory_equal(out, line, len);
}

static void test_form(void **state)
{
    (void)state;
    expect_line("ready", "2026-07-31T23:59:59.007Z warn api: ready\n");
    expect_line("", "2026-07-31T23:59:59.007Z warn api: \n");
    expect_line("a\nb\r\x1b[2Jc\x7f\x01", "2026-07-31T23:59:59.007Z warn api: a?b??[2Jc??\n");
    expect_line("größer", "2026-07-31T23:59:59.007Z warn api: größer\n");
}

/* Around the bound: each length is either whole or ends in "...". */
static void test_bound(void **state)
{
    (void)state;
    char text[2 * LOG_LINE_BYTES], out[LOG_LINE_BYTES];
    size_t head = log_format(out, 0, 999, LOG_LEVEL_INFO, "serve", "") - 1;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        memset(text, 'x', n);
        text[n] = '\0';
        size_t len = log_format(out, 0, 999, LOG_LEVEL_INFO, "serve", text);
        assert_true(len <= LOG_LINE_BYTES);
        assert_int_equal(out[len - 1], '\n');
        assert_ptr_equal(memchr(out, '\n', len), out + len - 1);
        if (head + n + 1 <= LOG_LINE_BYTES)
            assert_int_equal(len, head + n + 1);
        else
            assert_memory_equal(out + len - 4, "...\n", 4);
    }
}

/* What reaches stderr is one write of one line. */
static void test_write(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_line(LOG_LEVEL_ERROR, "serve", "request %d: %s", 17, "gone\nforged");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    char got[2 * LOG_LINE_BYTES];
    ssize_t n = read(ends[0], got, sizeof got - 1);
    close(ends[0]);
    assert_true(n > 25);
    got[n] = '\0';
    assert_string_equal(got + 24, " error serve: request 17: gone?forged\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
