/* The error table: texts that clients do not misread, and one JSON form. */
#include "engine/api/errors.h"
#include "engine/base/json.h"

#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* opencode's patterns, as read from its program: api.md 3.4. */
static const char *const OVERFLOW_PATTERNS[] = {"prompt is too long",
                                                "request_too_large",
                                                "exceeds the context window",
                                                "exceeds (the )?(model's )?maximum context length",
                                                "maximum context length is [0-9]+ tokens",
                                                "reduce the length of the messages",
                                                "exceeds the limit of [0-9]+",
                                                "exceeds the available context size",
                                                "greater than the context length",
                                                "context[_ ]length[_ ]exceeded",
                                                "request entity too large",
                                                "too many tokens",
                                                "token limit exceeded",
                                                "4(00|13) \\(no body\\)"};
static const char *const RETRY_PATTERNS[] = {"429|500|502|503|504|524",
                                             "rate limit",
                                             "too many requests",
                                             "overloaded",
                                             "service unavailable",
                                             "internal error",
                                             "server error",
                                             "terminated",
                                             "fetch failed",
                                             "network error",
                                             "connection",
                                             "timeout|time-out|timed out",
                                             "try again later",
                                             "at capacity"};

static bool matches(const char *pattern, const char *text)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB), 0);
    bool hit = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return hit;
}

static bool matches_any(const char *const *patterns, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        if (matches(patterns[i], text))
            return true;
    }
    return false;
}

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The error as a client sees it. */
static struct json_object *dumped(const struct api_error *err, struct json_object **root)
{
    struct buf text = {0};
    api_error_dump(&text, err);
    assert_int_equal(json_parse(text.data, text.len, root, NULL, NULL), OK);
    buf_free(&text);
    return json_member(*root, "error", NULL);
}

static void texts_are_not_misread(void **state)
{
    (void)state;
    for (int code = API_OK + 1; code < API_CODES; code++) {
        struct api_error err;
        struct json_object *root;
        api_fail_limit(&err, (enum api_code)code, "messages[3].content", 20480, 20481);
        const char *text =
            json_object_get_string(json_member(dumped(&err, &root), "message", NULL));
        bool overflow = matches_any(OVERFLOW_PATTERNS, N(OVERFLOW_PATTERNS), text);
        assert_int_equal(overflow, code == API_OVERFLOW);
        assert_int_equal(matches_any(RETRY_PATTERNS, N(RETRY_PATTERNS), text),
                         api_error_row((enum api_code)code)->retry_s > 0);
        json_object_put(root);
    }
}

/* The same patterns do hit the texts that they are made for. */
static void patterns_can_match(void **state)
{
    (void)state;
    assert_true(matches_any(OVERFLOW_PATTERNS, N(OVERFLOW_PATTERNS),
                            "max_tokens exceeds the limit of 65536"));
    assert_true(matches_any(RETRY_PATTERNS, N(RETRY_PATTERNS), "must be <= 500"));
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (int code = API_OK + 1; code < API_CODES; code++) {
        const struct api_error_row *row = api_error_row((enum api_code)code);
        assert_in_range(row->status, 400, 599);
        assert_true(strlen(row->type) > 0 && strlen(row->code) > 0 && strlen(row->text) > 0);
        /* Whoever is told to come back is told when. */
        if (row->status == 429 || row->status == 503)
            assert_in_range(row->retry_s, 1, 30);
        if (row->status < 429)
            assert_int_equal(row->retry_s, 0);
    }
}

static void members(void **state)
{
    (void)state;
    struct api_error err;
    struct json_object *root, *object;
    assert_false(api_fail(&err, API_TYPE, "messages[%d].role", 7));
    object = dumped(&err, &root);
    assert_string_equal(json_object_get_string(json_member(object, "param", NULL)),
                        "messages[7].role");
    assert_string_equal(json_object_get_string(json_member(object, "code", NULL)), "invalid_value");
    assert_null(json_member(object, "limit", NULL));
    json_object_put(root);

    bool is_null = false;
    api_fail(&err, API_KEY, NULL);
    object = dumped(&err, &root);
    assert_null(json_member(object, "param", &is_null));
    assert_true(is_null);
    json_object_put(root);

    api_fail_limit(&err, API_OVERFLOW, "messages", 8192, 9000);
    object = dumped(&err, &root);
    assert_string_equal(
        json_object_get_string(json_member(object, "message", NULL)),
        "This model's maximum context length is 8192 tokens. However, your messages "
        "resulted in 9000 tokens. Please reduce the length of the messages.");
    assert_int_equal(json_object_get_int(json_member(object, "got", NULL)), 9000);
    json_object_put(root);
}

/* A path longer than its place is cut, never overrun. */
static void long_path(void **state)
{
    (void)state;
    struct api_error err;
    char path[1000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    api_fail(&err, API_TYPE, "%s", path);
    assert_int_equal(strlen(err.param), API_PARAM_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_not_misread),
        cmocka_unit_test(patterns_can_match),
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(members),
        cmocka_unit_test(long_path),
    };
    return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
