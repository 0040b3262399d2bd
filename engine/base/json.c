/*
 * The JSON reader: an own strict parser that builds a json-c tree, since json-c's tokener
 * overwrites duplicate keys in silence, saturates integers beyond 64 bits and forgets how a number
 * was written. One pass, linear time, no recursion; the stack is JSON_DEPTH_MAX pointers. Knows no
 * schema; printing lives in json_dump.c.
 */
#include "engine/base/json.h"

#include "engine/base/file.h"
#include "engine/base/utf8.h"
#include "kernels/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What may stand at the next byte that is no white space. */
enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* behind '[' */
    EXPECT_KEY,
    EXPECT_KEY_OR_END, /* behind '{' */
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING, /* the root is complete */
};

struct parser {
    const char *text; /* borrows [len] */
    size_t len, at;
    const char *fault;                         /* NULL while all is well; a constant */
    struct json_object *root;                  /* owns the tree */
    struct json_object *stack[JSON_DEPTH_MAX]; /* open containers, views into the tree */
    int depth;
    enum expect expect;
    struct buf scratch; /* the decoded string, or a number's text */
    struct buf key;     /* the member that the next value belongs to */
    size_t values;
};

static bool fail(struct parser *p, const char *fault)
{
    p->fault = fault;
    return false;
}

/* ---- strings -------------------------------------------------------------------------------- */

static void add_code_point(struct buf *out, uint32_t c)
{
    unsigned char s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char LEAD[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--) {
        s[i] = (unsigned char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    s[0] = (unsigned char)(LEAD[n] | c);
    buf_add(out, s, n);
}

/* The four hex digits at text[at], or -1. */
static int32_t hex4(const struct parser *p, size_t at)
{
    int32_t value = 0;
    if (p->len < 4 || at > p->len - 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = p->text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* \uXXXX with p->at on the 'u'.  A surrogate without its partner becomes U+FFFD: clients cut emoji
 * in half and send the history for ever after (api.md, finding 10). */
static bool parse_unicode_escape(struct parser *p, struct buf *out)
{
    int32_t c = hex4(p, p->at + 1);
    if (c < 0)
        return fail(p, "bad \\u escape");
    p->at += 5;
    if (c >= 0xD800 && c <= 0xDBFF && p->at + 1 < p->len && p->text[p->at] == '\\' &&
        p->text[p->at + 1] == 'u') {
        int32_t low = hex4(p, p->at + 2);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            p->at += 6;
            add_code_point(out, (uint32_t)(0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)));
            return true;
        }
    }
    add_code_point(out, c >= 0xD800 && c <= 0xDFFF ? 0xFFFD : (uint32_t)c);
    return true;
}

static bool parse_escape(struct parser *p, struct buf *out)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    p->at++;
    if (p->at == p->len)
        return fail(p, "string not closed");
    char c = p->text[p->at];
    if (c == 'u')
        return parse_unicode_escape(p, out);
    const char *hit = c != '\0' ? strchr(FROM, c) : NULL;
    if (hit == NULL)
        return fail(p, "bad escape");
    buf_add(out, &TO[hit - FROM], 1);
    p->at++;
    return true;
}

/* Decodes the string whose opening quote is at p->at. */
static bool parse_string(struct parser *p, struct buf *out)
{
    out->len = 0;
    p->at++;
    for (;;) {
        size_t start = p->at;
        unsigned char c = 0;
        while (p->at < p->len) {
            c = (unsigned char)p->text[p->at];
            if (c == '"' || c == '\\' || c < 0x20)
                break;
            if (c < 0x80) {
                p->at++;
                continue;
            }
            struct utf8_char wide = utf8_decode((const uint8_t *)p->text + p->at, p->len - p->at);
            if (wide.kind != UTF8_WHOLE)
                return fail(p, "invalid UTF-8");
            p->at += wide.len;
        }
        buf_add(out, p->text + start, p->at - start);
        if (p->at == p->len)
            return fail(p, "string not closed");
        if (c == '"') {
            p->at++;
            return true;
        }
        if (c != '\\')
            return fail(p, "control character in a string");
        if (!parse_escape(p, out))
            return false;
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* Hangs a complete scalar or an empty container under the innermost open container. */
static void attach(struct parser *p, struct json_object *value)
{
    p->values++;
    if (p->depth == 0) {
        p->root = value;
        p->expect = EXPECT_NOTHING;
        return;
    }
    struct json_object *parent = p->stack[p->depth - 1];
    p->expect = EXPECT_COMMA_OR_END;
    if (json_object_is_type(parent, json_type_array)) {
        ASSERT(json_object_array_add(parent, value) == 0);
        return;
    }
    /* The key was looked up when it was read. */
    ASSERT(json_object_object_add_ex(parent, buf_cstr(&p->key), value,
                                     JSON_C_OBJECT_ADD_KEY_IS_NEW) == 0);
}

static size_t skip_digits(const struct parser *p, size_t at)
{
    while (at < p->len && p->text[at] >= '0' && p->text[at] <= '9')
        at++;
    return at;
}

/* A number that int64 or uint64 holds becomes one; every other keeps its text beside the double. */
static void attach_number(struct parser *p, const char *text, bool integer)
{
    if (integer && strcmp(text, "-0") != 0) {
        errno = 0;
        int64_t value = strtoll(text, NULL, 10);
        if (errno == 0) {
            attach(p, json_object_new_int64(value));
            return;
        }
        errno = 0;
        uint64_t positive = strtoull(text, NULL, 10);
        if (errno == 0 && text[0] != '-') {
            attach(p, json_object_new_uint64(positive));
            return;
        }
    }
    attach(p, json_object_new_double_s(strtod(text, NULL), text));
}

static bool parse_number(struct parser *p)
{
    size_t start = p->at, at = p->at;
    bool integer = true;
    if (p->text[at] == '-')
        at++;
    size_t digits = at;
    at = skip_digits(p, at);
    if (at == digits || (at - digits > 1 && p->text[digits] == '0'))
        return fail(p, "bad number");
    if (at < p->len && p->text[at] == '.') {
        integer = false;
        digits = ++at;
        at = skip_digits(p, at);
        if (at == digits)
            return fail(p, "bad number");
    }
    if (at < p->len && (p->text[at] == 'e' || p->text[at] == 'E')) {
        integer = false;
        at++;
        if (at < p->len && (p->text[at] == '+' || p->text[at] == '-'))
            at++;
        digits = at;
        at = skip_digits(p, at);
        if (at == digits)
            return fail(p, "bad number");
    }
    p->scratch.len = 0;
    buf_add(&p->scratch, p->text + start, at - start);
    p->at = at;
    attach_number(p, buf_cstr(&p->scratch), integer);
    return true;
}

static bool parse_word(struct parser *p)
{
    static const struct {
        const char *text;
        size_t len;
    } WORDS[] = {{"null", 4}, {"true", 4}, {"false", 5}};
    for (size_t i = 0; i < 3; i++) {
        if (p->len - p->at >= WORDS[i].len &&
            memcmp(p->text + p->at, WORDS[i].text, WORDS[i].len) == 0) {
            p->at += WORDS[i].len;
            attach(p, i == 0 ? NULL : json_object_new_boolean(i == 1));
            return true;
        }
    }
    return fail(p, "expected a value");
}

static bool open_container(struct parser *p, bool object)
{
    if (p->depth == JSON_DEPTH_MAX)
        return fail(p, "nested too deeply");
    /* No slots before they are needed: the default of 32 would let "[],[],.." take 100 bytes a
     * byte. */
    struct json_object *value = object ? json_object_new_object() : json_object_new_array_ext(1);
    ASSERT(value != NULL);
    attach(p, value);
    p->stack[p->depth++] = value;
    p->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    p->at++;
    return true;
}

static bool close_container(struct parser *p, char c)
{
    struct json_object *value = p->depth > 0 ? p->stack[p->depth - 1] : NULL;
    bool object = json_object_is_type(value, json_type_object);
    if (value == NULL || c != (object ? '}' : ']'))
        return fail(p, "expected a comma or the end of the container");
    if (object) {
        /* A fresh table has 16 slots (640 bytes).  The new size must stay clear of json-c's load
         * factor of 0.66: were the copy to grow while it is filled, lh_table_resize would note the
         * size asked for, not the real one, and look-ups would miss. */
        struct lh_table *table = json_object_get_object(value);
        int fit = table->count * 5 / 3 + 1;
        if (fit < table->size)
            ASSERT(lh_table_resize(table, fit) == 0);
    }
    p->depth--;
    p->expect = p->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
    p->at++;
    return true;
}

static bool parse_value(struct parser *p, char c)
{
    if (p->values == JSON_VALUES_MAX)
        return fail(p, "too many values");
    if (c == '{' || c == '[')
        return open_container(p, c == '{');
    if (c == '"') {
        if (!parse_string(p, &p->scratch))
            return false;
        attach(p, json_object_new_string_len(p->scratch.len == 0 ? "" : p->scratch.data,
                                             (int)p->scratch.len));
        return true;
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return parse_number(p);
    return parse_word(p);
}

static size_t skip_space(const struct parser *p, size_t at)
{
    while (at < p->len && (p->text[at] == ' ' || p->text[at] == '\n' || p->text[at] == '\r' ||
                           p->text[at] == '\t'))
        at++;
    return at;
}

static bool parse_key(struct parser *p)
{
    size_t start = p->at;
    if (!parse_string(p, &p->key))
        return false;
    /* json-c's keys are C strings: a NUL would make two different keys one. */
    if (p->key.len > 0 && memchr(p->key.data, '\0', p->key.len) != NULL) {
        p->at = start;
        return fail(p, "NUL in a key");
    }
    if (json_object_object_get_ex(p->stack[p->depth - 1], buf_cstr(&p->key), NULL)) {
        p->at = start;
        return fail(p, "duplicate key");
    }
    p->at = skip_space(p, p->at);
    if (p->at == p->len || p->text[p->at] != ':')
        return fail(p, "expected a colon");
    p->at++;
    p->expect = EXPECT_VALUE;
    return true;
}

/* Consumes one token.  p->at is at a byte that is no white space. */
static bool step(struct parser *p)
{
    char c = p->text[p->at];
    switch (p->expect) {
    case EXPECT_VALUE_OR_END:
        return c == ']' ? close_container(p, c) : parse_value(p, c);
    case EXPECT_VALUE:
        return parse_value(p, c);
    case EXPECT_KEY_OR_END:
        if (c == '}')
            return close_container(p, c);
        return c == '"' ? parse_key(p) : fail(p, "expected a key");
    case EXPECT_KEY:
        return c == '"' ? parse_key(p) : fail(p, "expected a key");
    case EXPECT_COMMA_OR_END:
        if (c != ',')
            return close_container(p, c);
        p->at++;
        p->expect = json_object_is_type(p->stack[p->depth - 1], json_type_object) ? EXPECT_KEY
                                                                                  : EXPECT_VALUE;
        return true;
    case EXPECT_NOTHING:
        break;
    }
    return fail(p, "text behind the value");
}

enum status json_parse(const char *text, size_t len, struct json_object **out, size_t *offset,
                       struct error *err)
{
    struct parser p = {.text = text, .len = len, .expect = EXPECT_VALUE};
    if (len > INT32_MAX) /* json-c counts string bytes in an int */
        fail(&p, "text larger than 2 GiB");
    while (p.fault == NULL) {
        p.at = skip_space(&p, p.at);
        if (p.at == len) {
            if (p.expect != EXPECT_NOTHING)
                fail(&p, "the text ends too early");
            break;
        }
        step(&p);
    }
    buf_free(&p.scratch);
    buf_free(&p.key);
    if (p.fault == NULL) {
        *out = p.root;
        return OK;
    }
    json_object_put(p.root);
    if (offset != NULL)
        *offset = p.at;
    return error_set(err, ERR_INPUT, "invalid JSON at byte %zu: %s", p.at, p.fault);
}

enum status json_parse_file(const char *path, size_t bytes_max, struct json_object **out,
                            struct error *err)
{
    struct buf text = {0};
    struct error inner = {0};
    enum status status = file_read(path, bytes_max, &text, err);
    if (status == OK) {
        status = json_parse(text.data, text.len, out, NULL, &inner);
        if (status != OK)
            error_set(err, status, "%s: %s", path, inner.text);
    }
    buf_free(&text);
    return status;
}

struct json_object *json_member(struct json_object *object, const char *key, bool *is_null)
{
    struct json_object *value = NULL;
    bool present = json_object_object_get_ex(object, key, &value);
    if (is_null != NULL)
        *is_null = present && value == NULL;
    return value;
}

const char *json_text(struct json_object *object, const char *key)
{
    struct json_object *value =
        json_object_is_type(object, json_type_object) ? json_member(object, key, NULL) : NULL;
    bool text = value != NULL && json_object_is_type(value, json_type_string) &&
                strlen(json_object_get_string(value)) == (size_t)json_object_get_string_len(value);
    return text ? json_object_get_string(value) : NULL;
}

void json_set(struct json_object *object, const char *key, struct json_object *take_value)
{
    ASSERT(json_object_object_add(object, key, take_value) == 0);
}
