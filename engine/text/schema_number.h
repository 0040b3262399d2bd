/*
 * Numbers of a schema as exact fixed point: bounds are compared with what is sampled digit by
 * digit, so no binary fraction may come in between.
 */
#ifndef V4BOX_ENGINE_TEXT_SCHEMA_NUMBER_H
#define V4BOX_ENGINE_TEXT_SCHEMA_NUMBER_H

#include "engine/base/json.h"
#include "engine/text/grammar.h"

/** The number 1 in units; one more than the greatest number that is written in fixed point. */
grammar_units schema_units_one(void);
grammar_units schema_units_limit(void);

/**
 * A JSON number in units, rounded down; *exact says whether that changed it.  What lies beyond the
 * limit becomes the limit.
 * @return false: it has more digits than anyone means
 */
bool schema_units(struct json_object *value, grammar_units *out, bool *exact);

bool schema_is_number(struct json_object *value);
/** True for 1 and for 1.0. */
bool schema_is_whole(struct json_object *number);

#endif
