/*
 * Certificates: what certificate.h promises of making, reading and refusing them, with keys and
 * chains of tests/data/tls (make.sh there).
 */
#include "config/box.h"
#include "init/certificate.h"
#include "init/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/data/tls/"

static char pem[4 * TLS_FILE_BYTES];

/* The files, one behind the other. */
static size_t join(const char *const *files, int count)
{
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        char path[128];
        snprintf(path, sizeof path, FOLDER "%s", files[i]);
        ssize_t got = file_load(path, pem + n, sizeof pem - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    return n;
}

static void test_takes_and_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *files[8];
        const char *wrong; /* NULL: taken */
    } ROWS[] = {
        {{"leaf.key", "leaf.pem", "middle.pem"}, NULL},
        {{"leaf.pem", "middle.pem", "leaf.key"}, NULL},
        {{"leaf.pem", "middle.pem", "root.pem", "leaf.key"}, NULL},
        {{"rsa.key", "rsa.pem"}, NULL},
        {{"leaf.pem", "middle.pem"}, "no private key"},
        {{"locked.key", "leaf.pem"}, "pass phrase"},
        {{"small.key", "rsa.pem"}, "none of EC"},
        {{"edwards.key", "leaf.pem"}, "none of EC"},
        {{"leaf.key"}, "no certificate"},
        {{"rsa.key", "leaf.pem"}, "does not belong"},
        {{"leaf.key", "middle.pem", "leaf.pem"}, "does not belong"},
        {{"leaf.key", "leaf.pem", "root.pem"}, "did not sign"},
        {{"leaf.key", "leaf.pem", "middle.pem", "root.pem", "root.pem", "root.pem"}, "too many"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int count = 0;
        const char *wrong;
        while (count < 8 && ROWS[i].files[count] != NULL)
            count++;
        size_t n = join(ROWS[i].files, count);
        struct certificate *c = certificate_parse(pem, n, &wrong);
        if (ROWS[i].wrong == NULL)
            assert_non_null(c);
        else
            assert_true(c == NULL && strstr(wrong, ROWS[i].wrong) != NULL);
        certificate_free(c);
    }
}

/* What is written is read again; each byte that is cut off or flipped is noticed or harmless. */
static void test_written_and_damaged(void **state)
{
    (void)state;
    static const char *const GIVEN[] = {"box.example", "192.0.2.7", "2001:db8::7"};
    static char bytes[TLS_FILE_BYTES], again[TLS_FILE_BYTES], damaged[TLS_FILE_BYTES];
    const char *wrong;
    struct certificate *c = certificate_make(GIVEN, 3, &wrong);
    struct text out = text_over(bytes, sizeof bytes);
    assert_non_null(c);
    assert_true(certificate_write(c, &out));
    certificate_free(c);
    c = certificate_parse(out.data, out.len, &wrong);
    assert_non_null(c);
    struct text twice = text_over(again, sizeof again);
    assert_true(certificate_write(c, &twice));
    assert_string_equal(out.data, twice.data);
    certificate_free(c);
    for (size_t i = 0; i < out.len; i++) {
        memcpy(damaged, out.data, out.len);
        damaged[i] ^= 0x10;
        c = certificate_parse(damaged, out.len, &wrong);
        certificate_free(c); /* a bit of the signature changes nothing that is looked at */
        assert_null(certificate_parse(out.data, i < out.len - 40 ? i : 0, &wrong));
    }
}

static void test_describes(void **state)
{
    (void)state;
    static const char *const GIVEN[] = {"box.example", "192.0.2.7"};
    static const char *const FILES[] = {"leaf.key", "leaf.pem", "middle.pem"};
    char bytes[2048], public[TLS_FILE_BYTES];
    struct text out = text_over(bytes, sizeof bytes), shown = text_over(public, sizeof public);
    const char *wrong;
    struct certificate *c = certificate_make(GIVEN, 2, &wrong);
    certificate_describe(c, &out);
    assert_non_null(strstr(out.data, "names DNS:box.example, IP Address:192.0.2.7\n"));
    assert_non_null(strstr(out.data, "signed by itself\nfrom 2026-01-01\nto 9999-12-31\n"));
    certificate_free(c);
    out = text_over(bytes, sizeof bytes);
    size_t n = join(FILES, 3);
    c = certificate_parse(pem, n, &wrong);
    certificate_describe(c, &out);
    assert_non_null(strstr(out.data, "signed by another, 2 in the chain"));
    assert_true(certificate_write_public(c, &shown));
    assert_null(strstr(shown.data, "PRIVATE"));
    assert_non_null(strstr(shown.data, "BEGIN CERTIFICATE"));
    certificate_free(c);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", "-x", ".x", "a b", "a,DNS:evil", "a\n", "[::1]", "a/b"};
    const char *wrong;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_null(certificate_make(&BAD[i], 1, &wrong));
    assert_null(certificate_make(BAD, 0, &wrong));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_and_refuses),
        cmocka_unit_test(test_written_and_damaged),
        cmocka_unit_test(test_describes),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
