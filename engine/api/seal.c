/* Authenticated encryption and signatures of what clients keep for us. */
#include "engine/api/seal.h"

#include "kernels/check.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES   crypto_aead_xchacha20poly1305_ietf_ABYTES
#define HEAD_BYTES  (1 + NONCE_BYTES)
#define VERSION     1
#define VARIANT     sodium_base64_VARIANT_URLSAFE_NO_PADDING

_Static_assert(SEAL_KEY_BYTES == crypto_aead_xchacha20poly1305_ietf_KEYBYTES, "one key for both");
_Static_assert(SEAL_KEY_BYTES == crypto_auth_hmacsha512256_KEYBYTES, "one key for both");
_Static_assert(sodium_base64_ENCODED_LEN(crypto_auth_hmacsha512256_BYTES,
                                         sodium_base64_VARIANT_ORIGINAL) == SIGNATURE_CHARS + 1,
               "the length of a signature");

/* What a sealed text is for: one of another kind can not take its place. */
static const unsigned char PURPOSE[] = "v4box reasoning";

void seal_close(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len, struct buf *out)
{
    size_t n = HEAD_BYTES + len + TAG_BYTES, chars = sodium_base64_encoded_len(n, VARIANT);
    unsigned char *bytes = malloc(n);
    char *base64 = malloc(chars);
    ASSERT(bytes != NULL && base64 != NULL);
    bytes[0] = VERSION;
    randombytes_buf(bytes + 1, NONCE_BYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(bytes + HEAD_BYTES, NULL,
                                               (const unsigned char *)text, len, PURPOSE,
                                               sizeof PURPOSE, NULL, bytes + 1, key);
    sodium_bin2base64(base64, chars, bytes, n, VARIANT);
    buf_puts(out, base64);
    free(bytes);
    free(base64);
}

bool seal_open(const uint8_t key[SEAL_KEY_BYTES], const char *sealed, size_t len, struct buf *out)
{
    size_t n = 0;
    unsigned long long text_len = 0;
    unsigned char *bytes = malloc(len + 1), *text = malloc(len + 1); /* not 0 */
    ASSERT(bytes != NULL && text != NULL);
    bool good = sodium_base642bin(bytes, len, sealed, len, NULL, &n, NULL, VARIANT) == 0 &&
                n >= HEAD_BYTES + TAG_BYTES && bytes[0] == VERSION &&
                crypto_aead_xchacha20poly1305_ietf_decrypt(
                    text, &text_len, NULL, bytes + HEAD_BYTES, n - HEAD_BYTES, PURPOSE,
                    sizeof PURPOSE, bytes + 1, key) == 0;
    if (good && text_len > 0)
        buf_add(out, (const char *)text, (size_t)text_len);
    free(bytes);
    free(text);
    return good;
}

void seal_sign(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len,
               char out[SIGNATURE_CHARS + 1])
{
    unsigned char mac[crypto_auth_hmacsha512256_BYTES];
    crypto_auth_hmacsha512256(mac, (const unsigned char *)text, len, key);
    sodium_bin2base64(out, SIGNATURE_CHARS + 1, mac, sizeof mac, sodium_base64_VARIANT_ORIGINAL);
}

bool seal_is_signed(const uint8_t key[SEAL_KEY_BYTES], const char *text, size_t len,
                    const char *signature, size_t signature_len)
{
    char good[SIGNATURE_CHARS + 1];
    seal_sign(key, text, len, good);
    return signature_len == SIGNATURE_CHARS && sodium_memcmp(signature, good, SIGNATURE_CHARS) == 0;
}
