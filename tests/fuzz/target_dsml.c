/*
 * Any text as a tool-call block.  The reader must say what a second, independent reader says of the
 * whole (dsml_model.h), however the text is cut; the same holds behind the tokens of an answer.
 * The first two bytes choose the options and the cuts; in the text the byte 1 is the mark.
 */
#include "tests/fuzz/fuzz.h"

#include "engine/base/utf8.h"
#include "engine/text/answer.h"

#include "tests/unit/dsml_model.h"

#define TEXT_BYTES_MAX 4096
#define CALLS_MAX      32 /* of the second reader */

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"run\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"arguments\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"bare\"}}]";

static struct fuzz_text lang;
static struct json_object *tools;
static int32_t byte_ids[256];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    fuzz_text_open(&lang);
    ASSERT(json_parse(TOOLS, sizeof TOOLS - 1, &tools, NULL, NULL) == OK);
    for (int32_t id = tokenizer_vocab_size(lang.tokenizer) - 1; id >= 0; id--) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(lang.tokenizer, id, &len);
        if (len == 1)
            byte_ids[(unsigned char)bytes[0]] = id;
    }
    return 0;
}

/* A reader of blocks is given whole characters: what is none becomes '?'. */
static size_t whole_characters(const uint8_t *data, size_t n, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_char c = utf8_decode(data + i, n - i);
        if (c.kind == UTF8_WHOLE)
            memcpy(out + len, data + i, c.len);
        else
            memset(out + len, '?', c.len);
        len += c.len;
        i += c.len;
    }
    return len;
}

/* The byte behind a piece that begins at `from`: at the next mark, or cut by chance. */
static size_t piece_end(const char *text, size_t len, size_t from, uint64_t *cuts)
{
    const char *mark = memchr(text + from, MARK[0], len - from);
    size_t end = mark == NULL ? len : (size_t)(mark - text);
    size_t want = from + 1 + fuzz_below(cuts, 16);
    return want < end ? want : end;
}

static void assert_calls(const struct model_result *want, const struct dsml_call *calls, int32_t n)
{
    ASSERT(n == want->n_calls);
    for (int32_t i = 0; i < n; i++) {
        const struct buf *got[] = {&calls[i].name, &calls[i].arguments};
        const struct buf *wanted[] = {&want->calls[i].name, &want->calls[i].arguments};
        for (int j = 0; j < 2; j++) {
            ASSERT(got[j]->len == wanted[j]->len);
            ASSERT(memcmp(got[j]->data, wanted[j]->data, got[j]->len) == 0);
        }
    }
}

static void read_pieces(const char *text, size_t len, bool wrapped, uint64_t cuts,
                        const struct model_result *want)
{
    struct dsml *dsml = dsml_create(tools, wrapped);
    enum dsml_progress progress = dsml_push_text(dsml, "", 0);
    int32_t n;
    for (size_t from = 0, end; from < len; from = end) {
        end = from + 1;
        if (text[from] == MARK[0]) {
            progress = dsml_push_mark(dsml);
        } else {
            end = piece_end(text, len, from, &cuts);
            progress = dsml_push_text(dsml, text + from, end - from);
        }
    }
    ASSERT(progress == want->progress);
    const struct dsml_call *calls = dsml_calls(dsml, &n);
    assert_calls(want, calls, n);
    dsml_destroy(dsml);
}

/* The same text as tokens behind some content. */
static void read_tokens(const char *text, size_t len, uint64_t cuts,
                        const struct model_result *want)
{
    struct answer_options options = {
        .tokenizer = lang.tokenizer, .tokens = &lang.tokens, .tools = tools};
    struct answer *answer = NULL;
    struct buf reasoning = {0}, content = {0};
    struct ids ids = {0};
    int32_t n;
    tokenizer_encode(lang.tokenizer, "Yes.\n\n<", 7, false, &ids);
    ids_add(&ids, lang.tokens.dsml);
    for (size_t from = 0, end; from < len; from = end) {
        end = from + 1;
        if (text[from] == MARK[0]) {
            ids_add(&ids, lang.tokens.dsml);
        } else if (fuzz_below(&cuts, 2) == 0) {
            ids_add(&ids, byte_ids[(unsigned char)text[from]]);
        } else {
            end = piece_end(text, len, from, &cuts);
            tokenizer_encode(lang.tokenizer, text + from, end - from, false, &ids);
        }
    }
    ASSERT(answer_create(&options, &answer, NULL) == OK);
    for (size_t i = 0; i < ids.len; i++)
        answer_push(answer, ids.data[i], &reasoning, &content);
    answer_finish(answer, &reasoning, &content);
    if (want->progress != DSML_NONE) {
        const struct dsml_call *calls = answer_calls(answer, &n);
        assert_calls(want, calls, n);
        ASSERT(content.len == 4 && memcmp(content.data, "Yes.", 4) == 0);
    }
    ASSERT(reasoning.len == 0);
    answer_destroy(answer);
    ids_free(&ids);
    buf_free(&content);
    buf_free(&reasoning);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char text[TEXT_BYTES_MAX];
    struct model_result want;
    if (n < 2 || n - 2 > sizeof text)
        return 0;
    bool wrapped = data[0] & 1;
    size_t len = whole_characters(data + 2, n - 2, text);
    /* the second reader has room for so many calls; a call has a tag with this word */
    int invokes = 0;
    for (size_t i = 0; i + 6 <= len; i++)
        invokes += memcmp(text + i, "invoke", 6) == 0;
    int parameters = 0;
    for (size_t i = 0; i + 9 <= len; i++)
        parameters += memcmp(text + i, "parameter", 9) == 0;
    if (invokes >= CALLS_MAX || parameters >= MODEL_KEYS_MAX)
        return 0;
    model_read(text, len, tools, wrapped, &want);
    read_pieces(text, len, wrapped, data[1], &want);
    if (!wrapped)
        read_tokens(text, len, data[1], &want);
    model_free(&want);
    return 0;
}
