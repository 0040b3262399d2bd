/*
 * The API over a serving core that says what a test wants it to say: the script of one answer, a
 * prompt that asks for it, and the two ways to read it.  Included by one test program.
 */
#ifndef V4BOX_TESTS_SCRIPTED_ENGINE_H
#define V4BOX_TESTS_SCRIPTED_ENGINE_H

#include "engine/api/completion.h"

#include "tests/unit/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SCRIPT_TOKENS_MAX 2000 /* fits FAKE_CONTEXT */
#define SCRIPT_PROMPT     5    /* tokens, of which .. */
#define SCRIPT_REUSED     3
#define SCRIPT_KEY        7
#define SCRIPT_STARTED_MS 1000 /* when its head had come */
#define MARK              "\1" /* in texts: the mark of DSML; \2 is </think> */

#define WRITE(value)                                                                               \
    "<" MARK "invoke name=\"write\">\n<" MARK "parameter name=\"text\" string=\"true\">" value     \
    "</" MARK "parameter>\n</" MARK "invoke>\n"
#define BLOCK(calls) "\n\n<" MARK "tool_calls>\n" calls "</" MARK "tool_calls>"

/* What the next request will be told. */
static struct {
    int32_t ids[SCRIPT_TOKENS_MAX];
    int n;
    enum end_reason reason;
} script;

static struct key_limits script_limits; /* of the key that asks */
static struct api api;
static struct tokenizer *tokenizer;
static struct json_object *script_tools; /* one function, "write" */
static int32_t script_prompt[SCRIPT_PROMPT] = {0, 5, 6, 7, 8};
static const uint8_t script_seal[SEAL_KEY_BYTES] = {SCRIPT_KEY};
static uint64_t seed = 20261130;

static void fake_script(struct fake_request *r)
{
    fake_prefill(r, SCRIPT_REUSED);
    for (int i = 0; i < script.n && !atomic_load(&r->cancelled); i++)
        fake_token(r, script.ids[i]);
    fake_end(r, atomic_load(&r->cancelled) ? END_CANCELLED : script.reason);
}

static inline int open_script(void **state)
{
    static const char TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"write\"}}]";
    struct error err;
    (void)state;
    assert_int_equal(tokenizer_open("rootfs/models/demo/tokenizer.json", &tokenizer, &err), OK);
    assert_int_equal(api_init(&api, NULL, tokenizer, "baseline", &err), OK);
    assert_int_equal(json_parse(TOOLS, sizeof TOOLS - 1, &script_tools, NULL, &err), OK);
    api.turns = turns_create();
    return 0;
}

static inline int close_script(void **state)
{
    (void)state;
    turns_destroy(api.turns);
    json_object_put(script_tools);
    tokenizer_close(tokenizer);
    return 0;
}

static inline uint32_t draw(uint64_t *from, uint32_t n)
{
    *from ^= *from << 13;
    *from ^= *from >> 7;
    *from ^= *from << 17;
    return (uint32_t)(*from >> 33) % n;
}

static inline uint32_t below(uint32_t n)
{
    return draw(&seed, n);
}

/* ---- what the model says --------------------------------------------------------------------- */

static inline void script_add(const int32_t *ids, size_t n)
{
    assert_in_range(script.n + (int)n, 0, SCRIPT_TOKENS_MAX);
    if (n > 0)
        memcpy(script.ids + script.n, ids, n * sizeof *ids);
    script.n += (int)n;
}

/* How far the plain text at the front goes; 0: a control token stands there. */
static inline size_t plain_len(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] != 1 && text[n] != 2)
        n++;
    return n;
}

/* Adds the control token that stands for one byte. */
static inline void say_control(char byte)
{
    script_add(byte == 1 ? &api.tokens.dsml : &api.tokens.think_close, 1);
}

/* Adds a text, marks included, in the longest tokens. */
static inline void say(const char *text, size_t len)
{
    while (len > 0) {
        struct ids ids = {0};
        size_t n = plain_len(text, len);
        tokenizer_encode(tokenizer, text, n, false, &ids);
        script_add(ids.data, ids.len);
        ids_free(&ids);
        if (n == 0)
            say_control(text[n++]);
        text += n;
        len -= n;
    }
}

static inline void say_only(const char *text, enum end_reason reason)
{
    script.n = 0;
    script.reason = reason;
    say(text, strlen(text));
}

/* Whatever a model may say: reasoning, words that are hard to escape, calls, and an end anywhere.
 */
static inline void say_anything(bool thinking)
{
    static const char *const WORDS[] = {"2>&1", "</",       "]]>", "\"\\\n\t", "\xF0\x9F\x98\x80",
                                        "é",    "password", " No", " a b c",   "Stop"};
    struct buf text = {0};
    for (uint32_t n = thinking ? below(4) : 0; n > 0; n--)
        buf_puts(&text, WORDS[below(10)]);
    if (thinking)
        buf_puts(&text, "\2");
    for (uint32_t n = below(5); n > 0; n--)
        buf_puts(&text, WORDS[below(10)]);
    if (below(2) == 0) {
        buf_puts(&text, "\n\n<" MARK "tool_calls>\n");
        for (uint32_t n = 1 + below(3); n > 0; n--)
            buf_puts(&text, below(2) == 0 ? WRITE("a \"b\" é") : WRITE(""));
        buf_puts(&text, "</" MARK "tool_calls>");
    }
    say_only(buf_cstr(&text), END_STOP);
    buf_free(&text);
    if (below(3) == 0) {
        script.n = (int)below((uint32_t)script.n + 1);
        script.reason = END_LENGTH;
    }
}

/* ---- what a client reads --------------------------------------------------------------------- */

static inline struct ids script_ids(void)
{
    return (struct ids){.data = script_prompt, .len = SCRIPT_PROMPT};
}

/* Starts the answer that the script has. */
static inline struct completion *script_ask(const struct surface *surface, struct request *request)
{
    struct exchange x = {.id = "req_0123456789abcdef01234567",
                         .user = &api,
                         .profile = *profile_builtin("official"),
                         .started_ms = SCRIPT_STARTED_MS,
                         .key = {.number = SCRIPT_KEY, .limits = script_limits}};
    struct buf receipt = {0};
    struct ids prompt = script_ids();
    struct completion *c;
    struct api_error err;
    memcpy(x.key.seal, script_seal, sizeof script_seal);
    request->tokens_max = SCRIPT_TOKENS_MAX;
    assert_true(completion_start(&api, &x, surface, request, &prompt, &receipt, &c, &err));
    return c;
}

/* Reads an event stream in pieces of that size (0: any).  @return false when it broke off */
static inline bool read_stream(struct completion *c, size_t piece, struct buf *out)
{
    /* Of its own: how often it reads depends on time, and what is said must not. */
    static uint64_t pieces = 20261130;
    char bytes[HTTP_CONNECTION_BYTES / 4];
    for (;;) {
        size_t n_max = piece == 0 ? 1 + draw(&pieces, sizeof bytes) : piece;
        ssize_t n = completion_read(c, out->len, bytes, n_max);
        if (n < 0)
            return n == MHD_CONTENT_READER_END_OF_STREAM;
        if (n == 0)
            fake_wait(1);
        else
            buf_add(out, bytes, (size_t)n);
    }
}

/* Reads a whole answer.  @return false with *err */
static inline bool read_whole(struct completion *c, struct buf *out, struct api_error *err)
{
    enum completion_state state;
    while ((state = completion_collect(c, err)) == COMPLETION_WAITS)
        fake_wait(1);
    if (state == COMPLETION_DONE)
        *out = completion_take(c);
    return state == COMPLETION_DONE;
}

static inline void script_end(struct completion *c)
{
    completion_free(c);
    fake_join();
}

#endif
