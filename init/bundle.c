/* A signed update. */
#include "init/bundle.h"

#include <sodium.h>
#include <string.h>

#define SIGNATURE_AT 8
#define SIGNED_AT    (SIGNATURE_AT + crypto_sign_BYTES)
#define SIGNED_BYTES (BUNDLE_HEADER_BYTES - SIGNED_AT)
#define PAYLOAD_AT   176
#define ZEROS_AT     184

static const char MAGIC[8] = "V4BOXUP1";

static uint64_t get64(const uint8_t *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static void put64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

/* Printable characters, then zeros only; false: anything else, or empty. */
static bool take_text(char *to, const uint8_t *bytes, size_t n)
{
    size_t len = 0;
    while (len < n && bytes[len] > ' ' && bytes[len] <= '~')
        len++;
    for (size_t i = len; i < n; i++)
        if (bytes[i] != 0)
            return false;
    memcpy(to, bytes, len);
    to[len] = '\0';
    return len > 0;
}

const char *bundle_check_header(struct bundle *b, const uint8_t *bytes, size_t n,
                                const uint8_t key[BUNDLE_KEY_BYTES])
{
    struct bundle read;
    if (n < BUNDLE_HEADER_BYTES || memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return "this is no update";
    if (crypto_sign_verify_detached(bytes + SIGNATURE_AT, bytes + SIGNED_AT, SIGNED_BYTES, key) !=
        0)
        return "the signature is not by this box's update key";
    if (!take_text(read.board, bytes + 72, BUNDLE_BOARD_BYTES) ||
        !take_text(read.version, bytes + 88, BUNDLE_VERSION_BYTES))
        return "board or version is no text";
    if (strcmp(read.board, UPDATE_BOARD) != 0)
        return "the update is for another board";
    for (size_t i = ZEROS_AT; i < BUNDLE_HEADER_BYTES; i++)
        if (bytes[i] != 0)
            return "the header has fields that this system does not know";
    read.sequence = get64(bytes + 120);
    read.floor = get64(bytes + 128);
    read.program_bytes = get64(bytes + 136);
    memcpy(read.hash, bytes + 144, BUNDLE_HASH_BYTES);
    read.payload_bytes = get64(bytes + PAYLOAD_AT);
    if (read.program_bytes == 0 || read.program_bytes > UPDATE_BYTES_MAX)
        return "the program's size is out of bounds";
    if (read.payload_bytes > PAYLOAD_BYTES_MAX)
        return "the GPU payload's size is out of bounds";
    if (read.floor > read.sequence)
        return "the floor is above the sequence";
    *b = read;
    return NULL;
}

const char *bundle_check_program(const struct bundle *b, const uint8_t *program, size_t n)
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    if (n < b->program_bytes)
        return "the program is cut off";
    if (n > b->program_bytes)
        return "there are bytes behind the program";
    crypto_hash_sha256(hash, program, n);
    return memcmp(hash, b->hash, sizeof hash) == 0 ? NULL : "the program's SHA-256 is another one";
}

void bundle_sign(uint8_t header[BUNDLE_HEADER_BYTES], const struct bundle *b,
                 const uint8_t secret[BUNDLE_SECRET_BYTES])
{
    memset(header, 0, BUNDLE_HEADER_BYTES);
    memcpy(header, MAGIC, sizeof MAGIC);
    memcpy(header + 72, b->board, strnlen(b->board, BUNDLE_BOARD_BYTES));
    memcpy(header + 88, b->version, strnlen(b->version, BUNDLE_VERSION_BYTES));
    put64(header + 120, b->sequence);
    put64(header + 128, b->floor);
    put64(header + 136, b->program_bytes);
    memcpy(header + 144, b->hash, BUNDLE_HASH_BYTES);
    put64(header + PAYLOAD_AT, b->payload_bytes);
    crypto_sign_detached(header + SIGNATURE_AT, NULL, header + SIGNED_AT, SIGNED_BYTES, secret);
}

bool bundle_key_parse(uint8_t key[BUNDLE_KEY_BYTES], const char *text, size_t n)
{
    size_t len = 0;
    const char *end = NULL;
    return n == 2 * BUNDLE_KEY_BYTES + 1 && text[n - 1] == '\n' &&
           sodium_hex2bin(key, BUNDLE_KEY_BYTES, text, n - 1, NULL, &len, &end) == 0 &&
           len == BUNDLE_KEY_BYTES && end == text + n - 1;
}
