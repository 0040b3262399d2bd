/*
 * A weight as it lies in the checkpoint: stored bytes, never converted copies.
 * Knows nothing of names or files.  Shared by the loader (which fills it) and the kernels.
 */
#ifndef V4BOX_KERNELS_TENSOR_H
#define V4BOX_KERNELS_TENSOR_H

#include <stdint.h>

enum store {
    STORE_BF16, /* bfloat16, little endian */
    STORE_F32,
    STORE_I64,
    STORE_FP8,   /* e4m3fn bytes; scale: E8M0 [ceil(rows/128), ceil(cols/128)] */
    STORE_FP4,   /* e2m1 nibbles, low nibble = even column; scale: E8M0 [rows, cols/32] */
    STORE_NVFP4, /* the same nibbles; scale: e4m3fn [rows, cols/16], none negative */
};

struct tensor {
    const void *data;     /* borrows: the mapped checkpoint; FP4 rows are cols/2 bytes */
    const uint8_t *scale; /* borrows; NULL unless STORE_FP8, STORE_FP4 or STORE_NVFP4 */
    int32_t rows, cols;   /* logical shape; a vector has cols = 0 */
    enum store store;
    float global; /* STORE_NVFP4: every value is code * scale * this; nothing else reads it */
};

#endif
