/*
 * Text into a fixed buffer: what does not fit is left out and remembered, memory is never taken.
 * PID 1 writes everything through this, so no input can make it grow.
 */
#ifndef V4BOX_INIT_TEXT_H
#define V4BOX_INIT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *data; /* borrows; always NUL-terminated when cap > 0 */
    size_t cap, len;
    bool cut; /* something did not fit */
};

/** An empty text over a caller's buffer of `cap` > 0 bytes. */
struct text text_over(char *buffer, size_t cap);

/** Appends bytes; all of them or, when they do not fit, none (and `cut` is set). */
void text_add(struct text *t, const void *bytes, size_t n);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Appends one JSON string literal; control characters and bytes that are not UTF-8 are escaped. */
void text_json_string(struct text *t, const char *bytes, size_t n);

/**
 * Copies text for a terminal: printable characters, tab and newline pass, every other byte becomes
 * '.', so that no answer can move the cursor, set the title or answer back through the terminal.
 */
void text_add_printable(struct text *t, const char *bytes, size_t n);

/** Where the last `count` lines begin; the last one may lack its end. */
size_t text_last_lines(const char *bytes, size_t n, size_t count);

#endif
