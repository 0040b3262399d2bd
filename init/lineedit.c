/* The line editor of the console. */
#include "init/lineedit.h"

#include <string.h>

#define CTRL(letter) ((letter) - '@')
#define DELETE_KEY   0x7f

void line_editor_init(struct line_editor *e, const char *prompt, const char *const *phrases)
{
    memset(e, 0, sizeof *e);
    e->prompt = prompt;
    e->phrases = phrases;
}

/* Draws the whole line again: the one way that is right after every change. */
static void redraw(const struct line_editor *e, struct text *screen)
{
    text_printf(screen, "\r%s%.*s\x1b[K", e->prompt, (int)e->len, e->line);
    if (e->cursor < e->len)
        text_printf(screen, "\x1b[%zuD", e->len - e->cursor);
}

static void insert(struct line_editor *e, char byte)
{
    if (e->len == CONSOLE_LINE_BYTES)
        return;
    memmove(e->line + e->cursor + 1, e->line + e->cursor, e->len - e->cursor);
    e->line[e->cursor++] = byte;
    e->line[++e->len] = '\0';
}

/* Removes the bytes from `from` up to `to` and leaves the cursor there. */
static void remove_range(struct line_editor *e, size_t from, size_t to)
{
    memmove(e->line + from, e->line + to, e->len - to);
    e->len -= to - from;
    e->line[e->len] = '\0';
    e->cursor = from;
}

static size_t word_start(const struct line_editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && e->line[at - 1] == ' ')
        at--;
    while (at > 0 && e->line[at - 1] != ' ')
        at--;
    return at;
}

static void recall(struct line_editor *e, int step)
{
    int at = e->history_at + step;
    if (at < 0 || at > e->history_count)
        return;
    e->history_at = at;
    const char *line = at == 0 ? "" : e->history[at - 1];
    e->len = e->cursor = strlen(line);
    memcpy(e->line, line, e->len + 1);
}

/* Where the word of `phrase` ends that the line's end is in; the phrase begins like the line. */
static size_t word_end(const struct line_editor *e, const char *phrase)
{
    return e->len + strcspn(phrase + e->len, " ");
}

/* The phrases that begin like the line, by their next word: how many bytes they have in common, and
 * whether two of them part there. */
static size_t in_common(const struct line_editor *e, const char **first, bool *part)
{
    size_t common = 0;
    *first = NULL;
    *part = false;
    for (const char *const *p = e->phrases; *p != NULL; p++) {
        if (strncmp(*p, e->line, e->len) != 0)
            continue;
        size_t end = word_end(e, *p), same = e->len;
        if (*first == NULL) {
            *first = *p;
            common = end;
            continue;
        }
        while (same < end && same < common && (*p)[same] == (*first)[same])
            same++;
        *part = *part || same < end || same < word_end(e, *first);
        common = same;
    }
    return common;
}

/* One below the other would push the screen away, so in a row; the next word of each, once. */
static void show_choices(const struct line_editor *e, struct text *screen)
{
    const char *before = "";
    size_t start = e->len, length = 0;
    while (start > 0 && e->line[start - 1] != ' ')
        start--;
    for (const char *const *p = e->phrases; *p != NULL; p++) {
        if (strncmp(*p, e->line, e->len) != 0)
            continue;
        size_t n = word_end(e, *p) - start;
        if (n == 0 || (n == length && strncmp(before, *p + start, n) == 0))
            continue;
        text_printf(screen, "%s%.*s", length == 0 ? "\n" : "  ", (int)n, *p + start);
        before = *p + start;
        length = n;
    }
    text_printf(screen, "\n");
}

static void complete(struct line_editor *e, struct text *screen)
{
    const char *first;
    bool part;
    if (e->cursor != e->len)
        return;
    size_t common = in_common(e, &first, &part), before = e->len;
    if (first == NULL || common >= CONSOLE_LINE_BYTES)
        return;
    for (size_t i = before; i < common; i++)
        insert(e, first[i]);
    if (!part && e->len > 0)
        insert(e, ' ');
    else if (common == before)
        show_choices(e, screen);
}

static void control_key(struct line_editor *e, char byte)
{
    switch (byte) {
    case CTRL('A'):
        e->cursor = 0;
        break;
    case CTRL('E'):
        e->cursor = e->len;
        break;
    case CTRL('B'):
        e->cursor -= e->cursor > 0;
        break;
    case CTRL('F'):
        e->cursor += e->cursor < e->len;
        break;
    case CTRL('K'):
        remove_range(e, e->cursor, e->len);
        break;
    case CTRL('U'):
        remove_range(e, 0, e->cursor);
        break;
    case CTRL('W'):
        remove_range(e, word_start(e), e->cursor);
        break;
    case CTRL('P'):
        recall(e, 1);
        break;
    case CTRL('N'):
        recall(e, -1);
        break;
    case CTRL('H'):
    case DELETE_KEY:
        if (e->cursor > 0)
            remove_range(e, e->cursor - 1, e->cursor);
        break;
    case CTRL('D'):
        if (e->cursor < e->len)
            remove_range(e, e->cursor, e->cursor + 1);
        break;
    default:
        break; /* every other control byte is nothing */
    }
}

/* Arrow keys and their kin as the control keys that do the same; 0: none. */
static char key_of_sequence(char final, char parameter)
{
    static const struct {
        char final, parameter, key;
    } KEYS[] = {
        {'A', 0, CTRL('P')},   {'B', 0, CTRL('N')},   {'C', 0, CTRL('F')},   {'D', 0, CTRL('B')},
        {'H', 0, CTRL('A')},   {'F', 0, CTRL('E')},   {'~', '1', CTRL('A')}, {'~', '7', CTRL('A')},
        {'~', '4', CTRL('E')}, {'~', '8', CTRL('E')}, {'~', '3', CTRL('D')},
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        if (KEYS[i].final == final && KEYS[i].parameter == parameter)
            return KEYS[i].key;
    return 0;
}

/* One byte inside an escape sequence; returns the key when the sequence is finished. */
static char escape_byte(struct line_editor *e, char byte)
{
    if (e->escape == 1) {
        e->escape = byte == '[' || byte == 'O' ? 2 : 0;
        e->parameter = 0;
        return 0;
    }
    if (byte >= '0' && byte <= '9' && e->escape == 2) {
        e->parameter = byte;
        e->escape = 3;
        return 0;
    }
    if ((byte >= '0' && byte <= '9') || byte == ';') {
        e->parameter = ';'; /* longer parameters belong to keys that mean nothing here */
        return 0;
    }
    e->escape = 0;
    return key_of_sequence(byte, e->parameter);
}

enum edit_event line_editor_feed(struct line_editor *e, char byte, struct text *screen)
{
    bool after_cr = e->after_cr;
    e->after_cr = byte == '\r';
    if (e->escape > 0) {
        char key = escape_byte(e, byte);
        if (key != 0) {
            control_key(e, key);
            redraw(e, screen);
        }
        return EDIT_NONE;
    }
    if (byte == '\x1b') {
        e->escape = 1;
        return EDIT_NONE;
    }
    if (byte == '\n' && after_cr)
        return EDIT_NONE;
    if (byte == '\r' || byte == '\n') {
        text_printf(screen, "\n");
        return EDIT_LINE;
    }
    if (byte == CTRL('C')) {
        text_printf(screen, "^C\n");
        e->len = e->cursor = 0;
        e->line[0] = '\0';
        return EDIT_INTERRUPT;
    }
    if (byte == CTRL('D') && e->len == 0) {
        text_printf(screen, "\n");
        return EDIT_END;
    }
    bool printable = byte >= 0x20 && byte < DELETE_KEY;
    if (printable && e->cursor == e->len) {
        /* Typing at the end, by far the most common case, costs the serial line one byte. */
        text_add(screen, &byte, e->len < CONSOLE_LINE_BYTES ? 1 : 0);
        insert(e, byte);
        return EDIT_NONE;
    }
    if (printable)
        insert(e, byte);
    else if (byte == CTRL('I'))
        complete(e, screen);
    else
        control_key(e, byte);
    redraw(e, screen);
    return EDIT_NONE;
}

void line_editor_next(struct line_editor *e, struct text *screen)
{
    bool again = e->history_count > 0 && strcmp(e->history[0], e->line) == 0;
    if (e->len > 0 && !again) {
        memmove(e->history[1], e->history[0], sizeof e->history - sizeof e->history[0]);
        memcpy(e->history[0], e->line, sizeof e->line);
        e->history_count += e->history_count < CONSOLE_HISTORY;
    }
    e->history_at = 0;
    e->len = e->cursor = 0;
    e->line[0] = '\0';
    e->escape = 0;
    redraw(e, screen);
}
