/*
 * Results between ranks of one process: each writes its columns into the memory of all.  Nobody
 * writes before everybody has come, since until then the old rows may be in use, and nobody goes on
 * before everything is written.
 */
#include "kernels/cpu/cpu_ops.h"

#include <string.h>

void cpu_meet(struct backend *base, struct meeting *meeting, int32_t rank)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(b->meeting == NULL);
    b->meeting = meeting;
    b->rank = rank;
}

static void push(const struct gather_piece *piece, int32_t rank, float *whole)
{
    int64_t cols = piece->cols[rank];
    for (int64_t t = 0; t < piece->n; t++)
        memcpy(whole + t * piece->width + piece->at[rank], piece->part + t * cols,
               (size_t)cols * sizeof *whole);
}

void cpu_gather(struct backend *base, const struct gather_params *p)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    ASSERT(b->meeting != NULL && p->rank == b->rank && p->ranks == meeting_ranks(b->meeting));
    meeting_wait(b->meeting, b->rank);
    for (int32_t i = 0; i < p->n_pieces; i++) {
        for (int32_t r = 0; r < p->ranks; r++)
            push(&p->pieces[i], p->rank, p->pieces[i].whole[r]);
    }
    meeting_wait(b->meeting, b->rank);
    witness_note(&b->witness, ROW_REDUCE_WIRE, REDUCE_WIRE_FP32, &p->place, p->n, 0);
    witness_note(&b->witness, ROW_REDUCE_ORDER, REDUCE_ORDER_FIXED, &p->place, p->n, 0);
}
