/*
 * The device's copies of the weights: found by the host address of the stored bytes, made at first
 * use, kept until the backend ends.  FP4 is re-ordered on the way, so that a product's lane finds
 * what it needs in 16 bytes and turns it into float16 with few instructions.
 *
 * FP4, per 128 values of a row (64 bytes): the four words of each group of 32 values (8 values a
 * word) are transposed, so that 16 bytes hold word t of all four groups.  Within a word of values
 * v0..v7 the low half holds v0 v2 v4 v6 and the high half v1 v3 v5 v7, each code (s e e m) with its
 * bits where few shifts bring them to float16's places:
 *
 *   bit   15   14   13   12   11-9   8-6   5-3   2-0
 *         s0   s4   s6   s2    v0     v2    v4    v6      (low half; the high half with odd
 * numbers)
 */
#include "kernels/cuda/products.cuh"
#include "kernels/cuda/rows.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Device memory is taken in pieces of at least this size: a checkpoint has 70,000 tensors. */
#define PIECE_BYTES ((size_t)256 << 20)
/* Loads of 16 bytes, and whole sectors. */
#define WEIGHT_ALIGN 256

/* Fills all multiprocessors many times over. */
#define MADE_THREADS    256
#define MADE_BLOCKS_MAX 8192

struct entry {
    const void *host; /* NULL: free */
    void *device;
};

struct piece {
    void *memory;
    size_t used, size;
    struct piece *next;
};

struct weight_map {
    struct entry *entries;          /* owns; open addressing */
    size_t n, slots;                /* slots: a power of two */
    struct piece *pieces;           /* owns */
    const struct synth_table *made; /* borrows; NULL: weights come from the host */
    bool loading;                   /* nothing of them is read before all are there */
    char words[ERROR_TEXT_BYTES];
};

/* ---- the map -------------------------------------------------------------------------------- */

struct weight_map *weight_map_create(void)
{
    struct weight_map *map = (struct weight_map *)calloc(1, sizeof *map);
    ASSERT(map != NULL);
    map->slots = 1024;
    map->entries = (struct entry *)calloc(map->slots, sizeof *map->entries);
    ASSERT(map->entries != NULL);
    return map;
}

void weight_map_destroy(struct weight_map *map)
{
    if (map == NULL)
        return;
    while (map->pieces != NULL) {
        struct piece *next = map->pieces->next;
        CUDA_CHECK(cudaFree(map->pieces->memory));
        free(map->pieces);
        map->pieces = next;
    }
    free(map->entries);
    free(map);
}

static struct entry *slot_of(struct entry *entries, size_t slots, const void *host)
{
    size_t at = (size_t)(((uintptr_t)host * UINT64_C(0x9e3779b97f4a7c15)) >> 20);
    while (entries[at & (slots - 1)].host != NULL && entries[at & (slots - 1)].host != host)
        at++;
    return &entries[at & (slots - 1)];
}

static void map_add(struct weight_map *map, const void *host, void *device)
{
    if (2 * (map->n + 1) > map->slots) {
        struct entry *wider = (struct entry *)calloc(map->slots * 2, sizeof *wider);
        ASSERT(wider != NULL);
        for (size_t i = 0; i < map->slots; i++) {
            if (map->entries[i].host != NULL)
                *slot_of(wider, map->slots * 2, map->entries[i].host) = map->entries[i];
        }
        free(map->entries);
        map->entries = wider;
        map->slots *= 2;
    }
    struct entry *entry = slot_of(map->entries, map->slots, host);
    ASSERT(entry->host == NULL);
    *entry = (struct entry){host, device};
    map->n++;
}

static size_t taken_for(size_t bytes)
{
    return (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
}

static cudaError_t piece_add(struct weight_map *map, size_t bytes)
{
    struct piece *piece = (struct piece *)calloc(1, sizeof *piece);
    ASSERT(piece != NULL);
    piece->size = bytes > PIECE_BYTES ? bytes : PIECE_BYTES;
    cudaError_t error = cudaMalloc(&piece->memory, piece->size);
    if (error != cudaSuccess) {
        free(piece);
        return error;
    }
    piece->next = map->pieces;
    map->pieces = piece;
    return cudaSuccess;
}

static void *device_take(struct weight_map *map, size_t bytes)
{
    bytes = taken_for(bytes);
    if (map->pieces == NULL || map->pieces->size - map->pieces->used < bytes)
        CUDA_CHECK(piece_add(map, bytes));
    struct piece *piece = map->pieces;
    char *at = (char *)piece->memory + piece->used;
    piece->used += bytes;
    return at;
}

/* ---- copies --------------------------------------------------------------------------------- */

static size_t data_bytes(const struct tensor *t)
{
    size_t values = (size_t)t->rows * (size_t)(t->cols == 0 ? 1 : t->cols);
    switch (t->store) {
    case STORE_BF16:
        return values * 2;
    case STORE_F32:
        return values * 4;
    case STORE_I64:
        return values * 8;
    case STORE_FP8:
        return values;
    case STORE_FP4:
    case STORE_NVFP4:
        return values / 2;
    }
    return 0;
}

static size_t scale_bytes(const struct tensor *t)
{
    if (t->store == STORE_FP4 || t->store == STORE_NVFP4)
        return (size_t)t->rows *
               (size_t)(t->cols / (t->store == STORE_FP4 ? FP4_GROUP : NVFP4_GROUP));
    return (size_t)ceil_div(t->rows, FP8_BLOCK) * (size_t)ceil_div(t->cols, FP8_BLOCK);
}

/* One thread a stored word of eight values. */
static __global__ void fp4_reorder(uint32_t *words, int64_t n)
{
    /* a block owns the 64 bytes that its threads permute: whole chunks of 16 words */
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t word = at < n ? words[at] : 0;
    __syncthreads();
    if (at < n) {
        int in = (int)(at % 16), out = in % 4 * 4 + in / 4;
        words[at - in + out] = fp4_pack(word);
    }
}

/* ---- weights made of a seed ----------------------------------------------------------------- */

/* Stored numbers first.. of a tensor, a word of eight bytes a thread and turn. */
static __global__ void made_bytes(uint8_t *out, int64_t bytes, struct synth s, uint64_t first)
{
    const int width = (int)synth_width(s.kind), each = 8 / width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i * 8 < bytes;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t word = 0;
        for (int k = 0; k < each && i * 8 + k * width < bytes; k++)
            word |= synth_stored(&s, first + (uint64_t)(i * each + k)) << (8 * k * width);
        if (i * 8 + 8 <= bytes) {
            ((uint64_t *)out)[i] = word;
            continue;
        }
        for (int64_t k = 0; i * 8 + k < bytes; k++)
            out[i * 8 + k] = (uint8_t)(word >> (8 * k));
    }
}

/* Bytes that lie, or would lie, at `host`. */
static void bytes_bring(struct cuda_backend *b, void *device, const void *host, size_t bytes)
{
    const struct synth_table *made = b->weights->made;
    if (made == NULL) {
        CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(b)));
        return;
    }
    const struct synth_part *part = synth_find(made, host);
    ASSERT(part != NULL);
    uint64_t offset = (uint64_t)((const char *)host - (const char *)part->at);
    ASSERT(bytes <= part->bytes - offset && offset % synth_width(part->made.kind) == 0);
    int64_t blocks = ceil_div((int64_t)bytes, 8 * MADE_THREADS);
    made_bytes<<<(unsigned)(blocks < MADE_BLOCKS_MAX ? blocks : MADE_BLOCKS_MAX), MADE_THREADS, 0,
                 stream_of(b)>>>((uint8_t *)device, (int64_t)bytes, part->made,
                                 offset / synth_width(part->made.kind));
    launched("made_bytes");
}

static void *copy_data(struct cuda_backend *b, const struct tensor *t)
{
    size_t bytes = data_bytes(t);
    void *device = device_take(b->weights, bytes);
    bytes_bring(b, device, t->data, bytes);
    if (t->store == STORE_FP4 || t->store == STORE_NVFP4) {
        ASSERT(t->cols % CHUNK == 0);
        int64_t words = (int64_t)(bytes / 4);
        fp4_reorder<<<(unsigned)ceil_div(words, 256), 256, 0, stream_of(b)>>>((uint32_t *)device,
                                                                              words);
        launched("fp4_reorder");
    }
    return device;
}

static const uint8_t *copy_scale(struct cuda_backend *b, const struct tensor *t)
{
    size_t bytes = scale_bytes(t);
    void *device = device_take(b->weights, bytes);
    bytes_bring(b, device, t->scale, bytes);
    return (const uint8_t *)device;
}

struct weight weight_get(struct cuda_backend *b, const struct tensor *t)
{
    struct weight w = {NULL, NULL, t->rows, t->cols, t->store, t->global};
    if (t->data == NULL)
        return w;
    struct entry *entry = slot_of(b->weights->entries, b->weights->slots, t->data);
    w.data = entry->host != NULL ? entry->device : copy_data(b, t);
    if (entry->host == NULL) {
        map_add(b->weights, t->data, (void *)w.data);
        /* kernels may read weights in front of grid_begin */
        if (!b->weights->loading)
            CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    }
    if (t->scale == NULL)
        return w;
    entry = slot_of(b->weights->entries, b->weights->slots, t->scale);
    if (entry->host == NULL) {
        w.scale = copy_scale(b, t);
        map_add(b->weights, t->scale, (void *)w.scale);
    } else {
        w.scale = (const uint8_t *)entry->device;
    }
    return w;
}

const float *weight_floats(struct cuda_backend *b, const struct tensor *t)
{
    ASSERT(t->store == STORE_F32);
    return (const float *)weight_get(b, t).data;
}

const struct expert_weights *weight_experts(struct cuda_backend *b, const struct expert *experts,
                                            int32_t n)
{
    struct entry *entry = slot_of(b->weights->entries, b->weights->slots, experts);
    if (entry->host != NULL)
        return (const struct expert_weights *)entry->device;
    struct expert_weights *table = (struct expert_weights *)calloc((size_t)n, sizeof *table);
    ASSERT(table != NULL);
    for (int32_t e = 0; e < n; e++)
        table[e] = {weight_get(b, &experts[e].w1), weight_get(b, &experts[e].w2),
                    weight_get(b, &experts[e].w3)};
    void *device = device_take(b->weights, (size_t)n * sizeof *table);
    CUDA_CHECK(cudaMemcpyAsync(device, table, (size_t)n * sizeof *table, cudaMemcpyHostToDevice,
                               stream_of(b)));
    CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    free(table);
    map_add(b->weights, experts, device);
    return (const struct expert_weights *)device;
}

/* ---- all of a network ----------------------------------------------------------------------- */

static size_t tensor_bytes(const struct tensor *t)
{
    if (t->data == NULL)
        return 0;
    return taken_for(data_bytes(t)) + (t->scale == NULL ? 0 : taken_for(scale_bytes(t)));
}

static size_t load_bytes(const struct load_params *p)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < p->n; i++)
        bytes += tensor_bytes(&p->tensors[i]);
    for (int32_t block = 0; block < p->blocks; block++) {
        for (int32_t e = 0; e < p->n_experts; e++) {
            const struct expert *expert = &p->experts[block][e];
            bytes +=
                tensor_bytes(&expert->w1) + tensor_bytes(&expert->w2) + tensor_bytes(&expert->w3);
        }
        bytes += taken_for((size_t)p->n_experts * sizeof(struct expert_weights));
    }
    return bytes;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define GIB(bytes) ((double)(bytes) / (1 << 30))

const char *cuda_load(struct backend *base, const struct load_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    struct weight_map *map = b->weights;
    size_t bytes = load_bytes(p), left, all;
    int device;
    double begin = now_s();
    map->made = p->made;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaMemGetInfo(&left, &all));
    /* Another rank may take from the same GPU in between. */
    if (bytes > left || (bytes > 0 && piece_add(map, bytes) != cudaSuccess)) {
        (void)cudaGetLastError(); /* a refusal is an answer, not a failure */
        snprintf(map->words, sizeof map->words,
                 "GPU %d: %.1f GiB of weights; %.1f of %.1f GiB of memory are free", device,
                 GIB(bytes), GIB(left), GIB(all));
        return map->words;
    }
    map->loading = true;
    for (int32_t i = 0; i < p->n; i++)
        weight_get(b, &p->tensors[i]);
    for (int32_t block = 0; block < p->blocks; block++)
        weight_experts(b, p->experts[block], p->n_experts);
    CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    map->loading = false;
    CUDA_CHECK(cudaMemGetInfo(&left, &all));
    fprintf(stderr, "GPU %d: %.1f GiB of weights in %.2f s; %.1f of %.1f GiB of memory are free\n",
            device, GIB(bytes), now_s() - begin, GIB(left), GIB(all));
    return NULL;
}
