/*
 * Strings of JSON: values, keys, enum values.  Escapes are decoded, so a key is the same however it
 * is written.  Half a surrogate pair is refused: it would become another text.
 */
#include "engine/text/automaton_steps.h"

#include "engine/base/fnv.h"
#include "kernels/check.h"

#include <string.h>

/* ---- properties ------------------------------------------------------------------------------ */

static bool bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

bool property_is_open(const struct automaton *a, const struct automaton_frame *object, uint32_t i)
{
    const struct grammar_node *node = &a->grammar->nodes[object->node];
    return !bit(object->object.seen, i) &&
           grammar_fits(a->grammar, a->grammar->links[node->first_property + i], object->depth);
}

bool extra_is_open(const struct automaton *a, const struct automaton_frame *object)
{
    return object->n_extras < MASK_EXTRA_KEYS_MAX &&
           grammar_fits(a->grammar, a->grammar->nodes[object->node].additional, object->depth);
}

static bool any_is_open(const struct automaton *a, const struct automaton_frame *object,
                        uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (property_is_open(a, object, i))
            return true;
    }
    return false;
}

bool any_key_is_open(const struct automaton *a, const struct automaton_frame *object)
{
    return extra_is_open(a, object) ||
           any_is_open(a, object, 0, a->grammar->nodes[object->node].names.n);
}

bool object_is_complete(const struct automaton *a, const struct automaton_frame *object)
{
    const struct grammar_node *node = &a->grammar->nodes[object->node];
    for (int i = 0; i < MASK_PROPERTIES_MAX / 64; i++) {
        if (node->required[i] & ~object->object.seen[i])
            return false;
    }
    return true;
}

struct automaton_frame key_inner(const struct automaton *a, int32_t parent, uint8_t state)
{
    const struct automaton_frame *object = &a->pool[parent];
    const struct grammar_node *node = &a->grammar->nodes[object->node];
    struct automaton_frame f = automaton_inner(a, parent, state, object->node);
    f.flags = FLAG_KEY;
    f.flags |= node->names.n > 0 ? FLAG_SET : 0;
    f.flags |= extra_is_open(a, object) ? FLAG_FREE : 0;
    f.text.hash = FNV_BASIS;
    f.text.lo = (uint16_t)node->names.first;
    f.text.hi = (uint16_t)(node->names.first + node->names.n);
    return f;
}

/* A key that no schema declares: not one that is there already.  Keys are known by 64 bits; a
 * collision only bars a key that could have been written. */
static bool remember_extra(struct automaton *a, const struct automaton_frame *f,
                           struct automaton_frame *object)
{
    for (int32_t i = object->object.extras; i >= 0; i = a->pool[i].parent) {
        if (a->pool[i].text.hash == f->text.hash)
            return false;
    }
    struct automaton_frame extra = automaton_inner(a, -1, STATE_EXTRA, 0);
    extra.parent = object->object.extras;
    extra.text.hash = f->text.hash;
    object->object.extras = automaton_hold(a, extra);
    object->n_extras++;
    return true;
}

bool key_close(struct automaton *a, const struct automaton_frame *f, struct automaton_frame *object)
{
    *object = a->pool[f->parent];
    const struct grammar_node *node = &a->grammar->nodes[object->node];
    if (f->text.lo < f->text.hi && a->grammar->strings[f->text.lo].len == f->at) {
        uint32_t i = f->text.lo - node->names.first;
        if (!property_is_open(a, object, i))
            return false;
        object->object.seen[i / 64] |= UINT64_C(1) << i % 64;
        object->object.key = (uint16_t)a->grammar->links[node->first_property + i];
        return true;
    }
    if ((f->flags & FLAG_FREE) == 0 || !remember_extra(a, f, object))
        return false;
    object->object.key = (uint16_t)node->additional;
    return true;
}

/* ---- what a string may become ---------------------------------------------------------------- */

/* Some string of the set that is still possible goes on behind the bytes there are. */
static bool set_goes_on(const struct automaton *a, const struct automaton_frame *f)
{
    if ((f->flags & FLAG_SET) == 0)
        return false;
    uint32_t lo = f->text.lo, hi = f->text.hi;
    if (lo < hi && a->grammar->strings[lo].len == f->at)
        lo++;
    if ((f->flags & FLAG_KEY) == 0)
        return lo < hi;
    const struct automaton_frame *object = &a->pool[f->parent];
    uint32_t first = a->grammar->nodes[object->node].names.first;
    return any_is_open(a, object, lo - first, hi - first);
}

/* Some string of the set that is still possible is complete, or goes on. */
static bool set_is_open(const struct automaton *a, const struct automaton_frame *f)
{
    if ((f->flags & FLAG_KEY) == 0)
        return f->text.lo < f->text.hi;
    const struct automaton_frame *object = &a->pool[f->parent];
    uint32_t first = a->grammar->nodes[object->node].names.first;
    return any_is_open(a, object, f->text.lo - first, f->text.hi - first);
}

static uint32_t length_max(const struct automaton *a, const struct automaton_frame *f)
{
    return f->flags & (FLAG_KEY | FLAG_SET) ? UINT32_MAX : a->grammar->nodes[f->node].length_max;
}

/* One more character can follow. */
static bool goes_on(const struct automaton *a, const struct automaton_frame *f)
{
    return f->flags & FLAG_FREE ? f->text.length < length_max(a, f) : set_goes_on(a, f);
}

bool text_feed(const struct automaton *a, struct automaton_frame *f, uint8_t byte)
{
    if ((byte & 0xC0) != 0x80 && f->text.length < UINT32_MAX) {
        if (f->text.length == length_max(a, f))
            return false;
        f->text.length++;
    }
    if (f->flags & FLAG_KEY)
        f->text.hash = fnv_add(f->text.hash, byte);
    if ((f->flags & FLAG_SET) == 0)
        return true;
    uint32_t lo = f->text.lo, hi = f->text.hi;
    grammar_narrow(a->grammar, &lo, &hi, f->at, byte);
    f->text.lo = (uint16_t)lo;
    f->text.hi = (uint16_t)hi;
    f->at++;
    if (lo == hi) { /* nothing of the set any more: what is left is any text, or nothing */
        f->flags &= (uint8_t)~FLAG_SET;
        return f->flags & FLAG_FREE;
    }
    return (f->flags & FLAG_FREE) || set_is_open(a, f);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void close_string(struct automaton *a, const struct automaton_frame *f)
{
    struct automaton_frame object;
    if (f->flags & FLAG_KEY) {
        if (!key_close(a, f, &object))
            return;
        object.state = STATE_OBJECT_COLON;
        a->popped = true;
        automaton_emit(a, object);
        return;
    }
    bool complete = f->flags & FLAG_SET
                        ? f->text.lo < f->text.hi && a->grammar->strings[f->text.lo].len == f->at
                        : f->text.length >= a->grammar->nodes[f->node].length_min;
    if (complete)
        automaton_pop(a, f);
}

void step_string(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (symbol > UINT8_MAX || symbol < 0x20)
        return;
    if (f.utf8 == 0 && symbol == '"') {
        close_string(a, &f);
        return;
    }
    if (f.utf8 == 0 && symbol == '\\') {
        f.state = STATE_ESCAPE;
        if (goes_on(a, &f))
            automaton_emit(a, f);
        return;
    }
    int missing = automaton_utf8(f.utf8, (uint8_t)symbol);
    if (missing < 0)
        return;
    f.utf8 = (uint8_t)missing;
    if (text_feed(a, &f, (uint8_t)symbol))
        automaton_emit(a, f);
}

void step_escape(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    if (symbol == 'u') {
        f.state = STATE_HEX;
        f.text.unit = f.text.digits = 0;
        automaton_emit(a, f);
        return;
    }
    const char *hit = symbol != 0 && symbol < 0x80 ? strchr(FROM, (char)symbol) : NULL;
    if (hit == NULL)
        return;
    f.state = STATE_STRING;
    if (text_feed(a, &f, (uint8_t)TO[hit - FROM]))
        automaton_emit(a, f);
}

/* ---- \u escapes ------------------------------------------------------------------------------ */

static uint32_t code_point_at(const uint8_t *s)
{
    if (s[0] < 0x80)
        return s[0];
    if (s[0] < 0xE0)
        return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    if (s[0] < 0xF0)
        return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* The character behind a backslash can be the one whose first digits are written. */
static bool character_fits(uint32_t c, const struct automaton_frame *f)
{
    bool pair = c >= 0x10000;
    uint32_t first = pair ? 0xD800 + ((c - 0x10000) >> 10) : c;
    if (f->text.high == 0)
        return first >> 4 * (4 - f->text.digits) == f->text.unit;
    return pair && first == f->text.high &&
           (0xDC00 + ((c - 0x10000) & 0x3FF)) >> 4 * (4 - f->text.digits) == f->text.unit;
}

/* Some string of the set goes on with such a character. */
static bool set_fits(const struct automaton *a, const struct automaton_frame *f)
{
    const struct automaton_frame *object = &a->pool[f->parent];
    uint32_t first = a->grammar->nodes[f->node].names.first;
    for (uint32_t i = f->text.lo; i < f->text.hi; i++) {
        size_t len;
        const char *text = grammar_string(a->grammar, i, &len);
        if (len > f->at && character_fits(code_point_at((const uint8_t *)text + f->at), f) &&
            ((f->flags & FLAG_KEY) == 0 || property_is_open(a, object, i - first)))
            return true;
    }
    return false;
}

/* Some character has these first digits: no half of a pair alone, and no NUL in keys (json.h). */
static bool digits_fit(const struct automaton *a, const struct automaton_frame *f)
{
    uint32_t unit = f->text.unit, digits = f->text.digits;
    uint32_t low_first = 0xDC00u >> 4 * (4 - digits), low_last = 0xDFFFu >> 4 * (4 - digits);
    bool low = unit >= low_first && unit <= low_last;
    if (f->text.high != 0 ? !low : low && digits >= 2)
        return false;
    if (digits == 4 && unit == 0 && (f->flags & FLAG_KEY))
        return false;
    return (f->flags & FLAG_FREE) || set_fits(a, f);
}

/* Takes a decoded character into the string. */
static void finish_escape(struct automaton *a, struct automaton_frame f, uint32_t c)
{
    static const uint8_t LEAD[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    f.state = STATE_STRING;
    f.text.high = f.text.unit = f.text.digits = 0;
    for (int i = n - 1; i >= 0; i--) {
        uint8_t byte =
            i == n - 1 ? (uint8_t)(LEAD[n] | c >> 6 * i) : (uint8_t)(0x80 | (c >> 6 * i & 0x3F));
        if (!text_feed(a, &f, byte))
            return;
    }
    automaton_emit(a, f);
}

void step_hex(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    static const char DIGITS[] = "0123456789abcdef0123456789ABCDEF";
    const char *hit = symbol != 0 && symbol < 0x80 ? strchr(DIGITS, (char)symbol) : NULL;
    if (hit == NULL)
        return;
    f.text.unit = (uint16_t)(f.text.unit * 16 + (hit - DIGITS) % 16);
    f.text.digits++;
    if (!digits_fit(a, &f))
        return;
    if (f.text.digits < 4) {
        automaton_emit(a, f);
    } else if (f.text.high != 0) {
        finish_escape(a, f, 0x10000 + ((f.text.high - 0xD800u) << 10) + (f.text.unit - 0xDC00u));
    } else if (f.text.unit >= 0xD800 && f.text.unit <= 0xDBFF) {
        f.text.high = f.text.unit;
        f.text.unit = f.text.digits = 0;
        f.state = STATE_LOW;
        automaton_emit(a, f);
    } else {
        finish_escape(a, f, f.text.unit);
    }
}

void step_low(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    if (symbol != (f.text.digits == 0 ? '\\' : 'u'))
        return;
    f.text.digits++;
    if (f.text.digits == 2) {
        f.text.digits = 0;
        f.state = STATE_HEX;
    }
    automaton_emit(a, f);
}

/* ---- free text ------------------------------------------------------------------------------- */

enum automaton_room_kind automaton_room(const struct automaton *a, const struct automaton_frame *f,
                                        uint32_t *room)
{
    const struct grammar_node *node = &a->grammar->nodes[f->node];
    if (f->utf8 != 0 || (f->flags & FLAG_FREE) == 0)
        return ROOM_NONE;
    if (f->state == STATE_STRING) {
        *room = length_max(a, f) - f->text.length;
        return ROOM_STRING;
    }
    if (f->state != STATE_RAW)
        return ROOM_NONE;
    *room = node->length_max == UINT32_MAX      ? UINT32_MAX
            : node->length_max > f->text.length ? node->length_max - f->text.length
                                                : 0;
    return ROOM_RAW;
}
