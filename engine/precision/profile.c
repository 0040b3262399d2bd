/* The built-in profiles, and what can be done with the values of one. */
#include "engine/precision/profile.h"

#include "kernels/check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* FNV-1a: stable across builds, and operators make dozens of profiles, not billions. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do { /* the NUL too, so that names cannot run into each other */
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    } while (*text++ != '\0');
    return hash;
}

static uint64_t hash_of(const struct profile *p)
{
    char version[16];
    snprintf(version, sizeof version, "%d", PRECISION_TABLE_VERSION);
    uint64_t hash = hash_text(0xcbf29ce484222325u, version);
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
