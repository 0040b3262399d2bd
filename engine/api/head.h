/*
 * The head of an HTTP request: what must hold before a byte of the body is read.  Knows no route,
 * no key file and no JSON.
 */
#ifndef V4BOX_ENGINE_API_HEAD_H
#define V4BOX_ENGINE_API_HEAD_H

#include "engine/api/errors.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

/* Header values are borrowed from the HTTP library until the request is completed. */
struct head {
    int n_headers, n_lengths, n_encodings, n_hosts, n_authorizations, n_api_keys;
    const char *length, *transfer, *host, *origin, *authorization, *api_key, *media, *coding,
        *forwarded;
    int64_t body_bytes; /* declared; 0: none; NUMBER_NONE: chunked, unknown */
};

/**
 * Reads the head and checks version, framing, Host and Origin.
 * `names` [n_names]: what Host may say beside localhost and addresses.
 * @err API_HTTP_VERSION, API_FRAMING, API_HOST, API_ORIGIN
 */
bool head_read(struct MHD_Connection *connection, const char *version, const char *const *names,
               int n_names, struct head *out, struct api_error *err);

/** True when Host ("name", "name:port", "[addr6]:port") is localhost, an address, or in `names`. */
bool head_host_allowed(const char *host, const char *const *names, int n_names);

/** The secret of "Authorization: Bearer SECRET", or NULL. */
const char *head_bearer(const struct head *head);

/** application/json in any spelling, with or without parameters, and no content coding. */
bool head_is_json(const struct head *head);

#endif
