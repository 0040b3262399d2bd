/*
 * The JSON printer: json.dumps(ensure_ascii=False) of Python, byte for byte, in two flavours that
 * differ in numbers only (json.h).  No recursion; the stack is as deep as the reader's.
 */
#include "engine/base/json.h"
#include "kernels/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_dump_string(struct buf *out, const char *text, size_t len)
{
    static const char SHORT[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    buf_add(out, "\"", 1);
    size_t start = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, text + start, i - start);
        start = i + 1;
        if (c >= 0x20)
            buf_printf(out, "\\%c", c);
        else if (SHORT[c] != 0)
            buf_printf(out, "\\%c", SHORT[c]);
        else
            buf_printf(out, "\\u%04x", c);
    }
    buf_add(out, text + start, len - start);
    buf_add(out, "\"", 1);
}

/* ---- numbers -------------------------------------------------------------------------------- */

#define DOUBLE_DIGITS_MAX 17 /* enough to name every double */

/* Adds one unit in the last place to a string of decimal digits; true if it overflowed to 10..0. */
static bool increment_digits(char *digits, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        if (digits[i] != '9') {
            digits[i]++;
            return false;
        }
        digits[i] = '0';
    }
    digits[0] = '1';
    return true;
}

/* The value 0.D1D2.. x 10^point of a digit string. */
static double digits_value(const char *digits, int n, int point)
{
    char text[64];
    snprintf(text, sizeof text, "0.%.*se%d", n, digits, point);
    return strtod(text, NULL);
}

/*
 * The shortest digits that read back as `value` > 0: value = 0.D1D2.. x 10^point.  At a power of
 * two the gap above is twice the gap below, so the upper neighbour of the rounded digits may be the
 * one.
 */
static int shortest_digits(double value, char digits[DOUBLE_DIGITS_MAX + 1], int *point)
{
    for (int n = 1; n <= DOUBLE_DIGITS_MAX; n++) {
        char text[64];
        snprintf(text, sizeof text, "%.*e", n - 1, value);
        digits[0] = text[0];
        memcpy(digits + 1, text + 2, (size_t)(n - 1));
        digits[n] = '\0';
        *point = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1;
        if (digits_value(digits, n, *point) == value)
            return n;
        *point += increment_digits(digits, n) ? 1 : 0;
        if (digits_value(digits, n, *point) == value)
            return n;
    }
    ASSERT(!"17 digits name every double");
    return 0;
}

/* repr(float) of Python: fixed form for 1e-4 <= |value| < 1e16, else an exponent of two digits. */
static void dump_double(struct buf *out, double value)
{
    if (isnan(value)) {
        buf_puts(out, "NaN");
        return;
    }
    if (signbit(value))
        buf_add(out, "-", 1);
    value = fabs(value);
    if (isinf(value) || value == 0) {
        buf_puts(out, value == 0 ? "0.0" : "Infinity");
        return;
    }
    char digits[DOUBLE_DIGITS_MAX + 1];
    int point, n = shortest_digits(value, digits, &point);
    if (point < -3 || point > 16) {
        buf_add(out, digits, 1);
        if (n > 1)
            buf_printf(out, ".%s", digits + 1);
        buf_printf(out, "e%c%02d", point > 0 ? '+' : '-', abs(point - 1));
        return;
    }
    if (point <= 0)
        buf_printf(out, "0.%.*s%s", -point, "000", digits);
    else if (n > point)
        buf_printf(out, "%.*s.%s", point, digits, digits + point);
    else
        buf_printf(out, "%s%.*s.0", digits, point - n, "0000000000000000");
}

static void dump_number(struct buf *out, struct json_object *value, bool normal)
{
    if (json_object_is_type(value, json_type_int)) {
        int64_t number = json_object_get_int64(value);
        if (number == INT64_MAX) /* json-c clips larger ones to it */
            buf_printf(out, "%" PRIu64, json_object_get_uint64(value));
        else
            buf_printf(out, "%" PRId64, number);
        return;
    }
    const char *source = json_object_get_userdata(value);
    if (source == NULL || (normal && strpbrk(source, ".eE") != NULL))
        dump_double(out, json_object_get_double(value));
    else
        buf_puts(out, normal && strcmp(source, "-0") == 0 ? "0" : source);
}

/* ---- trees ---------------------------------------------------------------------------------- */

struct open_container {
    struct json_object *value;
    struct lh_entry *entry; /* object: the next member */
    size_t index;           /* array: the next element */
};

struct printer {
    struct buf *out;
    bool normal;
    struct open_container stack[JSON_DEPTH_MAX];
    int depth;
};

/* Prints a scalar, or opens a container. */
static void begin(struct printer *p, struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        buf_puts(p->out, "null");
        return;
    case json_type_boolean:
        buf_puts(p->out, json_object_get_boolean(value) ? "true" : "false");
        return;
    case json_type_int:
    case json_type_double:
        dump_number(p->out, value, p->normal);
        return;
    case json_type_string:
        json_dump_string(p->out, json_object_get_string(value),
                         (size_t)json_object_get_string_len(value));
        return;
    case json_type_object:
    case json_type_array:
        break;
    }
    bool object = json_object_is_type(value, json_type_object);
    ASSERT(p->depth < JSON_DEPTH_MAX);
    p->stack[p->depth++] = (struct open_container){
        .value = value, .entry = object ? json_object_get_object(value)->head : NULL};
    buf_add(p->out, object ? "{" : "[", 1);
}

/* Prints the next member or element of the innermost container, or closes it. */
static void advance(struct printer *p)
{
    struct open_container *top = &p->stack[p->depth - 1];
    bool object = json_object_is_type(top->value, json_type_object);
    bool more = object ? top->entry != NULL : top->index < json_object_array_length(top->value);
    if (!more) {
        buf_add(p->out, object ? "}" : "]", 1);
        p->depth--;
        return;
    }
    if (top->index++ > 0)
        buf_add(p->out, ", ", 2);
    if (!object) {
        begin(p, json_object_array_get_idx(top->value, top->index - 1));
        return;
    }
    struct lh_entry *entry = top->entry;
    const char *key = lh_entry_k(entry);
    top->entry = entry->next;
    json_dump_string(p->out, key, strlen(key));
    buf_add(p->out, ": ", 2);
    begin(p, (struct json_object *)lh_entry_v(entry));
}

static void dump(struct buf *out, struct json_object *value, bool normal)
{
    struct printer p = {.out = out, .normal = normal};
    begin(&p, value);
    while (p.depth > 0)
        advance(&p);
}

void json_dump(struct buf *out, struct json_object *value)
{
    dump(out, value, false);
}

void json_dump_normal(struct buf *out, struct json_object *value)
{
    dump(out, value, true);
}
