/* Any bytes as tokenizer.json: what is taken encodes any text, and decodes it to the same. */
#include "tests/fuzz/fuzz.h"

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
    static const char TEXT[] = "ab abc<s> 12345\r\n\t\xe4\xbd\xa0\xf0\x9f\x98\x80<sx>{\"a b\"}";
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    fuzz_file_set(&file, data, n);
    if (tokenizer_open(file.path, &tokenizer, &err) != OK) {
        ASSERT(strncmp(err.text, file.path, strlen(file.path)) == 0);
        return 0;
    }
    for (int special = 0; special < 2; special++) {
        struct ids ids = {0};
        struct buf text = {0};
        struct detokenizer d = {0};
        tokenizer_encode(tokenizer, TEXT, sizeof TEXT - 1, special != 0, &ids);
        for (size_t i = 0; i < ids.len; i++) {
            ASSERT(ids.data[i] >= 0 && ids.data[i] < tokenizer_vocab_size(tokenizer));
            detokenizer_push(&d, tokenizer, ids.data[i], &text);
        }
        detokenizer_finish(&d, &text);
        ASSERT(text.len == sizeof TEXT - 1 && memcmp(text.data, TEXT, text.len) == 0);
        ids_free(&ids);
        buf_free(&text);
    }
    tokenizer_close(tokenizer);
    return 0;
}
