/*
 * Token masks over the embedded model's vocabulary: the phases of an answer, every mask against
 * tokens tried one by one, replay, and rules that cannot be compiled.
 */
#include "tests/unit/demo_tokenizer.h"
#include "tests/unit/schema_texts.h"

#include "engine/text/dsml.h"
#include "engine/text/mask.h"
#include "engine/text/mask_vocab.h"

#include <stdio.h>

#include <cmocka.h>

#define MARK  "｜DSML｜"
#define WORDS 4096

static struct mask_vocab *vocab;
static uint64_t bits[WORDS];

static int open_vocab(void **state)
{
    struct error err = {0};
    if (open_tokenizer(state) != 0)
        return -1;
    if (mask_vocab_create(tokenizer, &tokens, &vocab, &err) != OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    return tokenizer_vocab_size(tokenizer) <= WORDS * 64 ? 0 : -1;
}

static int close_vocab(void **state)
{
    mask_vocab_destroy(vocab);
    return close_tokenizer(state);
}

/* ---- helpers --------------------------------------------------------------------------------- */

#define TOOLS                                                                                      \
    "[{'type':'function','function':{'name':'add','strict':true,'parameters':{'type':'object',"    \
    "'properties':{'a':{'type':'integer','minimum':1,'maximum':20},'b':{'type':'string',"          \
    "'minLength':1,'maxLength':5},'c':{'enum':['x','xy',3]},'d':{'type':'string'}},'required':['"  \
    "a'],'additionalProperties':false}}},"                                                         \
    "{'type':'function','function':{'name':'adder','parameters':{'type':'object',"                 \
    "'properties':{'any':{},'q\\\"':{}},'required':['any','q\\\"']}}}]"

/* A mask of these options, whose schema and tools are given as text. */
static struct mask *make(struct mask_options options, const char *tools, const char *schema)
{
    struct mask *mask = NULL;
    struct error err = {0};
    options.tools = tools == NULL ? NULL : json_of(tools);
    options.schema = schema == NULL ? NULL : json_of(schema);
    if (mask_create(vocab, &options, &mask, &err) != OK)
        fail_msg("%s", err.text);
    json_object_put(options.tools); /* nothing of them is needed any more */
    json_object_put(options.schema);
    return mask;
}

static struct ids encode(const char *text)
{
    struct ids ids = {0};
    char *copy = quoted(text);
    tokenizer_encode(tokenizer, copy, strlen(copy), true, &ids);
    free(copy);
    return ids;
}

static bool allowed(int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

static void fill(struct mask *mask, const struct ids *ids, size_t n)
{
    memset(bits, 0, sizeof bits);
    assert_true(mask_fill(mask, ids->data, (int32_t)n, bits));
}

/* Whether every token of `text` may come, and, if `whole`, then the end. */
static bool takes(struct mask *mask, const char *text, bool whole)
{
    struct ids ids = encode(text);
    bool good = true;
    for (size_t i = 0; i < ids.len && good; i++) {
        fill(mask, &ids, i);
        good = allowed(ids.data[i]);
    }
    fill(mask, &ids, ids.len);
    good = good && (!whole || allowed(tokens.eos));
    ids_free(&ids);
    return good;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void test_text(void **state)
{
    (void)state;
    struct mask *mask = make((struct mask_options){0}, NULL, NULL);
    assert_true(takes(mask, "Any <text>, even\n\n<", true));
    assert_false(takes(mask, "<" MARK, false));
    assert_true(takes(mask, "</think><think>", true)); /* no rule for other added tokens */
    mask_destroy(mask);
}

static void test_auto(void **state)
{
    (void)state;
    struct mask *mask = make((struct mask_options){.calls = MASK_CALLS_AUTO}, TOOLS, NULL);
    assert_true(takes(mask, "Free text.", true));
    assert_false(takes(mask, "no angle " MARK, false));
    assert_true(takes(mask, "<" MARK "tool_calls>\n<" MARK "invoke name='add'>\n", false));
    assert_false(takes(mask, "<" MARK "tool_calls>\n<" MARK "invoke name='ad'", false));
    assert_false(takes(mask, "<" MARK "tool_calls> ", false));
    assert_true(takes(mask,
                      "Yes.\n\n<" MARK "tool_calls>\n<" MARK "invoke name='adder'>\n"
                      "<" MARK "parameter name='any' string='true'>2>&1 </parameter></" MARK
                      "parameter>\n</" MARK "invoke>\n<" MARK "invoke name='add'>\n<" MARK
                      "parameter name='a' string='false'>20</" MARK "parameter>\n<" MARK
                      "parameter name='c' string='true'>xy</" MARK "parameter>\n</" MARK
                      "invoke>\n</" MARK "tool_calls>",
                      true));
    mask_destroy(mask);
}

/* What a call must not be; each ends with what cannot come. */
static void test_calls_barred(void **state)
{
    (void)state;
#define BLOCK                   "<" MARK "tool_calls>\n<" MARK "invoke name="
#define HEAD                    BLOCK "'add'>\n"
#define PARAMETER(name, string) "<" MARK "parameter name='" name "' string='" string "'>"
#define PARAMETER_END           "</" MARK "parameter>\n"
    static const char *const BARRED[] = {
        HEAD "</" MARK,                                                     /* required: a */
        HEAD PARAMETER("e", "false"),                                       /* not declared */
        HEAD PARAMETER("a", "true"),                                        /* no string */
        HEAD PARAMETER("b", "false") "1",                                   /* only a string */
        HEAD PARAMETER("a", "false") "21",                                  /* maximum */
        HEAD PARAMETER("a", "false") " 2",                                  /* white space */
        HEAD PARAMETER("a", "false") "2</" MARK "parameter> ",              /* between tags */
        HEAD PARAMETER("a", "false") "2" PARAMETER_END PARAMETER("a", "x"), /* twice */
        HEAD PARAMETER("b", "true") "123456",                               /* maxLength */
        HEAD PARAMETER("b", "true") "</" MARK,                              /* minLength */
        HEAD PARAMETER("c", "true") "xyz",                                  /* enum */
        HEAD PARAMETER("c", "true") "</",
        HEAD PARAMETER("c", "false") "'x'", /* a string as JSON */
        HEAD PARAMETER("a", "false") "2" PARAMETER_END "</" MARK "invoke>\n</" MARK
                                     "tool_calls>\n", /* behind the block */
    };
    struct mask *mask = make((struct mask_options){.calls = MASK_CALLS_AUTO}, TOOLS, NULL);
    for (size_t i = 0; i < sizeof BARRED / sizeof BARRED[0]; i++) {
        if (takes(mask, BARRED[i], false))
            fail_msg("%zu: %s", i, BARRED[i]);
    }
    assert_true(takes(mask, HEAD PARAMETER("c", "true") "x</" MARK "parameter>", false));
    assert_true(takes(mask, HEAD PARAMETER("b", "true") "12345</" MARK "parameter>", false));
    assert_true(takes(mask, HEAD PARAMETER("c", "false") "3</" MARK "parameter>", false));
    mask_destroy(mask);
}

static void test_required(void **state)
{
    (void)state;
    struct mask_options options = {.calls = MASK_CALLS_REQUIRED, .calls_max = 1};
    struct mask *mask = make(options, TOOLS, NULL);
    const char *call = "\n\n<" MARK "tool_calls>\n<" MARK
                       "invoke name='adder'>\n" PARAMETER("any", "false") "null" PARAMETER_END
                                                                          "</" MARK "invoke>\n";
    struct buf more = {0};
    assert_false(takes(mask, "No", false));
    assert_false(takes(mask, "", true));
    assert_true(takes(mask, call, false));
    buf_puts(&more, call);
    buf_puts(&more, "<" MARK);
    assert_false(takes(mask, buf_cstr(&more), false)); /* calls_max */
    buf_free(&more);
    mask_destroy(mask);

    options.tool_name = "add";
    mask = make(options, TOOLS, NULL);
    assert_false(takes(mask, call, false));
    assert_true(takes(mask, "\n\n" HEAD, false));
    mask_destroy(mask);

    options.thinking = true;
    mask = make(options, TOOLS, NULL);
    assert_false(takes(mask, "Hm.", true)); /* a call is owed */
    assert_false(takes(mask, "Hm <" MARK, false));
    assert_false(takes(mask, "Hm.</think>No", false));
    assert_true(takes(mask, "Hm.</think>\n\n" HEAD, false));
    mask_destroy(mask);
}

static void test_format(void **state)
{
    (void)state;
    struct mask_options options = {.format = MASK_JSON_OBJECT};
    struct mask *mask = make(options, NULL, NULL);
    assert_true(takes(mask, "{'a': [1, 'b']}\n", true));
    assert_false(takes(mask, "[", false));
    assert_false(takes(mask, "```", false));
    assert_false(takes(mask, "{}{", false));
    assert_false(takes(mask, "{", true));
    mask_destroy(mask);

    options.format = MASK_JSON_SCHEMA;
    options.thinking = true;
    mask = make(options, NULL, "{'type':'integer','minimum':10,'maximum':99}");
    assert_true(takes(mask, "Ten?</think>10", true));
    assert_false(takes(mask, "Ten?", true));
    assert_false(takes(mask, "</think>1", true));
    assert_false(takes(mask, "</think>100", false));
    mask_destroy(mask);

    options.thinking = false;
    options.calls = MASK_CALLS_AUTO;
    mask = make(options, TOOLS, "{'type':'integer'}");
    assert_true(takes(mask, "\n\n12", true));
    assert_true(takes(mask, "\n\n" HEAD, false));
    assert_false(takes(mask, "12\n\n<", false));
    mask_destroy(mask);
}

/* ---- every bit ------------------------------------------------------------------------------- */

/* Texts in which every prefix is a state worth a look. */
static const struct {
    const char *schema, *text;
} STATES[] = {
    {"{}", "{'a\\\\b\\u00e9\\ud83d\\ude00': [1.5e3, true, null, {'': '日本'}]}"},
    {"{'type':'object','properties':{'name':{'type':'string','maxLength':9},'n':{'enum':"
     "['one','two','on',1,12]},'x':{'type':'number','minimum':-1,'maximum':2.5}},"
     "'required':['n'],'additionalProperties':false}",
     "{'n': 'on', 'x': -0.25, 'n\\u0061me': 'a longer'}"},
    {"{'anyOf':[{'type':'string'},{'type':'array','items':{'anyOf':[{'type':'string','minLength':3}"
     ","
     "{'type':'null'}]}}]}",
     "['abc', null, 'some text']"},
};

/* Tries one token on its own, from threads in front of it. */
static bool tries(struct automaton *a, int32_t id)
{
    struct automaton_frame out[2][MASK_THREADS_MAX];
    size_t len;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
    int32_t n = a->n_threads, pool = a->n_pool;
    memcpy(out[0], a->threads, sizeof out[0]);
    if (id == tokens.dsml)
        n = automaton_step(a, out[0], n, AUTOMATON_MARK, out[1]);
    else if (tokenizer_is_added(tokenizer, id))
        n = id == tokens.eos && automaton_may_end(a);
    else
        for (size_t i = 0; i < len && n > 0; i++)
            n = automaton_step(a, out[i % 2], n, (uint8_t)bytes[i], out[(i + 1) % 2]);
    a->n_pool = pool;
    return n > 0;
}

/* Goes through a text byte by byte, so that every state is met, and compares every bit of the mask
 * with the token tried alone.  `a` stands in front of the text. */
static void compare(struct mask *mask, struct automaton *a, const char *text)
{
    char *whole = quoted(text), *at = whole;
    struct ids ids = {0};
    for (;;) {
        fill(mask, &ids, ids.len);
        for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
            if (allowed(id) != tries(a, id))
                fail_msg("%s: token %d behind %zd bytes", text, id, at - whole);
        }
        assert_int_equal(mask_may_end(mask), automaton_may_end(a));
        if (*at == '\0')
            break;
        bool mark = strncmp(at, MARK, strlen(MARK)) == 0;
        size_t len = mark ? strlen(MARK) : 1;
        tokenizer_encode(tokenizer, at, len, true, &ids);
        assert_true(automaton_push(a, mark ? AUTOMATON_MARK : (uint8_t)*at));
        automaton_compact(a);
        at += len;
    }
    assert_true(ids.len > 20 && automaton_may_end(a));
    ids_free(&ids);
    free(whole);
}

static void test_every_token(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof STATES / sizeof STATES[0]; k++) {
        struct json_object *schema = json_of(STATES[k].schema);
        struct grammar grammar;
        struct automaton a;
        struct error err;
        int32_t node;
        grammar_init(&grammar);
        assert_int_equal(schema_compile(&grammar, schema, SCHEMA_STRICT, "schema", &node, &err),
                         OK);
        automaton_init(&a, &grammar, 1, vocab->longest);
        automaton_add_json(&a, node);
        struct mask *mask =
            make((struct mask_options){.format = MASK_JSON_SCHEMA}, NULL, STATES[k].schema);
        compare(mask, &a, STATES[k].text);
        mask_destroy(mask);
        automaton_free(&a);
        grammar_free(&grammar);
        json_object_put(schema);
    }
}

/* Tokens that open and close more than one container: all short texts of structure. */
#define SHORT_LEN     5
#define SHORT_SYMBOLS 8
#define SHORT_N       (8 + 64 + 512 + 4096 + 32768)

static uint8_t short_texts[SHORT_N][SHORT_LEN];
static struct trie_entry short_entries[SHORT_N];

static void make_short_texts(void)
{
    static const char ALPHABET[SHORT_SYMBOLS + 1] = "{}[]\":,0";
    int32_t n = 0;
    for (uint32_t len = 1, count = SHORT_SYMBOLS; len <= SHORT_LEN; len++, count *= SHORT_SYMBOLS) {
        for (uint32_t i = 0; i < count; i++, n++) {
            for (uint32_t k = 0, rest = i; k < len; k++, rest /= SHORT_SYMBOLS)
                short_texts[n][k] = (uint8_t)ALPHABET[rest % SHORT_SYMBOLS];
            short_entries[n] = (struct trie_entry){short_texts[n], len, n};
        }
    }
    assert_int_equal(n, SHORT_N);
}

/* Compares the mask of `toy` behind a text with every short text tried alone. */
static void compare_short(const struct mask_vocab *toy, const char *behind)
{
    struct mask_options options = {.format = MASK_JSON_OBJECT};
    struct mask *mask;
    struct error err;
    struct grammar grammar;
    struct automaton a;
    struct ids ids = encode(behind);
    char *text = quoted(behind);
    grammar_init(&grammar);
    automaton_init(&a, &grammar, 1, SHORT_LEN);
    automaton_add_json(&a, GRAMMAR_ANY_OBJECT);
    assert_int_equal(mask_create(toy, &options, &mask, &err), OK);
    for (const char *c = text; *c != '\0'; c++)
        assert_true(automaton_push(&a, (uint8_t)*c));
    fill(mask, &ids, ids.len);
    for (int32_t id = 0; id < SHORT_N; id++) {
        struct automaton_frame out[2][MASK_THREADS_MAX];
        int32_t n = a.n_threads, pool = a.n_pool;
        memcpy(out[0], a.threads, sizeof out[0]);
        for (uint32_t i = 0; i < short_entries[id].len && n > 0; i++)
            n = automaton_step(&a, out[i % 2], n, short_texts[id][i], out[(i + 1) % 2]);
        a.n_pool = pool;
        if (allowed(id) != (n > 0))
            fail_msg("%s: %.*s", text, (int)short_entries[id].len, (const char *)short_texts[id]);
    }
    free(text);
    ids_free(&ids);
    mask_destroy(mask);
    automaton_free(&a);
    grammar_free(&grammar);
}

static void test_short_texts(void **state)
{
    (void)state;
    static const char *const BEHIND[] = {"", "{'a':", "{'a':[{'b':0", "{'a':[[0,", "{'a':{'"};
    static uint64_t none[WORDS];
    make_short_texts();
    struct trie_entry *sorted = malloc(sizeof short_entries);
    memcpy(sorted, short_entries, sizeof short_entries);
    struct mask_vocab toy = *vocab; /* with these texts in place of its ordinary tokens */
    toy.plain = toy.raw = none;
    toy.words = SHORT_N / 64 + 1;
    toy.mark = toy.eos = SHORT_N;
    trie_build(&toy.all, sorted, SHORT_N);
    toy.broken = toy.all;
    for (size_t k = 0; k < sizeof BEHIND / sizeof BEHIND[0]; k++)
        compare_short(&toy, BEHIND[k]);
    trie_free(&toy.all);
    free(sorted);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The grammar of the tool `add` alone.  @own grammar_free */
static void add_grammar(struct grammar *grammar)
{
    struct error err;
    struct json_object *tools = json_of(TOOLS);
    struct json_object *add = json_member(json_object_array_get_idx(tools, 0), "function", NULL);
    grammar_init(grammar);
    grammar->tools = calloc(1, sizeof *grammar->tools);
    assert_int_equal(schema_compile_arguments(grammar, json_member(add, "parameters", NULL),
                                              SCHEMA_STRICT, "schema", &grammar->tools[0].node,
                                              &err),
                     OK);
    int32_t name = grammar_add_string(grammar, "add", 3);
    assert_true(name >= 0);
    grammar->tool_names = (struct grammar_set){(uint32_t)name, 1};
    json_object_put(tools);
}

/* clang-format off */
static const char TWO_CALLS[] =
    "\n\n" HEAD
    PARAMETER("b", "true") "a</x<" PARAMETER_END
    PARAMETER("c", "true") "xy" PARAMETER_END
    PARAMETER("a", "false") "12" PARAMETER_END
    "</" MARK "invoke>\n<" MARK "invoke name='add'>\n"
    PARAMETER("b", "true") "日本/" PARAMETER_END
    PARAMETER("d", "true") "é \"<" PARAMETER_END
    PARAMETER("c", "false") "3" PARAMETER_END
    PARAMETER("a", "false") "7" PARAMETER_END
    "</" MARK "invoke>\n</" MARK "tool_calls>";
/* clang-format on */

static void test_every_token_of_calls(void **state)
{
    (void)state;
    struct grammar grammar;
    struct automaton a;
    add_grammar(&grammar);
    automaton_init(&a, &grammar, 2, vocab->longest);
    automaton_add_block(&a, false);
    struct mask *mask = make(
        (struct mask_options){.calls = MASK_CALLS_REQUIRED, .tool_name = "add", .calls_max = 2},
        TOOLS, NULL);
    compare(mask, &a, TWO_CALLS);
    mask_destroy(mask);
    automaton_free(&a);
    grammar_free(&grammar);
}

/* Blocks of calls come to no dead end, whatever is written in them. */
static void test_calls_walk(void **state)
{
    (void)state;
    struct grammar grammar;
    add_grammar(&grammar);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct automaton a;
        automaton_init(&a, &grammar, 2, 1);
        automaton_add_block(&a, seed % 2 == 0);
        assert_true(walks(&a, seed, 2000));
        automaton_free(&a);
    }
    grammar_free(&grammar);
}

/* Any token of the last mask, closing ones more often with time. */
static int32_t draw_token(uint64_t *random, size_t at)
{
    static int32_t ids[WORDS * 64];
    uint32_t n = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        if (allowed(id))
            ids[n++] = id;
    }
    assert_true(n > 0);
    int32_t slash = -1, angle = -1; /* "</" ends a text */
    for (uint32_t i = 0; i < n && draw_from(random, 40) < at; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], &len);
        slash = len == 1 && bytes[0] == '/' ? ids[i] : slash;
        angle = len == 1 && bytes[0] == '<' ? ids[i] : angle;
    }
    if (draw_from(random, 40) < at) {
        if (allowed(tokens.eos) || allowed(tokens.dsml))
            return allowed(tokens.eos) ? tokens.eos : tokens.dsml;
        if (slash >= 0 || angle >= 0)
            return slash >= 0 && draw_from(random, 2) == 0 ? slash : angle >= 0 ? angle : slash;
    }
    return ids[draw_from(random, n)];
}

/* What the reader of calls makes of a drawn block: all of it, by the tools' schemas. */
static void check_reader(const struct ids *answer, struct json_object *tools,
                         const struct grammar *grammar, int32_t *n_calls)
{
    struct dsml *reader = dsml_create(tools, true);
    enum dsml_progress progress = DSML_OPEN;
    bool first = true;
    for (size_t i = 0; i < answer->len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, answer->data[i], &len);
        bool mark = answer->data[i] == tokens.dsml;
        if (!mark && !first)
            progress = dsml_push_text(reader, bytes, len);
        else if (mark && !first)
            progress = dsml_push_mark(reader);
        first = first && !mark; /* the reader starts behind the first mark */
    }
    assert_int_equal(progress, DSML_ENDED);
    int32_t n;
    const struct dsml_call *calls = dsml_calls(reader, &n);
    for (int32_t i = 0; i < n; i++) {
        const struct buf *text = &calls[i].arguments;
        assert_memory_equal(calls[i].name.data, "add", 3);
        if (!accepts_bytes(grammar, grammar->tools[0].node, text->data, text->len))
            fail_msg("%.*s", (int)text->len, text->data);
    }
    *n_calls += n;
    dsml_destroy(reader);
}

static void test_reader_agrees(void **state)
{
    (void)state;
    struct grammar grammar;
    struct json_object *tools = json_of(TOOLS);
    add_grammar(&grammar);
    struct mask *mask = make(
        (struct mask_options){.calls = MASK_CALLS_REQUIRED, .tool_name = "add", .calls_max = 3},
        TOOLS, NULL);
    int32_t ended = 0, n_calls = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct ids answer = {0};
        uint64_t random = seed;
        int32_t id = -1;
        while (id != tokens.eos && answer.len < 900) {
            fill(mask, &answer, answer.len);
            id = draw_token(&random, answer.len / 8);
            if (id != tokens.eos)
                ids_add(&answer, id);
        }
        if (id == tokens.eos)
            check_reader(&answer, tools, &grammar, &n_calls);
        ended += id == tokens.eos;
        ids_free(&answer);
    }
    print_message("# %d blocks ended, %d calls\n", ended, n_calls);
    assert_true(ended > 90 && n_calls > ended);
    mask_destroy(mask);
    grammar_free(&grammar);
    json_object_put(tools);
}

/* ---- replay and the like --------------------------------------------------------------------- */

static void test_replay(void **state)
{
    (void)state;
    struct mask *mask = make((struct mask_options){.format = MASK_JSON_OBJECT}, NULL, NULL);
    struct ids one = encode("{'a': 'text'}"), two = encode("{'b': 7");
    uint64_t expected[WORDS];
    for (int round = 0; round < 3; round++) { /* back and forth between two answers */
        fill(mask, &two, two.len);
        memcpy(expected, bits, sizeof bits);
        for (size_t n = one.len + 1; n-- > 0;)
            fill(mask, &one, n);
        fill(mask, &two, two.len);
        assert_memory_equal(bits, expected, sizeof bits);
        fill(mask, &two, two.len); /* asked twice */
        assert_memory_equal(bits, expected, sizeof bits);
    }
    /* An answer that left the rules: nothing is allowed, until another one is given. */
    struct ids wrong = encode("{'b' 7");
    fill(mask, &wrong, wrong.len);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(bits[i], 0);
    assert_false(mask_may_end(mask));
    fill(mask, &two, two.len);
    assert_memory_equal(bits, expected, sizeof bits);
    ids_free(&one);
    ids_free(&two);
    ids_free(&wrong);
    mask_destroy(mask);
}

/* Tools that are not strict are never refused, whatever their schemas take. */
static void test_large_tools(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int t = 0; t < 4; t++) {
        buf_printf(&text,
                   "%s{'type':'function','function':{'name':'t%d','parameters':{'properties':{",
                   t > 0 ? "," : "[", t);
        for (int i = 0; i < 100; i++) {
            buf_printf(&text, "%s'p%d':{'properties':{", i > 0 ? "," : "", i);
            for (int k = 0; k < 70; k++)
                buf_printf(&text, "%s'q%d':{'type':'null'}", k > 0 ? "," : "", k);
            buf_puts(&text, "}}");
        }
        buf_puts(&text, "}}}}");
    }
    buf_puts(&text, "]");
    struct mask *mask =
        make((struct mask_options){.calls = MASK_CALLS_REQUIRED}, buf_cstr(&text), NULL);
    /* The first ones are held to their schemas, the last one takes any object. */
    assert_false(takes(mask, "\n\n" BLOCK "'t0'>\n" PARAMETER("x", "false"), false));
    assert_true(takes(mask, "\n\n" BLOCK "'t0'>\n" PARAMETER("p7", "false"), false));
    assert_true(takes(mask, "\n\n" BLOCK "'t3'>\n" PARAMETER("x", "false"), false));
    mask_destroy(mask);
    buf_free(&text);
}

static void test_refused(void **state)
{
    (void)state;
#define STRICT_TOOL(name, parameters)                                                              \
    "[{'type':'function','function':{'name':'" name "','strict':true,'parameters':" parameters "}" \
    "}"                                                                                            \
    "]"
    static const struct {
        const char *tools, *named, *error;
    } ROWS[] = {
        {NULL, NULL, "tools: none that may be called"},
        {"[]", NULL, "tools: none that may be called"},
        {TOOLS, "SECRET", "tools: none that may be called"},
        {STRICT_TOOL("SECRET", "{'properties':{'a':{},'SECRET':{'not':{}}}}"), NULL,
         "tools[0].function.parameters.properties[1].not: this keyword is not supported"},
        {STRICT_TOOL("", "{}"), NULL, "tools[0].function.name: empty, too long or twice"},
        {STRICT_TOOL("a", "{'properties':{'q\\\"':{}},'required':['q\\\"']}"), NULL,
         "tools[0].function.parameters.required: a name cannot be written in a call"},
        {STRICT_TOOL("a", "{'type':'array'}"), NULL,
         "tools[0].function.parameters: is not the schema of one object"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct mask_options options = {.calls = MASK_CALLS_AUTO, .tool_name = ROWS[i].named};
        struct mask *mask;
        struct error err;
        options.tools = ROWS[i].tools == NULL ? NULL : json_of(ROWS[i].tools);
        assert_int_equal(mask_create(vocab, &options, &mask, &err), ERR_INPUT);
        assert_string_equal(err.text, ROWS[i].error);
        json_object_put(options.tools);
    }
    struct mask_options options = {.format = MASK_JSON_SCHEMA, .schema = json_of("{'not':{}}")};
    struct mask *mask;
    struct error err;
    assert_int_equal(mask_create(vocab, &options, &mask, &err), ERR_INPUT);
    assert_string_equal(err.text, "schema.not: this keyword is not supported");
    json_object_put(options.schema);
    mask_destroy(NULL);
    mask_vocab_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_auto),
        cmocka_unit_test(test_calls_barred), cmocka_unit_test(test_required),
        cmocka_unit_test(test_format),       cmocka_unit_test(test_every_token),
        cmocka_unit_test(test_short_texts),  cmocka_unit_test(test_every_token_of_calls),
        cmocka_unit_test(test_calls_walk),   cmocka_unit_test(test_reader_agrees),
        cmocka_unit_test(test_replay),       cmocka_unit_test(test_large_tools),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("mask", tests, open_vocab, close_vocab);
}
