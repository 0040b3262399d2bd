/* The admin protocol, both ends. */
#include "init/protocol.h"

#include <string.h>

struct cursor {
    const char *p, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->p < c->end && strchr(" \t\r\n", *c->p) != NULL && *c->p != '\0')
        c->p++;
}

/* Consumes `symbol` after blanks. */
static bool take(struct cursor *c, char symbol)
{
    skip_blanks(c);
    if (c->p == c->end || *c->p != symbol)
        return false;
    c->p++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

static bool take_hex4(struct cursor *c, unsigned *value)
{
    if (c->end - c->p < 4)
        return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char low = (char)(c->p[i] >= 'A' && c->p[i] <= 'F' ? c->p[i] + 32 : c->p[i]);
        const char *found = low == '\0' ? NULL : strchr(digits, low);
        if (found == NULL)
            return false;
        *value = *value * 16 + (unsigned)(found - digits);
    }
    c->p += 4;
    return true;
}

static void add_utf8(struct text *out, unsigned code)
{
    char bytes[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char LEAD[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(LEAD[n] | code);
    text_add(out, bytes, n);
}

/* \uXXXX, pairs joined; half a pair becomes U+FFFD. */
static bool take_unicode(struct cursor *c, struct text *out)
{
    unsigned high, low;
    if (!take_hex4(c, &high))
        return false;
    if (high >= 0xd800 && high <= 0xdbff && c->end - c->p >= 6 && c->p[0] == '\\' &&
        c->p[1] == 'u') {
        struct cursor ahead = {c->p + 2, c->end};
        if (!take_hex4(&ahead, &low))
            return false;
        if (low >= 0xdc00 && low <= 0xdfff) {
            *c = ahead;
            add_utf8(out, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
            return true;
        }
    }
    add_utf8(out, high >= 0xd800 && high <= 0xdfff ? 0xfffd : high);
    return true;
}

static bool take_escape(struct cursor *c, struct text *out)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    if (c->p == c->end)
        return false;
    char symbol = *c->p++;
    if (symbol == 'u')
        return take_unicode(c, out);
    const char *found = symbol == '\0' ? NULL : strchr(FROM, symbol);
    if (found == NULL)
        return false;
    text_add(out, &TO[found - FROM], 1);
    return true;
}

/* A string literal; decoded into `out`, whose `cut` tells when it did not fit. */
static bool take_string(struct cursor *c, struct text *out)
{
    if (!take(c, '"'))
        return false;
    while (c->p < c->end) {
        char symbol = *c->p++;
        if (symbol == '"')
            return true;
        if ((unsigned char)symbol < 0x20)
            return false;
        if (symbol != '\\')
            text_add(out, &symbol, 1);
        else if (!take_escape(c, out))
            return false;
    }
    return false;
}

/* A word of a request: printable ASCII within CONTROL_WORD_BYTES, since it is shown and compared.
 */
static bool take_request_word(struct cursor *c, char *word)
{
    struct text t = text_over(word, CONTROL_WORD_BYTES + 1);
    if (!take_string(c, &t) || t.cut)
        return false;
    for (size_t i = 0; i < t.len; i++)
        if (t.data[i] < 0x20 || t.data[i] > 0x7e)
            return false;
    return true;
}

static bool take_scalar(struct cursor *c)
{
    char ignored[1];
    struct text nowhere = text_over(ignored, sizeof ignored);
    skip_blanks(c);
    if (c->p < c->end && *c->p == '"')
        return take_string(c, &nowhere);
    if (take_word(c, "true") || take_word(c, "false") || take_word(c, "null"))
        return true;
    const char *start = c->p;
    while (c->p < c->end && *c->p != '\0' && strchr("+-.0123456789eE", *c->p) != NULL)
        c->p++;
    return c->p > start;
}

/* Skips one value of any kind.  A loop with a stack of brackets: depth is bounded, no recursion. */
static bool skip_value(struct cursor *c)
{
    char open[CONTROL_DEPTH_MAX];
    char key[1];
    int depth = 0;
    for (;;) {
        skip_blanks(c);
        char symbol = c->p < c->end ? *c->p : '\0';
        bool opened = symbol == '{' || symbol == '[';
        if (opened) {
            if (depth == CONTROL_DEPTH_MAX)
                return false;
            open[depth++] = symbol == '{' ? '}' : ']';
            c->p++;
        } else if (!take_scalar(c)) {
            return false;
        }
        while (depth > 0 && take(c, open[depth - 1])) {
            depth--;
            opened = false;
        }
        if (depth == 0)
            return true;
        if (!opened && !take(c, ','))
            return false;
        struct text nowhere = text_over(key, sizeof key);
        if (open[depth - 1] == '}' && (!take_string(c, &nowhere) || !take(c, ':')))
            return false;
    }
}

/* The next member's name of an object whose '{' was consumed.  `name` is cut to what fits. */
static bool take_member(struct cursor *c, bool first, char *name, size_t cap)
{
    struct text t = text_over(name, cap);
    if (!first && !take(c, ','))
        return false;
    return take_string(c, &t) && take(c, ':');
}

static bool at_end(struct cursor *c)
{
    skip_blanks(c);
    return c->p == c->end;
}

static bool take_args(struct cursor *c, struct request *r)
{
    if (!take(c, '['))
        return false;
    if (take(c, ']'))
        return true;
    do {
        if (r->count > CONTROL_ARGS_MAX || !take_request_word(c, r->word[r->count]))
            return false;
        r->count++;
    } while (take(c, ','));
    return take(c, ']');
}

bool request_parse(struct request *r, const char *line, size_t n)
{
    struct cursor c = {line, line + n};
    char name[16];
    bool has_command = false, has_args = false;
    memset(r, 0, sizeof *r);
    r->count = 1;
    if (!take(&c, '{'))
        return false;
    for (bool first = true; !take(&c, '}'); first = false) {
        if (!take_member(&c, first, name, sizeof name))
            return false;
        bool good;
        if (strcmp(name, "command") == 0) {
            good = !has_command && take_request_word(&c, r->word[0]) && r->word[0][0] != '\0';
            has_command = true;
        } else if (strcmp(name, "args") == 0) {
            good = !has_args && take_args(&c, r);
            has_args = true;
        } else {
            good = skip_value(&c);
        }
        if (!good)
            return false;
    }
    return has_command && at_end(&c);
}

bool request_from_line(struct request *r, const char *line, size_t n)
{
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < n;) {
        if (line[i] == ' ' || line[i] == '\t') {
            i++;
            continue;
        }
        size_t length = 0;
        while (i + length < n && line[i + length] > 0x20 && line[i + length] < 0x7f)
            length++;
        bool ends = i + length == n || line[i + length] == ' ' || line[i + length] == '\t';
        if (!ends || length > CONTROL_WORD_BYTES || r->count > CONTROL_ARGS_MAX)
            return false;
        memcpy(r->word[r->count++], line + i, length);
        i += length;
    }
    return r->count > 0;
}

void request_write(struct text *t, const struct request *r)
{
    text_printf(t, "{\"command\":");
    text_json_string(t, r->word[0], strlen(r->word[0]));
    text_printf(t, ",\"args\":[");
    for (int i = 1; i < r->count; i++) {
        text_add(t, ",", i > 1 ? 1 : 0);
        text_json_string(t, r->word[i], strlen(r->word[i]));
    }
    text_printf(t, "]}\n");
}

bool answer_parse(struct answer *a, const char *line, size_t n, char *buffer, size_t cap)
{
    struct cursor c = {line, line + n};
    char name[16];
    bool has_ok = false, has_text = false;
    *a = (struct answer){.text = text_over(buffer, cap)};
    if (!take(&c, '{'))
        return false;
    for (bool first = true; !take(&c, '}'); first = false) {
        if (!take_member(&c, first, name, sizeof name))
            return false;
        bool good;
        if (strcmp(name, "ok") == 0) {
            a->ok = take_word(&c, "true");
            good = !has_ok && (a->ok || take_word(&c, "false"));
            has_ok = true;
        } else if (strcmp(name, "text") == 0) {
            good = !has_text && take_string(&c, &a->text) && !a->text.cut;
            has_text = true;
        } else {
            skip_blanks(&c);
            const char *start = c.p;
            good = skip_value(&c);
            if (strcmp(name, "data") == 0) {
                a->data = start;
                a->data_len = (size_t)(c.p - start);
            }
        }
        if (!good)
            return false;
    }
    return has_ok && has_text && at_end(&c);
}

void answer_write(struct text *t, bool ok, const char *text, size_t text_len, const char *data,
                  size_t data_len)
{
    text_printf(t, "{\"ok\":%s,\"text\":", ok ? "true" : "false");
    text_json_string(t, text, text_len);
    if (data != NULL) {
        text_printf(t, ",\"data\":");
        text_add(t, data, data_len);
    }
    text_printf(t, "}\n");
}
