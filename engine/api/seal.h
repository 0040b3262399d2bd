/*
 * What is handed to a client to bring back: reasoning, sealed so that only a request of the same
 * API key can open it, or signed in the open.  The key of both comes from the client's own secret
 * (keys.h): it outlives a restart, every box that knows the API key has it, and at rest nobody
 * does.  Knows no API.
 *
 *   sealed: base64url of  version 1 byte | nonce 24 | XChaCha20-Poly1305 of the text
 */
#ifndef V4BOX_ENGINE_API_SEAL_H
#define V4BOX_ENGINE_API_SEAL_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEAL_KEY_BYTES  32
#define SIGNATURE_CHARS 44 /* base64 of a MAC of 32 bytes */

/** Appends the sealed text. */
void seal_close(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len, struct buf *out);

/** Appends the text that was sealed under this key.  @return false, with `out` as it was, for
 *  anything else, whatever it is. */
bool seal_open(const uint8_t key[SEAL_KEY_BYTES], const char *sealed, size_t len, struct buf *out);

/** Signs a text that stays readable. */
void seal_sign(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len,
               char out[SIGNATURE_CHARS + 1]);

/** True for the signature of this text under this key; `signature` may be any bytes. */
bool seal_is_signed(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len,
                    const char *signature, size_t signature_len);

#endif
