/* manifest.sha256: a good folder, every way in which one can differ, malformed manifests; and the
 * exit codes of `engine verify`. */
#include "common/leaves.h"
#include "engine/base/buf.h"
#include "engine/base/file.h"
#include "engine/commands.h"
#include "engine/model/leafcheck.h"
#include "engine/model/manifest.h"

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

#include <sodium.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
/* Of leaves.sha256, which has one line, ABC. */
#define LEAVES "620a3df236da0af638c2a61c86951463731998f91dbb3ed629f47b9fe00ad118"
#define LISTED LEAVES "  65  leaves.sha256\n"
#define LINES  ABC "  3  abc.txt\n" EMPTY "  0  empty\n" LISTED

static char folder[] = "/tmp/v4box-manifest-XXXXXX";
static const char *const NAMES[] = {"abc.txt", "empty", "extra", LEAVES_MANIFEST, LEAVES_FILE};

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL || mkdir(in_folder("inside"), 0700) != 0)
        return 1;
    file_write(in_folder("inside/unlisted"), "x", 1); /* folders are no part of the model */
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        unlink(in_folder(NAMES[i]));
    unlink(in_folder("inside/unlisted"));
    rmdir(in_folder("inside"));
    return rmdir(folder);
}

static void fresh(const char *manifest)
{
    unlink(in_folder("extra"));
    file_write(in_folder("abc.txt"), "abc", 3);
    file_write(in_folder("empty"), "", 0);
    file_write(in_folder(LEAVES_FILE), ABC "\n", 65);
    file_write(in_folder(LEAVES_MANIFEST), manifest, strlen(manifest));
}

static void expect(enum status wanted, const char *says)
{
    struct manifest_result result = {0};
    struct error err = {0};
    enum status status = manifest_verify(folder, &result, &err);
    if (status != wanted || strstr(err.text, says) == NULL)
        fail_msg("status %d, '%s' lacks '%s'", (int)status, err.text, says);
}

static void test_good(void **state)
{
    (void)state;
    struct manifest_result result = {0};
    fresh(LINES);
    assert_int_equal(manifest_verify(folder, &result, NULL), OK);
    assert_true(result.present);
    assert_int_equal(result.files, 3);
    assert_int_equal(result.bytes, 68);
    unlink(in_folder(LEAVES_MANIFEST));
    assert_int_equal(manifest_verify(folder, &result, NULL), OK);
    assert_false(result.present);
}

static void test_differs(void **state)
{
    (void)state;
    for (int bit = 0; bit < 24; bit++) { /* every bit of the file */
        char text[] = "abc";
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        fresh(LINES);
        file_write(in_folder("abc.txt"), text, 3);
        expect(ERR_CHECK, "abc.txt: SHA-256 differs within the MiB at byte 0");
    }
    fresh(LINES);
    file_write(in_folder("abc.txt"), "abcd", 4);
    expect(ERR_CHECK, "abc.txt: 4 bytes");
    fresh(LINES);
    file_write(in_folder("empty"), "x", 1);
    expect(ERR_CHECK, "empty: 1 bytes");
    fresh(LINES);
    unlink(in_folder("empty"));
    expect(ERR_CHECK, "empty: missing");
    fresh(LINES);
    file_write(in_folder("extra"), "x", 1);
    expect(ERR_CHECK, "extra: not in");
    fresh(EMPTY "  0  empty\n" LISTED);
    expect(ERR_INPUT, "leaves.sha256: not one line for each MiB");
    fresh(LINES);
    expect(OK, "");
}

/* Every leaf of a file of several, and what leaves.sha256 itself may not be. */
static void test_leaves(void **state)
{
    (void)state;
    enum { BYTES = 2 * LEAF_BYTES + 3 };
    static uint8_t bytes[BYTES];
    static struct leaves m = {.file = {{"one", BYTES, 0, 3}, {"two", 0, 3, 0}, {"three", 5, 3, 1}},
                              .files = 3,
                              .count = 4,
                              .bytes = BYTES + 5};
    const struct leafcheck_file files[] = {
        {"one", {bytes, BYTES}}, {"two", {NULL, 0}}, {"three", {bytes, 5}}};
    struct error err = {0};
    const size_t at[] = {0, LEAF_BYTES, 2 * LEAF_BYTES, 0}, n[] = {LEAF_BYTES, LEAF_BYTES, 3, 5};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 13 + i / LEAF_BYTES);
    for (int leaf = 0; leaf < 4; leaf++)
        crypto_hash_sha256(m.hash[leaf], bytes + at[leaf], n[leaf]);
    assert_int_equal(leafcheck(&m, files, &err), OK);
    for (int leaf = 0; leaf < 3; leaf++) {
        char says[64];
        bytes[at[leaf] + n[leaf] - 1] ^= 0x10;
        snprintf(says, sizeof says, "one: SHA-256 differs within the MiB at byte %zu", at[leaf]);
        assert_int_equal(leafcheck(&m, files, &err), ERR_CHECK);
        assert_string_equal(err.text, says);
        bytes[at[leaf] + n[leaf] - 1] ^= 0x10;
    }
    fresh(LINES);
    file_write(in_folder(LEAVES_FILE), ABC "x", 65);
    expect(ERR_CHECK, "leaves.sha256: SHA-256 differs");
    unlink(in_folder(LEAVES_FILE));
    expect(ERR_CHECK, "leaves.sha256: missing");
    fresh(ABC "  3  abc.txt\n" EMPTY "  0  empty\n");
    expect(ERR_INPUT, "manifest.sha256: it does not name leaves.sha256");
    fresh(LEAVES "  64  leaves.sha256\n");
    expect(ERR_INPUT, "and a file of the model");
    fresh(LINES);
    expect(OK, "");
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const LINE[] = {
        "x",
        "\n",
        ABC,
        ABC "  3  abc.txt", /* no newline: cut off */
        ABC " 3  abc.txt\n",
        ABC "  3 abc.txt\n",
        ABC "    abc.txt\n",
        ABC "  -3  abc.txt\n",
        ABC "  3x  abc.txt\n",
        ABC "  18446744073709551616  abc.txt\n",
        ABC "  3  \n",
        ABC "  3  ../abc.txt\n",
        ABC "  3  /etc/passwd\n",
        ABC "  3  inside/unlisted\n",
        ABC "  3  .hidden\n",
        ABC "  3  a\tb\n",
        ABC "  3  a\x1b[2J\n",
        ABC "  3  " LEAVES_MANIFEST "\n",
        "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  3  abc.txt\n",
        "ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  3  abc.txt\n",
        "a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  3  abc.txt\n",
    };
    for (size_t i = 0; i < sizeof LINE / sizeof LINE[0]; i++) {
        struct buf text = {0};
        buf_puts(&text, EMPTY "  0  a\n");
        buf_puts(&text, LINE[i]);
        fresh(buf_cstr(&text));
        expect(ERR_INPUT, "line 2: expected");
        buf_free(&text);
    }
    fresh(LINES ABC "  3  abc.txt\n");
    expect(ERR_INPUT, "line 4: not sorted by name");
    fresh(LINES LISTED);
    expect(ERR_INPUT, "line 4: leaves.sha256 stands in two lines");
    fresh(LINES EMPTY "  549755813888  z\n");
    expect(ERR_INPUT, "line 4: more than a model may have");
    fresh(ABC "  3  a bc\n" LISTED); /* a blank would divide words of the console */
    expect(ERR_INPUT, "line 1: expected");
    /* Cut anywhere: malformed, or a shorter list that leaves a file out. */
    for (size_t n = 0; n < strlen(LINES); n++) {
        struct manifest_result result;
        fresh(LINES);
        file_write(in_folder(LEAVES_MANIFEST), LINES, n);
        assert_int_not_equal(manifest_verify(folder, &result, NULL), OK);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int i = 0; i <= MANIFEST_FILES_MAX; i++)
        buf_printf(&text, EMPTY "  0  f%03d\n", i);
    fresh(buf_cstr(&text));
    expect(ERR_INPUT, "line 513: more than a model may have");
    while (text.len <= MANIFEST_BYTES_MAX)
        buf_puts(&text, "more\n");
    fresh(buf_cstr(&text));
    expect(ERR_INPUT, "larger than");
    buf_free(&text);
    struct manifest_result result;
    assert_int_equal(manifest_verify("/nonexistent", &result, NULL), OK);
    assert_false(result.present);
}

/* ---- engine verify -------------------------------------------------------------------------- */

static int verify(const char *flag, const char *dir)
{
    char name[] = "verify", first[32], second[256];
    char *argv[] = {name, first, second, NULL};
    snprintf(first, sizeof first, "%s", flag);
    snprintf(second, sizeof second, "%s", dir);
    return cmd_verify(dir[0] == '\0' ? 2 : 3, argv);
}

static void test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(verify("--model", "rootfs/models/demo"), 0);
    assert_int_equal(verify("--model", ""), 2);
    assert_int_equal(verify("--folder", "rootfs/models/demo"), 2);
    assert_int_equal(verify("--model", "/nonexistent"), 2);
    fresh(LINES);
    assert_int_equal(verify("--model", folder), 2); /* hashes fit, but there is no model */
    file_write(in_folder("abc.txt"), "abd", 3);
    assert_int_equal(verify("--model", folder), 1);
    file_write(in_folder(LEAVES_MANIFEST), "x", 1);
    assert_int_equal(verify("--model", folder), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_differs),
        cmocka_unit_test(test_leaves), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_exit_codes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
