/*
 * Sorts a vocabulary into the kinds of mask_vocab.h.  Inside of a JSON string nine tokens of ten
 * are plain: they are allowed as one bit set, and only the others need a look.
 */
#include "engine/text/mask_vocab.h"

#include "engine/text/automaton.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

static void *take(size_t n, size_t element)
{
    void *memory = calloc(n + 1, element);
    ASSERT(memory != NULL);
    return memory;
}

/* What a token is as text. */
struct shape {
    uint32_t characters; /* begun */
    bool well_formed;    /* as far as it goes */
    bool whole;          /* and ends with a character */
    bool plain;          /* and needs no escape in a JSON string, and no part of "</" */
};

static struct shape shape_of(const uint8_t *bytes, size_t len)
{
    struct shape shape = {.well_formed = true, .plain = true};
    int missing = 0;
    for (size_t i = 0; i < len && shape.well_formed; i++) {
        missing = automaton_utf8((uint8_t)missing, bytes[i]);
        shape.well_formed = missing >= 0;
        shape.characters += (bytes[i] & 0xC0) != 0x80;
        shape.plain = shape.plain && bytes[i] >= 0x20 && bytes[i] != '"' && bytes[i] != '\\' &&
                      bytes[i] != '<';
    }
    shape.whole = shape.well_formed && missing == 0;
    shape.plain = shape.plain && shape.whole && bytes[0] != '/';
    return shape;
}

/* Every byte alone: then any text can be written, and no mask is ever empty. */
static enum status check_bytes(const struct trie *all, struct error *err)
{
    bool there[256] = {false};
    for (uint32_t i = 0; i < all->n_nodes; i++) {
        if (all->nodes[i].depth == 0 && all->nodes[i].value >= 0)
            there[all->nodes[i].byte] = true;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (!there[byte])
            return error_set(err, ERR_INPUT, "tokenizer: byte 0x%02X has no token of its own",
                             byte);
    }
    return OK;
}

/* Orders the plain tokens by their number of characters: a counting sort. */
static void order_plain(struct mask_vocab *v, const uint32_t *characters)
{
    v->plain_upto = take(v->characters_max + 2, sizeof *v->plain_upto);
    v->plain_ids = take((size_t)v->size, sizeof *v->plain_ids);
    for (int32_t id = 0; id < v->size; id++) {
        if (v->plain[id / 64] >> id % 64 & 1)
            v->plain_upto[characters[id] + 1]++;
    }
    for (uint32_t n = 1; n <= v->characters_max + 1; n++)
        v->plain_upto[n] += v->plain_upto[n - 1];
    for (int32_t id = 0; id < v->size; id++) {
        if (v->plain[id / 64] >> id % 64 & 1)
            v->plain_ids[v->plain_upto[characters[id]]++] = id;
    }
}

static void sort_out(struct mask_vocab *v)
{
    struct trie_entry *all = take((size_t)v->size, sizeof *all);
    struct trie_entry *broken = take((size_t)v->size, sizeof *broken);
    uint32_t *characters = take((size_t)v->size, sizeof *characters);
    size_t n_all = 0, n_broken = 0;
    for (int32_t id = 0; id < v->size; id++) {
        size_t len;
        const uint8_t *bytes = (const uint8_t *)tokenizer_token_bytes(v->tokenizer, id, &len);
        if (len == 0 || tokenizer_is_added(v->tokenizer, id))
            continue;
        struct shape shape = shape_of(bytes, len);
        struct trie_entry entry = {bytes, (uint32_t)len, id};
        all[n_all++] = entry;
        mask_bit_set(v->ordinary, id);
        if (shape.plain)
            mask_bit_set(v->plain, id);
        else
            broken[n_broken++] = entry;
        if (shape.well_formed)
            mask_bit_set(v->raw, id);
        characters[id] = shape.characters;
        v->longest = len > v->longest ? len : v->longest;
        v->characters_max =
            shape.characters > v->characters_max ? shape.characters : v->characters_max;
    }
    trie_build(&v->all, all, n_all);
    trie_build(&v->broken, broken, n_broken);
    order_plain(v, characters);
    free(characters);
    free(all);
    free(broken);
}

enum status mask_vocab_create(const struct tokenizer *tokenizer, const struct chat_tokens *tokens,
                              struct mask_vocab **out, struct error *err)
{
    struct mask_vocab *v = take(1, sizeof *v);
    v->tokenizer = tokenizer;
    v->size = tokenizer_vocab_size(tokenizer);
    v->words = ((size_t)v->size + 63) / 64;
    v->mark = tokens->dsml;
    v->eos = tokens->eos;
    v->think_close = tokens->think_close;
    v->ordinary = take(v->words, sizeof *v->ordinary);
    v->plain = take(v->words, sizeof *v->plain);
    v->raw = take(v->words, sizeof *v->raw);
    sort_out(v);
    enum status status = check_bytes(&v->all, err);
    if (status != OK)
        mask_vocab_destroy(v);
    else
        *out = v;
    return status;
}

void mask_vocab_destroy(struct mask_vocab *v)
{
    if (v == NULL)
        return;
    trie_free(&v->all);
    trie_free(&v->broken);
    free(v->ordinary);
    free(v->plain);
    free(v->raw);
    free(v->plain_ids);
    free(v->plain_upto);
    free(v);
}
