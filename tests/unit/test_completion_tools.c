/*
 * Answers with tool calls, without HTTP: a stream joined equals the whole answer, for any block,
 * cut anywhere, in any tokenisation; and what is remembered of an answer is what the model wrote.
 */
#include "tests/unit/scripted_engine.h"

#define CALLS_MAX 8

static int32_t byte_ids[256];

static int open_bytes(void **state)
{
    open_script(state);
    for (int32_t id = tokenizer_vocab_size(tokenizer) - 1; id >= 0; id--) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
        if (len == 1)
            byte_ids[(unsigned char)bytes[0]] = id;
    }
    return 0;
}

/* ---- what a client hears --------------------------------------------------------------------- */

struct told {
    struct buf content, reasoning;
    struct buf names[CALLS_MAX], arguments[CALLS_MAX];
    char ids[CALLS_MAX][CALL_ID_CHARS + 1];
    int n_calls, fragments;
    char finish[16], error[32];
    bool done;
};

static void told_free(struct told *t)
{
    buf_free(&t->content);
    buf_free(&t->reasoning);
    for (int i = 0; i < CALLS_MAX; i++) {
        buf_free(&t->names[i]);
        buf_free(&t->arguments[i]);
    }
}

static void add_text(struct buf *out, struct json_object *object, const char *name)
{
    struct json_object *text = json_member(object, name, NULL);
    if (text != NULL)
        buf_add(out, json_object_get_string(text), (size_t)json_object_get_string_len(text));
}

static void note(char *out, size_t n_max, struct json_object *object, const char *name)
{
    struct json_object *text = json_member(object, name, NULL);
    if (text != NULL)
        snprintf(out, n_max, "%s", json_object_get_string(text));
}

/* A delta's or a message's calls; only deltas have an index. */
static void read_calls(struct told *t, struct json_object *calls)
{
    for (size_t i = 0; calls != NULL && i < json_object_array_length(calls); i++) {
        struct json_object *call = json_object_array_get_idx(calls, i);
        struct json_object *function = json_member(call, "function", NULL);
        struct json_object *index = json_member(call, "index", NULL);
        bool begins = json_member(call, "id", NULL) != NULL;
        t->n_calls += begins;
        assert_in_range(t->n_calls, 1, CALLS_MAX);
        int at = t->n_calls - 1;
        if (index != NULL)
            assert_int_equal(json_object_get_int(index), at);
        if (begins)
            note(t->ids[at], sizeof t->ids[at], call, "id");
        else
            t->fragments++;
        add_text(&t->names[at], function, "name");
        add_text(&t->arguments[at], function, "arguments");
    }
}

static void read_json(struct told *t, const char *text, size_t len, const char *part)
{
    struct json_object *root;
    assert_int_equal(json_parse(text, len, &root, NULL, NULL), OK);
    struct json_object *error = json_member(root, "error", NULL);
    if (error != NULL)
        note(t->error, sizeof t->error, error, "code");
    struct json_object *choices = json_member(root, "choices", NULL);
    if (choices != NULL && json_object_array_length(choices) == 1) {
        struct json_object *choice = json_object_array_get_idx(choices, 0);
        struct json_object *delta = json_member(choice, part, NULL);
        add_text(&t->content, delta, "content");
        add_text(&t->reasoning, delta, "reasoning_content");
        read_calls(t, json_member(delta, "tool_calls", NULL));
        note(t->finish, sizeof t->finish, choice, "finish_reason");
    }
    json_object_put(root);
}

static void read_events(struct told *t, const char *text, size_t len)
{
    while (len > 0) {
        size_t n = (size_t)((const char *)memmem(text, len, "\n\n", 2) - text);
        assert_in_range(n, 7, HTTP_CONNECTION_BYTES / 4); /* one write */
        if (n == 12 && memcmp(text, "data: [DONE]", 12) == 0)
            t->done = true;
        else
            read_json(t, text + 6, n - 6, "delta");
        text += n + 2;
        len -= n + 2;
    }
}

static struct told ask(bool stream, bool thinking, int32_t calls_max)
{
    struct told t = {0};
    struct request request = {
        .stream = stream, .thinking = thinking, .tools = script_tools, .calls_max = calls_max};
    struct completion *c = script_ask(&OPENAI_SURFACE, &request);
    struct buf all = {0};
    struct api_error err;
    if (stream) {
        read_stream(c, 0, &all);
        read_events(&t, all.data, all.len);
    } else if (read_whole(c, &all, &err)) {
        read_json(&t, all.data, all.len, "message");
        t.done = true;
    } else {
        snprintf(t.error, sizeof t.error, "%s", api_error_row(err.code)->code);
    }
    buf_free(&all);
    script_end(c);
    return t;
}

static void assert_same_text(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a->len, b->len);
    if (a->len > 0)
        assert_memory_equal(a->data, b->data, a->len);
}

static void assert_text(const struct buf *got, const char *want)
{
    assert_same_text(got, &(struct buf){.data = (char *)(uintptr_t)want, .len = strlen(want)});
}

/* ---- what the model says --------------------------------------------------------------------- */

/* Adds a text like say(), in tokens as a model might cut it: longest ones and single bytes mixed,
 * or single bytes alone. */
static void say_in_pieces(const char *text, size_t len, bool mixed)
{
    while (len > 0) {
        size_t n = plain_len(text, len);
        if (mixed && n > 1)
            n = 1 + below((uint32_t)n);
        if (n == 0)
            say_control(text[n++]);
        else if (mixed && below(2) == 0)
            say(text, n);
        else
            for (size_t i = 0; i < n; i++)
                script_add(&byte_ids[(unsigned char)text[i]], 1);
        text += n;
        len -= n;
    }
}

/* ---- endings --------------------------------------------------------------------------------- */

static void endings(void **state)
{
    static const struct {
        const char *text;
        enum end_reason reason;
        int32_t calls_max;
        const char *content;
        int n_calls;
        const char *finish, *error;
    } ROWS[] = {
        {"Ok." BLOCK(WRITE("a")), END_STOP, 0, "Ok.", 1, "tool_calls", ""},
        {"Ok." BLOCK(WRITE("a") WRITE("b")), END_STOP, 0, "Ok.", 2, "tool_calls", ""},
        {"Ok." BLOCK(WRITE("a") WRITE("b")), END_STOP, 1, "Ok.", 1, "tool_calls", ""},
        {BLOCK(WRITE("a")), END_LENGTH, 0, "", 1, "tool_calls", ""},
        {BLOCK(WRITE("a")) "more", END_LENGTH, 0, "", 1, "tool_calls", ""},
        {"\n\n<" MARK "tool_calls>\n" WRITE("a") "<" MARK "invoke name=\"wri", END_LENGTH, 0, "", 1,
         "length", ""},
        {"Ok.\n\n<" MARK "tool_calls>\n<" MARK "invoke", END_LENGTH, 0, "Ok.", 0, "length", ""},
        {"Ok.\n\n<" MARK "tool_ca", END_LENGTH, 0, "Ok.", 0, "length", ""},
        {"Ok.\n\n<", END_LENGTH, 0, "Ok.\n\n<", 0, "length", ""},
        {BLOCK(WRITE("a") "junk"), END_STOP, 0, "", 1, "tool_calls", ""},
        {"\n\n<" MARK "tool_calls>\n" WRITE("a"), END_STOP, 0, "", 1, "tool_calls", ""},
        /* an agent whose call was lost must not believe that the turn is over */
        {"Ok." BLOCK("junk"), END_STOP, 0, "Ok.", 0, "", "engine_error"},
        {"Ok.\n\n<" MARK "tool_calls>\n<" MARK "invoke", END_STOP, 0, "Ok.", 0, "", "engine_error"},
        {BLOCK(""), END_STOP, 0, "", 0, "", "engine_error"},
        {"Ok." BLOCK(""), END_STOP, 0, "Ok.", 0, "stop", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        say_only(ROWS[i].text, ROWS[i].reason);
        for (int stream = 0; stream < 2; stream++) {
            struct told t = ask(stream, false, ROWS[i].calls_max);
            assert_string_equal(t.finish, ROWS[i].finish);
            assert_string_equal(t.error, ROWS[i].error);
            assert_int_equal(t.done, ROWS[i].error[0] == '\0');
            if (t.done || stream) {
                assert_text(&t.content, ROWS[i].content);
                assert_int_equal(t.n_calls, ROWS[i].n_calls);
            }
            if (t.n_calls > 0)
                assert_text(&t.arguments[0], "{\"text\": \"a\"}");
            told_free(&t);
        }
    }
}

/* Any block, whole or cut, in any tokens: both forms agree, and a call is whole or not there. */
static void streams_equal_whole_answers(void **state)
{
    static const char *const VALUES[] = {"2>&1",
                                         "</",
                                         "]]>",
                                         "\"\\\n\t",
                                         "\xF0\x9F\x98\x80",
                                         "é",
                                         "<a>",
                                         "a long value of several words"};
    int cut = 0, called = 0;
    (void)state;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 1500; round++) {
        struct buf text = {0};
        bool thinking = below(2) == 0;
        if (thinking)
            buf_puts(&text, below(2) == 0 ? "Hm.\2" : "\2");
        if (below(2) == 0)
            buf_puts(&text, "I do it.");
        buf_puts(&text, "\n\n<" MARK "tool_calls>\n");
        for (uint32_t n = 1 + below(3); n > 0; n--) {
            buf_puts(&text, "<" MARK "invoke name=\"write\">\n");
            for (uint32_t k = below(3); k > 0; k--) {
                buf_printf(&text, "<" MARK "parameter name=\"k%u\" string=\"true\">", k);
                for (uint32_t words = below(4); words > 0; words--)
                    buf_puts(&text, VALUES[below(8)]);
                buf_puts(&text, "</" MARK "parameter>\n");
            }
            buf_puts(&text, "</" MARK "invoke>\n");
        }
        buf_puts(&text, "</" MARK "tool_calls>");
        script.n = 0;
        uint32_t style = below(3);
        if (style == 0)
            say(text.data, text.len);
        else
            say_in_pieces(text.data, text.len, style == 1);
        script.reason = END_STOP;
        if (below(3) == 0) {
            script.n = (int)below((uint32_t)script.n);
            script.reason = END_LENGTH;
        }
        struct told events = ask(true, thinking, 0), whole = ask(false, thinking, 0);
        assert_string_equal(events.finish, whole.finish);
        assert_string_equal(events.error, whole.error);
        assert_same_text(&events.content, &whole.content);
        assert_same_text(&events.reasoning, &whole.reasoning);
        assert_int_equal(events.n_calls, whole.n_calls);
        for (int i = 0; i < whole.n_calls; i++) {
            struct json_object *arguments;
            assert_same_text(&events.names[i], &whole.names[i]);
            assert_same_text(&events.arguments[i], &whole.arguments[i]);
            assert_int_equal(
                json_parse(whole.arguments[i].data, whole.arguments[i].len, &arguments, NULL, NULL),
                OK);
            json_object_put(arguments);
        }
        if (script.reason == END_STOP)
            assert_string_equal(whole.finish, "tool_calls");
        cut += strcmp(whole.finish, "length") == 0;
        called += whole.n_calls > 0;
        told_free(&events);
        told_free(&whole);
        buf_free(&text);
    }
    assert_true(cut > 200 && called > 800);
}

/* Long arguments go in pieces of whole characters. */
static void long_arguments(void **state)
{
    static const char HEAD[] = "\n\n<" MARK "tool_calls>\n<" MARK "invoke name=\"write\">\n<" MARK
                               "parameter name=\"text\" string=\"true\">";
    static const char TAIL[] = "</" MARK "parameter>\n</" MARK "invoke>\n</" MARK "tool_calls>";
    static const char LINE[] = " password password password password é";
    struct buf want = {0};
    (void)state;
    script.n = 0;
    script.reason = END_STOP;
    say(HEAD, sizeof HEAD - 1);
    buf_puts(&want, "{\"text\": \"");
    while (script.n < SCRIPT_TOKENS_MAX - 200) {
        say(LINE, sizeof LINE - 1);
        buf_puts(&want, LINE);
    }
    say(TAIL, sizeof TAIL - 1);
    buf_puts(&want, "\"}");
    assert_true(want.len > 2 * TOOL_FRAGMENT_BYTES);
    for (int stream = 0; stream < 2; stream++) {
        struct told t = ask(stream, false, 0);
        assert_string_equal(t.finish, "tool_calls");
        assert_same_text(&t.arguments[0], &want);
        if (stream)
            assert_in_range(t.fragments, want.len / TOOL_FRAGMENT_BYTES,
                            want.len / (TOOL_FRAGMENT_BYTES - 4) + 1);
        told_free(&t);
    }
    buf_free(&want);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What the renderer would be told of this turn behind the prompt of ask(). */
static enum chat_source recall(const struct told *t, const char *reasoning, bool thinking,
                               uint64_t key, struct chat_recalled *out)
{
    struct ids before = script_ids();
    struct json_object *calls = json_object_new_array();
    struct turns_reader reader;
    for (int i = 0; i < t->n_calls; i++) {
        struct json_object *call = json_object_new_object(), *function = json_object_new_object();
        json_object_object_add(call, "id", json_object_new_string(t->ids[i]));
        json_object_object_add(call, "function", function);
        json_object_object_add(function, "name",
                               json_object_new_string_len(t->names[i].data, (int)t->names[i].len));
        json_object_object_add(
            function, "arguments",
            json_object_new_string_len(t->arguments[i].data, (int)t->arguments[i].len));
        json_object_array_add(calls, call);
    }
    struct chat_sent sent = {
        .content = t->content.len == 0
                       ? NULL
                       : json_object_new_string_len(t->content.data, (int)t->content.len),
        .reasoning = reasoning == NULL ? NULL : json_object_new_string(reasoning),
        .tool_calls = t->n_calls > 0 ? calls : NULL,
        .thinking = thinking};
    turns_reader_init(&reader, api.turns, key);
    enum chat_source source = turns_recall(&reader, &sent, &before, out);
    json_object_put(sent.content);
    json_object_put(sent.reasoning);
    json_object_put(calls);
    return source;
}

/* An answer comes back as exactly the tokens that the model wrote, unless it wrote more than was
 * told. */
static void answers_are_remembered(void **state)
{
    static const struct {
        const char *text;
        enum end_reason reason;
        bool thinking;
        int32_t calls_max;
        enum chat_source source; /* without its reasoning */
    } ROWS[] = {
        {"Yes.", END_STOP, false, 0, CHAT_REPLAYED},
        {"Hm.\2Yes.", END_STOP, true, 0, CHAT_REPLAYED},
        {"Hm.\2Ye", END_LENGTH, true, 0, CHAT_REPLAYED},
        {"Hm", END_LENGTH, true, 0, CHAT_REPLAYED}, /* </think> is put behind it */
        {"Hm.\2Ok." BLOCK(WRITE("a")), END_STOP, true, 0, CHAT_REPLAYED},
        {"Hm.\2Ok." BLOCK(WRITE("a")) "\2more", END_STOP, true, 0,
         CHAT_REPLAYED}, /* without "more" */
        {BLOCK(WRITE("a") WRITE("b")), END_STOP, false, 0, CHAT_REPLAYED},
        {"Hm.\2" BLOCK(WRITE("a") WRITE("b")), END_STOP, true, 1, CHAT_REASONING},
        {"Hm.\2" BLOCK(WRITE("a") "junk"), END_STOP, true, 0, CHAT_REASONING},
        {"Hm.\2Ok.\n\n<" MARK "tool_calls>", END_LENGTH, true, 0, CHAT_REASONING},
        {"Hm.\2O\2k.", END_STOP, true, 0, CHAT_REASONING}, /* a dropped token */
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bool thinking = ROWS[i].thinking;
        say_only(ROWS[i].text, ROWS[i].reason);
        struct told t = ask(i % 2 == 0, thinking, ROWS[i].calls_max);
        struct chat_recalled got = {0};
        assert_true(t.done);
        assert_int_equal(recall(&t, NULL, thinking, SCRIPT_KEY, &got), ROWS[i].source);
        if (ROWS[i].source == CHAT_REPLAYED) {
            size_t n = got.ids.len, written = (size_t)script.n;
            if (strstr(ROWS[i].text, "\2more") != NULL)
                while (script.ids[--written] != api.tokens.think_close)
                    ;
            assert_in_range(n, written,
                            written + (ROWS[i].reason == END_LENGTH && t.content.len == 0));
            assert_memory_equal(got.ids.data, script.ids, written * sizeof(int32_t));
            if (n > written)
                assert_int_equal(got.ids.data[written], api.tokens.think_close);
        } else {
            assert_same_text(&got.reasoning, &t.reasoning);
        }
        /* whole and cut reasoning are the same; other words are the client's own */
        struct chat_recalled other = {0};
        if (thinking && ROWS[i].source == CHAT_REPLAYED) {
            const char *whole = buf_cstr(&t.reasoning);
            assert_int_equal(recall(&t, whole, true, SCRIPT_KEY, &other), CHAT_REPLAYED);
            assert_int_equal(recall(&t, whole + 1, true, SCRIPT_KEY, &other), CHAT_REPLAYED);
            assert_int_equal(recall(&t, "Else.", true, SCRIPT_KEY, &other), CHAT_SENT);
            assert_int_equal(recall(&t, NULL, false, SCRIPT_KEY, &other), CHAT_SENT);
        }
        assert_int_equal(recall(&t, NULL, thinking, SCRIPT_KEY + 1, &other),
                         CHAT_SENT); /* another key */
        ids_free(&got.ids);
        buf_free(&got.reasoning);
        ids_free(&other.ids);
        buf_free(&other.reasoning);
        told_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings),
        cmocka_unit_test(streams_equal_whole_answers),
        cmocka_unit_test(long_arguments),
        cmocka_unit_test(answers_are_remembered),
    };
    return cmocka_run_group_tests_name("completion_tools", tests, open_bytes, close_script);
}
