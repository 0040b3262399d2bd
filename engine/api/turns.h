/*
 * What the model wrote, kept for the turns to come: the token ids and the reasoning of answers,
 * found again when a client sends the turn back.  So the prompt stays what the engine holds, token
 * by token, and reasoning that a client lost is restored (api.md 0, finding 3).
 *
 * An answer is found by the id of its first tool call, which nobody can guess, or else by all ids
 * of its prompt and what the client saw of it.  Keys see their own answers only.  Bounded: the
 * answers used longest ago go first, a key's own before those of others.  In memory alone. Knows no
 * HTTP and renders nothing.
 */
#ifndef V4BOX_ENGINE_API_TURNS_H
#define V4BOX_ENGINE_API_TURNS_H

#include "engine/text/chat.h"
#include "engine/text/dsml.h"

#include <sodium.h>
#include <stdint.h>

#define TURN_HASH_BYTES crypto_hash_sha256_BYTES
#define CALL_ID_CHARS   29 /* "call_" and 24 hex digits */

struct turns; /* any thread may call; one lock inside */

/** @own turns_destroy */
struct turns *turns_create(void);
void turns_destroy(struct turns *turns);

/* A call as the client saw it. */
struct turn_call {
    const struct dsml_call *call; /* borrows */
    char id[CALL_ID_CHARS + 1];
};

/* A finished answer. */
struct turn {
    uint64_t key;                          /* of the API key; never 0 */
    uint8_t context[TURN_HASH_BYTES];      /* turns_hash of the prompt's ids */
    bool thinking;                         /* the prompt ended with <think> */
    const struct buf *reasoning, *content; /* borrow: what the client saw .. */
    const struct turn_call *calls;         /* borrows [n_calls] */
    int32_t n_calls;
    const struct ids *ids; /* borrows: the same as the model wrote it, without the end of sentence;
                              NULL: it wrote more than the client saw */
};

/** Keeps a copy, if there is anything to keep.  `turns` may be NULL: nothing is remembered. */
void turns_put(struct turns *turns, const struct turn *turn);

/* The hook of chat_render, for one prompt of one key. */
struct turns_reader {
    struct turns *turns; /* borrows */
    uint64_t key;
    crypto_hash_sha256_state hash; /* of the ids in front */
    size_t n_hashed;
};
void turns_reader_init(struct turns_reader *reader, struct turns *turns, uint64_t key);

/**
 * A chat_recall_fn; `reader` is a struct turns_reader, `before` grows from call to call.  What the
 * client sent back of the answer must be as it was; only its reasoning may also be absent, empty,
 * or cut at the front.
 */
enum chat_source turns_recall(void *reader, const struct chat_sent *sent, const struct ids *before,
                              struct chat_recalled *out);

/** SHA-256 over the ids as little-endian 32-bit numbers. */
void turns_hash(const int32_t *ids, size_t n, uint8_t out[TURN_HASH_BYTES]);

struct turns_stats {
    int32_t kept;
    int64_t bytes;
};
/** `turns` may be NULL: nothing is kept. */
void turns_stats_get(struct turns *turns, struct turns_stats *out);

#endif
