/*
 * The vocabulary.  Added tokens are found by narrowing their sorted list byte by byte: it needs no
 * tables, and costs at most the length of the longest token times the logarithm of their number.
 */
#include "engine/text/vocab.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

void vocab_init(struct vocab *vocab, int32_t size, size_t added_max)
{
    *vocab = (struct vocab){.size = size};
    vocab->tokens = calloc((size_t)size + 1, sizeof *vocab->tokens);
    vocab->added = calloc(added_max + 1, sizeof *vocab->added);
    ASSERT(vocab->tokens != NULL && vocab->added != NULL);
}

void vocab_free(struct vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->added);
    buf_free(&vocab->bytes);
    *vocab = (struct vocab){0};
}

void vocab_set(struct vocab *vocab, int32_t id, const void *bytes, size_t len)
{
    ASSERT(id >= 0 && id < vocab->size && len > 0 && vocab->tokens[id].len == 0);
    ASSERT(vocab->bytes.len + len <= UINT32_MAX);
    vocab->tokens[id] =
        (struct vocab_token){.offset = (uint32_t)vocab->bytes.len, .len = (uint32_t)len};
    buf_add(&vocab->bytes, bytes, len);
}

void vocab_mark_added(struct vocab *vocab, int32_t id)
{
    ASSERT(id >= 0 && id < vocab->size && vocab->tokens[id].len > 0 && !vocab->tokens[id].added);
    vocab->tokens[id].added = true;
    vocab->added[vocab->added_count++] = id;
    vocab->added_lead[(uint8_t)vocab->bytes.data[vocab->tokens[id].offset]] = true;
}

static int compare_text(const void *left, const void *right, void *context)
{
    const struct vocab *vocab = context;
    const struct vocab_token *a = &vocab->tokens[*(const int32_t *)left];
    const struct vocab_token *b = &vocab->tokens[*(const int32_t *)right];
    int order = memcmp(vocab->bytes.data + a->offset, vocab->bytes.data + b->offset,
                       a->len < b->len ? a->len : b->len);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

bool vocab_finish(struct vocab *vocab)
{
    qsort_r(vocab->added, vocab->added_count, sizeof *vocab->added, compare_text, vocab);
    for (size_t i = 1; i < vocab->added_count; i++) {
        if (compare_text(&vocab->added[i - 1], &vocab->added[i], vocab) == 0)
            return false;
    }
    return true;
}

/* The first of added[low, high), which agree in `depth` bytes and are longer, whose next byte is at
 * least `byte`. */
static size_t lower_bound(const struct vocab *vocab, size_t low, size_t high, size_t depth,
                          unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct vocab_token *token = &vocab->tokens[vocab->added[middle]];
        if ((uint8_t)vocab->bytes.data[token->offset + depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t vocab_match_added(const struct vocab *vocab, const uint8_t *text, size_t len,
                          size_t *match_len)
{
    int32_t id = -1;
    size_t low = 0, high = vocab->added_count;
    if (len == 0 || !vocab->added_lead[text[0]])
        return -1;
    for (size_t depth = 0; low < high; depth++) {
        /* The shortest of those that agree sorts first. */
        if (vocab->tokens[vocab->added[low]].len == depth) {
            id = vocab->added[low++];
            *match_len = depth;
        }
        if (depth == len)
            break;
        low = lower_bound(vocab, low, high, depth, text[depth]);
        high = lower_bound(vocab, low, high, depth, text[depth] + 1u);
    }
    return id;
}
