/*
 * Reads tokenizer.json, which is hostile until checked: the settings against config/tokenizer.def,
 * ids unique and without gaps, a token for every byte, merges only of and to tokens that text may
 * produce.  So a file that opens cannot make the encoder fail later.
 */
#include "engine/text/tokenizer_file.h"

#include "config/limits.h"
#include "engine/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path;
    struct json_object *root;                   /* owns */
    struct json_object *words, *added, *merges; /* views: model.vocab, added_tokens, model.merges */
    struct vocab *vocab;                        /* borrows, to be filled */
    struct bpe *bpe;                            /* borrows, to be filled */
    struct buf scratch;
    struct error *err;
};

#define REFUSE(reader, format, ...)                                                                \
    error_set((reader)->err, ERR_INPUT, "%s: " format, (reader)->path, __VA_ARGS__)

/* ---- settings ------------------------------------------------------------------------------- */

static const struct setting {
    const char *path;
    bool string;
    const char *accepted[4]; /* NULL after the last */
} SETTINGS[] = {
#define STRING(path, ...) {path, true, {__VA_ARGS__}},
#define VALUE(path, ...)  {path, false, {__VA_ARGS__}},
#include "config/tokenizer.def"
#undef STRING
#undef VALUE
};

#define N_SETTINGS (sizeof SETTINGS / sizeof SETTINGS[0])

/* The value at a path of names and array indices with dots between. */
static struct json_object *find(struct json_object *value, const char *path, bool *present)
{
    *present = true;
    for (const char *step = path; *step != '\0' && *present;) {
        char key[64]; /* longer than any name in config/tokenizer.def */
        size_t len = strcspn(step, ".");
        snprintf(key, sizeof key, "%.*s", (int)len, step);
        if (key[0] >= '0' && key[0] <= '9') {
            size_t index = strtoul(key, NULL, 10);
            *present = json_object_is_type(value, json_type_array) &&
                       index < json_object_array_length(value);
            value = *present ? json_object_array_get_idx(value, index) : NULL;
        } else {
            *present = json_object_object_get_ex(value, key, &value);
        }
        step += step[len] == '.' ? len + 1 : len;
    }
    return *present ? value : NULL;
}

static bool is_accepted(struct reader *r, const struct setting *setting)
{
    bool present;
    struct json_object *value = find(r->root, setting->path, &present);
    if (setting->string && !json_object_is_type(value, json_type_string))
        return false;
    r->scratch.len = 0;
    if (setting->string)
        buf_add(&r->scratch, json_object_get_string(value),
                (size_t)json_object_get_string_len(value));
    else if (present)
        json_dump(&r->scratch, value);
    for (size_t i = 0; setting->accepted[i] != NULL; i++) {
        if (r->scratch.len == strlen(setting->accepted[i]) &&
            memcmp(buf_cstr(&r->scratch), setting->accepted[i], r->scratch.len) == 0)
            return true;
    }
    return false;
}

static enum status check_settings(struct reader *r)
{
    if (!json_object_is_type(r->root, json_type_object))
        return REFUSE(r, "%s", "not a JSON object");
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (!is_accepted(r, &SETTINGS[i]))
            return REFUSE(r, "%s: not a setting that this engine implements", SETTINGS[i].path);
    }
    return OK;
}

/* ---- vocabulary ----------------------------------------------------------------------------- */

static enum status find_tables(struct reader *r)
{
    static const struct {
        const char *path;
        json_type type;
        const char *name;
        size_t max;
    } TABLES[3] = {
        {"model.vocab", json_type_object, "an object", TOKENIZER_VOCAB_MAX},
        {"added_tokens", json_type_array, "an array", TOKENIZER_VOCAB_MAX},
        {"model.merges", json_type_array, "an array", TOKENIZER_VOCAB_MAX},
    };
    struct json_object **tables[3] = {&r->words, &r->added, &r->merges};
    for (size_t i = 0; i < 3; i++) {
        bool present;
        struct json_object *table = find(r->root, TABLES[i].path, &present);
        if (!json_object_is_type(table, TABLES[i].type))
            return REFUSE(r, "%s: missing or not %s", TABLES[i].path, TABLES[i].name);
        size_t count = TABLES[i].type == json_type_object ? (size_t)json_object_object_length(table)
                                                          : json_object_array_length(table);
        if (count > TABLES[i].max)
            return REFUSE(r, "%s: more than %zu entries", TABLES[i].path, TABLES[i].max);
        *tables[i] = table;
    }
    return OK;
}

/* A JSON integer that can be the id of one of `size` tokens, or -1. */
static int32_t as_id(struct json_object *value, int32_t size)
{
    if (!json_object_is_type(value, json_type_int))
        return -1;
    int64_t id = json_object_get_int64(value);
    return id >= 0 && id < size ? (int32_t)id : -1;
}

/* Whether the members that change how an added token matches are off. */
static bool matches_plainly(struct json_object *token)
{
    static const char *const FLAGS[] = {"single_word", "lstrip", "rstrip"};
    for (size_t i = 0; i < sizeof FLAGS / sizeof FLAGS[0]; i++) {
        struct json_object *flag = NULL;
        if (json_object_object_get_ex(token, FLAGS[i], &flag) &&
            (!json_object_is_type(flag, json_type_boolean) || json_object_get_boolean(flag)))
            return false;
    }
    return true;
}

static enum status read_added_token(struct reader *r, size_t i)
{
    struct json_object *token = json_object_array_get_idx(r->added, i), *word = NULL;
    struct json_object *content = json_member(token, "content", NULL);
    int32_t id = as_id(json_member(token, "id", NULL), r->vocab->size);
    if (id < 0)
        return REFUSE(r, "added_tokens[%zu].id: not an integer below %d", i, (int)r->vocab->size);
    if (r->vocab->tokens[id].len != 0)
        return REFUSE(r, "added_tokens[%zu].id: %d is given twice", i, (int)id);
    if (!matches_plainly(token))
        return REFUSE(r, "added_tokens[%zu]: single_word, lstrip and rstrip must be false", i);
    size_t len = json_object_is_type(content, json_type_string)
                     ? (size_t)json_object_get_string_len(content)
                     : 0;
    if (len == 0 || len > TOKEN_BYTES_MAX)
        return REFUSE(r, "added_tokens[%zu].content: not a string of 1 to %d bytes", i,
                      TOKEN_BYTES_MAX);
    const char *text = json_object_get_string(content);
    if (strlen(text) != len)
        return REFUSE(r, "added_tokens[%zu].content: holds U+0000", i);
    if (json_object_object_get_ex(r->words, text, &word) && as_id(word, r->vocab->size) != id)
        return REFUSE(r, "added_tokens[%zu].id: model.vocab has another id for this text", i);
    vocab_set(r->vocab, id, text, len);
    vocab_mark_added(r->vocab, id);
    return OK;
}

/* The byte that a character of the GPT-2 byte alphabet stands for, or -1: printable Latin-1 stands
 * for itself, the other 68 bytes in order for U+0100 and on. */
static int alphabet_byte(uint32_t code)
{
    static const uint8_t OTHERS[][2] = {{0, 32}, {127, 160}, {173, 173}};
    bool itself = (code >= 33 && code <= 126) || (code >= 161 && code <= 255 && code != 173);
    if (itself)
        return (int)code;
    uint32_t index = code - 256; /* wraps to a large number below U+0100 */
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        uint32_t count = OTHERS[i][1] - OTHERS[i][0] + 1u;
        if (index < count)
            return (int)(OTHERS[i][0] + index);
        index -= count;
    }
    return -1;
}

/* Turns the text of a word into the bytes it stands for, in r->scratch. */
static bool word_bytes(struct reader *r, const char *word)
{
    r->scratch.len = 0;
    for (size_t at = 0, len = strlen(word); at < len;) {
        struct utf8_char c = utf8_decode((const uint8_t *)word + at, len - at);
        int byte = c.kind == UTF8_WHOLE ? alphabet_byte(c.code) : -1;
        if (byte < 0)
            return false;
        buf_add(&r->scratch, &(uint8_t){(uint8_t)byte}, 1);
        at += c.len;
    }
    return r->scratch.len >= 1 && r->scratch.len <= TOKEN_BYTES_MAX;
}

static enum status read_word(struct reader *r, const char *word, struct json_object *value)
{
    int32_t id = as_id(value, r->vocab->size);
    if (id < 0)
        return REFUSE(r, "model.vocab: an id is not an integer below %d", (int)r->vocab->size);
    const struct vocab_token *token = &r->vocab->tokens[id];
    if (token->added) {
        if (strlen(word) != token->len ||
            memcmp(word, r->vocab->bytes.data + token->offset, token->len) != 0)
            return REFUSE(r, "model.vocab: id %d has another text in added_tokens", (int)id);
        return OK;
    }
    if (token->len != 0)
        return REFUSE(r, "model.vocab: id %d is given twice", (int)id);
    if (!word_bytes(r, word))
        return REFUSE(r, "model.vocab: id %d is not 1 to %d characters of the byte alphabet",
                      (int)id, TOKEN_BYTES_MAX);
    vocab_set(r->vocab, id, r->scratch.data, r->scratch.len);
    if (r->scratch.len == 1)
        r->bpe->byte_ids[(uint8_t)r->scratch.data[0]] = id;
    return OK;
}

/* Ids are counted from 0 without gaps; every byte has a token. */
static enum status close_vocab(struct reader *r)
{
    int32_t size = 0;
    for (int32_t id = 0; id < r->vocab->size; id++) {
        if (r->vocab->tokens[id].len == 0)
            continue;
        if (id != size)
            return REFUSE(r, "model.vocab, added_tokens: no token has id %d", (int)size);
        size++;
    }
    r->vocab->size = size;
    for (int byte = 0; byte < 256; byte++) {
        if (r->bpe->byte_ids[byte] < 0)
            return REFUSE(r, "model.vocab: no token for the byte 0x%02X", (unsigned)byte);
    }
    if (!vocab_finish(r->vocab))
        return REFUSE(r, "added_tokens: %s", "two have the same content");
    return OK;
}

static enum status read_vocab(struct reader *r)
{
    size_t added = json_object_array_length(r->added);
    /* At most this many tokens; close_vocab finds how many there are. */
    vocab_init(r->vocab, json_object_object_length(r->words) + (int32_t)added, added);
    memset(r->bpe->byte_ids, -1, sizeof r->bpe->byte_ids);
    for (size_t i = 0; i < added; i++) {
        enum status status = read_added_token(r, i);
        if (status != OK)
            return status;
    }
    json_object_object_foreach(r->words, word, value)
    {
        enum status status = read_word(r, word, value);
        if (status != OK)
            return status;
    }
    return close_vocab(r);
}

/* ---- merges --------------------------------------------------------------------------------- */

/* The id of a word that text may produce, or -1. */
static int32_t find_word(const struct reader *r, const char *word)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(r->words, word, &value))
        return -1;
    int32_t id = as_id(value, r->vocab->size);
    return id >= 0 && !r->vocab->tokens[id].added ? id : -1;
}

/* Splits "left right" or ["left", "right"] into r->scratch: left NUL right NUL.  Gives the offset
 * of right, or 0. */
static size_t split_merge(struct reader *r, struct json_object *merge)
{
    r->scratch.len = 0;
    if (json_object_is_type(merge, json_type_string)) {
        const char *text = json_object_get_string(merge);
        buf_add(&r->scratch, text, (size_t)json_object_get_string_len(merge) + 1);
        char *space = memchr(r->scratch.data, ' ', r->scratch.len);
        if (space == NULL)
            return 0;
        *space = '\0';
        return (size_t)(space - r->scratch.data) + 1;
    }
    if (!json_object_is_type(merge, json_type_array) || json_object_array_length(merge) != 2)
        return 0;
    size_t right = 0;
    for (size_t i = 0; i < 2; i++) {
        struct json_object *part = json_object_array_get_idx(merge, i);
        if (!json_object_is_type(part, json_type_string))
            return 0;
        right = r->scratch.len;
        buf_add(&r->scratch, json_object_get_string(part),
                (size_t)json_object_get_string_len(part) + 1);
    }
    return right;
}

static enum status read_merge(struct reader *r, size_t i)
{
    size_t right_at = split_merge(r, json_object_array_get_idx(r->merges, i));
    if (right_at == 0)
        return REFUSE(r, "model.merges[%zu]: not two words", i);
    /* A NUL inside a part would hide what follows it. */
    size_t right_len = r->scratch.len - right_at - 1;
    if (strlen(r->scratch.data) != right_at - 1 || strlen(r->scratch.data + right_at) != right_len)
        return REFUSE(r, "model.merges[%zu]: holds U+0000", i);
    int32_t left = find_word(r, r->scratch.data);
    int32_t right = find_word(r, r->scratch.data + right_at);
    memmove(r->scratch.data + right_at - 1, r->scratch.data + right_at, right_len + 1);
    int32_t joined = find_word(r, r->scratch.data);
    if (left < 0 || right < 0 || joined < 0)
        return REFUSE(r, "model.merges[%zu]: %s is not a word of model.vocab that text may produce",
                      i,
                      left < 0    ? "left"
                      : right < 0 ? "right"
                                  : "the join");
    if (!bpe_add_merge(r->bpe, left, right, (uint32_t)i, joined))
        return REFUSE(r, "model.merges[%zu]: repeats an earlier one", i);
    return OK;
}

static enum status read_merges(struct reader *r)
{
    size_t count = json_object_array_length(r->merges);
    bpe_init(r->bpe, count, (size_t)r->vocab->size);
    for (size_t i = 0; i < count; i++) {
        enum status status = read_merge(r, i);
        if (status != OK)
            return status;
    }
    struct bpe_scratch scratch = {0};
    for (int32_t id = 0; id < r->vocab->size; id++) {
        const struct vocab_token *token = &r->vocab->tokens[id];
        if (!token->added)
            bpe_add_whole(r->bpe, &scratch, (const uint8_t *)r->vocab->bytes.data + token->offset,
                          token->len, id);
    }
    bpe_scratch_free(&scratch);
    return OK;
}

enum status tokenizer_file_read(const char *path, struct tokenizer *out, struct error *err)
{
    struct reader r = {.path = path, .vocab = &out->vocab, .bpe = &out->bpe, .err = err};
    enum status status = json_parse_file(path, TOKENIZER_FILE_BYTES_MAX, &r.root, err);
    if (status == OK)
        status = check_settings(&r);
    if (status == OK)
        status = find_tables(&r);
    if (status == OK)
        status = read_vocab(&r);
    if (status == OK)
        status = read_merges(&r);
    json_object_put(r.root);
    buf_free(&r.scratch);
    return status;
}
