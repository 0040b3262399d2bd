/*
 * Keeps the clock: asks the time server that is set, if one is, and answers `time` on the console.
 * What comes from the network is read as a user who may set the clock, and nothing else.
 *
 *   clock ADDRESS      "" for none
 */
#include "config/box.h"
#include "init/confine.h"
#include "init/control.h"
#include "init/journal.h"
#include "init/sntp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *server; /* "": none */
    struct sntp_clock known;
    struct sntp_sample last;
    int64_t last_ms;     /* of the last good answer; 0: none yet */
    const char *trouble; /* why the newest question has no good answer; NULL: it has */
    unsigned asked;      /* since the start */
    int fd;              /* owns: of the question under way, or -1 */
    int64_t next_ms;     /* the next question, or the end of waiting */
    int64_t pause_ms;    /* between questions */
    uint64_t cookie;
    int64_t sent_us;
} box = {.fd = -1, .pause_ms = CLOCK_PAUSE_MS};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A clock that counts as right is written to the hardware's by the kernel. */
static bool set_clock(int64_t us)
{
    struct timespec to = {us / 1000000, us % 1000000 * 1000};
    struct timex sound = {.modes = ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR};
    return clock_settime(CLOCK_REALTIME, &to) == 0 && adjtimex(&sound) >= 0;
}

static void slew_clock(int64_t us)
{
    struct timeval by = {us / 1000000, us % 1000000};
    struct timex sound = {.modes = ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR};
    (void)adjtime(&by, NULL);
    (void)adjtimex(&sound);
}

/* ---- questions ---------------------------------------------------------------------------------
 */

/* Each kind of trouble is told once, not each time it is met. */
static void meet_trouble(const char *why)
{
    if (box.trouble == NULL || strcmp(box.trouble, why) != 0)
        printf("%s: %s\n", box.server, why);
    box.trouble = why;
    box.pause_ms = box.pause_ms * 2 < CLOCK_PAUSE_MAX_MS ? box.pause_ms * 2 : CLOCK_PAUSE_MAX_MS;
}

static void end_question(void)
{
    close(box.fd);
    box.fd = -1;
    box.next_ms = clock_ms() + box.pause_ms;
}

/* From a port of its own each time: who wants to answer in the server's place must guess it, too.
 */
static void ask(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(CLOCK_PORT)};
    uint8_t packet[SNTP_BYTES];
    box.asked++;
    box.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool good =
        box.fd >= 0 && inet_pton(AF_INET, box.server, &to.sin_addr) == 1 &&
        getrandom(&box.cookie, sizeof box.cookie, GRND_NONBLOCK) == (ssize_t)sizeof box.cookie &&
        connect(box.fd, (struct sockaddr *)&to, sizeof to) == 0;
    sntp_question(packet, box.cookie);
    box.sent_us = now_us();
    if (good && send(box.fd, packet, sizeof packet, 0) == (ssize_t)sizeof packet) {
        box.next_ms = clock_ms() + CLOCK_ANSWER_MS;
        return;
    }
    meet_trouble("can not be asked: no network");
    end_question();
}

static void use(const struct sntp_sample *sample)
{
    double second = (double)sample->offset_us / 1e6;
    box.last = *sample;
    box.last_ms = clock_ms();
    box.pause_ms = box.pause_ms < CLOCK_SETTLED_MS ? CLOCK_SETTLED_MS : box.pause_ms * 2;
    if (box.pause_ms > CLOCK_PAUSE_MAX_MS)
        box.pause_ms = CLOCK_PAUSE_MAX_MS;
    switch (sntp_decide(&box.known, sample)) {
    case SNTP_WAIT:
        box.pause_ms = CLOCK_PAUSE_MS;
        break;
    case SNTP_SLEW:
        slew_clock(sample->offset_us);
        break;
    case SNTP_STEP:
        printf("the clock was %.3f s wrong by %s, and %s\n", second, box.server,
               set_clock(now_us() + sample->offset_us) ? "is set" : "can not be set");
        break;
    case SNTP_REFUSE:
        meet_trouble("too far from a clock that was right; to believe it: time set");
        return;
    }
    if (box.trouble != NULL)
        printf("%s: answers\n", box.server);
    box.trouble = NULL;
}

static void take_answer(void)
{
    uint8_t bytes[2 * SNTP_BYTES]; /* what is longer is cut: extensions mean nothing here */
    struct sntp_sample sample;
    ssize_t n = recv(box.fd, bytes, sizeof bytes, 0);
    int64_t received_us = now_us();
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    enum sntp_result result =
        n < 0 ? SNTP_FOREIGN
              : sntp_answer(&sample, bytes, (size_t)n, box.cookie, box.sent_us, received_us);
    if (n >= 0 && result == SNTP_FOREIGN)
        return;
    if (n < 0)
        meet_trouble("nobody answers");
    else if (result == SNTP_GOOD)
        use(&sample);
    else
        meet_trouble(sntp_result_text(result));
    if (result == SNTP_KISS)
        box.pause_ms = CLOCK_PAUSE_MAX_MS;
    end_question();
}

static void look_after_question(void)
{
    if (box.server[0] == '\0' || clock_ms() < box.next_ms)
        return;
    if (box.fd < 0) {
        ask();
        return;
    }
    meet_trouble("no answer");
    end_question();
}

/* ---- the console -------------------------------------------------------------------------------
 */

static void tell_server(struct text *t)
{
    if (box.server[0] == '\0') {
        text_printf(t, "no time server: settings time.server ADDRESS\n");
        return;
    }
    text_printf(t, "server %s, asked %u times\n", box.server, box.asked);
    if (box.last_ms != 0)
        text_printf(t,
                    "last answer %lld s ago: offset %+.3f s, %.1f ms there and back, stratum %d\n",
                    (long long)(clock_ms() - box.last_ms) / 1000, (double)box.last.offset_us / 1e6,
                    (double)box.last.delay_us / 1e3, box.last.stratum);
    if (box.trouble != NULL)
        text_printf(t, "trouble: %s\n", box.trouble);
}

static void tell_data(struct text *t, const char *utc)
{
    text_printf(t, "{\"utc\":\"%s\",\"server\":\"%s\",\"asked\":%u,\"right\":%s,\"answer\":", utc,
                box.server, box.asked, box.known.right ? "true" : "false");
    if (box.last_ms == 0)
        text_printf(t, "null}");
    else
        text_printf(t, "{\"age_s\":%lld,\"offset_us\":%lld,\"delay_us\":%lld,\"stratum\":%d}}",
                    (long long)(clock_ms() - box.last_ms) / 1000, (long long)box.last.offset_us,
                    (long long)box.last.delay_us, box.last.stratum);
}

static const char *set_by_hand(const char *word)
{
    int64_t second;
    if (!sntp_parse_time(word, &second))
        return "time set 2026-11-30T12:00:00Z, in UTC, and of this age";
    if (!set_clock(second * 1000000))
        return strerror(errno);
    box.known = (struct sntp_clock){.right = true};
    return NULL;
}

static void handle(void *context, const struct request *request, struct text *answer)
{
    char bytes[512], data_bytes[512], utc[32] = "";
    struct text t = text_over(bytes, sizeof bytes), data = text_over(data_bytes, sizeof data_bytes);
    const char *wrong = "time | time set 2026-11-30T12:00:00Z";
    (void)context;
    if (strcmp(request->word[0], "time") == 0 && request->count == 1)
        wrong = NULL;
    else if (request->count == 3 && strcmp(request->word[1], "set") == 0)
        wrong = set_by_hand(request->word[2]);
    if (wrong != NULL) {
        answer_write(answer, false, wrong, strlen(wrong), NULL, 0);
        return;
    }
    struct tm tm;
    time_t now = time(NULL);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(utc, sizeof utc, "%Y-%m-%dT%H:%M:%SZ", &tm);
    text_printf(&t, "%s%s\n", utc, box.known.right ? "" : ", by the hardware's clock alone");
    tell_server(&t);
    tell_data(&data, utc);
    answer_write(answer, true, t.data, t.len, data.data, data.len);
}

static struct control control; /* large: it holds whole answers */

static void turn(void)
{
    struct pollfd fds[2 + CONTROL_CLIENTS_MAX];
    int n = control_poll_fds(&control, fds), wait_ms = control_timers(&control);
    look_after_question();
    if (box.server[0] != '\0') {
        int64_t left_ms = box.next_ms - clock_ms();
        if (wait_ms < 0 || left_ms < wait_ms)
            wait_ms = left_ms > 0 ? (int)left_ms : 0;
    }
    if (box.fd >= 0)
        fds[n++] = (struct pollfd){.fd = box.fd, .events = POLLIN};
    if (poll(fds, (nfds_t)n, wait_ms) <= 0)
        return;
    for (int i = 0; i < n; i++) {
        if (fds[i].revents == 0)
            continue;
        if (fds[i].fd == box.fd)
            take_answer();
        else
            control_serve(&control, fds[i].fd);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    box.server = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!control_open(&control, CLOCK_SOCK, BOX_UID_ROOT, handle, NULL) || confine_process() != 0 ||
        confine_files(NULL, 0) != 0 || confine_user_but(BOX_UID_CLOCK, CAP_SYS_TIME) != 0) {
        fprintf(stderr, "cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    for (;;)
        turn();
}
