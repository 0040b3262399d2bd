/*
 * Drives token masks from outside, for tests in Python:  driver check | driver walk TOKENIZER
 *
 * Reads one JSON object a line, prints one a line.
 *   check  {"schema", "mode", "texts"}                -> {"accepted": [..]} or {"error"}
 *          texts go through the automaton byte by byte
 *   walk   {"schema" | "tools" | "object", .., "seed"} -> {"text", "ended", "tokens"} or {"error"}
 *          tokens are drawn at random under the mask until the end of the answer
 * Every mask on the way must be sound, or the program ends: not empty, and (walk) equal to what the
 * automaton says when tokens are tried one by one.
 */
#include "engine/base/json.h"
#include "engine/text/automaton.h"
#include "engine/text/mask.h"
#include "engine/text/schema.h"
#include "kernels/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- check ----------------------------------------------------------------------------------- */

static enum schema_mode mode_of(struct json_object *line)
{
    const char *mode = json_object_get_string(json_member(line, "mode", NULL));
    return strcmp(mode, "strict") == 0  ? SCHEMA_STRICT
           : strcmp(mode, "plain") == 0 ? SCHEMA_PLAIN
                                        : SCHEMA_LENIENT;
}

static bool accepts(const struct grammar *grammar, int32_t node, const char *text, size_t len)
{
    struct automaton a;
    automaton_init(&a, grammar, 1, 1);
    automaton_add_json(&a, node);
    bool alive = true;
    for (size_t i = 0; i < len && alive; i++) {
        alive = automaton_push(&a, (uint8_t)text[i]);
        automaton_compact(&a);
    }
    bool accepted = alive && automaton_may_end(&a);
    automaton_free(&a);
    return accepted;
}

static void check(struct json_object *line, struct buf *out)
{
    struct json_object *schema = json_member(line, "schema", NULL);
    struct json_object *texts = json_member(line, "texts", NULL);
    struct grammar grammar;
    struct error err;
    int32_t node;
    grammar_init(&grammar);
    enum schema_mode mode = mode_of(line);
    enum status status =
        mode == SCHEMA_LENIENT
            ? schema_compile_arguments(&grammar, schema, mode, "schema", &node, &err)
            : schema_compile(&grammar, schema, mode, "schema", &node, &err);
    if (status != OK) {
        buf_puts(out, "{\"error\": ");
        json_dump_string(out, err.text, strlen(err.text));
        buf_puts(out, "}");
    } else {
        buf_puts(out, "{\"accepted\": [");
        for (size_t i = 0; i < json_object_array_length(texts); i++) {
            struct json_object *text = json_object_array_get_idx(texts, i);
            bool yes = accepts(&grammar, node, json_object_get_string(text),
                               (size_t)json_object_get_string_len(text));
            buf_printf(out, "%s%s", i > 0 ? ", " : "", yes ? "true" : "false");
        }
        buf_puts(out, "]}");
    }
    grammar_free(&grammar);
}

/* ---- walk ------------------------------------------------------------------------------------ */

static const char CLOSERS[] = "\"}]</>\n0"; /* and the mark */
#define N_CLOSERS (sizeof CLOSERS)

struct walker {
    struct tokenizer *tokenizer;
    struct chat_tokens tokens;
    struct mask_vocab *vocab;
    uint64_t *bits;
    int32_t *allowed; /* ids */
    int32_t closers[N_CLOSERS];
    uint64_t random;
};

static uint32_t draw(struct walker *w, uint32_t n)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((w->random >> 33) % n);
}

static bool is_allowed(const struct walker *w, int32_t id)
{
    return w->bits[id / 64] >> id % 64 & 1;
}

/* What brings an answer to its end soonest: the end, or a random one of what closes something. */
static int32_t closing(struct walker *w)
{
    if (is_allowed(w, w->tokens.eos))
        return w->tokens.eos;
    uint32_t from = draw(w, N_CLOSERS);
    for (uint32_t i = 0; i < N_CLOSERS; i++) {
        int32_t id = w->closers[(from + i) % N_CLOSERS];
        if (is_allowed(w, id))
            return id;
    }
    return -1;
}

static int32_t pick(struct walker *w, int32_t n_answer, int32_t patience)
{
    int32_t n = 0, id;
    for (id = 0; id < tokenizer_vocab_size(w->tokenizer); id++) {
        if (is_allowed(w, id))
            w->allowed[n++] = id;
    }
    ASSERT(n > 0); /* no mask is empty */
    if ((n_answer > patience || draw(w, 8) == 0) && (id = closing(w)) >= 0)
        return id;
    return w->allowed[draw(w, (uint32_t)n)];
}

static bool flag(struct json_object *line, const char *name)
{
    return json_object_get_boolean(json_member(line, name, NULL));
}

static struct mask_options options_of(struct json_object *line)
{
    const char *calls = json_object_get_string(json_member(line, "calls", NULL));
    struct mask_options options = {
        .thinking = flag(line, "thinking"),
        .tools = json_member(line, "tools", NULL),
        .tool_name = json_object_get_string(json_member(line, "tool_name", NULL)),
        .calls_max = json_object_get_int(json_member(line, "calls_max", NULL)),
        .schema = json_member(line, "schema", NULL),
        .schema_strict = flag(line, "strict"),
    };
    options.calls = calls == NULL                    ? MASK_CALLS_NONE
                    : strcmp(calls, "required") == 0 ? MASK_CALLS_REQUIRED
                                                     : MASK_CALLS_AUTO;
    options.format = options.schema != NULL ? MASK_JSON_SCHEMA
                     : flag(line, "object") ? MASK_JSON_OBJECT
                                            : MASK_TEXT;
    return options;
}

#define TOKENS_MAX 4000

static void walk(struct walker *w, struct json_object *line, struct buf *out)
{
    struct mask_options options = options_of(line);
    struct mask *mask;
    struct error err;
    if (mask_create(w->vocab, &options, &mask, &err) != OK) {
        buf_puts(out, "{\"error\": ");
        json_dump_string(out, err.text, strlen(err.text));
        buf_puts(out, "}");
        return;
    }
    struct ids answer = {0};
    struct buf text = {0};
    bool ended = false;
    w->random = (uint64_t)json_object_get_int64(json_member(line, "seed", NULL));
    int32_t patience = (int32_t)draw(w, 60);
    struct json_object *prefix = json_member(line, "prefix", NULL);
    if (prefix != NULL)
        tokenizer_encode(w->tokenizer, json_object_get_string(prefix),
                         (size_t)json_object_get_string_len(prefix), true, &answer);
    while (!ended && answer.len < TOKENS_MAX) {
        size_t len;
        ASSERT(mask_fill(mask, answer.data, (int32_t)answer.len, w->bits));
        int32_t id = pick(w, (int32_t)answer.len, patience);
        ASSERT(mask_may_end(mask) == is_allowed(w, w->tokens.eos) || options.format == MASK_TEXT);
        ended = id == w->tokens.eos;
        if (ended)
            break;
        const char *bytes = tokenizer_token_bytes(w->tokenizer, id, &len);
        buf_add(&text, bytes, len);
        ids_add(&answer, id);
    }
    buf_puts(out, "{\"text\": ");
    struct detokenizer whole = {0};
    struct buf clean = {0};
    for (size_t i = 0; i < answer.len; i++)
        detokenizer_push(&whole, w->tokenizer, answer.data[i], &clean);
    detokenizer_finish(&whole, &clean);
    json_dump_string(out, clean.len == 0 ? "" : clean.data, clean.len);
    buf_printf(out, ", \"ended\": %s, \"tokens\": %zu}", ended ? "true" : "false", answer.len);
    buf_free(&clean);
    buf_free(&text);
    ids_free(&answer);
    mask_destroy(mask);
}

static void walker_open(struct walker *w, const char *path)
{
    struct error err;
    if (tokenizer_open(path, &w->tokenizer, &err) != OK ||
        chat_tokens_find(w->tokenizer, &w->tokens, &err) != OK ||
        mask_vocab_create(w->tokenizer, &w->tokens, &w->vocab, &err) != OK) {
        fprintf(stderr, "driver: %s\n", err.text);
        exit(2);
    }
    size_t size = (size_t)tokenizer_vocab_size(w->tokenizer);
    struct ids ids = {0};
    for (size_t i = 0; i < N_CLOSERS - 1; i++)
        tokenizer_encode(w->tokenizer, &CLOSERS[i], 1, false, &ids);
    ids_add(&ids, w->tokens.dsml);
    ASSERT(ids.len == N_CLOSERS);
    memcpy(w->closers, ids.data, sizeof w->closers);
    ids_free(&ids);
    w->bits = calloc(size / 64 + 1, sizeof *w->bits);
    w->allowed = calloc(size, sizeof *w->allowed);
    ASSERT(w->bits != NULL && w->allowed != NULL);
}

int main(int argc, char **argv)
{
    struct walker walker = {0};
    struct buf out = {0};
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    bool walks = argc == 3 && strcmp(argv[1], "walk") == 0;
    if (!walks && !(argc == 2 && strcmp(argv[1], "check") == 0)) {
        fprintf(stderr, "usage: driver check | driver walk TOKENIZER\n");
        return 2;
    }
    if (walks)
        walker_open(&walker, argv[2]);
    while ((len = getline(&text, &cap, stdin)) > 0) {
        struct json_object *line;
        struct error err;
        if (json_parse(text, (size_t)len, &line, NULL, &err) != OK) {
            fprintf(stderr, "driver: %s\n", err.text);
            return 2;
        }
        out.len = 0;
        if (walks)
            walk(&walker, line, &out);
        else
            check(line, &out);
        printf("%s\n", buf_cstr(&out));
        json_object_put(line);
    }
    free(text);
    buf_free(&out);
    free(walker.bits);
    free(walker.allowed);
    mask_vocab_destroy(walker.vocab);
    tokenizer_close(walker.tokenizer);
    return 0;
}
