/*
 * Any JSON as a schema.  One that compiles is walked at random under its mask: there is always a
 * token that may come, and whatever may end is JSON.  The first two bytes choose mode and walk.
 */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define STEPS_MAX 60 /* tokens of a walk; behind half of them it makes for the end */

static struct fuzz_text lang;
static uint64_t *bits;
static size_t n_words;
static int32_t closers[9], n_closers;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char CLOSERS[] = "\"}]</>\n0";
    (void)argc;
    (void)argv;
    fuzz_text_open(&lang);
    n_words = ((size_t)tokenizer_vocab_size(lang.tokenizer) + 63) / 64;
    bits = calloc(n_words, sizeof *bits);
    for (const char *c = CLOSERS; *c != '\0'; c++) {
        struct ids ids = {0};
        tokenizer_encode(lang.tokenizer, c, 1, false, &ids);
        ASSERT(ids.len == 1);
        closers[n_closers++] = ids.data[0];
        ids_free(&ids);
    }
    closers[n_closers++] = lang.tokens.dsml;
    return 0;
}

static bool may(int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* A token that may come, or -1: near the end one that closes something, else any. */
static int32_t pick(uint64_t *random, bool closing)
{
    uint32_t from = fuzz_below(random, (uint32_t)n_closers);
    for (int32_t i = 0; closing && i < n_closers; i++) {
        int32_t id = closers[(from + (uint32_t)i) % (uint32_t)n_closers];
        if (may(id))
            return id;
    }
    uint32_t word = fuzz_below(random, (uint32_t)n_words);
    for (size_t i = 0; i < n_words; i++, word = (word + 1) % (uint32_t)n_words) {
        if (bits[word] != 0)
            return (int32_t)(word * 64) + __builtin_ctzll(bits[word]);
    }
    return -1;
}

/* What may end under a format is JSON. */
static void assert_json(const struct ids *ids)
{
    struct buf text = {0};
    struct detokenizer d = {0};
    struct json_object *value = NULL;
    for (size_t i = 0; i < ids->len; i++)
        detokenizer_push(&d, lang.tokenizer, ids->data[i], &text);
    detokenizer_finish(&d, &text);
    ASSERT(json_parse(buf_cstr(&text), text.len, &value, NULL, NULL) == OK);
    json_object_put(value);
    buf_free(&text);
}

static void walk(struct mask *mask, bool format, uint64_t random)
{
    struct ids ids = {0};
    for (int step = 0; step < STEPS_MAX; step++) {
        memset(bits, 0, n_words * sizeof *bits);
        if (!mask_fill(mask, ids.data, (int32_t)ids.len, bits))
            break; /* nothing is barred */
        bool end = may(lang.tokens.eos);
        ASSERT(end == mask_may_end(mask));
        if (format && end)
            assert_json(&ids);
        bits[lang.tokens.eos / 64] &= ~(UINT64_C(1) << lang.tokens.eos % 64);
        int32_t id = pick(&random, step >= STEPS_MAX / 2);
        ASSERT(id >= 0 || end);
        if (id < 0)
            break;
        ids_add(&ids, id);
    }
    ids_free(&ids);
}

/* `value` as the parameters of the one tool that is offered. */
static struct json_object *tool_of(struct json_object *value, bool strict)
{
    struct json_object *tools = json_object_new_array(), *tool = json_object_new_object();
    struct json_object *function = json_object_new_object();
    json_object_object_add(function, "name", json_object_new_string("f"));
    json_object_object_add(function, "strict", json_object_new_boolean(strict));
    json_object_object_add(function, "parameters", json_object_get(value));
    json_object_object_add(tool, "function", function);
    json_object_array_add(tools, tool);
    return tools;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_object *value = NULL;
    struct mask *mask = NULL;
    struct error err = {0};
    if (n < 2 || json_parse((const char *)data + 2, n - 2, &value, NULL, NULL) != OK)
        return 0;
    bool tool = data[0] & 1, strict = data[0] & 2,
         object = json_object_is_type(value, json_type_object);
    struct mask_options options = {
        .format = MASK_JSON_SCHEMA, .schema = value, .schema_strict = strict};
    if (tool)
        options = (struct mask_options){
            .calls = MASK_CALLS_REQUIRED, .calls_max = 1, .tools = tool_of(value, strict)};
    /* the request's own check: a schema is an object */
    enum status status = object ? mask_create(lang.masks, &options, &mask, &err) : ERR_INPUT;
    if (status == OK)
        walk(mask, !tool, data[1]);
    else
        ASSERT(!object ||
               (strchr(err.text, ':') != NULL && (!tool || strict || status == ERR_CAPACITY)));
    mask_destroy(mask);
    json_object_put(options.tools);
    json_object_put(value);
    return 0;
}
