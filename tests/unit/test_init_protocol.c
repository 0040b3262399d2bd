/*
 * Bounded text and the admin protocol: exact forms, hostile forms, every truncation, random bytes.
 */
#include "init/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 20260802;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static bool parse(struct request *r, const char *line)
{
    return request_parse(r, line, strlen(line));
}

static void requests_round_trip(void **state)
{
    (void)state;
    struct request in, out;
    char bytes[4096];
    static const char LINE[] = "  keys create  my-\"key\" ";
    assert_true(request_from_line(&in, LINE, strlen(LINE)));
    struct text t = text_over(bytes, sizeof bytes);
    request_write(&t, &in);
    assert_string_equal(bytes, "{\"command\":\"keys\",\"args\":[\"create\",\"my-\\\"key\\\"\"]}\n");
    assert_true(request_parse(&out, t.data, t.len));
    assert_memory_equal(&in, &out, sizeof in);
}

static void requests_are_taken_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool good;
    } CASES[] = {
        {"{\"command\":\"status\",\"args\":[]}", true},
        {"{\"command\":\"status\"}", true},
        {" { \"args\" : [ \"a\" , \"b\" ] , \"command\" : \"log\" } ", true},
        {"{\"command\":\"s\",\"more\":{\"a\":[1,-2.5e3,true,null,{\"b\":\"x\"}],\"c\":{}}}", true},
        {"{\"command\":\"\\u006bey\\u0073\"}", true},
        {"", false},
        {"{}", false},
        {"[]", false},
        {"{\"command\":\"\"}", false},
        {"{\"command\":1}", false},
        {"{\"command\":\"a\",}", false},
        {"{\"command\":\"a\"}x", false},
        {"{\"command\":\"a\",\"command\":\"b\"}", false},
        {"{\"command\":\"a\",\"args\":[\"b\"],\"args\":[]}", false},
        {"{\"command\":\"a\",\"args\":[\"b\",]}", false},
        {"{\"command\":\"a\",\"args\":[1]}", false},
        {"{\"command\":\"a\\n\"}", false},
        {"{\"command\":\"a\\u0000\"}", false},
        {"{\"command\":\"\\ud83d\"}", false},
        {"{\"command\":\"\xc3\xa4\"}", false},
        {"{\"command\":\"a\\q\"}", false},
        {"{\"command\":\"a\",\"args\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\","
         "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]}",
         true},
        {"{\"command\":\"a\",\"args\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\","
         "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"]}",
         false},
        {"{\"command\":\"a\",\"x\":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}", false},
        {"{\"command\":\"a\",\"x\":}", false},
        {"{\"command\":\"a\",\"x\":[1 2]}", false},
        {"{\"command\":\"a\",\"x\":{\"k\"}}", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct request r;
        if (parse(&r, CASES[i].line) != CASES[i].good)
            fail_msg("case %zu: %s", i, CASES[i].line);
    }
    struct request r;
    assert_true(parse(&r, CASES[4].line));
    assert_string_equal(r.word[0], "keys");
}

static void words_are_bounded(void **state)
{
    (void)state;
    char line[CONTROL_WORD_BYTES + 64];
    for (int n = CONTROL_WORD_BYTES - 1; n <= CONTROL_WORD_BYTES + 1; n++) {
        struct request r;
        snprintf(line, sizeof line, "{\"command\":\"%0*d\"}", n, 0);
        assert_int_equal(parse(&r, line), n <= CONTROL_WORD_BYTES);
        snprintf(line, sizeof line, "%0*d", n, 0);
        assert_int_equal(request_from_line(&r, line, strlen(line)), n <= CONTROL_WORD_BYTES);
    }
    struct request r;
    assert_false(request_from_line(&r, "", 0));
    assert_false(request_from_line(&r, "  \t", 3));
    assert_false(request_from_line(&r, "a\nb", 3));
    assert_false(request_from_line(&r, "a\0b", 3));
    assert_false(request_from_line(&r, "a \x1b[2J", 6));
    assert_false(request_from_line(&r, "1 2 3 4 5 6 7 8 9 a b c d e f g h", 33));
    assert_true(request_from_line(&r, "1 2 3 4 5 6 7 8 9 a b c d e f g", 31));
}

/* Every truncation is refused, and no single changed byte reads outside (ASan watches). */
static void requests_cut_and_changed(void **state)
{
    (void)state;
    static const char LINE[] =
        "{\"command\":\"keys\",\"args\":[\"create\",\"a\\u00e4\"],\"x\":[{\"y\":1}]}";
    struct request r;
    for (size_t n = 0; n < sizeof LINE - 1; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, LINE, n);
        assert_false(request_parse(&r, copy, n));
        free(copy);
    }
    for (int i = 0; i < 200000; i++) {
        char copy[sizeof LINE];
        memcpy(copy, LINE, sizeof LINE);
        for (uint32_t k = 0; k <= random_below(3); k++)
            copy[random_below(sizeof LINE - 1)] = (char)random_below(256);
        if (request_parse(&r, copy, sizeof LINE - 1))
            assert_in_range(r.count, 1, 1 + CONTROL_ARGS_MAX);
    }
}

static void answers_round_trip(void **state)
{
    (void)state;
    static const char TEXT[] = "two\nlines, \"quotes\" \xf0\x9f\x98\x80 and \x1b and \xff";
    static const char DATA[] = "{\"keys\":[{\"id\":\"a\"}]}";
    char bytes[1024], decoded[1024];
    struct answer a;
    struct text t = text_over(bytes, sizeof bytes);
    answer_write(&t, true, TEXT, sizeof TEXT - 1, DATA, sizeof DATA - 1);
    assert_int_equal(t.data[t.len - 1], '\n');
    assert_true(answer_parse(&a, t.data, t.len - 1, decoded, sizeof decoded));
    assert_true(a.ok);
    assert_string_equal(decoded,
                        "two\nlines, \"quotes\" \xf0\x9f\x98\x80 and \x1b and \xef\xbf\xbd");
    assert_int_equal(a.data_len, sizeof DATA - 1);
    assert_memory_equal(a.data, DATA, a.data_len);

    t = text_over(bytes, sizeof bytes);
    answer_write(&t, false, "no", 2, NULL, 0);
    assert_string_equal(bytes, "{\"ok\":false,\"text\":\"no\"}\n");
    assert_true(answer_parse(&a, t.data, t.len - 1, decoded, sizeof decoded));
    assert_false(a.ok);
    assert_null(a.data);
    /* A text larger than its buffer is a refusal, never a cut answer. */
    assert_true(answer_parse(&a, t.data, t.len - 1, decoded, 3));
    assert_false(answer_parse(&a, t.data, t.len - 1, decoded, 2));
}

static void answers_hostile(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",
        "{\"ok\":true}",
        "{\"text\":\"x\"}",
        "{\"ok\":1,\"text\":\"x\"}",
        "nothing",
        "{\"ok\":true,\"text\":1}",
        "{\"ok\":true,\"text\":\"x\",\"data\":}",
        "{\"ok\":true,\"text\":\"x\"",
        "{\"ok\":true,\"text\":\"x\"} {}",
    };
    char decoded[256];
    struct answer a;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(answer_parse(&a, BAD[i], strlen(BAD[i]), decoded, sizeof decoded));
    static const char PAIR[] = "{\"ok\":true,\"text\":\"\\ud83d\\ude00 \\ud83d \\u00e4\"}";
    assert_true(answer_parse(&a, PAIR, strlen(PAIR), decoded, sizeof decoded));
    assert_string_equal(decoded, "\xf0\x9f\x98\x80 \xef\xbf\xbd \xc3\xa4");
}

static void text_never_overflows(void **state)
{
    (void)state;
    for (size_t cap = 1; cap < 40; cap++) {
        char *bytes = malloc(cap);
        struct text t = text_over(bytes, cap);
        text_printf(&t, "%s", "0123456789");
        text_json_string(&t, "\x01\xff\xe2\x82\xac", 5);
        text_add_printable(&t, "abc\x1b\xc2\x9b", 6);
        assert_true(t.len < cap);
        assert_int_equal(bytes[t.len], '\0');
        assert_int_equal(t.cut, cap <= 10 + 17 + 5);
        free(bytes);
    }
}

static void terminals_get_no_control_bytes(void **state)
{
    (void)state;
    char out[64];
    struct text t = text_over(out, sizeof out);
    static const char HOSTILE[] = "a\tb\n\x1b[2J\x07\x7f\r\xc2\x9b\x9b\xc3\xa4\xe2\x82";
    text_add_printable(&t, HOSTILE, sizeof HOSTILE - 1);
    assert_string_equal(out, "a\tb\n.[2J.....\xc3\xa4..");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_round_trip),  cmocka_unit_test(requests_are_taken_or_refused),
        cmocka_unit_test(words_are_bounded),    cmocka_unit_test(requests_cut_and_changed),
        cmocka_unit_test(answers_round_trip),   cmocka_unit_test(answers_hostile),
        cmocka_unit_test(text_never_overflows), cmocka_unit_test(terminals_get_no_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
