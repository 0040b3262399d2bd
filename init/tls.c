/*
 * The keeper of the TLS front's certificate: makes one at the first boot, shows it, takes another
 * and hands it to the running front.  Runs as the front's own user; nobody else ever reads the key.
 * Listens to no network.
 *
 *   tls boot    the stored certificate, its copy, or a new one goes where the front reads it
 *   tls serve   answers on TLS_SOCK: tls, tls status, tls show, tls install (PEM follows),
 *               tls reset [NAME ...]
 */
#include "config/box.h"
#include "init/certificate.h"
#include "init/confine.h"
#include "init/files.h"
#include "init/servant.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *const NAMES[] = {"v4box", "localhost", "127.0.0.1"};

static struct certificate *load(const char *path, const char **wrong)
{
    static char bytes[TLS_FILE_BYTES];
    ssize_t n = file_load(path, bytes, sizeof bytes);
    *wrong = strerror(errno);
    return n < 0 ? NULL : certificate_parse(bytes, (size_t)n, wrong);
}

/* Whether a file holds this already: a boot does not write for nothing. */
static bool holds(const char *path, const struct text *pem)
{
    static char bytes[TLS_FILE_BYTES];
    ssize_t n = file_load(path, bytes, sizeof bytes);
    return n >= 0 && (size_t)n == pem->len && memcmp(bytes, pem->data, pem->len) == 0;
}

static bool save(const char *path, const struct text *pem)
{
    return holds(path, pem) || file_save(path, pem->data, pem->len, getuid());
}

/* ---- at boot ------------------------------------------------------------------------------------
 */

static struct certificate *first_good(void)
{
    const char *wrong;
    struct certificate *c = load(TLS_STORED, &wrong);
    if (c != NULL)
        return c;
    printf(TLS_STORED ": %s\n", wrong);
    c = load(TLS_COPY, &wrong);
    if (c != NULL) {
        printf("the copy of an earlier boot takes its place\n");
        return c;
    }
    printf("making a new certificate\n");
    c = certificate_make(NAMES, sizeof NAMES / sizeof NAMES[0], &wrong);
    if (c == NULL)
        printf("no certificate: %s\n", wrong);
    return c;
}

/* A disk that is full or read-only costs the certificate its stay, not the box its front. */
static int boot(void)
{
    static char bytes[TLS_FILE_BYTES], said[256];
    struct text pem = text_over(bytes, sizeof bytes), line = text_over(said, sizeof said);
    struct certificate *c = first_good();
    if (c == NULL)
        return 1;
    bool good = certificate_write(c, &pem) && save(TLS_SERVED, &pem);
    if (good && (!save(TLS_STORED, &pem) || !save(TLS_COPY, &pem)))
        printf("the certificate holds until the next start only: %s\n", strerror(errno));
    certificate_fingerprint(c, &line);
    printf("certificate SHA-256 %s\n", line.data);
    certificate_free(c);
    return good ? 0 : 1;
}

/* ---- the running front --------------------------------------------------------------------------
 */

/* One command on the front's own socket; what it says is in `answer`.  False: there is no front. */
static bool front_ask(const struct text *command, char *answer, size_t cap)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = FRONT_ADMIN};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    size_t len = 0;
    if (there && send(fd, command->data, command->len, MSG_NOSIGNAL) == (ssize_t)command->len) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t n;
        while (len + 1 < cap && poll(&wait, 1, FRONT_ANSWER_MS) == 1 &&
               (n = read(fd, answer + len, cap - 1 - len)) > 0)
            len += (size_t)n;
    }
    answer[len] = '\0';
    if (fd >= 0)
        close(fd);
    return there;
}

/* New connections get the new certificate, open ones go on.  @return what went wrong, or NULL */
static const char *front_change(const struct text *pem)
{
    static char bytes[TLS_FILE_BYTES + 256], answer[512];
    struct text command = text_over(bytes, sizeof bytes);
    text_printf(&command, "set ssl cert " TLS_SERVED " <<\n");
    text_add(&command, pem->data, pem->len);
    text_printf(&command, "\n");
    if (command.cut)
        return "it is too large";
    if (!front_ask(&command, answer, sizeof answer))
        return NULL; /* it reads the file when it starts */
    if (strstr(answer, "ransaction created") == NULL &&
        strstr(answer, "ransaction updated") == NULL)
        return "the front does not take it";
    command = text_over(bytes, sizeof bytes);
    text_printf(&command, "commit ssl cert " TLS_SERVED "\n");
    front_ask(&command, answer, sizeof answer);
    if (strstr(answer, "Success!") != NULL)
        return NULL;
    command = text_over(bytes, sizeof bytes);
    text_printf(&command, "abort ssl cert " TLS_SERVED "\n");
    front_ask(&command, answer, sizeof answer);
    return "the front does not take it";
}

/* ---- the commands ------------------------------------------------------------------------------
 */

/* Takes over `c`, which is NULL when `wrong` says why. */
static bool change(struct certificate *c, const char *wrong, struct text *text)
{
    static char bytes[TLS_FILE_BYTES];
    struct text pem = text_over(bytes, sizeof bytes);
    if (c != NULL && !certificate_write(c, &pem))
        wrong = "it is too large";
    if (wrong == NULL)
        wrong = front_change(&pem);
    if (wrong == NULL && !save(TLS_SERVED, &pem))
        wrong = strerror(errno);
    if (wrong != NULL) {
        text_printf(text, "refused, the old certificate stays: %s", wrong);
        certificate_free(c);
        return false;
    }
    bool kept = save(TLS_STORED, &pem);
    if (!kept)
        text_printf(text, "holds until the next start only: %s\n", strerror(errno));
    certificate_describe(c, text);
    certificate_free(c);
    return kept;
}

static bool command_install(const struct asked *asked, struct text *text)
{
    static char bytes[TLS_FILE_BYTES + 1];
    const char *wrong;
    size_t n = servant_receive(asked, bytes, sizeof bytes);
    struct certificate *c = certificate_parse(bytes, n, &wrong);
    return change(c, wrong, text);
}

static bool command_reset(const struct asked *asked, struct text *text)
{
    const char *names[CONTROL_ARGS_MAX], *wrong;
    int count = 0;
    for (int i = 2; i < asked->request.count; i++)
        names[count++] = asked->request.word[i];
    struct certificate *c =
        certificate_make(count > 0 ? names : NAMES,
                         count > 0 ? count : (int)(sizeof NAMES / sizeof NAMES[0]), &wrong);
    return change(c, c == NULL ? wrong : NULL, text);
}

static bool tell(struct text *text, void (*what)(const struct certificate *c, struct text *text))
{
    const char *wrong;
    struct certificate *c = load(TLS_SERVED, &wrong);
    if (c == NULL)
        text_printf(text, TLS_SERVED ": %s", wrong);
    else
        what(c, text);
    certificate_free(c);
    return c != NULL;
}

static void show(const struct certificate *c, struct text *text)
{
    if (!certificate_write_public(c, text))
        text_printf(text, "it can not be written");
}

static bool command_show(const struct asked *asked, struct text *text)
{
    (void)asked;
    return tell(text, show);
}

static bool command_status(const struct asked *asked, struct text *text)
{
    (void)asked;
    return tell(text, certificate_describe);
}

static const struct {
    const char *verb;
    int args_max;
    bool (*run)(const struct asked *asked, struct text *text);
} COMMANDS[] = {
    {"status", 0, command_status},
    {"show", 0, command_show},
    {"install", 0, command_install},
    {"reset", CONTROL_ARGS_MAX - 1, command_reset},
};

static bool dispatch(const struct asked *asked, struct text *text)
{
    const struct request *request = &asked->request;
    const char *verb = request->count == 1 ? "status" : request->word[1];
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
        if (strcmp(request->word[0], "tls") == 0 && strcmp(COMMANDS[i].verb, verb) == 0 &&
            request->count - 2 <= COMMANDS[i].args_max)
            return COMMANDS[i].run(asked, text);
    text_printf(text, "tls status | show | reset [NAME ...]; sent over SSH: tls install <FILE");
    return false;
}

int main(int argc, char **argv)
{
    if (argc != 2 || confine_process() != 0)
        return 2;
    if (strcmp(argv[1], "boot") == 0)
        return boot();
    return strcmp(argv[1], "serve") == 0 ? servant_run(TLS_SOCK, TLS_REQUEST_MS, dispatch) : 2;
}
