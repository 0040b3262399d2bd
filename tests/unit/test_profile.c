/* Profiles: the built-in columns of the table, names, changes, and what the hash tells apart. */
#include "engine/precision/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_table(void **state)
{
    (void)state;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        const struct precision_switch *s = &PRECISION[row];
        assert_in_range(s->n_values, 2, PRECISION_VALUES_MAX);
        assert_true(s->legs != 0 && *s->changes != '\0' && *s->source != '\0');
        assert_true((s->by == BY_OPERATION) == (s->kinds != 0));
        assert_int_equal(profile_row_parse(s->name), row);
        for (int v = 0; v < s->n_values; v++)
            assert_int_equal(profile_value_parse(row, s->values[v].name), v);
        assert_int_equal(profile_value_parse(row, "no such value"), -1);
    }
    assert_int_equal(profile_row_parse("no.such.row"), -1);
    assert_int_equal(profile_row_parse(""), -1);
}

static void test_builtins(void **state)
{
    static const char *const NAMES[] = {"reference", "official", "balanced", "fast"};
    enum precision_row row;
    (void)state;
    for (int i = 0; i < PROFILE_BUILTINS; i++) {
        const struct profile *p = profile_builtin(NAMES[i]);
        assert_ptr_equal(p, profile_builtin_at(i));
        assert_string_equal(p->name, NAMES[i]);
        assert_true(p->hash != 0 && profile_may_serve(p, &row));
        for (int j = 0; j < i; j++)
            assert_true(p->hash != profile_builtin_at(j)->hash &&
                        !profile_equal(p, profile_builtin_at(j)));
    }
    for (int r = 0; r < PRECISION_ROWS; r++)
        assert_int_equal(profile_builtin("reference")->values[r], 0);
    assert_null(profile_builtin("exact"));
    assert_null(profile_builtin(""));
}

/* Every value of every row has a hash of its own; the name is not in it. */
static void test_hash(void **state)
{
    const struct profile *reference = profile_builtin_at(PROFILE_REFERENCE);
    uint64_t seen[PRECISION_ROWS * PRECISION_VALUES_MAX];
    int n = 0;
    (void)state;
    seen[n++] = reference->hash;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int value = 1; value < PRECISION[row].n_values; value++) {
            struct profile p = *reference;
            assert_true(profile_set(&p, row, value));
            for (int i = 0; i < n; i++)
                assert_true(seen[i] != p.hash);
            seen[n++] = p.hash;
            p.name[0] = 'x';
            assert_true(profile_set(&p, row, 0) && p.hash == reference->hash);
            assert_true(profile_equal(&p, reference));
        }
        struct profile p = *reference;
        assert_false(profile_set(&p, row, PRECISION[row].n_values) || profile_set(&p, row, -1));
        assert_true(p.hash == reference->hash);
    }
    char text[PROFILE_HASH_BYTES];
    struct profile p = {.hash = 0x1a};
    profile_hash_text(&p, text);
    assert_string_equal(text, "000000000000001a");
}

static void test_names(void **state)
{
    (void)state;
    assert_true(profile_name_valid("my-Profile_2"));
    assert_false(profile_name_valid("") || profile_name_valid("a b") || profile_name_valid("a/b") ||
                 profile_name_valid("..") || profile_name_valid("a\n"));
    assert_true(profile_name_valid("0123456789012345678901234567890"));
    assert_false(profile_name_valid("01234567890123456789012345678901"));
}

static void test_parse(void **state)
{
    static const struct {
        const char *text, *wrong;
    } BAD[] = {
        {"", ""},
        {"exact", "exact"},
        {"official,", ""},
        {"official,hc.mix", "hc.mix"},
        {"official,hc.mix=", "hc.mix="},
        {"official,=bf16", "=bf16"},
        {"official,hc.mix=bf17", "hc.mix=bf17"},
        {"official,hc.max=bf16,sum=f64", "hc.max=bf16"},
        {"official,sum=f64,sum=f16", "sum=f16"},
        {"official sum=f64", "official sum=f64"},
        {"0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"},
    };
    struct profile p;
    const char *wrong;
    int n;
    (void)state;
    assert_true(profile_parse("fast", &p, &wrong, &n));
    assert_memory_equal(&p, profile_builtin("fast"), sizeof p);
    assert_true(profile_parse("official,hc.mix=bf16,sum=f64", &p, &wrong, &n));
    assert_string_equal(p.name, "official+");
    assert_string_equal(profile_value_name(&p, ROW_HC_MIX), "bf16");
    assert_string_equal(profile_value_name(&p, ROW_SUM), "f64");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        memset(&p, 7, sizeof p);
        if (profile_parse(BAD[i].text, &p, &wrong, &n))
            fail_msg("'%s' is taken", BAD[i].text);
        assert_int_equal(n, strlen(BAD[i].wrong));
        assert_memory_equal(wrong, BAD[i].wrong, (size_t)n);
        assert_int_equal(p.values[0], 7);
    }
}

static void test_audit_only(void **state)
{
    enum precision_row row = PRECISION_ROWS;
    struct profile p = *profile_builtin("official");
    (void)state;
    assert_true(profile_set(&p, ROW_MOE_CLAMP, MOE_CLAMP_OFF));
    assert_false(profile_may_serve(&p, &row));
    assert_int_equal(row, ROW_MOE_CLAMP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_builtins),
        cmocka_unit_test(test_hash),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_parse), cmocka_unit_test(test_audit_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
