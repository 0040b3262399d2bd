/*
 * Makes nodes of the schemas that hold at a place: every keyword narrows what the ones before it
 * left.  Knows neither $ref nor anyOf (schema.c), and leaves values to schema_values.c.
 */
#include "engine/text/schema_compiler.h"
#include "engine/text/schema_number.h"

#include "kernels/check.h"

#include <string.h>

/* ---- keywords: each narrows a node ----------------------------------------------------------- */

struct rule {
    const char *keyword;
    bool (*apply)(struct schema_compiler *c, const struct schema_member *m, const struct rule *rule,
                  struct json_object *value, struct grammar_node *node);
    uint32_t offset; /* of the member that a count sets */
    bool maximum, exclusive;
};

static const struct {
    const char *name;
    uint16_t types;
} TYPES[] = {
    {"null", GRAMMAR_NULL},     {"boolean", GRAMMAR_BOOLEAN}, {"integer", GRAMMAR_INTEGER},
    {"number", GRAMMAR_NUMBER}, {"string", GRAMMAR_STRING},   {"array", GRAMMAR_ARRAY},
    {"object", GRAMMAR_OBJECT},
};

/* 0: not a type */
static uint16_t type_bits(struct json_object *name)
{
    if (!json_object_is_type(name, json_type_string))
        return 0;
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (strcmp(TYPES[i].name, json_object_get_string(name)) == 0)
            return TYPES[i].types;
    }
    return 0;
}

static bool apply_type(struct schema_compiler *c, const struct schema_member *m,
                       const struct rule *rule, struct json_object *value,
                       struct grammar_node *node)
{
    bool list = json_object_is_type(value, json_type_array);
    size_t n = list ? json_object_array_length(value) : 1;
    uint16_t types = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = type_bits(list ? json_object_array_get_idx(value, i) : value);
        if (bits == 0)
            return schema_refuse(c, m->path, rule->keyword, "is not a type or a list of types");
        types |= bits;
    }
    node->types &= types;
    return true;
}

static bool apply_count(struct schema_compiler *c, const struct schema_member *m,
                        const struct rule *rule, struct json_object *value,
                        struct grammar_node *node)
{
    double count = json_object_get_double(value);
    if (!schema_is_number(value) || !schema_is_whole(value) || count < 0)
        return schema_refuse(c, m->path, rule->keyword, "is not a count");
    uint32_t n = count >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)count;
    uint32_t *at = (uint32_t *)((char *)node + rule->offset);
    if (rule->maximum ? n < *at : n > *at)
        *at = n;
    return true;
}

static bool apply_bound(struct schema_compiler *c, const struct schema_member *m,
                        const struct rule *rule, struct json_object *value,
                        struct grammar_node *node)
{
    grammar_units units;
    bool exact;
    if (!schema_is_number(value) || !schema_units(value, &units, &exact))
        return schema_refuse(c, m->path, rule->keyword, "is not a number of reasonable length");
    if (!node->ranged) {
        node->ranged = true;
        node->units_max = schema_units_limit() - 1;
        node->units_min = -node->units_max;
    }
    /* `units` is the greatest written number that is not above the bound. */
    if (rule->maximum && rule->exclusive && exact)
        units--;
    else if (!rule->maximum && (rule->exclusive || !exact))
        units++;
    if (rule->maximum && units < node->units_max)
        node->units_max = units;
    else if (!rule->maximum && units > node->units_min)
        node->units_min = units;
    return true;
}

#define AT(member) offsetof(struct grammar_node, member)

static const struct rule RULES[] = {
    {"type", apply_type, 0, false, false},
    {"minLength", apply_count, AT(length_min), false, false},
    {"maxLength", apply_count, AT(length_max), true, false},
    {"minItems", apply_count, AT(items_min), false, false},
    {"maxItems", apply_count, AT(items_max), true, false},
    {"minimum", apply_bound, 0, false, false},
    {"maximum", apply_bound, 0, true, false},
    {"exclusiveMinimum", apply_bound, 0, false, true},
    {"exclusiveMaximum", apply_bound, 0, true, true},
};

/* The least multiple of a whole number of units that is not below `units`. */
static grammar_units whole_not_below(grammar_units units)
{
    grammar_units one = schema_units_one(), rest = units % one;
    return rest == 0 ? units : rest > 0 ? units - rest + one : units - rest;
}

static bool apply_rules(struct schema_compiler *c, const struct schema_view *view,
                        struct grammar_node *node)
{
    for (int32_t i = 0; i < view->n; i++) {
        for (size_t k = 0; k < sizeof RULES / sizeof RULES[0]; k++) {
            struct json_object *value;
            if (json_object_object_get_ex(view->members[i].schema, RULES[k].keyword, &value) &&
                !RULES[k].apply(c, &view->members[i], &RULES[k], value, node))
                return false;
        }
    }
    if (node->ranged && (node->types & GRAMMAR_FRACTION) == 0) {
        node->units_min = whole_not_below(node->units_min);
        node->units_max = -whole_not_below(-node->units_max);
    }
    return true;
}

/* ---- arrays and objects ---------------------------------------------------------------------- */

/* Adds a schema that holds at a place; `true` says nothing. */
static void add_source(struct schema_source *sources, int32_t *n, struct json_object *schema,
                       uint32_t path)
{
    bool always = json_object_is_type(schema, json_type_boolean) && json_object_get_boolean(schema);
    for (int32_t i = 0; i < *n && !always; i++)
        always = sources[i].schema == schema; /* it counts already */
    if (!always)
        sources[(*n)++] = (struct schema_source){schema, path};
}

static bool build_items(struct schema_compiler *c, const struct schema_view *view,
                        struct grammar_node *node)
{
    struct schema_source sources[MASK_MEMBERS_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < view->n; i++) {
        const struct schema_member *m = &view->members[i];
        struct json_object *items;
        if (!json_object_object_get_ex(m->schema, "items", &items))
            continue;
        if (json_object_is_type(items, json_type_array)) {
            if (!schema_refuse(c, m->path, "items", "a list of schemas is not supported"))
                return false;
            continue;
        }
        add_source(sources, &n, items, schema_step_add(c, m->path, "items", -1));
    }
    node->items = schema_place(c, sources, n);
    return node->items >= 0;
}

/* What holds for the property `name` (NULL: one that nobody declares). */
static int32_t property_place(struct schema_compiler *c, const struct schema_view *view,
                              const char *name)
{
    struct schema_source sources[MASK_MEMBERS_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < view->n; i++) {
        const struct schema_member *m = &view->members[i];
        struct json_object *properties = json_member(m->schema, "properties", NULL), *schema;
        if (name != NULL && json_object_is_type(properties, json_type_object) &&
            json_object_object_get_ex(properties, name, &schema)) {
            int32_t index = 0;
            json_object_object_foreach(properties, key, value)
            {
                (void)value;
                if (strcmp(key, name) == 0)
                    break;
                index++;
            }
            add_source(sources, &n, schema, schema_step_add(c, m->path, "properties", index));
        } else if (json_object_object_get_ex(m->schema, "additionalProperties", &schema)) {
            add_source(sources, &n, schema,
                       schema_step_add(c, m->path, "additionalProperties", -1));
        }
    }
    return schema_place(c, sources, n);
}

/* Adds a declared name, once. */
static bool add_name(struct schema_compiler *c, uint32_t first, const char *name, size_t len,
                     uint32_t path, const char *keyword)
{
    struct grammar *g = schema_compiler_grammar(c);
    for (uint32_t i = first; i < g->n_strings; i++) {
        size_t other_len;
        const char *other = grammar_string(g, i, &other_len);
        if (other_len == len && memcmp(other, name, len) == 0)
            return true;
    }
    if (g->n_strings - first == MASK_PROPERTIES_MAX)
        return schema_full(c, path, keyword, "an object declares too many properties");
    if (len > MASK_STRING_LEN_MAX || grammar_add_string(g, name, len) < 0)
        return schema_full(c, path, keyword, "the names are too many or too long");
    return true;
}

static bool add_required(struct schema_compiler *c, const struct schema_member *m, uint32_t first)
{
    bool is_null;
    struct json_object *list = json_member(m->schema, "required", &is_null);
    if (list == NULL && !is_null)
        return true;
    if (!json_object_is_type(list, json_type_array))
        return schema_refuse(c, m->path, "required", "is not an array of names");
    if (json_object_array_length(list) > MASK_PROPERTIES_MAX)
        return schema_full(c, m->path, "required", "an object requires too many properties");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *name = json_object_array_get_idx(list, i);
        size_t len = (size_t)json_object_get_string_len(name);
        if (!json_object_is_type(name, json_type_string) ||
            strlen(json_object_get_string(name)) != len) {
            if (!schema_refuse(c, m->path, "required", "is not an array of names"))
                return false;
        } else if (!add_name(c, first, json_object_get_string(name), len, m->path, "required")) {
            return false;
        }
    }
    return true;
}

static bool add_declared(struct schema_compiler *c, const struct schema_member *m, uint32_t first)
{
    bool is_null;
    struct json_object *properties = json_member(m->schema, "properties", &is_null);
    if (properties == NULL && !is_null)
        return true;
    if (!json_object_is_type(properties, json_type_object))
        return schema_refuse(c, m->path, "properties", "is not an object");
    json_object_object_foreach(properties, name, schema)
    {
        (void)schema;
        if (!add_name(c, first, name, strlen(name), m->path, "properties"))
            return false;
    }
    return true;
}

static bool is_required(const struct schema_view *view, const char *name)
{
    for (int32_t i = 0; i < view->n; i++) {
        struct json_object *list = json_member(view->members[i].schema, "required", NULL);
        if (!json_object_is_type(list, json_type_array))
            continue;
        for (size_t k = 0; k < json_object_array_length(list); k++) {
            struct json_object *one = json_object_array_get_idx(list, k);
            if (json_object_is_type(one, json_type_string) &&
                strcmp(json_object_get_string(one), name) == 0)
                return true;
        }
    }
    return false;
}

static bool build_properties(struct schema_compiler *c, const struct schema_view *view,
                             struct grammar_node *node)
{
    struct grammar *g = schema_compiler_grammar(c);
    uint32_t first = g->n_strings, path = view->n > 0 ? view->members[0].path : SCHEMA_PATH_ROOT;
    for (int32_t i = 0; i < view->n; i++) {
        if (!add_declared(c, &view->members[i], first) ||
            !add_required(c, &view->members[i], first))
            return false;
    }
    struct buf name = {0};
    bool good = true;
    node->names = grammar_close_set(g, first, UINT32_MAX);
    node->first_property = g->n_links;
    for (uint32_t i = 0; i < node->names.n && good; i++) {
        size_t len;
        const char *text = grammar_string(g, first + i, &len);
        name.len = 0;
        buf_add(&name, text, len);
        if (is_required(view, buf_cstr(&name)))
            node->required[i / 64] |= UINT64_C(1) << i % 64;
        int32_t place = property_place(c, view, buf_cstr(&name));
        good = place >= 0;
        if (good && grammar_add_link(g, place) < 0)
            good = schema_full(c, path, "properties", "the schema has too many places");
    }
    buf_free(&name);
    node->additional = good ? property_place(c, view, NULL) : GRAMMAR_NONE;
    return good && node->additional >= 0;
}

/* ---- public ---------------------------------------------------------------------------------- */

bool schema_build(struct schema_compiler *c, const struct schema_view *view,
                  struct schema_union *parts)
{
    struct grammar_node node = grammar_nothing();
    node.types = GRAMMAR_ANY;
    if (!apply_rules(c, view, &node) || !schema_build_listed(c, view, &node, parts))
        return false;
    if ((node.types & GRAMMAR_ARRAY) && !build_items(c, view, &node))
        return false;
    if ((node.types & GRAMMAR_OBJECT) && !build_properties(c, view, &node))
        return false;
    if (node.types == 0)
        return true;
    if (parts->n_values == MASK_THREADS_MAX)
        return schema_full(c, view->n > 0 ? view->members[0].path : SCHEMA_PATH_ROOT, NULL,
                           "has too many branches");
    parts->values[parts->n_values++] = node;
    return true;
}
