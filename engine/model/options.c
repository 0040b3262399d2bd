/* Flags of the commands, and id files of those that look into the network. */
#include "engine/model/options.h"

#include "engine/base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool number_parse(const char *text, int32_t low, int32_t high, int32_t *out)
{
    char *end;
    if (*text != '-' && (*text < '0' || *text > '9'))
        return false; /* strtoll would skip blanks and take a plus sign */
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != '\0' || end == text || errno != 0 || value < low || value > high)
        return false;
    *out = (int32_t)value;
    return true;
}

static bool list_add(struct flag_list *list, const char *text)
{
    if (list->n == list->max)
        return false;
    list->texts[list->n++] = text;
    return true;
}

static enum status value_parse(const struct flag *flag, const char *text, struct error *err)
{
    bool good = true;
    const char *wrong;
    int n;
    switch (flag->kind) {
    case FLAG_TEXT:
        *(const char **)flag->value = text;
        break;
    case FLAG_NUMBER:
        good =
            number_parse(text, flag->max > 0, flag->max > 0 ? flag->max : INT32_MAX, flag->value);
        if (!good && flag->max > 0)
            return error_set(err, ERR_USAGE, "%s: must be a number from 1 to %d", flag->name,
                             (int)flag->max);
        break;
    case FLAG_PROFILE:
        if (!profile_parse(text, flag->value, &wrong, &n))
            return error_set(err, ERR_USAGE, "%s: '%.*s' is no profile or ROW=VALUE of one",
                             flag->name, n < 64 ? n : 64, wrong);
        break;
    case FLAG_ISA:
        good = isa_parse(text, flag->value);
        break;
    case FLAG_LIST:
        if (!list_add(flag->value, text))
            return error_set(err, ERR_USAGE, "%s: at most %d", flag->name,
                             (int)((struct flag_list *)flag->value)->max);
        break;
    case FLAG_SWITCH:
        break;
    }
    static const char *const WANTED[] = {
        [FLAG_NUMBER] = "a number", [FLAG_ISA] = "auto, baseline, avx2 or avx512"};
    if (!good)
        return error_set(err, ERR_USAGE, "%s: must be %s", flag->name, WANTED[flag->kind]);
    return OK;
}

enum status flags_parse(int argc, char **argv, struct flag *flags, int n_flags, struct error *err)
{
    for (int i = 1; i < argc; i++) {
        struct flag *flag = NULL;
        for (int f = 0; f < n_flags; f++) {
            if (strcmp(argv[i], flags[f].name) == 0)
                flag = &flags[f];
        }
        if (flag == NULL)
            return error_set(err, ERR_USAGE, "unknown flag '%.32s'", argv[i]);
        if (flag->seen && flag->kind != FLAG_LIST)
            return error_set(err, ERR_USAGE, "%s: given twice", flag->name);
        flag->seen = true;
        if (flag->kind == FLAG_SWITCH) {
            *(bool *)flag->value = true;
            continue;
        }
        if (++i == argc)
            return error_set(err, ERR_USAGE, "%s: needs a value", flag->name);
        enum status status = value_parse(flag, argv[i], err);
        if (status != OK)
            return status;
    }
    for (int f = 0; f < n_flags; f++) {
        if (flags[f].required && !flags[f].seen)
            return error_set(err, ERR_USAGE, "%s is required", flags[f].name);
    }
    return OK;
}

enum status ids_file_read(const char *path, int32_t vocab_size, struct ids *out, struct error *err)
{
    struct json_object *root;
    enum status status = json_parse_file(path, IDS_FILE_BYTES_MAX, &root, err);
    if (status != OK)
        return status;
    struct ids ids = {0};
    if (!json_object_is_type(root, json_type_array)) {
        status = error_set(err, ERR_INPUT, "%s: must be an array of token ids", path);
        goto out_root;
    }
    size_t n = json_object_array_length(root);
    if (n < 1 || n > POSITIONS_MAX) {
        status =
            error_set(err, ERR_INPUT, "%s: %zu ids; 1 to %d are possible", path, n, POSITIONS_MAX);
        goto out_root;
    }
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(root, i);
        int64_t id = json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : -1;
        if (id < 0 || id >= vocab_size) {
            status = error_set(err, ERR_INPUT, "%s: [%zu] is no token id from 0 to %d", path, i,
                               (int)vocab_size - 1);
            goto out_root;
        }
        ids_add(&ids, (int32_t)id);
    }
    *out = ids;
    ids = (struct ids){0};

out_root:
    ids_free(&ids);
    json_object_put(root);
    return status;
}
