/*
 * What the tests of all translated requests share: a parser behind one function, rows of wanted
 * errors, and a body that is cut at every byte and spoiled at every value.  Included by one test
 * program, which defines parse.
 */
#ifndef V4BOX_TESTS_TRANSLATED_REQUEST_H
#define V4BOX_TESTS_TRANSLATED_REQUEST_H

#include "tests/unit/scripted_engine.h"

/* The parser that is tested. */
static bool parse(const char *body, size_t len, struct request *out, struct api_error *err);

/* A body as it comes from the client whose key seals with `seal` (all bytes the same). */
static inline struct exchange exchange_of(const char *body, size_t len, int seal)
{
    struct exchange x = {.id = "req_0123456789abcdef01234567",
                         .user = &api,
                         .key = {.number = SCRIPT_KEY},
                         .profile = *profile_builtin_at(PROFILE_OFFICIAL),
                         .body = {.data = (char *)(uintptr_t)body, .len = len}};
    memset(x.key.seal, seal, sizeof x.key.seal);
    return x;
}

static inline void assert_member(const struct request *request, const char *name, const char *want)
{
    struct buf got = {0};
    struct json_object *value =
        strcmp(name, "messages") == 0 ? request->messages : json_member(request->root, name, NULL);
    json_dump(&got, value);
    assert_string_equal(buf_cstr(&got), want);
    buf_free(&got);
}

/* A body and a member of what it becomes. */
struct translation {
    const char *body, *member, *want;
};

static inline void assert_translations(const struct translation *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        struct request request;
        struct api_error err = {0};
        if (!parse(rows[i].body, strlen(rows[i].body), &request, &err))
            fail_msg("row %zu: %s %s", i, api_error_row(err.code)->code, err.param);
        assert_member(&request, rows[i].member, rows[i].want);
        request_clear(&request);
    }
}

struct refusal {
    const char *body;
    enum api_code code;
    const char *path; /* in the client's words */
};

static inline void assert_refusals(const struct refusal *rows, size_t n_rows,
                                   void (*words)(const char *path, char out[API_PARAM_BYTES]))
{
    for (size_t i = 0; i < n_rows; i++) {
        struct request request;
        struct api_error err = {0};
        char path[API_PARAM_BYTES];
        if (parse(rows[i].body, strlen(rows[i].body), &request, &err))
            fail_msg("row %zu is accepted", i);
        words(err.param, path);
        if (err.code != rows[i].code)
            fail_msg("row %zu: %s %s", i, api_error_row(err.code)->code, path);
        assert_string_equal(path, rows[i].path);
        request_clear(&request);
    }
}

/* Only the whole text is a body. */
static inline void assert_cut_anywhere(const char *text, size_t len)
{
    for (size_t n = 0; n <= len; n++) {
        struct request request;
        struct api_error err = {0};
        char *exact = malloc(n + 1);
        assert_non_null(exact);
        memcpy(exact, text, n);
        assert_int_equal(parse(exact, n, &request, &err), n == len);
        if (n < len)
            assert_int_equal(err.code, API_JSON);
        request_clear(&request);
        free(exact);
    }
}

/* Replaces the value numbered `target` under `value`, in order, and counts. */
static inline struct json_object *replaced(struct json_object *value, int target, int *n,
                                           const char *wrong)
{
    struct json_object *out = NULL;
    if ((*n)++ == target) {
        assert_int_equal(json_parse(wrong, strlen(wrong), &out, NULL, NULL), OK);
        return out;
    }
    if (json_object_is_type(value, json_type_object)) {
        out = json_object_new_object();
        json_object_object_foreach(value, key, member)
            json_object_object_add(out, key, replaced(member, target, n, wrong));
        return out;
    }
    if (json_object_is_type(value, json_type_array)) {
        out = json_object_new_array();
        for (size_t i = 0; i < json_object_array_length(value); i++)
            json_object_array_add(out,
                                  replaced(json_object_array_get_idx(value, i), target, n, wrong));
        return out;
    }
    return json_object_get(value);
}

/* Any value of any type anywhere is taken or refused by name, and never gets further. */
static inline void assert_wrong_anywhere(const char *text, size_t len)
{
    static const char *const WRONG[] = {"null",  "true", "-1",   "1e99", "\"\"",
                                        "\"x\"", "[]",   "[[]]", "{}",   "[1]"};
    struct json_object *rich;
    int refused = 0, total = 0, count = 0;
    assert_int_equal(json_parse(text, len, &rich, NULL, NULL), OK);
    json_object_put(replaced(rich, -1, &count, "0"));
    for (int target = 1; target < count; target++) {
        for (size_t w = 0; w < sizeof WRONG / sizeof WRONG[0]; w++, total++) {
            struct request request;
            struct api_error err = {0};
            struct buf body = {0};
            int n = 0;
            struct json_object *bad = replaced(rich, target, &n, WRONG[w]);
            json_dump(&body, bad);
            if (!parse(body.data, body.len, &request, &err)) {
                refused++;
                assert_int_equal(api_error_row(err.code)->status / 100, 4);
                assert_true(err.param[0] != '\0');
            }
            request_clear(&request);
            json_object_put(bad);
            buf_free(&body);
        }
    }
    json_object_put(rich);
    assert_true(count > 45 && refused > total / 2 && refused < total);
}

#endif
