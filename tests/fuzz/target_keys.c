/* Any bytes as the file of API keys: what is taken is within its limits, and opens nothing to a
 * secret that nobody was given. */
#include "tests/fuzz/fuzz.h"

#include "engine/api/keys.h"

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
    static struct key listed[KEYS_MAX];
    struct keys *keys = NULL;
    struct key found;
    struct error err = {0};
    char secret[KEY_SECRET_CHARS + 1];
    fuzz_file_set(&file, data, n);
    if (keys_open(file.path, &keys, &err) != OK) {
        ASSERT(strstr(err.text, file.path) != NULL);
        return 0;
    }
    int count = keys_list(keys, listed);
    ASSERT(count >= 0 && count <= KEYS_MAX);
    for (int i = 0; i < count; i++) {
        ASSERT(strlen(listed[i].id) == KEY_ID_CHARS && listed[i].number > 0);
        ASSERT(strlen(listed[i].name) >= 1 && strlen(listed[i].name) <= KEY_NAME_BYTES_MAX);
        snprintf(secret, sizeof secret, "ds_%s_0123456789abcdefghijklmnopqrstuv", listed[i].id);
        /* found only where the file holds the hash of this very secret */
        if (keys_check(keys, secret, KEY_SECRET_CHARS, &found))
            ASSERT(strcmp(found.id, listed[i].id) == 0);
        for (int j = 0; j < i; j++)
            ASSERT(strcmp(listed[j].id, listed[i].id) != 0);
    }
    ASSERT(!keys_check(keys, (const char *)data, n, &found));
    keys_close(keys);
    return 0;
}
