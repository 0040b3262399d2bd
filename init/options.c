/* The kernel command line's options. */
#include "init/options.h"

#include "config/box.h"

#include <string.h>

#define PREFIX     "v4box."
#define VALUES_MAX 6 /* of one option; the longest list in config/options.def has 4 */

static const struct {
    const char *name;
    const char *values[VALUES_MAX]; /* the default first; NULL-terminated */
} OPTIONS[OPTION_COUNT] = {
#define OPTION(id, name, ...) [OPTION_##id] = {name, {__VA_ARGS__, NULL}},
#include "config/options.def"
#undef OPTION
};

void options_init(struct options *o)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        o->value[i] = OPTIONS[i].values[0];
}

/* The constant equal to the given bytes, or NULL. */
static const char *allowed_value(int option, const char *value, size_t n)
{
    for (const char *const *v = OPTIONS[option].values; *v != NULL; v++)
        if (strlen(*v) == n && memcmp(*v, value, n) == 0)
            return *v;
    return NULL;
}

static bool apply(struct options *o, const char *word, size_t n)
{
    const char *equals = memchr(word, '=', n);
    if (equals == NULL)
        return false;
    size_t name_len = (size_t)(equals - word);
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strlen(OPTIONS[i].name) != name_len || memcmp(OPTIONS[i].name, word, name_len) != 0)
            continue;
        const char *value = allowed_value(i, equals + 1, n - name_len - 1);
        if (value != NULL)
            o->value[i] = value;
        return value != NULL;
    }
    return false;
}

void options_parse(struct options *o, const char *cmdline, size_t n, struct text *complaints)
{
    size_t prefix = strlen(PREFIX);
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        while (i + length < n && strchr(" \t\n", cmdline[i + length]) == NULL)
            length++;
        const char *word = cmdline + i;
        if (length > prefix && memcmp(word, PREFIX, prefix) == 0 &&
            !apply(o, word + prefix, length - prefix)) {
            text_printf(complaints, "kernel command line: '");
            text_add_printable(complaints, word, length < 64 ? length : 64);
            text_printf(complaints, "' refused, not in the list\n");
        }
        i += length + 1;
    }
}

const char *options_value(const struct options *o, const char *name)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(OPTIONS[i].name, name) == 0)
            return o->value[i];
    return NULL;
}
