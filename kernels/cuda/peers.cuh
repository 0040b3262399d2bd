/*
 * What ranks on GPUs know of each other: memory that the others write into, events that they wait
 * for, and which of the ways of gather.cu was found to work.
 */
#ifndef V4BOX_KERNELS_CUDA_PEERS_CUH
#define V4BOX_KERNELS_CUDA_PEERS_CUH

#include "kernels/cuda/ops.cuh"

#define GATHER_BLOCKS_MAX 16
/* The most that a rank pushes to another at once: what is larger is worth a copy engine (measured:
 * NOTES.md, Ranks). */
#define INBOX_BYTES (1 << 20)

/* On each rank's GPU, written by the others; zero at the start. */
struct inbox {
    uint64_t flags[2][RANKS_MAX][GATHER_BLOCKS_MAX]; /* number of the gather that has come */
    /* By this rank: gathers before the recorded step that runs; whether one has waited in vain, so
     * that those behind it need not. */
    uint64_t base;
    uint32_t lost;
    float4 from[2][RANKS_MAX][INBOX_BYTES / sizeof(float4)];
};

struct peers {
    struct meeting *meeting; /* borrows */
    int32_t rank, ranks;
    int devices[RANKS_MAX];
    bool push;                        /* the self-test has found every byte */
    uint32_t limit_ms;                /* of a wait */
    struct inbox *inboxes[RANKS_MAX]; /* own one; the others borrowed; NULL: GPUs are shared */
    uint64_t epoch;                   /* gathers pushed */
    uint64_t recorded;                /* of the step that is being recorded */
    uint32_t *missing;                /* owns (pinned host memory) */
    cudaEvent_t ready, given; /* own: results are there; they are where the others have them */
    struct peers *all[RANKS_MAX];
};

void peers_destroy(struct peers *peers);
/* After the stream was waited for: ends the process when a rank has not come to another.  What a
 * rank has computed from what did not come reaches others behind its word that it did not. */
void peers_check(const struct peers *peers);

/* In front of a recorded step of so many gathers. */
void peers_advance(struct cuda_backend *b, uint64_t gathers);

void cuda_meet(struct backend *b, struct meeting *meeting, int32_t rank);
void cuda_gather(struct backend *b, const struct gather_params *p);

#endif
