/* Any bytes as the body of /v1/chat/completions. */
#include "tests/fuzz/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_request(&OPENAI_SURFACE, data, n);
    return 0;
}
