/* The table of request fields and the rules for messages, row by row, and both under fuzzing. */
#include "engine/api/request.h"

#include "engine/api/api.h"
#include "engine/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct request_defaults DEFAULTS = {.model = "deepseek-v4-demo", .thinking = false};

static bool parse(const char *text, struct request *out, struct api_error *err)
{
    return request_parse(text, strlen(text), &DEFAULTS, out, err);
}

/* ---- one faulty field in an otherwise good request ----------------------------------------------
 */

#define FUNCTION(members) "{\"type\":\"function\",\"function\":{" members "}}"
#define TOOLS_LONG_HEAD                                                                            \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\""
#define TOOL(members) "\"tools\":[" FUNCTION(members) "]"

static const struct {
    const char *member; /* added to the request below */
    enum api_code code;
    const char *param;
} FIELD_ROWS[] = {
    {"\"stream\":1", API_TYPE, "stream"},
    {"\"stream\":\"true\"", API_TYPE, "stream"},
    {"\"stream_options\":[]", API_TYPE, "stream_options"},
    {"\"stream_options\":{\"include_usage\":\"yes\"}", API_TYPE, "stream_options.include_usage"},
    {"\"max_tokens\":0", API_RANGE, "max_tokens"},
    {"\"max_tokens\":-9223372036854775809", API_TYPE, "max_tokens"},
    {"\"max_tokens\":1.5", API_TYPE, "max_tokens"},
    {"\"max_tokens\":\"5\"", API_TYPE, "max_tokens"},
    {"\"max_completion_tokens\":0", API_RANGE, "max_completion_tokens"},
    {"\"temperature\":-0.01", API_RANGE, "temperature"},
    {"\"temperature\":2.01", API_RANGE, "temperature"},
    {"\"temperature\":1e999", API_RANGE, "temperature"},
    {"\"temperature\":\"hot\"", API_TYPE, "temperature"},
    {"\"top_p\":0", API_RANGE, "top_p"},
    {"\"top_p\":1.0001", API_RANGE, "top_p"},
    {"\"top_k\":-2", API_RANGE, "top_k"},
    {"\"top_k\":true", API_TYPE, "top_k"},
    {"\"min_p\":1.1", API_RANGE, "min_p"},
    {"\"presence_penalty\":2.5", API_RANGE, "presence_penalty"},
    {"\"frequency_penalty\":-3", API_RANGE, "frequency_penalty"},
    {"\"deadline_ms\":0", API_RANGE, "deadline_ms"},
    {"\"deadline_ms\":\"1 s\"", API_TYPE, "deadline_ms"},
    {"\"seed\":1.5", API_TYPE, "seed"},
    {"\"seed\":\"1\"", API_TYPE, "seed"},
    {"\"stop\":\"\"", API_EMPTY, "stop"},
    {"\"stop\":[]", API_EMPTY, "stop"},
    {"\"stop\":5", API_TYPE, "stop"},
    {"\"stop\":[\"a\",\"\"]", API_EMPTY, "stop[1]"},
    {"\"stop\":[\"a\",null]", API_TYPE, "stop[1]"},
    {"\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", API_COUNT, "stop"},
    {"\"chat_template_kwargs\":1", API_TYPE, "chat_template_kwargs"},
    {"\"chat_template_kwargs\":{\"thinking\":1}", API_TYPE, "chat_template_kwargs.thinking"},
    {"\"reasoning_effort\":\"extreme\"", API_VALUE, "reasoning_effort"},
    {"\"reasoning_effort\":\"low\\u0000\"", API_VALUE, "reasoning_effort"},
    {"\"reasoning_effort\":3", API_TYPE, "reasoning_effort"},
    {"\"thinking\":true", API_TYPE, "thinking"},
    {"\"thinking\":{}", API_MISSING, "thinking.type"},
    {"\"thinking\":{\"type\":1}", API_TYPE, "thinking.type"},
    {"\"thinking\":{\"type\":\"sometimes\"}", API_VALUE, "thinking.type"},
    {"\"n\":2", API_UNSUPPORTED, "n"},
    {"\"n\":\"1\"", API_TYPE, "n"},
    {"\"repetition_penalty\":0", API_RANGE, "repetition_penalty"},
    {"\"logprobs\":1", API_TYPE, "logprobs"},
    {"\"top_logprobs\":5", API_MISSING, "logprobs"},
    {"\"logprobs\":false,\"top_logprobs\":5", API_MISSING, "logprobs"},
    {"\"logprobs\":true,\"top_logprobs\":21", API_RANGE, "top_logprobs"},
    {"\"logprobs\":true,\"top_logprobs\":-1", API_RANGE, "top_logprobs"},
    {"\"parallel_tool_calls\":1", API_TYPE, "parallel_tool_calls"},
    {"\"tools\":{}", API_TYPE, "tools"},
    {"\"tools\":[5]", API_TYPE, "tools[0]"},
    {"\"tools\":[{}]", API_MISSING, "tools[0].type"},
    {"\"tools\":[{\"type\":\"web_search\"}]", API_UNSUPPORTED, "tools[0].type"},
    {"\"tools\":[{\"type\":\"function\"}]", API_MISSING, "tools[0].function"},
    {"\"tools\":[{\"type\":\"function\",\"function\":\"f\"}]", API_TYPE, "tools[0].function"},
    {TOOL(""), API_MISSING, "tools[0].function.name"},
    {TOOL("\"name\":5"), API_TYPE, "tools[0].function.name"},
    {TOOL("\"name\":\"\""), API_VALUE, "tools[0].function.name"},
    {TOOL("\"name\":\"a b\""), API_VALUE, "tools[0].function.name"},
    {TOOL("\"name\":\"a\\u0000\""), API_VALUE, "tools[0].function.name"},
    {TOOL("\"name\":\"｜DSML｜\""), API_VALUE, "tools[0].function.name"},
    {TOOL("\"name\":\"f\",\"description\":{}"), API_TYPE, "tools[0].function.description"},
    {TOOL("\"name\":\"f\",\"parameters\":\"x\""), API_TYPE, "tools[0].function.parameters"},
    {TOOL("\"name\":\"f\",\"strict\":1"), API_TYPE, "tools[0].function.strict"},
    {"\"tools\":[" FUNCTION("\"name\":\"f\"") "," FUNCTION("\"name\":\"f\"") "]", API_TWICE,
     "tools[1].function.name"},
    {"\"tool_choice\":\"required\"", API_MISSING, "tools"},
    {"\"tool_choice\":\"maybe\"", API_VALUE, "tool_choice"},
    {"\"tool_choice\":5", API_TYPE, "tool_choice"},
    {"\"tool_choice\":{}", API_MISSING, "tool_choice.function.name"},
    {"\"tool_choice\":{\"type\":\"custom\"}", API_UNSUPPORTED, "tool_choice.type"},
    {TOOL("\"name\":\"f\"") ",\"tool_choice\":{\"type\":\"function\",\"function\":"
                            "{\"name\":\"g\"}}",
     API_VALUE, "tool_choice.function.name"},
    {"\"response_format\":{\"type\":\"xml\"}", API_VALUE, "response_format.type"},
    {"\"response_format\":{\"type\":\"json_schema\"}", API_MISSING, "response_format.json_schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":[]}", API_TYPE,
     "response_format.json_schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", API_MISSING,
     "response_format.json_schema.schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":true}}", API_TYPE,
     "response_format.json_schema.schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"strict\":1}}",
     API_TYPE, "response_format.json_schema.strict"},
    {"\"response_format\":{}", API_MISSING, "response_format.type"},
    {"\"response_format\":\"text\"", API_TYPE, "response_format"},
    {"\"modalities\":[\"text\",\"audio\"]", API_PARAMETER, "modalities"},
    {"\"functions\":[{}]", API_PARAMETER, "functions"},
    {"\"function_call\":\"auto\"", API_PARAMETER, "function_call"},
    {"\"logit_bias\":{\"5\":1}", API_PARAMETER, "logit_bias"},
    {"\"audio\":{\"voice\":\"x\"}", API_PARAMETER, "audio"},
    {"\"prediction\":{\"type\":\"content\"}", API_PARAMETER, "prediction"},
    {"\"web_search_options\":{\"a\":1}", API_PARAMETER, "web_search_options"},
};

static void faulty_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FIELD_ROWS / sizeof FIELD_ROWS[0]; i++) {
        struct buf text = {0};
        struct request request;
        struct api_error err;
        buf_printf(&text,
                   "{\"model\":\"deepseek-v4-demo\",%s,"
                   "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                   FIELD_ROWS[i].member);
        assert_false(parse(buf_cstr(&text), &request, &err));
        assert_int_equal(err.code, FIELD_ROWS[i].code);
        assert_string_equal(err.param, FIELD_ROWS[i].param);
        request_clear(&request);
        buf_free(&text);
    }
}

#define USER         "{\"role\":\"user\",\"content\":\"x\"}"
#define PREFIX(more) "{\"role\":\"assistant\",\"content\":\"x\",\"prefix\":true" more "}"

/* ---- faulty messages ------------------------------------------------------------------------ */

static const struct {
    const char *messages;
    enum api_code code;
    const char *param;
} MESSAGE_ROWS[] = {
    {"\"hi\"", API_TYPE, "messages"},
    {"{}", API_TYPE, "messages"},
    {"[]", API_EMPTY, "messages"},
    {"[5]", API_TYPE, "messages[0]"},
    {"[null]", API_TYPE, "messages[0]"},
    {"[{\"content\":\"x\"}]", API_MISSING, "messages[0].role"},
    {"[{\"role\":\"wizard\",\"content\":\"x\"}]", API_VALUE, "messages[0].role"},
    {"[{\"role\":\"user\\u0000\",\"content\":\"x\"}]", API_VALUE, "messages[0].role"},
    {"[{\"role\":7,\"content\":\"x\"}]", API_VALUE, "messages[0].role"},
    {"[{\"role\":\"latest_reminder\",\"content\":\"x\"}]", API_VALUE, "messages[0].role"},
    {"[{\"role\":\"user\"}]", API_MISSING, "messages[0].content"},
    {"[{\"role\":\"user\",\"content\":null}]", API_MISSING, "messages[0].content"},
    {"[{\"role\":\"user\",\"content\":5}]", API_TYPE, "messages[0].content"},
    {"[{\"role\":\"user\",\"content\":[5]}]", API_TYPE, "messages[0].content[0]"},
    {"[{\"role\":\"user\",\"content\":[{}]}]", API_MISSING, "messages[0].content[0].type"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", API_MISSING,
     "messages[0].content[0].text"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]", API_TYPE,
     "messages[0].content[0].text"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
     "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]",
     API_CONTENT, "messages[0].content[1].type"},
    {"[{\"role\":\"tool\",\"content\":\"x\"}]", API_MISSING, "messages[0].tool_call_id"},
    {"[{\"role\":\"tool\",\"tool_call_id\":\"a\"}]", API_MISSING, "messages[0].content"},
    {"[{\"role\":\"assistant\",\"content\":\"x\"}]", API_UNSUPPORTED, "messages[0].role"},
    {"[{\"role\":\"system\",\"content\":\"x\"}]", API_UNSUPPORTED, "messages[0].role"},
    {"[" PREFIX("") "]", API_UNSUPPORTED, "messages[0].prefix"},
    {"[" USER ",{\"role\":\"system\",\"content\":\"x\"}," PREFIX("") "]", API_UNSUPPORTED,
     "messages[2].prefix"},
    {"[" USER "," PREFIX(",\"tool_calls\":[]") "]", API_UNSUPPORTED, "messages[1].prefix"},
    {"[" USER ",{\"role\":\"assistant\",\"content\":\"x\",\"prefix\":1}]", API_TYPE,
     "messages[1].prefix"},
    {"[" USER ",{\"role\":\"assistant\",\"content\":\"x\",\"prefix\":false}]", API_UNSUPPORTED,
     "messages[1].role"},
    {"[" USER "," PREFIX("") "],\"response_format\":{\"type\":\"json_object\"}", API_UNSUPPORTED,
     "messages[1].prefix"},
};

/* Faults of an assistant turn that a user turn follows. */
static const struct {
    const char *members;
    enum api_code code;
    const char *param;
} ASSISTANT_ROWS[] = {
    {"\"prefix\":true,\"content\":\"x\"", API_UNSUPPORTED, "messages[0].prefix"},
    {"\"content\":\"x\",\"reasoning_content\":5", API_TYPE, "messages[0].reasoning_content"},
    {"\"content\":\"x\",\"reasoning\":{}", API_TYPE, "messages[0].reasoning"},
    {"\"tool_calls\":{}", API_TYPE, "messages[0].tool_calls"},
    {"\"tool_calls\":[5]", API_TYPE, "messages[0].tool_calls[0]"},
    {"\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]", API_MISSING,
     "messages[0].tool_calls[0].id"},
    {"\"tool_calls\":[{\"id\":\"\",\"function\":{\"name\":\"f\"}}]", API_MISSING,
     "messages[0].tool_calls[0].id"},
    {"\"tool_calls\":[{\"id\":\"a\",\"type\":\"custom\",\"function\":{\"name\":\"f\"}}]",
     API_UNSUPPORTED, "messages[0].tool_calls[0].type"},
    {"\"tool_calls\":[{\"id\":\"a\"}]", API_MISSING, "messages[0].tool_calls[0].function"},
    {"\"tool_calls\":[{\"id\":\"a\",\"function\":{}}]", API_MISSING,
     "messages[0].tool_calls[0].function.name"},
    {"\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]", API_TYPE,
     "messages[0].tool_calls[0].function.arguments"},
};

static void check_messages(const char *messages, enum api_code code, const char *param)
{
    struct buf text = {0};
    struct request request;
    struct api_error err;
    buf_printf(&text, "{\"model\":\"deepseek-v4-demo\",\"messages\":%s}", messages);
    assert_false(parse(buf_cstr(&text), &request, &err));
    assert_int_equal(err.code, code);
    assert_string_equal(err.param, param);
    request_clear(&request);
    buf_free(&text);
}

static void faulty_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MESSAGE_ROWS / sizeof MESSAGE_ROWS[0]; i++)
        check_messages(MESSAGE_ROWS[i].messages, MESSAGE_ROWS[i].code, MESSAGE_ROWS[i].param);
    for (size_t i = 0; i < sizeof ASSISTANT_ROWS / sizeof ASSISTANT_ROWS[0]; i++) {
        struct buf text = {0};
        buf_printf(&text, "[{\"role\":\"assistant\",%s},{\"role\":\"user\",\"content\":\"x\"}]",
                   ASSISTANT_ROWS[i].members);
        check_messages(buf_cstr(&text), ASSISTANT_ROWS[i].code, ASSISTANT_ROWS[i].param);
        buf_free(&text);
    }
}

/* ---- whole bodies --------------------------------------------------------------------------- */

static void faulty_bodies(void **state)
{
    static const struct {
        const char *text;
        enum api_code code;
        const char *param;
        int64_t offset;
    } ROWS[] = {
        {"", API_JSON, "", 0},
        {"null", API_JSON, "", 0},
        {"[1]", API_JSON, "", 0},
        {"{\"model\":", API_JSON, "", 9},
        {"{\"model\":\"a\",\"model\":\"b\"}", API_JSON, "", 13},
        {"{} {}", API_JSON, "", 3},
        {"{\"a\":\"\xff\"}", API_JSON, "", 6},
        {"{}", API_MISSING, "model", NUMBER_NONE},
        {"{\"model\":null}", API_MISSING, "model", NUMBER_NONE},
        {"{\"model\":5}", API_TYPE, "model", NUMBER_NONE},
        {"{\"model\":\"gpt-4\"}", API_MODEL, "model", NUMBER_NONE},
        {"{\"model\":\"deepseek-v4-demo\\u0000\"}", API_MODEL, "model", NUMBER_NONE},
        {"{\"model\":\"deepseek-v4-demo\"}", API_MISSING, "messages", NUMBER_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        struct api_error err;
        assert_false(parse(ROWS[i].text, &request, &err));
        assert_int_equal(err.code, ROWS[i].code);
        assert_string_equal(err.param, ROWS[i].param);
        assert_int_equal(err.offset, ROWS[i].offset);
        request_clear(&request);
    }
}

static void load(const char *name, struct buf *out)
{
    char path[128];
    struct error err;
    snprintf(path, sizeof path, "tests/data/requests/%s.json", name);
    assert_int_equal(file_read(path, 1 << 20, out, &err), OK);
}

static void defaults_and_values(void **state)
{
    (void)state;
    struct request r;
    struct api_error err;
    assert_true(parse("{\"model\":\"deepseek-v4-demo\",\"tools\":null,\"stop\":null,\"future\":{},"
                      "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                      &r, &err));
    assert_true(r.sampling.temperature == 1.0 && r.sampling.top_p == 1.0 && r.sampling.min_p == 0);
    assert_int_equal(r.sampling.top_k, 0);
    assert_false(r.stream || r.include_usage || r.thinking || r.seeded);
    assert_int_equal(r.unknown_fields, 1); /* "future" */
    assert_int_equal(r.tokens_max, 0);
    request_clear(&r);

    struct buf text = {0};
    load("history", &text);
    assert_true(request_parse(text.data, text.len, &DEFAULTS, &r, &err));
    assert_true(r.sampling.temperature == 0.25 && r.sampling.top_p == 0.9);
    assert_true(r.sampling.min_p == 0.05 && r.sampling.seed == (uint64_t)-7 && r.seeded);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.thinking);
    assert_int_equal(r.n_stops, 2);
    assert_memory_equal(r.stops[1].text, "END", 3);
    struct json_object *first = json_object_array_get_idx(r.messages, 0);
    assert_string_equal(json_object_get_string(json_member(first, "role", NULL)), "system");
    assert_string_equal(json_object_get_string(json_member(first, "content", NULL)),
                        "You are a coding agent.\n\nBe brief.");
    struct json_object *last = json_object_array_get_idx(r.messages, 4);
    assert_int_equal(json_object_get_string_len(json_member(last, "content", NULL)), 19);
    request_clear(&r);
    buf_free(&text);
}

static void thinking_rules(void **state)
{
    static const struct {
        const char *members;
        bool thinking;
        const char *effort;
    } ROWS[] = {
        {"\"x\":0", false, NULL},
        {"\"reasoning_effort\":\"none\"", false, NULL},
        {"\"reasoning_effort\":\"low\"", true, NULL},
        {"\"reasoning_effort\":\"high\"", true, "high"},
        {"\"reasoning_effort\":\"ultra\"", true, "max"},
        {"\"thinking\":{\"type\":\"enabled\"}", true, NULL},
        {"\"thinking\":{\"type\":\"adaptive\"}", true, NULL},
        {"\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"max\"", false, "max"},
        {"\"chat_template_kwargs\":{\"thinking\":true}", true, NULL},
        {"\"chat_template_kwargs\":{\"enable_thinking\":true},\"reasoning_effort\":\"none\"", false,
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct buf text = {0};
        struct request r;
        struct api_error err;
        buf_printf(&text,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                   "\"model\":\"deepseek-v4-demo\",%s}",
                   ROWS[i].members);
        assert_true(parse(buf_cstr(&text), &r, &err));
        assert_int_equal(r.thinking, ROWS[i].thinking);
        assert_true(r.effort == ROWS[i].effort || strcmp(r.effort, ROWS[i].effort) == 0);
        request_clear(&r);
        buf_free(&text);
    }
}

/* Names of the hosted API, and nothing like them. */
static void aliases(void **state)
{
    static const struct {
        const char *model, *more;
        bool good, thinking;
    } ROWS[] = {
        {"deepseek-v4-demo", "", true, false},
        {"deepseek-chat", "", true, false},
        {"deepseek-reasoner", "", true, true},
        {"deepseek-chat", ",\"thinking\":{\"type\":\"enabled\"}", true, true},
        {"deepseek-reasoner", ",\"reasoning_effort\":\"none\"", true, false},
        {"deepseek-chat\\u0000", "", false, false},
        {"Deepseek-chat", "", false, false},
        {"deepseek", "", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct buf text = {0};
        struct request r;
        struct api_error err;
        buf_printf(&text, "{\"messages\":[" USER "],\"model\":\"%s\"%s}", ROWS[i].model,
                   ROWS[i].more);
        assert_int_equal(parse(buf_cstr(&text), &r, &err), ROWS[i].good);
        if (ROWS[i].good)
            assert_int_equal(r.thinking, ROWS[i].thinking);
        else
            assert_int_equal(err.code, API_MODEL);
        request_clear(&r);
        buf_free(&text);
    }
}

static void tools_and_choice(void **state)
{
    static const struct {
        const char *members;
        bool offered;
        int32_t calls_max;
    } ROWS[] = {
        {TOOL("\"name\":\"f\",\"strict\":false"), true, 0},
        {TOOL("\"name\":\"f\"") ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":true", true, 0},
        {TOOL("\"name\":\"f\"") ",\"parallel_tool_calls\":false", true, 1},
        {TOOL("\"name\":\"f\"") ",\"tool_choice\":\"none\"", false, 0},
        {"\"tools\":[],\"tool_choice\":\"auto\"", false, 0},
        {"\"tool_choice\":\"none\"", false, 0},
        {TOOL("\"name\":\"f\"") ",\"tool_choice\":\"required\"", true, 0},
        {TOOL("\"name\":\"f\",\"strict\":true") ",\"tool_choice\":{\"type\":\"function\","
                                                "\"function\":{\"name\":\"f\"}}",
         true, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct buf text = {0};
        struct request r;
        struct api_error err;
        buf_printf(&text,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                   "\"model\":\"deepseek-v4-demo\",%s}",
                   ROWS[i].members);
        assert_true(parse(buf_cstr(&text), &r, &err));
        assert_int_equal(r.tools != NULL, ROWS[i].offered);
        assert_int_equal(r.calls_max, ROWS[i].calls_max);
        request_clear(&r);
        buf_free(&text);
    }
}

static void too_many_tools(void **state)
{
    (void)state;
    for (int n = TOOLS_MAX; n <= TOOLS_MAX + 1; n++) {
        struct buf text = {0};
        struct request r;
        struct api_error err;
        buf_puts(&text, "{\"model\":\"deepseek-v4-demo\",\"messages\":"
                        "[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[");
        for (int i = 0; i < n; i++)
            buf_printf(&text, "%s" FUNCTION("\"name\":\"f%d\""), i == 0 ? "" : ",", i);
        buf_puts(&text, "]}");
        assert_int_equal(parse(buf_cstr(&text), &r, &err), n == TOOLS_MAX);
        if (n > TOOLS_MAX)
            assert_int_equal(err.code, API_COUNT);
        request_clear(&r);
        buf_free(&text);
    }
    struct buf text = {0}; /* one tool, but a long one */
    struct request r;
    struct api_error err;
    buf_puts(&text, "{\"model\":\"deepseek-v4-demo\",\"messages\":"
                    "[{\"role\":\"user\",\"content\":\"x\"}]," TOOLS_LONG_HEAD);
    for (int i = 0; i < TOOLS_BYTES_MAX / 8; i++)
        buf_puts(&text, "12345678");
    buf_puts(&text, "\"}}]}");
    assert_false(parse(buf_cstr(&text), &r, &err));
    assert_int_equal(err.code, API_RANGE);
    assert_string_equal(err.param, "tools");
    request_clear(&r);
    buf_free(&text);
}

/* Fields inside a message that only the encoder's own callers may set never reach it. */
static void messages_are_rebuilt(void **state)
{
    (void)state;
    struct request r;
    struct api_error err;
    assert_true(parse("{\"model\":\"deepseek-v4-demo\",\"messages\":[{\"role\":\"user\",\"task\":"
                      "\"title\",\"tools\":[{}],\"wo_eos\":true,\"content\":[]}]}",
                      &r, &err));
    struct json_object *message = json_object_array_get_idx(r.messages, 0);
    assert_int_equal(json_object_object_length(message), 2);
    assert_non_null(json_member(message, "content", NULL));
    request_clear(&r);
}

/* A turn that stays open, and what is sampled besides. */
static void prefix_and_sampling(void **state)
{
    (void)state;
    struct request r;
    struct api_error err;
    assert_true(parse("{\"model\":\"deepseek-v4-demo\",\"logprobs\":true,\"top_logprobs\":20,"
                      "\"presence_penalty\":1.5,\"frequency_penalty\":-2,\"repetition_penalty\":2,"
                      "\"messages\":[" USER "," PREFIX(",\"reasoning_content\":\"r\"") "]}",
                      &r, &err));
    assert_true(r.prefix && r.logprobs);
    assert_int_equal(r.top_logprobs, 20);
    assert_true(r.sampling.presence_penalty == 1.5 && r.sampling.frequency_penalty == -2);
    assert_true(r.sampling.repetition_penalty == 2);
    struct json_object *last = json_object_array_get_idx(r.messages, 1);
    assert_true(json_object_get_boolean(json_member(last, "wo_eos", NULL)));
    assert_int_equal(json_object_object_length(last), 4);
    request_clear(&r);
}

/* ---- fuzz ----------------------------------------------------------------------------------- */

static const char *const CORPUS[] = {"title", "history", "plain", "tools"};
#define N_CORPUS (sizeof CORPUS / sizeof CORPUS[0])

/* Whatever comes: no crash, no leak, and a reason when it is refused. */
static void feed(const char *text, size_t len)
{
    struct request request;
    struct api_error err = {.code = API_OK};
    if (!request_parse(text, len, &DEFAULTS, &request, &err))
        assert_true(err.code > API_OK && err.code < API_CODES);
    else
        assert_non_null(request.messages);
    request_clear(&request);
}

static void truncated(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CORPUS; i++) {
        struct buf text = {0};
        load(CORPUS[i], &text);
        for (size_t n = 0; n <= text.len; n++)
            feed(text.data, n);
        buf_free(&text);
    }
}

static void flipped(void **state)
{
    static const char SPLICES[] = "\0{}[]\",:0-9e\\u\xff\x80nul\x7f ";
    uint32_t seed = 20260801;
    (void)state;
    print_message("# seed %u\n", seed);
    for (size_t i = 0; i < N_CORPUS; i++) {
        struct buf text = {0}, copy = {0};
        load(CORPUS[i], &text);
        for (int round = 0; round < 4000; round++) {
            copy.len = 0;
            buf_add(&copy, text.data, text.len);
            for (int flips = 0; flips <= round % 3; flips++) {
                seed = seed * 1664525 + 1013904223;
                copy.data[(seed >> 8) % copy.len] = SPLICES[(seed >> 3) % (sizeof SPLICES - 1)];
            }
            feed(copy.data, copy.len);
        }
        buf_free(&text);
        buf_free(&copy);
    }
}

/* What a request that says nothing is asked, under the profile's rows of the prompt. */
static void defaults_of_profiles(void **state)
{
    struct api api = {.model = "deepseek-v4-demo"};
    struct exchange x = {.user = &api, .profile = *profile_builtin("official")};
    (void)state;
    for (int run = 0; run < 8; run++) {
        bool thinking = run & 1, flipped = run & 2, max = run & 4;
        api.thinking_default = thinking;
        profile_set(&x.profile, ROW_THINK_DEFAULT,
                    flipped ? THINK_DEFAULT_FLIPPED : THINK_DEFAULT_OFFICIAL);
        profile_set(&x.profile, ROW_THINK_EFFORT, max ? THINK_EFFORT_MAX : THINK_EFFORT_OFFICIAL);
        struct request_defaults defaults = api_request_defaults(&x);
        assert_string_equal(defaults.model, api.model);
        static const char SAYS_NOTHING[] =
            "{\"model\":\"deepseek-v4-demo\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
        static const char SAYS[] =
            "{\"model\":\"deepseek-v4-demo\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
            "\"reasoning_effort\":\"high\"}";
        struct request r;
        struct api_error err;
        assert_true(request_parse(SAYS_NOTHING, strlen(SAYS_NOTHING), &defaults, &r, &err));
        assert_true(r.thinking == (thinking != flipped) && (r.effort != NULL) == max);
        request_clear(&r);
        assert_true(request_parse(SAYS, strlen(SAYS), &defaults, &r, &err)); /* its word counts */
        assert_true(r.thinking && (r.effort == NULL || strcmp(r.effort, "high") == 0));
        request_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faulty_fields),
        cmocka_unit_test(faulty_messages),
        cmocka_unit_test(faulty_bodies),
        cmocka_unit_test(defaults_and_values),
        cmocka_unit_test(thinking_rules),
        cmocka_unit_test(defaults_of_profiles),
        cmocka_unit_test(aliases),
        cmocka_unit_test(tools_and_choice),
        cmocka_unit_test(too_many_tools),
        cmocka_unit_test(messages_are_rebuilt),
        cmocka_unit_test(prefix_and_sampling),
        cmocka_unit_test(truncated),
        cmocka_unit_test(flipped),
    };
    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
