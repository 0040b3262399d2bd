/*
 * The answer splitter: states, dropped control tokens, half characters, stop strings; and, over
 * random answers cut into random tokens, equality with a plain model of what a client should see.
 */
#include "engine/text/answer.h"

#include "tests/unit/demo_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int32_t byte_ids[256]; /* the token of each single byte */

static int open_all(void **state)
{
    if (open_tokenizer(state) != 0)
        return -1;
    tokens_of_bytes(byte_ids);
    return 0;
}

/* ---- one answer ------------------------------------------------------------------------------ */

struct run {
    struct answer *answer;
    struct buf reasoning, content;
    bool stopped;
};

static void run_start(struct run *run, bool thinking, const char *const *stops)
{
    struct answer_stop list[STOP_STRINGS_MAX];
    struct error err = {0};
    int32_t n = 0;
    for (; stops != NULL && stops[n] != NULL; n++)
        list[n] = (struct answer_stop){.text = stops[n], .len = strlen(stops[n])};
    *run = (struct run){0};
    const struct answer_options options = {.tokenizer = tokenizer,
                                           .tokens = &tokens,
                                           .thinking = thinking,
                                           .stops = list,
                                           .n_stops = n};
    if (answer_create(&options, &run->answer, &err) != OK)
        fail_msg("%s", err.text);
}

static void push(struct run *run, int32_t id)
{
    run->stopped = answer_push(run->answer, id, &run->reasoning, &run->content);
}

static void push_bytes(struct run *run, const char *text)
{
    for (; *text != '\0'; text++)
        push(run, byte_ids[(unsigned char)*text]);
}

static void push_text(struct run *run, const char *text)
{
    struct ids ids = {0};
    tokenizer_encode(tokenizer, text, strlen(text), false, &ids);
    for (size_t i = 0; i < ids.len; i++)
        push(run, ids.data[i]);
    ids_free(&ids);
}

static void expect_so_far(struct run *run, const char *reasoning, const char *content)
{
    assert_string_equal(buf_cstr(&run->reasoning), reasoning);
    assert_string_equal(buf_cstr(&run->content), content);
}

static void run_end(struct run *run, const char *reasoning, const char *content)
{
    answer_finish(run->answer, &run->reasoning, &run->content);
    expect_so_far(run, reasoning, content);
    answer_destroy(run->answer);
    buf_free(&run->reasoning);
    buf_free(&run->content);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void test_states(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, true, NULL);
    push_text(&run, "Why? ");
    push(&run, tokens.think_close);
    push_text(&run, "So.");
    assert_true(answer_reasoning_tokens(run.answer) > 1);
    run_end(&run, "Why? ", "So.");

    run_start(&run, false, NULL);
    push_text(&run, "So.");
    assert_int_equal(answer_reasoning_tokens(run.answer), 0);
    run_end(&run, "", "So.");

    run_start(&run, true, NULL); /* cut while thinking */
    push_text(&run, "Why");
    run_end(&run, "Why", "");

    run_start(&run, true, NULL); /* no reasoning, and a second </think> */
    push(&run, tokens.think_close);
    push_text(&run, "a");
    push(&run, tokens.think_close);
    push_text(&run, "b");
    assert_int_equal(answer_reasoning_tokens(run.answer), 1);
    run_end(&run, "", "ab");

    run_start(&run, true, NULL); /* nothing at all */
    run_end(&run, "", "");
}

/* "</think>" spelled by ordinary tokens is text. */
static void test_spelled_markers_are_text(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, true, NULL);
    push_bytes(&run, "a</think>b<｜User｜>");
    run_end(&run, "a</think>b<｜User｜>", "");
}

/* No added token reaches the client, in either state; each ends a half character. */
static void test_control_tokens(void **state)
{
    (void)state;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        struct run run;
        if (!tokenizer_is_added(tokenizer, id))
            continue;
        run_start(&run, false, NULL);
        push_bytes(&run, "a\xE2\x82");
        push(&run, id);
        push_bytes(&run, "\xACz");
        run_end(&run, "", "a\xEF\xBF\xBD\xEF\xBF\xBDz");
        run_start(&run, true, NULL);
        push_bytes(&run, "a");
        push(&run, id);
        push_bytes(&run, "b");
        if (id == tokens.think_close)
            run_end(&run, "a", "b");
        else
            run_end(&run, "ab", "");
    }
}

static void test_tool_block_is_not_lost(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, false, NULL);
    push_text(&run, "Ok.\n\n<");
    push(&run, tokens.dsml);
    push_text(&run, "tool_calls>\n</");
    push(&run, tokens.dsml);
    push_text(&run, "tool_calls>");
    push(&run, tokens.eos);
    run_end(&run, "", "Ok.\n\n<tool_calls>\n</tool_calls>");
}

static void test_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, false, NULL);
    push_text(&run, "a");
    push(&run, -1);
    push(&run, INT32_MAX);
    push(&run, tokenizer_vocab_size(tokenizer));
    push_text(&run, "b");
    run_end(&run, "", "ab");
}

/* ---- characters ------------------------------------------------------------------------------ */

static void test_whole_characters(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, false, NULL);
    push_bytes(&run, "\xF0\x9F\x98");
    expect_so_far(&run, "", "");
    push_bytes(&run, "\x80");
    expect_so_far(&run, "", "\xF0\x9F\x98\x80");
    push_bytes(&run, "\xE2");
    run_end(&run, "", "\xF0\x9F\x98\x80\xEF\xBF\xBD");

    run_start(&run, true, NULL); /* a half character at the end of the reasoning stays in it */
    push_bytes(&run, "\xE2\x82");
    push(&run, tokens.think_close);
    push_bytes(&run, "x");
    run_end(&run, "\xEF\xBF\xBD", "x");
}

/* ---- stop strings ---------------------------------------------------------------------------- */

static void test_stops(void **state)
{
    (void)state;
    static const struct {
        const char *stops[4];
        const char *text, *content;
        bool stopped;
    } CASES[] = {
        {{"END"}, "one END two", "one ", true},
        {{"END"}, "one EN", "one EN", false},
        {{"END"}, "ENEND", "EN", true},
        {{"aab"}, "aaab", "a", true},
        {{"abab"}, "aababab", "a", true},
        {{"\n\n", "END"}, "a\nEND\n\n", "a\n", true},
        {{"ab", "b"}, "xab", "x", true},     /* same end: the longest */
        {{"abcd", "c"}, "abcd", "ab", true}, /* the first to end */
        {{"abcx", "bc"}, "abcy", "a", true},
        {{"abcx", "bd"}, "abcy", "abcy", false},
        {{"é"}, "caf\xC3\xA9!", "caf", true},
        {{"é"}, "caf\xC3\xA8!", "caf\xC3\xA8!", false}, /* the first byte alone is no match */
        {{"x"}, "x", "", true},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
            struct run run;
            run_start(&run, false, CASES[i].stops);
            (by_bytes ? push_bytes : push_text)(&run, CASES[i].text);
            assert_int_equal(run.stopped, CASES[i].stopped);
            if (CASES[i].stopped)
                expect_so_far(&run, "", CASES[i].content); /* at once, not at the end */
            run_end(&run, "", CASES[i].content);
        }
    }
}

static void test_stops_only_in_content(void **state)
{
    (void)state;
    static const char *const STOPS[] = {"END", NULL};
    struct run run;
    run_start(&run, true, STOPS);
    push_bytes(&run, "EEND EN"); /* reasoning is not searched, nor held back */
    expect_so_far(&run, "EEND EN", "");
    push(&run, tokens.think_close);
    push_bytes(&run, "D E");
    expect_so_far(&run, "EEND EN", "D ");
    push(&run, tokens.dsml); /* visible content goes on over a dropped token */
    push_bytes(&run, "ND more");
    assert_true(run.stopped);
    push_bytes(&run, "ignored");
    run_end(&run, "EEND EN", "D ");
}

static void test_stop_limits(void **state)
{
    (void)state;
    static char long_text[STOP_STRING_BYTES_MAX + 1];
    struct answer_stop stops[STOP_STRINGS_MAX + 1];
    struct answer_options options = {
        .tokenizer = tokenizer, .tokens = &tokens, .stops = stops, .n_stops = 1};
    struct answer *answer = NULL;
    struct error err = {0};
    memset(long_text, 'a', sizeof long_text);
    for (int i = 0; i <= STOP_STRINGS_MAX; i++)
        stops[i] = (struct answer_stop){.text = "x", .len = 1};
    options.n_stops = STOP_STRINGS_MAX;
    assert_int_equal(answer_create(&options, &answer, &err), OK);
    answer_destroy(answer);
    options.n_stops = STOP_STRINGS_MAX + 1;
    assert_int_equal(answer_create(&options, &answer, &err), ERR_INPUT);
    options.n_stops = 2;
    stops[1].len = 0;
    assert_int_equal(answer_create(&options, &answer, &err), ERR_INPUT);
    stops[1] = (struct answer_stop){.text = long_text, .len = sizeof long_text};
    assert_int_equal(answer_create(&options, &answer, &err), ERR_INPUT);
    stops[1].len--;
    assert_int_equal(answer_create(&options, &answer, &err), OK);
    answer_destroy(answer);
    answer_destroy(NULL);
}

/* ---- random answers -------------------------------------------------------------------------- */

static uint64_t seed = 20261130;

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

static const char *const LETTERS[] = {"a",  "b",    "ab",  "\xC3\xA9", "\xE2\x82\xAC",
                                      "\n", "\xE2", "\x82"};

static void random_text(struct buf *out, uint32_t letters)
{
    while (letters-- > 0)
        buf_puts(out, LETTERS[below(sizeof LETTERS / sizeof LETTERS[0])]);
}

/* What a client should see of ids[0..n), the plain way: the whole text first, then the search. */
static void model(const int32_t *ids, size_t n, bool thinking, char *const *stops, int n_stops,
                  struct buf *reasoning, struct buf *content)
{
    struct detokenizer detokenizer = {0};
    struct buf *part = thinking ? reasoning : content;
    for (size_t i = 0; i < n; i++) {
        if (!tokenizer_is_added(tokenizer, ids[i])) {
            detokenizer_push(&detokenizer, tokenizer, ids[i], part);
            continue;
        }
        detokenizer_finish(&detokenizer, part);
        part = ids[i] == tokens.think_close ? content : part;
    }
    detokenizer_finish(&detokenizer, part);
    for (size_t end = 1; end <= content->len; end++) {
        size_t longest = 0;
        for (int s = 0; s < n_stops; s++) {
            size_t len = strlen(stops[s]);
            if (len <= end && len > longest &&
                memcmp(content->data + end - len, stops[s], len) == 0)
                longest = len;
        }
        if (longest > 0) {
            content->len = end - longest;
            return;
        }
    }
}

static void random_ids(struct ids *out)
{
    static const int32_t *const CONTROLS[] = {&tokens.think_close, &tokens.dsml, &tokens.eos,
                                              &tokens.user};
    for (uint32_t pieces = 1 + below(12); pieces > 0; pieces--) {
        struct buf text = {0};
        random_text(&text, below(6));
        if (below(2) == 0)
            tokenizer_encode(tokenizer, text.data, text.len, false, out);
        else
            for (size_t i = 0; i < text.len; i++)
                ids_add(out, byte_ids[(unsigned char)text.data[i]]);
        if (below(4) == 0)
            ids_add(out, *CONTROLS[below(4)]);
        buf_free(&text);
    }
}

/* A prefix of `whole`, in whole characters. */
static void check_delivered(const struct buf *delivered, const struct buf *whole)
{
    assert_true(delivered->len <= whole->len);
    if (delivered->len > 0)
        assert_memory_equal(delivered->data, whole->data, delivered->len);
    if (delivered->len < whole->len)
        assert_true((whole->data[delivered->len] & 0xC0) != 0x80);
}

static void test_random_answers(void **state)
{
    (void)state;
    int stopped = 0;
    for (int round = 0; round < 20000; round++) {
        struct ids ids = {0};
        struct buf reasoning = {0}, content = {0}, stop_text[4] = {0};
        const char *stops[5] = {NULL};
        bool thinking = below(2) == 0;
        int n_stops = (int)below(5);
        for (int i = 0; i < n_stops; i++) {
            buf_puts(&stop_text[i], LETTERS[below(6)]); /* well-formed, as JSON strings are */
            for (uint32_t more = below(3); more > 0; more--)
                buf_puts(&stop_text[i], LETTERS[below(6)]);
            stops[i] = buf_cstr(&stop_text[i]);
        }
        random_ids(&ids);
        model(ids.data, ids.len, thinking, (char *const *)stops, n_stops, &reasoning, &content);
        struct run run;
        run_start(&run, thinking, stops);
        for (size_t i = 0; i < ids.len; i++) {
            push(&run, ids.data[i]);
            check_delivered(&run.reasoning, &reasoning);
            check_delivered(&run.content, &content);
        }
        stopped += run.stopped;
        run_end(&run, buf_cstr(&reasoning), buf_cstr(&content));
        for (int i = 0; i < n_stops; i++)
            buf_free(&stop_text[i]);
        ids_free(&ids);
        buf_free(&reasoning);
        buf_free(&content);
    }
    assert_true(stopped > 2000 && stopped < 18000); /* both ways are reached */
}

/* Text is held back only as long as it can become a stop string. */
static void test_nothing_is_held_needlessly(void **state)
{
    (void)state;
    static const char *const STOPS[] = {"abc", NULL};
    static const char *const SEEN[] = {"", "", "ab", "ab", "ababx"};
    static const char TEXT[] = "ababx";
    struct run run;
    run_start(&run, false, STOPS);
    for (size_t i = 0; i < sizeof TEXT - 1; i++) {
        push(&run, byte_ids[(unsigned char)TEXT[i]]);
        assert_string_equal(buf_cstr(&run.content), SEEN[i]);
    }
    run_end(&run, "", "ababx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_spelled_markers_are_text),
        cmocka_unit_test(test_control_tokens),
        cmocka_unit_test(test_tool_block_is_not_lost),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
        cmocka_unit_test(test_whole_characters),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_stops_only_in_content),
        cmocka_unit_test(test_stop_limits),
        cmocka_unit_test(test_random_answers),
        cmocka_unit_test(test_nothing_is_held_needlessly),
    };
    return cmocka_run_group_tests(tests, open_all, close_tokenizer);
}
