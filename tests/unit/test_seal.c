/*
 * What clients keep for the box: it comes back whole or not at all.
 */
#include "engine/api/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t KEY[SEAL_KEY_BYTES] = {1}, OTHER[SEAL_KEY_BYTES] = {2};
static const char TEXT[] = "Hm, \0 well \xF0\x9F\x98\x80";

static void round_trips(void **state)
{
    static const size_t LENGTHS[] = {0, 1, 2, 3, sizeof TEXT};
    (void)state;
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        struct buf sealed = {0}, again = {0}, text = {0};
        seal_close(KEY, TEXT, LENGTHS[i], &sealed);
        seal_close(KEY, TEXT, LENGTHS[i], &again);
        assert_int_equal(sealed.len, again.len);
        assert_memory_not_equal(sealed.data, again.data, sealed.len); /* the nonce */
        buf_puts(&text, "before");
        assert_true(seal_open(KEY, sealed.data, sealed.len, &text));
        assert_int_equal(text.len, 6 + LENGTHS[i]);
        assert_memory_equal(text.data + 6, TEXT, LENGTHS[i]);
        assert_false(seal_open(OTHER, sealed.data, sealed.len, &text));
        assert_int_equal(text.len, 6 + LENGTHS[i]);
        buf_free(&sealed);
        buf_free(&again);
        buf_free(&text);
    }
}

/* Every character counts, and every length.  (The decoder takes 0xDF for "_": bit 7 is left out.)
 */
static void nothing_else_opens(void **state)
{
    struct buf sealed = {0}, text = {0};
    (void)state;
    seal_close(KEY, TEXT, sizeof TEXT, &sealed);
    for (size_t i = 0; i < sealed.len; i++) {
        for (int bit = 0; bit < 7; bit++) {
            sealed.data[i] = (char)(sealed.data[i] ^ (1 << bit));
            assert_false(seal_open(KEY, sealed.data, sealed.len, &text));
            sealed.data[i] = (char)(sealed.data[i] ^ (1 << bit));
        }
        assert_false(seal_open(KEY, sealed.data, i, &text));
    }
    buf_puts(&sealed, "A");
    assert_false(seal_open(KEY, sealed.data, sealed.len, &text));
    assert_int_equal(text.len, 0);
    buf_free(&sealed);
    buf_free(&text);
}

static void signatures(void **state)
{
    char good[SIGNATURE_CHARS + 1];
    (void)state;
    seal_sign(KEY, TEXT, sizeof TEXT, good);
    assert_int_equal(strlen(good), SIGNATURE_CHARS);
    assert_true(seal_is_signed(KEY, TEXT, sizeof TEXT, good, SIGNATURE_CHARS));
    assert_false(seal_is_signed(OTHER, TEXT, sizeof TEXT, good, SIGNATURE_CHARS));
    assert_false(seal_is_signed(KEY, TEXT, sizeof TEXT - 1, good, SIGNATURE_CHARS));
    assert_false(seal_is_signed(KEY, TEXT, sizeof TEXT, good, SIGNATURE_CHARS - 1));
    assert_false(seal_is_signed(KEY, TEXT, sizeof TEXT, "", 0));
    for (size_t i = 0; i < SIGNATURE_CHARS; i++) {
        good[i] = (char)(good[i] ^ 1);
        assert_false(seal_is_signed(KEY, TEXT, sizeof TEXT, good, SIGNATURE_CHARS));
        good[i] = (char)(good[i] ^ 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(nothing_else_opens),
        cmocka_unit_test(signatures),
    };
    return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
