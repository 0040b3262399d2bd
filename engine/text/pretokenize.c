/*
 * The three split expressions, by hand.
 *
 *   a  \p{N}{1,3}
 *   b  [一-龥぀-ゟ゠-ヿ]+
 *   c  [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]*
 *      | \s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * Each stage cuts every piece of the stage before; matched and unmatched parts are both pieces.  No
 * character of b is a number, so a and b together cut runs of one kind: numbers, Han and kana, the
 * rest.  c cannot match in a piece of numbers, and sees each other run as a text of its own (a
 * run's end satisfies its look-ahead).  Every scan is linear: a character is looked at a bounded
 * number of times, where backtracking engines take quadratic time on runs of white space.
 */
#include "engine/text/pretokenize.h"

#define SEGMENT_KINDS (CHAR_NUMBER | CHAR_HAN_KANA)
#define WORD          (CHAR_LETTER | CHAR_MARK)
#define SIGN          (CHAR_PUNCT | CHAR_SYMBOL)

/* Of the character at `at`, which is before `end`. */
static uint8_t class_at(const struct pretokenizer *p, size_t at, size_t end, size_t *len)
{
    return unicode_class(p->unicode, p->text + at, end - at, len);
}

/* End of the run of characters that have a class in `mask`. */
static size_t run(const struct pretokenizer *p, size_t at, size_t end, uint8_t mask)
{
    size_t len;
    while (at < end && (class_at(p, at, end, &len) & mask) != 0)
        at += len;
    return at;
}

static size_t ascii_letters(const struct pretokenizer *p, size_t at, size_t end)
{
    while (at < end && p->text[at] < 0x80 &&
           (p->unicode->classes[0][p->text[at]] & CHAR_LETTER) != 0)
        at++;
    return at;
}

/* `\s*[\r\n]+ | \s+(?!\S) | \s+` at a white-space character: up to the last line end of the run if
 * it has one; else all but the last character if something follows; else all. */
static size_t match_space(const struct pretokenizer *p, size_t at, size_t end)
{
    size_t stop = at, last = at, line_end = 0, len;
    while (stop < end) {
        uint8_t class = class_at(p, stop, end, &len);
        if ((class & CHAR_SPACE) == 0)
            break;
        last = stop;
        stop += len;
        if ((class & CHAR_NEWLINE) != 0)
            line_end = stop;
    }
    if (line_end != 0)
        return line_end;
    return stop == end || last == at ? stop : last;
}

/* End of the match of c that begins at `at`, or `at` when none does. */
static size_t match(const struct pretokenizer *p, size_t at, size_t end)
{
    size_t len;
    uint8_t class = class_at(p, at, end, &len);
    if (p->text[at] < 0x80 && (class & SIGN) != 0) {
        size_t stop = ascii_letters(p, at + 1, end);
        if (stop > at + 1)
            return stop;
    }
    if ((class & WORD) != 0)
        return run(p, at + len, end, WORD);
    if ((class & (SIGN | CHAR_NEWLINE)) == 0) {
        size_t stop = run(p, at + len, end, WORD);
        if (stop > at + len)
            return stop;
    }
    size_t signs = p->text[at] == ' ' ? at + 1 : at;
    size_t stop = run(p, signs, end, SIGN);
    if (stop > signs)
        return run(p, stop, end, CHAR_NEWLINE);
    return (class & CHAR_SPACE) != 0 ? match_space(p, at, end) : at;
}

/* Stage c: the match at `at`, or the unmatched characters up to where the next match begins. */
static size_t piece_end(const struct pretokenizer *p, size_t at, size_t end)
{
    size_t len, stop = match(p, at, end);
    if (stop > at)
        return stop;
    do {
        class_at(p, at, end, &len);
        at += len;
    } while (at < end && match(p, at, end) == at);
    return at;
}

/* Stages a and b: the run of one kind that begins at p->at.  Numbers come in threes. */
static void next_segment(struct pretokenizer *p)
{
    size_t len, at = p->at;
    p->segment = class_at(p, at, p->len, &len) & SEGMENT_KINDS;
    int count = 0;
    do {
        at += len;
        count++;
    } while (at < p->len && !(p->segment == CHAR_NUMBER && count == 3) &&
             (class_at(p, at, p->len, &len) & SEGMENT_KINDS) == p->segment);
    p->segment_end = at;
}

void pretokenize_start(struct pretokenizer *p, const struct unicode *unicode, const char *text,
                       size_t len)
{
    *p = (struct pretokenizer){.unicode = unicode, .text = (const uint8_t *)text, .len = len};
}

bool pretokenize_next(struct pretokenizer *p, size_t *start, size_t *end)
{
    if (p->at == p->len)
        return false;
    if (p->at == p->segment_end)
        next_segment(p);
    *start = p->at;
    p->at = p->segment == CHAR_NUMBER ? p->segment_end : piece_end(p, p->at, p->segment_end);
    *end = p->at;
    return true;
}
