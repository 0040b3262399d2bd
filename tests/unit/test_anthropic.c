/*
 * Answers of the Messages API without HTTP: the events joined are the whole answer, in the order
 * that clients rely on, for any answer cut anywhere; and the words of its errors.
 */
#include "engine/api/anthropic.h"

#include "tests/unit/scripted_engine.h"

/* ---- a client ---------------------------------------------------------------------------------
 */

/* What a client has of an answer: the message in the form of a whole one. */
struct told {
    struct json_object *message; /* owns */
    struct buf partial;          /* of the block that is open */
    int open, stops;             /* index of the open block, or -1; message_stop */
    char error[32];
};

static const char *text_of(struct json_object *object, const char *name)
{
    return json_object_get_string(json_member(object, name, NULL));
}

static void put_text(struct json_object *object, const char *name, const struct buf *text)
{
    json_object_object_add(
        object, name, json_object_new_string_len(text->len == 0 ? "" : text->data, (int)text->len));
}

/* Member of the block that each kind of delta adds to. */
static void take_delta(struct told *t, struct json_object *block, struct json_object *delta)
{
    static const struct {
        const char *delta, *block, *member;
    } ROWS[] = {{"text_delta", "text", "text"},
                {"thinking_delta", "thinking", "thinking"},
                {"signature_delta", "thinking", "signature"},
                {"input_json_delta", "tool_use", "partial_json"}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (strcmp(ROWS[i].delta, text_of(delta, "type")) != 0)
            continue;
        assert_string_equal(text_of(block, "type"), ROWS[i].block);
        struct json_object *part = json_member(delta, ROWS[i].member, NULL);
        if (i == 2)
            put_text(block, "thinking", &t->partial);
        if (i == 2)
            json_object_object_add(block, "signature", json_object_get(part));
        else
            buf_add(&t->partial, json_object_get_string(part),
                    (size_t)json_object_get_string_len(part));
        return;
    }
    fail_msg("an unknown delta");
}

static void close_block(struct told *t, struct json_object *block)
{
    struct json_object *input;
    if (strcmp(text_of(block, "type"), "tool_use") == 0) {
        assert_int_equal(json_parse(t->partial.data, t->partial.len, &input, NULL, NULL), OK);
        json_object_object_add(block, "input", input);
    } else if (strcmp(text_of(block, "type"), "text") == 0) {
        put_text(block, "text", &t->partial);
    }
    t->partial.len = 0;
    t->open = -1;
}

static void take_event(struct told *t, struct json_object *event)
{
    const char *type = text_of(event, "type");
    struct json_object *content = json_member(t->message, "content", NULL);
    struct json_object *index = json_member(event, "index", NULL);
    struct json_object *block =
        index == NULL || content == NULL
            ? NULL
            : json_object_array_get_idx(content, (size_t)json_object_get_int(index));
    assert_int_equal(t->stops, 0);
    if (strcmp(type, "message_start") == 0) {
        assert_null(t->message);
        t->message = json_object_get(json_member(event, "message", NULL));
    } else if (strcmp(type, "content_block_start") == 0) {
        assert_int_equal(t->open, -1);
        t->open = json_object_get_int(index);
        assert_int_equal(t->open, json_object_array_length(content));
        json_object_array_add(content, json_object_get(json_member(event, "content_block", NULL)));
    } else if (strcmp(type, "content_block_delta") == 0) {
        assert_int_equal(t->open, json_object_get_int(index));
        take_delta(t, block, json_member(event, "delta", NULL));
    } else if (strcmp(type, "content_block_stop") == 0) {
        assert_int_equal(t->open, json_object_get_int(index));
        close_block(t, block);
    } else if (strcmp(type, "message_delta") == 0) {
        assert_int_equal(t->open, -1);
        json_object_object_foreach(json_member(event, "delta", NULL), key, value)
            json_object_object_add(t->message, key, json_object_get(value));
        json_object_object_add(t->message, "usage",
                               json_object_get(json_member(event, "usage", NULL)));
    } else if (strcmp(type, "message_stop") == 0) {
        t->stops++;
    } else if (strcmp(type, "ping") == 0) {
        return;
    } else {
        assert_string_equal(type, "error");
        snprintf(t->error, sizeof t->error, "%s",
                 text_of(json_member(event, "error", NULL), "type"));
    }
}

static void take_events(struct told *t, const char *text, size_t len)
{
    while (len > 0) {
        struct json_object *event;
        char name[64];
        size_t n = (size_t)((const char *)memmem(text, len, "\n\n", 2) - text);
        assert_in_range(n, 10, HTTP_CONNECTION_BYTES / 4); /* one write */
        assert_int_equal(sscanf(text, "event: %63[a-z_]\ndata: ", name), 1);
        const char *data = memmem(text, n, "\ndata: ", 7);
        assert_non_null(data);
        data += 7;
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
    json_object_put(t->message);
    buf_free(&t->partial);
}

static struct told ask(bool stream, bool thinking, const char *stop)
{
    struct told t = {.open = -1};
    struct request request = {.stream = stream,
                              .thinking = thinking,
                              .tools = script_tools,
                              .stops = {{stop, strlen(stop)}},
                              .n_stops = stop[0] == '\0' ? 0 : 1};
    struct completion *c = script_ask(&ANTHROPIC_SURFACE, &request);
    struct api_error err;
    struct buf all = {0};
    if (stream) {
        bool ended = read_stream(c, 0, &all);
        assert_int_equal(ended, memmem(all.data, all.len, "message_stop", 12) != NULL);
        take_events(&t, all.data, all.len);
    } else if (read_whole(c, &all, &err)) {
        assert_int_equal(json_parse(all.data, all.len, &t.message, NULL, NULL), OK);
        t.stops = 1;
    } else {
        struct exchange x = {.id = "req_0123456789abcdef01234567"};
        struct json_object *error;
        ANTHROPIC_DIALECT.dump_error(&all, &x, &err);
        assert_int_equal(json_parse(all.data, all.len, &error, NULL, NULL), OK);
        snprintf(t.error, sizeof t.error, "%s", text_of(json_member(error, "error", NULL), "type"));
        json_object_put(error);
    }
    buf_free(&all);
    script_end(c);
    return t;
}

/* The message as text, without the random ids of its calls. */
static struct buf plain(const struct told *t)
{
    struct buf out = {0};
    struct json_object *content = json_member(t->message, "content", NULL);
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        struct json_object *block = json_object_array_get_idx(content, i);
        if (json_member(block, "id", NULL) != NULL)
            json_object_object_add(block, "id", json_object_new_string("id"));
    }
    json_dump(&out, t->message);
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
        const char *stop, *kinds, *stop_reason, *error;
    } ROWS[] = {
        {"Yes.", END_STOP, false, "", "text ", "end_turn", ""},
        {"Yes", END_LENGTH, false, "", "text ", "max_tokens", ""},
        {"Hm.\2Yes.", END_STOP, true, "", "thinking text ", "end_turn", ""},
        {"Hm", END_LENGTH, true, "", "thinking ", "max_tokens", ""},
        {"Yes. No.", END_STOP, false, "No", "text ", "stop_sequence", ""},
        {"No.", END_STOP, false, "No", "", "stop_sequence", ""},
        {"Hm.\2Ok." BLOCK(WRITE("a") WRITE("b")), END_STOP, true, "",
         "thinking text tool_use tool_use ", "tool_use", ""},
        {BLOCK(WRITE("a")), END_LENGTH, false, "", "tool_use ", "tool_use", ""},
        {"Ok." BLOCK("junk"), END_STOP, false, "", "", "", "api_error"},
        {"", END_STOP, false, "", "", "", "api_error"},
        {"Ok", END_FAULT, false, "", "", "", "api_error"},
        {"Ok", END_DEADLINE, false, "", "", "", "api_error"},
        {"Ok", END_LOST, false, "", "", "", "overloaded_error"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        say_only(ROWS[i].text, ROWS[i].reason);
        for (int stream = 0; stream < 2; stream++) {
            struct told t = ask(stream, ROWS[i].thinking, ROWS[i].stop);
            struct buf kinds = {0};
            assert_string_equal(t.error, ROWS[i].error);
            assert_int_equal(t.stops, ROWS[i].error[0] == '\0');
            if (t.stops == 1) {
                struct json_object *content = json_member(t.message, "content", NULL);
                for (size_t k = 0; k < json_object_array_length(content); k++)
                    buf_printf(&kinds, "%s ",
                               text_of(json_object_array_get_idx(content, k), "type"));
                assert_string_equal(buf_cstr(&kinds), ROWS[i].kinds);
                assert_string_equal(text_of(t.message, "stop_reason"), ROWS[i].stop_reason);
                struct json_object *usage = json_member(t.message, "usage", NULL);
                assert_string_equal(text_of(usage, "input_tokens"), "2"); /* 5, of which 3 reused */
                assert_string_equal(text_of(usage, "cache_read_input_tokens"), "3");
                assert_in_range(json_object_get_int(json_member(usage, "output_tokens", NULL)), 1,
                                script.n);
                bool string = strcmp(ROWS[i].stop_reason, "stop_sequence") == 0;
                if (string)
                    assert_string_equal(text_of(t.message, "stop_sequence"), ROWS[i].stop);
                else
                    assert_null(json_member(t.message, "stop_sequence", NULL));
            }
            buf_free(&kinds);
            told_free(&t);
        }
    }
}

static void streams_equal_whole_answers(void **state)
{
    int called = 0, cut = 0, stopped = 0;
    (void)state;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 600; round++) {
        bool thinking = below(2) == 0;
        const char *stop = below(3) == 0 ? "Stop" : "";
        say_anything(thinking);
        struct told events = ask(true, thinking, stop), whole = ask(false, thinking, stop);
        assert_string_equal(events.error, whole.error);
        assert_int_equal(events.stops, whole.stops);
        if (whole.stops == 1) {
            struct buf a = plain(&events), b = plain(&whole);
            assert_string_equal(buf_cstr(&a), buf_cstr(&b));
            const char *reason = text_of(whole.message, "stop_reason");
            called += strcmp(reason, "tool_use") == 0;
            cut += strcmp(reason, "max_tokens") == 0;
            stopped += strcmp(reason, "stop_sequence") == 0;
            buf_free(&a);
            buf_free(&b);
        }
        told_free(&events);
        told_free(&whole);
    }
    print_message("# %d called, %d cut, %d stopped\n", called, cut, stopped);
    assert_true(called > 100 && cut > 60 && stopped > 20);
}

/* What is told of thinking is what the signature is for. */
static void thinking_is_signed(void **state)
{
    static const char TEXT[] = "Hm, well.\2Yes.";
    char want[SIGNATURE_CHARS + 1];
    (void)state;
    say_only(TEXT, END_STOP);
    seal_sign(script_seal, "Hm, well.", 9, want);
    for (int stream = 0; stream < 2; stream++) {
        struct told t = ask(stream, true, "");
        struct json_object *block =
            json_object_array_get_idx(json_member(t.message, "content", NULL), 0);
        assert_string_equal(text_of(block, "thinking"), "Hm, well.");
        assert_string_equal(text_of(block, "signature"), want);
        told_free(&t);
    }
}

/* An answer of these blocks with signs of life before, between and behind them, and an end.
 * @return its kinds of blocks, each followed by a blank */
static struct buf told_slowly(struct reply *r, const char *thinking, const char *text, bool calls)
{
    struct told t = {.open = -1};
    struct buf kinds = {0};
    ANTHROPIC_SURFACE.begin(r);
    for (int step = 0; step < 4; step++) {
        for (int beat = 0; beat < 4; beat++) {
            size_t before = r->out.len;
            ANTHROPIC_SURFACE.heartbeat(r);
            /* each in a block, and of the others every second one, is an event that is no ping */
            bool ping =
                memmem(r->out.data + before, r->out.len - before, "event: ping", 11) != NULL;
            assert_int_equal(ping, r->block == NULL && beat % 2 == 0);
        }
        if (step == 0)
            buf_puts(&r->reasoning, thinking);
        if (step == 1)
            buf_puts(&r->content, text);
        r->n_calls = calls && step >= 2;
        ANTHROPIC_SURFACE.more(r);
    }
    r->finish = calls ? FINISH_CALLS : FINISH_STOP;
    ANTHROPIC_SURFACE.end(r);
    take_events(&t, r->out.data, r->out.len);
    assert_int_equal(t.stops, 1);
    struct json_object *content = json_member(t.message, "content", NULL);
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        struct json_object *block = json_object_array_get_idx(content, i);
        const char *kind = text_of(block, "type");
        buf_printf(&kinds, "%s ", kind);
        if (strcmp(kind, "text") == 0)
            assert_string_equal(text_of(block, "text"), text);
    }
    told_free(&t);
    return kinds;
}

/* Signs of life anywhere: no block that a whole answer has not, and those that there are stay
 * whole.
 */
static void silence(void **state)
{
    static const struct {
        const char *thinking, *text;
        bool calls;
        const char *kinds;
    } ROWS[] = {
        {"Hm.", "Yes.", true, "thinking text tool_use "},
        {"", "Yes.", true, "text tool_use "},
        {"Hm.", "", true, "thinking tool_use "},
        {"", "", true, "tool_use "},
        {"", "Yes.", false, "text "},
    };
    const struct dsml_call call = {.name = {.data = (char[]){"write"}, .len = 5},
                                   .arguments = {.data = (char[]){"{}"}, .len = 2}};
    struct turn_call calls[] = {{.id = "call_1", .call = &call}};
    (void)state;
    api.heartbeat_ms = MESSAGES_SILENCE_MS / 2;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct reply r = {.api = &api,
                          .id = "req_0123456789abcdef01234567",
                          .profile = *profile_builtin("official"),
                          .calls = calls};
        struct buf kinds = told_slowly(&r, ROWS[i].thinking, ROWS[i].text, ROWS[i].calls);
        assert_string_equal(buf_cstr(&kinds), ROWS[i].kinds);
        buf_free(&kinds);
        buf_free(&r.reasoning);
        buf_free(&r.content);
        buf_free(&r.out);
    }
}

static void errors(void **state)
{
    static const struct {
        enum api_code code;
        const char *type, *message;
    } ROWS[] = {
        {API_OVERFLOW, "invalid_request_error", "prompt is too long: 30 tokens > 20 maximum"},
        {API_BODY_SIZE, "request_too_large", NULL},
        {API_KEY, "authentication_error", NULL},
        {API_MODEL, "not_found_error", NULL},
        {API_QUEUE, "rate_limit_error", NULL},
        {API_STOPPING, "overloaded_error", NULL},
        {API_ENGINE, "api_error", NULL},
    };
    struct exchange x = {.id = "req_0123456789abcdef01234567"};
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct api_error err;
        struct buf body = {0};
        struct json_object *root;
        api_fail_limit(&err, ROWS[i].code, "messages", 20, 30);
        ANTHROPIC_DIALECT.dump_error(&body, &x, &err);
        assert_int_equal(json_parse(body.data, body.len, &root, NULL, NULL), OK);
        struct json_object *error = json_member(root, "error", NULL);
        assert_string_equal(text_of(root, "type"), "error");
        assert_string_equal(text_of(root, "request_id"), x.id);
        assert_string_equal(text_of(error, "type"), ROWS[i].type);
        assert_string_equal(text_of(error, "param"), "messages");
        assert_string_equal(text_of(error, "message"), ROWS[i].message != NULL
                                                           ? ROWS[i].message
                                                           : api_error_row(ROWS[i].code)->text);
        json_object_put(root);
        buf_free(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings),
        cmocka_unit_test(streams_equal_whole_answers),
        cmocka_unit_test(thinking_is_signed),
        cmocka_unit_test(silence),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests_name("anthropic", tests, open_script, close_script);
}
