/*
 * Byte-level BPE of the DeepSeek-V4 family, read from tokenizer.json (model.md section 4): three
 * Split stages in sequence, merges by rank, added tokens by their text.  Knows no chat format.
 */
#ifndef V4BOX_ENGINE_TEXT_TOKENIZER_H
#define V4BOX_ENGINE_TEXT_TOKENIZER_H

#include "engine/base/buf.h"
#include "engine/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct tokenizer; /* immutable after opening; any thread may use it */

/** @own tokenizer_close  @err ERR_INPUT/ERR_IO naming the file and the field */
enum status MUST_CHECK tokenizer_open(const char *path, struct tokenizer **out, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);
int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

/**
 * Appends the ids of UTF-8 text.  `special`: added tokens found in the text (longest match) become
 * their ids; without it client text can never produce one.
 * Invalid UTF-8 bytes are encoded as bytes, never dropped; so every byte string round-trips.
 */
void tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, bool special,
                      struct ids *out);

/** How many added tokens UTF-8 text spells, found as tokenizer_encode with `special` finds them. */
size_t tokenizer_count_added(const struct tokenizer *tokenizer, const char *text, size_t len);

/** Bytes of one token; added tokens give their text.  Out-of-range ids give length 0. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *len);
/** True for tokens of the added-token table. */
bool tokenizer_is_added(const struct tokenizer *tokenizer, int32_t id);
/** Id of an added token by its text, or -1. */
int32_t tokenizer_added_id(const struct tokenizer *tokenizer, const char *text);

/* Incremental detokenizer: holds back an incomplete UTF-8 character until it is whole or cannot be.
 */
struct detokenizer {
    uint8_t held[4];
    uint8_t held_len;
};
/** Appends the text that is certain after this token; ill-formed bytes become U+FFFD. */
void detokenizer_push(struct detokenizer *d, const struct tokenizer *tokenizer, int32_t id,
                      struct buf *out);
/** End of the stream: held bytes can no longer become a character. */
void detokenizer_finish(struct detokenizer *d, struct buf *out);

#endif
