/*
 * The tool-call reader (dsml.h): one row a state, which says how text is read there and where the
 * marks lead.  A mark counts behind "<" or "</" alone.
 */
#include "engine/text/dsml.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- the states ------------------------------------------------------------------------------ */

enum state {
    STATE_NOWHERE, /* no way on */
    STATE_OPENING, /* behind the first mark */
    STATE_BLOCK,   /* between calls */
    STATE_CALL_TAG,
    STATE_NAME, /* of the tool */
    STATE_NAMED,
    STATE_CALL, /* between parameters */
    STATE_KEY_TAG,
    STATE_KEY, /* name of a parameter */
    STATE_KIND,
    STATE_STRING, /* values */
    STATE_JSON,
    STATE_VALUE_END,
    STATE_OBJECT, /* all arguments as one JSON object */
    STATE_CALL_END,
    STATE_BLOCK_END,
    STATE_ENDED,
    STATE_MALFORMED,
    STATE_NONE,
    N_STATES,
};

/* A fixed text and the state behind it.  In one list none is the beginning of another. */
struct word {
    const char *text;
    enum state next;
};

static const struct word OPENING_WORDS[] = {
    {"tool_calls>", STATE_BLOCK},     {"tool_calls\n", STATE_BLOCK},
    {"toolcalls>", STATE_BLOCK},      {"toolcalls\n", STATE_BLOCK},
    {"function_calls>", STATE_BLOCK}, {"function_calls\n", STATE_BLOCK},
    {"invoke name=\"", STATE_NAME},   {NULL, STATE_NOWHERE}};
static const struct word CALL_TAG_WORDS[] = {{"invoke name=\"", STATE_NAME}, {NULL, STATE_NOWHERE}};
static const struct word NAMED_WORDS[] = {{">", STATE_CALL}, {NULL, STATE_NOWHERE}};
static const struct word KEY_TAG_WORDS[] = {{"parameter name=\"", STATE_KEY},
                                            {NULL, STATE_NOWHERE}};
static const struct word KIND_WORDS[] = {
    {" string=\"true\">", STATE_STRING}, {" string=\"false\">", STATE_JSON}, {NULL, STATE_NOWHERE}};
static const struct word VALUE_END_WORDS[] = {{"parameter>", STATE_CALL}, {NULL, STATE_NOWHERE}};
static const struct word CALL_END_WORDS[] = {{"invoke>", STATE_BLOCK}, {NULL, STATE_NOWHERE}};
static const struct word BLOCK_END_WORDS[] = {{"tool_calls>", STATE_ENDED},
                                              {"toolcalls>", STATE_ENDED},
                                              {"function_calls>", STATE_ENDED},
                                              {NULL, STATE_NOWHERE}};

enum reading {
    READ_WORD,  /* one of `words` */
    READ_SPACE, /* white space between tags */
    READ_NAME,  /* up to a quotation mark, which leads to `quote` */
    READ_VALUE, /* anything */
    READ_NOTHING,
};

static const struct row {
    enum reading reading;
    const struct word *words;
    enum state quote;
    enum state open, close; /* behind "<" and "</" and a mark */
    const char *fault;      /* what is wrong when there is no way on */
    enum dsml_progress progress;
} ROWS[N_STATES] = {
    [STATE_OPENING] = {.words = OPENING_WORDS,
                       .fault = "the opening tag",
                       .progress = DSML_OPENING},
    [STATE_BLOCK] = {READ_SPACE, .open = STATE_CALL_TAG, .close = STATE_BLOCK_END,
                     .fault = "text between calls"},
    [STATE_CALL_TAG] = {.words = CALL_TAG_WORDS, .fault = "invoke: the opening tag"},
    [STATE_NAME] = {READ_NAME, .quote = STATE_NAMED, .fault = "invoke: the name"},
    [STATE_NAMED] = {.words = NAMED_WORDS, .fault = "invoke: the opening tag"},
    [STATE_CALL] = {READ_SPACE, .open = STATE_KEY_TAG, .close = STATE_CALL_END,
                    .fault = "text between parameters"},
    [STATE_KEY_TAG] = {.words = KEY_TAG_WORDS, .fault = "parameter: the opening tag"},
    [STATE_KEY] = {READ_NAME, .quote = STATE_KIND, .fault = "parameter: the name"},
    [STATE_KIND] = {.words = KIND_WORDS, .fault = "parameter: the kind"},
    [STATE_STRING] = {READ_VALUE, .close = STATE_VALUE_END, .fault = "parameter: a mark inside"},
    [STATE_JSON] = {READ_VALUE, .close = STATE_VALUE_END, .fault = "parameter: a mark inside"},
    [STATE_VALUE_END] = {.words = VALUE_END_WORDS, .fault = "parameter: the closing tag"},
    [STATE_OBJECT] = {READ_VALUE, .close = STATE_CALL_END, .fault = "invoke: a mark inside"},
    [STATE_CALL_END] = {.words = CALL_END_WORDS, .fault = "invoke: the closing tag"},
    [STATE_BLOCK_END] = {.words = BLOCK_END_WORDS, .fault = "the closing tag"},
    [STATE_ENDED] = {READ_NOTHING, .progress = DSML_ENDED},
    [STATE_MALFORMED] = {READ_NOTHING, .progress = DSML_MALFORMED},
    [STATE_NONE] = {READ_NOTHING, .progress = DSML_NONE},
};

#define WORD_BYTES_MAX 24 /* room for the longest word above */
#define CALLS_STEP     8  /* calls that memory is taken for at once */

struct dsml {
    struct json_object *tools; /* one reference; may be NULL */
    bool wrapped_only;
    bool bare; /* no wrapper, and the first call is not known to be one yet */
    enum state state;
    char word[WORD_BYTES_MAX]; /* READ_WORD: what has come of it */
    size_t word_len;
    size_t slash_len; /* of "<" or "</" just seen, in bytes: 0, 1 or 2 */
    const char *fault;
    struct dsml_call *calls; /* owns [cap_calls]; the one behind the complete ones is being read */
    int32_t n_calls, cap_calls;
    struct buf key, value; /* own: of the parameter being read */
    bool value_is_json;
    struct buf keys; /* owns: of the call, each between NULs */
    int32_t n_keys;
};

/* ---- tools ----------------------------------------------------------------------------------- */

static bool text_equals(struct json_object *value, const struct buf *text)
{
    return json_object_is_type(value, json_type_string) &&
           (size_t)json_object_get_string_len(value) == text->len &&
           (text->len == 0 || memcmp(json_object_get_string(value), text->data, text->len) == 0);
}

/* The offered function of this name, or NULL. */
static struct json_object *find_function(struct dsml *d, const struct buf *name)
{
    size_t count =
        json_object_is_type(d->tools, json_type_array) ? json_object_array_length(d->tools) : 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(d->tools, i), "function", NULL);
        if (text_equals(json_member(function, "name", NULL), name))
            return function;
    }
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *bytes_of(const struct buf *b)
{
    return b->len == 0 ? "" : b->data;
}

static bool is_json(const struct buf *text, bool object)
{
    struct json_object *value = NULL;
    bool good = json_parse(bytes_of(text), text->len, &value, NULL, NULL) == OK;
    good = good && (!object || json_object_is_type(value, json_type_object));
    json_object_put(value);
    return good;
}

static struct dsml_call *current(struct dsml *d)
{
    return &d->calls[d->n_calls];
}

/* Without a wrapper and a tool's name, what can not be read is plain text. */
static bool fail(struct dsml *d, const char *fault)
{
    d->fault = fault;
    d->state = d->bare || d->state == STATE_OPENING ? STATE_NONE : STATE_MALFORMED;
    return false;
}

/* Takes note of the parameter's name.  False: it came before, or there are too many. */
static bool begin_value(struct dsml *d, bool json)
{
    struct buf key = {0};
    buf_add(&key, "", 1);
    buf_add(&key, bytes_of(&d->key), d->key.len);
    buf_add(&key, "", 1);
    bool known = d->keys.len > 0 && memmem(d->keys.data, d->keys.len, key.data, key.len) != NULL;
    buf_add(&d->keys, key.data, key.len);
    buf_free(&key);
    if (known)
        return fail(d, "parameter: given twice");
    if (++d->n_keys > DSML_PARAMETERS_MAX)
        return fail(d, "parameter: too many");
    d->value.len = 0;
    d->value_is_json = json;
    return true;
}

static void end_value(struct dsml *d)
{
    struct buf *out = &current(d)->arguments;
    buf_puts(out, d->n_keys == 1 ? "{" : ", ");
    json_dump_string(out, bytes_of(&d->key), d->key.len);
    buf_puts(out, ": ");
    if (d->value_is_json && is_json(&d->value, false))
        buf_add(out, d->value.data, d->value.len);
    else
        json_dump_string(out, bytes_of(&d->value), d->value.len);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool begin_call(struct dsml *d)
{
    if (d->n_calls == TOOL_CALLS_MAX)
        return fail(d, "invoke: too many");
    if (d->n_calls == d->cap_calls) {
        d->cap_calls += CALLS_STEP;
        d->calls = realloc(d->calls, (size_t)d->cap_calls * sizeof *d->calls);
        ASSERT(d->calls != NULL);
        memset(current(d), 0, CALLS_STEP * sizeof *d->calls);
    }
    d->keys.len = 0;
    d->n_keys = 0;
    d->value.len = 0;
    return true;
}

/* A lone parameter that holds all arguments, under a name which the tool does not know. */
static bool is_wrapped(struct dsml *d)
{
    static const char *const WRAPPERS[] = {"arguments", "input"};
    struct json_object *function = find_function(d, &current(d)->name);
    if (d->n_keys != 1 || function == NULL)
        return false;
    struct json_object *properties =
        json_member(json_member(function, "parameters", NULL), "properties", NULL);
    for (size_t i = 0; i < sizeof WRAPPERS / sizeof WRAPPERS[0]; i++) {
        if (d->key.len == strlen(WRAPPERS[i]) && memcmp(d->key.data, WRAPPERS[i], d->key.len) == 0)
            return !json_object_is_type(properties, json_type_object) ||
                   !json_object_object_get_ex(properties, WRAPPERS[i], NULL);
    }
    return false;
}

static bool end_call(struct dsml *d)
{
    struct buf *out = &current(d)->arguments;
    bool whole = d->n_keys == 0 && d->value.len > 0; /* STATE_OBJECT */
    if (whole && !is_json(&d->value, true))
        return fail(d, "invoke: not an object");
    if (whole || (is_wrapped(d) && is_json(&d->value, true))) {
        out->len = 0;
        buf_add(out, d->value.data, d->value.len);
    } else {
        buf_puts(out, d->n_keys == 0 ? "{}" : "}");
    }
    d->n_calls++;
    return true;
}

/* The name of a tool is complete.  False: malformed, or no block at all. */
static bool end_name(struct dsml *d)
{
    const struct buf *name = &current(d)->name;
    if (name->len == 0 || (d->bare && find_function(d, name) == NULL))
        return fail(d, ROWS[STATE_NAME].fault);
    d->bare = false;
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What happens on the way between two states.  False: the state has been set. */
static bool leave(struct dsml *d, enum state next)
{
    if (d->state == STATE_OPENING && next == STATE_NAME) {
        d->bare = true;
        if (d->wrapped_only)
            return fail(d, ROWS[STATE_OPENING].fault);
    }
    switch (next) {
    case STATE_NAME:
        return begin_call(d);
    case STATE_NAMED:
        return end_name(d);
    case STATE_KEY:
        d->key.len = 0;
        return true;
    case STATE_STRING:
    case STATE_JSON:
        return begin_value(d, next == STATE_JSON);
    case STATE_CALL:
        if (d->state == STATE_VALUE_END)
            end_value(d);
        return true;
    case STATE_BLOCK:
        return d->state != STATE_CALL_END || end_call(d);
    default:
        return true;
    }
}

static void go(struct dsml *d, enum state next)
{
    if (next == STATE_NOWHERE)
        fail(d, ROWS[d->state].fault);
    else if (leave(d, next))
        d->state = next;
    d->word_len = 0;
    d->slash_len = 0;
}

static void read_word(struct dsml *d, const struct row *row, char byte)
{
    ASSERT(d->word_len < sizeof d->word);
    d->word[d->word_len++] = byte;
    for (const struct word *word = row->words; word->text != NULL; word++) {
        if (strncmp(word->text, d->word, d->word_len) != 0)
            continue;
        if (word->text[d->word_len] == '\0')
            go(d, word->next);
        return;
    }
    go(d, STATE_NOWHERE);
}

static void read_name(struct dsml *d, const struct row *row, char byte)
{
    struct buf *name = d->state == STATE_NAME ? &current(d)->name : &d->key;
    if (byte == '"')
        go(d, row->quote);
    else if ((unsigned char)byte < 0x20 || name->len == TOOL_NAME_BYTES_MAX)
        go(d, STATE_NOWHERE);
    else
        buf_add(name, &byte, 1);
}

/* How much of "</" the text ends with after one more byte. */
static size_t slash_after(size_t slash_len, char byte)
{
    if (byte == '<')
        return 1;
    return byte == '/' && slash_len == 1 ? 2 : 0;
}

static void read_space(struct dsml *d, char byte)
{
    size_t before = d->slash_len;
    d->slash_len = slash_after(before, byte);
    if (d->slash_len > before)
        return;
    if (d->state == STATE_CALL && d->n_keys == 0 && before == 0 && byte == '{') {
        buf_add(&d->value, &byte, 1);
        d->state = STATE_OBJECT;
    } else if (before > 0 || strchr(" \t\r\n", byte) == NULL || byte == '\0') {
        go(d, STATE_NOWHERE);
    }
}

static void read_byte(struct dsml *d, char byte)
{
    const struct row *row = &ROWS[d->state];
    switch (row->reading) {
    case READ_WORD:
        read_word(d, row, byte);
        return;
    case READ_SPACE:
        read_space(d, byte);
        return;
    case READ_NAME:
        read_name(d, row, byte);
        return;
    case READ_VALUE:
        d->slash_len = slash_after(d->slash_len, byte);
        buf_add(&d->value, &byte, 1);
        return;
    case READ_NOTHING:
        return;
    }
}

static enum dsml_progress progress(const struct dsml *d)
{
    enum dsml_progress here = ROWS[d->state].progress;
    /* Without its wrapper it is no block before the name is known to be a tool's. */
    return d->bare && here == DSML_OPEN ? DSML_OPENING : here;
}

enum dsml_progress dsml_push_text(struct dsml *d, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        read_byte(d, text[i]);
    return progress(d);
}

enum dsml_progress dsml_push_mark(struct dsml *d)
{
    const struct row *row = &ROWS[d->state];
    if (row->reading == READ_NOTHING)
        return progress(d);
    if (row->reading == READ_VALUE && d->slash_len == 2)
        d->value.len -= 2; /* "</" belongs to the tag */
    go(d, d->slash_len == 0 ? STATE_NOWHERE : d->slash_len == 1 ? row->open : row->close);
    return progress(d);
}

/* ---- public ---------------------------------------------------------------------------------- */

struct dsml *dsml_create(struct json_object *tools, bool wrapped)
{
    struct dsml *d = calloc(1, sizeof *d);
    ASSERT(d != NULL);
    d->tools = json_object_get(tools);
    d->wrapped_only = wrapped;
    d->state = STATE_OPENING;
    return d;
}

bool dsml_in_call(const struct dsml *d)
{
    return d->state >= STATE_NAME && d->state <= STATE_CALL_END;
}

void dsml_destroy(struct dsml *d)
{
    if (d == NULL)
        return;
    for (int32_t i = 0; i < d->cap_calls; i++) {
        buf_free(&d->calls[i].name);
        buf_free(&d->calls[i].arguments);
    }
    free(d->calls);
    buf_free(&d->key);
    buf_free(&d->value);
    buf_free(&d->keys);
    json_object_put(d->tools);
    free(d);
}

const struct dsml_call *dsml_calls(const struct dsml *d, int32_t *count)
{
    *count = d->n_calls;
    return d->calls;
}

bool dsml_is_settled(const struct dsml *d)
{
    return d->n_calls > 0 &&
           (d->state == STATE_BLOCK || d->state == STATE_BLOCK_END || d->state == STATE_ENDED);
}

const char *dsml_fault(const struct dsml *d)
{
    return d->fault;
}
