/*
 * Steps that come again: what a step enqueues is recorded as one graph, so that the host launches
 * it at once.  A step is known by a key, compared byte by byte, of which all its parameters follow;
 * what differs between two steps of a key lies in device memory.  The first one of a key runs as it
 * is, which also brings its weights to the device; the second one is recorded.  Kernels write their
 * evidence at every replay, so that a recording of another profile would show.
 */
#include "kernels/cuda/peers.cuh"

#include <stdlib.h>
#include <string.h>

struct recording {
    void *key; /* owns; NULL: free */
    size_t bytes;
    cudaGraphExec_t exec; /* owns; NULL: seen once */
    uint64_t gathers;     /* between ranks */
    uint64_t used;
};

struct recordings {
    struct recording steps[RECORDED_STEPS_MAX];
    struct recording *open; /* borrows; what is being recorded */
    uint64_t clock;
    bool off;
};

/* All ranks, none of whose GPUs has anything to do. */
static void quiet_meet(struct cuda_backend *b)
{
    CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    meeting_wait(b->peers->meeting, b->peers->rank);
}

static void recording_clear(struct recording *r)
{
    if (r->exec != NULL)
        CUDA_CHECK(cudaGraphExecDestroy(r->exec));
    free(r->key);
    *r = {};
}

struct recordings *recordings_create(void)
{
    struct recordings *r = (struct recordings *)calloc(1, sizeof *r);
    ASSERT(r != NULL);
    return r;
}

void recordings_destroy(struct recordings *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < RECORDED_STEPS_MAX; i++)
        recording_clear(&r->steps[i]);
    free(r);
}

void backend_cuda_recording(struct backend *b, bool on)
{
    cuda_of(b)->recordings->off = !on;
}

/* The step of this key, or the place for it: a free one, or that of the one not used longest. */
static struct recording *recording_find(struct recordings *r, const void *key, size_t bytes)
{
    struct recording *oldest = &r->steps[0];
    for (int i = 0; i < RECORDED_STEPS_MAX; i++) {
        struct recording *step = &r->steps[i];
        if (step->key != NULL && step->bytes == bytes && memcmp(step->key, key, bytes) == 0)
            return step;
        if (step->used < oldest->used)
            oldest = step;
    }
    recording_clear(oldest);
    return oldest;
}

bool recording_runs(const struct recordings *r)
{
    return r->open != NULL;
}

static void recording_launch(struct cuda_backend *b, const struct recording *step)
{
    if (step->gathers > 0)
        peers_advance(b, step->gathers);
    CUDA_CHECK(cudaGraphLaunch(step->exec, stream_of(b)));
}

bool cuda_replay(struct backend *base, const void *key, size_t bytes)
{
    struct cuda_backend *b = cuda_of(base);
    struct recordings *r = b->recordings;
    ASSERT(r->open == NULL);
    /* Ranks that copy wait for each other on the host, which is in no recording. */
    if (r->off || (b->peers != NULL && !b->peers->push))
        return false;
    struct recording *step = recording_find(r, key, bytes);
    step->used = ++r->clock;
    if (step->exec != NULL) {
        recording_launch(b, step);
        return true;
    }
    if (step->key == NULL) {
        step->key = malloc(bytes);
        ASSERT(step->key != NULL);
        memcpy(step->key, key, bytes);
        step->bytes = bytes;
        return false;
    }
    r->open = step;
    if (b->peers != NULL)
        b->peers->recorded = 0;
    CUDA_CHECK(cudaStreamBeginCapture(stream_of(b), cudaStreamCaptureModeThreadLocal));
    return false;
}

void cuda_replay_end(struct backend *base)
{
    struct cuda_backend *b = cuda_of(base);
    struct recording *step = b->recordings->open;
    if (step == NULL)
        return;
    b->recordings->open = NULL;
    cudaGraph_t graph;
    CUDA_CHECK(cudaStreamEndCapture(stream_of(b), &graph));
    CUDA_CHECK(cudaGraphInstantiate(&step->exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaGraphUpload(step->exec, stream_of(b)));
    if (b->peers != NULL) {
        step->gathers = b->peers->recorded;
        /* No rank may be making its own graph while another one waits for it on a GPU. */
        quiet_meet(b);
    }
    recording_launch(b, step);
}
