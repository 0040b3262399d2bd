/*
 * The places of a schema, one after the other from a list of work: which schemas hold there ($ref,
 * allOf), in which alternatives (anyOf).  A place is known by the schemas that it starts from, so
 * recursion through $ref meets a place that is there already, and compiling ends.
 */
#include "engine/text/schema_compiler.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

enum keyword_class { ENFORCED, ANNOTATION, ROOT, TEXT, REFUSED };

static const struct {
    const char *name;
    enum keyword_class class;
} KEYWORDS[] = {
#define SCHEMA_KEYWORD(name, class) {name, class},
#include "config/schema.def"
#undef SCHEMA_KEYWORD
};
#define N_KEYWORDS (sizeof KEYWORDS / sizeof KEYWORDS[0])

/* Branching keywords: bits of schema_member.decided. */
static const char *const BRANCHES[] = {"anyOf", "oneOf"};
#define N_BRANCHES 2

/* Slots of the map of places: a power of two, at most half full. */
#define MAP_SLOTS (2 * MASK_NODES_MAX)

struct place {
    int32_t node;
    uint32_t first, n; /* sources; n 0: a constant */
    struct json_object *constant;
    uint32_t path;
};

struct schema_compiler {
    struct grammar *grammar;  /* borrows */
    struct json_object *root; /* borrows */
    enum schema_mode mode;
    const char *base; /* name of the root in errors */
    struct error *err;
    enum status status;
    struct schema_step *steps; /* owns [n_steps] */
    uint32_t n_steps, steps_cap;
    struct schema_source *sources; /* owns [n_sources] */
    uint32_t n_sources, sources_cap;
    struct place *places; /* owns [n_places]: work, in order */
    uint32_t n_places, places_cap;
    uint32_t work;             /* spent so far */
    uint32_t *map;             /* owns [MAP_SLOTS]: index of a place + 1 */
    struct schema_view *views; /* owns [MASK_BRANCHES_MAX]: branches to be looked at */
    struct schema_union parts; /* of the place that is being built */
};

enum schema_mode schema_compiler_mode(const struct schema_compiler *c)
{
    return c->mode;
}

struct grammar *schema_compiler_grammar(const struct schema_compiler *c)
{
    return c->grammar;
}

static void *grow(void *pool, uint32_t n, uint32_t *cap, size_t element)
{
    if (n < *cap)
        return pool;
    *cap = *cap == 0 ? 64 : *cap * 2;
    pool = realloc(pool, *cap * element);
    ASSERT(pool != NULL);
    return pool;
}

/* ---- paths and errors ------------------------------------------------------------------------ */

uint32_t schema_step_add(struct schema_compiler *c, uint32_t parent, const char *name,
                         int32_t index)
{
    if (c->n_steps == MASK_PATHS_MAX)
        return parent;
    c->steps = grow(c->steps, c->n_steps, &c->steps_cap, sizeof *c->steps);
    c->steps[c->n_steps] = (struct schema_step){parent, name, index};
    return c->n_steps++;
}

/* Steps that an error shows: the last ones say most. */
#define STEPS_SHOWN 12

static void put_path(const struct schema_compiler *c, uint32_t path, struct buf *out)
{
    uint32_t shown[STEPS_SHOWN];
    int n = 0;
    for (; path != SCHEMA_PATH_ROOT && n < STEPS_SHOWN; path = c->steps[path].parent)
        shown[n++] = path;
    buf_puts(out, c->base);
    if (path != SCHEMA_PATH_ROOT)
        buf_puts(out, "...");
    while (n > 0) {
        const struct schema_step *step = &c->steps[shown[--n]];
        buf_printf(out, ".%s", step->name);
        if (step->index >= 0)
            buf_printf(out, "[%d]", step->index);
    }
}

static void note(struct schema_compiler *c, enum status status, uint32_t path, const char *keyword,
                 const char *what)
{
    struct buf text = {0};
    put_path(c, path, &text);
    if (keyword != NULL)
        buf_printf(&text, ".%s", keyword);
    c->status = error_set(c->err, status, "%s: %s", buf_cstr(&text), what);
    buf_free(&text);
}

bool schema_refuse(struct schema_compiler *c, uint32_t path, const char *keyword, const char *what)
{
    if (c->mode == SCHEMA_LENIENT)
        return true;
    note(c, ERR_INPUT, path, keyword, what);
    return false;
}

bool schema_full(struct schema_compiler *c, uint32_t path, const char *keyword, const char *what)
{
    note(c, ERR_CAPACITY, path, keyword, what);
    return false;
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint32_t hash_of(const struct schema_source *sources, int32_t n,
                        const struct json_object *constant)
{
    uint64_t hash = (uintptr_t)constant;
    for (int32_t i = 0; i < n; i++)
        hash = (hash ^ (uintptr_t)sources[i].schema) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> 32) % MAP_SLOTS;
}

static bool place_is(const struct schema_compiler *c, const struct place *place,
                     const struct schema_source *sources, int32_t n,
                     const struct json_object *constant)
{
    if (place->n != (uint32_t)n || place->constant != constant)
        return false;
    for (int32_t i = 0; i < n; i++) {
        if (c->sources[place->first + (uint32_t)i].schema != sources[i].schema)
            return false;
    }
    return true;
}

/* The place of these sources, or of a constant (n 0). */
static int32_t place_of(struct schema_compiler *c, const struct schema_source *sources, int32_t n,
                        struct json_object *constant, uint32_t path)
{
    uint32_t slot = hash_of(sources, n, constant);
    for (; c->map[slot] != 0; slot = (slot + 1) % MAP_SLOTS) {
        const struct place *there = &c->places[c->map[slot] - 1];
        if (place_is(c, there, sources, n, constant))
            return there->node;
    }
    int32_t node = grammar_add_node(c->grammar);
    if (node < 0) {
        schema_full(c, path, NULL, "the schema has too many places");
        return -1;
    }
    uint32_t first = c->n_sources;
    for (int32_t i = 0; i < n; i++) {
        c->sources = grow(c->sources, c->n_sources, &c->sources_cap, sizeof *c->sources);
        c->sources[c->n_sources++] = sources[i];
    }
    c->places = grow(c->places, c->n_places, &c->places_cap, sizeof *c->places);
    c->places[c->n_places++] = (struct place){node, first, (uint32_t)n, constant, path};
    c->map[slot] = c->n_places;
    return node;
}

int32_t schema_place(struct schema_compiler *c, const struct schema_source *sources, int32_t n)
{
    return n == 0 ? GRAMMAR_ANYTHING : place_of(c, sources, n, NULL, sources[0].path);
}

int32_t schema_constant(struct schema_compiler *c, struct json_object *value, uint32_t path)
{
    return place_of(c, NULL, 0, value, path);
}

/* ---- the members of a place ------------------------------------------------------------------ */

static bool check_keyword(struct schema_compiler *c, const struct schema_member *m, const char *key)
{
    for (size_t i = 0; i < N_KEYWORDS; i++) {
        if (strcmp(KEYWORDS[i].name, key) != 0)
            continue;
        bool refused = KEYWORDS[i].class == REFUSED ||
                       (KEYWORDS[i].class == TEXT && c->mode == SCHEMA_STRICT) ||
                       (KEYWORDS[i].class == ROOT && m->schema != c->root);
        return !refused ||
               schema_refuse(c, m->path, KEYWORDS[i].name, "this keyword is not supported");
    }
    return schema_refuse(c, m->path, NULL, "has a keyword that is not known");
}

/* Adds a schema to those that hold.  One that is there is not added again; one that it comes from
 * itself is a loop without any value in between. */
static bool add_member(struct schema_compiler *c, struct schema_view *view,
                       struct json_object *schema, uint32_t path, int32_t parent)
{
    if (json_object_is_type(schema, json_type_boolean)) {
        view->never = view->never || !json_object_get_boolean(schema);
        return true;
    }
    if (!json_object_is_type(schema, json_type_object))
        return schema_refuse(c, path, NULL, "is neither an object nor a boolean");
    for (int32_t up = parent; up >= 0; up = view->members[up].parent) {
        if (view->members[up].schema == schema)
            return schema_refuse(c, path, NULL, "leads back to itself");
    }
    for (int32_t i = 0; i < view->n; i++) {
        if (view->members[i].schema == schema)
            return true;
    }
    if (view->n == MASK_MEMBERS_MAX)
        return schema_full(c, path, NULL, "too many schemas hold here at once");
    view->members[view->n++] = (struct schema_member){schema, path, parent, 0};
    return true;
}

static int hex_digit(char c)
{
    static const char DIGITS[] = "0123456789abcdef0123456789ABCDEF";
    const char *hit = c == '\0' ? NULL : strchr(DIGITS, c);
    return hit == NULL ? -1 : (int)(hit - DIGITS) % 16;
}

/* The next token of a JSON pointer, decoded into `out`; *at is moved behind it. */
static bool pointer_token(const char **at, struct buf *out)
{
    out->len = 0;
    for (; **at != '\0' && **at != '/'; ++*at) {
        char byte = **at;
        if (byte == '%') {
            int high = hex_digit((*at)[1]), low = high < 0 ? -1 : hex_digit((*at)[2]);
            if (low < 0 || high * 16 + low == 0)
                return false;
            byte = (char)(high * 16 + low);
            *at += 2;
        }
        if (byte == '~') {
            ++*at;
            if (**at != '0' && **at != '1')
                return false;
            byte = **at == '0' ? '~' : '/';
        }
        buf_add(out, &byte, 1);
    }
    return true;
}

/* The element of `container` that a pointer token names.  @return false: there is none */
static bool pointer_enter(struct json_object **container, const char *token)
{
    if (json_object_is_type(*container, json_type_object))
        return json_object_object_get_ex(*container, token, container);
    char *end;
    unsigned long index = strtoul(token, &end, 10);
    if (!json_object_is_type(*container, json_type_array) || token[0] < '0' || token[0] > '9' ||
        *end != '\0' || index >= json_object_array_length(*container))
        return false;
    *container = json_object_array_get_idx(*container, index);
    return true;
}

static bool add_reference(struct schema_compiler *c, struct schema_view *view, int32_t parent)
{
    const struct schema_member *m = &view->members[parent];
    struct json_object *reference = json_member(m->schema, "$ref", NULL), *target = c->root;
    if (reference == NULL)
        return true;
    const char *at = json_object_get_string(reference);
    if (!json_object_is_type(reference, json_type_string) ||
        strlen(at) != (size_t)json_object_get_string_len(reference) || at[0] != '#' ||
        (at[1] != '\0' && at[1] != '/'))
        return schema_refuse(c, m->path, "$ref", "only # and #/.. are supported");
    struct buf token = {0};
    bool found = true;
    at++;
    while (found && *at == '/') {
        at++;
        found = pointer_token(&at, &token) && pointer_enter(&target, buf_cstr(&token));
    }
    buf_free(&token);
    if (!found)
        return schema_refuse(c, m->path, "$ref", "leads nowhere");
    return add_member(c, view, target, schema_step_add(c, m->path, "$ref", -1), parent);
}

static bool add_all_of(struct schema_compiler *c, struct schema_view *view, int32_t parent)
{
    const struct schema_member *m = &view->members[parent];
    bool is_null;
    struct json_object *list = json_member(m->schema, "allOf", &is_null);
    if (list == NULL && !is_null)
        return true;
    if (!json_object_is_type(list, json_type_array))
        return schema_refuse(c, m->path, "allOf", "is not an array");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        uint32_t path = schema_step_add(c, m->path, "allOf", (int32_t)i);
        if (!add_member(c, view, json_object_array_get_idx(list, i), path, parent))
            return false;
    }
    return true;
}

/* What looking at a keyword may cost. */
static uint32_t weight(struct json_object *value)
{
    if (json_object_is_type(value, json_type_array))
        return 1 + (uint32_t)json_object_array_length(value);
    return json_object_is_type(value, json_type_object)
               ? 1 + (uint32_t)json_object_object_length(value)
               : 1;
}

/* Follows $ref and allOf until no member is new. */
static bool look_through(struct schema_compiler *c, struct schema_view *view)
{
    for (; view->checked < view->n; view->checked++) {
        const struct schema_member *m = &view->members[view->checked];
        json_object_object_foreach(m->schema, key, value)
        {
            if (!check_keyword(c, m, key))
                return false;
            c->work += weight(value);
        }
        if (c->work > MASK_WORK_MAX)
            return schema_full(c, m->path, NULL, "the schema takes too long to compile");
        if (!add_reference(c, view, view->checked) || !add_all_of(c, view, view->checked))
            return false;
    }
    return true;
}

/* ---- branches -------------------------------------------------------------------------------- */

/* Finds a member with a branching keyword that is not decided. */
static bool find_branch(const struct schema_compiler *c, const struct schema_view *view,
                        int32_t *member, int *branch)
{
    for (*member = 0; *member < view->n; ++*member) {
        const struct schema_member *m = &view->members[*member];
        for (*branch = 0; *branch < (c->mode == SCHEMA_LENIENT ? N_BRANCHES : 1); ++*branch) {
            if ((m->decided >> *branch & 1) == 0 &&
                json_object_object_get_ex(m->schema, BRANCHES[*branch], NULL))
                return true;
        }
    }
    return false;
}

/* Replaces the last view of the list by one for each branch, the first on top. */
static bool fan_out(struct schema_compiler *c, int32_t *n_views, int32_t member, int branch)
{
    struct schema_view *views = &c->views[*n_views - 1];
    views->members[member].decided |= 1u << branch;
    const struct schema_view undivided = *views;
    uint32_t path = views->members[member].path;
    struct json_object *list = json_member(views->members[member].schema, BRANCHES[branch], NULL);
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return schema_refuse(c, path, BRANCHES[branch], "is not an array of schemas");
    size_t n = json_object_array_length(list);
    if (n > (size_t)(MASK_BRANCHES_MAX - *n_views))
        return schema_full(c, path, BRANCHES[branch], "has too many branches");
    for (size_t i = 0; i < n; i++) {
        struct schema_view *view = &views[n - 1 - i];
        uint32_t step = schema_step_add(c, path, BRANCHES[branch], (int32_t)i);
        *view = undivided;
        if (!add_member(c, view, json_object_array_get_idx(list, i), step, member))
            return false;
    }
    *n_views += (int32_t)n - 1;
    return true;
}

/* Makes one node of the parts of a union. */
static bool unite(struct schema_compiler *c, const struct place *place,
                  const struct schema_union *parts)
{
    struct grammar *g = c->grammar;
    if (parts->n_values == 1 && parts->n_constants == 0) {
        g->nodes[place->node] = parts->values[0];
        return true;
    }
    uint32_t first = g->n_links;
    for (int32_t i = 0; i < parts->n_values + parts->n_constants; i++) {
        bool value = i < parts->n_values;
        int32_t node = value ? grammar_add_node(g) : parts->constants[i - parts->n_values];
        if (node < 0 || grammar_add_link(g, node) < 0)
            return schema_full(c, place->path, NULL, "the schema has too many places");
        if (value)
            g->nodes[node] = parts->values[i];
    }
    g->nodes[place->node].first_branch = first;
    g->nodes[place->node].n_branches = g->n_links - first;
    return true;
}

/* Goes through all branches of a place, in depth. */
static bool build_place(struct schema_compiler *c, const struct place *place)
{
    struct schema_union *parts = &c->parts;
    int32_t n_views = 1, member;
    int branch;
    parts->n_values = parts->n_constants = 0;
    c->views[0] = (struct schema_view){0};
    for (uint32_t i = 0; i < place->n; i++) {
        const struct schema_source *source = &c->sources[place->first + i];
        if (!add_member(c, &c->views[0], source->schema, source->path, -1))
            return false;
    }
    for (int steps = 0; n_views > 0; steps++) {
        struct schema_view *view = &c->views[n_views - 1];
        if (steps > MASK_BRANCHES_MAX)
            return schema_full(c, place->path, NULL, "has too many branches");
        if (!look_through(c, view))
            return false;
        if (find_branch(c, view, &member, &branch)) {
            if (!fan_out(c, &n_views, member, branch))
                return false;
            continue;
        }
        n_views--;
        if (!view->never && !schema_build(c, view, parts))
            return false;
    }
    return unite(c, place, parts);
}

/* ---- public ---------------------------------------------------------------------------------- */

static bool build_all(struct schema_compiler *c, int32_t first)
{
    for (uint32_t i = 0; i < c->n_places; i++) {
        const struct place place = c->places[i]; /* a copy: the list grows */
        if (place.n == 0 ? !schema_build_constant(c, place.constant, place.path, place.node)
                         : !build_place(c, &place))
            return false;
    }
    grammar_measure(c->grammar, first);
    return true;
}

static enum status compile(struct grammar *grammar, struct json_object *schema,
                           enum schema_mode mode, const char *path, int32_t *out, struct error *err)
{
    struct schema_compiler c = {
        .grammar = grammar, .root = schema, .mode = mode, .base = path, .err = err};
    c.map = calloc(MAP_SLOTS, sizeof *c.map);
    c.views = calloc(MASK_BRANCHES_MAX, sizeof *c.views);
    ASSERT(c.map != NULL && c.views != NULL);
    uint32_t root_path = schema_step_add(&c, SCHEMA_PATH_ROOT, "", -1);
    struct schema_source source = {schema, root_path};
    const struct grammar before = *grammar;
    int32_t node = schema_place(&c, &source, 1);
    if (node >= 0 && build_all(&c, node)) {
        *out = node;
    } else { /* what there is of it goes again */
        grammar->n_nodes = before.n_nodes;
        grammar->n_links = before.n_links;
        grammar->n_strings = before.n_strings;
        grammar->bytes.len = before.bytes.len;
    }
    free(c.map);
    free(c.views);
    free(c.steps);
    free(c.sources);
    free(c.places);
    return c.status;
}

enum status schema_compile(struct grammar *grammar, struct json_object *schema,
                           enum schema_mode mode, const char *path, int32_t *out, struct error *err)
{
    int32_t node;
    ASSERT(mode != SCHEMA_LENIENT);
    enum status status = compile(grammar, schema, mode, path, &node, err);
    if (status != OK)
        return status;
    if (!grammar_fits(grammar, node, 0))
        return error_set(err, ERR_INPUT, "%s: no value can satisfy this schema", path);
    *out = node;
    return OK;
}

/* The compiled arguments as an object alone.  @return false: they are not one */
static bool take_object(struct grammar *grammar, struct json_object *schema, int32_t *node)
{
    const struct grammar_node *from = &grammar->nodes[*node];
    /* Arguments are an object around their values: one level less is left for these. */
    if (from->n_branches > 0 || from->height_object == GRAMMAR_NEVER ||
        from->height_object > MASK_DEPTH_MAX)
        return false;
    struct grammar_node object = *from;
    object.types = GRAMMAR_OBJECT;
    if (json_object_object_get_ex(schema, "properties", NULL) &&
        !json_object_object_get_ex(schema, "additionalProperties", NULL))
        object.additional = GRAMMAR_NONE;
    *node = grammar_add_node(grammar); /* a copy: a $ref may lead to the first one */
    if (*node < 0)
        return false;
    grammar->nodes[*node] = object;
    grammar_measure(grammar, *node);
    return true;
}

enum status schema_compile_arguments(struct grammar *grammar, struct json_object *schema,
                                     enum schema_mode mode, const char *path, int32_t *out,
                                     struct error *err)
{
    int32_t node = GRAMMAR_EMPTY_OBJECT;
    enum status status = OK;
    bool object = true;
    if (schema != NULL) {
        status = compile(grammar, schema, mode, path, &node, err);
        object = status == OK && json_object_is_type(schema, json_type_object) &&
                 take_object(grammar, schema, &node);
    }
    if (!object && mode == SCHEMA_LENIENT)
        node = GRAMMAR_ANY_OBJECT;
    else if (status != OK)
        return status;
    else if (!object)
        return error_set(err, ERR_INPUT, "%s: is not the schema of one object", path);
    *out = node;
    return OK;
}
