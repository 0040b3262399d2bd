/*
 * Answers without HTTP: whatever the engine does, a streamed and a whole answer say the same, and
 * every one ends in a way that clients understand.
 */
#include "tests/unit/scripted_engine.h"

#define RANDOM_TOKENS_MAX 40

/* ---- one answer, read to its end ------------------------------------------------------------ */

struct told {
    struct buf content, reasoning;
    char finish[16]; /* "": none */
    char error[32];  /* code of the error event or status; "": none */
    int usage[3];    /* prompt, answer and reasoning tokens; of the last chunk that had it */
    int cached, chunks_after_finish, roles;
    bool done, broken;
};

static void told_free(struct told *t)
{
    buf_free(&t->content);
    buf_free(&t->reasoning);
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

static int number(struct json_object *root, const char *group, const char *name)
{
    if (group != NULL)
        root = json_member(root, group, NULL);
    assert_non_null(json_member(root, name, NULL));
    return json_object_get_int(json_member(root, name, NULL));
}

/* A chunk ("delta") or a whole answer ("message"). */
static void read_json(struct told *t, const char *text, size_t len, const char *part)
{
    struct json_object *root, *usage, *choices, *error;
    assert_int_equal(json_parse(text, len, &root, NULL, NULL), OK);
    error = json_member(root, "error", NULL);
    if (error != NULL)
        note(t->error, sizeof t->error, error, "code");
    choices = json_member(root, "choices", NULL);
    if (choices != NULL && json_object_array_length(choices) == 1) {
        struct json_object *choice = json_object_array_get_idx(choices, 0);
        struct json_object *delta = json_member(choice, part, NULL);
        t->chunks_after_finish += t->finish[0] != '\0';
        t->roles += json_member(delta, "role", NULL) != NULL;
        add_text(&t->content, delta, "content");
        add_text(&t->reasoning, delta, "reasoning_content");
        note(t->finish, sizeof t->finish, choice, "finish_reason");
    }
    usage = json_member(root, "usage", NULL);
    if (usage != NULL) {
        t->usage[0] = number(usage, NULL, "prompt_tokens");
        t->usage[1] = number(usage, NULL, "completion_tokens");
        t->usage[2] = number(usage, "completion_tokens_details", "reasoning_tokens");
        t->cached = number(usage, "prompt_tokens_details", "cached_tokens");
        assert_int_equal(number(usage, NULL, "total_tokens"), t->usage[0] + t->usage[1]);
        assert_int_equal(number(usage, NULL, "prompt_cache_miss_tokens"), t->usage[0] - t->cached);
    }
    json_object_put(root);
}

static void read_events(struct told *t, const char *text, size_t len)
{
    while (len > 0) {
        const char *end = memmem(text, len, "\n\n", 2);
        assert_non_null(end);
        size_t n = (size_t)(end - text);
        assert_false(t->done);
        assert_null(memchr(text, '\n', n));
        assert_null(memchr(text, '\r', n));
        assert_memory_equal(text, "data: ", 6);
        if (n == 12 && memcmp(text, "data: [DONE]", 12) == 0)
            t->done = true;
        else
            read_json(t, text + 6, n - 6, "delta");
        text = end + 2;
        len -= n + 2;
    }
}

static struct told ask(bool stream, bool thinking, const char *stop, size_t piece)
{
    struct told t = {0};
    struct request request = {.stream = stream,
                              .include_usage = true,
                              .thinking = thinking,
                              .stops = {{.text = stop, .len = stop == NULL ? 0 : strlen(stop)}},
                              .n_stops = stop != NULL};
    struct completion *c = script_ask(&OPENAI_SURFACE, &request);
    struct buf all = {0};
    struct api_error err;
    if (stream) {
        t.broken = !read_stream(c, piece, &all);
        read_events(&t, all.data, all.len);
    } else if (read_whole(c, &all, &err)) {
        read_json(&t, all.data, all.len, "message");
    } else {
        snprintf(t.error, sizeof t.error, "%s", api_error_row(err.code)->code);
    }
    buf_free(&all);
    script_end(c);
    return t;
}

static void assert_text(const struct buf *got, const char *want)
{
    assert_int_equal(got->len, strlen(want));
    if (got->len > 0)
        assert_memory_equal(got->data, want, got->len);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void answer_in_both_forms(void **state)
{
    (void)state;
    say_only("The code is 4711.", END_STOP);
    for (int stream = 0; stream < 2; stream++) {
        struct told t = ask(stream, false, NULL, 4096);
        assert_text(&t.content, "The code is 4711.");
        assert_text(&t.reasoning, "");
        assert_string_equal(t.finish, "stop");
        assert_int_equal(t.usage[0], 5);
        assert_int_equal(t.usage[1], script.n);
        assert_int_equal(t.usage[2], 0);
        assert_int_equal(t.cached, 3);
        assert_int_equal(t.done, stream);
        assert_int_equal(t.roles, 1);
        told_free(&t);
    }
}

static void reasoning_comes_apart(void **state)
{
    (void)state;
    say_only("I think so.\2Yes.", END_LENGTH);
    for (int stream = 0; stream < 2; stream++) {
        struct told t = ask(stream, true, NULL, 4096);
        assert_text(&t.reasoning, "I think so.");
        assert_text(&t.content, "Yes.");
        assert_string_equal(t.finish, "length");
        assert_true(t.usage[2] > 0 && t.usage[2] < t.usage[1]);
        told_free(&t);
    }
}

/* The stop string ends the answer, cancels the engine and is not shown. */
static void stop_string(void **state)
{
    (void)state;
    say_only("one two three four", END_LENGTH);
    for (int stream = 0; stream < 2; stream++) {
        struct told t = ask(stream, false, " three", 4096);
        assert_text(&t.content, "one two");
        assert_string_equal(t.finish, "stop");
        assert_true(t.usage[1] < script.n);
        told_free(&t);
    }
}

static void faults(void **state)
{
    static const struct {
        const char *text;
        enum end_reason reason;
        const char *error;
    } ROWS[] = {{"half an ans", END_FAULT, "engine_error"},
                {"", END_FAULT, "engine_error"},
                {"x", END_CANCELLED, "engine_error"},
                {"", END_STOP, "engine_error"},
                {"half an ans", END_DEADLINE, "deadline_exceeded"},
                {"", END_DEADLINE, "deadline_exceeded"},
                {"half an ans", END_LOST, "engine_restarting"},
                {"", END_LOST, "engine_restarting"}};
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        say_only(ROWS[i].text, ROWS[i].reason);
        for (int stream = 0; stream < 2; stream++) {
            struct told t = ask(stream, false, NULL, 4096);
            assert_string_equal(t.error, ROWS[i].error);
            assert_string_equal(t.finish, "");
            assert_false(t.done);
            assert_int_equal(t.broken, stream);
            told_free(&t);
        }
    }
}

static void nothing_within_the_limit(void **state)
{
    (void)state;
    say_only("", END_LENGTH);
    struct told t = ask(true, false, NULL, 4096);
    assert_string_equal(t.finish, "length");
    told_free(&t);
}

/* Any tokens, any ending, any cutting: exactly one ending, and both forms agree; 10,000 answers. */
static void any_ending(void **state)
{
    static const char *const STOPS[] = {NULL, "e", " the", "\xC3\xA9"};
    (void)state;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 5000; round++) {
        script.n = (int)below(RANDOM_TOKENS_MAX);
        script.reason = (enum end_reason)below(4);
        for (int i = 0; i < script.n; i++)
            script.ids[i] = (int32_t)below((uint32_t)tokenizer_vocab_size(tokenizer));
        bool thinking = below(2) == 0;
        const char *stop = STOPS[below(4)];
        struct told events = ask(true, thinking, stop, 1 + below(300));
        struct told whole = ask(false, thinking, stop, 1);
        assert_string_equal(events.finish, whole.finish);
        assert_string_equal(events.error, whole.error);
        assert_true((events.finish[0] != '\0') != (events.error[0] != '\0'));
        assert_true(events.done == (events.finish[0] != '\0'));
        assert_true(events.broken == (events.error[0] != '\0'));
        assert_int_equal(events.chunks_after_finish, 0);
        if (events.done) {
            assert_int_equal(events.content.len, whole.content.len);
            assert_int_equal(events.reasoning.len, whole.reasoning.len);
            if (whole.content.len > 0)
                assert_memory_equal(events.content.data, whole.content.data, whole.content.len);
            assert_memory_equal(events.usage, whole.usage, sizeof whole.usage);
        }
        told_free(&events);
        told_free(&whole);
    }
}

/* The entries of all events or of the whole answer, in order. */
static void add_logprobs(struct json_object *root, struct buf *out)
{
    struct json_object *choices = json_member(root, "choices", NULL);
    struct json_object *choice = json_object_array_get_idx(choices, 0);
    struct json_object *list = json_member(json_member(choice, "logprobs", NULL), "content", NULL);
    for (size_t i = 0; list != NULL && i < json_object_array_length(list); i++) {
        json_dump(out, json_object_array_get_idx(list, i));
        buf_puts(out, "\n");
    }
}

static void ask_logprobs(bool stream, bool thinking, int32_t top, const char *stop, struct buf *out)
{
    struct request request = {.stream = stream,
                              .thinking = thinking,
                              .logprobs = true,
                              .top_logprobs = top,
                              .tools = script_tools,
                              .stops = {{.text = stop, .len = strlen(stop)}},
                              .n_stops = stop[0] != '\0'};
    struct completion *c = script_ask(&OPENAI_SURFACE, &request);
    struct buf all = {0};
    struct api_error err;
    struct json_object *root;
    if (!stream)
        assert_true(read_whole(c, &all, &err));
    else
        read_stream(c, 0, &all);
    for (const char *at = all.data, *end = at + all.len; at < end;) {
        const char *next = stream ? (const char *)memmem(at, (size_t)(end - at), "\n\n", 2) : end;
        const char *text = stream ? at + 6 : at;
        if (text[0] == '{') {
            assert_int_equal(json_parse(text, (size_t)(next - text), &root, NULL, NULL), OK);
            add_logprobs(root, out);
            json_object_put(root);
        }
        at = stream ? next + 2 : end;
    }
    buf_free(&all);
    script_end(c);
}

/* One entry: its probabilities are those of the token, and its bytes go behind `text`. */
static void read_entry(const char *line, size_t len, int32_t id, int32_t top, struct buf *text)
{
    struct json_object *entry, *bytes, *tops;
    assert_int_equal(json_parse(line, len, &entry, NULL, NULL), OK);
    assert_true(json_object_get_double(json_member(entry, "logprob", NULL)) ==
                (double)FAKE_LOGPROB(id));
    bytes = json_member(entry, "bytes", NULL);
    for (size_t i = 0; i < json_object_array_length(bytes); i++) {
        char byte = (char)json_object_get_int(json_object_array_get_idx(bytes, i));
        buf_add(text, &byte, 1);
    }
    tops = json_member(entry, "top_logprobs", NULL);
    assert_int_equal(json_object_array_length(tops), top);
    json_object_put(entry);
}

/* Every token of the content has its probabilities, once, in both forms; no other token has. */
static void logprobs(void **state)
{
    static const struct {
        const char *text, *stop, *want; /* want: what the tokens that are told say */
        bool thinking;
    } ROWS[] = {
        {"The code is 4711.", "", "The code is 4711.", false},
        {"Hm.\2The \xF0\x9F\x98\x80", "", "The \xF0\x9F\x98\x80", true},
        {"one two three", " three", "one two three", false},
        {"Ok" BLOCK(WRITE("a")), "", "Ok", false},
        {"Ok.\n\n<", "", "Ok.\n\n<", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        for (int32_t top = 0; top <= LOGPROBS_TOP_MAX; top += LOGPROBS_TOP_MAX) {
            struct buf events = {0}, whole = {0}, text = {0};
            say_only(ROWS[i].text, END_STOP);
            ask_logprobs(true, ROWS[i].thinking, top, ROWS[i].stop, &events);
            ask_logprobs(false, ROWS[i].thinking, top, ROWS[i].stop, &whole);
            assert_string_equal(buf_cstr(&events), buf_cstr(&whole));
            int at = 0;
            while (ROWS[i].thinking && script.ids[at++] != api.tokens.think_close)
                ;
            for (const char *line = whole.data, *end; *line != '\0'; line = end + 1) {
                end = strchr(line, '\n');
                read_entry(line, (size_t)(end - line), script.ids[at++], top, &text);
            }
            assert_string_equal(buf_cstr(&text), ROWS[i].want);
            buf_free(&events);
            buf_free(&whole);
            buf_free(&text);
        }
    }
}

static void refusals(void **state)
{
    int32_t ids[FAKE_CONTEXT] = {0};
    struct exchange x = {.profile = *profile_builtin("official")};
    struct buf receipt = {0};
    struct request request = {0};
    struct ids prompt = {.data = ids, .len = FAKE_CONTEXT};
    struct completion *c;
    struct api_error err;
    (void)state;
    assert_false(
        completion_start(&api, &x, &OPENAI_SURFACE, &request, &prompt, &receipt, &c, &err));
    assert_int_equal(err.code, API_OVERFLOW);
    assert_int_equal(err.limit, FAKE_CONTEXT);
    assert_int_equal(err.got, FAKE_CONTEXT);

    prompt.len = 1;
    atomic_store(&fake_full, true);
    assert_false(
        completion_start(&api, &x, &OPENAI_SURFACE, &request, &prompt, &receipt, &c, &err));
    atomic_store(&fake_full, false);
    assert_int_equal(err.code, API_QUEUE);
    assert_int_equal(err.retry_s, FAKE_RETRY_S);

    /* One token less than the context leaves room for one: asked for more, given one. */
    prompt.len = FAKE_CONTEXT - 1;
    request.tokens_max = 32000;
    say_only("", END_LENGTH);
    assert_true(completion_start(&api, &x, &OPENAI_SURFACE, &request, &prompt, &receipt, &c, &err));
    assert_int_equal(fake_requests[0].asked.tokens_max, 1);
    completion_free(c);
    fake_join();

    /* Many alternatives end an answer sooner. */
    prompt.len = 1;
    for (int32_t top = 0; top <= LOGPROBS_TOP_MAX; top += LOGPROBS_TOP_MAX) {
        int32_t most = LOGPROBS_ENTRIES_MAX / (1 + top);
        request.logprobs = true;
        request.top_logprobs = top;
        assert_true(
            completion_start(&api, &x, &OPENAI_SURFACE, &request, &prompt, &receipt, &c, &err));
        assert_int_equal(fake_requests[0].asked.tokens_max,
                         most < FAKE_CONTEXT - 1 ? most : FAKE_CONTEXT - 1);
        assert_true(top == 0 || most < FAKE_CONTEXT);
        completion_free(c);
        fake_join();
    }
}

/* The key says who goes first, the request by when it must be done. */
static void priority_and_deadline(void **state)
{
    static const struct {
        int64_t step;
        int32_t priority;
    } ROWS[] = {{0, 0}, {1, -PRIORITY_MAX}, {KEY_PRIORITY_USUAL, 0}, {9, PRIORITY_MAX}};
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request = {.deadline_ms = i % 2 == 0 ? 0 : 250};
        say_only("Yes.", END_STOP);
        script_limits.values[KEY_PRIORITY] = ROWS[i].step;
        struct completion *c = script_ask(&OPENAI_SURFACE, &request);
        assert_int_equal(fake_requests[0].asked.priority, ROWS[i].priority);
        assert_int_equal(fake_requests[0].asked.deadline_ms,
                         i % 2 == 0 ? 0 : SCRIPT_STARTED_MS + 250);
        script_end(c);
    }
    script_limits.values[KEY_PRIORITY] = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_in_both_forms),
        cmocka_unit_test(reasoning_comes_apart),
        cmocka_unit_test(stop_string),
        cmocka_unit_test(faults),
        cmocka_unit_test(nothing_within_the_limit),
        cmocka_unit_test(any_ending),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(refusals),
        cmocka_unit_test(priority_and_deadline),
    };
    return cmocka_run_group_tests_name("completion", tests, open_script, close_script);
}
