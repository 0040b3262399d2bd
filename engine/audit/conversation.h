/*
 * The audit's conversations: something is said once and asked for later, in forms where engines
 * have lost it.  Every item is a function of its plan: the same seed gives the same ids.  Knows the
 * chat encoding, no model and no profile.  Texts: config/audit.def.  Long talks are in recall.c,
 * long texts in haystack.c, requests and grades in conversation.c.
 */
#ifndef V4BOX_ENGINE_AUDIT_CONVERSATION_H
#define V4BOX_ENGINE_AUDIT_CONVERSATION_H

#include "config/limits.h"
#include "engine/text/chat.h"

#include <stdint.h>

/* Who says the fact. */
enum audit_place { PLACE_USER, PLACE_SYSTEM, PLACE_ASSISTANT, PLACE_TOOL, PLACES };
const char *audit_place_name(enum audit_place place);

struct recall_plan {
    uint64_t seed;
    int32_t turns; /* user messages, the one with the fact and the question included; at least 2 */
    enum audit_place place;
    bool tools; /* a harness' tools are offered; always with PLACE_TOOL */
    bool thinking;
    int32_t decoys; /* other facts of the same form, said in the turns between */
};

/* A request that a tool of a harness fulfils. */
struct call_plan {
    uint64_t seed;
    int32_t errand; /* which one: its remainder by their number */
    bool thinking;
};

/* A text with a fact on every edge of its steps: the value begins in front of it and ends behind
 * it. */
struct edges_plan {
    uint64_t seed;
    int32_t length; /* tokens of the prompt, about */
    int32_t step;
};

struct needle_plan {
    uint64_t seed;
    int32_t length; /* tokens of the prompt, exactly */
    int32_t at;     /* index of the value's first token, exactly */
    int32_t decoys; /* other facts of the same form, anywhere in the text */
};

/* Ids of the prompt that an assistant wrote: a live client saw them being decoded.  Where history
 * has dropped its reasoning the client saw other ids, from the one in front of `begin` on. */
struct audit_turn {
    int32_t begin, end;
    int32_t forgotten, n_forgotten; /* in the item's `forgotten` */
};

/* A rendered prompt and the answer that it asks for. */
struct audit_item {
    struct ids ids;           /* owns; ends where the answer begins */
    struct ids forgotten;     /* owns; what turns were before their reasoning was dropped */
    struct audit_turn *turns; /* owns [n_turns] */
    int32_t n_turns;
    int32_t value_at, value_n; /* where a needle's value lies; others: 0, 0 */
    char *value;               /* owns; what must be answered, or NULL */
};
void audit_item_free(struct audit_item *item);

/* What renders; all borrowed. */
struct audit_text {
    const struct tokenizer *tokenizer;
    const struct chat_tokens *tokens;
};

/** An item of any request, without a value.  @own audit_item_free  @err as chat_render */
enum status MUST_CHECK conversation_render(const struct audit_text *text,
                                           const struct chat_request *request,
                                           struct audit_item *out, struct error *err);
/** Appends a message.  @return it, owned by `messages` */
struct json_object *conversation_say(struct json_object *messages, const char *role,
                                     const struct buf *content);
struct json_object *conversation_say_text(struct json_object *messages, const char *role,
                                          const char *content);
/** A harness' tools.  @own the caller: json_object_put */
struct json_object *conversation_tools(void);

/** @own audit_item_free */
void conversation_recall(const struct audit_text *text, const struct recall_plan *plan,
                         struct audit_item *out);
/** @own audit_item_free */
void conversation_call(const struct audit_text *text, const struct call_plan *plan,
                       struct audit_item *out);
/** @own audit_item_free
 *  @err ERR_INPUT: no text puts the value at that place (too close to an end, or the tokenizer has
 *       no pad of one token) */
enum status MUST_CHECK conversation_needle(const struct audit_text *text,
                                           const struct needle_plan *plan, struct audit_item *out,
                                           struct error *err);

/** One item for each edge that has room for a fact; all have the same text and ask for another.
 *  @shape out [AUDIT_EDGES_MAX]  @own audit_item_free, each  @return their number */
int32_t conversation_edges(const struct audit_text *text, const struct edges_plan *plan,
                           struct audit_item *out);

enum audit_grade {
    GRADE_RIGHT,
    GRADE_WRONG,  /* another value, or none */
    GRADE_FORMAT, /* the value stands in the answer, with other text around */
};
/** Compares an answer with the value: exact after taking white space and one full stop off the
 *  ends. */
enum audit_grade conversation_grade(const char *value, const char *answer, size_t answer_len);

#endif
