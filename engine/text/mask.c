/*
 * The mask of one answer (mask.h): follows the phases of an answer, and in the ruled ones walks the
 * vocabulary with the automaton.  All memory is taken when the mask is made.
 */
#include "engine/text/mask.h"

#include "engine/text/automaton.h"
#include "engine/text/mask_vocab.h"
#include "engine/text/schema.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

enum phase {
    PHASE_REASONING,
    PHASE_TEXT,  /* free content */
    PHASE_RULED, /* the automaton decides */
    PHASE_LOST,  /* a token came that was barred */
};

struct mask {
    const struct mask_vocab *vocab; /* borrows */
    struct grammar grammar;
    struct automaton automaton;
    bool thinking;
    enum mask_calls calls;
    int32_t json; /* node of the content, or NONE: text */
    enum phase phase;
    bool behind_angle; /* the last token ended with '<' */
    struct ids seen;   /* the answer so far */
    /* The walk: threads at each depth, one slice behind the other. */
    struct automaton_frame *frames; /* owns [(longest + 2) * MASK_THREADS_MAX] */
    int32_t *first, *count, *pool;  /* own [longest + 2] */
};

/* ---- compiling ------------------------------------------------------------------------------- */

static bool is_writable(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == '"')
            return false;
    }
    return len > 0;
}

/* Finds the names that cannot stand in a call.  @return false: one of them is required */
static bool find_unwritable(const struct grammar *g, struct grammar_tool *tool)
{
    const struct grammar_node *node = &g->nodes[tool->node];
    bool good = true;
    for (uint32_t i = 0; i < node->names.n; i++) {
        size_t len;
        const char *name = grammar_string(g, node->names.first + i, &len);
        if (is_writable(name, len))
            continue;
        tool->unwritable[i / 64] |= UINT64_C(1) << i % 64;
        good = good && (node->required[i / 64] >> i % 64 & 1) == 0;
    }
    return good;
}

static enum status add_tool(struct grammar *g, struct json_object *function, size_t index,
                            struct grammar_tool *tool, struct error *err)
{
    char path[64];
    struct json_object *strict = json_member(function, "strict", NULL);
    bool held = json_object_is_type(strict, json_type_boolean) && json_object_get_boolean(strict);
    snprintf(path, sizeof path, "tools[%zu].function.parameters", index);
    *tool = (struct grammar_tool){0};
    enum status status =
        schema_compile_arguments(g, json_member(function, "parameters", NULL),
                                 held ? SCHEMA_STRICT : SCHEMA_LENIENT, path, &tool->node, err);
    if (status != OK)
        return status;
    if (!find_unwritable(g, tool) && held)
        return error_set(err, ERR_INPUT, "%s.required: a name cannot be written in a call", path);
    return OK;
}

/* A tool that is offered, and where it stands in the request. */
struct offer {
    struct json_object *function;
    const char *name;
    size_t index;
};

static int compare_offers(const void *left, const void *right)
{
    return strcmp(((const struct offer *)left)->name, ((const struct offer *)right)->name);
}

/* Compiles the offers in the order of their names, which is that of the set. */
static enum status add_offers(struct grammar *g, struct offer *offers, size_t n, struct error *err)
{
    enum status status = OK;
    qsort(offers, n, sizeof *offers, compare_offers);
    g->tools = calloc(n, sizeof *g->tools);
    ASSERT(g->tools != NULL);
    uint32_t first = g->n_strings; /* first of all, so that no schema can take their room */
    for (size_t i = 0; i < n && status == OK; i++) {
        size_t len = strlen(offers[i].name);
        if (!is_writable(offers[i].name, len) || len > TOOL_NAME_BYTES_MAX ||
            (i > 0 && strcmp(offers[i - 1].name, offers[i].name) == 0))
            status = error_set(err, ERR_INPUT, "tools[%zu].function.name: empty, too long or twice",
                               offers[i].index);
        else if (grammar_add_string(g, offers[i].name, len) < 0)
            status = error_set(err, ERR_CAPACITY, "tools: the names are too long");
    }
    g->tool_names = (struct grammar_set){first, (uint32_t)n};
    for (size_t i = 0; i < n && status == OK; i++)
        status = add_tool(g, offers[i].function, offers[i].index, &g->tools[i], err);
    return status;
}

static enum status compile_tools(struct grammar *g, const struct mask_options *options,
                                 struct error *err)
{
    bool list = json_object_is_type(options->tools, json_type_array);
    size_t n = list ? json_object_array_length(options->tools) : 0, n_offers = 0;
    if (n > TOOLS_MAX)
        return error_set(err, ERR_CAPACITY, "tools: more than %d", TOOLS_MAX);
    struct offer *offers = calloc(n + 1, sizeof *offers);
    ASSERT(offers != NULL);
    for (size_t i = 0; i < n; i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(options->tools, i), "function", NULL);
        struct json_object *name = json_member(function, "name", NULL);
        const char *text = json_object_get_string(name);
        if (json_object_is_type(name, json_type_string) &&
            (options->tool_name == NULL || strcmp(options->tool_name, text) == 0))
            offers[n_offers++] = (struct offer){function, text, i};
    }
    enum status status = n_offers > 0 ? add_offers(g, offers, n_offers, err)
                                      : error_set(err, ERR_INPUT, "tools: none that may be called");
    free(offers);
    return status;
}

static enum status compile_format(struct mask *m, const struct mask_options *options,
                                  struct error *err)
{
    m->json = GRAMMAR_NONE;
    if (options->format == MASK_JSON_OBJECT)
        m->json = GRAMMAR_ANY_OBJECT;
    if (options->format != MASK_JSON_SCHEMA)
        return OK;
    return schema_compile(&m->grammar, options->schema,
                          options->schema_strict ? SCHEMA_STRICT : SCHEMA_PLAIN, "schema", &m->json,
                          err);
}

/* ---- the answer so far ----------------------------------------------------------------------- */

static void begin_content(struct mask *m)
{
    if (m->json == GRAMMAR_NONE && m->calls != MASK_CALLS_REQUIRED) {
        m->phase = PHASE_TEXT;
        return;
    }
    m->phase = PHASE_RULED;
    automaton_reset(&m->automaton);
    if (m->calls != MASK_CALLS_NONE)
        automaton_add_block(&m->automaton, false);
    if (m->calls != MASK_CALLS_REQUIRED)
        automaton_add_json(&m->automaton, m->json);
}

static void restart(struct mask *m)
{
    m->seen.len = 0;
    m->behind_angle = false;
    m->phase = PHASE_REASONING;
    if (!m->thinking)
        begin_content(m);
}

static void take_ruled(struct mask *m, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_token_bytes(m->vocab->tokenizer, id, &len);
    bool alive = len > 0;
    if (id == m->vocab->mark) {
        alive = automaton_push(&m->automaton, AUTOMATON_MARK);
    } else if (tokenizer_is_added(m->vocab->tokenizer, id)) {
        alive = false;
    } else {
        for (size_t i = 0; i < len && alive; i++)
            alive = automaton_push(&m->automaton, (uint8_t)bytes[i]);
    }
    automaton_compact(&m->automaton);
    if (!alive)
        m->phase = PHASE_LOST;
}

static void take(struct mask *m, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_token_bytes(m->vocab->tokenizer, id, &len);
    ids_add(&m->seen, id);
    if (m->phase == PHASE_RULED) {
        take_ruled(m, id);
    } else if (id == m->vocab->mark && m->behind_angle && m->calls == MASK_CALLS_AUTO) {
        m->phase = PHASE_RULED;
        automaton_reset(&m->automaton);
        automaton_add_block(&m->automaton, true);
    } else if (id == m->vocab->think_close && m->phase == PHASE_REASONING) {
        begin_content(m);
    }
    m->behind_angle =
        len > 0 && bytes[len - 1] == '<' && !tokenizer_is_added(m->vocab->tokenizer, id);
}

static void catch_up(struct mask *m, const int32_t *ids, int32_t n)
{
    bool goes_on = (size_t)n >= m->seen.len &&
                   (m->seen.len == 0 || memcmp(ids, m->seen.data, m->seen.len * sizeof *ids) == 0);
    if (!goes_on)
        restart(m);
    for (int32_t i = (int32_t)m->seen.len; i < n; i++)
        take(m, ids[i]);
}

/* ---- the tokens that may follow -------------------------------------------------------------- */

static void add_bits(uint64_t *bits, const uint64_t *more, size_t words)
{
    for (size_t i = 0; i < words; i++)
        bits[i] |= more[i];
}

/* Sets the bits of all tokens of a trie that some thread, of the first slice, can go along. */
static void walk(struct mask *m, const struct trie *trie, int32_t n_threads, uint64_t *bits)
{
    struct automaton *a = &m->automaton;
    int32_t pool_before = a->n_pool;
    if (n_threads == 0)
        return;
    m->first[0] = 0;
    m->count[0] = n_threads;
    m->pool[0] = pool_before;
    for (uint32_t i = 0; i < trie->n_nodes;) {
        const struct trie_node *node = &trie->nodes[i];
        uint16_t depth = node->depth;
        int32_t next = m->first[depth] + m->count[depth];
        a->n_pool = m->pool[depth];
        int32_t n = automaton_step(a, m->frames + m->first[depth], m->count[depth], node->byte,
                                   m->frames + next);
        if (n == 0) {
            i = node->skip;
            continue;
        }
        if (node->value >= 0)
            mask_bit_set(bits, node->value);
        m->first[depth + 1] = next;
        m->count[depth + 1] = n;
        m->pool[depth + 1] = a->n_pool;
        i++;
    }
    a->n_pool = pool_before;
}

/* Tokens that stay inside of free text with `room` characters left. */
static void add_plain(const struct mask_vocab *v, uint32_t room, uint64_t *bits)
{
    if (room >= v->characters_max) {
        add_bits(bits, v->plain, v->words);
        return;
    }
    for (uint32_t i = 0; i < v->plain_upto[room]; i++)
        mask_bit_set(bits, v->plain_ids[i]);
}

static void fill_ruled(struct mask *m, uint64_t *bits)
{
    const struct mask_vocab *v = m->vocab;
    struct automaton *a = &m->automaton;
    /* Threads whose plain tokens are known, and those that know nothing. */
    int32_t texts = 0, others = 0;
    struct automaton_frame other[MASK_THREADS_MAX];
    memset(bits, 0, v->words * sizeof *bits);
    for (int32_t i = 0; i < a->n_threads; i++) {
        uint32_t room = 0;
        enum automaton_room_kind kind = automaton_room(a, &a->threads[i], &room);
        if (kind == ROOM_NONE) {
            other[others++] = a->threads[i];
        } else if (kind == ROOM_RAW && room >= v->characters_max) {
            add_bits(bits, v->raw, v->words);
        } else {
            add_plain(v, room, bits);
            m->frames[texts++] = a->threads[i];
        }
    }
    walk(m, &v->broken, texts, bits);
    memcpy(m->frames, other, (size_t)others * sizeof *other);
    walk(m, &v->all, others, bits);
    int32_t pool_before = a->n_pool;
    if (automaton_step(a, a->threads, a->n_threads, AUTOMATON_MARK, m->frames) > 0)
        mask_bit_set(bits, v->mark);
    a->n_pool = pool_before;
    if (automaton_may_end(a))
        mask_bit_set(bits, v->eos);
}

/* Reasoning and free content. */
static void fill_free(const struct mask *m, uint64_t *bits)
{
    const struct mask_vocab *v = m->vocab;
    bool owed =
        m->phase == PHASE_REASONING && (m->json != GRAMMAR_NONE || m->calls == MASK_CALLS_REQUIRED);
    if (owed) {
        memcpy(bits, v->ordinary, v->words * sizeof *bits);
        mask_bit_set(bits, v->think_close);
    } else {
        memset(bits, 0xFF, v->words * sizeof *bits);
    }
    bits[v->mark / 64] &= ~(UINT64_C(1) << v->mark % 64);
    if (m->behind_angle && m->calls == MASK_CALLS_AUTO)
        mask_bit_set(bits, v->mark);
}

bool mask_fill(void *mask, const int32_t *answer_ids, int32_t n, uint64_t *bits)
{
    struct mask *m = mask;
    catch_up(m, answer_ids, n);
    if (m->phase == PHASE_LOST)
        memset(bits, 0, m->vocab->words * sizeof *bits);
    else if (m->phase == PHASE_RULED)
        fill_ruled(m, bits);
    else
        fill_free(m, bits);
    return true;
}

bool mask_may_end(const struct mask *m)
{
    if (m->phase == PHASE_RULED)
        return automaton_may_end(&m->automaton);
    return m->phase == PHASE_TEXT;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status mask_create(const struct mask_vocab *vocab, const struct mask_options *options,
                        struct mask **out, struct error *err)
{
    struct mask *m = calloc(1, sizeof *m);
    ASSERT(m != NULL);
    m->vocab = vocab;
    m->thinking = options->thinking;
    m->calls = options->calls;
    grammar_init(&m->grammar);
    enum status status = compile_format(m, options, err);
    if (status == OK && m->calls != MASK_CALLS_NONE)
        status = compile_tools(&m->grammar, options, err);
    if (status != OK) {
        mask_destroy(m);
        return status;
    }
    int32_t calls_max = options->calls_max > 0 && options->calls_max < TOOL_CALLS_MAX
                            ? options->calls_max
                            : TOOL_CALLS_MAX;
    automaton_init(&m->automaton, &m->grammar, calls_max, vocab->longest);
    m->frames = calloc((vocab->longest + 2) * MASK_THREADS_MAX, sizeof *m->frames);
    m->first = calloc(3 * (vocab->longest + 2), sizeof *m->first);
    ASSERT(m->frames != NULL && m->first != NULL);
    m->count = m->first + vocab->longest + 2;
    m->pool = m->count + vocab->longest + 2;
    restart(m);
    *out = m;
    return OK;
}

void mask_destroy(struct mask *m)
{
    if (m == NULL)
        return;
    grammar_free(&m->grammar);
    automaton_free(&m->automaton);
    ids_free(&m->seen);
    free(m->frames);
    free(m->first);
    free(m);
}
