/*
 * enum and const: nodes that allow certain values only.  Strings and other scalars become sorted
 * sets of texts; each array or object becomes a node of its own, with every member a constant.
 */
#include "engine/text/schema_compiler.h"
#include "engine/text/schema_number.h"

#include <math.h>
#include <string.h>

/* ---- enum and const -------------------------------------------------------------------------- */

/* The one way in which a scalar other than a string is written. */
static void put_word(struct buf *out, struct json_object *value)
{
    double number = json_object_get_double(value);
    if (json_object_is_type(value, json_type_double) && number == floor(number) &&
        fabs(number) < 0x1p53)
        buf_printf(out, "%.0f", number == 0 ? 0 : number);
    else
        json_dump(out, value);
}

static bool add_text(struct schema_compiler *c, uint32_t path, const char *text, size_t len)
{
    struct grammar *g = schema_compiler_grammar(c);
    if (len > MASK_STRING_LEN_MAX || grammar_add_string(g, text, len) < 0)
        return schema_full(c, path, NULL, "the values of enums are too many or too long");
    return true;
}

static bool add_word(struct schema_compiler *c, uint32_t path, struct json_object *value)
{
    struct buf text = {0};
    put_word(&text, value);
    bool good = add_text(c, path, text.data, text.len);
    buf_free(&text);
    return good;
}

static size_t code_points(struct json_object *string)
{
    const char *text = json_object_get_string(string);
    size_t n = 0;
    for (int i = 0; i < json_object_get_string_len(string); i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Whether the rules that a node holds so far allow a scalar; containers: whether their type. */
static bool allows(const struct grammar_node *node, struct json_object *value)
{
    grammar_units units;
    bool exact;
    switch (json_object_get_type(value)) {
    case json_type_null:
        return node->types & GRAMMAR_NULL;
    case json_type_boolean:
        return node->types & GRAMMAR_BOOLEAN;
    case json_type_int:
    case json_type_double:
        if ((node->types & (schema_is_whole(value) ? GRAMMAR_INTEGER : GRAMMAR_FRACTION)) == 0)
            return false;
        return !node->ranged || (schema_units(value, &units, &exact) && units >= node->units_min &&
                                 (exact ? units <= node->units_max : units < node->units_max));
    case json_type_string:
        return (node->types & GRAMMAR_STRING) && code_points(value) >= node->length_min &&
               code_points(value) <= node->length_max;
    case json_type_array:
        return node->types & GRAMMAR_ARRAY;
    case json_type_object:
        return node->types & GRAMMAR_OBJECT;
    }
    return false;
}

/* The same value: numbers by value, and order of keys means nothing. */
static bool same_value(struct json_object *a, struct json_object *b)
{
    if (schema_is_number(a) && schema_is_number(b))
        return json_object_get_double(a) == json_object_get_double(b);
    return json_object_equal(a, b);
}

/* The values that an enum or a const lists. */
struct listing {
    struct json_object *values; /* of an enum: the array; of a const: the value */
    bool one;                   /* const */
    size_t n;
    uint32_t path;
};

static struct json_object *listed(const struct listing *listing, size_t i)
{
    return listing->one ? listing->values : json_object_array_get_idx(listing->values, i);
}

static bool lists(const struct listing *listing, struct json_object *value)
{
    for (size_t i = 0; i < listing->n; i++) {
        if (same_value(listed(listing, i), value))
            return true;
    }
    return false;
}

/* Keywords that say something of the inside of a container: enum beside them would need a validator
 * of values. */
static const char *const INSIDE[] = {"properties", "required", "additionalProperties",
                                     "items",      "minItems", "maxItems"};

static bool check_inside(struct schema_compiler *c, const struct schema_view *view)
{
    for (int32_t i = 0; i < view->n; i++) {
        for (size_t k = 0; k < sizeof INSIDE / sizeof INSIDE[0]; k++) {
            if (json_object_object_get_ex(view->members[i].schema, INSIDE[k], NULL))
                return schema_refuse(c, view->members[i].path, INSIDE[k],
                                     "is not supported beside arrays or objects in an enum");
        }
    }
    return true;
}

/* Adds one value to what a node may be; `strings` and scalars come in two passes, so that each set
 * is in one piece. */
static bool add_value(struct schema_compiler *c, const struct schema_view *view,
                      struct json_object *value, uint32_t path, bool strings,
                      struct schema_union *parts)
{
    bool string = json_object_is_type(value, json_type_string);
    if (json_object_is_type(value, json_type_array) ||
        json_object_is_type(value, json_type_object)) {
        if (!strings)
            return true;
        if (!check_inside(c, view))
            return false;
        if (parts->n_constants == MASK_THREADS_MAX)
            return schema_full(c, path, NULL, "an enum has too many arrays and objects");
        int32_t constant = schema_constant(c, value, path);
        if (constant >= 0)
            parts->constants[parts->n_constants++] = constant;
        return constant >= 0;
    }
    if (string != strings)
        return true;
    return string ? add_text(c, path, json_object_get_string(value),
                             (size_t)json_object_get_string_len(value))
                  : add_word(c, path, value);
}

/* All enums and consts of a view.  @return -1: failed */
static int find_listings(struct schema_compiler *c, const struct schema_view *view,
                         struct listing listings[2 * MASK_MEMBERS_MAX])
{
    int n = 0;
    size_t work = 1;
    for (int32_t i = 0; i < view->n; i++) {
        const struct schema_member *m = &view->members[i];
        struct json_object *values;
        if (json_object_object_get_ex(m->schema, "const", &values))
            listings[n++] = (struct listing){values, true, 1, m->path};
        if (!json_object_object_get_ex(m->schema, "enum", &values))
            continue;
        if (!json_object_is_type(values, json_type_array)) {
            if (!schema_refuse(c, m->path, "enum", "is not an array"))
                return -1;
            continue;
        }
        size_t length = json_object_array_length(values);
        work *= length > 0 ? length : 1;
        if (length > MASK_ENUM_MAX || work > MASK_ENUM_WORK_MAX) {
            schema_full(c, m->path, "enum", "has too many values");
            return -1;
        }
        listings[n++] = (struct listing){values, false, length, m->path};
    }
    return n;
}

bool schema_build_listed(struct schema_compiler *c, const struct schema_view *view,
                         struct grammar_node *node, struct schema_union *parts)
{
    struct grammar *g = schema_compiler_grammar(c);
    struct listing listings[2 * MASK_MEMBERS_MAX];
    int n = find_listings(c, view, listings);
    if (n <= 0)
        return n == 0;
    struct grammar_set sets[2]; /* words, strings */
    for (int strings = 1; strings >= 0; strings--) {
        uint32_t first = g->n_strings;
        for (size_t i = 0; i < listings[0].n; i++) {
            struct json_object *value = listed(&listings[0], i);
            bool taken = allows(node, value);
            for (int k = 1; k < n; k++)
                taken = taken && lists(&listings[k], value);
            if (taken && !add_value(c, view, value, listings[0].path, strings, parts))
                return false;
        }
        sets[strings] = grammar_close_set(g, first, UINT32_MAX);
    }
    *node = grammar_nothing();
    node->strings_closed = true;
    node->strings = sets[1];
    node->words = sets[0];
    node->types =
        (uint16_t)((sets[1].n > 0 ? GRAMMAR_STRING : 0) | (sets[0].n > 0 ? GRAMMAR_WORD : 0));
    return true;
}

/* ---- single values --------------------------------------------------------------------------- */

static bool build_constant_array(struct schema_compiler *c, struct json_object *value,
                                 uint32_t path, int32_t target)
{
    struct grammar *g = schema_compiler_grammar(c);
    size_t n = json_object_array_length(value);
    uint32_t first = g->n_links;
    for (size_t i = 0; i < n; i++) {
        int32_t item = schema_constant(c, json_object_array_get_idx(value, i), path);
        if (item < 0)
            return false;
        if (grammar_add_link(g, item) < 0)
            return schema_full(c, path, NULL, "the schema has too many places");
    }
    struct grammar_node *node = &g->nodes[target];
    node->types = GRAMMAR_ARRAY;
    node->first_item = first;
    node->n_items = node->items_min = node->items_max = (uint32_t)n;
    return true;
}

static bool build_constant_object(struct schema_compiler *c, struct json_object *value,
                                  uint32_t path, int32_t target)
{
    struct grammar *g = schema_compiler_grammar(c);
    uint32_t first = g->n_strings, link = g->n_links, n = 0;
    json_object_object_foreach(value, name, member)
    {
        int32_t place = schema_constant(c, member, path);
        if (place < 0)
            return false;
        if (n++ == MASK_PROPERTIES_MAX)
            return schema_full(c, path, NULL, "an object of an enum has too many properties");
        if (!add_text(c, path, name, strlen(name)))
            return false;
        if (grammar_add_link(g, place) < 0)
            return schema_full(c, path, NULL, "the schema has too many places");
    }
    struct grammar_node *node = &g->nodes[target];
    node->types = GRAMMAR_OBJECT;
    node->names = grammar_close_set(g, first, link);
    node->first_property = link;
    for (uint32_t i = 0; i < n; i++)
        node->required[i / 64] |= UINT64_C(1) << i % 64;
    return true;
}

bool schema_build_constant(struct schema_compiler *c, struct json_object *value, uint32_t path,
                           int32_t target)
{
    struct grammar *g = schema_compiler_grammar(c);
    if (json_object_is_type(value, json_type_array))
        return build_constant_array(c, value, path, target);
    if (json_object_is_type(value, json_type_object))
        return build_constant_object(c, value, path, target);
    bool string = json_object_is_type(value, json_type_string);
    uint32_t first = g->n_strings;
    if (string ? !add_text(c, path, json_object_get_string(value),
                           (size_t)json_object_get_string_len(value))
               : !add_word(c, path, value))
        return false;
    struct grammar_node *node = &g->nodes[target];
    struct grammar_set set = grammar_close_set(g, first, UINT32_MAX);
    node->types = string ? GRAMMAR_STRING : GRAMMAR_WORD;
    node->strings_closed = string;
    *(string ? &node->strings : &node->words) = set;
    return true;
}
