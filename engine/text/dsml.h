/*
 * Reads a tool-call block of the model's answer (model.md 5.2, 5.5) piece by piece.  The one token
 * ｜DSML｜ is the MARK; everything else is text, already in whole UTF-8 characters.  So text that
 * only looks like a tag can neither open nor close anything.  With M for the mark, a block is
 *
 *   <M tool_calls>\n
 *   <M invoke name="NAME">\n
 *   <M parameter name="KEY" string="true">any text</M parameter>\n
 *   <M parameter name="KEY" string="false">JSON</M parameter>\n
 *   </M invoke>\n
 *   </M tool_calls>
 *
 * (without the blank behind M).  The reader starts behind the first mark; the "<" in front of it is
 * the caller's.
 *
 * Read although it is not quite this, since models write it: other or no white space between tags;
 * `function_calls`, `toolcalls`, and a line end in place of the wrapper's ">"; no wrapper, when the
 * call names an offered tool; a JSON object in place of the parameters; a lone parameter
 * `arguments` or `input` that holds the whole object, when the tool declares no such property;
 * string="false" with text that is no JSON, which then is a string.  Anything else is malformed:
 * the calls before it stand, it and all behind it is nothing.
 *
 * Knows no stop strings, no reasoning, no HTTP and nothing of what a tool does.
 */
#ifndef V4BOX_ENGINE_TEXT_DSML_H
#define V4BOX_ENGINE_TEXT_DSML_H

#include "engine/base/buf.h"
#include "engine/base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct dsml_call {
    struct buf name;      /* owns */
    struct buf arguments; /* owns: the text of one JSON object */
};

enum dsml_progress {
    DSML_OPEN,      /* inside */
    DSML_OPENING,   /* whether this is a block at all is not known yet */
    DSML_NONE,      /* it is not: what was fed is plain text */
    DSML_ENDED,     /* complete; what follows is ignored */
    DSML_MALFORMED, /* see dsml_fault; what follows is ignored */
};

struct dsml; /* one block; one thread at a time */

/**
 * `tools`: the offered tools in OpenAI form, retained (may be NULL).  `wrapped`: only a block with
 * its wrapper counts.
 * @own dsml_destroy
 */
struct dsml *dsml_create(struct json_object *tools, bool wrapped);
void dsml_destroy(struct dsml *dsml);

enum dsml_progress dsml_push_text(struct dsml *dsml, const char *text, size_t len);
enum dsml_progress dsml_push_mark(struct dsml *dsml);

/** The calls that are complete.  Borrowed; a later push may move them. */
const struct dsml_call *dsml_calls(const struct dsml *dsml, int32_t *count);
/** True between calls: an answer that ends here has lost nothing but closing tags. */
bool dsml_is_settled(const struct dsml *dsml);
/** A call has begun that is not among dsml_calls. */
bool dsml_in_call(const struct dsml *dsml);
/** What was wrong with a malformed block: a constant, nothing of the model's. */
const char *dsml_fault(const struct dsml *dsml);

#endif
