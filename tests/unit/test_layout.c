/* How GPUs are shared out: the words, and what follows from numbers. */
#include "common/layout.h"
#include "config/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void test_words(void **state)
{
    (void)state;
    static const char *const WRONG[] = {"",    "x",    "1x",    "x1",   "0x1",  "1x0",  "3x3",
                                        "2x5", "1x9",  "9x1",   "1 x1", "1X1",  "+1x1", "1x1 ",
                                        "8",   "Auto", "auto ", "10x1", "1x10", "1*8"};
    struct layout layout = {7, 7};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        assert_false(layout_parse(WRONG[i], &layout));
        assert_true(layout.groups == 7 && layout.ranks == 7);
    }
    assert_true(layout_parse("auto", &layout));
    assert_true(layout.groups == 0 && layout.ranks == 0);
    for (int groups = 1; groups <= RANKS_MAX; groups++) {
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            char text[32];
            snprintf(text, sizeof text, "%dx%d", groups, ranks);
            assert_int_equal(layout_parse(text, &layout), groups * ranks <= RANKS_MAX);
            if (groups * ranks <= RANKS_MAX)
                assert_true(layout.groups == groups && layout.ranks == ranks);
        }
    }
}

static void test_groups(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, gpus, groups;
    } CASES[] = {{1, 0, 1}, {1, 1, 1}, {1, 8, 8}, {2, 8, 4}, {4, 8, 2},          {8, 8, 1},
                 {4, 7, 1}, {2, 7, 3}, {4, 3, 1}, {0, 8, 1}, {1, 64, GROUPS_MAX}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_int_equal(layout_groups(CASES[i].ranks, CASES[i].gpus), CASES[i].groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
