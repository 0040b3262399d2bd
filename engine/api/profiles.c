/* Profiles of requests, the probes of a proof, and the report. */
#include "engine/api/profiles.h"

#include "config/probe.h"
#include "engine/api/key_limits.h"
#include "engine/api/receipt.h"
#include "engine/precision/control.h"
#include "kernels/check.h"

#include <stdio.h>
#include <string.h>

/* It was read under what serves; where it is silent, the prompt rows of its own profile hold. */
static void obey(const struct exchange *x, struct request *request)
{
    struct request_defaults defaults = api_request_defaults(x);
    if (!request->thinking_said)
        request->thinking = defaults.thinking;
    if (!request->effort_said)
        request->effort = defaults.effort;
}

void api_profile_now(void *user, struct profile *out)
{
    const struct api *api = user;
    engine_profile_get(api->engine, out);
}

bool request_settle(struct exchange *x, struct request *request, struct api_error *err)
{
    const struct api *api = x->user;
    if (request->profile_name[0] != '\0') {
        if (x->key.limits.values[KEY_PROFILES] == 0)
            return api_fail(err, API_PROFILE, "profile");
        if (api->profiles == NULL || !store_find(api->profiles, request->profile_name, &x->profile))
            return api_fail(err, API_VALUE, "profile");
        obey(x, request);
    }
    request->profile = x->profile;
    return true;
}

void api_probe_render(void *user, const struct profile *profile, struct ids *out)
{
    static const char *const BODIES[] = {PROBE_BODIES};
    const struct api *api = user;
    const struct exchange x = {.user = user, .profile = *profile};
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        struct request_defaults defaults = api_request_defaults(&x);
        struct request request;
        struct api_error err;
        struct buf body = {0};
        /* The format is one of the constants above; a pragma would hide a wrong one. */
        const char *at = strstr(BODIES[i], "%s");
        buf_add(&body, BODIES[i], (size_t)(at - BODIES[i]));
        buf_puts(&body, api->model);
        buf_puts(&body, at + 2);
        bool good = request_parse(body.data, body.len, &defaults, &request, &err);
        if (good) {
            request.profile = *profile;
            good = request_render_for(api, 0, &request, out, NULL, &err);
        }
        ASSERT(good); /* a constant that is held by a test */
        request_clear(&request);
        buf_free(&body);
    }
}

enum MHD_Result api_profile(struct exchange *x)
{
    const struct api *api = x->user;
    struct buf body = {0};
    control_report(api->control, &body);
    return http_reply(x, 200, "application/json", &body);
}
