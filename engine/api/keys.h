/*
 * API keys: a text file of hashes, looked up by id.  The file is the truth; it is read at start and
 * whenever a key is changed here, and at no other time.
 *
 *   # comment
 *   ID SHA256HEX NAME
 *   ID SHA256HEX NAME rate=60 expires=2027-12-31
 *
 * ID is 8 base62 characters, SHA256HEX the lower-case SHA-256 of the whole secret
 * "ds_<ID>_<32 base62 characters>", NAME 1 to KEY_NAME_BYTES_MAX printable ASCII characters without
 * blanks; what follows are limits (key_limits.h), each at most once.  Secrets are 190 random bits,
 * so a plain hash is enough and needs no salt. Knows no HTTP; who has lost a secret makes a new
 * key.
 */
#ifndef V4BOX_ENGINE_KEYS_H
#define V4BOX_ENGINE_KEYS_H

#include "config/limits.h"
#include "engine/api/key_limits.h"
#include "engine/api/seal.h"
#include "engine/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_ID_CHARS     8
#define KEY_RANDOM_CHARS 32
#define KEY_SECRET_CHARS (3 + KEY_ID_CHARS + 1 + KEY_RANDOM_CHARS) /* "ds_" id "_" random */

struct keys; /* any thread may call; one lock inside */

/* What a caller may know of a key. */
struct key {
    char id[KEY_ID_CHARS + 1];
    char name[KEY_NAME_BYTES_MAX + 1];
    uint64_t number; /* the id read as a base-62 number, plus one: never 0, the same after a
                        restart; serves as engine_request.reuse_namespace */
    struct key_limits limits;
    uint8_t seal[SEAL_KEY_BYTES]; /* secret, made of the key itself: only keys_check can fill it */
};

/**
 * Reads the file.  A missing file is an empty set of keys: the API is closed until one is created.
 * @own  keys_close
 * @err  ERR_INPUT naming the file and the line; ERR_IO
 */
enum status MUST_CHECK keys_open(const char *path, struct keys **out, struct error *err);
void keys_close(struct keys *keys);

/**
 * True when `secret` ([len] bytes, any content) is that of a key that is neither disabled nor
 * expired, which *out then describes.
 * Hashes and compares in constant time whether or not the id exists.
 */
bool keys_check(struct keys *keys, const char *secret, size_t len, struct key *out);

/**
 * Makes a key, writes the file (temporary file, fsync, rename; mode 0600) and gives the secret, for
 * the only time.  The caller wipes it.
 * @err ERR_INPUT: the name, or what the file holds by now; ERR_CAPACITY; ERR_IO
 */
enum status MUST_CHECK keys_create(struct keys *keys, const char *name, struct key *out,
                                   char secret[KEY_SECRET_CHARS + 1], struct error *err);
/** Makes a key that stands in no file and no list: with it the box tests itself.  It is unknown
 * after KEY_PASS_MS, and once another one is made.  The caller wipes the secret. */
void keys_pass(struct keys *keys, char secret[KEY_SECRET_CHARS + 1]);
/** Removes a key and writes the file.  @err ERR_INPUT: no such id, or the file; ERR_IO */
enum status MUST_CHECK keys_delete(struct keys *keys, const char *id, struct error *err);
/** Sets a limit of a key, or takes it away (value NULL), and writes the file.  Requests that run
 * are not touched.  @err ERR_INPUT: no such id, limit or value, or the file; ERR_CAPACITY; ERR_IO
 */
enum status MUST_CHECK keys_limit(struct keys *keys, const char *id, const char *word,
                                  const char *value, struct error *err);
/** Copies all keys in the order of the file.  @return how many */
int keys_list(struct keys *keys, struct key out[KEYS_MAX]);

#endif
