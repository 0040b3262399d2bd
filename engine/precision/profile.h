/*
 * A precision profile: one value for every row of config/precision.def, under a name.  The built-in
 * ones are columns of that table; an operator's own are made by whoever stores them.
 * Knows no network and no files.
 */
#ifndef V4BOX_ENGINE_PRECISION_PROFILE_H
#define V4BOX_ENGINE_PRECISION_PROFILE_H

#include "kernels/precision.h"

#include <stdbool.h>
#include <stdint.h>

/* A name of letters, digits, '-' and '_', with the NUL. */
#define PROFILE_NAME_BYTES 32
/* "0123456789abcdef" with the NUL. */
#define PROFILE_HASH_BYTES 17

enum profile_column {
    PROFILE_REFERENCE,
    PROFILE_OFFICIAL,
    PROFILE_BALANCED,
    PROFILE_FAST,
    PROFILE_BUILTINS
};

struct profile {
    char name[PROFILE_NAME_BYTES];
    uint8_t values[PRECISION_ROWS]; /* below n_values of their row */
    /* Of the table's version and the names of all rows and chosen values; the profile's own name is
     * not in it: what two profiles of equal values leave behind is interchangeable. */
    uint64_t hash;
};

/** A built-in profile; they live as long as the program. */
const struct profile *profile_builtin_at(enum profile_column column);
/** @return NULL: no built-in profile has that name */
const struct profile *profile_builtin(const char *name);
bool profile_name_valid(const char *name);

/** @return the row of that name, or -1 */
int profile_row_parse(const char *row);
/** @return the value of that name in the row, or -1 */
int profile_value_parse(enum precision_row row, const char *value);

/** Reads "NAME" or "NAME,ROW=VALUE,..": a built-in profile, or one with some values changed, whose
 * name is then "NAME+".  @return false: a name is unknown; *wrong is where in the text, *n its
 * length */
bool profile_parse(const char *text, struct profile *out, const char **wrong, int *n);

/** Changes one value and the hash with it.  @return false: no such value, nothing changed */
bool profile_set(struct profile *profile, enum precision_row row, int value);
/** The value's name, as it stands in the table. */
const char *profile_value_name(const struct profile *profile, enum precision_row row);
/** True when both compute the same numbers: equal values, whatever the names. */
bool profile_equal(const struct profile *a, const struct profile *b);
/** @return false: it has a value that must never serve (precision_use), in *row */
bool profile_may_serve(const struct profile *profile, enum precision_row *row);
/** Sixteen hexadecimal digits. */
void profile_hash_text(const struct profile *profile, char text[PROFILE_HASH_BYTES]);

#endif
