/*
 * The flags of all commands, and the token-id file of `engine logits` and `engine layer`.  Knows no
 * arithmetic.
 */
#ifndef V4BOX_ENGINE_MODEL_OPTIONS_H
#define V4BOX_ENGINE_MODEL_OPTIONS_H

#include "engine/base/buf.h"
#include "engine/model/model.h"

#include <stdbool.h>

enum flag_kind { FLAG_TEXT, FLAG_NUMBER, FLAG_SWITCH, FLAG_PROFILE, FLAG_ISA, FLAG_LIST };

/* What FLAG_LIST collects: the one kind that may be given more than once. */
struct flag_list {
    const char **texts; /* [max]; borrow from argv */
    int32_t n, max;
};

/* One flag that a command knows; `value` is what the kind says. */
struct flag {
    const char *name; /* with the dashes */
    enum flag_kind kind;
    void *value; /* const char **, int32_t *, bool *, struct profile *, enum isa *, flag_list * */
    bool required;
    bool seen;   /* set by flags_parse */
    int32_t max; /* FLAG_NUMBER: from 1 to this; 0: from 0 on */
};

/** Reads argv[1..] into the flags.  @err ERR_USAGE naming the flag */
enum status MUST_CHECK flags_parse(int argc, char **argv, struct flag *flags, int n_flags,
                                   struct error *err);

/** Reads a JSON array of 1 to POSITIONS_MAX token ids below vocab_size.
 *  @own ids_free  @err ERR_INPUT or ERR_IO naming the file and the element */
enum status MUST_CHECK ids_file_read(const char *path, int32_t vocab_size, struct ids *out,
                                     struct error *err);

/** A whole decimal number in a range.  @return false: it is none */
bool number_parse(const char *text, int32_t low, int32_t high, int32_t *out);

#endif
