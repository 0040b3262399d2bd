/* The embedded model's tokenizer and its control tokens, for one test program. */
#ifndef V4BOX_TESTS_DEMO_TOKENIZER_H
#define V4BOX_TESTS_DEMO_TOKENIZER_H

#include "engine/text/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct tokenizer *tokenizer;
static struct chat_tokens tokens;

/* Group setup of cmocka. */
static inline int open_tokenizer(void **state)
{
    (void)state;
    struct error err = {0};
    if (tokenizer_open("rootfs/models/demo/tokenizer.json", &tokenizer, &err) != OK ||
        chat_tokens_find(tokenizer, &tokens, &err) != OK) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

/* Group teardown of cmocka. */
static inline int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

/* Writes the token of each single byte.  @shape ids [256] */
static inline void tokens_of_bytes(int32_t ids[256])
{
    for (int32_t id = tokenizer_vocab_size(tokenizer) - 1; id >= 0; id--) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
        if (len == 1)
            ids[(unsigned char)bytes[0]] = id;
    }
}

#endif
