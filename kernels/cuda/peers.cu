/*
 * Ranks on GPUs get to know each other.  Access to another GPU's memory can lose writes without any
 * error (behind an IOMMU), or never end, so it is believed only after a test: every rank pushes
 * patterns to every other one, small and large, in both turns of the inbox, and each byte is looked
 * at.  The way that was chosen is timed: memory that is reached by detours works, slowly.  The
 * verdict is printed; all ranks go the same way.
 */
#include "kernels/cuda/peers.cuh"
#include "kernels/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A wait of the self-test: a thousand times what it takes. */
#define TEST_LIMIT_MS 2000
/* What a rank gives for one token, about. */
#define TIMED_BYTES 8192

/* Written by rank 0 while the ranks meet, read once they are there. */
static enum gauge_peers found = PEERS_ALONE;

enum gauge_peers backend_cuda_peers(void)
{
    return found;
}

void peers_destroy(struct peers *peers)
{
    if (peers == NULL)
        return;
    if (peers->inboxes[peers->rank] != NULL)
        CUDA_CHECK(cudaFree(peers->inboxes[peers->rank]));
    CUDA_CHECK(cudaFreeHost(peers->missing));
    CUDA_CHECK(cudaEventDestroy(peers->ready));
    CUDA_CHECK(cudaEventDestroy(peers->given));
    free(peers);
}

void peers_check(const struct peers *peers)
{
    for (int32_t r = 0; peers != NULL && r < peers->ranks; r++) {
        uint32_t missing = *(volatile uint32_t *)peers->all[r]->missing;
        if (missing == 0)
            continue;
        fault_end("ranks: rank %u of %d has not come within %u ms, says rank %d",
                  (unsigned)missing - 1, (int)peers->ranks, (unsigned)peers->limit_ms, (int)r);
    }
}

/* ---- the self-test -------------------------------------------------------------------------- */

static float pattern(int32_t rank, int32_t round, int64_t i)
{
    uint32_t bits = (uint32_t)i * 2654435761u + (uint32_t)(rank * 977 + round * 131071);
    return (float)(bits >> 8);
}

/* What a rank gives and gets. */
struct trial {
    float *part;             /* owns (device): [INBOX_BYTES] */
    float *whole[RANKS_MAX]; /* own one (device): [RANKS_MAX * INBOX_BYTES]; the others borrowed */
    float *host;             /* owns; as whole */
};

static struct trial trial_begin(const struct peers *peers)
{
    struct trial t = {};
    size_t bytes = (size_t)INBOX_BYTES * RANKS_MAX;
    t.host = (float *)malloc(bytes);
    ASSERT(t.host != NULL);
    CUDA_CHECK(cudaMalloc((void **)&t.part, INBOX_BYTES));
    CUDA_CHECK(cudaMalloc((void **)&t.whole[peers->rank], bytes));
    CUDA_CHECK(cudaMemset(t.part, 0, INBOX_BYTES));
    meeting_show(peers->meeting, peers->rank, t.whole[peers->rank]);
    meeting_wait(peers->meeting, peers->rank);
    for (int32_t r = 0; r < peers->ranks; r++)
        t.whole[r] = (float *)meeting_shown(peers->meeting, r);
    meeting_wait(peers->meeting, peers->rank);
    return t;
}

static void trial_end(const struct peers *peers, struct trial *t)
{
    meeting_wait(peers->meeting, peers->rank); /* nobody writes there any more */
    CUDA_CHECK(cudaFree(t->part));
    CUDA_CHECK(cudaFree(t->whole[peers->rank]));
    free(t->host);
}

/* A gather of `cols` numbers of each rank. */
static void trial_gather(struct cuda_backend *b, const struct trial *t, int32_t cols)
{
    const struct peers *peers = b->peers;
    struct gather_params p = {peers->rank, peers->ranks, 1};
    p.pieces[0].part = t->part, p.pieces[0].n = 1, p.pieces[0].width = cols * peers->ranks;
    for (int32_t r = 0; r < peers->ranks; r++) {
        p.pieces[0].whole[r] = t->whole[r];
        p.pieces[0].at[r] = r * cols, p.pieces[0].cols[r] = cols;
    }
    cuda_gather(&b->base, &p);
}

/* @return every number is right */
static bool test_round(struct cuda_backend *b, const struct trial *t, int32_t cols, int32_t round)
{
    struct peers *peers = b->peers;
    int32_t all = cols * peers->ranks;
    float *host = t->host, *whole = t->whole[peers->rank];
    for (int32_t i = 0; i < cols; i++)
        host[i] = pattern(peers->rank, round, i);
    b->base.ops->upload(&b->base, t->part, host, (size_t)cols * sizeof(float));
    CUDA_CHECK(cudaMemsetAsync(whole, 0xff, (size_t)all * sizeof(float), stream_of(b)));
    trial_gather(b, t, cols);
    CUDA_CHECK(cudaMemcpyAsync(host, whole, (size_t)all * sizeof(float), cudaMemcpyDeviceToHost,
                               b->stream));
    CUDA_CHECK(cudaStreamSynchronize(b->stream));
    bool good = *(volatile uint32_t *)peers->missing == 0;
    for (int32_t i = 0; i < all; i++)
        good = good && host[i] == pattern(i / cols, round, i % cols);
    return good;
}

static bool test_run(struct cuda_backend *b, const struct trial *t)
{
    static const int32_t COLS[] = {4, 512, 4096, INBOX_BYTES / sizeof(float), 128, 4};
    bool good = true;
    for (size_t i = 0; i < sizeof COLS / sizeof *COLS; i++)
        good = test_round(b, t, COLS[i], (int32_t)i) && good;
    return good;
}

/* A gather as steps launch it, one behind another, on the mean.  @unit microseconds */
static double test_time(struct cuda_backend *b, const struct trial *t, int32_t cols)
{
    const int WARM = 3, TIMES = 20;
    cudaEvent_t from, to;
    float ms;
    CUDA_CHECK(cudaEventCreate(&from));
    CUDA_CHECK(cudaEventCreate(&to));
    for (int i = 0; i < WARM + TIMES; i++) {
        if (i == WARM)
            CUDA_CHECK(cudaEventRecord(from, stream_of(b)));
        trial_gather(b, t, cols);
    }
    CUDA_CHECK(cudaEventRecord(to, stream_of(b)));
    CUDA_CHECK(cudaEventSynchronize(to));
    peers_check(b->peers);
    CUDA_CHECK(cudaEventElapsedTime(&ms, from, to));
    CUDA_CHECK(cudaEventDestroy(from));
    CUDA_CHECK(cudaEventDestroy(to));
    return (double)ms * 1000 / TIMES;
}

/* ---- meeting -------------------------------------------------------------------------------- */

/* What every rank says of a question: yes when all do. */
static bool all_agree(struct peers *peers, bool mine)
{
    bool all = true;
    static char yes, no;
    meeting_show(peers->meeting, peers->rank, mine ? &yes : &no);
    meeting_wait(peers->meeting, peers->rank);
    for (int32_t r = 0; r < peers->ranks; r++)
        all = all && meeting_shown(peers->meeting, r) == &yes;
    meeting_wait(peers->meeting, peers->rank);
    return all;
}

/* Whether this rank's GPU is its own and reaches all others. */
static bool reaches_all(const struct peers *peers)
{
    bool all = true;
    for (int32_t r = 0; r < peers->ranks; r++) {
        int can = 0;
        if (r == peers->rank)
            continue;
        if (peers->devices[r] == peers->devices[peers->rank])
            return false;
        CUDA_CHECK(cudaDeviceCanAccessPeer(&can, peers->devices[peers->rank], peers->devices[r]));
        all = all && can != 0;
    }
    return all;
}

static void reach(const struct peers *peers)
{
    for (int32_t r = 0; r < peers->ranks; r++) {
        if (r == peers->rank)
            continue;
        cudaError_t error = cudaDeviceEnablePeerAccess(peers->devices[r], 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError(); /* of an earlier network of this process */
        else
            CUDA_CHECK(error);
    }
}

static void inbox_make(struct cuda_backend *b)
{
    struct peers *peers = b->peers;
    struct inbox *own;
    CUDA_CHECK(cudaMalloc((void **)&own, sizeof *own));
    CUDA_CHECK(cudaMemset(own, 0, sizeof *own));
    peers->inboxes[peers->rank] = own;
    peers_advance(
        b, 0); /* a kernel that is not there yet may wait for all GPUs when it is asked for */
    meeting_wait(peers->meeting, peers->rank);
    for (int32_t r = 0; r < peers->ranks; r++)
        peers->inboxes[r] = peers->all[r]->inboxes[r];
    meeting_wait(peers->meeting, peers->rank);
}

void cuda_meet(struct backend *base, struct meeting *meeting, int32_t rank)
{
    struct cuda_backend *b = cuda_of(base);
    struct peers *peers = (struct peers *)calloc(1, sizeof *peers);
    ASSERT(peers != NULL && b->peers == NULL);
    b->peers = peers;
    peers->meeting = meeting;
    peers->rank = rank;
    peers->ranks = meeting_ranks(meeting);
    peers->limit_ms = TEST_LIMIT_MS;
    CUDA_CHECK(cudaGetDevice(&peers->devices[rank]));
    CUDA_CHECK(cudaEventCreateWithFlags(&peers->ready, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&peers->given, cudaEventDisableTiming));
    CUDA_CHECK(cudaHostAlloc((void **)&peers->missing, sizeof *peers->missing,
                             cudaHostAllocMapped | cudaHostAllocPortable));
    *peers->missing = 0;
    meeting_show(meeting, rank, peers);
    meeting_wait(meeting, rank);
    for (int32_t r = 0; r < peers->ranks; r++) {
        peers->all[r] = (struct peers *)meeting_shown(meeting, r);
        peers->devices[r] = peers->all[r]->devices[r];
    }
    meeting_wait(meeting, rank);
    enum gauge_peers verdict = PEERS_SHARED;
    struct trial trial = trial_begin(peers);
    if (all_agree(peers, reaches_all(peers))) {
        reach(peers);
        inbox_make(b);
        peers->push = true;
        peers->push = all_agree(peers, test_run(b, &trial));
        verdict = peers->push ? PEERS_PUSH : PEERS_LOST;
    }
    *peers->missing = 0;
    peers->limit_ms = meeting_limit(meeting);
    double small = test_time(b, &trial, TIMED_BYTES / sizeof(float));
    double large = test_time(b, &trial, INBOX_BYTES / sizeof(float));
    trial_end(peers, &trial);
    if (rank != 0)
        return;
    found = verdict;
    fprintf(stderr, "ranks: %d of them; %s; %.1f us for %d KiB of each, %.1f for %d KiB\n",
            (int)peers->ranks, gauge_peers_text(verdict), small, TIMED_BYTES >> 10, large,
            INBOX_BYTES >> 10);
}
