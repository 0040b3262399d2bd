/* Signed updates: every single bit of a header counts, and nothing unsigned is looked into. */
#include "init/bundle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sodium.h>

#define PROGRAM_BYTES 5000

static uint8_t public[BUNDLE_KEY_BYTES], secret[BUNDLE_SECRET_BYTES];
static uint8_t program[PROGRAM_BYTES + 1], header[BUNDLE_HEADER_BYTES];

static int make_keys(void **state)
{
    static const uint8_t SEED[crypto_sign_SEEDBYTES] = {1, 2, 3};
    (void)state;
    if (sodium_init() < 0)
        return 1;
    crypto_sign_seed_keypair(public, secret, SEED);
    for (size_t i = 0; i < sizeof program; i++)
        program[i] = (uint8_t)(i * 7 + i / 256);
    return 0;
}

static struct bundle plain(void)
{
    struct bundle b = {.board = UPDATE_BOARD,
                       .version = "1.2.3",
                       .sequence = 0x0102030405060708,
                       .floor = 3,
                       .program_bytes = PROGRAM_BYTES,
                       .payload_bytes = 12345678};
    crypto_hash_sha256(b.hash, program, PROGRAM_BYTES);
    return b;
}

static const char *check(const struct bundle *b)
{
    struct bundle read;
    bundle_sign(header, b, secret);
    return bundle_check_header(&read, header, sizeof header, public);
}

static void what_is_signed_is_read_back(void **state)
{
    (void)state;
    struct bundle in = plain(), out;
    bundle_sign(header, &in, secret);
    assert_null(bundle_check_header(&out, header, sizeof header, public));
    assert_string_equal(out.board, in.board);
    assert_string_equal(out.version, in.version);
    assert_int_equal(out.sequence, in.sequence);
    assert_int_equal(out.floor, in.floor);
    assert_int_equal(out.program_bytes, in.program_bytes);
    assert_int_equal(out.payload_bytes, in.payload_bytes);
    assert_null(bundle_check_program(&out, program, PROGRAM_BYTES));
}

/* The signature covers all but the first eight bytes, which must be the magic. */
static void every_bit_of_the_header_counts(void **state)
{
    (void)state;
    struct bundle b = plain(), out = {.sequence = 77};
    bundle_sign(header, &b, secret);
    for (size_t bit = 0; bit < 8 * sizeof header; bit++) {
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_non_null(bundle_check_header(&out, header, sizeof header, public));
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < sizeof header; n++)
        assert_non_null(bundle_check_header(&out, header, n, public));
    assert_int_equal(out.sequence, 77); /* untouched by all that */
    assert_null(bundle_check_header(&out, header, sizeof header, public));
}

static void another_key_signs_nothing(void **state)
{
    (void)state;
    struct bundle b = plain(), out;
    uint8_t other_public[BUNDLE_KEY_BYTES], other[BUNDLE_SECRET_BYTES];
    crypto_sign_keypair(other_public, other);
    bundle_sign(header, &b, other);
    assert_non_null(bundle_check_header(&out, header, sizeof header, public));
    assert_null(bundle_check_header(&out, header, sizeof header, other_public));
}

/* Signed, and still not for this box. */
static void signed_nonsense_is_refused(void **state)
{
    (void)state;
    struct bundle b = plain();
    assert_null(check(&b));
    strcpy(b.board, "v4box-arm64");
    assert_non_null(check(&b));
    b = plain();
    b.board[0] = '\0';
    assert_non_null(check(&b));
    b = plain();
    strcpy(b.version, "1 2");
    assert_non_null(check(&b));
    b = plain();
    strcpy(b.version, "\x1b[2J");
    assert_non_null(check(&b));
    b = plain();
    b.floor = b.sequence + 1;
    assert_non_null(check(&b));
    static const uint64_t SIZES[] = {0, UPDATE_BYTES_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        b = plain();
        b.program_bytes = SIZES[i];
        assert_non_null(check(&b));
    }
    b = plain();
    b.payload_bytes = PAYLOAD_BYTES_MAX + 1;
    assert_non_null(check(&b));
    b.payload_bytes = PAYLOAD_BYTES_MAX;
    assert_null(check(&b));
    b = plain();
    b.program_bytes = UPDATE_BYTES_MAX;
    memset(b.version, 'v', BUNDLE_VERSION_BYTES); /* as long as it may be */
    assert_null(check(&b));
}

/* A field behind those that are known would mean something to a later system. */
static void unknown_fields_are_refused(void **state)
{
    (void)state;
    struct bundle b = plain(), out;
    bundle_sign(header, &b, secret);
    header[BUNDLE_HEADER_BYTES - 1] = 1;
    crypto_sign_detached(header + 8, NULL, header + 72, sizeof header - 72, secret);
    assert_non_null(bundle_check_header(&out, header, sizeof header, public));
}

static void the_program_is_whole(void **state)
{
    (void)state;
    struct bundle b = plain();
    assert_non_null(bundle_check_program(&b, program, PROGRAM_BYTES - 1));
    assert_non_null(bundle_check_program(&b, program, PROGRAM_BYTES + 1));
    assert_non_null(bundle_check_program(&b, program, 0));
    for (size_t i = 0; i < PROGRAM_BYTES; i += 97) {
        program[i] ^= 0x10;
        assert_non_null(bundle_check_program(&b, program, PROGRAM_BYTES));
        program[i] ^= 0x10;
    }
    assert_null(bundle_check_program(&b, program, PROGRAM_BYTES));
}

static void keys_are_read_strictly(void **state)
{
    (void)state;
    uint8_t key[BUNDLE_KEY_BYTES];
    char text[2 * BUNDLE_KEY_BYTES + 2];
    sodium_bin2hex(text, sizeof text, public, sizeof public);
    size_t n = strlen(text) + 1;
    text[n - 1] = '\n';
    assert_true(bundle_key_parse(key, text, n));
    assert_memory_equal(key, public, sizeof key);
    for (size_t i = 0; i <= n; i++)
        assert_int_equal(bundle_key_parse(key, text, i), i == n);
    for (size_t i = 0; i < n; i++) {
        char old = text[i];
        text[i] = 'g';
        assert_false(bundle_key_parse(key, text, n));
        text[i] = old;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_signed_is_read_back),
        cmocka_unit_test(every_bit_of_the_header_counts),
        cmocka_unit_test(another_key_signs_nothing),
        cmocka_unit_test(signed_nonsense_is_refused),
        cmocka_unit_test(unknown_fields_are_refused),
        cmocka_unit_test(the_program_is_whole),
        cmocka_unit_test(keys_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
