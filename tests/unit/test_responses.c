/*
 * Answers of the Responses API without HTTP: the events joined are the whole response, in the order
 * that clients rely on, for any answer cut anywhere; and the words of its errors.
 */
#include "engine/api/responses.h"

#include "tests/unit/scripted_engine.h"

/* ---- a client ---------------------------------------------------------------------------------
 */

/* What a client has of an answer: the output that it has put together itself, and the response. */
struct told {
    struct json_object *response; /* owns */
    struct json_object *output;   /* owns: items done */
    struct buf partial;           /* of the part that is open */
    char type[64];                /* of the item that is open; "": none */
    char error[32];
    int events, opened;
};

static const char *text_of(struct json_object *object, const char *name)
{
    return json_object_get_string(json_member(object, name, NULL));
}

static int number_of(struct json_object *object, const char *name)
{
    assert_non_null(json_member(object, name, NULL));
    return json_object_get_int(json_member(object, name, NULL));
}

static void assert_partial(struct told *t, struct json_object *event, const char *name)
{
    struct json_object *text = json_member(event, name, NULL);
    assert_int_equal(t->partial.len, json_object_get_string_len(text));
    if (t->partial.len > 0)
        assert_memory_equal(t->partial.data, json_object_get_string(text), t->partial.len);
}

static void open_item(struct told *t, struct json_object *event)
{
    assert_string_equal(t->type, "");
    assert_int_equal(number_of(event, "output_index"), t->opened++);
    struct json_object *item = json_member(event, "item", NULL);
    assert_string_equal(text_of(item, "status"), "in_progress");
    snprintf(t->type, sizeof t->type, "%s", text_of(item, "type"));
    t->partial.len = 0;
}

static void add_delta(struct told *t, struct json_object *event)
{
    struct json_object *delta = json_member(event, "delta", NULL);
    buf_add(&t->partial, json_object_get_string(delta), (size_t)json_object_get_string_len(delta));
}

static void end_text(struct told *t, struct json_object *event)
{
    assert_partial(t, event, "text");
}

static void end_arguments(struct told *t, struct json_object *event)
{
    assert_partial(t, event, "arguments");
}

static void end_part(struct told *t, struct json_object *event)
{
    assert_partial(t, json_member(event, "part", NULL), "text");
}

static void nothing(struct told *t, struct json_object *event)
{
    (void)t;
    (void)event;
}

static void end_item(struct told *t, struct json_object *event)
{
    struct json_object *item = json_member(event, "item", NULL);
    assert_string_equal(text_of(item, "type"), t->type);
    json_object_array_add(t->output, json_object_get(item));
    t->type[0] = '\0';
}

static void take_response(struct told *t, struct json_object *event)
{
    json_object_put(t->response);
    t->response = json_object_get(json_member(event, "response", NULL));
}

/* Events, and the item that must be open: "" none, NULL any. */
static const struct {
    const char *type, *item;
    void (*take)(struct told *t, struct json_object *event);
} EVENTS[] = {
    {"response.created", "", take_response},
    {"response.in_progress", "", take_response},
    {"response.output_item.added", "", open_item},
    {"response.reasoning_summary_part.added", "reasoning", nothing},
    {"response.reasoning_summary_text.delta", "reasoning", add_delta},
    {"response.reasoning_summary_text.done", "reasoning", end_text},
    {"response.reasoning_summary_part.done", "reasoning", end_part},
    {"response.content_part.added", "message", nothing},
    {"response.output_text.delta", "message", add_delta},
    {"response.output_text.done", "message", end_text},
    {"response.content_part.done", "message", end_part},
    {"response.function_call_arguments.delta", "function_call", add_delta},
    {"response.function_call_arguments.done", "function_call", end_arguments},
    {"response.output_item.done", NULL, end_item},
    {"response.completed", "", take_response},
    {"response.incomplete", "", take_response},
};

static void take_event(struct told *t, struct json_object *event)
{
    const char *type = text_of(event, "type");
    assert_int_equal(number_of(event, "sequence_number"), t->events++);
    assert_string_equal(t->error, "");
    if (strcmp(type, "error") == 0) {
        snprintf(t->error, sizeof t->error, "%s", text_of(event, "code"));
        assert_string_equal(text_of(json_member(event, "error", NULL), "code"), t->error);
        return;
    }
    for (size_t i = 0; i < sizeof EVENTS / sizeof EVENTS[0]; i++) {
        if (strcmp(EVENTS[i].type, type) != 0)
            continue;
        if (EVENTS[i].item != NULL)
            assert_string_equal(EVENTS[i].item, t->type);
        EVENTS[i].take(t, event);
        return;
    }
    fail_msg("an unknown event");
}

static void take_events(struct told *t, const char *text, size_t len)
{
    while (len > 0) {
        struct json_object *event;
        char name[64];
        size_t n = (size_t)((const char *)memmem(text, len, "\n\n", 2) - text);
        assert_int_equal(sscanf(text, "event: %63[a-z_.]\ndata: ", name), 1);
        const char *data = (const char *)memmem(text, n, "\ndata: ", 7) + 7;
        assert_null(memchr(data, '\n', (size_t)(text + n - data)));
        assert_int_equal(json_parse(data, (size_t)(text + n - data), &event, NULL, NULL), OK);
        assert_string_equal(name, text_of(event, "type"));
        take_event(t, event);
        json_object_put(event);
        text += n + 2;
        len -= n + 2;
    }
}

static void told_free(struct told *t)
{
    json_object_put(t->response);
    json_object_put(t->output);
    buf_free(&t->partial);
}

static struct told ask(bool stream, bool thinking)
{
    struct told t = {.output = json_object_new_array()};
    struct request request = {.stream = stream, .thinking = thinking, .tools = script_tools};
    struct completion *c = script_ask(&RESPONSES_SURFACE, &request);
    struct api_error err;
    struct buf all = {0};
    if (stream) {
        bool ended = read_stream(c, 0, &all);
        take_events(&t, all.data, all.len);
        assert_int_equal(ended, t.error[0] == '\0');
    } else if (read_whole(c, &all, &err)) {
        assert_int_equal(json_parse(all.data, all.len, &t.response, NULL, NULL), OK);
    } else {
        snprintf(t.error, sizeof t.error, "%s", api_error_row(err.code)->code);
    }
    buf_free(&all);
    script_end(c);
    return t;
}

/* Output as text, without what is random in it: ids of calls, and sealed reasoning, which is
 * replaced by what is in it. */
static struct buf plain(struct json_object *output)
{
    struct buf out = {0};
    for (size_t i = 0; i < json_object_array_length(output); i++) {
        struct json_object *item = json_object_array_get_idx(output, i);
        if (strcmp(text_of(item, "type"), "function_call") == 0) {
            assert_string_equal(text_of(item, "id") + 3, text_of(item, "call_id") + 5);
            json_object_object_add(item, "id", json_object_new_string("id"));
            json_object_object_add(item, "call_id", json_object_new_string("id"));
        }
        struct json_object *sealed = json_member(item, "encrypted_content", NULL);
        if (sealed != NULL) {
            struct buf text = {0};
            assert_true(seal_open(script_seal, json_object_get_string(sealed),
                                  (size_t)json_object_get_string_len(sealed), &text));
            json_object_object_add(item, "encrypted_content",
                                   json_object_new_string_len(text.data, (int)text.len));
            buf_free(&text);
        }
    }
    json_dump(&out, output);
    return out;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void endings(void **state)
{
    static const struct {
        const char *text;
        enum end_reason reason;
        bool thinking;
        const char *items, *status, *error; /* items: each type and status */
    } ROWS[] = {
        {"Yes.", END_STOP, false, "message completed ", "completed", ""},
        {"Yes", END_LENGTH, false, "message incomplete ", "incomplete", ""},
        {"Hm.\2Yes.", END_STOP, true, "reasoning completed message completed ", "completed", ""},
        {"Hm.\2Yes", END_LENGTH, true, "reasoning completed message incomplete ", "incomplete", ""},
        {"Hm", END_LENGTH, true, "reasoning incomplete ", "incomplete", ""},
        {"", END_LENGTH, false, "", "incomplete", ""},
        {"Hm.\2Ok." BLOCK(WRITE("a") WRITE("b")), END_STOP, true,
         "reasoning completed message completed function_call completed function_call completed ",
         "completed", ""},
        {BLOCK(WRITE("a")), END_LENGTH, false, "function_call completed ", "completed", ""},
        {"Ok." BLOCK("junk"), END_STOP, false, "", "", "engine_error"},
        {"", END_STOP, false, "", "", "engine_error"},
        {"Ok", END_FAULT, false, "", "", "engine_error"},
        {"Ok", END_DEADLINE, false, "", "", "deadline_exceeded"},
        {"Ok", END_LOST, false, "", "", "engine_restarting"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        say_only(ROWS[i].text, ROWS[i].reason);
        for (int stream = 0; stream < 2; stream++) {
            struct told t = ask(stream, ROWS[i].thinking);
            struct buf items = {0};
            assert_string_equal(t.error, ROWS[i].error);
            if (t.error[0] == '\0') {
                struct json_object *output = json_member(t.response, "output", NULL);
                for (size_t k = 0; k < json_object_array_length(output); k++) {
                    struct json_object *item = json_object_array_get_idx(output, k);
                    buf_printf(&items, "%s %s ", text_of(item, "type"), text_of(item, "status"));
                }
                assert_string_equal(buf_cstr(&items), ROWS[i].items);
                assert_string_equal(text_of(t.response, "status"), ROWS[i].status);
                struct json_object *usage = json_member(t.response, "usage", NULL);
                assert_int_equal(number_of(usage, "input_tokens"), SCRIPT_PROMPT);
                assert_int_equal(
                    number_of(json_member(usage, "input_tokens_details", NULL), "cached_tokens"),
                    SCRIPT_REUSED);
                assert_int_equal(number_of(usage, "output_tokens"), script.n);
            }
            buf_free(&items);
            told_free(&t);
        }
    }
}

static void streams_equal_whole_answers(void **state)
{
    int called = 0, cut = 0;
    (void)state;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 600; round++) {
        bool thinking = below(2) == 0;
        say_anything(thinking);
        struct told events = ask(true, thinking), whole = ask(false, thinking);
        assert_string_equal(events.error, whole.error);
        if (whole.error[0] == '\0') {
            struct buf joined = plain(events.output);
            struct buf last = plain(json_member(events.response, "output", NULL));
            struct buf all = plain(json_member(whole.response, "output", NULL));
            assert_string_equal(buf_cstr(&joined), buf_cstr(&all));
            assert_string_equal(buf_cstr(&last), buf_cstr(&all));
            assert_string_equal(text_of(events.response, "status"),
                                text_of(whole.response, "status"));
            called += memmem(all.data, all.len, "function_call", 13) != NULL;
            cut += strcmp(text_of(whole.response, "status"), "incomplete") == 0;
            buf_free(&joined);
            buf_free(&last);
            buf_free(&all);
        }
        told_free(&events);
        told_free(&whole);
    }
    assert_true(called > 100 && cut > 60);
}

/* A response repeats of its request what it can not know better. */
static void repeats_the_request(void **state)
{
    static const char BODY[] =
        "{\"model\": \"deepseek-v4-demo\", \"input\": \"Hi\", \"temperature\": 0.25, "
        "\"tools\": [{\"type\": \"function\", \"name\": \"write\", \"parameters\": {}}], "
        "\"metadata\": {\"a\": \"b\"}}";
    struct exchange x = {.id = "req_0123456789abcdef01234567",
                         .user = &api,
                         .body = {.data = (char *)(uintptr_t)BODY, .len = sizeof BODY - 1}};
    struct request request;
    struct api_error err;
    struct buf all = {0};
    struct json_object *response;
    (void)state;
    say_only("Yes.", END_STOP);
    assert_true(responses_parse(&x, &request, &err));
    struct completion *c = script_ask(&RESPONSES_SURFACE, &request);
    assert_true(read_whole(c, &all, &err));
    assert_int_equal(json_parse(all.data, all.len, &response, NULL, NULL), OK);
    assert_string_equal(text_of(response, "temperature"), "0.25");
    assert_string_equal(text_of(response, "tool_choice"), "auto");
    assert_string_equal(text_of(response, "truncation"), "disabled");
    assert_string_equal(text_of(json_member(response, "metadata", NULL), "a"), "b");
    assert_string_equal(
        text_of(json_object_array_get_idx(json_member(response, "tools", NULL), 0), "name"),
        "write");
    json_object_put(response);
    buf_free(&all);
    request_clear(&request);
    script_end(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings),
        cmocka_unit_test(streams_equal_whole_answers),
        cmocka_unit_test(repeats_the_request),
    };
    return cmocka_run_group_tests_name("responses", tests, open_script, close_script);
}
