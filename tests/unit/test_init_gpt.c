/* The last partition takes the rest of the disk: read back by sfdisk, cut at every write, refused
 * when the table is not the image's. */
#include "init/gpt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB   1048576
#define SMALL (16 * MIB)
#define LARGE (64 * MIB + 512) /* no whole MiB */

static char path[] = "/tmp/test_init_gpt.XXXXXX";
static int disk = -1, writes_left = 1000;

/* A disk that stops taking anything after some writes. */
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    errno = EIO;
    return writes_left-- > 0 ? syscall(SYS_pwrite64, fd, bytes, n, at) : -1;
}

static int run(const char *format)
{
    char command[512];
    snprintf(command, sizeof command, format, path);
    return system(command);
}

static int fresh(void **state)
{
    (void)state;
    writes_left = 1000;
    if (disk < 0)
        disk = mkstemp(path);
    return ftruncate(disk, 0) != 0 || ftruncate(disk, SMALL) != 0 ||
           run("printf 'label: gpt\\nstart=2048, size=4096, name=esp\\nstart=6144, size=20480, "
               "name=models\\n' | PATH=$PATH:/usr/sbin sfdisk -q %s") != 0 ||
           ftruncate(disk, LARGE) != 0;
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static bool table_says(const char *what)
{
    char command[512];
    snprintf(command, sizeof command, "PATH=$PATH:/usr/sbin sfdisk -d %s 2>&1 | grep -q '%s'", path,
             what);
    return system(command) == 0;
}

static void crc(void **state)
{
    (void)state;
    assert_int_equal(gpt_crc("123456789", 9), 0xcbf43926);
    assert_int_equal(gpt_crc("", 0), 0);
}

static void grows_to_the_end(void **state)
{
    (void)state;
    struct gpt_part part;
    assert_null(gpt_grow(disk, LARGE, "models", &part));
    assert_int_equal(part.number, 2);
    assert_int_equal(part.start, 6144 * 512);
    assert_int_equal(part.bytes, (uint64_t)63 * MIB - 6144 * 512);
    assert_int_equal(run("PATH=$PATH:/usr/sbin sfdisk --verify %s >/dev/null 2>&1"), 0);
    assert_true(table_says("start= *6144, size= *122880,.*name=\"models\""));
    assert_true(table_says("start= *2048, size= *4096,.*name=\"esp\""));
    assert_false(table_says("start= *6144, size= *20480,"));
    /* Again: nothing is to be done. */
    writes_left = 0;
    assert_null(gpt_grow(disk, LARGE, "models", &part));
    assert_int_equal(part.bytes, (uint64_t)63 * MIB - 6144 * 512);
}

/* sfdisk reads the copy when the first table is damaged, as firmware and kernel do. */
static void a_cut_leaves_a_table(void **state)
{
    for (int n = 0; n < 4; n++) {
        struct gpt_part part;
        assert_int_equal(fresh(state), 0);
        writes_left = n;
        assert_non_null(gpt_grow(disk, LARGE, "models", &part));
        assert_true(table_says("name=\"esp\""));
        assert_true(table_says("start= *6144, size= *20480,.*name=\"models\"") ||
                    table_says("start= *6144, size= *122880,.*name=\"models\""));
        writes_left = 1000;
        if (gpt_grow(disk, LARGE, "models", &part) != NULL)
            assert_int_equal(n, 3); /* between entries and header: the copy has it all */
    }
}

static void other_tables_are_refused(void **state)
{
    struct gpt_part part;
    char kept;
    writes_left = 0;
    assert_non_null(gpt_grow(disk, LARGE, "esp", &part)); /* not the last */
    assert_non_null(gpt_grow(disk, LARGE, "model", &part));
    assert_non_null(gpt_grow(disk, LARGE, "models2", &part));
    assert_non_null(gpt_grow(disk, 3 * MIB, "models", &part));
    for (off_t at = 512; at < 512 + 92; at++) { /* each byte of the header */
        assert_int_equal(pread(disk, &kept, 1, at), 1);
        char other = (char)(kept ^ 1);
        assert_int_equal(syscall(SYS_pwrite64, disk, &other, 1, at), 1);
        assert_non_null(gpt_grow(disk, LARGE, "models", &part));
        assert_int_equal(syscall(SYS_pwrite64, disk, &kept, 1, at), 1);
    }
    assert_int_equal(syscall(SYS_pwrite64, disk, "x", 1, (off_t)1024 + 100), 1);
    assert_non_null(gpt_grow(disk, LARGE, "models", &part));
    assert_int_equal(fresh(state), 0);
    assert_null(gpt_grow(disk, SMALL, "models", &part)); /* as large as it was */
    assert_int_equal(ftruncate(disk, 1024), 0);
    assert_non_null(gpt_grow(disk, LARGE, "models", &part));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc),
        cmocka_unit_test_setup(grows_to_the_end, fresh),
        cmocka_unit_test_setup(a_cut_leaves_a_table, fresh),
        cmocka_unit_test_setup(other_tables_are_refused, fresh),
    };
    return cmocka_run_group_tests_name("gpt", tests, NULL, end);
}
