/*
 * Keeps the log on its partition: asks init for what is new and appends it.  A process of its own,
 * since a disk may hold up a write for minutes, which PID 1 must not wait for.  Knows no line.
 */
#include "config/box.h"
#include "config/version.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/keeplog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct keeplog LOG = {BOX_LOG, KEEPLOG_FILE_BYTES, KEEPLOG_FILES};
static struct client client; /* large: it holds whole answers */

/* The times of lines count from the start of the kernel: this one says when that was. */
static void mark_start(void)
{
    char bytes[128], stamp[32] = "";
    struct text line = text_over(bytes, sizeof bytes);
    struct tm tm;
    time_t now = time(NULL);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
    text_printf(&line, "---- %s v4box %s\n", stamp, V4BOX_VERSION);
    (void)keeplog_append(&LOG, line.data, line.len);
}

/* Appends what came since line number `*seen`.  True: it is on the disk, or there was nothing. */
static bool keep(uint64_t *seen)
{
    struct request request = {.count = 2};
    snprintf(request.word[0], sizeof request.word[0], "log-since");
    snprintf(request.word[1], sizeof request.word[1], "%" PRIu64, *seen);
    if (client_ask(&client, BOX_INIT_SOCK, &request, CONSOLE_ANSWER_MS) != CLIENT_ANSWERED ||
        !client.answer.ok)
        return true; /* init is ending the machine */
    char *lines;
    uint64_t now = strtoull(client.answer.text.data, &lines, 10);
    size_t n = *lines == '\n' ? strlen(++lines) : 0;
    if (n > 0 && !keeplog_append(&LOG, lines, n))
        return false;
    *seen = now;
    return true;
}

int main(void)
{
    const struct file_rule folder = {BOX_LOG, FILE_WRITE};
    uint64_t seen = 0;
    if (confine_process() != 0 || confine_capabilities() != 0 || confine_files(&folder, 1) != 0) {
        fprintf(stderr, "cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    bool told = false;
    mark_start(); /* when it fails, so does what follows */
    for (;;) {
        bool good = keep(&seen);
        if (!good && !told) /* once: each complaint would be one more line to keep */
            fprintf(stderr, BOX_LOG ": the log is not kept: %s\n", strerror(errno));
        told = !good;
        usleep(good ? KEEPLOG_PERIOD_MS * 1000 : KEEPLOG_RETRY_MS * 1000);
    }
}
