/*
 * Precision profiles as the API knows them: which one a request runs under, what its prompt rows
 * mean for what the request does not say, and the report of GET /v1/profile.
 */
#ifndef V4BOX_ENGINE_API_PROFILES_H
#define V4BOX_ENGINE_API_PROFILES_H

#include "engine/api/api.h"
#include "engine/api/request.h"

/**
 * Settles what the request runs under: the profile that it names, if its key may, else what serves
 * now; and with it what holds where it says nothing about thinking.  Notes it in the exchange too.
 * @err false, with *err naming the field
 */
bool request_settle(struct exchange *x, struct request *request, struct api_error *err);

/** What a request that names none would run under.  For struct http_options; user: a struct api. */
void api_profile_now(void *user, struct profile *out);

/** A proof_render_fn; user: a struct api.  The conversations of config/probe.h, through the same
 * steps as a client's. */
void api_probe_render(void *user, const struct profile *profile, struct ids *out);

#endif
