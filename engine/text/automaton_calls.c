/*
 * A block of tool calls (model.md 5.2), exactly as the chat encoding writes calls:
 *
 *   \n\n<M tool_calls>\n
 *   <M invoke name="NAME">\n
 *   <M parameter name="KEY" string="true">TEXT</M parameter>\n
 *   <M parameter name="KEY" string="false">JSON</M parameter>\n
 *   </M invoke>\n
 *   </M tool_calls>
 *
 * without the blank behind M, the mark.  A string is written as TEXT, everything else as JSON. TEXT
 * ends at a mark behind "</" and nowhere else, so nothing in it needs an escape.
 */
#include "engine/text/automaton_steps.h"

#include "kernels/check.h"

#include <string.h>

/* Where one of several texts begins. */
enum site {
    SITE_START,     /* in front of the block */
    SITE_MARK,      /* behind its first mark */
    SITE_TOOL,      /* behind a tool's name */
    SITE_FIRST,     /* in front of the first parameter */
    SITE_NEXT,      /* behind a parameter */
    SITE_KIND,      /* behind a parameter's name */
    SITE_JSON_END,  /* behind JSON */
    SITE_TEXT_END,  /* behind the mark that ends a text */
    SITE_CALL_DONE, /* behind a call */
};

enum guard { ALWAYS, IF_PARAMETER, IF_COMPLETE, IF_MORE_CALLS, IF_STRING, IF_OTHER };
enum then { THEN_SITE, THEN_TOOL_NAME, THEN_KEY, THEN_TEXT, THEN_JSON, THEN_END };

/* In the texts \1 is the mark. */
#define MARK "\1"

static const struct {
    enum site site;
    enum guard guard;
    const char *text;
    enum then then;
    enum site next; /* THEN_SITE */
} ROWS[] = {
    {SITE_START, ALWAYS, "\n\n<" MARK "tool_calls>\n<" MARK "invoke name=\"", THEN_TOOL_NAME, 0},
    {SITE_MARK, ALWAYS, "tool_calls>\n<" MARK "invoke name=\"", THEN_TOOL_NAME, 0},
    {SITE_TOOL, ALWAYS, ">\n", THEN_SITE, SITE_FIRST},
    {SITE_FIRST, IF_PARAMETER, "<" MARK "parameter name=\"", THEN_KEY, 0},
    {SITE_FIRST, IF_COMPLETE, "\n</" MARK "invoke>", THEN_SITE, SITE_CALL_DONE},
    {SITE_FIRST, IF_COMPLETE, "</" MARK "invoke>", THEN_SITE, SITE_CALL_DONE},
    {SITE_NEXT, IF_PARAMETER, "\n<" MARK "parameter name=\"", THEN_KEY, 0},
    {SITE_NEXT, IF_COMPLETE, "\n</" MARK "invoke>", THEN_SITE, SITE_CALL_DONE},
    {SITE_KIND, IF_STRING, " string=\"true\">", THEN_TEXT, 0},
    {SITE_KIND, IF_OTHER, " string=\"false\">", THEN_JSON, 0},
    {SITE_JSON_END, ALWAYS, "</" MARK "parameter>", THEN_SITE, SITE_NEXT},
    {SITE_TEXT_END, ALWAYS, "parameter>", THEN_SITE, SITE_NEXT},
    {SITE_CALL_DONE, IF_MORE_CALLS, "\n<" MARK "invoke name=\"", THEN_TOOL_NAME, 0},
    {SITE_CALL_DONE, ALWAYS, "\n</" MARK "tool_calls>", THEN_END, 0},
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

/* Arguments are an object around their values. */
#define ARGUMENTS_DEPTH 1

static bool is_next(const char *text, size_t at, unsigned symbol)
{
    return symbol == (text[at] == MARK[0] ? AUTOMATON_MARK : (unsigned char)text[at]);
}

/* ---- what follows a text --------------------------------------------------------------------- */

/* Calls `each` for the nodes without branches that a node is the union of. */
static void for_branches(struct automaton *a, struct automaton_frame f, int32_t node,
                         void (*each)(struct automaton *, struct automaton_frame, int32_t))
{
    const struct grammar_node *n = &a->grammar->nodes[node];
    if (n->n_branches == 0)
        each(a, f, node);
    for (uint32_t i = 0; i < n->n_branches; i++)
        each(a, f, a->grammar->links[n->first_branch + i]);
}

static bool has_string(const struct grammar_node *node)
{
    return (node->types & GRAMMAR_STRING) &&
           (node->strings_closed ? node->strings.n > 0 : node->length_min <= node->length_max);
}

static bool allows_string(const struct automaton *a, int32_t node)
{
    const struct grammar_node *n = &a->grammar->nodes[node];
    bool any = has_string(n);
    for (uint32_t i = 0; i < n->n_branches; i++)
        any = any || has_string(&a->grammar->nodes[a->grammar->links[n->first_branch + i]]);
    return any;
}

static bool guard_holds(const struct automaton *a, const struct automaton_frame *f,
                        enum guard guard)
{
    switch (guard) {
    case ALWAYS:
        return true;
    case IF_PARAMETER:
        return any_key_is_open(a, f);
    case IF_COMPLETE:
        return object_is_complete(a, f);
    case IF_MORE_CALLS:
        return f->object.calls < a->calls_max;
    case IF_STRING:
        return allows_string(a, f->object.key);
    case IF_OTHER: {
        uint8_t height = a->grammar->nodes[f->object.key].height_other;
        return height != GRAMMAR_NEVER && f->depth + height <= MASK_DEPTH_MAX;
    }
    }
    ASSERT(!"a guard");
}

/* The text of a string parameter; `f` is the call, in the pool already. */
static void begin_text(struct automaton *a, struct automaton_frame f, int32_t node)
{
    const struct grammar_node *n = &a->grammar->nodes[node];
    if (!has_string(n))
        return;
    f.node = (uint16_t)node;
    f.flags = n->strings_closed ? FLAG_SET : FLAG_FREE;
    f.text.lo = (uint16_t)n->strings.first;
    f.text.hi = (uint16_t)(n->strings.first + n->strings.n);
    automaton_emit(a, f);
}

static struct automaton_frame at_site(struct automaton_frame f, enum site site)
{
    f.state = STATE_CALL_CHOICE;
    f.row = (uint8_t)site;
    f.at = 0;
    return f;
}

static void begin_tool_name(struct automaton *a, struct automaton_frame f)
{
    struct automaton_frame name = automaton_inner(a, automaton_hold(a, f), STATE_NAME, 0);
    name.flags = FLAG_TOOL | FLAG_SET;
    name.text.lo = (uint16_t)a->grammar->tool_names.first;
    name.text.hi = (uint16_t)(a->grammar->tool_names.first + a->grammar->tool_names.n);
    automaton_emit(a, name);
}

/* A row's text is complete. */
static void follow(struct automaton *a, struct automaton_frame f, size_t row)
{
    int32_t key = f.object.key;
    switch (ROWS[row].then) {
    case THEN_SITE:
        automaton_emit(a, at_site(f, ROWS[row].next));
        break;
    case THEN_TOOL_NAME:
        begin_tool_name(a, at_site(f, SITE_TOOL));
        break;
    case THEN_KEY:
        automaton_emit(a, key_inner(a, automaton_hold(a, at_site(f, SITE_KIND)), STATE_NAME));
        break;
    case THEN_TEXT: {
        int32_t call = automaton_hold(a, at_site(f, SITE_TEXT_END));
        for_branches(a, automaton_inner(a, call, STATE_RAW, key), key, begin_text);
        break;
    }
    case THEN_JSON: {
        int32_t call = automaton_hold(a, at_site(f, SITE_JSON_END));
        struct automaton_frame value = automaton_inner(a, call, STATE_VALUE, key);
        value.flags = FLAG_NO_STRING;
        automaton_emit(a, value);
        break;
    }
    case THEN_END:
        f.state = STATE_CALL_END;
        automaton_emit(a, f);
        break;
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

void step_call_choice(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    uint8_t site = f.row;
    for (size_t row = 0; row < N_ROWS; row++) {
        if (ROWS[row].site != site || !is_next(ROWS[row].text, 0, symbol) ||
            !guard_holds(a, &f, ROWS[row].guard))
            continue;
        f.state = STATE_CALL_TEXT;
        f.row = (uint8_t)row;
        f.at = 1;
        automaton_emit(a, f);
    }
}

void step_call_text(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const char *text = ROWS[f.row].text;
    if (!is_next(text, f.at, symbol))
        return;
    f.at++;
    if (text[f.at] == '\0')
        follow(a, f, f.row);
    else
        automaton_emit(a, f);
}

/* The quote behind a tool's name. */
static void close_tool_name(struct automaton *a, const struct automaton_frame *f)
{
    const struct grammar *g = a->grammar;
    if (g->strings[f->text.lo].len != f->at)
        return;
    const struct grammar_tool *tool = &g->tools[f->text.lo - g->tool_names.first];
    struct automaton_frame call = a->pool[f->parent];
    uint16_t calls = call.object.calls;
    memset(&call.object, 0, sizeof call.object);
    call.node = (uint16_t)tool->node;
    call.depth = ARGUMENTS_DEPTH;
    call.n_extras = 0;
    call.object.extras = -1;
    call.object.calls = (uint16_t)(calls + 1);
    memcpy(call.object.seen, tool->unwritable, sizeof call.object.seen);
    a->popped = true;
    automaton_emit(a, call);
}

void step_name(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    struct automaton_frame call;
    if (symbol > UINT8_MAX || symbol < 0x20)
        return;
    if (f.utf8 == 0 && symbol == '"') {
        if (f.flags & FLAG_TOOL) {
            close_tool_name(a, &f);
        } else if (f.text.length > 0 && key_close(a, &f, &call)) {
            a->popped = true;
            automaton_emit(a, call);
        }
        return;
    }
    int missing = automaton_utf8(f.utf8, (uint8_t)symbol);
    if (missing < 0)
        return;
    f.utf8 = (uint8_t)missing;
    if (text_feed(a, &f, (uint8_t)symbol))
        automaton_emit(a, f);
}

/* text.digits: 1 behind "<", 2 behind "</"; of the set's strings only behind a complete one. */
static void step_raw_set(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (f.text.digits == 2) {
        if (symbol == AUTOMATON_MARK)
            automaton_pop(a, &f);
        return;
    }
    struct automaton_frame end = f;
    end.text.digits++;
    if (f.text.digits == 1) {
        if (symbol == '/')
            automaton_emit(a, end);
        return;
    }
    if (symbol == '<' && a->grammar->strings[f.text.lo].len == f.at)
        automaton_emit(a, end);
    if (symbol <= UINT8_MAX && text_feed(a, &f, (uint8_t)symbol))
        automaton_emit(a, f);
}

void step_raw(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const struct grammar_node *node = &a->grammar->nodes[f.node];
    if (f.flags & FLAG_SET) {
        step_raw_set(a, f, symbol);
        return;
    }
    if (symbol == AUTOMATON_MARK) {
        if (f.utf8 == 0 && f.text.digits == 2 && f.text.length - 2 >= node->length_min)
            automaton_pop(a, &f);
        return;
    }
    int missing = automaton_utf8(f.utf8, (uint8_t)symbol);
    if (missing < 0)
        return;
    f.utf8 = (uint8_t)missing;
    if ((symbol & 0xC0) != 0x80 && f.text.length < UINT32_MAX)
        f.text.length++;
    f.text.digits = symbol == '<' ? 1 : symbol == '/' && f.text.digits == 1 ? 2 : 0;
    /* A "<" or "</" may be the end and is not counted until it is not. */
    if (f.text.length - f.text.digits <= node->length_max)
        automaton_emit(a, f);
}

void automaton_add_block(struct automaton *a, bool behind_mark)
{
    ASSERT(a->n_threads < MASK_THREADS_MAX && a->grammar->tool_names.n > 0);
    struct automaton_frame f = automaton_inner(a, -1, STATE_CALL_CHOICE, 0);
    f.row = behind_mark ? SITE_MARK : SITE_START;
    f.object.extras = -1;
    a->threads[a->n_threads++] = f;
}
