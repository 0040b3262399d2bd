/* Conversations from outside: what is expected of them, what is left of them, and what is refused.
 */
#include "engine/audit/given.h"

#include "tests/unit/demo_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TALK                                                                                       \
    "{\"role\": \"system\", \"content\": \"Be terse.\"}, "                                         \
    "{\"role\": \"user\", \"content\": \"The code of the door is AB-12.\"}, "                      \
    "{\"role\": \"assistant\", \"content\": \"Noted.\"}, "                                         \
    "{\"role\": \"user\", \"content\": \"Read notes.txt.\"}, "                                     \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"c1\", \"type\": "    \
    "\"function\", \"function\": {\"name\": \"read\", \"arguments\": \"{\\\"path\\\": 1}\"}}]}, "  \
    "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"nothing\"}, "                   \
    "{\"role\": \"assistant\", \"content\": \"It says nothing.\"}, "                               \
    "{\"role\": \"user\", \"content\": \"Which code?\"}"
#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"read\", \"parameters\": "     \
    "{\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"}}}}}]"

static struct audit_text text;
static char path[] = "/tmp/v4box-given-XXXXXX";

static int open_text(void **state)
{
    if (open_tokenizer(state) != 0)
        return -1;
    int fd = mkstemp(path);
    text = (struct audit_text){tokenizer, &tokens};
    return fd < 0 ? -1 : close(fd);
}

static int close_text(void **state)
{
    unlink(path);
    return close_tokenizer(state);
}

static enum status read_body(const char *body, size_t n, struct audit_given **out,
                             struct error *err)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(body, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    *out = NULL;
    return given_read(path, &text, out, err);
}

static struct audit_given *given(const char *body)
{
    struct audit_given *out;
    struct error err = {0};
    if (read_body(body, strlen(body), &out, &err) != OK)
        fail_msg("%s", err.text);
    return out;
}

static char *spell(const struct audit_item *item)
{
    struct buf b = {0};
    for (size_t i = 0; i < item->ids.len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, item->ids.data[i], &len);
        buf_add(&b, bytes, len);
    }
    buf_cstr(&b);
    return b.data;
}

static void test_expected(void **state)
{
    (void)state;
    static const struct {
        const char *body, *expected;
    } rows[] = {
        {"{\"messages\": [" TALK "], " TOOLS "}", NULL},
        {"{\"messages\": [" TALK "], " TOOLS ", \"expected\": \"AB-12\", \"model\": \"other\"}",
         "AB-12"},
        {"{\"messages\": [" TALK ", {\"role\": \"assistant\", \"content\": \"AB-12\"}], " TOOLS "}",
         "AB-12"},
        {"{\"messages\": [" TALK ", {\"role\": \"assistant\", \"content\": \"It is\", \"prefix\": "
         "true}], " TOOLS "}",
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct audit_given *g = given(rows[i].body);
        struct audit_item item;
        struct error err;
        if (rows[i].expected == NULL)
            assert_null(given_expected(g));
        else
            assert_string_equal(given_expected(g), rows[i].expected);
        assert_int_equal(given_exchanges(g), 3);
        assert_int_equal(given_item(g, &text, NULL, &item, &err), OK);
        char *all = spell(&item);
        assert_null(rows[i].expected == NULL ? NULL : strstr(strstr(all, "Which code?"), "AB-12"));
        assert_int_equal(strstr(all, "It is") != NULL, i == 3);
        free(all);
        audit_item_free(&item);
        given_free(g);
    }
}

/* Exchanges go as a whole; the system's text and the question stay. */
static void test_kept(void **state)
{
    (void)state;
    struct audit_given *g = given("{\"messages\": [" TALK "], " TOOLS ", \"expected\": \"x\"}");
    for (int kept = 0; kept < 4; kept++) {
        const bool keep[3] = {(kept & 1) != 0, (kept & 2) != 0, false};
        struct audit_item item;
        struct error err;
        assert_int_equal(given_item(g, &text, keep, &item, &err), OK);
        assert_string_equal(item.value, "x");
        char *all = spell(&item);
        assert_int_equal(strstr(all, "AB-12") != NULL && strstr(all, "Noted.") != NULL, keep[0]);
        assert_int_equal(strstr(all, "notes.txt") != NULL && strstr(all, "nothing") != NULL,
                         keep[1]);
        assert_non_null(strstr(all, "Be terse."));
        assert_non_null(strstr(all, "Which code?"));
        assert_int_equal(item.n_turns, keep[0] + 2 * keep[1]);
        free(all);
        audit_item_free(&item);
    }
    given_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *field;
    } rows[] = {
        {"[]", "object"},
        {"{}", "messages"},
        {"{\"messages\": 3}", "messages"},
        {"{\"messages\": []}", "messages"},
        {"{\"messages\": [{\"role\": \"pope\", \"content\": \"x\"}]}", "messages[0].role"},
        {"{\"messages\": [" TALK "], \"tools\": [{}]}", "tools[0]"},
        {"{\"messages\": [" TALK "], \"expected\": \"\"}", "expected"},
        {"{\"messages\": [" TALK "], \"expected\": 12}", "expected"},
        {"{\"messages\": [" TALK "], \"expected\": \"a\\u0000b\"}", "expected"},
        {"{\"messages\": [" TALK ", {\"role\": \"assistant\", \"content\": null}]}", "content"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct audit_given *g;
        struct error err = {0};
        assert_int_equal(read_body(rows[i].body, strlen(rows[i].body), &g, &err), ERR_INPUT);
        assert_null(g);
        if (strstr(err.text, path) == NULL || strstr(err.text, rows[i].field) == NULL)
            fail_msg("%s: %s", rows[i].body, err.text);
    }
    struct audit_given *g;
    struct error err;
    assert_int_not_equal(given_read("/nowhere/x", &text, &g, &err), OK);
}

/* Cut anywhere it is refused; a byte changed anywhere is read or refused. */
static void test_hostile(void **state)
{
    (void)state;
    static const char body[] = "{\"messages\": [" TALK "], " TOOLS ", \"expected\": \"AB-12\"}";
    char bytes[sizeof body];
    struct audit_given *g;
    struct error err;
    for (size_t n = 0; n < sizeof body - 1; n++)
        assert_int_equal(read_body(body, n, &g, &err), ERR_INPUT);
    for (size_t i = 0; i < sizeof body - 1; i++) {
        memcpy(bytes, body, sizeof body);
        bytes[i] = (char)(bytes[i] ^ (1 << i % 7));
        if (read_body(bytes, sizeof body - 1, &g, &err) == OK)
            given_free(g);
    }
}

/* The ids of a request, as a recorder has them. */
static void test_recorded(void **state)
{
    struct audit_given *body = given("{\"messages\": [" TALK "], " TOOLS "}");
    struct audit_item item, again;
    struct error err;
    (void)state;
    assert_int_equal(given_item(body, &text, NULL, &item, &err), OK);
    struct audit_given *ids = given_of_prompt(&item.ids, &text);
    assert_null(given_expected(ids));
    assert_int_equal(given_item(ids, &text, NULL, &again, &err), OK);
    assert_int_equal(again.ids.len, item.ids.len);
    assert_memory_equal(again.ids.data, item.ids.data, item.ids.len * sizeof *item.ids.data);
    assert_int_equal(again.n_turns, item.n_turns); /* the same places are carried */
    for (int32_t i = 0; i < item.n_turns; i++) {
        assert_int_equal(again.turns[i].begin, item.turns[i].begin);
        assert_int_equal(again.turns[i].end, item.turns[i].end);
    }
    audit_item_free(&again);
    bool kept[16] = {
        false}; /* what asks stays, whatever is kept; so does what is in front of all */
    assert_in_range(given_exchanges(ids), 2, 16);
    assert_int_equal(given_item(ids, &text, kept, &again, &err), OK);
    assert_in_range(again.ids.len, 1, item.ids.len - 1);
    assert_int_equal(again.ids.data[0], item.ids.data[0]);
    size_t tail = 5;
    assert_memory_equal(again.ids.data + again.ids.len - tail, item.ids.data + item.ids.len - tail,
                        tail * sizeof *item.ids.data);
    audit_item_free(&again);
    audit_item_free(&item);
    given_free(ids);
    given_free(body);
    /* hostile ids: opened and never ended, ended and never opened */
    const int32_t odd[] = {tokens.eos,  tokens.assistant, tokens.assistant, tokens.eos,
                           tokens.user, tokens.eos,       tokens.assistant};
    struct ids prompt = {0};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        ids_add(&prompt, odd[i]);
    for (; prompt.len > 0; prompt.len--) {
        ids = given_of_prompt(&prompt, &text);
        assert_int_equal(given_item(ids, &text, NULL, &item, &err), OK);
        assert_int_equal(item.n_turns, 0);
        audit_item_free(&item);
        given_free(ids);
    }
    ids_free(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected), cmocka_unit_test(test_kept),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_recorded),
    };
    return cmocka_run_group_tests(tests, open_text, close_text);
}
