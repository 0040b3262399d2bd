/* What the card gives at best, measured: reading its memory, and multiplying by mma.sync. */
#include "kernels/cuda/products.cuh"

/* Four loads of 16 bytes on their way together; a sum that nobody asks for is never stored. */
static __global__ void read_all(const uint4 *memory, int64_t n, uint32_t *never)
{
    uint32_t sum = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += 4 * step) {
        uint4 v[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (at + i * step < n)
                v[i] = __ldg(memory + at + i * step);
        }
        for (int i = 0; i < 4; i++)
            sum |= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    if (sum == 0x12345678) /* the compiler cannot know that it is not */
        *never = sum;
}

void backend_cuda_read(struct backend *base, const void *device, size_t bytes)
{
    struct cuda_backend *b = cuda_of(base);
    read_all<<<132 * 16, 512, 0, stream_of(b)>>>((const uint4 *)device, (int64_t)(bytes / 16),
                                                 (uint32_t *)b->n_items);
    launched("read_all");
}

#define MULTIPLY_WARPS 8
#define MULTIPLY_TILES 8 /* sums of a warp that do not wait for each other */

/* Operands stay in registers; they are not zeros, which multiply faster. */
static __global__ void __launch_bounds__(MULTIPLY_WARPS *WARP)
    multiply_all(int rounds, float *never)
{
    uint32_t a[4], b[2], x = threadIdx.x * 0x9e3779b9u + blockIdx.x;
    float sum[MULTIPLY_TILES][4] = {};
    for (int i = 0; i < 6; i++) {
        x = x * 1664525 + 1013904223;
        (i < 4 ? a[i % 4] : b[i % 2]) = (x & 0x83ff83ff) | 0x3c003c00; /* 1 to 2, either sign */
    }
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < MULTIPLY_TILES; i++)
            mma<true>(sum[i], a[0], a[1], a[2], a[3], b[0], b[1]);
    }
    float all = 0;
    for (int i = 0; i < MULTIPLY_TILES * 4; i++)
        all += sum[i / 4][i % 4];
    if (all == 0.1234f) /* the compiler cannot know that it is not */
        *never = all;
}

double backend_cuda_multiply(struct backend *base, int rounds)
{
    struct cuda_backend *b = cuda_of(base);
    const int blocks = 132 * 2;
    multiply_all<<<blocks, MULTIPLY_WARPS * WARP, 0, stream_of(b)>>>(rounds, b->gate);
    launched("multiply_all");
    return 2.0 * TILE_ROWS * TILE_COLS * 16 * MULTIPLY_TILES * MULTIPLY_WARPS * blocks * rounds;
}
