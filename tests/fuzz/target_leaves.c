/* Manifest and leaves of a model, as somebody sends them or a disk holds them.  The line of
 * leaves.sha256 is made to fit, or nothing would get past its hash. */
#include "tests/fuzz/fuzz.h"

#include "common/leaves.h"
#include "init/text.h"

#include <sodium.h>

#define TEXT_BYTES 65536

static struct leaves leaves;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    ASSERT(sodium_init() >= 0);
    return 0;
}

static void check(void)
{
    uint32_t next = 0;
    ASSERT(leaves.files > 0 && leaves.files <= MANIFEST_FILES_MAX && leaves.count <= LEAVES_MAX);
    for (int i = 0; i < leaves.files; i++) {
        const struct leaves_file *file = &leaves.file[i];
        ASSERT(file->name[0] != '.' && strchr(file->name, '/') == NULL);
        ASSERT(leaves_find(&leaves, file->name) == file && file->first == next);
        next += file->count;
        if (file->count == 0)
            continue;
        ASSERT(leaves_owner(&leaves, next - 1) == file);
        size_t last = leaves_size(file, next - 1);
        ASSERT(last > 0 && last <= LEAF_BYTES);
        ASSERT((uint64_t)(file->count - 1) * LEAF_BYTES + last == file->bytes);
    }
    ASSERT(next == leaves.count && leaves_owner(&leaves, next) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char bytes[TEXT_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    uint8_t hash[LEAF_HASH_BYTES];
    char hex[2 * LEAF_HASH_BYTES + 1];
    const char *text = (const char *)data;
    size_t manifest_n = leaves_divide(text, n);
    ASSERT(manifest_n <= n);
    struct leaves_fault at;
    ASSERT(leaves_parse(&leaves, text, manifest_n, text + manifest_n, n - manifest_n, &at) ==
               NULL ||
           (at.file != NULL && at.line <= n && (!at.foreign || at.line == 0)));
    crypto_hash_sha256(hash, data + manifest_n, n - manifest_n);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    text_add(&t, text, manifest_n);
    text_printf(&t, "%s  %zu  %s\n", hex, n - manifest_n, LEAVES_FILE);
    if (!t.cut &&
        leaves_parse(&leaves, t.data, t.len, text + manifest_n, n - manifest_n, NULL) == NULL)
        check();
    return 0;
}
