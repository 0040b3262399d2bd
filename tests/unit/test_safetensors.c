/* Safetensors headers: a good one, hostile ones by table, every truncation, every byte changed. */
#include "engine/base/buf.h"
#include "engine/model/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- files in memory ------------------------------------------------------------------------ */

static int file_fd;
static char file_path[64];

static int open_file(void **state)
{
    (void)state;
    file_fd = memfd_create("safetensors", MFD_CLOEXEC);
    snprintf(file_path, sizeof file_path, "/proc/self/fd/%d", file_fd);
    return file_fd < 0;
}

static int close_file(void **state)
{
    (void)state;
    return close(file_fd);
}

static void file_set(const void *bytes, size_t n)
{
    assert_int_equal(ftruncate(file_fd, 0), 0);
    assert_int_equal(pwrite(file_fd, bytes, n, 0), n);
}

/* Length word, header and data bytes that count 0, 1, 2, .. */
static void file_image(struct buf *out, const char *header, uint64_t length, size_t data_bytes)
{
    for (int i = 0; i < 8; i++) {
        uint8_t byte = (uint8_t)(length >> (8 * i));
        buf_add(out, &byte, 1);
    }
    buf_puts(out, header);
    for (size_t i = 0; i < data_bytes; i++) {
        uint8_t byte = (uint8_t)i;
        buf_add(out, &byte, 1);
    }
}

static enum status open_header(const char *header, uint64_t length, size_t data_bytes,
                               struct safetensors *out, struct error *err)
{
    struct buf image = {0};
    file_image(&image, header, length, data_bytes);
    file_set(image.data, image.len);
    buf_free(&image);
    return safetensors_open(file_path, out, err);
}

/* ---- a good file ---------------------------------------------------------------------------- */

#define GOOD                                                                                       \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                       \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[6,30]},"                           \
    "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"                      \
    "\"c\":{\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[30,38]}}  "
#define GOOD_DATA 38

/* What the rest of the engine builds on: every byte of every entry is inside the file. */
static unsigned touch(const struct safetensors *f)
{
    unsigned sum = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct safetensors_entry *e = &f->entries[i];
        assert_true(e->dims == 1 || e->dims == 2);
        assert_true(e->shape[0] > 0 && e->shape[1] > 0);
        assert_int_equal(e->bytes, (uint64_t)e->shape[0] * (uint64_t)e->shape[1] *
                                       (uint64_t)safetensors_element_bytes(e->dtype));
        assert_true(e->data >= f->map.data && e->data + e->bytes <= f->map.data + f->map.size);
        for (const char *c = e->name; *c != '\0'; c++)
            assert_true(*c > ' ' && *c <= '~');
        for (uint64_t k = 0; k < e->bytes; k++)
            sum += e->data[k];
        total += e->bytes;
    }
    assert_true(total <= f->map.size);
    return sum;
}

static void test_good(void **state)
{
    (void)state;
    struct safetensors f;
    struct error err = {0};
    assert_int_equal(open_header(GOOD, strlen(GOOD), GOOD_DATA, &f, &err), OK);
    assert_int_equal(f.count, 3);
    assert_string_equal(f.entries[0].name, "a.weight"); /* data order, not header order */
    assert_string_equal(f.entries[0].dtype, "BF16");
    assert_int_equal(f.entries[0].dims, 1);
    assert_int_equal(f.entries[0].shape[0], 3);
    assert_int_equal(f.entries[0].data[5], 5);
    assert_string_equal(f.entries[1].name, "b");
    assert_int_equal(f.entries[1].shape[1], 3);
    assert_int_equal(f.entries[1].data[0], 6);
    assert_string_equal(f.entries[2].name, "c");
    assert_int_equal(f.entries[2].bytes, 8);
    assert_int_equal(touch(&f), (GOOD_DATA - 1) * GOOD_DATA / 2);
    safetensors_close(&f);
}

/* ---- hostile headers ------------------------------------------------------------------------ */

#define ONE(fields) "{\"x\":{" fields "}}"
#define SHAPE(dtype, shape, offsets)                                                               \
    ONE("\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets)
#define PAIR(first, second)                                                                        \
    "{\"x\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":" first "},"                          \
    "\"y\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":" second "}}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *says; /* part of the error text */
} HOSTILE[] = {
    {SHAPE("I8", "[4]", "[0,4]"), 4, NULL}, /* the table's own control: this one is good */
    {"", 0, "invalid JSON"},
    {"[]", 0, "not a JSON object"},
    {"null", 0, "not a JSON object"},
    {"{\"x\":1}", 0, "tensor x: expected dtype"},
    {"{\"x\":null}", 0, "tensor x: expected dtype"},
    {"{\"__metadata__\":3}", 0, "__metadata__"},
    {"{\"__metadata__\":null}", 0, "__metadata__"},
    {"{\"x\":{},\"x\":{}}", 0, "duplicate key"},
    {ONE("\"dtype\":\"I8\",\"shape\":[4]"), 4, "tensor x: expected dtype"},
    {ONE("\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4],\"extra\":1"), 4, "nothing else"},
    {ONE("\"dtype\":\"I8\",\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, "duplicate"},
    {ONE("\"dtype\":\"I8\",\"shape\":[4],\"offsets\":[0,4]"), 4, "tensor x: data_offsets"},
    {SHAPE("F16", "[2]", "[0,4]"), 4, "tensor x: dtype"},
    {SHAPE("", "[2]", "[0,4]"), 4, "tensor x: dtype"},
    {SHAPE("i8", "[4]", "[0,4]"), 4, "tensor x: dtype"},
    {ONE("\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]"), 4, "tensor x: dtype"},
    {SHAPE("I8", "4", "[0,4]"), 4, "tensor x: shape"},
    {SHAPE("I8", "[]", "[0,2]"), 2, "tensor x: 2 bytes"},
    {SHAPE("I8", "[1,2,2]", "[0,4]"), 4, "tensor x: shape"},
    {SHAPE("I8", "[0]", "[0,0]"), 0, "tensor x: shape[0]"},
    {SHAPE("I8", "[4,0]", "[0,0]"), 0, "tensor x: shape[1]"},
    {SHAPE("I8", "[-4]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[-2,-2]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[4.0]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[\"4\"]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[null]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[9223372036854775807]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[18446744073709551620]", "[0,4]"), 4, "tensor x: shape[0]"},
    {SHAPE("I8", "[4294967296,4294967296]", "[0,0]"), 0, "do not hold"}, /* 2^64 wraps to 0 */
    {SHAPE("F32", "[4611686018427387904]", "[0,0]"), 0, "do not hold"},
    {SHAPE("F32", "[4611686018427387905]", "[0,4]"), 4, "do not hold"},
    {SHAPE("I8", "[5]", "[0,4]"), 4, "do not hold"},
    {SHAPE("I8", "[3]", "[0,4]"), 4, "do not hold"},
    {SHAPE("BF16", "[4]", "[0,4]"), 4, "do not hold"},
    {SHAPE("I8", "[4]", "[0,4,4]"), 4, "tensor x: data_offsets"},
    {SHAPE("I8", "[4]", "{}"), 4, "tensor x: data_offsets"},
    {SHAPE("I8", "[4]", "[4,0]"), 4, "tensor x: data_offsets"},
    {SHAPE("I8", "[4]", "[-4,0]"), 4, "tensor x: data_offsets"},
    {SHAPE("I8", "[4]", "[0,4.0]"), 4, "tensor x: data_offsets"},
    {SHAPE("I8", "[4]", "[0,5]"), 4, "behind the file"},
    {SHAPE("I8", "[4]", "[0,4]"), 3, "behind the file"},
    {SHAPE("I8", "[4]", "[9223372036854775800,9223372036854775804]"), 4, "behind the file"},
    {SHAPE("I8", "[4]", "[18446744073709551612,18446744073709551616]"), 4, "data_offsets"},
    {SHAPE("I8", "[4]", "[1,5]"), 5, "tensor x: begins at 1, apart from"},
    {SHAPE("I8", "[4]", "[0,4]"), 5, "1 bytes behind the last tensor"},
    {PAIR("[0,4]", "[0,4]"), 8, "inside"},
    {PAIR("[0,4]", "[3,7]"), 8, "tensor y: begins at 3, inside"},
    {PAIR("[0,4]", "[5,9]"), 9, "tensor y: begins at 5, apart from"},
    {PAIR("[4,8]", "[0,4]"), 8, NULL}, /* header order is free */
    {"{\"\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "name is empty"},
    {"{\"a b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "not plain"},
    {"{\"a\\n\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "not plain"},
    {"{\"a\\u001b[2J\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "not plain"},
    {"{\"\xC3\xA4\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "not plain"},
    {"{\"a\\u0000b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "NUL"},
    {"{\"x\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}} {}", 4, "invalid JSON"},
};

static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof HOSTILE / sizeof HOSTILE[0]; i++) {
        struct safetensors f = {0};
        struct error err = {0};
        const char *header = HOSTILE[i].header;
        enum status status = open_header(header, strlen(header), HOSTILE[i].data_bytes, &f, &err);
        if (HOSTILE[i].says == NULL) {
            if (status != OK)
                fail_msg("row %zu: %s", i, err.text);
            touch(&f);
            safetensors_close(&f);
            continue;
        }
        if (status != ERR_INPUT || strstr(err.text, HOSTILE[i].says) == NULL)
            fail_msg("row %zu: status %d, '%s' lacks '%s'", i, (int)status, err.text,
                     HOSTILE[i].says);
        assert_non_null(strstr(err.text, file_path));
        assert_null(f.map.data);
    }
}

static void test_long_name(void **state)
{
    (void)state;
    for (int n = TENSOR_NAME_BYTES - 1; n <= TENSOR_NAME_BYTES; n++) {
        struct buf header = {0};
        buf_puts(&header, "{\"");
        for (int i = 0; i < n; i++)
            buf_puts(&header, "n");
        buf_puts(&header, "\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}");
        struct safetensors f = {0};
        enum status status = open_header(buf_cstr(&header), header.len, 4, &f, NULL);
        assert_int_equal(status, n < TENSOR_NAME_BYTES ? OK : ERR_INPUT);
        if (status == OK)
            safetensors_close(&f);
        buf_free(&header);
    }
}

static void test_header_length(void **state)
{
    (void)state;
    static const uint64_t WRONG[] = {0,
                                     1,
                                     sizeof GOOD - 4, /* cuts the closing brace and the padding */
                                     sizeof GOOD + GOOD_DATA,
                                     SAFETENSORS_HEADER_BYTES_MAX,
                                     UINT32_MAX,
                                     INT64_MAX,
                                     (uint64_t)INT64_MAX + 1,
                                     UINT64_MAX - 7,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        struct safetensors f;
        struct error err = {0};
        assert_int_equal(open_header(GOOD, WRONG[i], GOOD_DATA, &f, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "header"));
    }
    /* A header that fits the file but not the limit. */
    struct safetensors f;
    struct error err = {0};
    open_header(GOOD, SAFETENSORS_HEADER_BYTES_MAX + 1, GOOD_DATA, &f, &err);
    assert_int_equal(ftruncate(file_fd, SAFETENSORS_HEADER_BYTES_MAX + 100), 0);
    assert_int_equal(safetensors_open(file_path, &f, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "more than"));
}

static void test_truncations(void **state)
{
    (void)state;
    struct buf image = {0};
    file_image(&image, GOOD, strlen(GOOD), GOOD_DATA);
    for (size_t n = 0; n < image.len; n++) {
        struct safetensors f;
        file_set(image.data, n);
        assert_int_equal(safetensors_open(file_path, &f, NULL), ERR_INPUT);
    }
    struct safetensors f;
    file_set(image.data, image.len);
    assert_int_equal(safetensors_open(file_path, &f, NULL), OK);
    safetensors_close(&f);
    buf_free(&image);
}

/* Every byte of prefix and header takes every value: refused, or still sound. */
static void test_every_byte(void **state)
{
    (void)state;
    struct buf image = {0};
    size_t accepted = 0;
    file_image(&image, GOOD, strlen(GOOD), GOOD_DATA);
    file_set(image.data, image.len);
    for (size_t at = 0; at < 8 + strlen(GOOD); at++) {
        for (int value = 0; value < 256; value++) {
            struct safetensors f;
            uint8_t byte = (uint8_t)value;
            assert_int_equal(pwrite(file_fd, &byte, 1, (off_t)at), 1);
            if (safetensors_open(file_path, &f, NULL) == OK) {
                accepted++;
                touch(&f);
                safetensors_close(&f);
            }
        }
        assert_int_equal(pwrite(file_fd, image.data + at, 1, (off_t)at), 1);
    }
    /* Letters of names and of the metadata may change, and little else. */
    assert_true(accepted > 8 + strlen(GOOD) && accepted < 40 * 256);
    buf_free(&image);
}

static uint32_t random_below(uint32_t n)
{
    static uint64_t random_state = 20260424;
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Several changes at once: bytes replaced, digits above all, and pieces doubled. */
static void test_mutations(void **state)
{
    (void)state;
    struct buf image = {0};
    file_image(&image, GOOD, strlen(GOOD), GOOD_DATA);
    char *copy = malloc(image.len);
    assert_non_null(copy);
    for (int round = 0; round < 20000; round++) {
        static const char LIKELY[] = "0123456789-[]{},:\"e.";
        memcpy(copy, image.data, image.len);
        for (uint32_t k = 1 + random_below(4); k > 0; k--) {
            uint32_t at = 8 + random_below((uint32_t)strlen(GOOD));
            if (random_below(4) == 0) {
                uint32_t from = 8 + random_below((uint32_t)strlen(GOOD));
                uint32_t room = (uint32_t)image.len - (at > from ? at : from);
                memmove(copy + at, copy + from, 1 + random_below(room < 12 ? room : 12));
            } else {
                copy[at] = LIKELY[random_below(sizeof LIKELY - 1)];
            }
        }
        struct safetensors f;
        file_set(copy, image.len);
        if (safetensors_open(file_path, &f, NULL) == OK) {
            touch(&f);
            safetensors_close(&f);
        }
    }
    free(copy);
    buf_free(&image);
}

/* As many tensors as the published checkpoint in one header. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 69187 };
    struct buf header = {0};
    for (int i = 0; i < COUNT; i++)
        buf_printf(&header,
                   "%s\"t.%d\":{\"dtype\":\"I8\",\"shape\":[1,1],\"data_offsets\":[%d,%d]}",
                   i == 0 ? "{" : ",", i, COUNT - 1 - i, COUNT - i);
    buf_puts(&header, "}");
    struct safetensors f;
    struct error err = {0};
    assert_int_equal(open_header(buf_cstr(&header), header.len, COUNT, &f, &err), OK);
    assert_int_equal(f.count, COUNT);
    assert_string_equal(f.entries[0].name, "t.69186");
    touch(&f);
    safetensors_close(&f);
    buf_free(&header);
}

static void test_no_file(void **state)
{
    (void)state;
    struct safetensors f;
    struct error err = {0};
    assert_int_equal(safetensors_open("/proc/self/fd/none", &f, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/proc/self/fd/none"));
    assert_int_equal(safetensors_open("/", &f, &err), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_long_name),   cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_truncations), cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_mutations),   cmocka_unit_test(test_many),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
