/* Tool calls of an audit: requests that need one, and which calls are by their schemas. */
#include "engine/audit/tests_common.h"

#include "tests/unit/demo_tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void test_valid(void **state)
{
    (void)state;
    static const struct {
        const char *name, *arguments;
        bool valid;
    } rows[] = {
        {"read", "{\"path\": \"a\"}", true},
        {"run", "{\"command\": \"make\"}", true},
        {"run", "{\"command\": \"make\", \"timeout\": 60}", true},
        {"todo_read", "{}", true},
        {"todo_write", "{\"tasks\": []}", true},
        {"read", "{}", false},
        {"read", "{\"path\": 3}", false},
        {"read", "{\"path\": null}", false},
        {"read", "{\"path\": \"a\", \"lines\": 3}", false},
        {"run", "{\"command\": \"make\", \"timeout\": \"60\"}", false},
        {"todo_write", "{\"tasks\": \"all\"}", false},
        {"rea", "{\"path\": \"a\"}", false},
        {"reader", "{\"path\": \"a\"}", false},
        {"", "{}", false},
        {"read", "[\"path\"]", false},
        {"read", "{\"path\": \"a\"", false},
    };
    struct json_object *tools = conversation_tools();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dsml_call call = {0};
        buf_puts(&call.name, rows[i].name);
        buf_puts(&call.arguments, rows[i].arguments);
        if (audit_call_valid(tools, &call) != rows[i].valid)
            fail_msg("%s %s", rows[i].name, rows[i].arguments);
        buf_free(&call.name);
        buf_free(&call.arguments);
    }
    json_object_put(tools);
}

/* Every errand is asked for last, with the tools in front, and nothing is expected word for word.
 */
static void test_requests(void **state)
{
    (void)state;
    const struct audit_text text = {tokenizer, &tokens};
    for (int32_t i = 0; i < 16; i++) {
        struct call_plan plan = {.seed = (uint64_t)i, .errand = i, .thinking = i % 2 == 1};
        struct audit_item item, again;
        conversation_call(&text, &plan, &item);
        conversation_call(&text, &plan, &again);
        assert_int_equal(item.ids.len, again.ids.len);
        assert_memory_equal(item.ids.data, again.ids.data, item.ids.len * sizeof *item.ids.data);
        assert_int_equal(item.ids.data[item.ids.len - 1],
                         plan.thinking ? tokens.think_open : tokens.think_close);
        assert_in_range(item.ids.len, 400, 4000);
        assert_true(item.n_turns >= 1);
        assert_null(item.value);
        audit_item_free(&item);
        audit_item_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_requests),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
