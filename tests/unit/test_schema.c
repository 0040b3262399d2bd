/*
 * JSON Schemas as grammars: what is refused and how it is named, what texts they accept, that no
 * text leads to a dead end, and schemas meant to hurt.
 */
#include "tests/unit/schema_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *compile(const char *schema, enum schema_mode mode, struct grammar *grammar,
                           int32_t *node)
{
    static struct error err;
    struct json_object *value = json_of(schema);
    grammar_init(grammar);
    err.text[0] = '\0';
    enum status status = schema_compile(grammar, value, mode, "schema", node, &err);
    json_object_put(value);
    if ((status == OK) != (err.text[0] == '\0'))
        return "status and text differ";
    return status == OK ? NULL : err.text;
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define UNSUPPORTED ": this keyword is not supported"

static const struct {
    const char *schema;
    enum schema_mode mode;
    const char *error;
} REFUSED[] = {
    {"{'type':'string','pattern':'^SECRET$'}", SCHEMA_STRICT, "schema.pattern" UNSUPPORTED},
    {"{'type':'string','format':'date'}", SCHEMA_STRICT, "schema.format" UNSUPPORTED},
    {"{'oneOf':[{}]}", SCHEMA_PLAIN, "schema.oneOf" UNSUPPORTED},
    {"{'properties':{'a':{},'SECRET':{'items':{'not':{}}}}}", SCHEMA_PLAIN,
     "schema.properties[1].items.not" UNSUPPORTED},
    {"{'anyOf':[{},{'additionalProperties':{'contains':1}}]}", SCHEMA_PLAIN,
     "schema.anyOf[1].additionalProperties.contains" UNSUPPORTED},
    {"{'$ref':'#/$defs/SECRET','$defs':{'SECRET':{'uniqueItems':true}}}", SCHEMA_PLAIN,
     "schema.$ref.uniqueItems" UNSUPPORTED},
    {"{'SECRET':1}", SCHEMA_PLAIN, "schema: has a keyword that is not known"},
    {"{'items':{'$id':'x'}}", SCHEMA_PLAIN, "schema.items.$id" UNSUPPORTED},
    {"{'$ref':'http://SECRET/'}", SCHEMA_PLAIN, "schema.$ref: only # and #/.. are supported"},
    {"{'$ref':'#SECRET'}", SCHEMA_PLAIN, "schema.$ref: only # and #/.. are supported"},
    {"{'$ref':'#/x'}", SCHEMA_PLAIN, "schema.$ref: leads nowhere"},
    {"{'$ref':'#/%zz'}", SCHEMA_PLAIN, "schema.$ref: leads nowhere"},
    {"{'$ref':'#/~2'}", SCHEMA_PLAIN, "schema.$ref: leads nowhere"},
    {"{'anyOf':[{'$ref':'#/anyOf/01/'}]}", SCHEMA_PLAIN, "schema.anyOf[0].$ref: leads nowhere"},
    {"{'$ref':'#'}", SCHEMA_PLAIN, "schema.$ref: leads back to itself"},
    {"{'anyOf':[{'type':'null'},{'$ref':'#'}]}", SCHEMA_PLAIN,
     "schema.anyOf[1].$ref: leads back to itself"},
    {"{'allOf':[{'$ref':'#/$defs/a'}],'$defs':{'a':{'$ref':'#/$defs/b'},'b':{'$ref':'#/$defs/a'}}}",
     SCHEMA_PLAIN, "schema.allOf[0].$ref.$ref.$ref: leads back to itself"},
    {"{'type':'SECRET'}", SCHEMA_PLAIN, "schema.type: is not a type or a list of types"},
    {"{'type':['string',7]}", SCHEMA_PLAIN, "schema.type: is not a type or a list of types"},
    {"{'minLength':-1}", SCHEMA_PLAIN, "schema.minLength: is not a count"},
    {"{'maxItems':1.5}", SCHEMA_PLAIN, "schema.maxItems: is not a count"},
    {"{'maxItems':'1'}", SCHEMA_PLAIN, "schema.maxItems: is not a count"},
    {"{'minimum':'1'}", SCHEMA_PLAIN, "schema.minimum: is not a number of reasonable length"},
    {"{'minimum':0,'exclusiveMinimum':true}", SCHEMA_PLAIN,
     "schema.exclusiveMinimum: is not a number of reasonable length"},
    {"{'required':'a'}", SCHEMA_PLAIN, "schema.required: is not an array of names"},
    {"{'required':[1]}", SCHEMA_PLAIN, "schema.required: is not an array of names"},
    {"{'properties':[]}", SCHEMA_PLAIN, "schema.properties: is not an object"},
    {"{'properties':{'a':null}}", SCHEMA_PLAIN,
     "schema.properties[0]: is neither an object nor a boolean"},
    {"{'items':[{}]}", SCHEMA_PLAIN, "schema.items: a list of schemas is not supported"},
    {"{'items':7}", SCHEMA_PLAIN, "schema.items: is neither an object nor a boolean"},
    {"{'anyOf':[]}", SCHEMA_PLAIN, "schema.anyOf: is not an array of schemas"},
    {"{'anyOf':null}", SCHEMA_PLAIN, "schema.anyOf: is not an array of schemas"},
    {"{'allOf':{}}", SCHEMA_PLAIN, "schema.allOf: is not an array"},
    {"{'enum':{}}", SCHEMA_PLAIN, "schema.enum: is not an array"},
    {"{'enum':[{}],'required':['a']}", SCHEMA_PLAIN,
     "schema.required: is not supported beside arrays or objects in an enum"},
    {"[]", SCHEMA_PLAIN, "schema: is neither an object nor a boolean"},
    {"7", SCHEMA_PLAIN, "schema: is neither an object nor a boolean"},
};

/* Schemas that no value satisfies. */
static const char *const NEVER[] = {
    "false",
    "{'type':[]}",
    "{'enum':[]}",
    "{'type':'string','minLength':3,'maxLength':2}",
    "{'type':'integer','minimum':3,'maximum':2}",
    "{'type':'integer','exclusiveMinimum':3,'exclusiveMaximum':4}",
    "{'type':'integer','minimum':0.1,'maximum':0.9}",
    "{'type':'number','minimum':1e300}",
    "{'type':'array','minItems':2,'maxItems':1}",
    "{'type':'array','items':false,'minItems':1}",
    "{'type':'object','required':['a'],'additionalProperties':false}",
    "{'type':'object','required':['a'],'properties':{'a':{'$ref':'#'}}}",
    "{'type':'array','items':{'$ref':'#'},'minItems':1}",
    "{'type':'string','enum':[1,null]}",
    "{'allOf':[{'type':'string'},{'type':'integer'}]}",
    "{'const':1,'enum':[2]}",
    "{'enum':[5,50],'minimum':10,'maximum':40}",
    "{'enum':['a','abcd'],'minLength':2,'maxLength':3}",
    "{'anyOf':[false,{'enum':[]}]}",
};

static void test_refused(void **state)
{
    (void)state;
    struct grammar grammar;
    int32_t node;
    for (size_t i = 0; i < N_OF(REFUSED); i++) {
        const char *error = compile(REFUSED[i].schema, REFUSED[i].mode, &grammar, &node);
        assert_non_null(error);
        assert_string_equal(error, REFUSED[i].error);
        assert_null(strstr(error, "SECRET"));
        grammar_free(&grammar);
    }
    for (size_t i = 0; i < N_OF(NEVER); i++) {
        const char *error = compile(NEVER[i], SCHEMA_STRICT, &grammar, &node);
        assert_non_null(error);
        assert_string_equal(error, "schema: no value can satisfy this schema");
        grammar_free(&grammar);
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

#define TEXTS 8

static const struct {
    const char *schema;
    const char *yes[TEXTS], *no[TEXTS];
} HELD[] = {
    {"true",
     {"0", " [ ] ", "{'a':{'b':[1,'x',null]}}", "-0.5e+07"},
     {"", "01", "[1,]", "{a:1}", "tru"}},
    {"{'type':'integer'}",
     {"0", "-7", "123456789012345678901234567890"},
     {"1.0", "1e2", "-0", "-", "+1"}},
    {"{'type':'integer','minimum':-12,'maximum':305}",
     {"-12", "-9", "0", "30", "305", "299"},
     {"-13", "-100", "306", "3050", "-0", "31."}},
    {"{'type':'integer','minimum':100}", {"100", "9223372036854775808"}, {"99", "1", "-100"}},
    {"{'type':'integer','exclusiveMaximum':-99}", {"-100", "-99999"}, {"-99", "-9", "0", "1"}},
    {"{'type':'integer','minimum':2.5,'maximum':1e1}", {"3", "10"}, {"2", "11", "1"}},
    {"{'type':'number','minimum':0.1,'exclusiveMaximum':1}",
     {"0.1", "0.10", "0.999999999", "0.5"},
     {"0.09", "1", "1.0", "0", "0.0999", "1e-1", "-0.5"}},
    {"{'type':'number','exclusiveMinimum':-0.5,'maximum':0}",
     {"-0.499999999", "0", "-0", "0.0", "-0.1"},
     {"-0.5", "-1", "0.1", "1"}},
    {"{'type':'number','minimum':0.12345678901,'maximum':0.2}",
     {"0.12345679", "0.2"},
     {"0.123456789", "0.12345678"}},
    {"{'type':'number','minimum':-1,'maximum':-0.12345678901}",
     {"-0.12345679", "-1"},
     {"-0.123456789", "-0.1"}},
    {"{'minimum':5}", {"'x'", "5", "null", "[4]"}, {"4", "4.9", "1e1"}},
    {"{'maximum':1e400}", {"1", "-5"}, {"1e2"}},
    {"{'type':'number'}", {"1e99", "-1.25E-07"}, {"1e100", ".5", "1.", "1e"}},
    {"{'type':'string','minLength':2,'maxLength':3}",
     {"'ab'", "'日本語'", "'\\u00e9\\n'", "'\\ud83d\\ude00x'"},
     {"'a'", "'abcd'", "'\\ud83d\\ude00'", "''", "'\\ud83dxx'", "'\\ude00x'"}},
    {"{'enum':['a','ab','b\\\"\\\\','é',1,12,1.5,null,true,[1],{'k':'v'}]}",
     {"'a'", "'\\u0061b'", "'\\u00E9'", "12", "1.5", "null", "{ 'k' : 'v' }", "[1]"},
     {"'abc'", "'\\u0062'", "2", "1.", "false", "{'k':'w'}", "{}", "'\\u00e8'"}},
    {"{'const':{'a':[1,{'b':null}],'c':''}}",
     {"{'a':[1,{'b':null}],'c':''}", "{'c':'','a':[1,{'b':null}]}"},
     {"{'a':[1,{'b':null}]}", "{'a':[1],'c':''}", "{'c':'','a':[1,{'b':null}],'d':1}"}},
    {"{'const':1.0}", {"1"}, {"1.0", "11"}},
    {"{'properties':{'a':{'type':'null'},'ab':{'type':'boolean'}},'required':['ab'],"
     "'additionalProperties':false}",
     {"{'ab':true}", "{'a':null,'ab':false}", "{'\\u0061b':true}", "'text'"},
     {"{}", "{'a':null}", "{'ab':true,'ab':true}", "{'ab':true,'b':1}", "{'ab':1}",
      "{'ab':true,}"}},
    {"{'properties':{'a':{'type':'null'}},'additionalProperties':{'type':'integer'}}",
     {"{'x':1,'y':2}", "{'a':null,'aa':3,'':4}", "{}"},
     {"{'a':1}", "{'x':null}", "{'x':1,'x':2}", "{'x':1,'\\u0078':2}", "{'a':null,'a':null}"}},
    {"{'type':'object'}",
     {"{'x':{'x':{'x':0}},'y':[{'x':1},{'x':2}]}", "{'\\u0001':1}"},
     {"{'x':{'y':{'z':0}},'x':1}", "{'x':[{'y':1,'y':2}]}", "{'\\u0000':1}"}},
    {"{'required':['x'],'additionalProperties':{'type':'integer'}}",
     {"{'x':1}", "{'y':2,'x':1}"},
     {"{}", "{'y':2}", "{'x':'1'}"}},
    {"{'type':'object','properties':{'no':false}}",
     {"{}", "{'n':1,'non':2}"},
     {"{'no':1}", "{'no'"}},
    {"{'type':'array','items':{'type':['null','boolean']},'minItems':1,'maxItems':2}",
     {"[null]", "[ true , false ]"},
     {"[]", "[null,null,null]", "[1]", "[null,]", "[,null]"}},
    {"{'items':false}", {"[]", "[ ]", "1"}, {"[1]", "[[]]"}},
    {"{'anyOf':[{'type':'string','maxLength':1},{'type':'string','minLength':3}]}",
     {"'a'", "''", "'abc'"},
     {"'ab'", "1"}},
    {"{'anyOf':[{'properties':{'a':{'type':'null'}},'required':['a']},"
     "{'properties':{'a':{'type':'integer'},'b':{'type':'null'}},'required':['a','b']}],'type':'"
     "object'}",
     {"{'a':null}", "{'a':1,'b':null}", "{'b':null,'a':null}"},
     {"{'a':1}", "{}", "1", "{'a':''}"}},
    {"{'type':'string','anyOf':[{'minLength':2},{'enum':['z',1]}]}", {"'ab'", "'z'"}, {"'a'", "1"}},
    {"{'allOf':[{'minimum':2},{'maximum':4},{'type':'integer'}]}", {"2", "4"}, {"1", "5", "3.5"}},
    {"{'allOf':[{'properties':{'a':{'minLength':1}}},{'properties':{'a':{'type':'string'}}}]}",
     {"{'a':'x'}", "{}"},
     {"{'a':''}", "{'a':1}"}},
    {"{'$ref':'#/$defs/list','$defs':{'list':{'type':'object','required':['next'],'properties':"
     "{'next':{'anyOf':[{'type':'null'},{'$ref':'#/$defs/list'}]}},'additionalProperties':false}}}",
     {"{'next':null}", "{'next':{'next':{'next':null}}}"},
     {"{}", "null", "{'next':{}}"}},
    {"{'items':{'$ref':'#'},'type':'array'}", {"[[],[[]]]"}, {"[1]", "[[],{}]"}},
    {"{'$ref':'#/definitions/a~1b%25','definitions':{'a/b%':{'type':'null'}}}", {"null"}, {"1"}},
    {"{'enum':['x','y'],'const':'y'}", {"'y'"}, {"'x'"}},
    {"{'enum':[{'a':1}]}", {"{'a':1}", "{\n 'a' :\t1 }"}, {"{'a':1.0}", "{'a':1,'a':1}"}},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(HELD); i++) {
        struct grammar grammar;
        int32_t node;
        const char *error = compile(HELD[i].schema, SCHEMA_STRICT, &grammar, &node);
        if (error != NULL)
            print_error("%s: %s\n", HELD[i].schema, error);
        assert_null(error);
        for (size_t k = 0; k < TEXTS; k++) {
            bool yes = HELD[i].yes[k] == NULL || accepts(&grammar, node, HELD[i].yes[k]);
            bool no = HELD[i].no[k] == NULL || !accepts(&grammar, node, HELD[i].no[k]);
            if (!yes || !no)
                print_error("%s: %s\n", HELD[i].schema, yes ? HELD[i].no[k] : HELD[i].yes[k]);
            assert_true(yes && no);
        }
        for (uint64_t seed = 0; seed < 30; seed++)
            assert_true(walks_json(&grammar, node, seed));
        grammar_free(&grammar);
    }
}

/* ---- depth and other bounds ------------------------------------------------------------------ */

static char *repeat(const char *head, const char *body, int n, const char *tail)
{
    size_t size = strlen(head) + strlen(body) * (size_t)n + strlen(tail) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    strcpy(text, head);
    char *at = text + strlen(head);
    for (int i = 0; i < n; i++, at += strlen(body))
        strcpy(at, body);
    strcpy(at, tail);
    return text;
}

static void check_text(const char *schema, char *text, bool expected)
{
    struct grammar grammar;
    int32_t node;
    assert_null(compile(schema, SCHEMA_STRICT, &grammar, &node));
    assert_int_equal(accepts(&grammar, node, text), expected);
    grammar_free(&grammar);
    free(text);
}

static void test_bounds(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) { /* at the bound, and beyond it */
        char *open = repeat("", "[", MASK_DEPTH_MAX + more, "");
        check_text("true", repeat(open, "]", MASK_DEPTH_MAX + more, ""), !more);
        free(open);
        check_text("true", repeat("[", " ", MASK_SPACES_MAX + more, "1]"), !more);
        check_text("true", repeat("", "1", MASK_NUMBER_BYTES_MAX + more, ""), !more);
        check_text("true", repeat("0.", "1", MASK_NUMBER_BYTES_MAX - 2 + more, ""), !more);
    }
    check_text("{'type':'number','minimum':0}", repeat("", "9", MASK_WHOLE_DIGITS_MAX, ""), true);
    check_text("{'type':'number','minimum':0}", repeat("", "9", MASK_WHOLE_DIGITS_MAX + 1, ""),
               false);
    check_text("{'type':'number','minimum':0}", repeat("0.", "9", MASK_FRACTION_DIGITS_MAX, ""),
               true);
    check_text("{'type':'number','minimum':0}", repeat("0.", "9", MASK_FRACTION_DIGITS_MAX + 1, ""),
               false);
}

/* What could not be completed is not begun. */
static const struct {
    const char *schema, *head, *body;
    int n; /* of `body`, when `tail` can follow */
    const char *tail;
} BEGUN[] = {
    {"{'type':'array','items':{'anyOf':[{'$ref':'#'},{'type':'object','required':['a'],"
     "'properties':{'a':{'type':'array'}}}]}}",
     "", "[", MASK_DEPTH_MAX - 2, "{"},
    {"true", "", "1", MASK_NUMBER_BYTES_MAX - 2, "."},
    {"true", "", "1", MASK_NUMBER_BYTES_MAX - 2, "e"},
    {"true", "", "1", MASK_NUMBER_BYTES_MAX - 3, "e-"},
    {"{'type':'string','maxLength':9}", "'", "x", 8, "\\"},
};

static void test_begun(void **state)
{
    (void)state;
    struct grammar grammar;
    int32_t node;
    for (size_t i = 0; i < N_OF(BEGUN); i++) {
        assert_null(compile(BEGUN[i].schema, SCHEMA_STRICT, &grammar, &node));
        for (int more = 0; more < 2; more++) {
            char *text = repeat(BEGUN[i].head, BEGUN[i].body, BEGUN[i].n + more, BEGUN[i].tail);
            assert_int_equal(readings(&grammar, node, text) > 0, !more);
            free(text);
        }
        grammar_free(&grammar);
    }
    assert_null(
        compile("{'type':'number','minimum':2,'maximum':2.5}", SCHEMA_STRICT, &grammar, &node));
    assert_int_equal(readings(&grammar, node, "1"), 0);
    assert_int_equal(readings(&grammar, node, "2"), 1);
    assert_int_equal(readings(&grammar, node, "2.6"), 0);
    grammar_free(&grammar);
}

/* Readings that have met are one. */
static void test_merge(void **state)
{
    (void)state;
    struct grammar grammar;
    int32_t node;
    assert_null(compile("{'type':'array','items':{'anyOf':[{'type':'string'},{'maxLength':3}]}}",
                        SCHEMA_STRICT, &grammar, &node));
    assert_int_equal(readings(&grammar, node, "['a','b','c','d','e','f'"), 1);
    assert_int_equal(readings(&grammar, node, "['a','b','c','d','e','f"), 2);
    grammar_free(&grammar);
}

/* The rules about texts are ignored unless strict. */
static void test_plain(void **state)
{
    (void)state;
    struct grammar grammar;
    int32_t node;
    assert_null(compile("{'type':'string','pattern':'^a','format':'date','maxLength':2}",
                        SCHEMA_PLAIN, &grammar, &node));
    assert_true(accepts(&grammar, node, "'xy'"));
    assert_false(accepts(&grammar, node, "'xyz'"));
    grammar_free(&grammar);
}

/* As many undeclared keys as are remembered, and one more. */
static void test_extra_keys(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        char text[16 * (MASK_EXTRA_KEYS_MAX + 2)] = "{", *at = text + 1;
        for (int i = 0; i < MASK_EXTRA_KEYS_MAX + more; i++)
            at += sprintf(at, "%s'%d':0", i > 0 ? "," : "", i);
        strcpy(at, "}");
        check_text("{'type':'object'}", strdup(text), !more);
        /* Those of the objects around count too. */
        char *nested = repeat("{'a':", "", 0, text);
        check_text("{'type':'object'}", repeat(nested, "}", 1, ""), false);
        free(nested);
    }
}

/* ---- schemas meant to hurt ------------------------------------------------------------------- */

static void check_capacity(char *schema)
{
    struct grammar grammar;
    int32_t node = -1;
    struct error err = {0};
    struct json_object *value = json_of(schema);
    grammar_init(&grammar);
    assert_int_equal(schema_compile(&grammar, value, SCHEMA_PLAIN, "schema", &node, &err),
                     ERR_CAPACITY);
    /* The same as the arguments of a tool that is not strict: any object. */
    assert_int_equal(
        schema_compile_arguments(&grammar, value, SCHEMA_LENIENT, "schema", &node, &err), OK);
    assert_true(accepts(&grammar, node, "{}"));
    grammar_free(&grammar);
    json_object_put(value);
    free(schema);
}

static void test_hostile(void **state)
{
    (void)state;
    char big[64];
    check_capacity(repeat("{'enum':[", "1,", MASK_ENUM_MAX, "2]}"));
    check_capacity(repeat("{'type':'object','required':[", "'a',", MASK_PROPERTIES_MAX, "'b']}"));
    check_capacity(repeat("{'anyOf':[", "{},", MASK_THREADS_MAX, "{}]}"));
    check_capacity(repeat("{'anyOf':[", "{},", MASK_BRANCHES_MAX, "{}]}"));
    check_capacity(repeat("{'allOf':[", "{'anyOf':[{},{}]},", MASK_MEMBERS_MAX - 4, "{}]}"));
    check_capacity(repeat("{'allOf':[", "{},", MASK_MEMBERS_MAX, "{}]}"));
    check_capacity(
        repeat("{'allOf':[{'enum':[1,2]},{'enum':[", "1,", MASK_ENUM_WORK_MAX / 2, "2]}]}"));
    char *name = repeat("{'const':'", "x", MASK_STRING_LEN_MAX + 1, "'}");
    check_capacity(name);
    check_capacity(repeat("{'required':['", "x", MASK_STRING_LEN_MAX + 1, "']}"));
    /* A schema of many properties, each a reference to one with many keywords. */
    struct buf text = {0};
    buf_puts(&text, "{'$defs':{'a':{'type':[");
    for (int i = 0; i < 20000; i++)
        buf_puts(&text, "'null',");
    buf_puts(&text, "'null']}},'type':'object','properties':{");
    for (int i = 0; i < 100; i++)
        buf_printf(&text, "'p%d':{'$ref':'#/$defs/a'},", i);
    buf_puts(&text, "'z':true}}");
    check_capacity(strdup(buf_cstr(&text)));
    text.len = 0;
    /* More properties than an object may declare. */
    buf_puts(&text, "{'properties':{");
    for (int i = 0; i <= MASK_PROPERTIES_MAX; i++) {
        snprintf(big, sizeof big, "%s'p%d':true", i > 0 ? "," : "", i);
        buf_puts(&text, big);
    }
    buf_puts(&text, "}}");
    check_capacity(strdup(buf_cstr(&text)));
    buf_free(&text);
}

/* A property tree whose places multiply: each level refers twice to the next. */
static void test_explosion(void **state)
{
    (void)state;
    struct buf text = {0};
    struct grammar grammar;
    int32_t node;
    buf_puts(&text, "{'$ref':'#/$defs/d0','$defs':{");
    for (int i = 0; i < 40; i++)
        buf_printf(&text,
                   "'d%d':{'type':'object','properties':{'a':{'$ref':'#/$defs/d%d'},"
                   "'b':{'$ref':'#/$defs/d%d'}}},",
                   i, i + 1, i + 1);
    buf_puts(&text, "'d40':{'type':'null'}}}");
    assert_null(compile(buf_cstr(&text), SCHEMA_STRICT, &grammar, &node));
    assert_true(grammar.n_nodes < 200);
    assert_true(accepts(&grammar, node, "{'a':{'b':{}}}"));
    assert_false(accepts(&grammar, node, "{'a':{'b':null}}"));
    grammar_free(&grammar);
    buf_free(&text);
}

/* ---- flipped bytes --------------------------------------------------------------------------- */

/* Schemas that differ from good ones by a few bytes: compiled or refused, and if compiled, without
 * a dead end. */
static void test_flips(void **state)
{
    (void)state;
    uint64_t random = 99;
    int compiled = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        char *text = quoted(HELD[draw_from(&random, N_OF(HELD))].schema);
        size_t len = strlen(text);
        static const char BYTES[] = "{}[]\",:0123456789-.eanyOftrue$#/\\";
        for (uint32_t n = 1 + draw_from(&random, 3); n > 0; n--)
            text[draw_from(&random, (uint32_t)len)] = BYTES[draw_from(&random, sizeof BYTES - 1)];
        struct json_object *value;
        if (json_parse(text, len, &value, NULL, NULL) == OK) {
            struct grammar grammar;
            int32_t node;
            struct error err;
            enum schema_mode mode = (enum schema_mode)draw_from(&random, 3);
            grammar_init(&grammar);
            enum status status =
                mode == SCHEMA_LENIENT
                    ? schema_compile_arguments(&grammar, value, mode, "schema", &node, &err)
                    : schema_compile(&grammar, value, mode, "schema", &node, &err);
            assert_true(status == OK || mode != SCHEMA_LENIENT);
            if (status == OK)
                assert_true(walks_json(&grammar, node, (uint64_t)round));
            compiled += status == OK;
            refused += status != OK;
            grammar_free(&grammar);
            json_object_put(value);
        }
        free(text);
    }
    assert_true(compiled > 100 && refused > 30);
}

/* ---- arguments of tools ---------------------------------------------------------------------- */

static const struct {
    const char *schema; /* NULL: none */
    enum schema_mode mode;
    const char *error, *yes, *no;
} ARGUMENTS[] = {
    {NULL, SCHEMA_STRICT, NULL, "{}", "{'a':1}"},
    {"{'type':'object'}", SCHEMA_STRICT, NULL, "{'a':1}", "1"},
    {"{'type':'object','properties':{}}", SCHEMA_STRICT, NULL, "{}", "{'a':1}"},
    {"{'properties':{'a':{'type':'null'}}}", SCHEMA_STRICT, NULL, "{'a':null}", "{'b':1}"},
    {"{'properties':{'a':{'type':'null'}},'additionalProperties':{'type':'null'}}", SCHEMA_STRICT,
     NULL, "{'a':null,'b':null}", "{'b':1}"},
    {"{'type':'string'}", SCHEMA_STRICT, "schema: is not the schema of one object", NULL, NULL},
    {"{'anyOf':[{'type':'object'},{'type':'object'}]}", SCHEMA_STRICT,
     "schema: is not the schema of one object", NULL, NULL},
    {"{'oneOf':[{}]}", SCHEMA_STRICT, "schema.oneOf" UNSUPPORTED, NULL, NULL},
    /* Not strict: what is not understood is ignored. */
    {"{'type':'string'}", SCHEMA_LENIENT, NULL, "{'a':1}", "1"},
    {"7", SCHEMA_LENIENT, NULL, "{'a':1}", "1"},
    {"{'properties':{'a':{'oneOf':[{'type':'null'},{'const':1}],'format':'x','SECRET':1}}}",
     SCHEMA_LENIENT, NULL, "{'a':1}", "{'a':2}"},
    {"{'properties':{'a':{'type':7,'minimum':'x'}},'required':['a','b'],'minProperties':9}",
     SCHEMA_LENIENT, NULL, "{'a':[],'b':1}", "{'a':1}"},
    {"{'properties':{'a':{'$ref':'#/nowhere'}},'required':7}", SCHEMA_LENIENT, NULL, "{'a':{}}",
     "{'b':1}"},
    {"{'properties':{'a':false},'required':['a']}", SCHEMA_LENIENT, NULL, "{'x':1}", "[]"},
    /* The root as a value inside of itself keeps its undeclared names. */
    {"{'properties':{'a':{'$ref':'#'}}}", SCHEMA_STRICT, NULL, "{'a':{'b':1}}", "{'b':1}"},
};

static void test_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(ARGUMENTS); i++) {
        struct grammar grammar;
        struct error err;
        int32_t node;
        struct json_object *value =
            ARGUMENTS[i].schema == NULL ? NULL : json_of(ARGUMENTS[i].schema);
        grammar_init(&grammar);
        enum status status =
            schema_compile_arguments(&grammar, value, ARGUMENTS[i].mode, "schema", &node, &err);
        if (ARGUMENTS[i].error != NULL) {
            assert_int_equal(status, ERR_INPUT);
            assert_string_equal(err.text, ARGUMENTS[i].error);
        } else {
            assert_int_equal(status, OK);
            assert_true(accepts(&grammar, node, ARGUMENTS[i].yes));
            assert_false(accepts(&grammar, node, ARGUMENTS[i].no));
        }
        grammar_free(&grammar);
        json_object_put(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bounds),     cmocka_unit_test(test_begun),
        cmocka_unit_test(test_merge),      cmocka_unit_test(test_plain),
        cmocka_unit_test(test_extra_keys), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_explosion),  cmocka_unit_test(test_flips),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
