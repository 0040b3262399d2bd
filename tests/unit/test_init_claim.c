/* The code of a box that nobody has claimed: what it looks like, what passes for it, and how often
 * one may guess. */
#include "init/claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SHOWN_BYTES (CLAIM_CODE_CHARS + CLAIM_CODE_CHARS / CLAIM_GROUP_CHARS)

static const char *shown(const struct claim *c)
{
    static char bytes[SHOWN_BYTES + 1];
    struct text t = text_over(bytes, sizeof bytes);
    claim_show(c, &t);
    assert_false(t.cut);
    return bytes;
}

static void a_code_is_new_each_time(void **state)
{
    (void)state;
    struct claim a, b;
    assert_true(claim_open(&a, 0));
    assert_true(claim_open(&b, 0));
    assert_int_not_equal(strcmp(a.code, b.code), 0);
    assert_int_equal(strlen(a.code), CLAIM_CODE_CHARS);
    assert_int_equal(strspn(a.code, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), CLAIM_CODE_CHARS);
    assert_int_equal(strlen(shown(&a)), SHOWN_BYTES - 1);
    assert_int_equal(shown(&a)[CLAIM_GROUP_CHARS], '-');
}

/* One that is known, with all guesses at time 0. */
static struct claim known(void)
{
    struct claim c;
    assert_true(claim_open(&c, 0));
    memcpy(c.code, "01AB23CD45EF", CLAIM_CODE_CHARS);
    return c;
}

static void the_code_passes_as_people_type_it(void **state)
{
    (void)state;
    static const char *const GOOD[] = {"01AB-23CD-45EF", "01AB23CD45EF", "01ab-23cd-45ef",
                                       "OIAB-23cd-45EF", "0-l-A-B23CD45EF-"};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        struct claim c = known();
        assert_int_equal(claim_try(&c, GOOD[i], 0), CLAIM_RIGHT);
    }
}

static void nothing_else_passes(void **state)
{
    (void)state;
    char word[CLAIM_CODE_CHARS + 1];
    static const char *const BAD[] = {"",
                                      "-",
                                      "01AB-23CD-45E",
                                      "01AB-23CD-45EFG",
                                      "01AB-23CD-45EF01AB-23CD-45EF",
                                      "01AB 23CD 45EF"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct claim c = known();
        assert_int_equal(claim_try(&c, BAD[i], 0), CLAIM_WRONG);
    }
    for (int i = 0; i < CLAIM_CODE_CHARS; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct claim c = known();
            memcpy(word, c.code, sizeof word);
            word[i] = (char)(word[i] ^ 1 << bit);
            /* The other case of a letter is the letter; a NUL or a hyphen is a shorter word. */
            bool same = bit == 5 && c.code[i] >= 'A';
            assert_int_equal(claim_try(&c, word, 0), same ? CLAIM_RIGHT : CLAIM_WRONG);
        }
}

static void guesses_are_few(void **state)
{
    (void)state;
    struct claim c = known();
    for (int i = 0; i < CLAIM_GUESSES; i++)
        assert_int_equal(claim_try(&c, "WRONG", 1000), CLAIM_WRONG);
    /* Not even the code itself, or the answer would tell it. */
    assert_int_equal(claim_try(&c, "01AB23CD45EF", 1000), CLAIM_WAIT);
    assert_int_equal(claim_try(&c, "WRONG", 1000 + CLAIM_GUESS_MS - 1), CLAIM_WAIT);
    assert_int_equal(claim_try(&c, "WRONG", 1000 + CLAIM_GUESS_MS), CLAIM_WRONG);
    assert_int_equal(claim_try(&c, "WRONG", 1000 + CLAIM_GUESS_MS), CLAIM_WAIT);
    assert_int_equal(claim_try(&c, "01AB23CD45EF", 1000 + 2 * CLAIM_GUESS_MS), CLAIM_RIGHT);
    /* In an hour of trying no more than the rate allows. */
    int looked_at = 0;
    for (int64_t ms = 10000; ms < 3610000; ms += 10)
        looked_at += claim_try(&c, "WRONG", ms) == CLAIM_WRONG;
    assert_in_range(looked_at, 3600000 / CLAIM_GUESS_MS - 1,
                    3600000 / CLAIM_GUESS_MS + CLAIM_GUESSES);
}

static void it_is_good_once(void **state)
{
    (void)state;
    struct claim c = known();
    assert_int_equal(claim_try(&c, "01AB23CD45EF", 0), CLAIM_RIGHT);
    assert_int_equal(claim_try(&c, "01AB23CD45EF", 0), CLAIM_RIGHT); /* the key was none */
    claim_close(&c);
    assert_int_equal(claim_try(&c, "01AB23CD45EF", 0), CLAIM_CLOSED);
    assert_int_equal(claim_try(&c, "", 0), CLAIM_CLOSED);
    assert_string_equal(shown(&c), "");
    for (size_t i = 0; i < sizeof c.code; i++)
        assert_int_equal(c.code[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_is_new_each_time),
        cmocka_unit_test(the_code_passes_as_people_type_it),
        cmocka_unit_test(nothing_else_passes),
        cmocka_unit_test(guesses_are_few),
        cmocka_unit_test(it_is_good_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
