/* Any bytes as the body of /v1/responses. */
#include "tests/fuzz/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_request(&RESPONSES_SURFACE, data, n);
    return 0;
}
