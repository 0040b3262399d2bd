/* Inside the reports: members of JSON values that may be absent in an older file. */
#ifndef V4BOX_ENGINE_AUDIT_REPORT_FIELDS_H
#define V4BOX_ENGINE_AUDIT_REPORT_FIELDS_H

#include "engine/base/buf.h"
#include "engine/base/json.h"

/** NULL when absent, or when `object` is NULL. */
struct json_object *report_member(struct json_object *object, const char *key);
/** "" when absent. */
const char *report_string(struct json_object *object, const char *key);
/** NaN when absent. */
double report_number(struct json_object *object, const char *key);
/** Elements of an array; 0 for anything else. */
size_t report_count(struct json_object *list);
/** "0.98 [0.95, 0.99]", or nothing. */
void report_put_estimate(struct json_object *test, struct buf *out);
/** What replay says of carried state: its legs, each with its ways and its first place. */
void report_put_state(struct json_object *state, struct buf *out);

#endif
