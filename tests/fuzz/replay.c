/*
 * Runs a fuzz target over files, without a fuzzing engine:  TARGET FILE...   Knows nothing of what
 * the target does: a finding is a crash.
 */
#include "tests/fuzz/fuzz.h"

#include "engine/base/buf.h"

int main(int argc, char **argv)
{
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        struct buf bytes = {0};
        char part[4096];
        size_t n;
        FILE *file = fopen(argv[i], "rb");
        ASSERT(file != NULL);
        while ((n = fread(part, 1, sizeof part, file)) > 0)
            buf_add(&bytes, part, n);
        fclose(file);
        fprintf(stderr, "%s\n", argv[i]); /* the last one before a crash is the culprit */
        LLVMFuzzerTestOneInput((const uint8_t *)(bytes.len == 0 ? "" : bytes.data), bytes.len);
        buf_free(&bytes);
    }
    return 0;
}
