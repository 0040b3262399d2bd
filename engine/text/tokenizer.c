/*
 * Encoding: added tokens by their text, the rest cut into pieces and merged.  What is read from the
 * file and how it is checked stands in tokenizer_file.c.
 */
#include "engine/text/tokenizer.h"

#include "engine/text/pretokenize.h"
#include "engine/text/tokenizer_file.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

enum status tokenizer_open(const char *path, struct tokenizer **out, struct error *err)
{
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    ASSERT(tokenizer != NULL);
    enum status status = tokenizer_file_read(path, tokenizer, err);
    if (status != OK) {
        tokenizer_close(tokenizer);
        return status;
    }
    unicode_init(&tokenizer->unicode);
    *out = tokenizer;
    return OK;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    bpe_free(&tokenizer->bpe);
    vocab_free(&tokenizer->vocab);
    free(tokenizer);
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab.size;
}

/* Text without added tokens. */
static void encode_run(const struct tokenizer *tokenizer, struct bpe_scratch *scratch,
                       const char *text, size_t len, struct ids *out)
{
    struct pretokenizer pieces;
    size_t start, end;
    pretokenize_start(&pieces, &tokenizer->unicode, text, len);
    while (pretokenize_next(&pieces, &start, &end))
        bpe_encode(&tokenizer->bpe, scratch, (const uint8_t *)text + start, end - start, out);
}

void tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, bool special,
                      struct ids *out)
{
    struct bpe_scratch scratch = {0};
    size_t run = 0, added_len = 0;
    for (size_t at = 0; special && at < len;) {
        int32_t id =
            vocab_match_added(&tokenizer->vocab, (const uint8_t *)text + at, len - at, &added_len);
        if (id < 0) {
            at++;
            continue;
        }
        encode_run(tokenizer, &scratch, text + run, at - run, out);
        ids_add(out, id);
        run = at += added_len;
    }
    if (run < len)
        encode_run(tokenizer, &scratch, text + run, len - run, out);
    bpe_scratch_free(&scratch);
}

size_t tokenizer_count_added(const struct tokenizer *tokenizer, const char *text, size_t len)
{
    size_t n = 0, added_len = 0;
    for (size_t at = 0; at < len;) {
        bool found = vocab_match_added(&tokenizer->vocab, (const uint8_t *)text + at, len - at,
                                       &added_len) >= 0;
        n += found;
        at += found ? added_len : 1;
    }
    return n;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= tokenizer->vocab.size)
        return "";
    *len = tokenizer->vocab.tokens[id].len;
    return tokenizer->vocab.bytes.data + tokenizer->vocab.tokens[id].offset;
}

bool tokenizer_is_added(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab.size && tokenizer->vocab.tokens[id].added;
}

int32_t tokenizer_added_id(const struct tokenizer *tokenizer, const char *text)
{
    size_t match_len = 0, len = strlen(text);
    int32_t id = vocab_match_added(&tokenizer->vocab, (const uint8_t *)text, len, &match_len);
    return match_len == len ? id : -1;
}
