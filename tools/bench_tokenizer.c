/*
 * How fast the tokenizer is:  bench_tokenizer TOKENIZER FILE...
 * Encodes every file ROUNDS times on one core and prints one JSON object: the bytes and ids of one
 * round, the seconds of the best, and the seconds that opening took.  Called by
 * tests/text/bench.mjs.
 */
#include "engine/base/file.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The first warms the caches; more than a few find no better one. */
#define ROUNDS         5
#define FILE_BYTES_MAX (64 << 20)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Encodes all texts once, parsing added tokens as the other side does; gives the seconds. */
static double encode_all(const struct tokenizer *tokenizer, const struct buf *texts, int count,
                         struct ids *ids)
{
    double start = now();
    ids->len = 0;
    for (int i = 0; i < count; i++)
        tokenizer_encode(tokenizer, texts[i].data, texts[i].len, true, ids);
    return now() - start;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    struct ids ids = {0};
    struct buf *texts = calloc((size_t)argc, sizeof *texts);
    double open = now(), best = 0;
    size_t bytes = 0;
    int count = argc - 2;
    if (count < 1 || texts == NULL) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER FILE...\n");
        return 2;
    }
    enum status status = tokenizer_open(argv[1], &tokenizer, &err);
    open = now() - open;
    for (int i = 0; i < count && status == OK; i++) {
        status = file_read(argv[i + 2], FILE_BYTES_MAX, &texts[i], &err);
        bytes += texts[i].len;
    }
    if (status != OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", err.text);
        return status_exit_code(status);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double seconds = encode_all(tokenizer, texts, count, &ids);
        if (round == 0 || seconds < best)
            best = seconds;
    }
    printf("{\"bytes\": %zu, \"ids\": %zu, \"seconds\": %.6f, \"open_seconds\": %.6f}\n", bytes,
           ids.len, best, open);
    for (int i = 0; i < count; i++)
        buf_free(&texts[i]);
    free(texts);
    ids_free(&ids);
    tokenizer_close(tokenizer);
    return 0;
}
