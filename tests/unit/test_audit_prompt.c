/* What is asked: the rows of the prompt change ids and are named, rows of numbers never are. */
#include "engine/audit/tests_common.h"

#include "tests/unit/demo_tokenizer.h"

#include <string.h>

static const struct audit_text *text(void)
{
    static struct audit_text demo;
    demo = (struct audit_text){tokenizer, &tokens};
    return &demo;
}

static struct profile parsed(const char *name)
{
    struct profile out;
    const char *wrong;
    int n;
    assert_true(profile_parse(name, &out, &wrong, &n));
    return out;
}

/* Runs the test; -> its sentence, which lives until the next call. */
static const char *sentence(const char *name, enum audit_verdict *verdict)
{
    static char why[256];
    struct profile profile = parsed(name);
    struct audit_run run = {
        .text = text(), .profile = &profile, .reference = profile_builtin_at(PROFILE_REFERENCE)};
    struct json_object *result = test_prompt(&run, verdict);
    strncpy(why, json_object_get_string(json_object_object_get(result, "why")), sizeof why - 1);
    json_object_put(result);
    return why;
}

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *profile, *named;
    } rows[] = {
        {"reference", NULL},
        {"official", NULL},
        {"fast", NULL},
        {"fast,think.default=flipped", "32 of 32 prompts have other ids, by think.default"},
        {"reference,think.effort=max", "16 of 32 prompts have other ids, by think.effort"},
        {"reference,think.drop=keep", "3 of 32 prompts have other ids, by think.drop"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum audit_verdict verdict;
        const char *why = sentence(rows[i].profile, &verdict);
        assert_int_equal(verdict, rows[i].named == NULL ? VERDICT_PASS : VERDICT_FAIL);
        if (rows[i].named != NULL)
            assert_string_equal(why, rows[i].named);
    }
}

static void test_one_row(void **state)
{
    (void)state;
    struct profile profile = parsed("fast,think.drop=keep,think.effort=max");
    struct audit_run run = {
        .text = text(), .profile = &profile, .reference = profile_builtin_at(PROFILE_REFERENCE)};
    for (int row = 0; row < PRECISION_ROWS; row++)
        assert_int_equal(audit_prompt_row(&run, (enum precision_row)row),
                         row == ROW_THINK_DROP || row == ROW_THINK_EFFORT);
}

/* Long histories of this renderer are their turns; planted faults (tests/audit) show that others
 * are found. */
static void test_history(void **state)
{
    struct audit_run run = {.text = text()};
    (void)state;
    assert_null(audit_history_wrong(&run));
}

/* The engine's table is what the vectors of the published encoder say. */
static void test_table(void **state)
{
    static const struct {
        const char *name, *effort, *messages, *tools, *text;
        bool thinking, drop;
    } table[] = {
#define AUDIT_PROMPT(name, thinking, effort, drop, messages, tools, text)                          \
    {name, effort, messages, tools, text, thinking, drop},
#include "config/audit_prompts.def"
    };
    struct json_object *vectors;
    struct error err;
    (void)state;
    assert_int_equal(
        json_parse_file("tests/data/encoding/golden_prompts.json", 1 << 20, &vectors, &err), OK);
    assert_int_equal(json_object_object_length(vectors), sizeof table / sizeof *table);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct json_object *vector = json_object_object_get(vectors, table[i].name);
        struct json_object *request = json_object_object_get(vector, "request");
        struct json_object *tools = json_object_object_get(request, "tools"), *own = NULL;
        const char *effort = json_object_get_string(json_object_object_get(request, "effort"));
        assert_string_equal(json_object_get_string(json_object_object_get(vector, "prompt")),
                            table[i].text);
        assert_int_equal(strcmp(json_object_get_string(json_object_object_get(request, "thinking")),
                                "thinking") == 0,
                         table[i].thinking);
        assert_string_equal(effort == NULL ? "" : effort, table[i].effort);
        assert_int_equal(json_object_get_boolean(json_object_object_get(request, "drop_thinking")),
                         table[i].drop);
        assert_int_equal(json_parse(table[i].messages, strlen(table[i].messages), &own, NULL, &err),
                         OK);
        assert_true(json_object_equal(own, json_object_object_get(request, "messages")));
        json_object_put(own);
        assert_int_equal(json_object_array_length(tools) == 0, table[i].tools[0] == '\0');
        if (table[i].tools[0] == '\0')
            continue;
        assert_int_equal(json_parse(table[i].tools, strlen(table[i].tools), &own, NULL, &err), OK);
        assert_true(json_object_equal(own, tools));
        json_object_put(own);
    }
    json_object_put(vectors);
}

/* Ids that do not spell the text: the tokenizer's control tokens are not those that it has. */
static void test_misspelt(void **state)
{
    (void)state;
    struct profile profile = *profile_builtin_at(PROFILE_REFERENCE);
    struct audit_run run = {.text = text(), .profile = &profile, .reference = &profile};
    assert_null(audit_prompt_misspelt(&run));
    tokens.think_close = tokens.think_open;
    assert_string_equal(audit_prompt_misspelt(&run), "multi-turn-chat");
    enum audit_verdict verdict;
    const char *why = sentence("reference", &verdict);
    assert_int_equal(verdict, VERDICT_FAIL);
    assert_string_equal(why, "not as the published encoder writes it: multi-turn-chat");
    assert_int_equal(chat_tokens_find(tokenizer, &tokens, &(struct error){0}), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_history),  cmocka_unit_test(test_table),
        cmocka_unit_test(test_misspelt),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
