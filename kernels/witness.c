/* Arithmetic of witness tables. */
#include "kernels/witness.h"

#include "kernels/check.h"

#include <string.h>

uint64_t witness_parameter(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void cell_add(struct witness_cell *cell, const struct witness_cell *more)
{
    if (more->launches == 0)
        return;
    cell->varied |= more->varied || (cell->launches > 0 && cell->parameters != more->parameters);
    cell->parameters = more->parameters;
    cell->launches += more->launches;
    cell->rows += more->rows;
}

void witness_note(struct witness_table *table, enum precision_row row, int value,
                  const struct place *place, int32_t n, double parameter)
{
    ASSERT(value >= 0 && value < PRECISION[row].n_values && place->n_decode <= n);
    const int32_t rows[LEGS] = {
        [LEG_PREFILL] = n - place->n_decode, [LEG_DECODE] = place->n_decode};
    for (int leg = 0; leg < LEGS; leg++) {
        if (rows[leg] > 0)
            cell_add(&table->cells[row][place->kind][leg][value],
                     &(struct witness_cell){1, (uint64_t)rows[leg], witness_parameter(parameter),
                                            false});
    }
}

void witness_add(struct witness_table *to, const struct witness_table *from)
{
    struct witness_cell *cell = &to->cells[0][0][0][0];
    const struct witness_cell *more = &from->cells[0][0][0][0];
    for (size_t i = 0; i < sizeof *to / sizeof *cell; i++)
        cell_add(&cell[i], &more[i]);
}
