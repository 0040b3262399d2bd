/* The built-in profiles, and what can be done with the values of one. */
#include "engine/precision/profile.h"

#include "engine/base/fnv.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Short enough: operators make dozens of profiles, not billions. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do { /* the NUL too, so that names cannot run into each other */
        hash = fnv_add(hash, (uint8_t)*text);
    } while (*text++ != '\0');
    return hash;
}

static uint64_t hash_of(const struct profile *p)
{
    char version[16];
    snprintf(version, sizeof version, "%d", PRECISION_TABLE_VERSION);
    uint64_t hash = hash_text(FNV_BASIS, version);
    for (int row = 0; row < PRECISION_ROWS; row++) {
        hash = hash_text(hash, PRECISION[row].name);
        hash = hash_text(hash, PRECISION[row].values[p->values[row]].name);
    }
    return hash;
}

static struct profile builtins[PROFILE_BUILTINS];

static void builtins_fill(void)
{
    static const char *const NAMES[PROFILE_BUILTINS] = {"reference", "official", "balanced",
                                                        "fast"};
    for (int column = 0; column < PROFILE_BUILTINS; column++) {
        struct profile *p = &builtins[column];
        snprintf(p->name, sizeof p->name, "%s", NAMES[column]);
        for (int row = 0; row < PRECISION_ROWS; row++) {
            const struct precision_switch *s = &PRECISION[row];
            const uint8_t values[PROFILE_BUILTINS] = {0, s->official, s->balanced, s->fast};
            p->values[row] = values[column];
        }
        p->hash = hash_of(p);
    }
}

const struct profile *profile_builtin_at(enum profile_column column)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    pthread_once(&filled, builtins_fill);
    return &builtins[column];
}

const struct profile *profile_builtin(const char *name)
{
    for (int column = 0; column < PROFILE_BUILTINS; column++) {
        const struct profile *p = profile_builtin_at((enum profile_column)column);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

bool profile_name_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return n > 0 && n < PROFILE_NAME_BYTES && name[n] == '\0';
}

int profile_row_parse(const char *name)
{
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if (strcmp(PRECISION[row].name, name) == 0)
            return row;
    }
    return -1;
}

int profile_value_parse(enum precision_row row, const char *name)
{
    for (int value = 0; value < PRECISION[row].n_values; value++) {
        if (strcmp(PRECISION[row].values[value].name, name) == 0)
            return value;
    }
    return -1;
}

/* The next word up to one of `ends`, as a string; too long a word is no name of anything. */
static bool word_take(const char **at, const char *ends, char *word, size_t size)
{
    size_t n = strcspn(*at, ends);
    if (n == 0 || n >= size)
        return false;
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n;
    return true;
}

bool profile_parse(const char *text, struct profile *out, const char **wrong, int *n)
{
    char name[PROFILE_NAME_BYTES - 1], row[PROFILE_NAME_BYTES], value[PROFILE_NAME_BYTES];
    const char *at = text;
    *wrong = text;
    *n = (int)strcspn(text, ",");
    if (!word_take(&at, ",", name, sizeof name) || profile_builtin(name) == NULL)
        return false;
    struct profile p = *profile_builtin(name);
    while (*at == ',') {
        *wrong = ++at;
        *n = (int)strcspn(at, ",");
        if (!word_take(&at, "=,", row, sizeof row) || *at++ != '=' ||
            !word_take(&at, ",", value, sizeof value))
            return false;
        int found = profile_row_parse(row);
        if (found < 0 || !profile_set(&p, found, profile_value_parse(found, value)))
            return false;
        snprintf(p.name, sizeof p.name, "%s+", name);
    }
    *out = p;
    return true;
}

bool profile_set(struct profile *p, enum precision_row row, int value)
{
    if (value < 0 || value >= PRECISION[row].n_values)
        return false;
    p->values[row] = (uint8_t)value;
    p->hash = hash_of(p);
    return true;
}

const char *profile_value_name(const struct profile *p, enum precision_row row)
{
    return PRECISION[row].values[p->values[row]].name;
}

bool profile_equal(const struct profile *a, const struct profile *b)
{
    return memcmp(a->values, b->values, sizeof a->values) == 0;
}

bool profile_may_serve(const struct profile *p, enum precision_row *row)
{
    for (int i = 0; i < PRECISION_ROWS; i++) {
        if (PRECISION[i].values[p->values[i]].use != USE_SERVE) {
            *row = (enum precision_row)i;
            return false;
        }
    }
    return true;
}

void profile_hash_text(const struct profile *p, char text[PROFILE_HASH_BYTES])
{
    snprintf(text, PROFILE_HASH_BYTES, "%016llx", (unsigned long long)p->hash);
}
