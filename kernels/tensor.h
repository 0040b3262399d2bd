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
    STORE_FP8, /* e4m3fn bytes; scale: E8M0 [ceil(rows/128), ceil(cols/128)] */
    STORE_FP4, /* e2m1 nibbles, low nibble = even column; scale: E8M0 [rows, cols/32] */
};

struct tensor {
    const void *data;     /* borrows: the mapped checkpoint; FP4 rows are cols/2 bytes */
    const uint8_t *scale; /* borrows; NULL unless STORE_FP8 or STORE_FP4 */
    int32_t rows, cols;   /* logical shape; a vector has cols = 0 */
    enum store store;
};

#endif
