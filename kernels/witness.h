/*
 * What really ran: counters that an operation increases in the code that did the arithmetic, by
 * row of the precision table, layer kind, leg and value.  Every backend owns one table, which is
 * read and cleared through its operations.  More than one value seen in a cell's place is kept:
 * that is a mixture.  Knows no profile: who compares is the audit.
 */
#ifndef V4BOX_KERNELS_WITNESS_H
#define V4BOX_KERNELS_WITNESS_H

#include "kernels/precision.h"

#include <stdbool.h>
#include <stdint.h>

/* Where an operation runs. */
struct place {
    enum layer_kind kind;
    int32_t n_decode; /* of the operation's rows, those of the decode leg; they stand anywhere */
};

struct witness_cell {
    uint64_t launches;   /* calls of the operation that used the value */
    uint64_t rows;       /* tokens (blocks for compressor_pool) that it was used for */
    uint64_t parameters; /* bits of the parameter last seen, as witness_parameter gives them */
    bool varied;         /* more than one parameter was seen */
};

struct witness_table {
    struct witness_cell cells[PRECISION_ROWS][LAYER_KINDS][LEGS][PRECISION_VALUES_MAX];
};

/** What a value's number looks like in a witness: the bits of the double (a clamp's limit, a
 * factor, a number of keys). */
uint64_t witness_parameter(double value);

/** Notes that `value` was used for n rows of one call. */
void witness_note(struct witness_table *table, enum precision_row row, int value,
                  const struct place *place, int32_t n, double parameter);

/** Every cell of `from` onto `to`. */
void witness_add(struct witness_table *to, const struct witness_table *from);

#endif
