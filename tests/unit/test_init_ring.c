/* The log: newest lines kept, memory fixed, lines cut from pieces of any size. */
#include "init/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ring ring; /* too large for the stack */

struct seen {
    size_t count;
    unsigned long first, last;
    bool in_order;
};

static void look(void *context, const char *line, size_t n)
{
    struct seen *seen = context;
    char copy[LOG_LINE_BYTES + 1];
    memcpy(copy, line, n);
    copy[n] = '\0';
    unsigned long number = strtoul(copy, NULL, 10);
    if (seen->count == 0)
        seen->first = number;
    else
        seen->in_order = seen->in_order && number == seen->last + 1;
    seen->last = number;
    seen->count++;
    /* The filler tells whether a record was torn when it wrapped. */
    for (size_t i = strcspn(copy, " "); i < n; i++)
        seen->in_order = seen->in_order && (copy[i] == ' ' || copy[i] == 'x');
}

static void the_newest_lines_stay(void **state)
{
    (void)state;
    memset(&ring, 0, sizeof ring);
    char line[LOG_LINE_BYTES];
    memset(line, 'x', sizeof line);
    for (unsigned long i = 0; i < 20000; i++) {
        int digits = snprintf(line, sizeof line, "%lu", i);
        line[digits] = ' ';
        ring_add(&ring, line, (size_t)digits + 1 + i * 7919 % 300);
        memset(line, 'x', (size_t)digits + 1);
        assert_true(ring.used_bytes <= LOG_RING_BYTES);
    }
    assert_int_equal(ring.line_count + ring.dropped, 20000);
    struct seen all = {.in_order = true};
    ring_tail(&ring, SIZE_MAX, look, &all);
    assert_int_equal(all.count, ring.line_count);
    assert_true(all.in_order);
    assert_int_equal(all.last, 19999);
    struct seen few = {.in_order = true};
    ring_tail(&ring, 5, look, &few);
    assert_int_equal(few.count, 5);
    assert_int_equal(few.first, 19995);
}

static void long_and_empty_lines(void **state)
{
    (void)state;
    static char longest[LOG_LINE_BYTES * 3];
    struct seen seen = {.in_order = true};
    memset(&ring, 0, sizeof ring);
    memset(longest, 'x', sizeof longest);
    longest[0] = '7';
    longest[1] = ' ';
    ring_tail(&ring, 10, look, &seen);
    assert_int_equal(seen.count, 0);
    ring_add(&ring, longest, sizeof longest);
    assert_int_equal(ring.used_bytes, LOG_LINE_BYTES + 2);
    ring_tail(&ring, 10, look, &seen);
    assert_int_equal(seen.count, 1);
    assert_true(seen.in_order);
    ring_add(&ring, "", 0);
    assert_int_equal(ring.line_count, 2);
}

static char joined[8192];

static void join(void *context, const char *line, size_t n)
{
    (void)context;
    assert_true(n <= LOG_LINE_BYTES);
    strncat(joined, line, n);
    strcat(joined, "|");
}

static void lines_come_from_pieces(void **state)
{
    (void)state;
    static char text[LOG_LINE_BYTES * 2 + 64];
    int n = snprintf(text, sizeof text, "one\r\n\ntwo three\n%0*d\nlast", LOG_LINE_BYTES + 50, 0);
    char expected[LOG_LINE_BYTES + 64];
    snprintf(expected, sizeof expected, "one||two three|%0*d|last|", LOG_LINE_BYTES, 0);
    for (int piece = 1; piece <= n; piece = piece * 2 + 1) {
        struct line_splitter s = {.len = 0};
        joined[0] = '\0';
        for (int i = 0; i < n; i += piece)
            line_splitter_feed(&s, text + i, (size_t)(n - i < piece ? n - i : piece), join, NULL);
        line_splitter_end(&s, join, NULL);
        line_splitter_end(&s, join, NULL); /* nothing is left to say twice */
        assert_string_equal(joined, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_lines_stay),
        cmocka_unit_test(long_and_empty_lines),
        cmocka_unit_test(lines_come_from_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
