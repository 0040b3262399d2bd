/* The live view: rates from counts, and lines that show them. */
#include "init/top.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct top top;
static char drawn[2048];

static void add(int64_t ms, long answers, long blocks)
{
    char data[512];
    int n =
        snprintf(data, sizeof data,
                 "{\"model\": \"demo\", \"profile\": \"fast\", \"audit\": \"PASS: all of fast\", "
                 "\"running\": 2, \"waiting\": 0, \"prompt_tokens\": 50, \"answer_tokens\": %ld, "
                 "\"prefix_blocks\": %ld, \"prefix_blocks_max\": 200, \"rss_bytes\": 104857600, "
                 "\"state_bytes\": %ld, \"state_bytes_max\": 5000000000}",
                 answers, blocks, blocks * 10000000);
    top_add(&top, data, (size_t)n, ms);
}

/* The value and the line of a row. */
static double row(const char *name, char line[TOP_SAMPLES + 1])
{
    struct text t = text_over(drawn, sizeof drawn);
    top_draw(&top, &t);
    assert_false(t.cut);
    const char *found = strstr(drawn, name);
    assert_non_null(found);
    const char *bar = strchr(found, '|');
    assert_non_null(bar);
    memcpy(line, bar + 1, TOP_SAMPLES);
    line[TOP_SAMPLES] = '\0';
    assert_int_equal(bar[TOP_SAMPLES + 1], '|');
    return strtod(found + strlen(name), NULL);
}

static void rates_are_of_the_last_second(void **state)
{
    (void)state;
    char line[TOP_SAMPLES + 1];
    memset(&top, 0, sizeof top);
    add(1000, 500, 0); /* what was before counts for nothing */
    assert_float_equal(row("answer tok/s", line), 0, 1e-9);
    add(2000, 540, 50);
    add(4000, 640, 100);
    assert_float_equal(row("answer tok/s", line), 50, 1e-9);
    assert_string_equal(line + TOP_SAMPLES - 3, " *#");
    assert_int_equal(strspn(line, " "), TOP_SAMPLES - 2);
    assert_float_equal(row("KV kept %", line), 50, 1e-9);
    assert_string_equal(line + TOP_SAMPLES - 3, " :=");
    assert_float_equal(row("KV planned %", line), 20, 1e-9);
    assert_float_equal(row("running", line), 2, 1e-9);
    assert_float_equal(row("memory MiB", line), 100, 1e-9);
    assert_non_null(strstr(drawn, "demo, profile fast\naudit PASS: all of fast\n"));
    add(5000, 3, 0); /* it began anew */
    assert_float_equal(row("answer tok/s", line), 0, 1e-9);
}

static void little_is_not_nothing(void **state)
{
    (void)state;
    char line[TOP_SAMPLES + 1];
    memset(&top, 0, sizeof top);
    add(1000, 0, 0);
    add(2000, 100000, 0);
    add(3000, 100001, 0);
    assert_float_equal(row("answer tok/s", line), 1, 1e-9);
    assert_string_equal(line + TOP_SAMPLES - 3, " #.");
    for (int i = 0; i < 2 * TOP_SAMPLES; i++)
        add(4000 + 1000 * i, 100001, 0);
    row("answer tok/s", line);
    assert_int_equal(strspn(line, " "), TOP_SAMPLES);
}

/* Whatever the engine says, nothing is read behind it and no byte of it steers a terminal. */
/* No row for what nothing tells. */
static void temperatures(void **state)
{
    static const char HOT[] = "{\"cpu_celsius\": 54, \"gpu_celsius\": 0}";
    char line[TOP_SAMPLES + 1];
    (void)state;
    memset(&top, 0, sizeof top);
    add(1000, 0, 0);
    struct text t = text_over(drawn, sizeof drawn);
    top_draw(&top, &t);
    assert_null(strstr(drawn, " C "));
    top_add(&top, HOT, strlen(HOT), 2000);
    assert_true(row("CPU C", line) == 54);
    assert_string_equal(line + TOP_SAMPLES - 2, " =");
    assert_true(row("GPU C", line) == 0);
    assert_null(strstr(drawn, "disk"));
}

static void answers_that_say_nothing_are_survived(void **state)
{
    (void)state;
    char line[TOP_SAMPLES + 1];
    static const char WHOLE[] =
        "{\"model\": \"\x1b[2Jx\", \"answer_tokens\": 99999999999999999999999, \"running\": "
        "\"two\", "
        "\"rss_bytes\": -5, \"prefix_blocks\": 7, \"prefix_blocks_max\": 0, \"waiting\":";
    for (size_t n = 0; n < sizeof WHOLE; n++) {
        char *copy = malloc(n + 1); /* the sanitizer sees what is read behind it */
        assert_non_null(copy);
        memcpy(copy, WHOLE, n);
        memset(&top, 0, sizeof top);
        top_add(&top, copy, n, 1000);
        row("running", line);
        for (const char *p = drawn; *p != '\0'; p++)
            assert_true(*p == '\n' || (*p >= ' ' && *p <= '~'));
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_of_the_last_second),
        cmocka_unit_test(little_is_not_nothing),
        cmocka_unit_test(temperatures),
        cmocka_unit_test(answers_that_say_nothing_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
