/*
 * A second, slow reader of tool-call blocks, for tests: it has the whole text before it and asks at
 * each place which of the allowed texts begins there.  Written from the rules (dsml.h, model.md
 * 5.5), sharing nothing with engine/text/dsml.c but the JSON parser.
 *
 * In its texts the byte 1 is the mark.
 */
#ifndef V4BOX_TESTS_DSML_MODEL_H
#define V4BOX_TESTS_DSML_MODEL_H

#include "config/limits.h"
#include "engine/text/dsml.h"

#include <stdlib.h>
#include <string.h>

#define MARK "\1"

struct model_result {
    enum dsml_progress progress;
    struct dsml_call calls[32]; /* owns */
    int n_calls;
    bool settled;
};

struct model_text {
    const char *p, *end;
};

enum { MODEL_CUT = -1, MODEL_BAD = -2 };

/* Which of the texts (NULL-terminated list) stands here; skips it. */
static inline int model_expect(struct model_text *t, const char *const *texts)
{
    size_t left = (size_t)(t->end - t->p);
    int found = MODEL_BAD;
    for (int i = 0; texts[i] != NULL; i++) {
        size_t len = strlen(texts[i]);
        if (left >= len && memcmp(t->p, texts[i], len) == 0) {
            t->p += len;
            return i;
        }
        if (left < len && memcmp(t->p, texts[i], left) == 0)
            found = MODEL_CUT;
    }
    return found;
}

static inline void model_skip_space(struct model_text *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t' || *t->p == '\r' || *t->p == '\n'))
        t->p++;
}

/* A name up to the quotation mark, skipped too. */
static inline int model_name(struct model_text *t, struct buf *out)
{
    for (; t->p < t->end; t->p++) {
        if (*t->p == '"') {
            t->p++;
            return 0;
        }
        if ((unsigned char)*t->p < 0x20 || out->len == TOOL_NAME_BYTES_MAX)
            return MODEL_BAD;
        buf_add(out, t->p, 1);
    }
    return MODEL_CUT;
}

/* Text up to the closing tag `close`. */
static inline int model_value(struct model_text *t, const char *close, struct buf *out)
{
    const char *mark = memchr(t->p, 1, (size_t)(t->end - t->p));
    if (mark == NULL)
        return MODEL_CUT;
    if (mark - t->p < 2 || mark[-1] != '/' || mark[-2] != '<')
        return MODEL_BAD;
    buf_add(out, t->p, (size_t)(mark - 2 - t->p));
    t->p = mark - 2;
    const char *const texts[] = {close, NULL};
    return model_expect(t, texts);
}

static inline bool model_is_json(const struct buf *text, bool object)
{
    struct json_object *value = NULL;
    bool good = text->len > 0 && json_parse(text->data, text->len, &value, NULL, NULL) == OK &&
                (!object || json_object_is_type(value, json_type_object));
    json_object_put(value);
    return good;
}

static inline void model_string(struct buf *out, const struct buf *text)
{
    buf_puts(out, "\"");
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c == '\r')
            buf_puts(out, "\\r");
        else if (c == '\t')
            buf_puts(out, "\\t");
        else if (c == '\b')
            buf_puts(out, "\\b");
        else if (c == '\f')
            buf_puts(out, "\\f");
        else if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_add(out, &c, 1);
    }
    buf_puts(out, "\"");
}

static inline bool model_is(const struct buf *b, const char *text)
{
    return b->len == strlen(text) && memcmp(b->data, text, b->len) == 0;
}

/* The schema of an offered tool, or NULL. */
static inline struct json_object *model_tool(struct json_object *tools, const struct buf *name)
{
    for (size_t i = 0; tools != NULL && i < json_object_array_length(tools); i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(tools, i), "function", NULL);
        if (model_is(name, json_object_get_string(json_member(function, "name", NULL))))
            return function;
    }
    return NULL;
}

static inline bool model_declares(struct json_object *function, const struct buf *key)
{
    struct json_object *properties =
        json_member(json_member(function, "parameters", NULL), "properties", NULL);
    bool declared = false;
    if (properties != NULL) {
        json_object_object_foreach(properties, name, value)
        {
            (void)value;
            declared = declared || model_is(key, name);
        }
    }
    return declared;
}

#define MODEL_KEYS_MAX 64

/* The parameters of a call, the text standing behind its opening tag. */
static inline int model_parameters(struct model_text *t, struct json_object *tools,
                                   struct dsml_call *call)
{
    static const char *const TAGS[] = {"<" MARK "parameter name=\"", "</" MARK "invoke>", "{",
                                       NULL};
    static const char *const TAGS_AFTER[] = {"<" MARK "parameter name=\"", "</" MARK "invoke>",
                                             NULL};
    static const char *const KINDS[] = {" string=\"true\">", " string=\"false\">", NULL};
    struct buf keys[MODEL_KEYS_MAX] = {{0}}, value = {0};
    int n = 0, what;
    for (;;) {
        model_skip_space(t);
        what = model_expect(t, n == 0 ? TAGS : TAGS_AFTER);
        if (what != 0)
            break;
        value.len = 0;
        if ((what = model_name(t, &keys[n])) < 0)
            break;
        int kind = model_expect(t, KINDS);
        what = kind;
        for (int i = 0; i < n && kind >= 0; i++) {
            if (keys[i].len == keys[n].len && memcmp(keys[i].data, keys[n].data, keys[n].len) == 0)
                what = MODEL_BAD;
        }
        if (what < 0 || (what = model_value(t, "</" MARK "parameter>", &value)) < 0)
            break;
        buf_puts(&call->arguments, n == 0 ? "{" : ", ");
        model_string(&call->arguments, &keys[n++]);
        buf_puts(&call->arguments, ": ");
        if (kind == 1 && model_is_json(&value, false))
            buf_add(&call->arguments, value.data, value.len);
        else
            model_string(&call->arguments, &value);
    }
    struct json_object *tool = model_tool(tools, &call->name);
    if (what == 2) { /* one object in place of the parameters */
        buf_puts(&value, "{");
        what = model_value(t, "</" MARK "invoke>", &value);
        if (what == 0 && !model_is_json(&value, true))
            what = MODEL_BAD;
        if (what == 0)
            buf_add(&call->arguments, value.data, value.len);
    } else if (what == 1) {
        bool lone = n == 1 && (model_is(&keys[0], "arguments") || model_is(&keys[0], "input"));
        if (lone && tool != NULL && !model_declares(tool, &keys[0]) &&
            model_is_json(&value, true)) {
            call->arguments.len = 0;
            buf_add(&call->arguments, value.data, value.len);
        } else {
            buf_puts(&call->arguments, n == 0 ? "{}" : "}");
        }
        what = 0;
    }
    for (int i = 0; i <= n && i < MODEL_KEYS_MAX; i++)
        buf_free(&keys[i]);
    buf_free(&value);
    return what;
}

/* A whole call, the text standing behind `invoke name="`. */
static inline int model_call(struct model_text *t, struct json_object *tools, bool bare,
                             struct model_result *out)
{
    static const char *const NAMED[] = {">", NULL};
    struct dsml_call *call = &out->calls[out->n_calls];
    int what = model_name(t, &call->name);
    if (bare && (what < 0 || model_tool(tools, &call->name) == NULL)) {
        out->progress = what == MODEL_CUT ? DSML_OPENING : DSML_NONE;
        return MODEL_BAD;
    }
    if (what == 0 && call->name.len == 0)
        what = MODEL_BAD;
    if (what == 0)
        what = model_expect(t, NAMED);
    if (what == 0)
        what = model_parameters(t, tools, call);
    out->progress = what == MODEL_CUT ? DSML_OPEN : DSML_MALFORMED;
    if (what == 0)
        out->n_calls++;
    return what;
}

/* Reads the text behind the first mark. */
static inline void model_read(const char *text, size_t len, struct json_object *tools, bool wrapped,
                              struct model_result *out)
{
    static const char *const OPENINGS[] = {"invoke name=\"",   "tool_calls>", "tool_calls\n",
                                           "function_calls>",  "toolcalls>",  "toolcalls\n",
                                           "function_calls\n", NULL};
    static const char *const TAGS[] = {"<" MARK "invoke name=\"", "</" MARK "tool_calls>",
                                       "</" MARK "function_calls>", "</" MARK "toolcalls>", NULL};
    struct model_text t = {text, text + len};
    *out = (struct model_result){0};
    int what = model_expect(&t, OPENINGS);
    if (what < 0 || (wrapped && what == 0)) {
        out->progress = what == MODEL_CUT ? DSML_OPENING : DSML_NONE;
        return;
    }
    if (what == 0 && model_call(&t, tools, true, out) < 0)
        return;
    for (;;) {
        model_skip_space(&t);
        const char *here = t.p;
        what = model_expect(&t, TAGS);
        if (what > 0) {
            out->progress = DSML_ENDED;
            out->settled = out->n_calls > 0;
            return;
        }
        if (what < 0) {
            bool calls_again = t.end - here >= 2 && here[1] == 1;
            out->progress = what == MODEL_CUT ? DSML_OPEN : DSML_MALFORMED;
            out->settled = what == MODEL_CUT && !calls_again && out->n_calls > 0;
            return;
        }
        if (model_call(&t, tools, false, out) < 0)
            return;
    }
}

static inline void model_free(struct model_result *r)
{
    for (size_t i = 0; i < sizeof r->calls / sizeof r->calls[0]; i++) {
        buf_free(&r->calls[i].name);
        buf_free(&r->calls[i].arguments);
    }
}

#endif
