/* Any bytes as a safetensors file: what is taken lies inside of the file, to the last byte. */
#include "tests/fuzz/fuzz.h"

#include "engine/model/safetensors.h"

static struct fuzz_file file;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    fuzz_file_open(&file);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct safetensors st;
    struct error err = {0};
    fuzz_file_set(&file, data, n);
    if (safetensors_open(file.path, &st, &err) != OK) {
        ASSERT(strstr(err.text, file.path) != NULL);
        return 0;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < st.count; i++) {
        const struct safetensors_entry *e = &st.entries[i];
        uint64_t elements = (uint64_t)(e->shape[0] * e->shape[1]);
        ASSERT(e->bytes == elements * (uint64_t)safetensors_element_bytes(e->dtype));
        ASSERT(e->data + e->bytes <= (const uint8_t *)st.map.data + st.map.size);
        for (uint64_t j = 0; j < e->bytes; j++)
            total += e->data[j];
    }
    ASSERT(total <= UINT64_C(255) * n);
    safetensors_close(&st);
    return 0;
}
