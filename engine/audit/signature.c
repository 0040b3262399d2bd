/* ed25519 over the JSON text that json_dump writes: what is read back is written the same. */
#include "engine/audit/signature.h"

#include "engine/audit/report_fields.h"
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <sodium.h>
#include <string.h>

#define MEMBER "signature"

_Static_assert(REPORT_SEED_BYTES == crypto_sign_SEEDBYTES, "as libsodium has it");
_Static_assert(REPORT_KEY_BYTES == crypto_sign_PUBLICKEYBYTES, "as libsodium has it");

void report_key(const uint8_t seed[REPORT_SEED_BYTES], char out[REPORT_KEY_CHARS + 1])
{
    uint8_t key[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
    ASSERT(crypto_sign_seed_keypair(key, secret, seed) == 0);
    sodium_bin2hex(out, REPORT_KEY_CHARS + 1, key, sizeof key);
    sodium_memzero(secret, sizeof secret);
}

void report_sign(struct json_object *report, const uint8_t seed[REPORT_SEED_BYTES])
{
    uint8_t key[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
    uint8_t value[crypto_sign_BYTES];
    char hex[2 * crypto_sign_BYTES + 1];
    struct buf text = {0};
    json_object_object_del(report, MEMBER);
    json_dump(&text, report);
    ASSERT(crypto_sign_seed_keypair(key, secret, seed) == 0);
    ASSERT(crypto_sign_detached(value, NULL, (const uint8_t *)text.data, text.len, secret) == 0);
    sodium_memzero(secret, sizeof secret);
    buf_free(&text);
    struct json_object *out = json_object_new_object();
    json_set(out, "key", json_object_new_string(sodium_bin2hex(hex, sizeof hex, key, sizeof key)));
    json_set(out, "value",
             json_object_new_string(sodium_bin2hex(hex, sizeof hex, value, sizeof value)));
    json_set(report, MEMBER, out);
}

/* Exactly `n` bytes of hexadecimal digits. */
static bool from_hex(const char *text, uint8_t *out, size_t n)
{
    size_t len;
    return strlen(text) == 2 * n && sodium_hex2bin(out, n, text, 2 * n, NULL, &len, NULL) == 0 &&
           len == n;
}

enum status report_verify(struct json_object *report, const char *key, struct error *err)
{
    uint8_t public_key[crypto_sign_PUBLICKEYBYTES], value[crypto_sign_BYTES];
    if (!from_hex(key, public_key, sizeof public_key))
        return error_set(err, ERR_INPUT, "the key is not %d hexadecimal digits", REPORT_KEY_CHARS);
    struct json_object *signature = report_member(report, MEMBER);
    if (signature == NULL || !from_hex(report_string(signature, "value"), value, sizeof value))
        return error_set(err, ERR_CHECK, "the report is not signed");
    json_object_get(signature);
    json_object_object_del(report, MEMBER);
    struct buf text = {0};
    json_dump(&text, report);
    json_set(report, MEMBER, signature);
    bool good =
        crypto_sign_verify_detached(value, (const uint8_t *)text.data, text.len, public_key) == 0;
    buf_free(&text);
    if (good)
        return OK;
    return error_set(err, ERR_CHECK,
                     strcmp(report_string(signature, "key"), key) == 0
                         ? "the report was changed since it was signed"
                         : "the report was signed by another key");
}
