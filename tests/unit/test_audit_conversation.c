/* The audit's conversations: exact lengths and places, the fact said once, answers graded. */
#include "engine/audit/conversation.h"

#include "config/model.h"

#include "tests/unit/demo_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct audit_text text;

static int open_text(void **state)
{
    if (open_tokenizer(state) != 0)
        return -1;
    text = (struct audit_text){tokenizer, &tokens};
    return 0;
}

static char *spell(const int32_t *ids, int32_t n)
{
    struct buf b = {0};
    for (int32_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], &len);
        buf_add(&b, bytes, len);
    }
    buf_cstr(&b);
    return b.data;
}

static int count_of(const char *where, const char *what)
{
    int n = 0;
    for (const char *at = where; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* The value stands where it was asked for, once, and the prompt is as long as it was asked to be.
 */
static void check_needle(int32_t length, int32_t at, int32_t decoys, uint64_t seed)
{
    struct needle_plan plan = {seed, length, at, decoys};
    struct audit_item item;
    struct error err;
    if (conversation_needle(&text, &plan, &item, &err) != OK)
        fail_msg("%d at %d seed %d: %s", length, at, (int)seed, err.text);
    assert_int_equal(item.ids.len, length);
    assert_int_equal(item.value_at, at);
    char *value = spell(item.ids.data + at, item.value_n);
    assert_string_equal(value[0] == ' ' ? value + 1 : value, item.value);
    char *all = spell(item.ids.data, length);
    assert_int_equal(count_of(all, item.value), 1);
    assert_int_equal(count_of(all, " number of the ") + count_of(all, " code of the "), 2 + decoys);
    assert_int_equal(item.ids.data[length - 1], tokens.think_close);
    free(value);
    free(all);
    audit_item_free(&item);
}

static void test_needle_places(void **state)
{
    (void)state;
    /* every residue of 128 as length and as place, around edges of window and blocks */
    for (int32_t i = 0; i < 128; i++) {
        check_needle(700 + i, 300, 0, 1 + (uint64_t)i);
        check_needle(800, 200 + i, 0, 500 + (uint64_t)i);
    }
    check_needle(4096, 60, 3, 1);
    check_needle(4096, 2047, 3, 2);
    check_needle(4097, 3900, 5, 3);
    check_needle(16001, 8000, 3, 4);
}

static void test_needle_refused(void **state)
{
    (void)state;
    static const struct needle_plan plans[] = {
        {1, 1000, 3, 0}, {1, 1000, 999, 0}, {1, 20, 10, 0}, {1, 1000, -5, 0}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct audit_item item;
        struct error err;
        assert_int_equal(conversation_needle(&text, &plans[i], &item, &err), ERR_INPUT);
        assert_null(item.ids.data);
    }
}

/* Reasoning is dropped where there are no tools: what was seen live is the turn with it. */
static void check_forgotten(const struct audit_item *item, const struct audit_turn *turn,
                            bool dropped)
{
    assert_int_equal(turn->n_forgotten > 0, dropped);
    if (!dropped)
        return;
    const int32_t *ids = item->forgotten.data + turn->forgotten;
    int32_t n = turn->end - turn->begin;
    assert_int_equal(ids[0], tokens.think_open);
    assert_int_equal(ids[turn->n_forgotten - n - 1], tokens.think_close);
    assert_memory_equal(ids + turn->n_forgotten - n, item->ids.data + turn->begin,
                        (size_t)n * sizeof *ids);
    assert_in_range(turn->n_forgotten, n + 5, SLIDING_WINDOW);
    assert_true(turn->forgotten + turn->n_forgotten <= (int32_t)item->forgotten.len);
}

static void check_recall(const struct recall_plan *plan)
{
    struct audit_item item, again;
    conversation_recall(&text, plan, &item);
    conversation_recall(&text, plan, &again);
    assert_int_equal(item.ids.len, again.ids.len);
    assert_memory_equal(item.ids.data, again.ids.data, item.ids.len * sizeof *item.ids.data);
    char *all = spell(item.ids.data, (int32_t)item.ids.len);
    assert_int_equal(count_of(all, item.value), 1);
    int errands = count_of(all, "<tool_result>"); /* each is a user's turn, and one more reply */
    assert_true(errands >= (plan->place == PLACE_TOOL));
    assert_true(errands == 0 || plan->tools || plan->place == PLACE_TOOL);
    assert_int_equal(count_of(all, "<｜User｜>"), plan->turns + errands);
    assert_int_equal(item.n_turns, plan->turns - 1 + errands);
    assert_int_equal(strstr(all, "todo_write") != NULL, plan->tools || plan->place == PLACE_TOOL);
    assert_int_equal(count_of(all, "Noted."), plan->decoys + (plan->place == PLACE_USER));
    for (int32_t i = 0; i < item.n_turns; i++) {
        const struct audit_turn *turn = &item.turns[i];
        int32_t before = item.ids.data[turn->begin - 1];
        assert_true(before == tokens.think_close || before == tokens.think_open);
        assert_int_equal(item.ids.data[turn->end - 1], tokens.eos);
        assert_true(turn->begin < turn->end && turn->end <= (int32_t)item.ids.len);
        check_forgotten(&item, turn, plan->thinking && !plan->tools && plan->place != PLACE_TOOL);
    }
    assert_int_equal(count_of(all, "note it.") > 0,
                     plan->thinking && (plan->tools || plan->place == PLACE_TOOL) &&
                         (plan->place == PLACE_USER || plan->decoys > 0));
    assert_int_equal(item.ids.data[item.ids.len - 1],
                     plan->thinking ? tokens.think_open : tokens.think_close);
    free(all);
    audit_item_free(&item);
    audit_item_free(&again);
}

static void test_recall(void **state)
{
    (void)state;
    for (int32_t turns = 2; turns <= AUDIT_TURNS_MAX; turns = turns * 2 + 1) {
        for (int place = 0; place < PLACES; place++) {
            for (int flags = 0; flags < 4; flags++) {
                struct recall_plan plan = {.seed = (uint64_t)(turns * 100 + place * 4 + flags),
                                           .turns = turns,
                                           .place = (enum audit_place)place,
                                           .tools = flags & 1,
                                           .thinking = flags & 2,
                                           .decoys = (turns - 2) / 2};
                check_recall(&plan);
            }
        }
    }
}

/* A value lies on every edge, and nowhere else; every item asks for another one. */
static void check_edges(int32_t length, int32_t step, uint64_t seed, int32_t wanted)
{
    static struct audit_item items[AUDIT_EDGES_MAX];
    struct edges_plan plan = {seed, length, step};
    int32_t n = conversation_edges(&text, &plan, items);
    assert_int_equal(n, wanted);
    for (int32_t i = 0; i < n; i++) {
        const struct audit_item *item = &items[i];
        int32_t edge = (item->value_at / step + 1) * step;
        assert_in_range(edge, item->value_at + 1, item->value_at + item->value_n - 1);
        assert_true(i == 0 || item->value_at > items[i - 1].value_at);
        assert_in_range(item->ids.len, length - 100, length);
        assert_true(item->value_at + item->value_n < (int32_t)item->ids.len - SLIDING_WINDOW);
        char *all = spell(item->ids.data, (int32_t)item->ids.len);
        assert_int_equal(count_of(all, item->value), 1);
        char *value = spell(item->ids.data + item->value_at, item->value_n);
        assert_string_equal(value + 1, item->value);
        free(value);
        free(all);
    }
    for (int32_t i = 0; i < n; i++)
        audit_item_free(&items[i]);
}

static void test_edges(void **state)
{
    (void)state;
    check_edges(2048, SPAN_TOKENS_MAX, 1, 7); /* the eighth edge is the end */
    check_edges(2048, SPAN_TOKENS_MAX / 4, 2, 29);
    check_edges(4096, SPAN_TOKENS_MAX / 2, 3, 30);
    check_edges(200, SPAN_TOKENS_MAX, 4, 0);
}

/* Where steps are shorter than facts or more than there is room for, some edges go without. */
static void test_edges_crowded(void **state)
{
    (void)state;
    static struct audit_item items[AUDIT_EDGES_MAX];
    struct edges_plan plan = {5, 3000, 16};
    int32_t n = conversation_edges(&text, &plan, items);
    assert_in_range(n, 60, AUDIT_EDGES_MAX);
    for (int32_t i = 0; i < n; i++) {
        assert_true(items[i].value_at / 16 < (items[i].value_at + items[i].value_n - 1) / 16);
        audit_item_free(&items[i]);
    }
}

static void test_seeds(void **state)
{
    (void)state;
    struct audit_item a, b;
    conversation_recall(&text, &(struct recall_plan){.seed = 1, .turns = 3}, &a);
    conversation_recall(&text, &(struct recall_plan){.seed = 2, .turns = 3}, &b);
    assert_string_not_equal(a.value, b.value);
    audit_item_free(&a);
    audit_item_free(&b);
}

static void test_grade(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum audit_grade grade;
    } rows[] = {
        {"KTM-4739", GRADE_RIGHT},
        {" KTM-4739.\n", GRADE_RIGHT},
        {"KTM-4738", GRADE_WRONG},
        {"ktm-4739", GRADE_WRONG},
        {"", GRADE_WRONG},
        {"KTM", GRADE_WRONG},
        {"It is KTM-4739", GRADE_FORMAT},
        {"KTM-4739 KTM-4739", GRADE_FORMAT},
        {"KTM-4739..", GRADE_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(conversation_grade("KTM-4739", rows[i].answer, strlen(rows[i].answer)),
                         rows[i].grade);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needle_places), cmocka_unit_test(test_needle_refused),
        cmocka_unit_test(test_recall),        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_edges_crowded),
        cmocka_unit_test(test_grade),
    };
    return cmocka_run_group_tests(tests, open_text, close_tokenizer);
}
