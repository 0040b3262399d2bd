/*
 * tokenizer.json as an enemy writes it: a small good file, edits of it that must each be refused
 * with the field named, and random damage, after which it is refused or still works.
 */
#include "config/limits.h"
#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO "rootfs/models/demo/tokenizer.json"
#define SEED 20240608

/* ---- files ---------------------------------------------------------------------------------- */

/* Opens a tokenizer whose file holds the text; the file has no name and no place on the disk. */
static enum status open_text(const char *text, size_t len, struct tokenizer **out,
                             struct error *err)
{
    char path[64];
    int fd = memfd_create("tokenizer.json", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum status status = tokenizer_open(path, out, err);
    if (status != OK) {
        assert_int_equal(err->status, status);
        assert_memory_equal(err->text, path, strlen(path)); /* names the file first */
    }
    close(fd);
    return status;
}

/* The words of the 256 bytes in the GPT-2 byte alphabet, as JSON members. */
static void add_bytes(struct buf *out)
{
    int other = 256;
    for (int byte = 0; byte < 256; byte++) {
        int code = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173) ? byte : other++;
        char word[3] = {(char)code, 0, 0};
        if (code >= 0x80) {
            word[0] = (char)(0xC0 | code >> 6);
            word[1] = (char)(0x80 | (code & 0x3F));
        }
        json_dump_string(out, word, strlen(word));
        buf_printf(out, ": %d, ", byte);
    }
}

/* A good file of 261 ids with merges in both forms. */
static struct buf good_file(void)
{
    struct json_object *demo = NULL;
    struct error err = {0};
    assert_int_equal(json_parse_file(DEMO, TOKENIZER_FILE_BYTES_MAX, &demo, &err), OK);
    struct buf out = {0};
    buf_puts(&out, "{\"truncation\": null, \"padding\": null, \"normalizer\": null, "
                   "\"added_tokens\": [{\"id\": 259, \"content\": \"<s>\", \"lstrip\": false}, "
                   "{\"id\": 260, \"content\": \"<sx>\"}], \"pre_tokenizer\": ");
    json_dump(&out, json_member(demo, "pre_tokenizer", NULL));
    buf_puts(&out, ", \"post_processor\": {\"type\": \"ByteLevel\"}, "
                   "\"decoder\": {\"type\": \"ByteLevel\"}, "
                   "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                   "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, "
                   "\"vocab\": {");
    add_bytes(&out);
    buf_puts(&out, "\"ab\": 256, \"abc\": 257, \"bc\": 258}, "
                   "\"merges\": [\"a b\", \"ab c\", [\"b\", \"c\"]]}}");
    json_object_put(demo);
    return out;
}

/* A copy with the first `from` made `to`. */
static struct buf edited(const struct buf *file, const char *from, const char *to)
{
    struct buf out = {0};
    const char *hit = memmem(file->data, file->len, from, strlen(from));
    assert_non_null(hit);
    buf_add(&out, file->data, (size_t)(hit - file->data));
    buf_puts(&out, to);
    hit += strlen(from);
    buf_add(&out, hit, file->len - (size_t)(hit - file->data));
    return out;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    static const int32_t WANT[] = {257, 258, 'a', ' ', 256, 260, 'd'};
    struct buf file = good_file();
    struct tokenizer *t = NULL;
    struct error err = {0};
    struct ids ids = {0};
    assert_int_equal(open_text(file.data, file.len, &t, &err), OK);
    assert_int_equal(tokenizer_vocab_size(t), 261);
    tokenizer_encode(t, "abc", 3, true, &ids);
    tokenizer_encode(t, "bc", 2, true, &ids);
    tokenizer_encode(t, "a", 1, true, &ids);
    tokenizer_encode(t, " ab<sx>d", 8, true, &ids);
    assert_int_equal(ids.len, 7);
    assert_memory_equal(ids.data, WANT, sizeof WANT);
    ids_free(&ids);
    tokenizer_close(t);
    buf_free(&file);
}

static const struct {
    const char *from, *to;
    const char *named; /* must stand in the error */
} HOSTILE[] = {
    /* the text */
    {"\"padding\"", "\"truncation\"", "duplicate key"},
    {"\"padding\"", "\"pad\xFF\"", "invalid UTF-8"},
    {"\"padding\": null", "\"padding\": nul", "byte"},
    /* settings */
    {"\"truncation\": null", "\"truncation\": {\"max_length\": 512}", "truncation"},
    {"\"padding\": null", "\"padding\": true", "padding"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "normalizer"},
    {"\"post_processor\": {\"type\": \"ByteLevel\"", "\"post_processor\": {\"type\": \"Bert\"",
     "post_processor.type"},
    {"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": [\"ByteLevel\"]",
     "decoder.type"},
    {"\"decoder\"", "\"encoder\"", "decoder.type"},
    {"\"BPE\"", "\"Unigram\"", "model.type"},
    {"\"BPE\"", "null", "model.type"},
    {"\"dropout\": null", "\"dropout\": 0.1", "model.dropout"},
    {"\"unk_token\": null", "\"unk_token\": \"a\"", "model.unk_token"},
    {"\"fuse_unk\": false", "\"fuse_unk\": true", "model.fuse_unk"},
    {"\"byte_fallback\": false", "\"byte_fallback\": \"false\"", "model.byte_fallback"},
    {"\"ignore_merges\": false", "\"ignore_merges\": true", "model.ignore_merges"},
    {"\"ignore_merges\": false", "\"end_of_word_suffix\": \"</w>\"", "model.end_of_word_suffix"},
    {"\"Sequence\"", "\"sequence\"", "pre_tokenizer.type"},
    {"{1,3}", "{1,2}", "pre_tokenizer.pretokenizers.0.pattern.Regex"},
    {"\xE4\xB8\x80-", "\xE4\xB8\x81-", "pre_tokenizer.pretokenizers.1.pattern.Regex"},
    {"\\\\s+\"", "\\\\s\"", "pre_tokenizer.pretokenizers.2.pattern.Regex"},
    {"\"Regex\"", "\"String\"", "pre_tokenizer.pretokenizers.0.pattern.Regex"},
    {"\"Isolated\"", "\"Removed\"", "pre_tokenizer.pretokenizers.0.behavior"},
    {"\"invert\": false", "\"invert\": true", "pre_tokenizer.pretokenizers.0.invert"},
    {"\"use_regex\": false", "\"use_regex\": true", "pre_tokenizer.pretokenizers.3.use_regex"},
    {"\"add_prefix_space\": false", "\"add_prefix_space\": true",
     "pretokenizers.3.add_prefix_space"},
    {"\"use_regex\": false}", "\"use_regex\": false}, {\"type\": \"Digits\"}", "pretokenizers.4"},
    {"\"pretokenizers\": [", "\"pretokenizers\": [0, ", "pretokenizers.0.type"},
    /* added tokens */
    {"\"added_tokens\"", "\"added\"", "added_tokens: missing or not an array"},
    {"\"id\": 259, ", "", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": 261", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": -1", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": 259.0", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": \"259\"", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": 4294967555", "added_tokens[0].id"},
    {"\"id\": 259", "\"id\": 18446744073709551875", "added_tokens[0].id"},
    {"\"id\": 260", "\"id\": 259", "added_tokens[1].id: 259 is given twice"},
    {"\"id\": 260", "\"id\": 256", "model.vocab: id 256 has another text"},
    {"{\"id\": 260", "7, {\"id\": 260", "added_tokens[1].id"},
    {"<sx>", "<s>", "added_tokens: two have the same content"},
    {"<sx>", "ab", "added_tokens[1].id: model.vocab has another id"},
    {"<sx>", "", "added_tokens[1].content"},
    {"\"<sx>\"", "12", "added_tokens[1].content"},
    {"<sx>", "<\\u0000x>", "added_tokens[1].content: holds U+0000"},
    {"\"lstrip\": false", "\"lstrip\": true", "added_tokens[0]: single_word, lstrip"},
    {"\"lstrip\": false", "\"single_word\": 0", "added_tokens[0]: single_word, lstrip"},
    /* vocabulary */
    {"\"vocab\": {", "\"vocab\": [], \"words\": {", "model.vocab: missing or not an object"},
    {"\"ab\": 256", "\"ab\": -1", "model.vocab: an id"},
    {"\"ab\": 256", "\"ab\": 261", "model.vocab: an id"},
    {"\"ab\": 256", "\"ab\": 1e2", "model.vocab: an id"},
    {"\"ab\": 256", "\"ab\": null", "model.vocab: an id"},
    {"\"ab\": 256", "\"ab\": 257", "model.vocab: id 257 is given twice"},
    {"\"ab\": 256, ", "", "added_tokens[1].id: not an integer below 260"},
    {"\"ab\": 256", "\"a b\": 256", "model.vocab: id 256"},
    {"\"ab\": 256", "\"\": 256", "model.vocab: id 256"},
    {"\"ab\": 256", "\"\xE4\xB8\x80\": 256", "model.vocab: id 256"},
    {"\"a\": 97", "\"aa\": 97", "model.vocab: no token for the byte 0x61"},
    {"\"bc\": 258", "\"<s>\": 259", "no token has id 258"},
    /* merges */
    {"\"merges\"", "\"fusions\"", "model.merges: missing or not an array"},
    {"\"a b\"", "\"ab\"", "model.merges[0]"},
    {"\"a b\"", "\"a  b\"", "model.merges[0]"},
    {"\"a b\"", "\"a b c\"", "model.merges[0]"},
    {"\"a b\"", "\" ab\"", "model.merges[0]"},
    {"\"a b\"", "\"a b\\u0000\"", "model.merges[0]: holds U+0000"},
    {"\"a b\"", "\"a c\"", "model.merges[0]: the join"},
    {"\"a b\"", "\"abx c\"", "model.merges[0]: left"},
    {"\"a b\"", "7", "model.merges[0]"},
    {"\"ab c\"", "\"a b\"", "model.merges[1]: repeats"},
    {"[\"b\", \"c\"]", "[\"b\", \"c\", \"\"]", "model.merges[2]"},
    {"[\"b\", \"c\"]", "[\"b\", 1]", "model.merges[2]"},
    {"[\"b\", \"c\"]", "[\"b\\u0000\", \"c\"]", "model.merges[2]"},
    {"[\"b\", \"c\"]", "[\"b\", \"bc\"]", "model.merges[2]: the join"},
    /* text must not merge into an added token */
    {"{\"id\": 259,", "{\"id\": 258, \"content\": \"bc\"}, {\"id\": 259,",
     "model.merges[2]: the join"},
};

static void test_hostile(void **state)
{
    (void)state;
    struct buf file = good_file();
    for (size_t i = 0; i < sizeof HOSTILE / sizeof HOSTILE[0]; i++) {
        struct buf bad = edited(&file, HOSTILE[i].from, HOSTILE[i].to);
        struct tokenizer *t = NULL;
        struct error err = {0};
        enum status status = open_text(bad.data, bad.len, &t, &err);
        if (status != ERR_INPUT || strstr(err.text, HOSTILE[i].named) == NULL)
            fail_msg("%s made %s: status %d, %s", HOSTILE[i].from, HOSTILE[i].to, status, err.text);
        assert_null(t);
        buf_free(&bad);
    }
    buf_free(&file);
}

/* The good file with `count` more entries at `where`; a '#' in `entry` becomes the entry's number.
 */
static void refuse_many(const char *where, const char *entry, size_t count, const char *named)
{
    struct buf file = good_file(), many = {0};
    struct tokenizer *t = NULL;
    struct error err = {0};
    size_t head = strcspn(entry, "#");
    buf_puts(&many, where);
    for (size_t i = 0; i < count; i++) {
        buf_add(&many, entry, head);
        if (entry[head] == '#')
            buf_printf(&many, "%zu%s", i, entry + head + 1);
    }
    struct buf bad = edited(&file, where, buf_cstr(&many));
    assert_int_equal(open_text(bad.data, bad.len, &t, &err), ERR_INPUT);
    if (strstr(err.text, named) == NULL)
        fail_msg("%s", err.text);
    buf_free(&file);
    buf_free(&many);
    buf_free(&bad);
}

static void test_limits(void **state)
{
    (void)state;
    refuse_many("\"merges\": [", "0,", TOKENIZER_VOCAB_MAX, "model.merges: more");
    refuse_many("\"added_tokens\": [", "0,", TOKENIZER_VOCAB_MAX, "added_tokens: more");
    refuse_many("\"vocab\": {", "\"w#\": 0,", TOKENIZER_VOCAB_MAX, "model.vocab: more");
    refuse_many("<sx>", "x", TOKEN_BYTES_MAX, "added_tokens[1].content");
    refuse_many("\"ab", "b", TOKEN_BYTES_MAX, "model.vocab: id 256");
    refuse_many("{", " ", TOKENIZER_FILE_BYTES_MAX, "larger than");
}

static void test_no_file(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct error err = {0};
    assert_int_equal(tokenizer_open("tests/data/none.json", &t, &err), ERR_IO);
    assert_non_null(strstr(err.text, "tests/data/none.json"));
    assert_int_equal(tokenizer_open("tests", &t, &err), ERR_IO);
    tokenizer_close(NULL);
}

/* Opens a damaged file; one that is accepted must still take every byte string apart and together.
 */
static bool survives(const char *text, size_t len)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_text(text, len, &t, &err) != OK) {
        assert_true(err.text[0] != '\0');
        return false;
    }
    static const char SAMPLE[] = "abc<s>ab\xFF 12345\n\xE4\xB8\x80<sx>bcabab\0z";
    struct ids ids = {0};
    struct buf back = {0};
    tokenizer_encode(t, SAMPLE, sizeof SAMPLE, true, &ids);
    for (size_t i = 0; i < ids.len; i++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(t, ids.data[i], &n);
        buf_add(&back, bytes, n);
    }
    assert_int_equal(back.len, sizeof SAMPLE);
    assert_memory_equal(back.data, SAMPLE, sizeof SAMPLE);
    ids_free(&ids);
    buf_free(&back);
    tokenizer_close(t);
    return true;
}

static void test_damage(void **state)
{
    (void)state;
    struct buf file = good_file();
    uint64_t seed = SEED;
    int accepted = 0;
    print_message("# seed %d\n", SEED);
    for (int round = 0; round < 4000; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(seed >> 33) % file.len;
        char old = file.data[at];
        static const char LIKELY[] = "\"\\{}[],:019-e \0";
        file.data[at] = round % 2 ? LIKELY[(seed >> 20) % sizeof LIKELY] : (char)(seed >> 24);
        accepted += survives(file.data, file.len);
        file.data[at] = old;
    }
    /* Both happen, or the damage is not what it should be. */
    assert_true(accepted > 0 && accepted < 2000);
    for (size_t cut = 0; cut < file.len; cut += 7)
        assert_false(survives(file.data, cut));
    assert_true(survives(file.data, file.len));
    buf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("tokenizer_file", tests, NULL, NULL);
}
