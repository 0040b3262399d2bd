/* The line editor: keys, history, bounds, and random bytes that must never reach the terminal. */
#include "init/lineedit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const WORDS[] = {"status",     "stop", "log", "log changes",
                                    "log stored", "help", NULL};
static struct line_editor e;
static char bytes[65536];
static struct text screen;

/* Types the bytes and returns the last event. */
static enum edit_event type(const char *keys, size_t n)
{
    enum edit_event event = EDIT_NONE;
    screen = text_over(bytes, sizeof bytes);
    for (size_t i = 0; i < n; i++)
        event = line_editor_feed(&e, keys[i], &screen);
    assert_false(screen.cut);
    return event;
}

#define TYPE(keys) type(keys, sizeof(keys) - 1)

static void fresh(void)
{
    line_editor_init(&e, "> ", WORDS);
}

static void keys_edit_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *line;
        size_t cursor;
    } CASES[] = {
        {"status", "status", 6},
        {"abc\x7f\x08x", "ax", 2},
        {"\x7f\x7f", "", 0},
        {"abc\x01X", "Xabc", 1},
        {"abc\x01\x05X", "abcX", 4},
        {"abc\x1b[D\x1b[DX", "aXbc", 2},
        {"abc\x1bOD\x1b[CX", "abcX", 4},
        {"abc\x1b[H\x1b[3~", "bc", 0},
        {"abc\x1b[1~X\x1b[4~Y", "XabcY", 5},
        {"one two three\x17", "one two ", 8},
        {"one two  \x17", "one ", 4},
        {"one two\x02\x02\x02\x0b", "one ", 4},
        {"one two\x02\x02\x02\x15", "two", 0},
        {"ab\x01\x04", "b", 0},
        {"ab\x01\x1b[D\x1b[D\x1b[C\x1b[C\x1b[CX", "abX", 3},
        {"a\x1b[15~b", "ab", 2},
        {"a\x1b[1;5Cb", "ab", 2},
        {"a\x1bqb", "ab", 2},
        {"a\xc3\xa4\x80\xff\x02z", "za", 1},
        {"l\t", "log ", 4},
        {"st\t", "st", 2},
        {"sta\tx", "status x", 8},
        {"s\t", "st", 2},
        {"log s\t", "log stored ", 11},
        {"log s\t\t", "log stored ", 11},
        {"log  s\t", "log  s", 6},
        {"x\t", "x", 1},
        {"\t", "", 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        fresh();
        assert_int_equal(type(CASES[i].keys, strlen(CASES[i].keys)), EDIT_NONE);
        if (strcmp(e.line, CASES[i].line) != 0 || e.cursor != CASES[i].cursor)
            fail_msg("case %zu: '%s' at %zu", i, e.line, e.cursor);
    }
}

static void lines_end(void **state)
{
    (void)state;
    fresh();
    assert_int_equal(TYPE("log\r"), EDIT_LINE);
    assert_string_equal(e.line, "log");
    line_editor_next(&e, &screen);
    assert_int_equal(TYPE("\n"), EDIT_NONE); /* the LF of a CR LF */
    assert_int_equal(TYPE("\n"), EDIT_LINE);
    line_editor_next(&e, &screen);
    assert_int_equal(TYPE("abc\x03"), EDIT_INTERRUPT);
    assert_string_equal(e.line, "");
    assert_int_equal(TYPE("a\x04"), EDIT_NONE);
    assert_int_equal(TYPE("\x7f\x04"), EDIT_END);
}

static void history_is_kept_and_bounded(void **state)
{
    (void)state;
    char line[32];
    fresh();
    for (int i = 0; i < CONSOLE_HISTORY + 10; i++) {
        snprintf(line, sizeof line, "line %d\r", i);
        assert_int_equal(type(line, strlen(line)), EDIT_LINE);
        line_editor_next(&e, &screen);
    }
    assert_int_equal(e.history_count, CONSOLE_HISTORY);
    for (int i = 0; i < CONSOLE_HISTORY + 10; i++)
        TYPE("\x1b[A");
    assert_string_equal(e.line, "line 10"); /* the oldest kept */
    TYPE("\x1b[B\x10\x0e");
    assert_string_equal(e.line, "line 11");
    for (int i = 0; i < CONSOLE_HISTORY + 10; i++)
        TYPE("\x1b[B");
    assert_string_equal(e.line, "");
    /* The same line twice is one entry, an empty one is none. */
    TYPE("same\r");
    line_editor_next(&e, &screen);
    TYPE("same\r");
    line_editor_next(&e, &screen);
    TYPE("\r");
    line_editor_next(&e, &screen);
    TYPE("\x10\x10");
    assert_string_equal(e.line, "line 41");
}

static void a_line_is_bounded(void **state)
{
    (void)state;
    fresh();
    for (int i = 0; i < CONSOLE_LINE_BYTES * 3; i++)
        TYPE("x");
    assert_int_equal(e.len, CONSOLE_LINE_BYTES);
    assert_int_equal(strlen(e.line), CONSOLE_LINE_BYTES);
    TYPE("\x01y");
    assert_int_equal(e.line[0], 'x');
}

/* Whatever arrives, the terminal sees printable text and our own three sequences only. */
static void random_bytes_stay_inside(void **state)
{
    (void)state;
    uint64_t random_state = 20260803;
    static const char LIKELY[] = "\x1b[ABCDHF~0123456789;O\r\n\t\x7f\x08\x01\x17\x15\x0b ab";
    fresh();
    for (int i = 0; i < 300000; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        uint32_t draw = (uint32_t)(random_state >> 33);
        char byte = draw & 1 ? LIKELY[(draw >> 1) % (sizeof LIKELY - 1)] : (char)(draw >> 8);
        enum edit_event event = type(&byte, 1);
        if (event != EDIT_NONE)
            line_editor_next(&e, &screen);
        assert_true(e.cursor <= e.len && e.len <= CONSOLE_LINE_BYTES);
        assert_int_equal(strlen(e.line), e.len);
        for (size_t k = 0; k < screen.len; k++) {
            unsigned char c = (unsigned char)bytes[k];
            if (c == 0x1b) {
                size_t digits = strspn(bytes + k + 2, "0123456789");
                char final = bytes[k + 2 + digits];
                assert_true(bytes[k + 1] == '[' && (final == 'K' || (final == 'D' && digits > 0)));
            } else {
                assert_true(c == '\r' || c == '\n' || (c >= 0x20 && c < 0x7f));
            }
        }
    }
}

/* Where the phrases part a second tab shows how; what only one of them can mean is not shown. */
static void a_tab_shows_the_choices(void **state)
{
    (void)state;
    fresh();
    TYPE("st\t");
    assert_non_null(strstr(bytes, "\nstatus  stop\n\r> st"));
    fresh();
    TYPE("log \t");
    assert_non_null(strstr(bytes, "\nchanges  stored\n\r> log "));
    fresh();
    TYPE("\t");
    assert_non_null(strstr(bytes, "\nstatus  stop  log  help\n"));
    fresh();
    TYPE("sta\t");
    assert_null(strchr(bytes, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tab_shows_the_choices),
        cmocka_unit_test(keys_edit_the_line),
        cmocka_unit_test(lines_end),
        cmocka_unit_test(history_is_kept_and_bounded),
        cmocka_unit_test(a_line_is_bounded),
        cmocka_unit_test(random_bytes_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
