/*
 * Cuts text into the pieces inside which byte pairs may merge: the three Split stages of
 * tokenizer.json (config/tokenizer.def), one after the other.  Knows no tokens.
 */
#ifndef V4BOX_ENGINE_TEXT_PRETOKENIZE_H
#define V4BOX_ENGINE_TEXT_PRETOKENIZE_H

#include "engine/text/unicode.h"

#include <stdbool.h>

struct pretokenizer {
    const struct unicode *unicode; /* borrows */
    const uint8_t *text;           /* borrows [len] */
    size_t len;
    size_t at;          /* the next piece begins here */
    size_t segment_end; /* end of the run that the first two stages cut out */
    uint8_t segment;    /* its kind: CHAR_NUMBER, CHAR_HAN_KANA or 0 */
};

/** Begins with `len` bytes of text; ill-formed bytes are characters of no class. */
void pretokenize_start(struct pretokenizer *p, const struct unicode *unicode, const char *text,
                       size_t len);

/** The next piece: text[*start, *end), never empty.  False at the end of the text. */
bool pretokenize_next(struct pretokenizer *p, size_t *start, size_t *end);

#endif
