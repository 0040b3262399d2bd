/*
 * A request body through all that comes before the engine: parsed, rendered, its rules compiled.
 * What is refused is refused with a field and a code; what is taken forges no turn.
 */
#ifndef V4BOX_TESTS_FUZZ_REQUEST_H
#define V4BOX_TESTS_FUZZ_REQUEST_H

#include "tests/fuzz/fuzz.h"

#include "engine/api/api.h"
#include "engine/api/receipt.h"
#include "engine/api/surface.h"
#include "engine/model/sampler.h"

#include "tests/unit/fake_engine.h"

static struct fuzz_text lang;
static struct api api;

/* Nothing gets so far. */
static void fake_script(struct fake_request *r)
{
    (void)r;
    ASSERT(0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct error err = {0};
    (void)argc;
    (void)argv;
    fuzz_text_open(&lang);
    ASSERT(api_init(&api, NULL, lang.tokenizer, "baseline", &err) == OK);
    api.masks = lang.masks;
    return 0;
}

/* Turns that a prompt opens: a message opens at most one. */
static size_t turns_opened(const struct ids *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->len; i++)
        n += ids->data[i] == lang.tokens.user || ids->data[i] == lang.tokens.assistant;
    return n;
}

static void fuzz_rendered(const struct request *request, const struct ids *ids,
                          const struct chat_spans *spans)
{
    size_t n_messages = json_object_array_length(request->messages), covered = 0;
    ASSERT(ids->len > 0 && ids->data[0] == lang.tokens.bos);
    ASSERT(turns_opened(ids) <= n_messages + 2);
    for (size_t i = 0; i < ids->len; i++)
        ASSERT(ids->data[i] >= 0 && ids->data[i] < tokenizer_vocab_size(lang.tokenizer));
    for (size_t i = 0; i < spans->len; i++)
        covered += spans->data[i].n_messages;
    ASSERT(covered == n_messages && spans->data[spans->len - 1].ids_end == ids->len);
}

static void fuzz_mask(const struct request *request)
{
    struct mask_options options = {.thinking = request->thinking,
                                   .calls =
                                       request->tools == NULL ? MASK_CALLS_NONE : MASK_CALLS_AUTO,
                                   .tools = request->tools,
                                   .format = request->format,
                                   .schema = request->schema,
                                   .schema_strict = request->schema_strict};
    struct mask *mask = NULL;
    struct error err = {0};
    if (mask_create(lang.masks, &options, &mask, &err) != OK)
        ASSERT(strchr(err.text, ':') != NULL);
    mask_destroy(mask);
}

/* One body through a surface. */
static void fuzz_request(const struct surface *surface, const uint8_t *data, size_t n)
{
    struct exchange x = {.user = &api, .key = {.number = 1}};
    struct request request = {0};
    struct api_error err = {0};
    struct ids ids = {0};
    struct chat_spans spans = {0};
    buf_add(&x.body, data, n);
    if (surface->parse(&x, &request, &err)) {
        ASSERT(request.tokens_max >= 0 && request.n_stops <= STOP_STRINGS_MAX);
        struct error why = {0};
        ASSERT(sampling_check(&request.sampling, &why) == OK);
        if (request_render(&x, &request, &ids, &spans, &err))
            fuzz_rendered(&request, &ids, &spans);
        fuzz_mask(&request);
    } else {
        struct buf text = {0};
        ASSERT(err.code > API_OK && err.code < API_CODES);
        int status = api_error_row(err.code)->status;
        ASSERT(status >= 400 && status < 500);
        api_error_dump(&text, &err);
        buf_free(&text);
    }
    request_clear(&request);
    ids_free(&ids);
    chat_spans_free(&spans);
    buf_free(&x.body);
}

#endif
