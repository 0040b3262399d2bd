/* SNTP, the client's side. */
#include "init/sntp.h"

#include "config/box.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_US 1000000
/* From 1900, where NTP begins, to 1970. */
#define UNIX_EPOCH 2208988800

/* First byte: two bits of warning, three of version, three of mode. */
#define VERSION       4
#define VERSION_LEAST 3
#define MODE_CLIENT   3
#define MODE_SERVER   4
#define LEAP_UNKNOWN  3
#define STRATUM_MAX   15

/* Where things stand in a packet. */
enum {
    AT_STRATUM = 1,
    AT_DELAY = 4,
    AT_DISPERSION = 8,
    AT_COOKIE = 24,
    AT_RECEIVED = 32,
    AT_SENT = 40
};

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) << 32 | get32(p + 4);
}

/* Seconds below the middle of an era are those of the next one, which begins in 2036. */
static int64_t unix_us(uint64_t stamp)
{
    int64_t second = (int64_t)(stamp >> 32);
    if (second < INT64_C(0x80000000))
        second += INT64_C(0x100000000);
    int64_t us = (int64_t)(((stamp & 0xffffffff) * SECOND_US) >> 32);
    return (second - UNIX_EPOCH) * SECOND_US + us;
}

/* A short of NTP: 16 bits of seconds, 16 behind the point. */
static int64_t short_us(uint32_t value)
{
    return ((int64_t)value * SECOND_US) >> 16;
}

void sntp_question(uint8_t *packet, uint64_t cookie)
{
    memset(packet, 0, SNTP_BYTES);
    packet[0] = VERSION << 3 | MODE_CLIENT;
    for (int i = 0; i < 8; i++)
        packet[AT_SENT + i] = (uint8_t)(cookie >> (56 - 8 * i));
}

enum sntp_result sntp_answer(struct sntp_sample *out, const uint8_t *bytes, size_t n,
                             uint64_t cookie, int64_t sent_us, int64_t received_us)
{
    if (n < SNTP_BYTES || get64(bytes + AT_COOKIE) != cookie || (bytes[0] & 7) != MODE_SERVER)
        return SNTP_FOREIGN;
    int version = bytes[0] >> 3 & 7;
    if (version < VERSION_LEAST || version > VERSION)
        return SNTP_FOREIGN;
    if (bytes[AT_STRATUM] == 0)
        return SNTP_KISS;
    if (bytes[0] >> 6 == LEAP_UNKNOWN || bytes[AT_STRATUM] > STRATUM_MAX)
        return SNTP_UNSYNCED;
    int64_t there_us = unix_us(get64(bytes + AT_RECEIVED));
    int64_t back_us = unix_us(get64(bytes + AT_SENT));
    int64_t error_us =
        short_us(get32(bytes + AT_DELAY)) / 2 + short_us(get32(bytes + AT_DISPERSION));
    int64_t held_us = back_us - there_us, delay_us = received_us - sent_us - held_us;
    if (error_us > CLOCK_ERROR_MAX_US)
        return SNTP_UNSYNCED;
    if (!sntp_plausible(there_us / SECOND_US) || !sntp_plausible(back_us / SECOND_US) ||
        held_us < 0 || delay_us < -CLOCK_GRAIN_US || delay_us > CLOCK_DELAY_MAX_US)
        return SNTP_IMPLAUSIBLE;
    *out = (struct sntp_sample){.offset_us = (there_us - sent_us + back_us - received_us) / 2,
                                .delay_us = delay_us > 0 ? delay_us : 0,
                                .stratum = bytes[AT_STRATUM]};
    return SNTP_GOOD;
}

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

enum sntp_action sntp_decide(struct sntp_clock *c, const struct sntp_sample *sample)
{
    int64_t offset_us = sample->offset_us;
    bool confirmed = c->waiting && magnitude(offset_us - c->wanted_us) < CLOCK_STEP_US;
    c->waiting = false;
    if (magnitude(offset_us) < CLOCK_STEP_US) {
        c->right = true;
        return SNTP_SLEW;
    }
    if (c->right && magnitude(offset_us) > CLOCK_STEP_MAX_US)
        return SNTP_REFUSE;
    if (confirmed) {
        c->right = true;
        return SNTP_STEP;
    }
    c->waiting = true;
    c->wanted_us = offset_us;
    return SNTP_WAIT;
}

bool sntp_plausible(int64_t second)
{
    return second >= CLOCK_FLOOR_S && second <= CLOCK_CEILING_S;
}

const char *sntp_result_text(enum sntp_result result)
{
    static const char *const TEXTS[] = {
        [SNTP_GOOD] = "good",
        [SNTP_FOREIGN] = "an answer to another question",
        [SNTP_KISS] = "the server wants to be asked less",
        [SNTP_UNSYNCED] = "the server does not know the time itself",
        [SNTP_IMPLAUSIBLE] = "the times in the answer can not be",
    };
    return TEXTS[result];
}

bool sntp_parse_time(const char *text, int64_t *second)
{
    static const char FORM[] = "dddd-dd-ddTdd:dd:ddZ";
    struct tm tm = {.tm_isdst = 0}, again;
    if (strlen(text) != sizeof FORM - 1)
        return false;
    for (size_t i = 0; i < sizeof FORM - 1; i++)
        if (FORM[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != FORM[i])
            return false;
    tm.tm_year = atoi(text) - 1900;
    tm.tm_mon = atoi(text + 5) - 1;
    tm.tm_mday = atoi(text + 8);
    tm.tm_hour = atoi(text + 11);
    tm.tm_min = atoi(text + 14);
    tm.tm_sec = atoi(text + 17);
    again = tm;
    time_t when = timegm(&again); /* makes a day of February 30th */
    if (again.tm_mday != tm.tm_mday || again.tm_mon != tm.tm_mon || again.tm_hour != tm.tm_hour ||
        again.tm_min != tm.tm_min || again.tm_sec != tm.tm_sec || !sntp_plausible(when))
        return false;
    *second = when;
    return true;
}
