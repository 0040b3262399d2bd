/*
 * The renderer's two hooks: what a memory puts in place of a turn, and which ids came from which
 * message.  Neither may change how anything else is encoded.
 */
#include "engine/text/chat.h"

#include "tests/unit/demo_tokenizer.h"

#include <string.h>

#include <cmocka.h>

/* ---- a memory that says what it is told to --------------------------------------------------- */

struct memory {
    enum chat_source source;
    const char *text; /* CHAT_REPLAYED: one token a byte, so that the ids are not the usual ones */
    int asked;
    bool thinking; /* of the last question */
    size_t before;
};

static int32_t byte_id(char byte)
{
    for (int32_t id = 0;; id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
        if (len == 1 && bytes[0] == byte)
            return id;
    }
}

static enum chat_source recall(void *user, const struct chat_sent *sent, const struct ids *before,
                               struct chat_recalled *out)
{
    struct memory *memory = user;
    assert_int_equal(out->ids.len, 0);
    assert_int_equal(out->reasoning.len, 0);
    memory->asked++;
    memory->thinking = sent->thinking;
    memory->before = before->len;
    if (memory->source == CHAT_REPLAYED) {
        for (const char *c = memory->text; *c != '\0'; c++)
            ids_add(&out->ids, byte_id(*c));
    } else if (memory->source == CHAT_REASONING) {
        buf_puts(&out->reasoning, memory->text);
    }
    return memory->source;
}

static struct json_object *json_of(const char *text)
{
    struct json_object *value = NULL;
    assert_int_equal(json_parse(text, strlen(text), &value, NULL, NULL), OK);
    return value;
}

static const char HISTORY[] = "[{\"role\":\"user\",\"content\":\"Hi\"},"
                              "{\"role\":\"assistant\",\"content\":\"Hello there\","
                              "\"reasoning_content\":\"greet\"},"
                              "{\"role\":\"user\",\"content\":\"Go on\"}]";

static void render(const char *messages, const char *tools, bool thinking, struct memory *memory,
                   struct chat_spans *spans, struct ids *ids, struct buf *text)
{
    struct error err = {0};
    struct chat_request request = {.messages = json_of(messages),
                                   .tools = tools == NULL ? NULL : json_of(tools),
                                   .thinking = thinking,
                                   .drop_thinking = true,
                                   .recall = memory == NULL ? NULL : recall,
                                   .recall_user = memory,
                                   .spans = spans};
    if (chat_render(tokenizer, &tokens, &request, ids, text, &err) != OK)
        fail_msg("%s", err.text);
    json_object_put(request.messages);
    json_object_put(request.tools);
}

static void check_recalled(struct memory memory, bool thinking, const char *tools,
                           const char *expected)
{
    struct ids ids = {0};
    struct buf text = {0};
    render(HISTORY, tools, thinking, &memory, NULL, &ids, &text);
    assert_int_equal(memory.asked, 1);
    assert_non_null(strstr(buf_cstr(&text), expected));
    size_t at = 0; /* the ids spell the text */
    for (size_t i = 0; i < ids.len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, ids.data[i], &len);
        assert_memory_equal(text.data + at, bytes, len);
        at += len;
    }
    assert_int_equal(at, text.len);
    if (memory.source == CHAT_REPLAYED) {
        for (size_t i = 0; memory.text[i] != '\0'; i++)
            assert_int_equal(ids.data[memory.before + i], byte_id(memory.text[i]));
        assert_int_equal(ids.data[memory.before + strlen(memory.text)], tokens.eos);
    }
    assert_int_equal(ids.data[memory.before - 1],
                     memory.thinking ? tokens.think_open : tokens.think_close);
    ids_free(&ids);
    buf_free(&text);
}

#define A     "<｜Assistant｜>"
#define EOS   "<｜end▁of▁sentence｜>"
#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static void test_recall(void **state)
{
    (void)state;
    check_recalled((struct memory){.source = CHAT_SENT}, false, NULL, A "</think>Hello there" EOS);
    check_recalled((struct memory){.source = CHAT_REPLAYED, .text = "Hello there"}, false, NULL,
                   A "</think>Hello there" EOS);
    check_recalled((struct memory){.source = CHAT_REPLAYED, .text = "what I said"}, true, TOOLS,
                   A "<think>what I said" EOS);
    check_recalled((struct memory){.source = CHAT_REASONING, .text = "restored"}, true, TOOLS,
                   A "<think>restored</think>Hello there" EOS);
    check_recalled((struct memory){.source = CHAT_SENT}, true, TOOLS,
                   A "<think>greet</think>Hello there" EOS);
    /* without tools the reasoning of earlier turns is not part of the prompt */
    check_recalled((struct memory){.source = CHAT_SENT}, true, NULL, A "</think>Hello there" EOS);
}

/* Where control tokens do not enclose the turn, it belongs to a larger text. */
static void test_not_asked(void **state)
{
    static const char *const MESSAGES[] = {
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"assistant\",\"content\":\"A\"},"
        "{\"role\":\"user\",\"content\":\"U\"}]",
        "[{\"role\":\"user\",\"content\":\"U\"},"
        "{\"role\":\"assistant\",\"content\":\"A\",\"wo_eos\":true}]",
    };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct memory memory = {.source = CHAT_REPLAYED, .text = "x"};
        struct ids ids = {0}, plain = {0};
        render(MESSAGES[i], NULL, false, &memory, NULL, &ids, NULL);
        render(MESSAGES[i], NULL, false, NULL, NULL, &plain, NULL);
        assert_int_equal(memory.asked, 0);
        assert_int_equal(ids.len, plain.len);
        assert_memory_equal(ids.data, plain.data, ids.len * sizeof *ids.data);
        ids_free(&ids);
        ids_free(&plain);
    }
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void check_spans(const char *messages, const char *tools, bool thinking,
                        const size_t (*expected)[2], size_t n)
{
    struct chat_spans spans = {0};
    struct ids ids = {0}, plain = {0};
    render(messages, tools, thinking, NULL, &spans, &ids, NULL);
    render(messages, tools, thinking, NULL, NULL, &plain, NULL);
    assert_int_equal(ids.len, plain.len);
    assert_memory_equal(ids.data, plain.data, ids.len * sizeof *ids.data);
    assert_int_equal(spans.len, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(spans.data[i].first_message, expected[i][0]);
        assert_int_equal(spans.data[i].n_messages, expected[i][1]);
        assert_int_equal(spans.data[i].source, CHAT_SENT);
        assert_true(spans.data[i].ids_end > (i == 0 ? 0 : spans.data[i - 1].ids_end));
    }
    assert_int_equal(spans.data[n - 1].ids_end, ids.len);
    /* a turn of the user begins with its token */
    if (n == 3 && expected[2][0] == 2)
        assert_int_equal(ids.data[spans.data[1].ids_end], tokens.user);
    ids_free(&ids);
    ids_free(&plain);
    chat_spans_free(&spans);
}

static void test_spans(void **state)
{
    static const size_t HISTORY_SPANS[][2] = {{0, 1}, {1, 1}, {2, 1}};
    static const size_t TOOLS_SPANS[][2] = {{0, 0}, {0, 1}, {1, 1}, {2, 1}};
    /* two system messages are one text; a result and a question are one turn */
    static const char MERGED[] = "[{\"role\":\"system\",\"content\":\"one\"},"
                                 "{\"role\":\"system\",\"content\":\"two\"},"
                                 "{\"role\":\"user\",\"content\":\"a\"},"
                                 "{\"role\":\"assistant\",\"content\":\"b\"},"
                                 "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"c\"},"
                                 "{\"role\":\"user\",\"content\":\"d\"}]";
    static const size_t MERGED_SPANS[][2] = {{0, 2}, {2, 1}, {3, 1}, {4, 2}};
    (void)state;
    for (int thinking = 0; thinking < 2; thinking++) {
        check_spans(HISTORY, NULL, thinking, HISTORY_SPANS, 3);
        check_spans(HISTORY, TOOLS, thinking, TOOLS_SPANS, 4);
        check_spans(MERGED, NULL, thinking, MERGED_SPANS, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_not_asked),
        cmocka_unit_test(test_spans),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
