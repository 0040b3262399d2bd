/*
 * A chat completion request: from the bytes of the body to a checked structure.  One table of
 * fields decides what is taken, refused and ignored (api.md 1.2).  Knows no HTTP and renders
 * nothing.
 */
#ifndef V4BOX_ENGINE_API_REQUEST_H
#define V4BOX_ENGINE_API_REQUEST_H

#include "config/limits.h"
#include "engine/api/errors.h"
#include "engine/api/tools.h"
#include "engine/base/json.h"
#include "engine/engine.h"
#include "engine/precision/profile.h"
#include "engine/text/answer.h"
#include "engine/text/mask.h"

#include <stdbool.h>
#include <stdint.h>

/* What holds when a request says nothing. */
struct request_defaults {
    const char *model; /* the one model id that is served */
    bool thinking;
    const char *effort; /* as in struct request */
};

struct request {
    struct json_object *root;     /* owns: the body */
    struct json_object *messages; /* owns: checked, only fields that are known (messages.h) */
    bool stream, include_usage;
    bool thinking, thinking_said;
    const char *effort; /* of struct chat_request; NULL, "high" or "max" */
    bool effort_said;
    char profile_name[PROFILE_NAME_BYTES]; /* that the client named; "": none */
    struct profile profile;                /* that it runs under, once it is settled (profiles.h) */
    int32_t tokens_max;                    /* 0: not said */
    int32_t deadline_ms;                   /* from its head on; 0: none */
    struct sampling sampling;
    bool seeded;                                /* the client gave the seed */
    struct answer_stop stops[STOP_STRINGS_MAX]; /* texts in `root` */
    int32_t n_stops;
    struct json_object *tools; /* in `root`: offered to the model; NULL: none */
    enum tool_choice choice;
    struct json_object *choice_name; /* in `root`: CHOICE_NAMED */
    int32_t calls_max;               /* tool calls in one answer; 0: no bound */
    enum mask_format format;         /* of the content */
    struct json_object *schema;      /* in `root`: MASK_JSON_SCHEMA */
    bool schema_strict;
    bool logprobs;            /* told with each token of the content .. */
    int32_t top_logprobs;     /* .. and so many alternatives */
    bool prefix;              /* the last message is the beginning of the answer */
    int32_t unknown_fields;   /* of the body: ignored, and counted */
    struct json_object *echo; /* owns: what the answer repeats of its request, or NULL */
};

/**
 * Parses and checks a body.  Unknown fields are ignored; null is the same as absent.
 * @own  request_clear, also after false
 * @err  false, with *err naming the field
 */
bool request_parse(const char *body, size_t len, const struct request_defaults *defaults,
                   struct request *out, struct api_error *err);
void request_clear(struct request *request);

/* The same in two steps, for a body that comes in another form. */

/** How many of the first REQUEST_FIELDS_MAX members of a body are not known. */
int32_t request_count_unknown(struct json_object *body, bool (*known)(const char *name));

/** Parses a body that must be one object.  @own *out, NULL after false  @err false: API_JSON */
bool request_json(const char *body, size_t len, struct json_object **out, struct api_error *err);
/** Checks a parsed body.  @own take_root; request_clear, also after false  @err as request_parse */
bool request_read(struct json_object *take_root, const struct request_defaults *defaults,
                  struct request *out, struct api_error *err);

#endif
