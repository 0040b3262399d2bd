/*
 * A conversation from outside: the body of a chat request, and what must be answered, or the ids of
 * a request that was recorded.  A body is read as the API reads it, so that the ids are those that
 * a client's request had.  Knows no model.
 *
 * What must be answered is the text of the member "expected", or that of the last message when that
 * is the assistant's; the conversation then ends in front of it.  Without either only the reference
 * can say.
 */
#ifndef V4BOX_ENGINE_AUDIT_GIVEN_H
#define V4BOX_ENGINE_AUDIT_GIVEN_H

#include "engine/audit/conversation.h"

struct audit_given;

/** @own given_free
 *  @err ERR_IO, ERR_INPUT naming the file and the field, nothing of its text */
enum status MUST_CHECK given_read(const char *path, const struct audit_text *text,
                                  struct audit_given **out, struct error *err);
/** Of a prompt that was recorded; only the reference can say what must be answered.
 *  @own given_free; the ids are copied, and wiped there */
struct audit_given *given_of_prompt(const struct ids *prompt, const struct audit_text *text);
/** Accepts NULL. */
void given_free(struct audit_given *given);

/** NULL: the file does not say. */
const char *given_expected(const struct audit_given *given);
/** A user's message and all up to the next one; what stands in front of the first is always kept,
 *  and so is the last one, which asks. */
int32_t given_exchanges(const struct audit_given *given);
/** The item with those exchanges that are kept.  @shape kept [given_exchanges]; NULL: all
 *  @own audit_item_free
 *  @err ERR_INPUT: what is left is no request (a tool's result without its call); never of a prompt
 *       that was recorded */
enum status MUST_CHECK given_item(const struct audit_given *given, const struct audit_text *text,
                                  const bool *kept, struct audit_item *out, struct error *err);

#endif
