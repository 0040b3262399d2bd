/*
 * One safetensors file, mapped read-only, with its header checked:
 *
 *   0        u64     N, little endian
 *   8        N bytes JSON: {"NAME": {"dtype": "..", "shape": [..], "data_offsets": [begin, end]},
 * ..,
 *                    "__metadata__": {..}}, padded with spaces
 *   8 + N    data    the tensors, back to back in any order, no gaps, nothing behind
 *
 * Knows nothing of networks.  The file must not shrink while it is mapped (models live on
 * read-only storage): the system would end the process at the next access.
 */
#ifndef V4BOX_ENGINE_MODEL_SAFETENSORS_H
#define V4BOX_ENGINE_MODEL_SAFETENSORS_H

#include "engine/base/file.h"
#include "engine/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct safetensors_entry {
    const char *name;      /* borrows from the file's names; printable ASCII */
    const char *dtype;     /* static text: BF16, F32, I64, F8_E4M3, F8_E8M0, I8 or U8 */
    int dims;              /* 0, 1 or 2 */
    int64_t shape[2];      /* each at least 1, and 1 beyond dims */
    uint64_t begin, bytes; /* in the data part */
    const uint8_t *data;   /* borrows from the mapping; may be unaligned */
};

struct safetensors {
    struct mapping map;                /* owns */
    struct safetensors_entry *entries; /* owns; [count], in data order */
    size_t count;
    char *names; /* owns */
};

/**
 * Maps a file and checks its header: sizes, shapes, types, offsets, names.
 * @own  safetensors_close
 * @err  ERR_IO; ERR_INPUT naming the path and the tensor.  *out is untouched on failure.
 */
enum status MUST_CHECK safetensors_open(const char *path, struct safetensors *out,
                                        struct error *err);
void safetensors_close(struct safetensors *file);

/** Bytes of one element of a stored type, 0 when the type is not one of the seven. */
int safetensors_element_bytes(const char *dtype);

#endif
