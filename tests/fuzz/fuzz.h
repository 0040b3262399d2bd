/*
 * What the fuzz targets share: the two functions a fuzzing engine calls, files in memory, and the
 * text objects of the embedded model.  A target aborts on whatever must never happen; input that
 * is refused is no event.  Runs from the root of the tree.
 */
#ifndef V4BOX_TESTS_FUZZ_H
#define V4BOX_TESTS_FUZZ_H

#include "engine/text/chat.h"
#include "engine/text/mask.h"
#include "kernels/check.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_TOKENIZER "rootfs/models/demo/tokenizer.json"

/** Opens what the target needs, once. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
/** Tries one input.  @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A file without a name, for readers that want a path. */
struct fuzz_file {
    int fd;
    char path[32];
};

static inline void fuzz_file_open(struct fuzz_file *file)
{
    file->fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT(file->fd >= 0);
    snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
}

static inline void fuzz_file_set(const struct fuzz_file *file, const void *data, size_t n)
{
    ASSERT(ftruncate(file->fd, 0) == 0);
    ASSERT(n == 0 || pwrite(file->fd, data, n, 0) == (ssize_t)n);
}

/* A random number for each call, the same for the same input. */
static inline uint32_t fuzz_below(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % n;
}

struct fuzz_text {
    struct tokenizer *tokenizer;
    struct chat_tokens tokens;
    struct mask_vocab *masks;
};

static inline void fuzz_text_open(struct fuzz_text *text)
{
    struct error err = {0};
    ASSERT(tokenizer_open(FUZZ_TOKENIZER, &text->tokenizer, &err) == OK);
    ASSERT(chat_tokens_find(text->tokenizer, &text->tokens, &err) == OK);
    ASSERT(mask_vocab_create(text->tokenizer, &text->tokens, &text->masks, &err) == OK);
}

#endif
