/*
 * The tool-call reader: what it reads, what it forgives, what it refuses; and, over thousands of
 * generated blocks, whole and damaged, equality with a second reader (dsml_model.h), alone and
 * behind the tokenizer, however the text is cut into pieces.
 */
#include "engine/text/answer.h"
#include "engine/text/dsml.h"

#include "tests/unit/demo_tokenizer.h"
#include "tests/unit/dsml_model.h"

#include <stdio.h>

#include <cmocka.h>

static int32_t byte_ids[256];
static struct json_object *tools;

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"run\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"arguments\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"bare\"}}]";

static int open_all(void **state)
{
    struct error err = {0};
    if (open_tokenizer(state) != 0)
        return -1;
    tokens_of_bytes(byte_ids);
    return json_parse(TOOLS, sizeof TOOLS - 1, &tools, NULL, &err) == OK ? 0 : -1;
}

static int close_all(void **state)
{
    json_object_put(tools);
    return close_tokenizer(state);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint64_t seed = 20261129;

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

/* ---- feeding --------------------------------------------------------------------------------- */

/* Feeds text in which the byte 1 is the mark, in pieces of at most `piece` bytes (0: random). */
static enum dsml_progress feed(struct dsml *dsml, const char *text, size_t len, size_t piece)
{
    enum dsml_progress progress = dsml_push_text(dsml, "", 0);
    while (len > 0) {
        if (*text == MARK[0]) {
            progress = dsml_push_mark(dsml);
            text++;
            len--;
            continue;
        }
        const char *mark = memchr(text, MARK[0], len);
        size_t n = mark == NULL ? len : (size_t)(mark - text);
        size_t limit = piece > 0 ? piece : 1 + below(12);
        n = n < limit ? n : limit;
        progress = dsml_push_text(dsml, text, n);
        text += n;
        len -= n;
    }
    return progress;
}

static void assert_buf(const struct buf *got, const char *want, size_t len)
{
    assert_int_equal(got->len, len);
    if (len > 0)
        assert_memory_equal(got->data, want, len);
}

static void assert_call(const struct dsml_call *call, const char *name, const char *arguments)
{
    assert_buf(&call->name, name, strlen(name));
    assert_buf(&call->arguments, arguments, strlen(arguments));
}

#define P(name, kind, value)                                                                       \
    "<" MARK "parameter name=\"" name "\" string=\"" kind "\">" value "</" MARK "parameter>\n"
#define CALL(name, parameters)                                                                     \
    "<" MARK "invoke name=\"" name "\">\n" parameters "</" MARK "invoke>\n"
#define BLOCK(calls) "tool_calls>\n" calls "</" MARK "tool_calls>"

/* ---- what is read ---------------------------------------------------------------------------- */

struct read_case {
    const char *text;
    const char *name, *arguments; /* of the one call */
};

static const struct read_case GOOD[] = {
    {BLOCK(CALL("add", P("a", "false", "2") P("b", "true", "3"))), "add",
     "{\"a\": 2, \"b\": \"3\"}"},
    {BLOCK(CALL("f", "")), "f", "{}"},
    {BLOCK(CALL("f", P("s", "true", ""))), "f", "{\"s\": \"\"}"},
    {BLOCK(CALL("f", P("o", "false", "{\"k\": [1, 1.50, null]}"))), "f",
     "{\"o\": {\"k\": [1, 1.50, null]}}"},
    {BLOCK(CALL("f", P("s", "true", "a \"b\" <c>\n\t\\d"))), "f",
     "{\"s\": \"a \\\"b\\\" <c>\\n\\t\\\\d\"}"},
    /* text that only looks like markup stays text */
    {BLOCK(CALL("f", P("s", "true", "ls 2>&1"))), "f", "{\"s\": \"ls 2>&1\"}"},
    {BLOCK(CALL("f", P("s", "true", "]]>"))), "f", "{\"s\": \"]]>\"}"},
    {BLOCK(CALL("f", P("s", "true", "x</"))), "f", "{\"s\": \"x</\"}"},
    {BLOCK(CALL("f", P("s", "true", "<"))), "f", "{\"s\": \"<\"}"},
    {BLOCK(CALL("f", P("s", "true", "</｜DSML｜parameter>\n</｜DSML｜invoke>"))), "f",
     "{\"s\": \"</｜DSML｜parameter>\\n</｜DSML｜invoke>\"}"},
    {BLOCK(CALL("f", P("s", "true", "</parameter>"))), "f", "{\"s\": \"</parameter>\"}"},
    {BLOCK(CALL("f", P("k<>é 1", "true", "é\xF0\x9F\x98\x80"))), "f",
     "{\"k<>é 1\": \"é\xF0\x9F\x98\x80\"}"},
    {BLOCK(CALL("f", P("a\\b", "true", "x"))), "f", "{\"a\\\\b\": \"x\"}"},
    /* forgiven */
    {"function_calls>\n" CALL("f", "") "</" MARK "function_calls>", "f", "{}"},
    {"toolcalls>\n" CALL("f", "") "</" MARK "tool_calls>", "f", "{}"},
    {"tool_calls\n" CALL("f", "") "</" MARK "tool_calls>", "f", "{}"},
    {"tool_calls>" CALL("f", " \r\n\t") "\n\n</" MARK "tool_calls>", "f", "{}"},
    {"invoke name=\"write\">\n" P("path", "true", "a") "</" MARK "invoke>\n</" MARK "tool_calls>",
     "write", "{\"path\": \"a\"}"},
    {BLOCK(CALL("write", "{\"path\": \"a\", \"n\": 1}\n")), "write",
     "{\"path\": \"a\", \"n\": 1}\n"},
    {BLOCK(CALL("f", P("n", "false", "hello"))), "f", "{\"n\": \"hello\"}"},
    {BLOCK(CALL("f", P("n", "false", ""))), "f", "{\"n\": \"\"}"},
    {BLOCK(CALL("f", P("n", "false", "NaN"))), "f", "{\"n\": \"NaN\"}"},
    {BLOCK(CALL("f", P("n", "false", "1} , \"x\": {"))), "f", "{\"n\": \"1} , \\\"x\\\": {\"}"},
    /* an extra key around the arguments: by the tool's schema */
    {BLOCK(CALL("write", P("arguments", "false", "{\"path\": \"a\"}"))), "write",
     "{\"path\": \"a\"}"},
    {BLOCK(CALL("write", P("input", "true", "{\"path\": \"a\"}"))), "write", "{\"path\": \"a\"}"},
    {BLOCK(CALL("bare", P("arguments", "false", "{}"))), "bare", "{}"},
    {BLOCK(CALL("run", P("arguments", "false", "{\"x\": 1}"))), "run",
     "{\"arguments\": {\"x\": 1}}"},
    {BLOCK(CALL("unknown", P("arguments", "false", "{\"x\": 1}"))), "unknown",
     "{\"arguments\": {\"x\": 1}}"},
    {BLOCK(CALL("write", P("arguments", "true", "not json"))), "write",
     "{\"arguments\": \"not json\"}"},
    {BLOCK(CALL("write", P("arguments", "false", "{}") P("b", "true", ""))), "write",
     "{\"arguments\": {}, \"b\": \"\"}"},
};

static void test_good_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        for (size_t piece = 1; piece < 40; piece += 3) {
            struct dsml *dsml = dsml_create(tools, false);
            int32_t n;
            assert_int_equal(feed(dsml, GOOD[i].text, strlen(GOOD[i].text), piece), DSML_ENDED);
            const struct dsml_call *calls = dsml_calls(dsml, &n);
            assert_int_equal(n, 1);
            assert_call(calls, GOOD[i].name, GOOD[i].arguments);
            assert_true(dsml_is_settled(dsml));
            assert_int_equal(feed(dsml, "\nmore" MARK, 6, 1), DSML_ENDED);
            dsml_destroy(dsml);
        }
    }
}

static void test_several_calls(void **state)
{
    static const char TEXT[] =
        BLOCK(CALL("a", P("x", "true", "1")) CALL("b", P("x", "true", "2")) CALL("a", ""));
    (void)state;
    struct dsml *dsml = dsml_create(NULL, false);
    int32_t n;
    assert_int_equal(feed(dsml, TEXT, sizeof TEXT - 1, 7), DSML_ENDED);
    const struct dsml_call *calls = dsml_calls(dsml, &n);
    assert_int_equal(n, 3);
    assert_call(&calls[0], "a", "{\"x\": \"1\"}");
    assert_call(&calls[1], "b", "{\"x\": \"2\"}");
    assert_call(&calls[2], "a", "{}");
    dsml_destroy(dsml);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_bad_blocks(void **state)
{
    static const struct {
        const char *text;
        enum dsml_progress progress;
        int32_t n; /* calls that stand */
    } BAD[] = {
        {"x", DSML_NONE, 0},
        {"tool_call>", DSML_NONE, 0},
        {MARK, DSML_NONE, 0},
        {"invoke name=\"unknown\">", DSML_NONE, 0},
        {"invoke name=\"\">", DSML_NONE, 0},
        {"invoke name=\"wri\n", DSML_NONE, 0},
        {"tool_calls>x", DSML_MALFORMED, 0},
        {"tool_calls>" CALL("f", "") "x", DSML_MALFORMED, 1},
        {"tool_calls>" CALL("f", "") "<x", DSML_MALFORMED, 1},
        {"tool_calls>" CALL("f", "") "<" MARK "x", DSML_MALFORMED, 1},
        {"tool_calls>" MARK, DSML_MALFORMED, 0},
        {BLOCK(CALL("", "")), DSML_MALFORMED, 0},
        {BLOCK(CALL("a\tb", "")), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", "") CALL("f", P("a", "true", "1") P("a", "true", "2"))), DSML_MALFORMED,
         1},
        {BLOCK(CALL("f", P("a", "maybe", "1"))), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", "<parameter name=\"a\">true</" MARK "parameter>")), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", P("a", "true", "x" MARK "y"))), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", P("a", "true", "x<" MARK "y"))), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", P("a", "true", "x</" MARK "invoke>"))), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", "{\"a\": }")), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", "{\"a\": 1} x")), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", P("a", "true", "1") "{}")), DSML_MALFORMED, 0},
        {BLOCK(CALL("f", "[1]")), DSML_MALFORMED, 0},
        {BLOCK("<" MARK "tool_calls>"), DSML_MALFORMED, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct dsml *dsml = dsml_create(tools, false);
        int32_t n;
        assert_int_equal(feed(dsml, BAD[i].text, strlen(BAD[i].text), 0), BAD[i].progress);
        dsml_calls(dsml, &n);
        assert_int_equal(n, BAD[i].n);
        assert_false(dsml_is_settled(dsml));
        if (BAD[i].progress == DSML_MALFORMED)
            assert_true(strlen(dsml_fault(dsml)) > 0);
        dsml_destroy(dsml);
    }
    struct dsml *dsml = dsml_create(tools, true); /* inside reasoning the wrapper is needed */
    assert_int_equal(feed(dsml, "invoke name=\"write\">", 20, 0), DSML_NONE);
    dsml_destroy(dsml);
}

/* Cut after any byte, no call is there before its closing tag is. */
static void test_half_calls(void **state)
{
    static const char TEXT[] =
        BLOCK(CALL("a", P("x", "true", "1")) CALL("b", P("y", "false", "2")));
    (void)state;
    const char *first = strstr(TEXT, "</" MARK "invoke>") + 10;
    const char *second = strstr(first, "</" MARK "invoke>") + 10;
    for (size_t len = 0; len < sizeof TEXT; len++) {
        struct dsml *dsml = dsml_create(NULL, false);
        int32_t n;
        feed(dsml, TEXT, len, 0);
        dsml_calls(dsml, &n);
        assert_int_equal(n, (TEXT + len >= first) + (TEXT + len >= second));
        dsml_destroy(dsml);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct buf text = {0};
    struct dsml *dsml = dsml_create(NULL, false);
    int32_t n;
    buf_puts(&text, "tool_calls>");
    for (int i = 0; i < TOOL_CALLS_MAX; i++)
        buf_puts(&text, CALL("f", ""));
    assert_int_equal(feed(dsml, text.data, text.len, 100), DSML_OPEN);
    assert_int_equal(feed(dsml, CALL("f", ""), strlen(CALL("f", "")), 100), DSML_MALFORMED);
    dsml_calls(dsml, &n);
    assert_int_equal(n, TOOL_CALLS_MAX);
    dsml_destroy(dsml);

    text.len = 0;
    buf_puts(&text, "tool_calls><" MARK "invoke name=\"f\">");
    for (int i = 0; i < DSML_PARAMETERS_MAX; i++)
        buf_printf(&text, "<" MARK "parameter name=\"%d\" string=\"true\">x</" MARK "parameter>",
                   i);
    dsml = dsml_create(NULL, false);
    assert_int_equal(feed(dsml, text.data, text.len, 100), DSML_OPEN);
    assert_int_equal(feed(dsml, P("a", "true", ""), strlen(P("a", "true", "")), 100),
                     DSML_MALFORMED);
    dsml_destroy(dsml);

    text.len = 0;
    buf_puts(&text, "tool_calls><" MARK "invoke name=\"");
    for (int i = 0; i < TOOL_NAME_BYTES_MAX; i++)
        buf_puts(&text, "n");
    dsml = dsml_create(NULL, false);
    assert_int_equal(feed(dsml, text.data, text.len, 100), DSML_OPEN);
    assert_int_equal(dsml_push_text(dsml, "\"", 1), DSML_OPEN);
    dsml_destroy(dsml);
    dsml = dsml_create(NULL, false);
    feed(dsml, text.data, text.len, 100);
    assert_int_equal(dsml_push_text(dsml, "n", 1), DSML_MALFORMED);
    dsml_destroy(dsml);
    buf_free(&text);
}

/* ---- generated blocks ------------------------------------------------------------------------ */

static const char *pick(const char *const *list, size_t n)
{
    return list[below((uint32_t)n)];
}
#define PICK(list) pick(list, sizeof(list) / sizeof((list)[0]))

static void random_value(struct buf *out)
{
    static const char *const PIECES[] = {"a",
                                         " ",
                                         "\n",
                                         "<",
                                         "</",
                                         "2>&1",
                                         "]]>",
                                         "\"",
                                         "\\",
                                         "é",
                                         "\xF0\x9F\x98\x80",
                                         "</parameter>",
                                         "{",
                                         "}",
                                         "｜DSML｜",
                                         "</｜DSML｜parameter>",
                                         "\t",
                                         "//"};
    for (uint32_t n = below(7); n > 0; n--)
        buf_puts(out, PICK(PIECES));
}

static void random_call(struct buf *out)
{
    static const char *const NAMES[] = {"write", "run", "bare", "other", "mcp__x-1"};
    static const char *const KEYS[] = {"path", "content", "arguments", "input", "n", "a b", "é"};
    static const char *const JSON[] = {"1",      "-2.50",       "true",    "null",
                                       "[1, 2]", "{\"a\": {}}", " \"x\" ", "nonsense"};
    buf_printf(out, "<" MARK "invoke name=\"%s\">\n", PICK(NAMES));
    if (below(10) == 0) {
        buf_puts(out, below(4) == 0 ? "{\"a\": [1}\n" : "{\"a\": [1]}\n");
    } else {
        for (uint32_t n = below(4); n > 0; n--) {
            bool json = below(2) == 0;
            buf_printf(out, "<" MARK "parameter name=\"%s\" string=\"%s\">", PICK(KEYS),
                       json ? "false" : "true");
            if (json)
                buf_puts(out, PICK(JSON));
            else
                random_value(out);
            buf_puts(out, "</" MARK "parameter>\n");
        }
    }
    buf_puts(out, "</" MARK "invoke>\n");
}

/* Damages the text at one place. */
static void damage(struct buf *text)
{
    static const char *const JUNK[] = {MARK, "<", "</", "x", "\n", "\"", ">", "</" MARK, "invoke>"};
    size_t at = below((uint32_t)text->len), next;
    struct buf copy = {0};
    uint32_t how = below(3);
    while (((unsigned char)text->data[at] & 0xC0) ==
           0x80) /* whole characters, as the reader gets */
        at--;
    for (next = at + 1; next < text->len && ((unsigned char)text->data[next] & 0xC0) == 0x80;)
        next++;
    buf_add(&copy, text->data, at);
    if (how == 1)
        buf_puts(&copy, PICK(JUNK));
    if (how != 0)
        buf_add(&copy, text->data + (how == 1 ? at : next), text->len - (how == 1 ? at : next));
    text->len = 0;
    buf_add(text, copy.data, copy.len);
    buf_free(&copy);
}

/* The text behind the first mark. */
static void random_block(struct buf *out)
{
    static const char *const OPENINGS[] = {"tool_calls>\n",     "tool_calls>\n", "tool_calls>\n",
                                           "function_calls>\n", "toolcalls>",    "tool_calls\n"};
    static const char *const CLOSINGS[] = {"</" MARK "tool_calls>", "</" MARK "tool_calls>",
                                           "</" MARK "function_calls>", "</" MARK "tool_calls>\n",
                                           ""};
    bool bare = below(8) == 0;
    if (!bare)
        buf_puts(out, PICK(OPENINGS));
    size_t start = out->len;
    for (uint32_t n = below(4) + bare; n > 0; n--)
        random_call(out);
    if (bare) { /* the mark of the first call is the first one */
        memmove(out->data + start, out->data + start + 2, out->len - start - 2);
        out->len -= 2;
    }
    buf_puts(out, PICK(CLOSINGS));
    if (below(3) == 0 && out->len > 0)
        damage(out);
}

static void assert_same_calls(const struct model_result *want, const struct dsml_call *calls,
                              int32_t n)
{
    assert_int_equal(n, want->n_calls);
    for (int32_t i = 0; i < n; i++) {
        assert_buf(&calls[i].name, want->calls[i].name.data, want->calls[i].name.len);
        assert_buf(&calls[i].arguments, want->calls[i].arguments.data,
                   want->calls[i].arguments.len);
        struct buf arguments = calls[i].arguments;
        assert_true(model_is_json(&arguments, true));
    }
}

static void test_random_blocks(void **state)
{
    int seen[DSML_MALFORMED + 1] = {0}, n_calls = 0;
    (void)state;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        struct buf text = {0};
        struct model_result want;
        bool wrapped = below(4) == 0;
        random_block(&text);
        model_read(text.data, text.len, tools, wrapped, &want);
        for (size_t piece = 0; piece < 3; piece++) {
            struct dsml *dsml = dsml_create(tools, wrapped);
            int32_t n;
            assert_int_equal(feed(dsml, text.data, text.len, piece), want.progress);
            const struct dsml_call *calls = dsml_calls(dsml, &n);
            assert_same_calls(&want, calls, n);
            if (want.progress == DSML_OPEN || want.progress == DSML_ENDED)
                assert_int_equal(dsml_is_settled(dsml), want.settled);
            dsml_destroy(dsml);
        }
        seen[want.progress]++;
        n_calls += want.n_calls;
        model_free(&want);
        buf_free(&text);
    }
    for (int i = 0; i <= DSML_MALFORMED; i++)
        assert_true(seen[i] > 100); /* every outcome is reached */
    assert_true(n_calls > 10000);
}

/* ---- behind the tokenizer -------------------------------------------------------------------- */

/* Tokens for text with marks: longest pieces, single bytes, or a mixture. */
static void tokens_of(const char *text, size_t len, struct ids *out)
{
    uint32_t style = below(3);
    while (len > 0) {
        if (*text == MARK[0]) {
            ids_add(out, tokens.dsml);
            text++;
            len--;
            continue;
        }
        const char *mark = memchr(text, MARK[0], len);
        size_t n = mark == NULL ? len : (size_t)(mark - text);
        if (style > 0)
            n = n < 1 + below(9) ? n : 1 + below((uint32_t)n);
        if (style == 0 || (style == 1 && below(2) == 0))
            tokenizer_encode(tokenizer, text, n, false, out);
        else
            for (size_t i = 0; i < n; i++)
                ids_add(out, byte_ids[(unsigned char)text[i]]);
        text += n;
        len -= n;
    }
}

static void random_prose(struct buf *out)
{
    static const char *const PIECES[] = {
        "Ok. ", "I write it.\n", "\n\n", "<", "</tool_calls>", "é", "<｜DSML｜tool_calls>", "\n"};
    for (uint32_t n = below(6); n > 0; n--)
        buf_puts(out, PICK(PIECES));
}

/* Reasoning, content and a block as one answer: each arrives where it belongs, nothing leaks. */
static void test_random_answers(void **state)
{
    int ended = 0, cut = 0, malformed = 0;
    (void)state;
    for (int round = 0; round < 6000; round++) {
        bool thinking = below(2) == 0, closed = !thinking || below(4) > 0;
        struct buf prose[2] = {{0}}, block = {0};
        struct ids ids = {0};
        struct model_result want;
        random_prose(&prose[0]);
        if (closed)
            random_prose(&prose[1]);
        random_block(&block);
        model_read(block.data, block.len, tools, !closed, &want);
        if (thinking)
            tokens_of(prose[0].data, prose[0].len, &ids);
        else
            prose[0].len = 0;
        if (thinking && closed)
            ids_add(&ids, tokens.think_close);
        tokens_of(prose[1].data, prose[1].len, &ids);
        tokens_of("\n\n<" MARK, 4, &ids);
        tokens_of(block.data, block.len, &ids);

        struct answer_options options = {
            .tokenizer = tokenizer, .tokens = &tokens, .thinking = thinking, .tools = tools};
        struct answer *answer;
        struct buf reasoning = {0}, content = {0};
        assert_int_equal(answer_create(&options, &answer, NULL), OK);
        for (size_t i = 0; i < ids.len; i++)
            answer_push(answer, ids.data[i], &reasoning, &content);
        answer_finish(answer, &reasoning, &content);
        if (want.progress != DSML_NONE) {
            int32_t n;
            const struct dsml_call *calls = answer_calls(answer, &n);
            assert_same_calls(&want, calls, n);
            assert_buf(&reasoning, prose[0].data, prose[0].len);
            assert_buf(&content, prose[1].data, prose[1].len);
            enum answer_block got = answer_block(answer);
            if (want.progress == DSML_MALFORMED)
                assert_int_equal(got, BLOCK_MALFORMED);
            else
                assert_int_equal(got, want.progress == DSML_ENDED || want.settled ? BLOCK_ENDED
                                                                                  : BLOCK_OPEN);
            ended += got == BLOCK_ENDED;
            cut += got == BLOCK_OPEN;
            malformed += got == BLOCK_MALFORMED;
        } else {
            assert_false(answer_is_faithful(answer));
        }
        assert_null(content.len == 0 ? NULL : memchr(content.data, MARK[0], content.len));
        answer_destroy(answer);
        model_free(&want);
        ids_free(&ids);
        buf_free(&reasoning);
        buf_free(&content);
        buf_free(&prose[0]);
        buf_free(&prose[1]);
        buf_free(&block);
    }
    assert_true(ended > 1000 && cut > 300 && malformed > 300);
}

static void random_json(struct buf *out)
{
    static const char *const SCALARS[] = {"1",   "-2.50", "true",           "null",
                                          "1e3", "\"\"",  "\"a \\\"b\\\"\""};
    uint32_t what = below(8), n = below(3);
    struct buf text = {0};
    if (what < 3) {
        buf_puts(out, PICK(SCALARS));
    } else if (what < 5) {
        random_value(&text);
        json_dump_string(out, text.len == 0 ? "" : text.data, text.len);
    } else {
        bool object = what == 5;
        buf_puts(out, object ? "{" : "[");
        for (uint32_t i = 0; i < n; i++) {
            buf_puts(out, i == 0 ? "" : ", ");
            if (object)
                buf_printf(out, "\"k%u\": ", i);
            buf_puts(out, SCALARS[below(5)]);
        }
        buf_puts(out, object ? "}" : "]");
    }
    buf_free(&text);
}

/* What the renderer writes for a history, the reader reads: arguments come back as they were. */
static void test_round_trip(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct buf json = {0}, spoken = {0}, reasoning = {0}, content = {0}, heard = {0};
        struct json_object *arguments, *messages;
        struct ids ids = {0};
        buf_puts(&json, "{");
        for (uint32_t i = 0, n = below(4); i < n; i++) {
            buf_printf(&json, "%s\"p%u\": ", i == 0 ? "" : ", ", i);
            random_json(&json);
        }
        buf_puts(&json, "}");
        assert_int_equal(json_parse(json.data, json.len, &arguments, NULL, NULL), OK);
        buf_puts(&spoken, "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                          "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":");
        json_dump_string(&spoken, json.data, json.len);
        buf_puts(&spoken, "}}]}]");
        assert_int_equal(json_parse(spoken.data, spoken.len, &messages, NULL, NULL), OK);
        struct chat_request request = {.messages = messages};
        assert_int_equal(chat_render(tokenizer, &tokens, &request, &ids, NULL, NULL), OK);

        struct answer_options options = {.tokenizer = tokenizer, .tokens = &tokens, .tools = tools};
        struct answer *answer;
        int32_t n;
        size_t from = 0;
        while (ids.data[from++] != tokens.think_close)
            ;
        assert_int_equal(answer_create(&options, &answer, NULL), OK);
        for (size_t i = from; i + 1 < ids.len; i++)
            assert_false(answer_push(answer, ids.data[i], &reasoning, &content));
        answer_finish(answer, &reasoning, &content);
        const struct dsml_call *calls = answer_calls(answer, &n);
        assert_int_equal(n, 1);
        assert_int_equal(reasoning.len + content.len, 0);
        json_dump_normal(&heard, arguments);
        assert_buf(&calls[0].arguments, heard.data, heard.len);
        answer_destroy(answer);
        json_object_put(arguments);
        json_object_put(messages);
        ids_free(&ids);
        buf_free(&json);
        buf_free(&spoken);
        buf_free(&heard);
    }
}

/* Any tokens in any order: no abort, no added token's text, calls only as whole JSON. */
static void test_random_tokens(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct answer_options options = {.tokenizer = tokenizer,
                                         .tokens = &tokens,
                                         .thinking = below(2) == 0,
                                         .tools = tools,
                                         .calls_max = (int32_t)below(2)};
        struct answer *answer;
        struct buf reasoning = {0}, content = {0};
        int32_t n;
        assert_int_equal(answer_create(&options, &answer, NULL), OK);
        if (below(2) == 0) {
            struct ids ids = {0};
            static const char OPEN[] = "\n\n<" MARK "tool_calls>\n<" MARK "invoke name=\"f\">";
            tokens_of(OPEN, sizeof OPEN - 1, &ids);
            for (size_t i = 0; i < ids.len; i++)
                answer_push(answer, ids.data[i], &reasoning, &content);
            ids_free(&ids);
        }
        for (uint32_t i = below(60); i > 0; i--) {
            uint32_t what = below(4);
            answer_push(answer,
                        what == 0   ? tokens.dsml
                        : what == 1 ? byte_ids[(unsigned char)"</>\n\"{}"[below(7)]]
                                    : (int32_t)below(4096),
                        &reasoning, &content);
        }
        answer_finish(answer, &reasoning, &content);
        const struct dsml_call *calls = answer_calls(answer, &n);
        for (int32_t i = 0; i < n; i++) {
            struct buf arguments = calls[i].arguments;
            assert_true(model_is_json(&arguments, true));
        }
        answer_destroy(answer);
        buf_free(&reasoning);
        buf_free(&content);
    }
}

/* ---- the answer's own rules ------------------------------------------------------------------ */

struct told {
    struct buf reasoning, content;
    int32_t n_calls;
    enum answer_block block;
    bool faithful, stopped;
};

/* `text`: \1 mark, \2 </think>. */
static struct told tell(const char *text, bool thinking, struct json_object *offered,
                        int32_t calls_max, const char *stop)
{
    struct answer_stop stops = {.text = stop, .len = stop == NULL ? 0 : strlen(stop)};
    struct answer_options options = {.tokenizer = tokenizer,
                                     .tokens = &tokens,
                                     .thinking = thinking,
                                     .tools = offered,
                                     .calls_max = calls_max,
                                     .stops = &stops,
                                     .n_stops = stop != NULL};
    struct answer *answer;
    struct told t = {0};
    assert_int_equal(answer_create(&options, &answer, NULL), OK);
    while (*text != '\0') {
        size_t n = strcspn(text, "\1\2");
        struct ids ids = {0};
        tokenizer_encode(tokenizer, text, n, false, &ids);
        for (size_t i = 0; i < ids.len; i++)
            t.stopped = answer_push(answer, ids.data[i], &t.reasoning, &t.content);
        ids_free(&ids);
        text += n;
        if (*text != '\0')
            t.stopped = answer_push(answer, *text++ == '\1' ? tokens.dsml : tokens.think_close,
                                    &t.reasoning, &t.content);
    }
    answer_finish(answer, &t.reasoning, &t.content);
    answer_calls(answer, &t.n_calls);
    t.block = answer_block(answer);
    t.faithful = answer_is_faithful(answer);
    answer_destroy(answer);
    return t;
}

static void assert_told(struct told t, const char *reasoning, const char *content, int32_t n_calls,
                        enum answer_block block, bool faithful)
{
    assert_buf(&t.reasoning, reasoning, strlen(reasoning));
    assert_buf(&t.content, content, strlen(content));
    assert_int_equal(t.n_calls, n_calls);
    assert_int_equal(t.block, block);
    assert_int_equal(t.faithful, faithful);
    buf_free(&t.reasoning);
    buf_free(&t.content);
}

static void test_answer_rules(void **state)
{
    static const char ONE[] = "Ok.\n\n<" MARK BLOCK(CALL("f", ""));
    static const char TWO[] = "Ok.\n\n<" MARK BLOCK(CALL("f", "") CALL("g", ""));
    (void)state;
    /* the official example of model.md 5.6 */
    assert_told(tell("I should add.\2\n\n<" MARK BLOCK(CALL("add", P("a", "false", "2"))), true,
                     tools, 0, NULL),
                "I should add.", "", 1, BLOCK_ENDED, true);
    assert_told(tell("Ok.\n\n\n\n<" MARK BLOCK(CALL("f", "")), false, tools, 0, NULL), "",
                "Ok.\n\n", 1, BLOCK_ENDED, true);
    assert_told(tell(ONE, false, NULL, 0, NULL), "",
                "Ok.\n\n<tool_calls>\n<invoke name=\"f\">\n</invoke>\n</tool_calls>", 0, BLOCK_NONE,
                false);
    /* inside reasoning: the wrapper ends it, anything else is a dropped mark */
    assert_told(tell("Hm.\n\n<" MARK BLOCK(CALL("f", "")), true, tools, 0, NULL), "Hm.", "", 1,
                BLOCK_ENDED, true);
    assert_told(tell("Hm <" CALL("write", "") "\2Yes.", true, tools, 0, NULL),
                "Hm <<invoke name=\"write\">\n</invoke>\n", "Yes.", 0, BLOCK_NONE, false);
    assert_told(tell("Hm <\1tool\2Yes.", true, tools, 0, NULL), "Hm <tool", "Yes.", 0, BLOCK_NONE,
                false);
    /* no block after all; the second mark opens one */
    assert_told(tell("a<\1b\n<\1c<" MARK BLOCK(CALL("f", "")), false, tools, 0, NULL), "",
                "a<b\n<c", 1, BLOCK_ENDED, false);
    /* </think> inside a value is dropped, and told of */
    assert_told(tell("<" MARK BLOCK(CALL("f", P("a", "true", "x\2y"))), false, tools, 0, NULL), "",
                "", 1, BLOCK_ENDED, false);
    /* behind the block there is nothing */
    struct told t = tell("<" MARK BLOCK(CALL("f", "")) "more", false, tools, 0, NULL);
    assert_true(t.stopped);
    assert_told(t, "", "", 1, BLOCK_ENDED, true);
    /* cut anywhere in the markup: nothing of it is shown */
    for (size_t len = strlen("Ok.\n\n<" MARK); len < strlen(ONE); len++) {
        char text[128];
        snprintf(text, sizeof text, "%.*s", (int)len, ONE);
        t = tell(text, false, tools, 0, NULL);
        assert_false(t.stopped);
        bool whole = strstr(text, "</" MARK "invoke>") != NULL;
        assert_told(t, "", "Ok.", whole, whole ? BLOCK_ENDED : BLOCK_OPEN, true);
    }
    /* one call only: over where a second begins */
    t = tell(TWO, false, tools, 1, NULL);
    assert_true(t.stopped);
    assert_told(t, "", "Ok.", 1, BLOCK_ENDED, false);
    t = tell(ONE, false, tools, 1, NULL);
    assert_false(t.stopped);
    assert_told(t, "", "Ok.", 1, BLOCK_ENDED, true);
    /* stop strings: in content only, not across into the block */
    t = tell(ONE, false, tools, 0, "invoke");
    assert_told(t, "", "Ok.", 1, BLOCK_ENDED, true);
    t = tell(ONE, false, tools, 0, "k.");
    assert_true(t.stopped);
    assert_told(t, "", "O", 0, BLOCK_NONE, false);
    t = tell("Ok.\n\nmore", false, tools, 0, "\n\n");
    assert_told(t, "", "Ok.", 0, BLOCK_NONE, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_blocks),    cmocka_unit_test(test_several_calls),
        cmocka_unit_test(test_bad_blocks),     cmocka_unit_test(test_half_calls),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_random_answers), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_random_tokens),  cmocka_unit_test(test_answer_rules),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
