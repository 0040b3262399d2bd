/* Small files of `key = value` lines. */
#include "init/keyfile.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CHECKSUM   "checksum"
#define SEAL_BYTES (sizeof CHECKSUM " = \n" - 1 + 16)

static uint64_t fnv1a(const char *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return hash;
}

static void seal_of(char seal[SEAL_BYTES + 1], const char *bytes, size_t n)
{
    snprintf(seal, SEAL_BYTES + 1, CHECKSUM " = %016" PRIx64 "\n", fnv1a(bytes, n));
}

/* Copies printable bytes; false: others, or too many. */
static bool take_bytes(char *to, size_t cap, const char *bytes, size_t n)
{
    if (n >= cap)
        return false;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] < ' ' || bytes[i] > '~')
            return false;
    memcpy(to, bytes, n);
    to[n] = '\0';
    return true;
}

bool keyfile_parse(const char *bytes, size_t n, keyfile_take take, void *context)
{
    char seal[SEAL_BYTES + 1], key[KEYFILE_KEY_BYTES], value[KEYFILE_VALUE_BYTES];
    if (n < SEAL_BYTES)
        return false;
    size_t end = n - SEAL_BYTES;
    seal_of(seal, bytes, end);
    if (memcmp(bytes + end, seal, SEAL_BYTES) != 0)
        return false;
    for (size_t i = 0; i < end;) {
        const char *line = bytes + i, *newline = memchr(line, '\n', end - i);
        const char *equals = memmem(line, end - i, " = ", 3);
        if (newline == NULL || equals == NULL || equals > newline || equals == line)
            return false;
        if (!take_bytes(key, sizeof key, line, (size_t)(equals - line)) ||
            !take_bytes(value, sizeof value, equals + 3, (size_t)(newline - equals) - 3) ||
            !take(context, key, value))
            return false;
        i = (size_t)(newline - bytes) + 1;
    }
    return true;
}

void keyfile_add(struct text *t, const char *key, const char *value)
{
    char line[KEYFILE_VALUE_BYTES];
    snprintf(line, sizeof line, "%s", value);
    for (char *p = line; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    text_printf(t, "%s = %s\n", key, line);
}

void keyfile_seal(struct text *t)
{
    char seal[SEAL_BYTES + 1];
    seal_of(seal, t->data, t->len);
    text_add(t, seal, SEAL_BYTES);
}
