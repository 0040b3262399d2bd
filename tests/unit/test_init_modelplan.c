/* Which model serves: names, changes, and trials that go back. */
#include "config/slots.h"
#include "init/modelplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct modelplan plan;
static struct modelplan_engine engine;

static int fresh(void **state)
{
    (void)state;
    modelplan_init(&plan, "demo");
    engine = (struct modelplan_engine){.beat_ms = 500};
    return 0;
}

static enum modelplan_action turn(int64_t now_ms)
{
    return modelplan_turn(&plan, &engine, now_ms);
}

/* The engine ends and starts; its beat of before counts for nothing. */
static void restarts(int64_t now_ms)
{
    engine.ended = engine.crashed = false;
    assert_int_equal(turn(now_ms), MODELPLAN_STOP);
    assert_int_equal(turn(now_ms + 1), MODELPLAN_STOP);
    engine.ended = true;
    assert_int_equal(turn(now_ms + 2), MODELPLAN_START);
    engine.ended = false;
}

static void names(void **state)
{
    (void)state;
    static const char *const GOOD[] = {"a", "demo", "DeepSeek-V4-Flash", "v4_0.1"};
    static const char *const BAD[] = {"", ".", "..", ".a", "a.", "-a", "a/b", "a b", "a\n", "\xe4"};
    char name[MODEL_NAME_CHARS + 2];
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        assert_true(modelplan_name_good(GOOD[i]));
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(modelplan_name_good(BAD[i]));
    memset(name, 'a', sizeof name);
    name[MODEL_NAME_CHARS] = '\0';
    assert_true(modelplan_name_good(name));
    name[MODEL_NAME_CHARS] = 'a';
    name[MODEL_NAME_CHARS + 1] = '\0';
    assert_false(modelplan_name_good(name));
    assert_false(modelplan_find("no-model-of-this-name", name, (int)sizeof name));
}

static void a_change_holds_whatever_comes(void **state)
{
    (void)state;
    assert_int_equal(turn(1000), MODELPLAN_NOTHING);
    assert_non_null(modelplan_use(&plan, "../x", false));
    assert_null(modelplan_use(&plan, "other", false));
    assert_non_null(modelplan_use(&plan, "third", false));
    restarts(1000);
    engine.crashed = true;
    assert_int_equal(turn(2000), MODELPLAN_NOTHING);
    assert_string_equal(plan.now, "other");
    assert_null(modelplan_use(&plan, "demo", false));
    restarts(3000);
    assert_string_equal(plan.now, "demo");
}

static void a_good_trial_is_kept(void **state)
{
    (void)state;
    assert_null(modelplan_use(&plan, "other", true));
    restarts(1000);
    assert_int_equal(turn(2000), MODELPLAN_NOTHING); /* the beat at 500 is the old engine's */
    assert_non_null(modelplan_use(&plan, "third", true));
    engine.beat_ms = 3000;
    assert_int_equal(turn(3001), MODELPLAN_KEEP);
    assert_int_equal(turn(3002), MODELPLAN_NOTHING);
    assert_string_equal(plan.now, "other");
}

static void a_bad_trial_goes_back(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        fresh(NULL);
        assert_null(modelplan_use(&plan, "other", true));
        restarts(1000);
        engine.crashed = !late;
        if (late)
            assert_int_equal(turn(1002 + GATE_MS - 1), MODELPLAN_NOTHING);
        assert_int_equal(turn(1002 + GATE_MS), MODELPLAN_BACK);
        assert_string_equal(plan.now, "demo");
        restarts(2000 + GATE_MS);
        assert_int_equal(turn(3000 + GATE_MS), MODELPLAN_NOTHING);
        assert_null(modelplan_use(&plan, "other", true));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names, fresh),
        cmocka_unit_test_setup(a_change_holds_whatever_comes, fresh),
        cmocka_unit_test_setup(a_good_trial_is_kept, fresh),
        cmocka_unit_test_setup(a_bad_trial_goes_back, fresh),
    };
    return cmocka_run_group_tests_name("modelplan", tests, NULL, NULL);
}
