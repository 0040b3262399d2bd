/* POST /v1/chat/completions: parse, render, submit, answer.  All that can fail does so before the
 * 200. */
#include "engine/api/completion.h"
#include "engine/api/receipt.h"

#include "kernels/check.h"

static bool start(struct exchange *x, struct request *request, struct ids *prompt,
                  struct completion **out, struct api_error *err)
{
    const struct api *api = x->user;
    struct request_defaults defaults = {.model = api->model, .thinking = api->thinking_default};
    return request_parse(x->body.len == 0 ? "" : x->body.data, x->body.len, &defaults, request,
                         err) &&
           request_render(x, request, prompt, NULL, err) &&
           completion_start(api, x, request, prompt, out, err);
}

static enum MHD_Result go_on(struct exchange *x)
{
    struct api_error err;
    struct buf whole;
    switch (completion_collect(x->state, &err)) {
    case COMPLETION_WAITS:
        return MHD_YES;
    case COMPLETION_SLOW:
        return http_reply_reader(x, "application/json", completion_read, x->state);
    case COMPLETION_DONE:
        whole = completion_take(x->state);
        return http_reply(x, 200, "application/json", &whole);
    case COMPLETION_FAILED:
        return err.code == API_OK ? MHD_NO : http_reply_error(x, &err);
    }
    ASSERT(0);
}

enum MHD_Result api_chat_completions(struct exchange *x)
{
    if (x->state != NULL)
        return go_on(x);
    struct request request;
    struct ids prompt = {0};
    struct completion *completion = NULL;
    struct api_error err;
    bool started = start(x, &request, &prompt, &completion, &err);
    bool stream = request.stream;
    request_clear(&request);
    ids_free(&prompt);
    http_body_done(x);
    if (!started)
        return http_reply_error(x, &err);
    x->state = completion;
    x->state_free = completion_free;
    http_watch(x, completion_stream(completion));
    return stream ? http_reply_reader(x, "text/event-stream", completion_read, completion)
                  : go_on(x);
}
