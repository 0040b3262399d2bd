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

#include <stdlib.h>
#include <string.h>

/* Device memory is taken in pieces of at least this size: a checkpoint has 70,000 tensors. */
#define PIECE_BYTES ((size_t)256 << 20)
/* Loads of 16 bytes, and whole sectors. */
#define WEIGHT_ALIGN 256

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
    struct entry *entries; /* owns; open addressing */
    size_t n, slots;       /* slots: a power of two */
    struct piece *pieces;  /* owns */
    uint64_t seed;         /* of random weights; 0: they come from the host */
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

static void *device_take(struct weight_map *map, size_t bytes)
{
    bytes = (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    struct piece *piece = map->pieces;
    if (piece == NULL || piece->size - piece->used < bytes) {
        piece = (struct piece *)calloc(1, sizeof *piece);
        ASSERT(piece != NULL);
        piece->size = bytes > PIECE_BYTES ? bytes : PIECE_BYTES;
        CUDA_CHECK(cudaMalloc(&piece->memory, piece->size));
        piece->next = map->pieces;
        map->pieces = piece;
    }
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

/* ---- random weights ------------------------------------------------------------------------- */

static __device__ inline uint32_t hash(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ (x >> 31)) >> 16);
}

/* Scales of random weights: 2^-7. */
#define RANDOM_SCALE 120

void backend_cuda_synth(struct backend *b, uint64_t seed)
{
    cuda_of(b)->weights->seed = seed;
}

/* Bytes that are finite numbers of moderate size in their format. */
static __global__ void random_bytes(uint8_t *data, int64_t n, enum store store, uint64_t seed)
{
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n;
         i += (int64_t)gridDim.x * blockDim.x * 4) {
        uint32_t r = hash(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
        for (int k = 0; k < 4 && store == STORE_FP8; k++) {
            if ((r >> (8 * k) & 0x7f) == 0x7f)
                r &= ~(0x7fu << (8 * k));
        }
        if (store == STORE_BF16)
            r = (r & 0x80ff80ff) | 0x3c003c00;
        if (store == STORE_F32)
            r = (r & 0x80ffffff) | 0x3c000000;
        for (int k = 0; k < 4 && i + k < n; k++)
            data[i + k] = (uint8_t)(r >> (8 * k));
    }
}

static void *copy_data(struct cuda_backend *b, const struct tensor *t)
{
    size_t bytes = data_bytes(t);
    void *device = device_take(b->weights, bytes);
    struct weight_map *map = b->weights;
    if (map->seed != 0) {
        random_bytes<<<1024, 256, 0, b->stream>>>((uint8_t *)device, (int64_t)bytes, t->store,
                                                  map->seed + map->n * 0x1234567);
        launched("random_bytes");
        return device;
    }
    CUDA_CHECK(cudaMemcpyAsync(device, t->data, bytes, cudaMemcpyHostToDevice, b->stream));
    if (t->store == STORE_FP4 || t->store == STORE_NVFP4) {
        ASSERT(t->cols % CHUNK == 0);
        int64_t words = (int64_t)(bytes / 4);
        fp4_reorder<<<(unsigned)ceil_div(words, 256), 256, 0, b->stream>>>((uint32_t *)device,
                                                                           words);
        launched("fp4_reorder");
    }
    return device;
}

static const uint8_t *copy_scale(struct cuda_backend *b, const struct tensor *t)
{
    size_t bytes = scale_bytes(t);
    void *device = device_take(b->weights, bytes);
    if (b->weights->seed != 0)
        CUDA_CHECK(cudaMemsetAsync(device, RANDOM_SCALE, bytes, b->stream));
    else
        CUDA_CHECK(cudaMemcpyAsync(device, t->scale, bytes, cudaMemcpyHostToDevice, b->stream));
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
        CUDA_CHECK(cudaStreamSynchronize(b->stream));
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
                               b->stream));
    CUDA_CHECK(cudaStreamSynchronize(b->stream));
    free(table);
    map_add(b->weights, experts, device);
    return (const struct expert_weights *)device;
}
