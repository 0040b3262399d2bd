/*
 * The admin protocol, both ends: one request line, one answer line, then the server closes.
 *
 *   {"command":"keys","args":["list"]}
 *   {"ok":true,"text":"human text\n","data":{...}}        data is optional
 *   {"ok":false,"text":"reason"}
 *
 * Knows neither sockets nor commands.  Parses exactly these shapes: unknown members are skipped,
 * everything else is refused, nothing is allocated.
 */
#ifndef V4BOX_INIT_PROTOCOL_H
#define V4BOX_INIT_PROTOCOL_H

#include "config/box.h"
#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>

struct request {
    int count;                                               /* words, the command included */
    char word[1 + CONTROL_ARGS_MAX][CONTROL_WORD_BYTES + 1]; /* word[0] is the command */
};

struct answer {
    bool ok;
    struct text text; /* over the caller's buffer */
    const char *data; /* view into the parsed line: raw JSON, or NULL when absent */
    size_t data_len;
};

/** Splits a typed line into words at blanks.  @err false: empty, too many, too long, or not
 * printable */
bool request_from_line(struct request *r, const char *line, size_t n);

/** Parses a request line without its newline.  Words are printable ASCII.  @err false */
bool request_parse(struct request *r, const char *line, size_t n);

/** Appends the request as its line, newline included. */
void request_write(struct text *t, const struct request *r);

/** Parses an answer line; the text is decoded into `buffer`.  @err false: malformed or too large */
bool answer_parse(struct answer *a, const char *line, size_t n, char *buffer, size_t cap);

/** Appends an answer line, newline included; `data` is JSON text or NULL. */
void answer_write(struct text *t, bool ok, const char *text, size_t text_len, const char *data,
                  size_t data_len);

#endif
