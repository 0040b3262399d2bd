/*
 * `engine serve` with a prompter for the model, for tests of clients:  engine-scripted SCRIPT serve
 * .. Where a rule of the script fits a prompt, the answer's tokens are the rule's, forced one by
 * one through the real mask, sampler, parser and server; a token that the mask bars is a fault.
 * Where none fits, the model speaks for itself.  The script is read anew for each request:
 *
 *   [{"all": ["text", ..],     what the prompt must hold, control tokens written out ..
 *     "last": ["text", ..],    .. and what must stand behind its last user's turn begins
 *     "none": ["text", ..],    .. and what must not be in it
 *     "say": "text",           the answer: U+0001 is the DSML mark, U+0002 </think>, the rest text
 *     "wait_ms": N,            before the first token: as if the prompt took so long
 *     "token_ms": N,           before every token
 *     "fault": true}, ..]      behind the text the engine fails, in place of the end
 */
#include "config/limits.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/commands.h"
#include "engine/engine.h"
#include "engine/text/chat.h"
#include "engine/text/mask.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRIPT_BYTES_MAX (4 << 20)
#define SAY_MARK         1
#define SAY_THINK_CLOSE  2

static const char *script_path;
/* Of the running server, taken where they pass by. */
static const struct tokenizer *the_tokenizer;
static struct chat_tokens the_tokens;

/* One request whose answer is given. */
struct play {
    struct ids say;    /* owns */
    uint64_t *allowed; /* owns [n_words] */
    size_t n_words;
    int32_t end; /* what comes behind `say`; -1: nothing can */
    int64_t wait_ms, token_ms;
    struct engine_mask mask;   /* the request's own */
    engine_event_fn *on_event; /* the request's own */
    void *user;
};

static void play_free(struct play *play)
{
    ids_free(&play->say);
    free(play->allowed);
    free(play);
}

static void sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- on the engine thread -------------------------------------------------------------------- */

static bool play_mask(void *user, const int32_t *ids, int32_t n, uint64_t *bits)
{
    struct play *play = user;
    int32_t next = (size_t)n < play->say.len ? play->say.data[n] : play->end;
    sleep_ms(n == 0 ? play->wait_ms : play->token_ms);
    memset(play->allowed, 0, play->n_words * sizeof *play->allowed);
    bool bound = play->mask.fn != NULL && play->mask.fn(play->mask.user, ids, n, play->allowed);
    if (next < 0)
        return true;
    uint64_t bit = UINT64_C(1) << next % 64;
    if (!bound || (play->allowed[next / 64] & bit) != 0)
        bits[next / 64] |= bit;
    else
        log_line(LOG_LEVEL_ERROR, "script", "the mask bars token %d of the script", (int)n);
    return true;
}

static void play_event(void *user, const struct engine_event *event)
{
    struct play *play = user;
    play->on_event(play->user, event);
    if (event->kind == EVENT_END)
        play_free(play);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* How many texts of the list stand in `text`, and how many there are. */
static size_t found(struct json_object *rule, const char *name, const char *text, size_t *out_of)
{
    struct json_object *list = json_member(rule, name, NULL);
    size_t hits = 0;
    *out_of = list == NULL ? 0 : json_object_array_length(list);
    for (size_t i = 0; i < *out_of; i++)
        hits += strstr(text, json_object_get_string(json_object_array_get_idx(list, i))) != NULL;
    return hits;
}

static bool fits(struct json_object *rule, const char *prompt, const char *last)
{
    size_t n;
    bool fits = found(rule, "all", prompt, &n) == n;
    fits = fits && found(rule, "last", last, &n) == n;
    return fits && found(rule, "none", prompt, &n) == 0;
}

static int64_t number_of(struct json_object *rule, const char *name)
{
    struct json_object *value = json_member(rule, name, NULL);
    return value == NULL ? 0 : json_object_get_int64(value);
}

static void add_tokens(struct ids *out, const char *text, size_t len)
{
    while (len > 0) {
        size_t n = 0;
        while (n < len && text[n] != SAY_MARK && text[n] != SAY_THINK_CLOSE)
            n++;
        tokenizer_encode(the_tokenizer, text, n, false, out);
        if (n < len)
            ids_add(out, text[n] == SAY_MARK ? the_tokens.dsml : the_tokens.think_close);
        n += n < len;
        text += n;
        len -= n;
    }
}

static struct play *play_create(struct engine *engine, struct json_object *rule)
{
    struct json_object *say = json_member(rule, "say", NULL);
    struct play *play = calloc(1, sizeof *play);
    ASSERT(play != NULL && say != NULL);
    play->n_words = ((size_t)engine_model_config(engine)->vocab_size + 63) / 64;
    play->allowed = calloc(play->n_words, sizeof *play->allowed);
    ASSERT(play->allowed != NULL);
    add_tokens(&play->say, json_object_get_string(say), (size_t)json_object_get_string_len(say));
    play->end = json_object_get_boolean(json_member(rule, "fault", NULL)) ? -1 : the_tokens.eos;
    play->wait_ms = number_of(rule, "wait_ms");
    play->token_ms = number_of(rule, "token_ms");
    return play;
}

/* The prompt as text, control tokens written out. */
static void prompt_text(const struct engine_request *request, struct buf *out, size_t *last)
{
    struct detokenizer d = {0};
    *last = 0;
    for (int32_t i = 0; i < request->n_ids; i++) {
        if (request->ids[i] == the_tokens.user)
            *last = out->len;
        detokenizer_push(&d, the_tokenizer, request->ids[i], out);
    }
    detokenizer_finish(&d, out);
}

/* The first rule that fits, or NULL. */
static struct play *play_find(struct engine *engine, const struct engine_request *request)
{
    struct json_object *rules = NULL;
    struct error err = {0};
    struct buf prompt = {0};
    struct play *play = NULL;
    size_t last;
    if (json_parse_file(script_path, SCRIPT_BYTES_MAX, &rules, &err) != OK) {
        log_line(LOG_LEVEL_ERROR, "script", "%s", err.text);
        abort();
    }
    prompt_text(request, &prompt, &last);
    const char *text = buf_cstr(&prompt);
    for (size_t i = 0; i < json_object_array_length(rules) && play == NULL; i++) {
        struct json_object *rule = json_object_array_get_idx(rules, i);
        if (fits(rule, text, text + last)) {
            play = play_create(engine, rule);
            log_line(LOG_LEVEL_INFO, "script", "rule %zu: %zu tokens", i, play->say.len);
        }
    }
    buf_free(&prompt);
    json_object_put(rules);
    return play;
}

/* ---- in place of what they wrap (the linker's --wrap) ---------------------------------------- */

enum status __real_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err);
enum status __wrap_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err);
enum status __wrap_engine_submit(struct engine *engine, const struct engine_request *request,
                                 engine_event_fn *on_event, void *user, uint64_t *out,
                                 struct error *err)
{
    struct play *play = play_find(engine, request);
    if (play == NULL)
        return __real_engine_submit(engine, request, on_event, user, out, err);
    struct engine_request forced = *request;
    play->mask = request->mask;
    play->on_event = on_event;
    play->user = user;
    forced.mask = (struct engine_mask){.fn = play_mask, .user = play};
    enum status status = __real_engine_submit(engine, &forced, play_event, play, out, err);
    if (status != OK)
        play_free(play);
    return status;
}

enum status __real_mask_vocab_create(const struct tokenizer *tokenizer,
                                     const struct chat_tokens *tokens, struct mask_vocab **out,
                                     struct error *err);
enum status __wrap_mask_vocab_create(const struct tokenizer *tokenizer,
                                     const struct chat_tokens *tokens, struct mask_vocab **out,
                                     struct error *err);
enum status __wrap_mask_vocab_create(const struct tokenizer *tokenizer,
                                     const struct chat_tokens *tokens, struct mask_vocab **out,
                                     struct error *err)
{
    the_tokenizer = tokenizer;
    the_tokens = *tokens;
    return __real_mask_vocab_create(tokenizer, tokens, out, err);
}

int main(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[2], "serve") != 0) {
        fprintf(stderr, "usage: engine-scripted SCRIPT serve ..\n");
        return 2;
    }
    script_path = argv[1];
    return cmd_serve(argc - 2, argv + 2);
}
