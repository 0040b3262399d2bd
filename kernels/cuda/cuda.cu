/* The CUDA backend as an object: the device, scratch memory, plain memory, the table, the timer. */
#include "kernels/cuda/peers.cuh"
#include "kernels/cuda/spans.cuh"
#include "kernels/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cuda_check(cudaError_t error, const char *what, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    int device = -1;
    (void)cudaGetDevice(&device);
    fault_end("GPU %d failed: %s: %s (%s:%d)", device, cudaGetErrorString(error), what, file, line);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Memory calls may wait for all GPUs and keep other calls waiting: nothing of this rank may then be
 * waiting for another one, whose host has not launched yet what is waited for. */
static void quiet(struct cuda_backend *b)
{
    if (b->peers != NULL)
        CUDA_CHECK(cudaStreamSynchronize(b->stream));
}

static void *reserve(struct backend *base, size_t bytes)
{
    void *memory = NULL;
    quiet(cuda_of(base));
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError(); /* a refusal is an answer, not a failure */
        return NULL;
    }
    CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream_of(cuda_of(base))));
    return memory;
}

static void release(struct backend *base, void *memory, size_t bytes)
{
    (void)bytes;
    quiet(cuda_of(base));
    CUDA_CHECK(cudaFree(memory)); /* waits for the device */
}

static void clear(struct backend *base, void *memory, size_t bytes)
{
    CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream_of(cuda_of(base))));
}

static void upload(struct backend *base, void *device, const void *host, size_t bytes)
{
    /* From pageable memory: the call returns when the bytes are on their way. */
    cudaStream_t stream = stream_of(cuda_of(base));
    CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

static void download(struct backend *base, void *host, const void *device, size_t bytes)
{
    cudaStream_t stream = stream_of(cuda_of(base));
    CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    peers_check(cuda_of(base)->peers);
}

static void copy(struct backend *base, void *device_to, const void *device_from, size_t bytes)
{
    cudaStream_t stream = stream_of(cuda_of(base));
    CUDA_CHECK(cudaMemcpyAsync(device_to, device_from, bytes, cudaMemcpyDeviceToDevice, stream));
}

/* ---- the object ----------------------------------------------------------------------------- */

static void destroy(struct backend *base)
{
    if (base == NULL)
        return;
    struct cuda_backend *b = cuda_of(base);
    CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    peers_destroy(b->peers);
    recordings_destroy(b->recordings);
    products_destroy(b->held);
    spans_destroy(b->spans);
    picks_destroy(b->picks);
    weight_map_destroy(b->weights);
    CUDA_CHECK(cudaFree(b->scratch));
    CUDA_CHECK(cudaStreamDestroy(b->stream));
    free(b);
}

static const char *variant(const struct backend *base)
{
    return ((const struct cuda_backend *)base)->variant;
}

static void witness_read(struct backend *base, struct witness_table *out)
{
    struct cuda_backend *b = cuda_of(base);
    download(base, out, b->witness, sizeof *out);
    clear(base, b->witness, sizeof *out);
}

static const struct backend_ops OPS = {
    .destroy = destroy,
    .variant = variant,
    .reserve = reserve,
    .release = release,
    .clear = clear,
    .upload = upload,
    .download = download,
    .copy = copy,
    .embed = cuda_embed,
    .hc_pre = cuda_hc_pre,
    .hc_post = cuda_hc_post,
    .hc_head = cuda_hc_head,
    .rms_norm = cuda_rms_norm,
    .linear = cuda_linear,
    .grouped = cuda_grouped,
    .rope_table = cuda_rope_table,
    .query = cuda_query,
    .kv_store = cuda_kv_store,
    .compressor_store = cuda_compressor_store,
    .compressor_pool = cuda_compressor_pool,
    .index_query = cuda_index_query,
    .index_select = cuda_index_select,
    .attention = cuda_attention,
    .route = cuda_route,
    .experts = cuda_experts,
    .mtp_join = cuda_mtp_join,
    .pick = cuda_pick,
    .load = cuda_load,
    .meet = cuda_meet,
    .gather = cuda_gather,
    .replay = cuda_replay,
    .replay_end = cuda_replay_end,
    .witness_read = witness_read,
    .step_tokens = STEP_TOKENS_MAX,
};

/* Fills the pointers; without a base it only counts. */
static size_t scratch_carve(struct cuda_backend *b, char *base)
{
    const struct backend_limits *l = &b->limits;
    const int64_t tokens = l->tokens, entries = tokens * l->top;
    int64_t width = l->group_cols; /* of all rows of a token that are made ready at once */
    width = width > l->cols ? width : l->cols;
    width = width > 2 * l->hidden ? width : 2 * l->hidden;
    width = width > (int64_t)l->top * l->inner ? width : (int64_t)l->top * l->inner;
    const int64_t values = tokens * width;
    const struct {
        void *member;
        int64_t bytes;
    } PIECES[] = {
        {&b->rounded, values * 4},
        {&b->half.part[0], values * 2},
        {&b->half.part[1], values * 2},
        {&b->half.part[2], values * 2},
        {&b->half.scale, values / CHUNK * 4},
        {&b->half.n_parts, values / CHUNK},
        {&b->bfloat.part[0], tokens * l->cols * 2},
        {&b->bfloat.part[1], tokens * l->cols * 2},
        {&b->bfloat.part[2], tokens * l->cols * 2},
        {&b->bfloat.n_parts, tokens},
        {&b->witness, (int64_t)sizeof *b->witness},
        {&b->mixes, tokens * MIX_PARTS * (HC_MIX + 1) * 8},
        {&b->attention_states, (int64_t)ATTENTION_STATES_BYTES},
        {&b->index_scores, (int64_t)INDEX_SCORES_MAX * 8},
        {&b->router, tokens * l->experts * 4},
        {&b->entry_token, entries * 4},
        {&b->entry_of, entries * 4},
        {&b->entry_weight, entries * 4},
        {&b->items, entries * (int64_t)sizeof(struct item)},
        {&b->n_items, 4},
        {&b->gate, entries * l->inner * 4},
        {&b->up, entries * l->inner * 4},
        {&b->down, entries * l->hidden * 4},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) {
        void *at = base == NULL ? NULL : base + used;
        memcpy(PIECES[i].member, &at, sizeof at);
        used += ((size_t)PIECES[i].bytes + 255) / 256 * 256;
    }
    b->half.bytes = (size_t)((char *)b->bfloat.part[0] - (char *)b->half.part[0]);
    b->bfloat.bytes = (size_t)((char *)b->witness - (char *)b->bfloat.part[0]);
    return used;
}

/* The kernels are built for compute capability 9.0 and 12.x. */
static bool device_fits(int device, struct cuda_backend *b)
{
    struct cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, device) != cudaSuccess)
        return false;
    snprintf(b->variant, sizeof b->variant, "cuda sm_%d%d", prop.major, prop.minor);
    return (prop.major == 9 && prop.minor == 0) || prop.major == 12;
}

int backend_cuda_devices(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

uint64_t backend_cuda_memory(int device)
{
    struct cudaDeviceProp prop;
    return cudaGetDeviceProperties(&prop, device) == cudaSuccess ? prop.totalGlobalMem : 0;
}

_Bool backend_cuda_bus(int device, char bus[GAUGE_BUS_BYTES])
{
    if (cudaDeviceGetPCIBusId(bus, GAUGE_BUS_BYTES, device) != cudaSuccess)
        return false;
    for (char *c = bus; *c != '\0'; c++)
        *c = *c >= 'A' && *c <= 'F' ? (char)(*c + 'a' - 'A') : *c;
    return true;
}

struct backend *backend_cuda_create(int device, const struct backend_limits *limits,
                                    const char **reason)
{
    struct cuda_backend *b = (struct cuda_backend *)calloc(1, sizeof *b);
    *reason = "no GPU that this program was built for";
    if (b == NULL || cudaSetDevice(device) != cudaSuccess || !device_fits(device, b)) {
        free(b);
        return NULL;
    }
    ASSERT(limits->cols % CHUNK == 0);
    b->base.ops = &OPS;
    b->limits = *limits;
    if (b->limits.tokens > OPS.step_tokens)
        b->limits.tokens = OPS.step_tokens;
    b->picks = picks_create(limits);
    if (b->picks == NULL || cudaMalloc(&b->scratch, scratch_carve(b, NULL)) != cudaSuccess) {
        *reason = "too little memory on the GPU";
        picks_destroy(b->picks);
        free(b);
        return NULL;
    }
    scratch_carve(b, (char *)b->scratch);
    CUDA_CHECK(cudaMemset(b->witness, 0, sizeof *b->witness));
    CUDA_CHECK(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    b->weights = weight_map_create();
    b->recordings = recordings_create();
    b->held = products_create();
    b->spans = spans_create();
    return &b->base;
}

/* ---- times ---------------------------------------------------------------------------------- */

struct cuda_timer {
    struct cuda_backend *b; /* borrows */
    cudaEvent_t begin, end;
};

struct cuda_timer *cuda_timer_create(struct backend *b)
{
    struct cuda_timer *timer = (struct cuda_timer *)calloc(1, sizeof *timer);
    ASSERT(timer != NULL);
    timer->b = cuda_of(b);
    CUDA_CHECK(cudaEventCreate(&timer->begin));
    CUDA_CHECK(cudaEventCreate(&timer->end));
    return timer;
}

void cuda_timer_destroy(struct cuda_timer *timer)
{
    CUDA_CHECK(cudaEventDestroy(timer->begin));
    CUDA_CHECK(cudaEventDestroy(timer->end));
    free(timer);
}

void cuda_timer_run(struct cuda_timer *timer, void (*work)(void *user), void *user, int warm,
                    int times, float *out)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamSynchronize(stream_of(timer->b)));
    CUDA_CHECK(cudaStreamBeginCapture(stream_of(timer->b), cudaStreamCaptureModeThreadLocal));
    work(user);
    CUDA_CHECK(cudaStreamEndCapture(stream_of(timer->b), &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = -warm; i < times; i++) {
        CUDA_CHECK(cudaEventRecord(timer->begin, stream_of(timer->b)));
        CUDA_CHECK(cudaGraphLaunch(exec, stream_of(timer->b)));
        CUDA_CHECK(cudaEventRecord(timer->end, stream_of(timer->b)));
        CUDA_CHECK(cudaEventSynchronize(timer->end));
        if (i >= 0)
            CUDA_CHECK(cudaEventElapsedTime(&out[i], timer->begin, timer->end));
    }
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
}
