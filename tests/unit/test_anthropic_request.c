/*
 * Requests of the Messages API: what they become, and that nothing hostile gets through.  Renders
 * nothing and knows no answer.
 */
#include "engine/api/anthropic.h"

#include "tests/unit/translated_request.h"

#define SEAL 7

static bool parse(const char *body, size_t len, struct request *out, struct api_error *err)
{
    struct exchange x = exchange_of(body, len, SEAL);
    return anthropic_parse(&x, false, out, err);
}

#define BODY(rest)     "{\"model\": \"deepseek-v4-demo\", \"max_tokens\": 9, " rest "}"
#define USER(content)  "{\"role\": \"user\", \"content\": " content "}"
#define MESSAGES(list) BODY("\"messages\": [" list "]")
#define HI             USER("\"Hi\"")
#define ASKED          "\"messages\": [" HI "]"
#define TOOL           "{\"name\": \"read\", \"input_schema\": {\"type\": \"object\", \"n\": 1.50}}"
#define FUNCTION       "{\"name\": \"read\", \"parameters\": {\"type\": \"object\", \"n\": 1.50}}"

static void translations(void **state)
{
    static const struct translation ROWS[] = {
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
        /* an answer that the client has begun */
        {MESSAGES(HI ", {\"role\": \"assistant\", \"content\": \"Well\"}"), "messages",
         "[" HI ", {\"role\": \"assistant\", \"wo_eos\": true, \"content\": \"Well\"}]"},
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
    assert_translations(ROWS, sizeof ROWS / sizeof ROWS[0]);
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
        assert_true(parse(ROWS[i].body, strlen(ROWS[i].body), &request, &err));
        assert_int_equal(request.thinking, ROWS[i].thinking);
        request_clear(&request);
    }
}

static void refusals(void **state)
{
    static const struct refusal ROWS[] = {
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
        {MESSAGES(HI ", {\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": "
                     "\"a\", \"name\": \"b\"}]}"),
         API_UNSUPPORTED, "messages[1].content"},
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
    assert_refusals(ROWS, sizeof ROWS / sizeof ROWS[0], anthropic_path);
}

static void counting_needs_no_limit(void **state)
{
    static const char TEXT[] = "{\"model\": \"deepseek-v4-demo\", " ASKED "}";
    struct request request;
    struct api_error err;
    struct exchange x = exchange_of(TEXT, sizeof TEXT - 1, SEAL);
    (void)state;
    assert_true(anthropic_parse(&x, true, &request, &err));
    assert_int_equal(request.unknown_fields, 0);
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
    assert_cut_anywhere(RICH, sizeof RICH - 1);
}

static void wrong_anywhere(void **state)
{
    (void)state;
    assert_wrong_anywhere(RICH, sizeof RICH - 1);
}

/* ---- signatures -------------------------------------------------------------------------------
 */

static void signatures(void **state)
{
    char a[SIGNATURE_CHARS + 1], b[SIGNATURE_CHARS + 1], body[1024];
    struct buf first = {0};
    (void)state;
    uint8_t key[SEAL_KEY_BYTES];
    memset(key, SEAL, sizeof key);
    seal_sign(key, "Hm.", 3, a);
    key[0] ^= 1;
    seal_sign(key, "Hm.", 3, b);
    const char *const ROWS[] = {a, b, "", "short"};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err;
        struct buf got = {0};
        snprintf(body, sizeof body,
                 MESSAGES(HI ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", "
                             "\"thinking\": \"Hm.\", \"signature\": \"%s\"}]}, " HI),
                 ROWS[i]);
        assert_true(parse(body, strlen(body), &request, &err));
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
    return cmocka_run_group_tests_name("anthropic_request", tests, open_script, close_script);
}
