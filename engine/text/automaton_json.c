/*
 * JSON values by a grammar: white space, scalars other than strings, arrays, objects.  Strings and
 * keys are automaton_text.c's.
 */
#include "engine/text/automaton_steps.h"

#include "kernels/check.h"

#include <string.h>

static const char *const WORDS[] = {"true", "false", "null"};
static const uint16_t WORD_TYPES[] = {GRAMMAR_BOOLEAN, GRAMMAR_BOOLEAN, GRAMMAR_NULL};
#define N_WORDS 3

static bool is_space(unsigned symbol)
{
    return symbol == ' ' || symbol == '\n' || symbol == '\t' || symbol == '\r';
}

/* Takes white space between tokens.  @return false: the symbol is none */
static bool take_space(struct automaton *a, struct automaton_frame *f, unsigned symbol)
{
    if (!is_space(symbol)) {
        f->spaces = 0;
        return false;
    }
    if (f->spaces < MASK_SPACES_MAX) {
        f->spaces++;
        automaton_emit(a, *f);
    }
    return true;
}

void step_root(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    take_space(a, &f, symbol);
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum number_phase {
    PHASE_START,
    PHASE_SIGN,
    PHASE_ZERO,
    PHASE_WHOLE,
    PHASE_POINT,
    PHASE_FRACTION,
    PHASE_E,
    PHASE_E_SIGN,
    PHASE_EXPONENT,
    PHASE_NONE, /* the symbol does not go on with the number */
};

static bool phase_may_end(uint8_t phase)
{
    return phase == PHASE_ZERO || phase == PHASE_WHOLE || phase == PHASE_FRACTION ||
           phase == PHASE_EXPONENT;
}

/* The grammar of JSON numbers. */
static enum number_phase next_phase(uint8_t phase, unsigned symbol)
{
    if (symbol >= '0' && symbol <= '9') {
        switch (phase) {
        case PHASE_START:
        case PHASE_SIGN:
            return symbol == '0' ? PHASE_ZERO : PHASE_WHOLE;
        case PHASE_WHOLE:
            return PHASE_WHOLE;
        case PHASE_POINT:
        case PHASE_FRACTION:
            return PHASE_FRACTION;
        case PHASE_E:
        case PHASE_E_SIGN:
        case PHASE_EXPONENT:
            return PHASE_EXPONENT;
        default:
            return PHASE_NONE;
        }
    }
    if (symbol == '-' && phase == PHASE_START)
        return PHASE_SIGN;
    if (symbol == '.' && (phase == PHASE_ZERO || phase == PHASE_WHOLE))
        return PHASE_POINT;
    if ((symbol == 'e' || symbol == 'E') && phase_may_end(phase) && phase != PHASE_EXPONENT)
        return PHASE_E;
    if ((symbol == '+' || symbol == '-') && phase == PHASE_E)
        return PHASE_E_SIGN;
    return PHASE_NONE;
}

static grammar_units power_of_ten(int exponent)
{
    grammar_units power = 1;
    while (exponent-- > 0)
        power *= 10;
    return power;
}

static bool overlaps(const struct grammar_node *node, bool negative, grammar_units low,
                     grammar_units high)
{
    return negative ? -high <= node->units_max && -low >= node->units_min
                    : low <= node->units_max && high >= node->units_min;
}

/* Whether some number that begins like this lies in the node's range.  Where fractions are not
 * allowed all bounds are whole, so an overlap always holds a whole number. */
static bool reaches_range(const struct grammar_node *node, const struct automaton_frame *f)
{
    const grammar_units one = power_of_ten(MASK_FRACTION_DIGITS_MAX);
    bool fractions = node->types & GRAMMAR_FRACTION;
    grammar_units low = f->number.whole * one;
    if (f->number.phase == PHASE_SIGN) /* -0 is no integer here: it is written 0 */
        return overlaps(node, true, fractions ? 0 : one,
                        power_of_ten(MASK_WHOLE_DIGITS_MAX) * one - one);
    if (f->number.phase == PHASE_POINT || f->number.phase == PHASE_FRACTION) {
        grammar_units step = power_of_ten(MASK_FRACTION_DIGITS_MAX - f->number.fraction_digits);
        low += f->number.fraction * step;
        return overlaps(node, f->number.negative, low, low + step - 1);
    }
    int more = f->number.phase == PHASE_ZERO ? 0 : MASK_WHOLE_DIGITS_MAX - f->number.digits;
    grammar_units width = 1; /* whole numbers that begin like this, with k more digits */
    for (int k = 0; k <= more; k++) {
        grammar_units high = low + width * one - (fractions ? 1 : one);
        if (overlaps(node, f->number.negative, low, high))
            return true;
        low *= 10;
        width *= 10;
    }
    return false;
}

bool number_may_end(const struct automaton *a, const struct automaton_frame *f)
{
    const struct grammar_node *node = &a->grammar->nodes[f->node];
    if (!phase_may_end(f->number.phase))
        return false;
    if (!node->ranged)
        return true;
    grammar_units units =
        f->number.whole * power_of_ten(MASK_FRACTION_DIGITS_MAX) +
        f->number.fraction * power_of_ten(MASK_FRACTION_DIGITS_MAX - f->number.fraction_digits);
    return overlaps(node, f->number.negative, units, units);
}

/* Takes note of a symbol that leads to f->number.phase.  @return false: beyond a bound */
static bool number_take(const struct grammar_node *node, struct automaton_frame *f, unsigned symbol)
{
    unsigned digit = symbol - '0';
    switch (f->number.phase) {
    case PHASE_SIGN:
        f->number.negative = true;
        break;
    case PHASE_ZERO:
        if (f->number.negative && (node->types & GRAMMAR_FRACTION) == 0)
            return false;
        f->number.digits = 1;
        break;
    case PHASE_WHOLE:
        if (node->ranged && f->number.digits++ == MASK_WHOLE_DIGITS_MAX)
            return false;
        if (node->ranged)
            f->number.whole = f->number.whole * 10 + digit;
        break;
    case PHASE_FRACTION:
        if (node->ranged && f->number.fraction_digits++ == MASK_FRACTION_DIGITS_MAX)
            return false;
        if (node->ranged)
            f->number.fraction = f->number.fraction * 10 + digit;
        break;
    case PHASE_EXPONENT:
        return f->number.exponent_digits++ < MASK_EXPONENT_DIGITS_MAX;
    default:
        break;
    }
    bool fraction = f->number.phase == PHASE_POINT || f->number.phase == PHASE_E;
    return !fraction ||
           ((node->types & GRAMMAR_FRACTION) && !(node->ranged && f->number.phase == PHASE_E));
}

void step_number(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const struct grammar_node *node = &a->grammar->nodes[f.node];
    enum number_phase next = next_phase(f.number.phase, symbol);
    if (next == PHASE_NONE) {
        if (f.number.phase != PHASE_START && number_may_end(a, &f))
            automaton_pop_retry(a, &f);
        return;
    }
    f.number.phase = (uint8_t)next;
    f.number.bytes++;
    /* What is not complete needs one more digit. */
    if (f.number.bytes + (phase_may_end(f.number.phase) ? 0 : 1) > MASK_NUMBER_BYTES_MAX ||
        !number_take(node, &f, symbol) || (node->ranged && !reaches_range(node, &f)))
        return;
    automaton_emit(a, f);
}

/* ---- words ----------------------------------------------------------------------------------- */

void step_word(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const char *word = WORDS[f.row];
    if (symbol != (unsigned char)word[f.at])
        return;
    f.at++;
    if (word[f.at] == '\0')
        automaton_pop(a, &f);
    else
        automaton_emit(a, f);
}

bool word_may_end(const struct automaton *a, const struct automaton_frame *f)
{
    return a->grammar->strings[f->text.lo].len == f->at;
}

void step_word_set(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (f.at > 0 && word_may_end(a, &f))
        automaton_pop_retry(a, &f);
    if (symbol > UINT8_MAX)
        return;
    uint32_t lo = f.text.lo, hi = f.text.hi;
    grammar_narrow(a->grammar, &lo, &hi, f.at, (uint8_t)symbol);
    if (lo == hi)
        return;
    f.text.lo = (uint16_t)lo;
    f.text.hi = (uint16_t)hi;
    f.at++;
    automaton_emit(a, f);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void begin_string(struct automaton *a, struct automaton_frame f,
                         const struct grammar_node *node)
{
    bool can = node->strings_closed ? node->strings.n > 0 : node->length_min <= node->length_max;
    if ((node->types & GRAMMAR_STRING) == 0 || (f.flags & FLAG_NO_STRING) || !can)
        return;
    f.state = STATE_STRING;
    f.flags = node->strings_closed ? FLAG_SET : FLAG_FREE;
    f.text.lo = (uint16_t)node->strings.first;
    f.text.hi = (uint16_t)(node->strings.first + node->strings.n);
    automaton_emit(a, f);
}

static void begin_container(struct automaton *a, struct automaton_frame f, bool object,
                            uint8_t height)
{
    if (height == GRAMMAR_NEVER || f.depth + height > MASK_DEPTH_MAX)
        return;
    f.depth++;
    f.flags = 0;
    f.state = object ? STATE_OBJECT_FIRST : STATE_ARRAY_FIRST;
    if (object)
        f.object.extras = -1;
    automaton_emit(a, f);
}

/* The first symbol of a value by a node without branches.  Nothing of `f.text` and the like is set
 * yet. */
static void begin(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const struct grammar_node *node = &a->grammar->nodes[f.node];
    if (symbol == '"') {
        begin_string(a, f, node);
    } else if (symbol == '{') {
        begin_container(a, f, true, node->height_object);
    } else if (symbol == '[') {
        begin_container(a, f, false, node->height_array);
    } else if (node->types & GRAMMAR_WORD) {
        f.state = STATE_WORD_SET;
        f.flags = 0;
        f.text.lo = (uint16_t)node->words.first;
        f.text.hi = (uint16_t)(node->words.first + node->words.n);
        step_word_set(a, f, symbol);
    } else if (node->types & GRAMMAR_NUMBER) {
        struct automaton_frame number = f;
        number.state = STATE_NUMBER;
        number.flags = 0;
        step_number(a, number, symbol);
    }
    for (uint8_t i = 0; i < N_WORDS; i++) {
        if ((node->types & WORD_TYPES[i]) && symbol == (unsigned char)WORDS[i][0]) {
            f.state = STATE_WORD;
            f.flags = 0;
            f.row = i;
            f.at = 1;
            automaton_emit(a, f);
        }
    }
}

void step_value(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    const struct grammar_node *node = &a->grammar->nodes[f.node];
    if ((f.flags & FLAG_NO_STRING) == 0 && take_space(a, &f, symbol))
        return;
    if (node->n_branches == 0)
        begin(a, f, symbol);
    for (uint32_t i = 0; i < node->n_branches; i++) {
        f.node = (uint16_t)a->grammar->links[node->first_branch + i];
        begin(a, f, symbol);
    }
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static bool item_fits(const struct automaton *a, const struct automaton_frame *f)
{
    const struct grammar_node *node = &a->grammar->nodes[f->node];
    return f->array.count < node->items_max &&
           grammar_fits(a->grammar, grammar_item(a->grammar, node, f->array.count), f->depth);
}

/* The place of the next item. */
static struct automaton_frame enter_item(struct automaton *a, struct automaton_frame f)
{
    int32_t item = grammar_item(a->grammar, &a->grammar->nodes[f.node], f.array.count);
    f.state = STATE_ARRAY_NEXT;
    if (f.array.count < UINT32_MAX)
        f.array.count++;
    return automaton_inner(a, automaton_hold(a, f), STATE_VALUE, item);
}

void step_array_first(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (take_space(a, &f, symbol))
        return;
    if (symbol == ']') {
        if (a->grammar->nodes[f.node].items_min == 0)
            automaton_pop(a, &f);
    } else if (item_fits(a, &f)) {
        automaton_retry(a, enter_item(a, f));
    }
}

void step_array_next(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (take_space(a, &f, symbol))
        return;
    if (symbol == ',' && item_fits(a, &f))
        automaton_emit(a, enter_item(a, f));
    else if (symbol == ']' && f.array.count >= a->grammar->nodes[f.node].items_min)
        automaton_pop(a, &f);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void enter_key(struct automaton *a, struct automaton_frame f)
{
    automaton_emit(a, key_inner(a, automaton_hold(a, f), STATE_STRING));
}

void step_object_first(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (take_space(a, &f, symbol))
        return;
    if (symbol == '}' && object_is_complete(a, &f))
        automaton_pop(a, &f);
    else if (symbol == '"' && any_key_is_open(a, &f))
        enter_key(a, f);
}

void step_object_key(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (!take_space(a, &f, symbol) && symbol == '"')
        enter_key(a, f);
}

void step_object_colon(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (take_space(a, &f, symbol) || symbol != ':')
        return;
    int32_t key = f.object.key;
    f.state = STATE_OBJECT_NEXT;
    automaton_emit(a, automaton_inner(a, automaton_hold(a, f), STATE_VALUE, key));
}

void step_object_next(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (take_space(a, &f, symbol))
        return;
    if (symbol == '}' && object_is_complete(a, &f)) {
        automaton_pop(a, &f);
    } else if (symbol == ',' && any_key_is_open(a, &f)) {
        f.state = STATE_OBJECT_KEY;
        automaton_emit(a, f);
    }
}
