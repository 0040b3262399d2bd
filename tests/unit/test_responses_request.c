/*
 * Requests of the Responses API: what they become, what sealed reasoning becomes, and that nothing
 * hostile gets through.  Renders nothing and knows no answer.
 */
#include "engine/api/responses.h"

#include "tests/unit/translated_request.h"

#define SEAL 7

static bool parse(const char *body, size_t len, struct request *out, struct api_error *err)
{
    struct exchange x = exchange_of(body, len, SEAL);
    return responses_parse(&x, out, err);
}

#define BODY(rest)    "{\"model\": \"deepseek-v4-demo\", " rest "}"
#define INPUT(list)   BODY("\"input\": [" list "]")
#define USER(content) "{\"role\": \"user\", \"content\": " content "}"
#define HI            USER("\"Hi\"")
#define ASKED         "\"input\": \"Hi\""
#define SCHEMA        "{\"type\": \"object\", \"n\": 1.50}"
#define TOOL          "{\"type\": \"function\", \"name\": \"read\", \"parameters\": " SCHEMA "}"
#define CALL(id)      "{\"type\": \"function_call\", \"call_id\": \"" id "\", \"name\": \"read\", "
#define OUTPUT(id, to)                                                                             \
    "{\"type\": \"function_call_output\", \"call_id\": \"" id "\", \"output\": " to "}"
#define THOUGHT(text)                                                                              \
    "{\"type\": \"reasoning\", \"id\": \"rs\", \"summary\": [{\"type\": \"summary_text\", "        \
    "\"text\": \"" text "\"}]}"
#define SAID(text)                                                                                 \
    "{\"type\": \"message\", \"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", "  \
    "\"text\": \"" text "\", \"annotations\": []}]}"
#define TURN(content, rest) "{\"role\": \"assistant\", \"content\": \"" content "\"" rest "}"
#define FUNCTION(id, arguments)                                                                    \
    "{\"id\": \"" id                                                                               \
    "\", \"type\": \"function\", \"function\": {\"name\": \"read\", \"arguments\": \"" arguments   \
    "\"}}"
#define RESULT(id, content)                                                                        \
    "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" content "\"}"

static const struct translation TRANSLATIONS[] = {
    {BODY(ASKED), "messages", "[" HI "]"},
    {INPUT(HI), "messages", "[" HI "]"},
    {BODY("\"instructions\": \"S\", " ASKED), "messages",
     "[{\"role\": \"system\", \"content\": \"S\"}, " HI "]"},
    {INPUT("{\"role\": \"developer\", \"content\": \"D\"}, " HI), "messages",
     "[{\"role\": \"system\", \"content\": \"D\"}, " HI "]"},
    {INPUT(HI ", {\"role\": \"system\", \"content\": \"S\"}, " HI), "messages",
     "[" HI ", {\"role\": \"system\", \"content\": \"S\"}, " HI "]"},
    {INPUT("{\"type\": \"message\", \"role\": \"user\", \"content\": [{\"type\": "
           "\"input_text\", \"text\": \"A\"}, {\"type\": \"input_text\", \"text\": \"B\"}]}"),
     "messages", "[" USER("\"A\\n\\nB\"") "]"},
    /* one turn of the assistant, however many items */
    {INPUT(HI ", " THOUGHT("Hm.") ", " SAID("Yes.") ", " CALL("c") "\"arguments\": \"{}\"}, " CALL(
         "d") "\"status\": \"completed\"}, " OUTPUT("d", "\"2\"") ", " OUTPUT("c", "[{\"type\": "
                                                                                   "\"input_text\","
                                                                                   " \"text\": "
                                                                                   "\"1\"}]")),
     "messages",
     "[" HI ", " TURN(
         "Yes.",
         ", \"reasoning_content\": \"Hm.\", \"tool_calls\": [" FUNCTION("c", "{}") ", " FUNCTION(
             "d", "{}") "]") ", " RESULT("d", "2") ", " RESULT("c", "1") "]"},
    /* what goes back in the order opens the next */
    {INPUT(HI ", " SAID("A") ", " THOUGHT("Hm.") ", " SAID("B") ", " CALL("c") "\"arguments\": "
                                                                               "\"\"}, " SAID(
                                                                                   "C") ", " HI),
     "messages",
     "[" HI ", " TURN("A", "") ", " TURN(
         "B", ", \"reasoning_content\": \"Hm.\", "
              "\"tool_calls\": [" FUNCTION("c", "{}") "]") ", " TURN("C", "") ", " HI "]"},
    {INPUT(HI ", " SAID("A") ", " SAID("B") ", " HI), "messages",
     "[" HI ", " TURN("A", "") ", " TURN("B", "") ", " HI "]"},
    /* all of the reasoning goes before what was shown of it; without either it is not there */
    {INPUT(HI ", {\"type\": \"reasoning\", \"summary\": [{\"type\": \"summary_text\", \"text\": "
              "\"S\"}], \"content\": [{\"type\": \"reasoning_text\", \"text\": \"R\"}]}, " SAID(
                  "A") ", " HI),
     "messages", "[" HI ", " TURN("A", ", \"reasoning_content\": \"R\"") ", " HI "]"},
    {INPUT(HI
           ", {\"type\": \"reasoning\", \"summary\": [], \"encrypted_content\": \"AAAA\"}, " SAID(
               "A") ", " HI),
     "messages", "[" HI ", " TURN("A", ", \"reasoning_content\": \"\"") ", " HI "]"},
    {BODY("\"tools\": [" TOOL "], " ASKED), "tools",
     "[{\"type\": \"function\", \"function\": {\"name\": \"read\", \"parameters\": " SCHEMA "}}]"},
    {BODY("\"tools\": [" TOOL "], \"tool_choice\": \"required\", " ASKED), "tool_choice",
     "\"required\""},
    {BODY("\"tools\": [" TOOL
          "], \"tool_choice\": {\"type\": \"function\", \"name\": \"read\"}, " ASKED),
     "tool_choice", "{\"type\": \"function\", \"function\": {\"name\": \"read\"}}"},
    {BODY("\"max_output_tokens\": 9, " ASKED), "max_completion_tokens", "9"},
    {BODY("\"reasoning\": {\"effort\": \"max\", \"summary\": \"auto\"}, " ASKED),
     "reasoning_effort", "\"max\""},
    {BODY("\"text\": {\"verbosity\": \"low\", \"format\": {\"type\": \"json_object\"}}, " ASKED),
     "response_format", "{\"type\": \"json_object\"}"},
    {BODY("\"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"strict\": "
          "true, "
          "\"schema\": {}}}, " ASKED),
     "response_format",
     "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"answer\", \"strict\": true, "
     "\"schema\": {}}}"},
    {BODY("\"store\": false, \"include\": [\"reasoning.encrypted_content\"], "
          "\"previous_response_id\": null, \"truncation\": \"disabled\", \"background\": false, "
          "\"prompt_cache_key\": 3, \"metadata\": {\"a\": \"b\"}, \"new\": 1, " ASKED),
     "logprobs", "null"},
};

static void translations(void **state)
{
    (void)state;
    assert_translations(TRANSLATIONS, sizeof TRANSLATIONS / sizeof TRANSLATIONS[0]);
}

/* Sealed reasoning is what counts where it can be opened, and nothing where it can not. */
static void sealed_reasoning(void **state)
{
    static const struct {
        int seal;
        bool spoil;
        const char *want;
    } ROWS[] = {{SEAL, false, "secret"}, {SEAL + 1, false, "shown"}, {SEAL, true, "shown"}};
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        uint8_t key[SEAL_KEY_BYTES];
        struct buf sealed = {0};
        char body[1024];
        struct request request;
        struct api_error err;
        memset(key, ROWS[i].seal, sizeof key);
        seal_close(key, "secret", 6, &sealed);
        if (ROWS[i].spoil)
            sealed.data[sealed.len / 2] ^= 1;
        snprintf(body, sizeof body,
                 INPUT(HI
                       ", {\"type\": \"reasoning\", \"summary\": [{\"type\": \"summary_text\", "
                       "\"text\": \"shown\"}], \"encrypted_content\": \"%s\"}, " SAID("A") ", " HI),
                 buf_cstr(&sealed));
        assert_true(parse(body, strlen(body), &request, &err));
        struct json_object *turn = json_object_array_get_idx(request.messages, 1);
        assert_string_equal(json_object_get_string(json_member(turn, "reasoning_content", NULL)),
                            ROWS[i].want);
        request_clear(&request);
        buf_free(&sealed);
    }
}

/* What clients may add some day is counted; what is ignored on purpose is not. */
static void unknown_fields(void **state)
{
    static const char TEXT[] = BODY("\"user\": 1, \"store\": false, \"input\": \"Hi\", \"new\": 1, "
                                    "\"newer\": null");
    struct request request;
    struct api_error err;
    (void)state;
    assert_true(parse(TEXT, sizeof TEXT - 1, &request, &err));
    assert_int_equal(request.unknown_fields, 2);
    request_clear(&request);
}

static void refusals(void **state)
{
    static const struct refusal ROWS[] = {
        {"{", API_JSON, ""},
        {"[]", API_JSON, ""},
        {"{" ASKED "}", API_MISSING, "model"},
        {"{\"model\": \"gpt-5\", " ASKED "}", API_MODEL, "model"},
        {BODY("\"x\": 1"), API_MISSING, "input"},
        {BODY("\"input\": 3"), API_TYPE, "input"},
        {BODY("\"input\": []"), API_EMPTY, "input"},
        {BODY("\"instructions\": 3, " ASKED), API_TYPE, "instructions"},
        {INPUT("3"), API_TYPE, "input[0]"},
        {INPUT("{}"), API_MISSING, "input[0].type"},
        {INPUT("{\"type\": \"item_reference\", \"id\": \"x\"}"), API_CONTENT, "input[0].type"},
        {INPUT("{\"type\": \"message\", \"content\": \"\"}"), API_MISSING, "input[0].role"},
        {INPUT("{\"role\": \"tool\", \"content\": \"\"}"), API_VALUE, "input[0].role"},
        {INPUT("{\"role\": \"user\"}"), API_MISSING, "input[0].content"},
        {INPUT(USER("[{\"type\": \"input_image\"}]")), API_CONTENT, "input[0].content[0].type"},
        {INPUT(USER("[{\"type\": \"input_text\"}]")), API_MISSING, "input[0].content[0].text"},
        {INPUT(HI ", " SAID("Well")), API_UNSUPPORTED, "input[1]"},
        {INPUT(HI ", " CALL("c") "\"arguments\": \"{}\"}"), API_UNSUPPORTED, "input[1]"},
        {INPUT("{\"type\": \"function_call\", \"name\": \"n\"}"), API_MISSING, "input[0].call_id"},
        {INPUT(CALL("c") "\"arguments\": {}}"), API_TYPE, "input[0].arguments"},
        {INPUT("{\"type\": \"function_call_output\", \"output\": \"\"}"), API_MISSING,
         "input[0].call_id"},
        {INPUT("{\"type\": \"function_call_output\", \"call_id\": \"c\"}"), API_MISSING,
         "input[0].output"},
        {INPUT("{\"type\": \"reasoning\", \"encrypted_content\": 3}"), API_TYPE,
         "input[0].encrypted_content"},
        {BODY("\"store\": true, " ASKED), API_UNSUPPORTED, "store"},
        {BODY("\"previous_response_id\": \"resp_1\", " ASKED), API_UNSUPPORTED,
         "previous_response_id"},
        {BODY("\"conversation\": \"c\", " ASKED), API_UNSUPPORTED, "conversation"},
        {BODY("\"background\": true, " ASKED), API_UNSUPPORTED, "background"},
        {BODY("\"truncation\": \"auto\", " ASKED), API_UNSUPPORTED, "truncation"},
        {BODY("\"tools\": [{\"type\": \"web_search\"}], " ASKED), API_UNSUPPORTED, "tools[0].type"},
        {BODY("\"tools\": [{\"type\": \"function\"}], " ASKED), API_MISSING, "tools[0].name"},
        {BODY("\"tools\": [{\"type\": \"function\", \"name\": \"a\", \"parameters\": 3}], " ASKED),
         API_TYPE, "tools[0].parameters"},
        {BODY("\"tools\": [" TOOL ", " TOOL "], " ASKED), API_TWICE, "tools[1].name"},
        {BODY("\"tool_choice\": \"all\", " ASKED), API_VALUE, "tool_choice"},
        {BODY("\"tool_choice\": {\"type\": \"allowed_tools\"}, " ASKED), API_UNSUPPORTED,
         "tool_choice.type"},
        {BODY("\"tool_choice\": {\"type\": \"function\", \"name\": \"x\"}, \"tools\": [" TOOL
              "], " ASKED),
         API_VALUE, "tool_choice.name"},
        {BODY("\"reasoning\": {\"effort\": \"huge\"}, " ASKED), API_VALUE, "reasoning.effort"},
        {BODY("\"max_output_tokens\": 0, " ASKED), API_RANGE, "max_output_tokens"},
        {BODY("\"text\": {\"format\": {\"type\": \"xml\"}}, " ASKED), API_VALUE,
         "text.format.type"},
        {BODY("\"text\": {\"format\": {\"type\": \"json_schema\"}}, " ASKED), API_MISSING,
         "text.format.schema"},
        {BODY("\"text\": {\"format\": {\"type\": \"json_schema\", \"schema\": 3}}, " ASKED),
         API_TYPE, "text.format.schema"},
    };
    (void)state;
    assert_refusals(ROWS, sizeof ROWS / sizeof ROWS[0], responses_path);
}

static const char RICH[] =
    BODY("\"stream\": true, \"temperature\": 1, \"top_p\": 0.5, \"max_output_tokens\": 9, "
         "\"instructions\": \"S\", \"reasoning\": {\"effort\": \"low\"}, \"tools\": [" TOOL "], "
         "\"tool_choice\": {\"type\": \"function\", \"name\": \"read\"}, \"include\": [\"x\"], "
         "\"text\": {\"format\": {\"type\": \"json_schema\", \"schema\": {}, \"strict\": false}}, "
         "\"store\": false, \"truncation\": \"disabled\", \"input\": [" HI
         ", " THOUGHT("Hm.") ", " SAID("Yes.") ", " CALL("c") "\"arguments\": \"{}\"}, " OUTPUT(
             "c", "[{\"type\": \"input_text\", \"text\": \"1\"}]") "]");

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translations), cmocka_unit_test(sealed_reasoning),
        cmocka_unit_test(refusals),     cmocka_unit_test(unknown_fields),
        cmocka_unit_test(cut_anywhere), cmocka_unit_test(wrong_anywhere),
    };
    return cmocka_run_group_tests_name("responses_request", tests, open_script, close_script);
}
