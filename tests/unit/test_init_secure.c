/* Keys for Secure Boot: an enrolment is taken apart within its bounds, or not at all. */
#include "init/secure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#define SIGNATURE_BYTES   40 /* with its own head of 24 */
#define CERTIFICATE_BYTES 100
#define LIST_BYTES        (28 + 16 + CERTIFICATE_BYTES)
#define PART_BYTES        (16 + SIGNATURE_BYTES + LIST_BYTES)

static uint8_t bytes[4096];
static char folder[64];

static void put32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

/* A part as tools/secure.sh makes it; the certificate is all `fill`. */
static size_t add_part(size_t at, const char *name, uint8_t fill)
{
    at += (size_t)snprintf((char *)bytes + at, sizeof bytes - at, "%s %d\n", name, PART_BYTES);
    uint8_t *part = bytes + at, *list = part + 16 + SIGNATURE_BYTES;
    memset(part, 0, PART_BYTES);
    put32(part + 16, SIGNATURE_BYTES);
    put32(list + 16, LIST_BYTES);
    put32(list + 24, 16 + CERTIFICATE_BYTES);
    memset(list + 44, fill, CERTIFICATE_BYTES);
    return at + PART_BYTES;
}

static size_t enrolment(void)
{
    size_t n = add_part(0, "db", 0xdb);
    n = add_part(n, "KEK", 0xec);
    return add_part(n, "PK", 0x99);
}

static void an_enrolment_is_taken_apart(void **state)
{
    (void)state;
    struct secure_keys keys;
    size_t n = enrolment();
    assert_true(secure_keys_parse(&keys, bytes, n));
    assert_int_equal(keys.certificate_bytes, CERTIFICATE_BYTES);
    for (size_t i = 0; i < CERTIFICATE_BYTES; i++)
        assert_int_equal(keys.certificate[i], 0xdb);
    for (int i = 0; i < SECURE_PARTS; i++)
        assert_int_equal(keys.part_bytes[i], PART_BYTES);
    assert_int_equal(keys.part[SECURE_PK][PART_BYTES - 1], 0x99);
}

/* In memory of exactly this size, so that the sanitizer sees a byte too far. */
static bool parse_copy(size_t n)
{
    struct secure_keys keys;
    uint8_t *copy = malloc(n + (n == 0));
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    bool good = secure_keys_parse(&keys, copy, n);
    free(copy);
    return good;
}

static void a_cut_or_changed_one_is_refused(void **state)
{
    (void)state;
    size_t n = enrolment();
    assert_true(parse_copy(n));
    for (size_t i = 0; i < n; i++)
        assert_false(parse_copy(i));
    bytes[n] = '\n';
    assert_false(parse_copy(n + 1));
    n = add_part(0, "KEK", 1); /* another order */
    n = add_part(n, "db", 1);
    assert_false(parse_copy(add_part(n, "PK", 1)));
}

/* Any byte may be any value: no read beyond the end, and the lengths decide. */
static void hostile_lengths_stay_inside(void **state)
{
    (void)state;
    static const uint8_t VALUES[] = {0, 1, 0x20, '9', 0x7f, 0x80, 0xff};
    size_t n = enrolment();
    for (size_t i = 0; i < n; i++) {
        uint8_t old = bytes[i];
        for (size_t k = 0; k < sizeof VALUES; k++) {
            bytes[i] = VALUES[k];
            (void)parse_copy(n);
        }
        bytes[i] = old;
    }
    uint8_t *db = bytes + strlen("db 200\n");
    static const uint32_t LENGTHS[] = {0, 23, PART_BYTES, PART_BYTES - 16, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        put32(db + 16, LENGTHS[i]);
        assert_false(parse_copy(n));
    }
    put32(db + 16, SIGNATURE_BYTES);
    assert_true(parse_copy(n));
    static const char *const HEADS[] = {"db 0\n",  "db 999999\n", "db -1\n",
                                        "db  1\n", "db 1 \n",     "db \n",
                                        "db\n",    "dbx 1\n",     "db 99999999999999999999\n"};
    for (size_t i = 0; i < sizeof HEADS / sizeof HEADS[0]; i++) {
        memcpy(bytes, HEADS[i], strlen(HEADS[i]));
        assert_false(parse_copy(strlen(HEADS[i]) + 5));
    }
}

static void keys_become_variables(void **state)
{
    (void)state;
    static const char *const FILES[] = {"db-d719b2cb-3d3a-4596-a3bc-dad00e67656f",
                                        "KEK-" EFI_GLOBAL, "PK-" EFI_GLOBAL};
    struct secure_keys keys;
    char path[160];
    uint8_t read[PART_BYTES + 5];
    strcpy(folder, "/tmp/test_init_secure.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_false(secure_flag(folder, "SetupMode"));
    assert_true(efi_set(folder, "SetupMode", EFI_GLOBAL, (const uint8_t *)"\1", 1));
    assert_true(secure_flag(folder, "SetupMode"));
    assert_true(secure_keys_parse(&keys, bytes, enrolment()));
    assert_true(secure_enrol(folder, &keys));
    for (int i = 0; i < SECURE_PARTS; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(read, 1, sizeof read, f), PART_BYTES + 4);
        fclose(f);
        assert_memory_equal(read, "\x27\0\0\0", 4);
        assert_memory_equal(read + 4, keys.part[i], PART_BYTES);
        unlink(path);
    }
    assert_false(secure_enrol("/nowhere", &keys));
    snprintf(path, sizeof path, "%s/SetupMode-" EFI_GLOBAL, folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_enrolment_is_taken_apart),
        cmocka_unit_test(a_cut_or_changed_one_is_refused),
        cmocka_unit_test(hostile_lengths_stay_inside),
        cmocka_unit_test(keys_become_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
