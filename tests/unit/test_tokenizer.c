/*
 * The tokenizer against slow, independent ones (a matcher of the split expressions that backtracks,
 * merges by scanning, the decoder of the WHATWG standard) and against hostile files.  Ids of the
 * reference implementation are compared in tests/text.
 */
#include "engine/text/tokenizer.h"

#include "config/limits.h"
#include "engine/base/json.h"
#include "engine/text/pretokenize.h"
#include "engine/text/tokenizer_file.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO "rootfs/models/demo/tokenizer.json"
#define SEED 20240607

static struct tokenizer *demo;
static uint64_t random_state = SEED;

/* xorshift64*: the same on every machine. */
static uint32_t pick(uint32_t n)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545F4914F6CDD1Du) >> 33) % n;
}

static struct ids encode(const char *text, size_t len, bool special)
{
    struct ids ids = {0};
    tokenizer_encode(demo, text, len, special, &ids);
    return ids;
}

static struct buf join(const struct ids *ids)
{
    struct buf text = {0};
    for (size_t i = 0; i < ids->len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(demo, ids->data[i], &len);
        assert_true(len > 0);
        buf_add(&text, bytes, len);
    }
    return text;
}

/* Encodes, and asserts that the ids give the bytes back and whether added tokens are among them. */
static void round_trip(const char *text, size_t len, bool special)
{
    struct ids ids = encode(text, len, special);
    struct buf back = join(&ids);
    assert_int_equal(back.len, len);
    if (len > 0)
        assert_memory_equal(back.data, text, len);
    for (size_t i = 0; i < ids.len && !special; i++)
        assert_false(tokenizer_is_added(demo, ids.data[i]));
    ids_free(&ids);
    buf_free(&back);
}

static void add_code(struct buf *out, uint32_t c)
{
    uint8_t s[4] = {(uint8_t)c};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; n > 1 && i-- > 0; c >>= 6)
        s[i] = (uint8_t)(0x80 | (c & 0x3F));
    if (n > 1)
        s[0] |= (uint8_t)(n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0);
    buf_add(out, s, n);
}

/* Text of up to `parts` characters in which the classes meet often; ill-formed bytes if asked for.
 */
static struct buf random_text(uint32_t parts, bool ill_formed)
{
    static const uint32_t CODES[] = {
        'a',    'b',    'Z',    ' ',    ' ',    '\n',   '\r',    '\t',    '1',    '2',    '!',
        '<',    '_',    0x00,   0x1B,   0x85,   0xA0,   0xE9,    0xBD,    0x301,  0x661,  0x2003,
        0x2028, 0x200B, 0x2026, 0x3000, 0x3001, 0x3042, 0x309A,  0x30FB,  0x4E00, 0x9FA5, 0x9FA6,
        0xD55C, 0xE000, 0xFF5C, 0x221E, 0x2160, 0x378,  0x1F600, 0x10D40, 0x1CCF0};
    struct buf text = {0};
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t code = CODES[pick(sizeof CODES / sizeof CODES[0])];
        for (uint32_t times = pick(12) == 0 ? 1 + pick(9) : 1; times > 0; times--)
            add_code(&text, code);
        if (ill_formed && pick(3) == 0)
            buf_add(&text, &(uint8_t){(uint8_t)(0x80 + pick(0x80))}, 1);
    }
    return text;
}

/* ---- classes and UTF-8 ---------------------------------------------------------------------- */

/* How many characters of each class the reference's engine knows (Oniguruma 6.9.10, Unicode 16). */
static void test_class_totals(void **state)
{
    (void)state;
    static const size_t WANT[8] = {141028, 2501, 1911, 855, 8514, 25, 2, 20902 + 96 + 96};
    const uint8_t general = CHAR_LETTER | CHAR_MARK | CHAR_NUMBER | CHAR_PUNCT | CHAR_SYMBOL;
    size_t got[8] = {0};
    for (uint32_t code = 0; code < UNICODE_CODES; code++) {
        const struct unicode *u = &demo->unicode;
        uint8_t class = u->classes[u->block_of[code / UNICODE_BLOCK]][code % UNICODE_BLOCK];
        for (int bit = 0; bit < 8; bit++)
            got[bit] += class >> bit & 1;
        assert_true(((class & general) & ((class & general) - 1)) == 0); /* one at most */
        /* What lets the first two split stages be one pass. */
        assert_false((class & CHAR_NUMBER) && (class & CHAR_HAN_KANA));
    }
    assert_memory_equal(got, WANT, sizeof WANT);
}

static void test_utf8_all_codes(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < UNICODE_CODES; code++) {
        struct buf s = {0};
        add_code(&s, code);
        const uint8_t *bytes = (const uint8_t *)s.data;
        struct utf8_char c = utf8_decode(bytes, s.len);
        if (code >= 0xD800 && code <= 0xDFFF) {
            assert_int_equal(c.kind, UTF8_BAD);
            assert_int_equal(c.len, 1);
        } else {
            assert_true(c.kind == UTF8_WHOLE && c.len == s.len && c.code == code);
            for (size_t cut = 1; cut < s.len; cut++) {
                c = utf8_decode(bytes, cut);
                assert_true(c.kind == UTF8_CUT && c.len == cut);
            }
        }
        buf_free(&s);
    }
}

/* The UTF-8 decoder as the WHATWG Encoding Standard states it, byte by byte. */
static struct buf whatwg_decode(const uint8_t *bytes, size_t len)
{
    struct buf out = {0};
    uint32_t code = 0;
    int needed = 0, seen = 0;
    uint8_t low = 0x80, high = 0xBF;
    for (size_t i = 0; i < len; i++) {
        uint8_t b = bytes[i];
        if (needed == 0) {
            seen = 0;
            low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
            high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
            needed = b >= 0xC2 && b <= 0xDF   ? 1
                     : b >= 0xE0 && b <= 0xEF ? 2
                     : b >= 0xF0 && b <= 0xF4 ? 3
                                              : 0;
            code = b & (needed == 1 ? 0x1F : needed == 2 ? 0xF : 7);
            if (needed == 0)
                add_code(&out, b < 0x80 ? b : 0xFFFD);
        } else if (b < low || b > high) {
            needed = 0;
            add_code(&out, 0xFFFD);
            i--; /* the byte is read again */
        } else {
            low = 0x80, high = 0xBF;
            code = code << 6 | (b & 0x3F);
            if (++seen == needed) {
                add_code(&out, code);
                needed = 0;
            }
        }
    }
    if (needed != 0)
        add_code(&out, 0xFFFD);
    return out;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Characters of a text with their classes, for the slow matcher. */
struct chars {
    uint32_t code[512];
    size_t at[513]; /* byte offsets */
    uint8_t class[512];
    size_t count;
};

static void take_apart(const struct buf *text, struct chars *out)
{
    out->count = 0;
    for (size_t at = 0, len; at < text->len; at += len) {
        const uint8_t *bytes = (const uint8_t *)text->data + at;
        assert_true(out->count < 512);
        out->class[out->count] = unicode_class(&demo->unicode, bytes, text->len - at, &len);
        out->code[out->count] = utf8_decode(bytes, text->len - at).code;
        out->at[out->count++] = at;
    }
    out->at[out->count] = text->len;
}

/* One element of an expression: a set of characters with a range of repeats. */
enum set {
    NUMBER,
    HAN_KANA,
    ASCII_SIGN,
    ASCII_LETTER,
    LEAD,
    WORD,
    BLANK,
    SIGN,
    LINE_END,
    SPACE,
    NO_MORE
};
struct element {
    enum set set;
    size_t min, max;
};
#define MANY 512

static bool in_set(const struct chars *c, size_t i, enum set set)
{
    uint8_t class = c->class[i];
    switch (set) {
    case NUMBER:
        return class & CHAR_NUMBER;
    case HAN_KANA:
        return (c->code[i] >= 0x4E00 && c->code[i] <= 0x9FA5) ||
               (c->code[i] >= 0x3040 && c->code[i] <= 0x30FF);
    case ASCII_SIGN:
        return c->code[i] > 0x20 && c->code[i] < 0x7F && !(class & (CHAR_LETTER | CHAR_NUMBER));
    case ASCII_LETTER:
        return (c->code[i] | 0x20) >= 'a' && (c->code[i] | 0x20) <= 'z';
    case LEAD:
        return !(class & (CHAR_LETTER | CHAR_PUNCT | CHAR_SYMBOL)) && !in_set(c, i, LINE_END);
    case WORD:
        return class & (CHAR_LETTER | CHAR_MARK);
    case BLANK:
        return c->code[i] == ' ';
    case SIGN:
        return class & (CHAR_PUNCT | CHAR_SYMBOL);
    case LINE_END:
        return c->code[i] == '\n' || c->code[i] == '\r';
    case SPACE:
        return class & CHAR_SPACE;
    case NO_MORE:
        break;
    }
    return false;
}

/* The alternatives of the three expressions; NO_MORE stands for (?!\S) and costs no character. */
static const struct element STAGES[3][6][4] = {
    {{{NUMBER, 1, 3}}},
    {{{HAN_KANA, 1, MANY}}},
    {{{ASCII_SIGN, 1, 1}, {ASCII_LETTER, 1, MANY}},
     {{LEAD, 0, 1}, {WORD, 1, MANY}},
     {{BLANK, 0, 1}, {SIGN, 1, MANY}, {LINE_END, 0, MANY}},
     {{SPACE, 0, MANY}, {LINE_END, 1, MANY}},
     {{SPACE, 1, MANY}, {NO_MORE, 1, 1}},
     {{SPACE, 1, MANY}}}};

/* Greedy matching with backtracking; elements nest three deep at most.  Gives the end, or SIZE_MAX.
 */
static size_t match_elements(const struct chars *c, const struct element *e, size_t at, size_t end)
{
    if (e->max == 0)
        return at;
    if (e->set == NO_MORE)
        return at == end || in_set(c, at, SPACE) ? at : SIZE_MAX;
    size_t n = 0;
    while (n < e->max && at + n < end && in_set(c, at + n, e->set))
        n++;
    for (size_t take = n + 1; take-- > e->min;) {
        size_t stop = match_elements(c, e + 1, at + take, end);
        if (stop != SIZE_MAX)
            return stop;
    }
    return SIZE_MAX;
}

/* Cuts chars [from, end) by one stage; appends the ends of the pieces. */
static void split(const struct chars *c, int stage, size_t from, size_t end, size_t *ends,
                  size_t *n)
{
    size_t gap = from, at = from;
    while (at < end) {
        size_t stop = SIZE_MAX;
        for (int i = 0; i < 6 && stop == SIZE_MAX && STAGES[stage][i][0].max > 0; i++)
            stop = match_elements(c, STAGES[stage][i], at, end);
        if (stop == SIZE_MAX) {
            at++;
            continue;
        }
        if (at > gap)
            ends[(*n)++] = at;
        ends[(*n)++] = gap = at = stop;
    }
    if (gap < end)
        ends[(*n)++] = end;
}

static void test_pieces(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct buf text = random_text(1 + pick(40), round % 4 == 0);
        struct chars c;
        size_t ends[2][512], n[2] = {1, 0};
        take_apart(&text, &c);
        ends[0][0] = c.count;
        for (int stage = 0; stage < 3; stage++) {
            size_t from = 0, *in = ends[stage % 2], *out = ends[(stage + 1) % 2];
            n[(stage + 1) % 2] = 0;
            for (size_t i = 0; i < n[stage % 2]; from = in[i++])
                split(&c, stage, from, in[i], out, &n[(stage + 1) % 2]);
        }
        struct pretokenizer p;
        size_t start, end, i = 0, last = 0;
        pretokenize_start(&p, &demo->unicode, text.data, text.len);
        while (pretokenize_next(&p, &start, &end)) {
            assert_true(i < n[1] && start == last);
            assert_int_equal(end, c.at[ends[1][i]]);
            last = end;
            i++;
        }
        assert_int_equal(i, n[1]);
        assert_int_equal(last, text.len);
        buf_free(&text);
    }
}

/* ---- merges --------------------------------------------------------------------------------- */

/* Merges by scanning for the lowest rank, leftmost first, until nothing merges; pairs are looked
 * for in every slot of the table. */
static void slow_bpe(const char *piece, size_t len, struct ids *out)
{
    for (size_t i = 0; i < len; i++)
        ids_add(out, demo->bpe.byte_ids[(uint8_t)piece[i]]);
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t rank = UINT32_MAX;
        int32_t id = -1;
        for (size_t i = 0; i + 1 < out->len; i++) {
            uint64_t pair = (uint64_t)(uint32_t)out->data[i] << 32 | (uint32_t)out->data[i + 1];
            for (size_t s = 0; s <= demo->bpe.merge_mask; s++) {
                if (demo->bpe.merges[s].pair == pair && demo->bpe.merges[s].rank < rank) {
                    rank = demo->bpe.merges[s].rank;
                    id = demo->bpe.merges[s].id;
                    best = i;
                }
            }
        }
        if (best == SIZE_MAX)
            return;
        out->data[best] = id;
        memmove(out->data + best + 1, out->data + best + 2,
                (out->len - best - 2) * sizeof *out->data);
        out->len--;
    }
}

static void test_merges(void **state)
{
    (void)state;
    static const char *const PARTS[] = {"th", "e", "in", "a", "a", "tion", "er", "s", "\xE4\xB8"};
    struct bpe_scratch scratch = {0};
    for (int round = 0; round < 150; round++) {
        struct buf piece = {0};
        for (uint32_t i = 1 + pick(12); i > 0; i--)
            buf_puts(&piece, PARTS[pick(sizeof PARTS / sizeof PARTS[0])]);
        struct ids fast = {0}, slow = {0};
        bpe_encode(&demo->bpe, &scratch, (const uint8_t *)piece.data, piece.len, &fast);
        slow_bpe(piece.data, piece.len, &slow);
        assert_int_equal(fast.len, slow.len);
        assert_memory_equal(fast.data, slow.data, fast.len * sizeof *fast.data);
        ids_free(&fast);
        ids_free(&slow);
        buf_free(&piece);
    }
    bpe_scratch_free(&scratch);
}

/* A quadratic scan would not end within the suite's limit: 10^12 steps a text. */
static void test_long_pieces(void **state)
{
    (void)state;
    static const char *const PARTS[] = {"a",    "the", " ",   " \n", "7", "\xE4\xB8\x80",
                                        "\xFF", "!",   "\x01"};
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        struct buf text = {0};
        while (text.len < 1000000)
            buf_puts(&text, PARTS[i]);
        round_trip(text.data, text.len, false);
        buf_free(&text);
    }
}

/* ---- encoding ------------------------------------------------------------------------------- */

static void test_vocabulary(void **state)
{
    (void)state;
    size_t len;
    assert_int_equal(tokenizer_vocab_size(demo), 4096);
    assert_int_equal(tokenizer_added_id(demo, "<\xEF\xBD\x9C"
                                              "User\xEF\xBD\x9C>"),
                     4052);
    assert_true(tokenizer_is_added(demo, 4052));
    assert_false(tokenizer_is_added(demo, 300));
    assert_int_equal(tokenizer_added_id(demo, ""), -1);
    assert_int_equal(tokenizer_added_id(demo, "the"), -1);
    assert_int_equal(tokenizer_added_id(demo, "<\xEF\xBD\x9C"
                                              "User\xEF\xBD\x9C>x"),
                     -1);
    assert_int_equal(tokenizer_added_id(demo, "<\xEF\xBD\x9C"
                                              "User\xEF\xBD\x9C"),
                     -1);
    static const int32_t OUTSIDE[] = {-1, INT32_MIN, 4096, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(tokenizer_token_bytes(demo, OUTSIDE[i], &len), "");
        assert_int_equal(len, 0);
        assert_false(tokenizer_is_added(demo, OUTSIDE[i]));
    }
}

static void test_random_bytes(void **state)
{
    (void)state;
    round_trip("", 0, false);
    round_trip("", 0, true);
    for (int round = 0; round < 3000; round++) {
        char bytes[256];
        size_t len = pick(sizeof bytes);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)pick(256);
        round_trip(bytes, len, round % 2);
        struct buf text = random_text(pick(60), true);
        round_trip(text.data, text.len, round % 2);
        buf_free(&text);
    }
}

/* Each added token, alone and amid text: its id with parsing on, never without. */
static void test_added_tokens(void **state)
{
    (void)state;
    int added = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(demo); id++) {
        if (!tokenizer_is_added(demo, id))
            continue;
        added++;
        size_t len;
        const char *bytes = tokenizer_token_bytes(demo, id, &len);
        struct buf text = {0};
        buf_puts(&text, "a <");
        buf_add(&text, bytes, len);
        buf_add(&text, bytes, len);
        buf_puts(&text, ">1");
        struct ids ids = encode(text.data, text.len, true);
        size_t found = 0;
        for (size_t i = 0; i < ids.len; i++) {
            assert_true(!tokenizer_is_added(demo, ids.data[i]) || ids.data[i] == id);
            found += ids.data[i] == id;
        }
        assert_int_equal(found, 2);
        ids_free(&ids);
        round_trip(text.data, text.len, true);
        round_trip(text.data, text.len, false);
        for (size_t cut = 1; cut < len; cut++) /* a part of it is ordinary text */
            round_trip(bytes, cut, false);
        buf_free(&text);
    }
    assert_int_equal(added, 50);
}

struct worker {
    const struct buf *text;
    struct ids ids;
};

static void *encode_often(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < 20; i++) {
        worker->ids.len = 0;
        tokenizer_encode(demo, worker->text->data, worker->text->len, true, &worker->ids);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct buf text = random_text(5000, true);
    struct worker workers[4] = {{.text = &text}, {.text = &text}, {.text = &text}, {.text = &text}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &workers[i]), 0);
    struct ids want = encode(text.data, text.len, true);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].ids.len, want.len);
        assert_memory_equal(workers[i].ids.data, want.data, want.len * sizeof *want.data);
        ids_free(&workers[i].ids);
    }
    ids_free(&want);
    buf_free(&text);
}

/* ---- detokenizer ---------------------------------------------------------------------------- */

/* Streams ids and asserts: only whole characters leave at each step, and all together they are what
 * the decoder of the standard makes of the joined bytes. */
static void stream(const struct ids *ids)
{
    struct detokenizer d = {0};
    struct buf out = {0};
    for (size_t i = 0; i <= ids->len; i++) {
        if (i < ids->len)
            detokenizer_push(&d, demo, ids->data[i], &out);
        else
            detokenizer_finish(&d, &out);
        for (size_t at = 0; at < out.len;) {
            struct utf8_char c = utf8_decode((const uint8_t *)out.data + at, out.len - at);
            assert_int_equal(c.kind, UTF8_WHOLE);
            at += c.len;
        }
    }
    assert_int_equal(d.held_len, 0);
    struct buf bytes = join(ids);
    struct buf want = whatwg_decode((const uint8_t *)bytes.data, bytes.len);
    assert_int_equal(out.len, want.len);
    if (out.len > 0)
        assert_memory_equal(out.data, want.data, want.len);
    buf_free(&out);
    buf_free(&bytes);
    buf_free(&want);
}

/* Every way to cut up to eight bytes into tokens would need tokens for all; bytes alone are the
 * finest cut, and texts encode to coarser ones. */
static void test_stream(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct buf text = random_text(1 + pick(12), round % 2);
        struct ids fine = {0}, coarse = encode(text.data, text.len, true), wild = {0};
        for (size_t i = 0; i < text.len; i++)
            ids_add(&fine, demo->bpe.byte_ids[(uint8_t)text.data[i]]);
        for (uint32_t i = pick(20); i > 0; i--) /* mostly ill-formed, added tokens amid */
            ids_add(&wild, (int32_t)pick(pick(2) ? 300 : 4096));
        stream(&fine);
        stream(&coarse);
        stream(&wild);
        ids_free(&fine);
        ids_free(&coarse);
        ids_free(&wild);
        buf_free(&text);
    }
}

static void test_stream_holds_back(void **state)
{
    (void)state;
    static const uint8_t SMILE[4] = {0xF0, 0x9F, 0x98, 0x80};
    struct detokenizer d = {0};
    struct buf out = {0};
    for (int i = 0; i < 3; i++) {
        detokenizer_push(&d, demo, demo->bpe.byte_ids[SMILE[i]], &out);
        assert_int_equal(out.len, 0);
        assert_int_equal(d.held_len, i + 1);
    }
    detokenizer_push(&d, demo, demo->bpe.byte_ids[SMILE[3]], &out);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, SMILE, 4);
    out.len = 0;
    detokenizer_push(&d, demo, demo->bpe.byte_ids[SMILE[0]], &out);
    detokenizer_push(&d, demo, -1, &out); /* no such id: no bytes */
    detokenizer_push(&d, demo, demo->bpe.byte_ids['x'], &out);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data,
                        "\xEF\xBF\xBD"
                        "x",
                        4);
    buf_free(&out);
}

static int open_demo(void **state)
{
    (void)state;
    struct error err = {0};
    print_message("# seed %d\n", SEED);
    if (tokenizer_open(DEMO, &demo, &err) == OK)
        return 0;
    print_error("%s\n", err.text);
    return 1;
}

static int close_demo(void **state)
{
    (void)state;
    tokenizer_close(demo);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class_totals),
        cmocka_unit_test(test_utf8_all_codes),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_holds_back),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, open_demo, close_demo);
}
