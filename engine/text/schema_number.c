/* Numbers of a schema in fixed point (schema_number.h). */
#include "engine/text/schema_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static grammar_units power_of_ten(int exponent)
{
    grammar_units power = 1;
    while (exponent-- > 0)
        power *= 10;
    return power;
}

grammar_units schema_units_one(void)
{
    return power_of_ten(MASK_FRACTION_DIGITS_MAX);
}

grammar_units schema_units_limit(void)
{
    return power_of_ten(MASK_WHOLE_DIGITS_MAX + MASK_FRACTION_DIGITS_MAX);
}

/* The digits of a JSON number without the point, and where the point stands among them. */
struct decimal {
    bool negative;
    char digits[512];
    int n, point;
};

static bool decimal_read(const char *text, struct decimal *out)
{
    *out = (struct decimal){.negative = *text == '-', .point = -1};
    text += out->negative ? 1 : 0;
    for (; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.')
            out->point = out->n;
        else if (out->n < (int)sizeof out->digits)
            out->digits[out->n++] = *text;
        else
            return false;
    }
    if (out->point < 0)
        out->point = out->n;
    if (*text != '\0') {
        long exponent = strtol(text + 1, NULL, 10);
        out->point += exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : (int)exponent;
    }
    return true;
}

bool schema_units(struct json_object *value, grammar_units *out, bool *exact)
{
    struct decimal d;
    struct buf text = {0};
    json_dump(&text, value);
    bool read = decimal_read(buf_cstr(&text), &d);
    buf_free(&text);
    if (!read)
        return false;
    grammar_units units = 0;
    *exact = true;
    int n = d.point + MASK_FRACTION_DIGITS_MAX; /* digits that count */
    for (int i = 0; i < n && units < schema_units_limit(); i++) {
        units = units * 10 + (i < d.n ? d.digits[i] - '0' : 0);
        if (units == 0 && i >= d.n)
            break;
    }
    for (int i = n < 0 ? 0 : n; i < d.n; i++)
        *exact = *exact && d.digits[i] == '0';
    if (units > schema_units_limit())
        units = schema_units_limit();
    *out = d.negative ? -units - (*exact ? 0 : 1) : units;
    return true;
}

bool schema_is_number(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

bool schema_is_whole(struct json_object *value)
{
    double number = json_object_get_double(value);
    return json_object_is_type(value, json_type_int) || number == floor(number);
}
