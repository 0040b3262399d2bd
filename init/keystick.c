/*
 * SSH keys from a USB stick, for a box that nobody has claimed: whoever plugs it in stands before
 * the machine.  Looks for a while for a stick with a file of this name, and gives its lines to init
 * as an operator would type them.  Ends as soon as the box is somebody's.
 *
 *   ssh-ed25519 KEY NAME [viewer|operator|admin]
 */
#include "config/box.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/esp.h"
#include "init/journal.h"
#include "init/stick.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct client client; /* large: it holds whole answers */

static bool ask(const struct request *request)
{
    return client_ask(&client, BOX_INIT_SOCK, request, CONSOLE_ANSWER_MS) == CLIENT_ANSWERED &&
           client.answer.ok;
}

/* What does not answer is taken for a box with an owner. */
static bool is_claimed(void)
{
    static const char NOBODYS[] = "\"claimed\":false";
    const struct request request = {.count = 1, .word = {"status"}};
    return !ask(&request) || client.answer.data == NULL ||
           memmem(client.answer.data, client.answer.data_len, NOBODYS, sizeof NOBODYS - 1) == NULL;
}

/* As the console does before a change. */
static bool record(const struct request *words)
{
    struct request change = {.count = 4, .word = {"change", "usb", "admin"}};
    snprintf(change.word[3], sizeof change.word[3], "ssh-keys add %.64s %.16s", words->word[2],
             words->count > 3 ? words->word[3] : "");
    return ask(&change);
}

static bool add_key(const struct request *words)
{
    struct request add = {.count = 2 + words->count, .word = {"ssh-keys", "add"}};
    for (int i = 0; i < words->count; i++)
        memcpy(add.word[2 + i], words->word[i], sizeof add.word[0]);
    return record(words) && ask(&add);
}

static void take_lines(const char *bytes, size_t n)
{
    int number = 0;
    for (size_t i = 0; i < n; number++) {
        const char *line = bytes + i, *newline = memchr(line, '\n', n - i);
        size_t length = newline == NULL ? n - i : (size_t)(newline - line);
        struct request words;
        i += length + 1;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        if (length == 0 || line[0] == '#')
            continue;
        if (!request_from_line(&words, line, length) || words.count < 3 || words.count > 4)
            printf(KEYSTICK_FILE ": line %d: not ssh-ed25519 KEY NAME [ROLE]\n", number + 1);
        else if (!add_key(&words))
            printf(KEYSTICK_FILE ": line %d: refused: %.*s\n", number + 1, 80, client.text);
        else
            printf("the key %s is taken from a USB stick\n", words.word[2]);
    }
}

int main(void)
{
    static char bytes[BOOT_SITE_BYTES_MAX];
    if (confine_process() != 0 || !esp_enter()) {
        fprintf(stderr, "no place to mount a stick: %s\n", strerror(errno));
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (clock_ms() < KEYSTICK_MS && !is_claimed()) {
        int fd = stick_open(KEYSTICK_FILE);
        ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
        if (fd >= 0)
            close(fd);
        if (n >= 0) {
            take_lines(bytes, (size_t)n);
            return 0;
        }
        usleep(KEYSTICK_PERIOD_MS * 1000);
    }
    return 0;
}
