/*
 * Time of token masks on a real vocabulary:  bench_mask TOKENIZER
 * For some answers under some rules, token by token: the mean, median and longest time of a mask.
 * Each mask is made five times and the quickest counts, so that a machine with other work does not
 * show up as a slow place.
 */
#include "engine/base/json.h"
#include "engine/text/mask.h"
#include "kernels/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 5

static const struct {
    const char *name, *schema, *text; /* schema NULL: any object */
    const char *tools;                /* the text is a block of calls */
} CASES[] = {
    {"any object", NULL,
     "{\"name\": \"it \\\"works\\\" well, \\u00e9t\\u00e9 日本\", \"list\": [1, 2.5, -3e2, true, "
     "null], "
     "\"deep\": {\"a\": {\"b\": [\"x\"]}}}",
     NULL},
    {"closed object",
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":40},"
     "\"unit\":"
     "{\"enum\":[\"celsius\",\"fahrenheit\"]},\"n\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":"
     "1000},\"p\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},\"required\":[\"city\","
     "\"unit\","
     "\"n\",\"p\"],\"additionalProperties\":false}",
     "{\"city\": \"Castrop-Rauxel am Kanal\", \"unit\": \"celsius\", \"n\": 731, \"p\": 0.0625}",
     NULL},
    {"four branches",
     "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{"
     "\"const\":"
     "\"a\"},\"text\":{\"type\":\"string\"}},\"required\":[\"kind\",\"text\"]},{\"type\":"
     "\"object\","
     "\"properties\":{\"kind\":{\"const\":\"b\"},\"n\":{\"type\":\"number\"}},\"required\":["
     "\"kind\","
     "\"n\"]},{\"type\":\"string\",\"maxLength\":50},{\"type\":\"null\"}]}}",
     "[{\"kind\": \"a\", \"text\": \"hello world\"}, {\"kind\": \"b\", \"n\": 12.5}, \"some text "
     "of "
     "moderate length\", null]",
     NULL},
    {"call", NULL,
     "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"path\" "
     "string=\"true\">src/main.c</｜DSML｜parameter>\n<｜DSML｜parameter name=\"content\" "
     "string=\"true\">#include <stdio.h>\n\nint main(void)\n{\n    puts(\"hello\");\n}\n"
     "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"mode\" "
     "string=\"false\">420</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\","
     "\"properties\":{\"path\":{\"type\":\"string\",\"maxLength\":100},\"content\":{\"type\":"
     "\"string\"},"
     "\"mode\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":511}},\"required\":[\"path\","
     "\"content\"]}}}]"},
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct tokenizer *tokenizer, const struct mask_vocab *vocab, size_t k)
{
    struct mask_options options = {.format = MASK_JSON_OBJECT};
    const char *tools = CASES[k].tools;
    struct mask *mask;
    struct error err;
    struct ids ids = {0};
    size_t words = ((size_t)tokenizer_vocab_size(tokenizer) + 63) / 64;
    uint64_t *bits = calloc(words, sizeof *bits);
    if (CASES[k].schema != NULL) {
        options.format = MASK_JSON_SCHEMA;
        ASSERT(json_parse(CASES[k].schema, strlen(CASES[k].schema), &options.schema, NULL, &err) ==
               OK);
    }
    if (tools != NULL) {
        options.format = MASK_TEXT;
        options.calls = MASK_CALLS_REQUIRED;
        ASSERT(json_parse(tools, strlen(tools), &options.tools, NULL, &err) == OK);
    }
    double start = now_ms();
    ASSERT(mask_create(vocab, &options, &mask, &err) == OK);
    double compiled = now_ms() - start;
    tokenizer_encode(tokenizer, CASES[k].text, strlen(CASES[k].text), true, &ids);
    double *times = calloc(ids.len + 1, sizeof *times), sum = 0;
    ASSERT(bits != NULL && times != NULL);
    for (size_t i = 0; i <= ids.len; i++) {
        times[i] = 1e9;
        for (int r = 0; r < REPEATS; r++) {
            start = now_ms();
            mask_fill(mask, ids.data, (int32_t)i, bits);
            double t = now_ms() - start;
            times[i] = t < times[i] ? t : times[i];
        }
        ASSERT(i == ids.len || (bits[ids.data[i] / 64] >> ids.data[i] % 64 & 1));
        sum += times[i];
    }
    qsort(times, ids.len + 1, sizeof *times, compare);
    printf("%-14s %3zu masks: mean %.3f ms, median %.3f ms, slowest %.3f ms; compiled in %.2f ms\n",
           CASES[k].name, ids.len + 1, sum / (double)(ids.len + 1), times[ids.len / 2],
           times[ids.len], compiled);
    free(times);
    free(bits);
    ids_free(&ids);
    json_object_put(options.schema);
    json_object_put(options.tools);
    mask_destroy(mask);
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer;
    struct chat_tokens tokens;
    struct mask_vocab *vocab;
    struct error err = {.text = "usage: bench_mask TOKENIZER"};
    double start = 0;
    if (argc != 2 || tokenizer_open(argv[1], &tokenizer, &err) != OK ||
        chat_tokens_find(tokenizer, &tokens, &err) != OK || (start = now_ms()) < 0 ||
        mask_vocab_create(tokenizer, &tokens, &vocab, &err) != OK) {
        fprintf(stderr, "bench_mask: %s\n", err.text);
        return 2;
    }
    printf("%d tokens, tables built in %.0f ms\n", tokenizer_vocab_size(tokenizer),
           now_ms() - start);
    for (size_t k = 0; k < sizeof CASES / sizeof CASES[0]; k++)
        measure(tokenizer, vocab, k);
    mask_vocab_destroy(vocab);
    tokenizer_close(tokenizer);
    return 0;
}
