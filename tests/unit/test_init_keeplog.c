/* The log on a disk: files that turn over, tails across two of them, and what is no file. */
#include "config/box.h"
#include "init/keeplog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96];
static struct keeplog small = {folder, 100, 3};

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_init_keeplog.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static long size_of(const char *name)
{
    struct stat st;
    return stat(in_folder(name), &st) == 0 ? (long)st.st_size : -1;
}

static void add_line(int i)
{
    char line[32];
    int n = snprintf(line, sizeof line, "line number %d\n", i);
    assert_true(keeplog_append(&small, line, (size_t)n));
}

static void files_turn_over(void **state)
{
    (void)state;
    char bytes[1024];
    struct text t = text_over(bytes, sizeof bytes);
    assert_false(keeplog_tail(&small, 5, &t));
    for (int i = 100; i < 200; i++) {
        add_line(i);
        assert_true(size_of("current") <= 100);
    }
    assert_true(size_of("1") > 80 && size_of("2") > 80 && size_of("3") > 80);
    assert_int_equal(size_of("4"), -1);
    assert_true(keeplog_tail(&small, 1, &t));
    assert_string_equal(bytes, "line number 199\n");
    t = text_over(bytes, sizeof bytes);
    assert_true(keeplog_tail(&small, 8, &t)); /* six lines are in a file */
    assert_memory_equal(bytes, "line number 192\n", 16);
    assert_int_equal(t.len, 8 * 16);
}

static void a_link_is_not_followed(void **state)
{
    (void)state;
    char other[96];
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(symlink(other, in_folder("current")), 0);
    assert_false(keeplog_append(&small, "x\n", 2));
    assert_int_not_equal(access(other, F_OK), 0);
    unlink(in_folder("current"));
    assert_int_equal(mkdir(in_folder("current"), 0700), 0);
    assert_false(keeplog_append(&small, "x\n", 2));
}

/* More than is read at once. */
static void a_tail_has_whole_lines(void **state)
{
    (void)state;
    static char many[KEEPLOG_TAIL_BYTES + 4096], told[KEEPLOG_TAIL_BYTES + 1];
    struct keeplog large = {folder, sizeof many, 1};
    for (size_t i = 0; i < sizeof many; i += 16)
        memcpy(many + i, "fifteen bytes..\n", 16);
    assert_true(keeplog_append(&large, many, sizeof many));
    struct text t = text_over(told, sizeof told);
    assert_true(keeplog_tail(&large, 1000000, &t));
    assert_true(t.len > 0 && t.len <= KEEPLOG_TAIL_BYTES && told[t.len - 1] == '\n');
    t = text_over(told, sizeof told);
    assert_true(keeplog_tail(&large, 3, &t));
    assert_string_equal(told, "fifteen bytes..\nfifteen bytes..\nfifteen bytes..\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_turn_over),
        TEST(a_link_is_not_followed),
        TEST(a_tail_has_whole_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
