/* The GPU payload: the line that names it, byte by byte; numbers of devices; a system without one.
 */
#include "init/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SALT "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define LINE HASH " " SALT " 60000 580.65.06\n"

static bool parses(const char *text, size_t n)
{
    struct verity v;
    char *exact = malloc(n > 0 ? n : 1); /* so that a read behind the end is seen */
    memcpy(exact, text, n);
    bool good = verity_parse(&v, exact, n);
    free(exact);
    return good;
}

static void a_line_names_a_payload(void **state)
{
    (void)state;
    struct verity v;
    assert_true(verity_parse(&v, LINE, strlen(LINE)));
    assert_string_equal(v.root, HASH);
    assert_string_equal(v.salt, SALT);
    assert_int_equal(v.blocks, 60000);
    assert_string_equal(v.version, "580.65.06");
    for (size_t n = 0; n < strlen(LINE); n++)
        assert_false(parses(LINE, n));
    for (size_t i = 0; i < strlen(LINE); i++) {
        char changed[] = LINE;
        changed[i] = 'G';
        assert_false(parses(changed, strlen(LINE)));
    }
    static const char *const BAD[] = {LINE "x",
                                      LINE LINE,
                                      HASH " " SALT " 0 1\n",
                                      HASH "0 " SALT " 1 1\n",
                                      HASH " " SALT " -1 1\n",
                                      HASH " " SALT " 9999999999999 1\n",
                                      HASH " " SALT " 1 1; rm\n",
                                      HASH " " SALT " 1\n"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(parses(BAD[i], strlen(BAD[i])));
}

static void numbers_of_devices(void **state)
{
    (void)state;
    static const char TEXT[] = "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\n"
                               "Block devices:\n  7 loop\n254 nvidia-other\n";
    assert_int_equal(gpu_major(TEXT, strlen(TEXT), "nvidia-uvm"), 511);
    assert_int_equal(gpu_major(TEXT, strlen(TEXT), "nvidia"), 195);
    assert_int_equal(gpu_major(TEXT, strlen(TEXT), "mem"), 1);
    assert_int_equal(gpu_major(TEXT, strlen(TEXT), "nvidia-other"), -1); /* no character device */
    assert_int_equal(gpu_major(TEXT, strlen(TEXT), "uvm"), -1);
    assert_int_equal(gpu_major("", 0, "nvidia"), -1);
}

static void a_file_is_read_to_its_end(void **state)
{
    (void)state;
    char path[] = "/tmp/test_init_gpu.XXXXXX";
    static char bytes[3 * VERITY_BLOCK_BYTES];
    struct verity v = {.blocks = 3};
    uint64_t bad = 0;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    assert_true(verity_read_all(&v, path, &bad));
    assert_int_equal(ftruncate(fd, VERITY_BLOCK_BYTES), 0);
    assert_false(verity_read_all(&v, path, &bad));
    assert_int_equal(bad, VERITY_BLOCK_BYTES);
    close(fd);
    unlink(path);
    assert_false(verity_read_all(&v, path, &bad));
    assert_int_equal(bad, 0);
}

/* The machine of a developer names none. */
static void a_system_without_one_is_as_it_should_be(void **state)
{
    (void)state;
    struct gpu gpu;
    static const struct disk disk;
    char bytes[64];
    struct text note = text_over(bytes, sizeof bytes);
    assert_true(gpu_open(&gpu, &disk, 0, &note));
    assert_false(gpu.wanted);
    assert_false(gpu.ready);
    assert_int_equal(note.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_names_a_payload),
                                       cmocka_unit_test(numbers_of_devices),
                                       cmocka_unit_test(a_file_is_read_to_its_end),
                                       cmocka_unit_test(a_system_without_one_is_as_it_should_be)};
    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
