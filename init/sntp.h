/*
 * SNTP (RFC 4330), the client's side: the question, what counts as an answer to it, and what is
 * made of the answer.  Pure: no socket, no clock; anybody on the way may have written the bytes.
 */
#ifndef V4BOX_INIT_SNTP_H
#define V4BOX_INIT_SNTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNTP_BYTES 48

enum sntp_result {
    SNTP_GOOD,
    SNTP_FOREIGN,    /* no answer to this question: it changes nothing */
    SNTP_KISS,       /* the server wants to be left alone */
    SNTP_UNSYNCED,   /* the server does not know the time itself */
    SNTP_IMPLAUSIBLE /* an answer whose times can not be */
};

struct sntp_sample {
    int64_t offset_us; /* what the clock lacks */
    int64_t delay_us;  /* there and back */
    int stratum;
};

enum sntp_action {
    SNTP_WAIT,  /* another answer has to say the same first */
    SNTP_SLEW,  /* little: the clock goes a bit faster or slower */
    SNTP_STEP,  /* much: it is set */
    SNTP_REFUSE /* too much for a clock that was right before */
};

/* What is known of the clock. */
struct sntp_clock {
    bool right;        /* set by a server or an operator since the start */
    bool waiting;      /* an answer wants a step */
    int64_t wanted_us; /* by how much */
};

/** The question.  The cookie is random: an answer brings it back; nothing of the box's own time is
 * told.  @shape packet [SNTP_BYTES] */
void sntp_question(uint8_t *packet, uint64_t cookie);

/**
 * Looks at `n` bytes that came in answer.  Times are those of the box's clock, since 1970.
 * @unit us  @err *out is only written for SNTP_GOOD
 */
enum sntp_result sntp_answer(struct sntp_sample *out, const uint8_t *bytes, size_t n,
                             uint64_t cookie, int64_t sent_us, int64_t received_us);

/** What to do with a good answer. */
enum sntp_action sntp_decide(struct sntp_clock *c, const struct sntp_sample *sample);

/** Whether a time may be right at all: not before this program was written, and not a lifetime
 * after.  @unit s since 1970 */
bool sntp_plausible(int64_t second);

/** Why an answer is not used, for people. */
const char *sntp_result_text(enum sntp_result result);

/** Parses 2026-11-30T12:00:00Z.  @unit s since 1970  @err false: another form, or implausible */
bool sntp_parse_time(const char *text, int64_t *second);

#endif
