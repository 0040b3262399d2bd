/* Key files: made once, the same ever after, and refused when they are not what was made. */
#include "engine/base/secret.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

static void test_made_once(void **state)
{
    (void)state;
    uint8_t first[32] = {0}, again[32] = {0}, other[32], none[32] = {0};
    struct error err;
    struct stat st;
    assert_int_equal(secret_open(path, first, 32, &err), OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(secret_open(path, again, 32, &err), OK);
    assert_memory_equal(first, again, 32);
    unlink(path);
    assert_int_equal(secret_open(path, other, 32, &err), OK);
    assert_memory_not_equal(first, other, 32);
    assert_memory_not_equal(first, none, 32);
    unlink(path);
}

static void test_refused(void **state)
{
    (void)state;
    uint8_t out[32];
    struct error err = {0};
    assert_int_equal(secret_open(path, out, 32, &err), OK);
    assert_int_equal(secret_open(path, out, 31, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(secret_open(path, out, 32, &err), ERR_INPUT);
    assert_int_equal(chmod(path, 0600), 0);
    char link_path[sizeof path + 2];
    snprintf(link_path, sizeof link_path, "%s.l", path);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(secret_open(link_path, out, 32, &err), ERR_IO);
    unlink(link_path);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(secret_open(path, out, 32, &err), ERR_INPUT);
    rmdir(path);
    assert_int_equal(secret_open("/nowhere/at/all", out, 32, &err), ERR_IO);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    snprintf(path, sizeof path, "/tmp/v4box-test-secret-%d", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made_once),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
