/* The code of a box that nobody has claimed. */
#include "init/claim.h"

#include <string.h>
#include <sys/random.h>

/* Without letters that are read as others; 32 of them, so that five bits of a byte choose fairly.
 */
static const char ALPHABET[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

bool claim_open(struct claim *c, int64_t now_ms)
{
    unsigned char bytes[CLAIM_CODE_CHARS];
    *c = (struct claim){.guesses = CLAIM_GUESSES, .refill_ms = now_ms + CLAIM_GUESS_MS};
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        c->code[i] = ALPHABET[bytes[i] % (sizeof ALPHABET - 1)];
    explicit_bzero(bytes, sizeof bytes);
    c->open = true;
    return true;
}

void claim_close(struct claim *c)
{
    explicit_bzero(c, sizeof *c);
}

void claim_show(const struct claim *c, struct text *out)
{
    if (!c->open)
        return;
    for (int i = 0; i < CLAIM_CODE_CHARS; i += CLAIM_GROUP_CHARS)
        text_printf(out, "%s%.*s", i > 0 ? "-" : "", CLAIM_GROUP_CHARS, c->code + i);
}

static char letter_meant(char typed)
{
    char letter = typed >= 'a' && typed <= 'z' ? (char)(typed - 'a' + 'A') : typed;
    return letter == 'O' ? '0' : letter == 'I' || letter == 'L' ? '1' : letter;
}

/* The same work for every word of the same length, whatever is right in it. */
static bool is_code(const struct claim *c, const char *typed)
{
    char word[CLAIM_CODE_CHARS] = {0};
    size_t n = 0;
    for (const char *p = typed; *p != '\0'; p++) {
        if (*p == '-')
            continue;
        if (n < sizeof word)
            word[n] = letter_meant(*p);
        n++;
    }
    volatile unsigned char differs = n != sizeof word;
    for (size_t i = 0; i < sizeof word; i++)
        differs |= (unsigned char)(word[i] ^ c->code[i]);
    explicit_bzero(word, sizeof word);
    return differs == 0;
}

/* A bucket of guesses that fills slowly: a slip of the hand costs nothing, a search never ends. */
static bool may_guess(struct claim *c, int64_t now_ms)
{
    while (c->guesses < CLAIM_GUESSES && now_ms >= c->refill_ms) {
        c->guesses++;
        c->refill_ms += CLAIM_GUESS_MS;
    }
    if (c->guesses == 0)
        return false;
    if (c->guesses == CLAIM_GUESSES)
        c->refill_ms = now_ms + CLAIM_GUESS_MS;
    c->guesses--;
    return true;
}

enum claim_result claim_try(struct claim *c, const char *typed, int64_t now_ms)
{
    if (!c->open)
        return CLAIM_CLOSED;
    if (!may_guess(c, now_ms))
        return CLAIM_WAIT;
    return is_code(c, typed) ? CLAIM_RIGHT : CLAIM_WRONG;
}

const char *claim_result_text(enum claim_result result)
{
    static const char *const TEXTS[] = {
        [CLAIM_RIGHT] = "the box is yours",
        [CLAIM_WRONG] = "not the code; it stands on the box's serial line",
        [CLAIM_WAIT] = "too many guesses, wait a few seconds",
        [CLAIM_CLOSED] = "the box has been claimed",
    };
    return TEXTS[result];
}
