/*
 * The steps of the automaton, between its files: automaton.c runs them, automaton_json.c and
 * automaton_text.c know JSON, automaton_calls.c knows blocks of calls.
 *
 * A step takes a thread (by value: it is what comes out, changed) and a symbol, and adds the
 * threads that there are behind it.
 */
#ifndef V4BOX_ENGINE_TEXT_AUTOMATON_STEPS_H
#define V4BOX_ENGINE_TEXT_AUTOMATON_STEPS_H

#include "engine/text/automaton.h"

typedef void automaton_step_fn(struct automaton *a, struct automaton_frame f, unsigned symbol);

automaton_step_fn step_object_first, step_object_colon, step_object_next, step_object_key,
    step_array_first, step_array_next, step_value, step_number, step_word, step_word_set, step_root;
automaton_step_fn step_string, step_escape, step_hex, step_low;
automaton_step_fn step_call_choice, step_call_text, step_name, step_raw;

/* ---- automaton.c ----------------------------------------------------------------------------- */

/** Adds a thread.  Beyond MASK_THREADS_MAX it is dropped: what it allows is not sampled. */
void automaton_emit(struct automaton *a, struct automaton_frame f);
/** Puts a frame into the pool.  @return its index */
int32_t automaton_hold(struct automaton *a, struct automaton_frame f);
/** Goes on in the frame around `f`: as it is, or with the same symbol once more. */
void automaton_pop(struct automaton *a, const struct automaton_frame *f);
void automaton_pop_retry(struct automaton *a, const struct automaton_frame *f);
/** Gives the same symbol to another frame. */
void automaton_retry(struct automaton *a, struct automaton_frame f);
/** A frame inside of the one at `parent`. */
struct automaton_frame automaton_inner(const struct automaton *a, int32_t parent, uint8_t state,
                                       int32_t node);

/* ---- automaton_json.c ------------------------------------------------------------------------ */

/** Whether a number or word may end here. */
bool number_may_end(const struct automaton *a, const struct automaton_frame *f);
bool word_may_end(const struct automaton *a, const struct automaton_frame *f);

/* ---- automaton_text.c: names of properties, in objects and in calls ----------------------------
 */

/** Declared property `i` of an object can be written now. */
bool property_is_open(const struct automaton *a, const struct automaton_frame *object, uint32_t i);
/** A key that is not declared can be written now. */
bool extra_is_open(const struct automaton *a, const struct automaton_frame *object);
bool any_key_is_open(const struct automaton *a, const struct automaton_frame *object);
/** All required properties were written. */
bool object_is_complete(const struct automaton *a, const struct automaton_frame *object);
/** The frame of a key inside of the object that it holds at `parent`. */
struct automaton_frame key_inner(const struct automaton *a, int32_t parent, uint8_t state);
/** Ends a key: the object around it as it is then, with the node of the value in object.key.
 *  @return false: this key cannot be written */
bool key_close(struct automaton *a, const struct automaton_frame *f,
               struct automaton_frame *object);
/** Takes a byte of a string, key or name.  @return false: no string goes on like this */
bool text_feed(const struct automaton *a, struct automaton_frame *f, uint8_t byte);

#endif
