/*
 * What a model must be, byte for byte, for whoever receives it and whoever loads it: its
 * manifest.sha256, and leaves.sha256, which stands in the manifest as one of its files.  From both,
 * every LEAF_BYTES of the model can be checked alone.
 *
 *   manifest.sha256   sha256  size  name     a line for each file, sorted by name; a hash is 64
 *                                            lower-case digits, and two blanks divide
 *   leaves.sha256     sha256                 a line for each leaf of each other file, in that order
 *
 * Pure: reads no file.  Knows no tensors.
 */
#ifndef V4BOX_COMMON_LEAVES_H
#define V4BOX_COMMON_LEAVES_H

#include "config/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAVES_MANIFEST    "manifest.sha256"
#define LEAVES_FILE        "leaves.sha256"
#define LEAF_HASH_BYTES    32
#define LEAVES_TEXT_BYTES  ((size_t)LEAVES_MAX * 65) /* a line of 64 digits for each of them */
#define LEAVES_MODEL_BYTES ((uint64_t)LEAVES_MAX * LEAF_BYTES)

struct leaves_file {
    char name[CHECKPOINT_FILE_NAME_BYTES];
    uint64_t bytes;
    uint32_t first, count; /* of its leaves */
};

struct leaves {
    struct leaves_file file[MANIFEST_FILES_MAX]; /* all but leaves.sha256 */
    int files;
    uint32_t count; /* of all leaves */
    uint64_t bytes; /* of all files */
    uint8_t hash[LEAVES_MAX][LEAF_HASH_BYTES];
};

/* Where something is wrong. */
struct leaves_fault {
    const char *file; /* one of the two */
    size_t line;      /* from 1 on; 0: of no single one */
    bool foreign;     /* leaves.sha256 is not the one that the manifest names */
};

/**
 * Reads both, whole.
 * @err NULL: good; else what is wrong, for people, and *out is not to be used; *at (may be NULL)
 *      then says where
 */
const char *leaves_parse(struct leaves *out, const char *manifest, size_t manifest_n,
                         const char *leaves, size_t leaves_n, struct leaves_fault *at);

/** Where the manifest ends in a text that has both, one behind the other. */
size_t leaves_divide(const char *text, size_t n);

/** The file of that name, NULL: none. */
const struct leaves_file *leaves_find(const struct leaves *m, const char *name);

/** The file that a leaf belongs to. */
const struct leaves_file *leaves_owner(const struct leaves *m, uint32_t leaf);

/** Bytes of one leaf: the last one of a file may be short. */
size_t leaves_size(const struct leaves_file *file, uint32_t leaf);

/** Whether these bytes are that leaf. */
bool leaves_fit(const struct leaves *m, uint32_t leaf, const void *bytes, size_t n);

#endif
