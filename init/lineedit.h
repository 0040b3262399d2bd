/*
 * The line editor of the console: bytes in, a finished line or an event out, and what the terminal
 * has to show.  Pure: no terminal, no file.  Takes printable ASCII only, so nothing typed or pasted
 * can reach the terminal as a control sequence.
 */
#ifndef V4BOX_INIT_LINEEDIT_H
#define V4BOX_INIT_LINEEDIT_H

#include "config/box.h"
#include "init/text.h"

#include <stddef.h>

enum edit_event {
    EDIT_NONE,      /* more bytes, please */
    EDIT_LINE,      /* the line is finished */
    EDIT_INTERRUPT, /* Ctrl-C: the line was thrown away */
    EDIT_END,       /* Ctrl-D on an empty line */
};

struct line_editor {
    const char *prompt;                /* borrows */
    const char *const *phrases;        /* borrows: lines to complete to, NULL-terminated */
    char line[CONSOLE_LINE_BYTES + 1]; /* NUL-terminated */
    size_t len, cursor;
    int escape;     /* bytes of an escape sequence seen: 0 none, 1 ESC, 2 ESC [, 3 ESC [ digit */
    char parameter; /* that digit; ';' when there is more than one */
    bool after_cr;  /* the newline of a CR LF pair is not a line of its own */
    char history[CONSOLE_HISTORY][CONSOLE_LINE_BYTES + 1];
    int history_count, history_at; /* shown entry, counted back from the newest; 0: the new line */
};

/**
 * An empty editor without history.  `phrases` are beginnings of lines, words divided by one blank:
 * a tab completes the word at the end of the line as far as all agree, and shows them where they
 * part.
 */
void line_editor_init(struct line_editor *e, const char *prompt, const char *const *phrases);

/** Feeds one byte; what the terminal must show is added to `screen`. */
enum edit_event line_editor_feed(struct line_editor *e, char byte, struct text *screen);

/** Keeps the finished line in the history and starts the next one; shows the prompt. */
void line_editor_next(struct line_editor *e, struct text *screen);

#endif
