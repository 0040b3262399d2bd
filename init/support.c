/* What `support` collects. */
#include "init/support.h"

#include "config/box.h"

#include <stdbool.h>
#include <string.h>

#define MASK         "[masked]"
#define KEY_HEAD     "ds_"
#define KEY_BYTES    (sizeof KEY_HEAD - 1 + 8 + 1) /* up to the secret part: its id is no secret */
#define SECRET_LEAST 24 /* letters of the shortest half of a secret that is worth something */
#define ALPHABET     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* Looks alone: what changes nothing, and waits for nobody. */
static const char *const COMMANDS[] = {
    "status",
    "gpu",
    "time",
    "net",
    "settings",
    "update status",
    "secure-boot",
    "tls status",
    "model list",
    "profile list",
    "profile history",
    "audit status",
    "audit history",
    "keys list",
    "prefixes status",
    "metrics",
    "log changes 200",
    "log 2000",
    "log stored 2000",
};

const char *support_command(size_t i)
{
    return i < sizeof COMMANDS / sizeof COMMANDS[0] ? COMMANDS[i] : NULL;
}

/* Bytes of the API key at `p` that stay readable; 0: there is none. */
static size_t key_head(const char *p, size_t n)
{
    if (n <= KEY_BYTES || memcmp(p, KEY_HEAD, sizeof KEY_HEAD - 1) != 0 || p[KEY_BYTES - 1] != '_')
        return 0;
    return KEY_BYTES;
}

static bool is_in(const char *set, char c)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static size_t span(const char *p, size_t n, const char *set)
{
    size_t length = 0;
    while (length < n && is_in(set, p[length]))
        length++;
    return length;
}

/* Bytes of the block of a private key at `p`, its last line included; 0: there is none. */
static size_t private_block(const char *p, size_t n)
{
    static const char HEAD[] = "-----BEGIN ", TAIL[] = "-----END ", WHAT[] = "PRIVATE KEY";
    if (n < sizeof HEAD || memcmp(p, HEAD, sizeof HEAD - 1) != 0)
        return 0;
    const char *newline = memchr(p, '\n', n);
    size_t first = newline == NULL ? n : (size_t)(newline - p);
    if (memmem(p, first, WHAT, sizeof WHAT - 1) == NULL)
        return 0;
    const char *tail = memmem(p, n, TAIL, sizeof TAIL - 1);
    if (tail == NULL)
        return n;
    newline = memchr(tail, '\n', n - (size_t)(tail - p));
    return newline == NULL ? n : (size_t)(newline - p);
}

/* Letters in both cases and digits mixed, as random ones are.  Hashes are of one case, and words
 * have no digits. */
static bool looks_random(const char *p, size_t n)
{
    bool upper = false, lower = false, digit = false;
    for (size_t i = 0; i < n; i++) {
        upper = upper || (p[i] >= 'A' && p[i] <= 'Z');
        lower = lower || (p[i] >= 'a' && p[i] <= 'z');
        digit = digit || (p[i] >= '0' && p[i] <= '9');
    }
    return upper && lower && digit;
}

void support_mask(struct text *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t block = private_block(text + i, n - i), head = key_head(text + i, n - i);
        if (block > 0) {
            text_add(out, MASK, sizeof MASK - 1);
            i += block;
            continue;
        }
        text_add(out, text + i, head);
        i += head;
        size_t word = span(text + i, n - i, ALPHABET);
        if (head > 0 || (word >= SECRET_LEAST && looks_random(text + i, word)))
            text_add(out, MASK, sizeof MASK - 1);
        else
            text_add(out, text + i, word > 0 ? word : 1);
        i += word > 0 ? word : head == 0;
    }
}
