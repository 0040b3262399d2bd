/*
 * The JSON reader and printer: what is refused and where, what is kept, what Python prints, and
 * that hostile input costs bounded time and memory.
 */
#include "engine/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Parses a copy that ends where its allocation ends, so that a sanitizer sees one byte too far. */
static enum status parse(const char *text, size_t len, struct json_object **out, size_t *offset,
                         struct error *err)
{
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    enum status status = json_parse(copy, len, out, offset, err);
    free(copy);
    return status;
}

static struct json_object *parse_ok(const char *text)
{
    struct json_object *value = NULL;
    struct error err = {0};
    if (parse(text, strlen(text), &value, NULL, &err) != OK)
        fail_msg("%s: %s", text, err.text);
    return value;
}

static void expect_dump(const char *text, const char *kept, const char *normal)
{
    struct buf out = {0};
    struct json_object *value = parse_ok(text);
    json_dump(&out, value);
    assert_string_equal(buf_cstr(&out), kept);
    out.len = 0;
    json_dump_normal(&out, value);
    assert_string_equal(buf_cstr(&out), normal);
    json_object_put(value);
    buf_free(&out);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void test_print(void **state)
{
    (void)state;
    static const struct {
        const char *text, *kept, *normal; /* NULL: as kept */
    } CASES[] = {
        {"null", "null", NULL},
        {" [ ] ", "[]", NULL},
        {"{\t}\r\n", "{}", NULL},
        {"[1,2 ,\n3]", "[1, 2, 3]", NULL},
        {"{\"b\":1,\"a\":{\"z\":[],\"y\":[{}]}}", "{\"b\": 1, \"a\": {\"z\": [], \"y\": [{}]}}",
         NULL},
        {"[true,false,null]", "[true, false, null]", NULL},
        {"\"\\u00e9\\ud83d\\ude00\\/\"", "\"\xC3\xA9\xF0\x9F\x98\x80/\"", NULL},
        {"\"\\u0000\\u001f\\u007f\\b\\f\\n\\r\\t\\\\\\\"\"",
         "\"\\u0000\\u001f\x7F\\b\\f\\n\\r\\t\\\\\\\"\"", NULL},
        {"\"\\ud83d\"", "\"\xEF\xBF\xBD\"", NULL},
        {"\"\\ude00\\ud83d\"", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"", NULL},
        {"\"\\ud83dx\\ud83d\\n\"", "\"\xEF\xBF\xBDx\xEF\xBF\xBD\\n\"", NULL},
        {"\"\\ud83d\\ud83d\\ude00\"", "\"\xEF\xBF\xBD\xF0\x9F\x98\x80\"", NULL},
        {"{\"\":{\"\":0}}", "{\"\": {\"\": 0}}", NULL},
        {"[9223372036854775807,9223372036854775808,18446744073709551615,18446744073709551616]",
         "[9223372036854775807, 9223372036854775808, 18446744073709551615, 18446744073709551616]",
         NULL},
        {"[-9223372036854775808,-9223372036854775809,-18446744073709551615]",
         "[-9223372036854775808, -9223372036854775809, -18446744073709551615]", NULL},
        {"123456789012345678901234567890", "123456789012345678901234567890", NULL},
        {"[-0,-0.0,1.0,1000.0]", "[-0, -0.0, 1.0, 1000.0]", "[0, -0.0, 1.0, 1000.0]"},
        {"{\"a\":[1e5,1.50]}", "{\"a\": [1e5, 1.50]}", "{\"a\": [100000.0, 1.5]}"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        expect_dump(CASES[i].text, CASES[i].kept,
                    CASES[i].normal != NULL ? CASES[i].normal : CASES[i].kept);
}

/* json.dumps(json.loads(text)) of CPython 3.11. */
static void test_floats_as_python(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"1e5", "100000.0"},
        {"1.50", "1.5"},
        {"1E400", "Infinity"},
        {"-1e400", "-Infinity"},
        {"0.1e-7", "1e-08"},
        {"100e-2", "1.0"},
        {"-0.0", "-0.0"},
        {"0.0", "0.0"},
        {"5e-324", "5e-324"},
        {"1e16", "1e+16"},
        {"9999999999999998.0", "9999999999999998.0"},
        {"123456789012345680.0", "1.2345678901234568e+17"},
        {"1e15", "1000000000000000.0"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"5.684341886080802e-14", "5.684341886080802e-14"},
        {"9.5367431640625e-07", "9.5367431640625e-07"},
        {"0.1", "0.1"},
        {"1e22", "1e+22"},
        {"1e23", "1e+23"},
        {"4.35", "4.35"},
        {"72057594037927936.0", "7.205759403792794e+16"},
        {"3.0000000000000004", "3.0000000000000004"},
        {"0.00012345", "0.00012345"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        expect_dump(CASES[i][0], CASES[i][0], CASES[i][1]);
}

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Whatever is printed for a double reads back as the same double, in at most 17 digits. */
static void test_floats_round_trip(void **state)
{
    (void)state;
    uint64_t seed = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random_next(&seed);
        double value;
        if (i % 4 == 0)
            bits &= 0xFFF0000000000000u; /* powers of two: uneven gaps */
        memcpy(&value, &bits, sizeof value);
        if (value != value || value - value != 0)
            continue;
        struct buf out = {0};
        struct json_object *object = json_object_new_double(value);
        json_dump(&out, object);
        double back = strtod(buf_cstr(&out), NULL);
        assert_memory_equal(&back, &value, sizeof back);
        assert_true(out.len <= 24);
        json_object_put(object);
        buf_free(&out);
    }
}

static void test_types(void **state)
{
    (void)state;
    struct json_object *value = parse_ok("[5, 5.0, -0, 99999999999999999999, null, \"a\\u0000b\"]");
    static const enum json_type TYPES[] = {json_type_int,    json_type_double, json_type_double,
                                           json_type_double, json_type_null,   json_type_string};
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        assert_int_equal(json_object_get_type(json_object_array_get_idx(value, i)), TYPES[i]);
    struct json_object *string = json_object_array_get_idx(value, 5);
    assert_int_equal(json_object_get_string_len(string), 3);
    assert_memory_equal(json_object_get_string(string), "a\0b", 3);
    json_object_put(value);
}

static void test_member(void **state)
{
    (void)state;
    struct json_object *value = parse_ok("{\"n\":null,\"x\":1}");
    bool is_null = true;
    assert_int_equal(json_object_get_int(json_member(value, "x", &is_null)), 1);
    assert_false(is_null);
    assert_null(json_member(value, "n", &is_null));
    assert_true(is_null);
    assert_null(json_member(value, "absent", &is_null));
    assert_false(is_null);
    assert_null(json_member(json_member(value, "x", NULL), "below", NULL));
    json_set(value, "x", json_object_new_string("new"));
    json_set(value, "y", NULL);
    struct buf out = {0};
    json_dump(&out, value);
    assert_string_equal(buf_cstr(&out), "{\"n\": null, \"x\": \"new\", \"y\": null}");
    buf_free(&out);
    json_object_put(value);
}

/* The tables of finished objects are shrunk: every member must still be found, at every size. */
static void test_members_of_every_size(void **state)
{
    (void)state;
    for (int n = 0; n < 1200; n += n < 40 ? 1 : 29) {
        struct buf text = {0};
        char key[16];
        for (int i = 0; i < n; i++)
            buf_printf(&text, "%s\"k%d\":%d", i > 0 ? "," : "{", i, i);
        buf_puts(&text, n > 0 ? "}" : "{}");
        struct json_object *value = parse_ok(buf_cstr(&text));
        assert_int_equal(json_object_object_length(value), n);
        for (int i = 0; i < n; i++) {
            snprintf(key, sizeof key, "k%d", i);
            assert_int_equal(json_object_get_int(json_member(value, key, NULL)), i);
        }
        assert_null(json_member(value, "k-1", NULL));
        json_object_put(value);
        buf_free(&text);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t offset;
    } CASES[] = {
        {"", 0},
        {"  ", 2},
        {"\xEF\xBB\xBF{}", 0}, /* byte order mark */
        {"{} x", 3},
        {"[1]]", 3},
        {"[1}", 2},
        {"{\"a\":1]", 6},
        {"[1,]", 3},
        {"[,1]", 1},
        {"{\"a\":1,}", 7},
        {"{,}", 1},
        {"{a:1}", 1},
        {"{'a':1}", 1},
        {"{\"a\" 1}", 5},
        {"{\"a\":}", 5},
        {"{1:2}", 1},
        {"[1 2]", 3},
        {"nul", 0},
        {"nullx", 4},
        {"True", 0},
        {"NaN", 0},
        {"[Infinity]", 1},
        {"[-Infinity]", 1},
        {"/* c */ 1", 0},
        {"[1] // c", 4},
        {"01", 0},
        {"-", 0},
        {"-01", 0},
        {"+1", 0},
        {".5", 0},
        {"1.", 0},
        {"1.e5", 0},
        {"1e", 0},
        {"1e+", 0},
        {"0x10", 1},
        {"\"a", 2},
        {"\"a\\", 3},
        {"\"\\x41\"", 2},
        {"\"\\u12g4\"", 2},
        {"\"\\u12", 2},
        {"\"a\nb\"", 2},
        {"\"a\tb\"", 2},
        {"\"\x80\"", 1},
        {"\"\xC0\x80\"", 1},         /* overlong */
        {"\"\xE0\x80\x80\"", 1},     /* overlong */
        {"\"\xED\xA0\x80\"", 1},     /* surrogate */
        {"\"\xF4\x90\x80\x80\"", 1}, /* beyond U+10FFFF */
        {"\"\xE2\x82\"", 1},
        {"\"\xF0\x9F\x98", 1},
        {"{\"a\":1,\"a\":2}", 7},
        {"{\"a\":1,\"\\u0061\":2}", 7}, /* the same key, written otherwise */
        {"[{\"x\":{\"k\":1,\"l\":2,\"k\":3}}]", 19},
        {"{\"a\\u0000b\":1}", 1},
        {"[\"\xFF\"", 2},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct json_object *value = (struct json_object *)1; /* must stay untouched */
        struct error err = {0};
        size_t offset = SIZE_MAX;
        if (parse(CASES[i].text, strlen(CASES[i].text), &value, &offset, &err) != ERR_INPUT)
            fail_msg("accepted: %s", CASES[i].text);
        if (offset != CASES[i].offset)
            fail_msg("%s: offset %zu, expected %zu", CASES[i].text, offset, CASES[i].offset);
        assert_ptr_equal(value, (struct json_object *)1);
    }
}

static void test_nul_bytes(void **state)
{
    (void)state;
    static const char IN_STRING[] = "\"a\0b\"", BEHIND[] = "1\0";
    struct json_object *value = NULL;
    size_t offset;
    assert_int_equal(parse(IN_STRING, 5, &value, &offset, NULL), ERR_INPUT);
    assert_int_equal(offset, 2);
    assert_int_equal(parse(BEHIND, 2, &value, &offset, NULL), ERR_INPUT);
    assert_int_equal(offset, 1);
}

static void test_no_excerpt_in_errors(void **state)
{
    (void)state;
    struct json_object *value;
    struct error err = {0};
    static const char TEXT[] = "{\"SECRET\":\"SECRET\",\"SECRET\":1}";
    assert_int_equal(parse(TEXT, sizeof TEXT - 1, &value, NULL, &err), ERR_INPUT);
    assert_null(strstr(err.text, "SECRET"));
    assert_non_null(strstr(err.text, "duplicate key"));
    assert_non_null(strstr(err.text, "byte 19"));
}

static void test_depth(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        text.len = 0;
        for (int i = 0; i < depth; i++)
            buf_puts(&text, i % 2 == 0 ? "[" : "{\"a\":");
        buf_puts(&text, "0");
        for (int i = depth - 1; i >= 0; i--)
            buf_puts(&text, i % 2 == 0 ? "]" : "}");
        struct json_object *value = NULL;
        enum status status = parse(text.data, text.len, &value, NULL, NULL);
        assert_int_equal(status, depth <= JSON_DEPTH_MAX ? OK : ERR_INPUT);
        if (status == OK) {
            struct buf out = {0};
            json_dump(&out, value); /* the printer goes as deep */
            assert_int_equal(out.len,
                             text.len + JSON_DEPTH_MAX / 2); /* a blank behind each colon */
            buf_free(&out);
        }
        json_object_put(value);
    }
    buf_free(&text);
}

static void fill(struct buf *text, const char *piece, size_t bytes)
{
    size_t len = strlen(piece);
    while (text->len + len <= bytes)
        buf_add(text, piece, len);
}

static void test_large_hostile(void **state)
{
    (void)state;
    static const struct {
        const char *head, *piece, *fault;
    } CASES[] = {
        {"", "[", "nested too deeply"}, {"", "{\"a\":", "nested too deeply"},
        {"[", "0,", "too many values"}, {"\"", "a", "string not closed"},
        {"[", "9", "ends too early"},   {"", " ", "ends too early"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct buf text = {0};
        struct json_object *value;
        struct error err = {0};
        buf_puts(&text, CASES[i].head);
        fill(&text, CASES[i].piece, 16 << 20);
        assert_int_equal(json_parse(text.data, text.len, &value, NULL, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, CASES[i].fault));
        buf_free(&text);
    }
}

/* ---- fuzz ------------------------------------------------------------------------------------ */

static void read_file(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "rb");
    char chunk[4096];
    size_t n;
    assert_non_null(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buf_add(out, chunk, n);
    fclose(file);
}

/* What is accepted must print to a text that reads and prints the same; what is not must say where.
 */
static void check_any(const char *text, size_t len)
{
    struct json_object *value = NULL, *again = NULL;
    size_t offset = SIZE_MAX;
    struct buf first = {0}, second = {0};
    if (parse(text, len, &value, &offset, NULL) != OK) {
        assert_true(offset <= len);
        return;
    }
    json_dump(&first, value);
    assert_int_equal(json_parse(first.data, first.len, &again, NULL, NULL), OK);
    json_dump(&second, again);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    json_object_put(value);
    json_object_put(again);
    buf_free(&first);
    buf_free(&second);
}

static void test_fuzz(void **state)
{
    (void)state;
    static const char PALETTE[] = "{}[]\":,\\u0e-.+tfn \x80\xE2\xF0\xFF";
    struct buf text = {0};
    uint64_t seed = 20261129;
    read_file("tests/data/encoding/test_input_3.json", &text);
    for (size_t cut = 0; cut < text.len; cut += 7)
        check_any(text.data, cut);
    for (int i = 0; i < 4000; i++) {
        uint64_t r = random_next(&seed);
        size_t at = (size_t)(r >> 8) % text.len;
        char old = text.data[at];
        text.data[at] = r & 1 ? PALETTE[(r >> 40) % (sizeof PALETTE - 1)] : (char)(r >> 48);
        check_any(text.data, text.len);
        text.data[at] = old;
    }
    buf_free(&text);
}

/* A complete object is no longer one when any byte is missing at its end. */
static void test_every_prefix_is_refused(void **state)
{
    (void)state;
    static const char TEXT[] = "{\"a\":[1,-2.5e+7,\"\\ud83d\\ude00\xE2\x82\xAC\\n\",true,null,{}]}";
    struct json_object *value = NULL;
    for (size_t len = 0; len < sizeof TEXT - 1; len++)
        assert_int_equal(parse(TEXT, len, &value, NULL, NULL), ERR_INPUT);
    assert_int_equal(parse(TEXT, sizeof TEXT - 1, &value, NULL, NULL), OK);
    json_object_put(value);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/v4box-json-XXXXXX";
    struct json_object *value = NULL;
    struct error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\" 1}", 7), 7);
    close(fd);
    assert_int_equal(json_parse_file(path, 100, &value, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "byte 5"));
    assert_int_equal(json_parse_file(path, 6, &value, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "larger than 6 bytes"));
    unlink(path);
    assert_int_equal(json_parse_file(path, 100, &value, &err), ERR_IO);
    assert_non_null(strstr(err.text, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_floats_as_python),
        cmocka_unit_test(test_floats_round_trip),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_member),
        cmocka_unit_test(test_members_of_every_size),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_no_excerpt_in_errors),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_large_hostile),
        cmocka_unit_test(test_fuzz),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
