/*
 * Requests of the Messages API: what they become, and that nothing hostile gets through.  Renders
 * nothing and knows no answer.
 */
#include "engine/api/anthropic.h"

#include "tests/unit/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define KEY 7

static void fake_script(struct fake_request *r)
{
    fake_end(r, END_STOP);
}

static struct api api;
static struct tokenizer *tokenizer;

static int open_text(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(tokenizer_open("rootfs/models/demo/tokenizer.json", &tokenizer, &err), OK);
    assert_int_equal(api_init(&api, NULL, tokenizer, "official", "baseline", &err), OK);
    return 0;
}

static int close_text(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

static bool parse(const char *body, size_t len, bool counting, struct request *out,
                  struct api_error *err)
{
    struct exchange x = {.id = "req_0123456789abcdef01234567",
                         .user = &api,
                         .key = {.number = KEY},
                         .body = {.data = (char *)(uintptr_t)body, .len = len}};
    return anthropic_parse(&x, counting, out, err);
}

#define BODY(rest)     "{\"model\": \"deepseek-v4-demo\", \"max_tokens\": 9, " rest "}"
#define USER(content)  "{\"role\": \"user\", \"content\": " content "}"
#define MESSAGES(list) BODY("\"messages\": [" list "]")
#define HI             USER("\"Hi\"")
#define ASKED          "\"messages\": [" HI "]"
#define TOOL           "{\"name\": \"read\", \"input_schema\": {\"type\": \"object\", \"n\": 1.50}}"
#define FUNCTION       "{\"name\": \"read\", \"parameters\": {\"type\": \"object\", \"n\": 1.50}}"

static void assert_member(const struct request *request, const char *name, const char *want)
{
    struct buf got = {0};
    struct json_object *value =
        strcmp(name, "messages") == 0 ? request->messages : json_member(request->root, name, NULL);
    json_dump(&got, value);
    assert_string_equal(buf_cstr(&got), want);
    buf_free(&got);
}

static void translations(void **state)
{
    static const struct {
        const char *body, *member, *want;
    } ROWS[] = {
        {MESSAGES(HI), "messages", "[" HI "]"},
        {BODY("\"system\": \"S\", " ASKED), "messages",
         "[{\"role\": \"system\", \"content\": \"S\"}, " HI "]"},
        {BODY("\"system\": [{\"type\": \"text\", \"text\": \"A\", \"cache_control\": {}}, "
              "{\"type\": "
              "\"text\", \"text\": \"B\"}], " ASKED),
         "messages", "[{\"role\": \"system\", \"content\": \"A\\n\\nB\"}, " HI "]"},
        {MESSAGES("{\"role\": \"system\", \"content\": \"S\"}, " HI), "messages",
         "[{\"role\": \"system\", \"content\": \"S\"}, " HI "]"},
        {MESSAGES(HI ", {\"role\": \"system\", \"content\": \"S\"}"), "messages",
         "[" HI ", " USER("\"<system-reminder>\\nS\\n</system-reminder>\"") "]"},
        {MESSAGES(USER("[{\"type\": \"text\", \"text\": \"A\"}, {\"type\": \"text\", \"text\": "
                       "\"B\"}]")),
         "messages", "[" USER("\"A\\n\\nB\"") "]"},
        {MESSAGES(USER("[]")), "messages", "[" USER("\"\"") "]"},
        {MESSAGES(USER("[{\"type\": \"text\", \"text\": \"A\"}, {\"type\": \"tool_result\", "
                       "\"tool_use_id\": \"c\", \"content\": [{\"type\": \"text\", \"text\": "
                       "\"R\"}]}, {\"type\": \"tool_result\", \"tool_use_id\": \"d\", "
                       "\"is_error\": true, \"content\": \"no\"}, {\"type\": \"text\", \"text\": "
                       "\"B\"}]")),
         "messages",
         "[" USER("\"A\"") ", {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"R\"}, "
                           "{\"role\": \"tool\", \"tool_call_id\": \"d\", \"content\": \"Error: "
                           "no\"}, " USER("\"B\"") "]"},
        {MESSAGES(USER("[{\"type\": \"tool_result\", \"tool_use_id\": \"c\"}]")), "messages",
         "[{\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"\"}]"},
        {MESSAGES(HI ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", "
                     "\"thinking\": \"Hm.\", \"signature\": \"x\"}, {\"type\": "
                     "\"redacted_thinking\", \"data\": \"zz\"}, {\"type\": \"text\", \"text\": "
                     "\"Yes.\"}, {\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"read\", "
                     "\"input\": {\"n\": 1.50}}, {\"type\": \"tool_use\", \"id\": \"d\", \"name\": "
                     "\"gone\"}]}, " HI),
         "messages",
         "[" HI ", {\"role\": \"assistant\", \"content\": \"Yes.\", \"reasoning_content\": "
         "\"Hm.\", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": "
         "{\"name\": \"read\", \"arguments\": \"{\\\"n\\\": 1.50}\"}}, {\"id\": \"d\", \"type\": "
         "\"function\", \"function\": {\"name\": \"gone\", \"arguments\": \"{}\"}}]}, " HI "]"},
        {BODY("\"tools\": [" TOOL "], " ASKED), "tools",
         "[{\"type\": \"function\", \"function\": " FUNCTION "}]"},
        {BODY("\"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": true}, "
              "\"tools\": [" TOOL "], " ASKED),
         "parallel_tool_calls", "false"},
        {BODY("\"tool_choice\": {\"type\": \"any\"}, \"tools\": [" TOOL "], " ASKED), "tool_choice",
         "\"required\""},
        {BODY("\"tool_choice\": {\"type\": \"none\"}, " ASKED), "tool_choice", "\"none\""},
        {BODY("\"tool_choice\": {\"type\": \"tool\", \"name\": \"read\"}, \"tools\": [" TOOL
              "], " ASKED),
         "tool_choice", "{\"type\": \"function\", \"function\": {\"name\": \"read\"}}"},
        {BODY("\"stop_sequences\": [\"a\", \"b\"], " ASKED), "stop", "[\"a\", \"b\"]"},
        {BODY("\"stop_sequences\": [], " ASKED), "stop", "null"},
        {BODY("\"output_config\": {\"effort\": \"max\"}, " ASKED), "reasoning_effort", "\"max\""},
        {BODY("\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": "
              "{}}}, " ASKED),
         "response_format",
         "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"answer\", \"strict\": true, "
         "\"schema\": {}}}"},
        {BODY("\"top_k\": -7, \"metadata\": 3, \"mcp_servers\": [1], \"new\": {}, " ASKED), "top_k",
         "null"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err = {0};
        if (!parse(ROWS[i].body, strlen(ROWS[i].body), false, &request, &err))
            fail_msg("row %zu: %s %s", i, api_error_row(err.code)->code, err.param);
        assert_member(&request, ROWS[i].member, ROWS[i].want);
        assert_int_equal(request.tokens_max, 9);
        request_clear(&request);
    }
}

static void thinking(void **state)
{
    static const struct {
        const char *body;
        bool thinking;
    } ROWS[] = {
        {BODY("\"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 1024}, " ASKED), true},
        {BODY("\"thinking\": {\"type\": \"adaptive\"}, " ASKED), true},
        {BODY("\"thinking\": {\"type\": \"disabled\"}, \"output_config\": {\"effort\": "
              "\"high\"}, " ASKED),
         false},
        {BODY(ASKED), false}, /* the demo model's default */
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err;
        assert_true(parse(ROWS[i].body, strlen(ROWS[i].body), false, &request, &err));
        assert_int_equal(request.thinking, ROWS[i].thinking);
        request_clear(&request);
    }
}

static void refusals(void **state)
{
    static const struct {
        const char *body;
        enum api_code code;
        const char *path; /* in the client's words */
    } ROWS[] = {
        {"{", API_JSON, ""},
        {"[]", API_JSON, ""},
        {"{\"model\": \"deepseek-v4-demo\", " ASKED "}", API_MISSING, "max_tokens"},
        {"{\"max_tokens\": 1, " ASKED "}", API_MISSING, "model"},
        {"{\"model\": \"claude\", \"max_tokens\": 1, " ASKED "}", API_MODEL, "model"},
        {BODY("\"x\": 1"), API_MISSING, "messages"},
        {BODY("\"system\": \"S\", \"messages\": []"), API_EMPTY, "messages"},
        {MESSAGES("3"), API_TYPE, "messages[0]"},
        {MESSAGES("{\"content\": \"\"}"), API_MISSING, "messages[0].role"},
        {MESSAGES("{\"role\": \"tool\", \"content\": \"\"}"), API_VALUE, "messages[0].role"},
        {MESSAGES(HI ", {\"role\": \"assistant\", \"content\": \"Well\"}"), API_UNSUPPORTED,
         "messages[1].role"},
        {MESSAGES("{\"role\": \"user\"}"), API_MISSING, "messages[0].content"},
        {MESSAGES(USER("[1]")), API_TYPE, "messages[0].content[0]"},
        {MESSAGES(USER("[{}]")), API_MISSING, "messages[0].content[0].type"},
        {MESSAGES(USER("[{\"type\": \"image\"}]")), API_CONTENT, "messages[0].content[0].type"},
        {MESSAGES(USER("[{\"type\": \"tool_use\", \"id\": \"a\", \"name\": \"b\"}]")), API_CONTENT,
         "messages[0].content[0].type"},
        {MESSAGES(USER("[{\"type\": \"text\"}]")), API_MISSING, "messages[0].content[0].text"},
        {MESSAGES(USER("[{\"type\": \"tool_result\"}]")), API_MISSING,
         "messages[0].content[0].tool_use_id"},
        {MESSAGES(USER("[{\"type\": \"tool_result\", \"tool_use_id\": \"a\", \"content\": "
                       "[{\"type\": \"image\"}]}]")),
         API_CONTENT, "messages[0].content[0].content[0].type"},
        {MESSAGES("{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"a\", "
                  "\"name\": \"b\", \"input\": 3}]}, " HI),
         API_TYPE, "messages[0].content[0].input"},
        {BODY("\"system\": 3, " ASKED), API_TYPE, "system"},
        {BODY("\"system\": [{\"type\": \"image\"}], " ASKED), API_CONTENT, "system[0].type"},
        {BODY("\"tools\": [{\"type\": \"web_search_20250305\", \"name\": \"w\"}], " ASKED),
         API_UNSUPPORTED, "tools[0].type"},
        {BODY("\"tools\": [{\"name\": \"a\"}], " ASKED), API_MISSING, "tools[0].input_schema"},
        {BODY("\"tools\": [{\"input_schema\": {}}], " ASKED), API_MISSING, "tools[0].name"},
        {BODY("\"tools\": [{\"name\": \"a b\", \"input_schema\": {}}], " ASKED), API_VALUE,
         "tools[0].name"},
        {BODY("\"tools\": [{\"name\": \"a\", \"input_schema\": 3}], " ASKED), API_TYPE,
         "tools[0].input_schema"},
        {BODY("\"tools\": [" TOOL ", " TOOL "], " ASKED), API_TWICE, "tools[1].name"},
        {BODY("\"tool_choice\": \"auto\", " ASKED), API_TYPE, "tool_choice"},
        {BODY("\"tool_choice\": {\"type\": \"all\"}, " ASKED), API_VALUE, "tool_choice.type"},
        {BODY("\"tool_choice\": {\"type\": \"any\"}, " ASKED), API_MISSING, "tools"},
        {BODY("\"tool_choice\": {\"type\": \"tool\", \"name\": \"x\"}, \"tools\": [" TOOL
              "], " ASKED),
         API_VALUE, "tool_choice.name"},
        {BODY("\"stop_sequences\": \"a\", " ASKED), API_TYPE, "stop_sequences"},
        {BODY("\"stop_sequences\": [\"\"], " ASKED), API_EMPTY, "stop_sequences[0]"},
        {BODY("\"output_config\": {\"effort\": \"huge\"}, " ASKED), API_VALUE,
         "output_config.effort"},
        {BODY(
             "\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": 3}}, " ASKED),
         API_TYPE, "output_config.format.schema"},
        {BODY("\"thinking\": {\"type\": \"maybe\"}, " ASKED), API_VALUE, "thinking.type"},
        {BODY("\"stream\": 1, " ASKED), API_TYPE, "stream"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err = {0};
        char path[API_PARAM_BYTES];
        if (parse(ROWS[i].body, strlen(ROWS[i].body), false, &request, &err))
            fail_msg("row %zu is accepted", i);
        anthropic_path(err.param, path);
        assert_int_equal(err.code, ROWS[i].code);
        assert_string_equal(path, ROWS[i].path);
        request_clear(&request);
    }
}

static void counting_needs_no_limit(void **state)
{
    static const char TEXT[] = "{\"model\": \"deepseek-v4-demo\", " ASKED "}";
    struct request request;
    struct api_error err;
    (void)state;
    assert_true(parse(TEXT, strlen(TEXT), true, &request, &err));
    request_clear(&request);
}

/* ---- every byte and every value ---------------------------------------------------------------
 */

static const char RICH[] = BODY(
    "\"stream\": true, \"temperature\": 1, \"top_p\": 0.5, \"stop_sequences\": [\"x\"], "
    "\"thinking\": {\"type\": \"enabled\"}, \"output_config\": {\"effort\": \"low\"}, "
    "\"system\": [{\"type\": \"text\", \"text\": \"S\"}], \"tools\": [" TOOL "], "
    "\"tool_choice\": {\"type\": \"tool\", \"name\": \"read\", "
    "\"disable_parallel_tool_use\": false}, \"messages\": [" HI
    ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"H\", "
    "\"signature\": \"s\"}, {\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"read\", "
    "\"input\": {}}]}, " USER("[{\"type\": \"tool_result\", \"tool_use_id\": \"c\", "
                              "\"is_error\": false, \"content\": [{\"type\": \"text\", "
                              "\"text\": \"R\"}]}, {\"type\": \"text\", \"text\": \"B\"}]") "]");

static void cut_anywhere(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof RICH; n++) {
        struct request request;
        struct api_error err = {0};
        char *exact = malloc(n + 1);
        assert_non_null(exact);
        memcpy(exact, RICH, n);
        bool whole = n == sizeof RICH - 1;
        assert_int_equal(parse(exact, n, false, &request, &err), whole);
        if (!whole)
            assert_int_equal(err.code, API_JSON);
        request_clear(&request);
        free(exact);
    }
}

static const char *const WRONG[] = {"null",  "true", "-1",   "1e99", "\"\"",
                                    "\"x\"", "[]",   "[[]]", "{}",   "[1]"};

/* Replaces the value numbered `target` under `value`, in order, and counts. */
static struct json_object *replaced(struct json_object *value, int target, int *n,
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
static void wrong_anywhere(void **state)
{
    struct json_object *rich;
    int refused = 0, total = 0, count = 0;
    (void)state;
    assert_int_equal(json_parse(RICH, sizeof RICH - 1, &rich, NULL, NULL), OK);
    json_object_put(replaced(rich, -1, &count, "0"));
    for (int target = 1; target < count; target++) {
        for (size_t w = 0; w < sizeof WRONG / sizeof WRONG[0]; w++, total++) {
            struct request request;
            struct api_error err = {0};
            struct buf body = {0};
            int n = 0;
            struct json_object *bad = replaced(rich, target, &n, WRONG[w]);
            json_dump(&body, bad);
            if (!parse(body.data, body.len, false, &request, &err)) {
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
    assert_true(count > 50 && refused > total / 2 && refused < total);
}

/* ---- signatures -------------------------------------------------------------------------------
 */

static void signatures(void **state)
{
    char a[SIGNATURE_CHARS + 1], b[SIGNATURE_CHARS + 1], body[1024];
    struct buf first = {0};
    (void)state;
    anthropic_sign(&api, KEY, "Hm.", 3, a);
    anthropic_sign(&api, KEY, "Hm.", 3, b);
    assert_string_equal(a, b);
    anthropic_sign(&api, KEY + 1, "Hm.", 3, b);
    assert_string_not_equal(a, b);
    anthropic_sign(&api, KEY, "Hm!", 3, b);
    assert_string_not_equal(a, b);
    struct api other = api;
    other.sign_key[0] ^= 1;
    anthropic_sign(&other, KEY, "Hm.", 3, b);
    assert_string_not_equal(a, b);

    const char *const ROWS[] = {a, b, "", "short"};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err;
        struct buf got = {0};
        snprintf(body, sizeof body,
                 MESSAGES(HI ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", "
                             "\"thinking\": \"Hm.\", \"signature\": \"%s\"}]}, " HI),
                 ROWS[i]);
        assert_true(parse(body, strlen(body), false, &request, &err));
        json_dump(&got, request.messages);
        if (i == 0)
            buf_add(&first, got.data, got.len);
        assert_string_equal(buf_cstr(&got), buf_cstr(&first));
        buf_free(&got);
        request_clear(&request);
    }
    buf_free(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translations), cmocka_unit_test(thinking),
        cmocka_unit_test(refusals),     cmocka_unit_test(counting_needs_no_limit),
        cmocka_unit_test(cut_anywhere), cmocka_unit_test(wrong_anywhere),
        cmocka_unit_test(signatures),
    };
    return cmocka_run_group_tests_name("anthropic_request", tests, open_text, close_text);
}
