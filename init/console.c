/*
 * The console: the one thing an operator reaches, on the serial line, as login shell over SSH, and
 * as `console -c`.  One table of commands; each goes to the admin socket of the engine, of init, or
 * of both.  There is no shell behind it and nothing it could start: before the first byte is read
 * it gives up every file, every capability but the one to connect, and all hope of new privileges.
 */
#include "config/box.h"
#include "config/slots.h"
#include "config/version.h"
#include "init/client.h"
#include "init/commands.h"
#include "init/confine.h"
#include "init/journal.h"
#include "init/lineedit.h"
#include "init/support.h"
#include "init/top.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define PROMPT       "v4box> "
#define SCREEN_BYTES (4 * CONSOLE_LINE_BYTES) /* one redraw and what came before it */

struct console {
    const char *path[TARGET_COUNT]; /* of the servers; NULL: not asked */
    bool json;
    int wait_s; /* how long to wait for a server that is not there yet */
    int idle_s; /* without a key typed, a terminal's session ends */
    enum role role;
    const char *who; /* borrows; for the log of changes */
    bool alone;      /* one command of -c: the input is its own, not more commands */
    bool masks;      /* what may be a secret is not printed: it goes to others */
};

/* Who serves a command: the name, the option that tells another socket, and the box's own. */
static const struct {
    const char *name, *option, *path;
} SERVERS[TARGET_COUNT] = {
    [TARGET_INIT] = {"init", "--init", BOX_INIT_SOCK},
    [TARGET_ENGINE] = {"engine", "--socket", BOX_ENGINE_SOCK},
    [TARGET_UPDATER] = {"updater", "--updater", UPDATE_SOCK},
    [TARGET_TLS] = {"tls", "--tls", TLS_SOCK},
    [TARGET_CLOCK] = {"clock", "--clock", CLOCK_SOCK},
    [TARGET_MODELS] = {"models", "--models", MODEL_SOCK},
};

static struct client client, second; /* large: they hold whole answers */

static void print_bytes(const char *bytes, size_t n)
{
    fwrite(bytes, 1, n, stdout);
}

/* Answers are text from other programs: no byte of theirs may steer the terminal. */
static void print_text(const struct console *c, const char *bytes, size_t n)
{
    /* A mask may be longer than what it hides. */
    static char masked[2 * CONSOLE_ANSWER_BYTES], printable[2 * CONSOLE_ANSWER_BYTES];
    struct text mask = text_over(masked, sizeof masked);
    struct text t = text_over(printable, sizeof printable);
    if (c->masks) {
        support_mask(&mask, bytes, n);
        bytes = mask.data;
        n = mask.len;
    }
    text_add_printable(&t, bytes, n);
    print_bytes(t.data, t.len);
    if (t.len > 0 && t.data[t.len - 1] != '\n')
        print_bytes("\n", 1);
}

static enum client_result ask(const struct console *c, struct client *into, const char *path,
                              const struct request *request)
{
    int64_t end_ms = clock_ms() + (int64_t)c->wait_s * 1000;
    /* A switch is answered once it is proven. */
    bool job = strcmp(request->word[0], "profile") == 0;
    for (;;) {
        enum client_result result =
            client_ask(into, path, request, job ? CONSOLE_JOB_MS : CONSOLE_ANSWER_MS);
        if (result != CLIENT_ABSENT || clock_ms() >= end_ms)
            return result;
        usleep(CONSOLE_CONNECT_MS * 1000);
    }
}

/* Refusals and absences, in the form that was asked for. */
static void print_failure(const struct console *c, const char *who, const char *why)
{
    char line[CONSOLE_LINE_BYTES + 256], text[CONSOLE_LINE_BYTES + 128];
    struct text t = text_over(text, sizeof text), answer = text_over(line, sizeof line);
    text_printf(&t, "%s: %s", who, why);
    answer_write(&answer, false, t.data, t.len, NULL, 0);
    if (c->json)
        print_bytes(answer.data, answer.len);
    else
        print_text(c, t.data, t.len);
}

static bool print_answer(const struct console *c, const char *who, enum client_result result)
{
    if (result != CLIENT_ANSWERED) {
        print_failure(c, who, client_result_text(result));
        return false;
    }
    if (c->json) {
        print_bytes(client.line, client.line_len);
        print_bytes("\n", 1);
    } else {
        print_text(c, client.answer.text.data, client.answer.text.len);
    }
    return client.answer.ok;
}

static bool run_single(const struct console *c, const char *who, const char *path,
                       const struct request *request)
{
    return print_answer(c, who, ask(c, &client, path, request));
}

/* Whether a file follows what is asked. */
static bool sends_file(const struct command *command, const struct request *request)
{
    const char *verb = request->count == 1 ? "" : request->word[1];
    return command->takes != NULL && strcmp(command->takes, verb) == 0;
}

/* A file comes through the input of an SSH command: there is none that could be named in here. */
static bool run_stream(const struct console *c, const struct command *command, const char *who,
                       const char *path, const struct request *request)
{
    bool sends = sends_file(command, request);
    if (sends && (!c->alone || isatty(STDIN_FILENO))) {
        print_failure(c, command->name,
                      "a file is sent from another machine, as help says: ssh BOX COMMAND <FILE");
        return false;
    }
    return print_answer(c, who,
                        client_stream(&client, path, request, sends ? STDIN_FILENO : -1,
                                      sends ? UPDATE_ANSWER_MS : CONSOLE_JOB_MS));
}

static void add_data(struct text *t, const char *name, const struct client *from)
{
    if (from->answer.data == NULL)
        return;
    text_printf(t, "%s\"%s\":", t->len > 1 ? "," : "", name);
    text_add(t, from->answer.data, from->answer.data_len);
}

/* Both servers, one answer: init's text, then the engine's; data as {"init":..,"engine":..}. */
static bool run_both(const struct console *c, const struct request *request)
{
    static char text_bytes[2 * CONSOLE_ANSWER_BYTES], data_bytes[2 * CONSOLE_ANSWER_BYTES];
    static char line_bytes[4 * CONSOLE_ANSWER_BYTES];
    static const enum target BOTH[2] = {TARGET_INIT, TARGET_ENGINE};
    struct client *const clients[2] = {&client, &second};
    struct text text = text_over(text_bytes, sizeof text_bytes);
    struct text data = text_over(data_bytes, sizeof data_bytes);
    bool ok = true;
    text_printf(&data, "{");
    for (int i = 0; i < 2; i++) {
        enum client_result result = ask(c, clients[i], c->path[BOTH[i]], request);
        if (result != CLIENT_ANSWERED) {
            text_printf(&text, "%s: %s\n", SERVERS[BOTH[i]].name, client_result_text(result));
            ok = false;
            continue;
        }
        ok = ok && clients[i]->answer.ok;
        text_add(&text, clients[i]->answer.text.data, clients[i]->answer.text.len);
        if (text.len > 0 && text.data[text.len - 1] != '\n')
            text_printf(&text, "\n");
        add_data(&data, SERVERS[BOTH[i]].name, clients[i]);
    }
    text_printf(&data, "}");
    if (!c->json) {
        print_text(c, text.data, text.len);
        return ok;
    }
    struct text line = text_over(line_bytes, sizeof line_bytes);
    answer_write(&line, ok, text.data, text.len, data.data, data.len);
    print_bytes(line.data, line.len);
    return ok;
}

static bool run_help(const struct console *c, const struct request *request)
{
    char bytes[CONSOLE_ANSWER_BYTES / 64], line[CONSOLE_ANSWER_BYTES / 32];
    struct text t = text_over(bytes, sizeof bytes), answer = text_over(line, sizeof line);
    const struct command *asked = request->count > 1 ? command_find(request->word[1]) : NULL;
    if (request->count > 1 && asked == NULL) {
        print_failure(c, request->word[1], "unknown command, try help");
        return false;
    }
    for (size_t i = 0; asked == NULL && command_at(i) != NULL; i++)
        text_printf(&t, "%-13s %s\n", command_at(i)->name, command_at(i)->help);
    if (asked != NULL)
        command_explain(asked, &t);
    else
        text_printf(&t, "help COMMAND says how one is written; a tab completes\n");
    answer_write(&answer, true, t.data, t.len, NULL, 0);
    if (c->json)
        print_bytes(answer.data, answer.len);
    else
        print_bytes(t.data, t.len);
    return true;
}

/* A last word --json asks for the raw answer, also over SSH, where there is no argv to put it in.
 */
static bool take_json(struct request *request)
{
    bool found = request->count > 1 && strcmp(request->word[request->count - 1], "--json") == 0;
    request->count -= found;
    return found;
}

/* One line of the log of changes: `state` and the words of the request, in pieces that fit a word.
 */
static void record(const struct console *c, const char *state, const struct request *request)
{
    struct request change = {.count = 3};
    char bytes[CHANGES_LINE_BYTES];
    struct text line = text_over(bytes, sizeof bytes);
    if (c->path[TARGET_INIT] == NULL)
        return;
    snprintf(change.word[0], sizeof change.word[0], "change");
    snprintf(change.word[1], sizeof change.word[1], "%s", c->who);
    snprintf(change.word[2], sizeof change.word[2], "%s", role_name(c->role));
    text_printf(&line, "%s", state);
    for (int i = 0; i < request->count; i++)
        text_printf(&line, "%s%s", i > 0 ? " " : "", request->word[i]);
    for (size_t at = 0; at < line.len && change.count <= CONTROL_ARGS_MAX; at += CONTROL_WORD_BYTES)
        snprintf(change.word[change.count++], sizeof change.word[0], "%.*s", CONTROL_WORD_BYTES,
                 line.data + at);
    if (client_ask(&second, c->path[TARGET_INIT], &change, CONSOLE_ANSWER_MS) != CLIENT_ANSWERED ||
        !second.answer.ok)
        fprintf(stderr, "console: the change can not be recorded\n");
}

static bool pass_on(const struct console *asked, const struct command *command,
                    struct request *request);

/* Everything that the box says of itself, one command after the other; what fails says so. */
static bool run_support(const struct console *c, const struct request *asked)
{
    struct console own = *c;
    (void)asked;
    own.masks = true;
    own.json = false;
    for (size_t i = 0; support_command(i) != NULL; i++) {
        struct request request;
        const char *line = support_command(i);
        bool good = request_from_line(&request, line, strlen(line));
        const struct command *command = good ? command_find(request.word[0]) : NULL;
        assert(command != NULL && !command_changes(command, &request));
        printf("==== %s\n", line);
        (void)pass_on(&own, command, &request);
    }
    return true;
}

/* Waits a period, or for a key; true: there was one, or nobody is there any more. */
static bool key_typed(void)
{
    char ignored[64];
    struct pollfd typed = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&typed, 1, TOP_PERIOD_MS) != 0 && read(STDIN_FILENO, ignored, sizeof ignored) >= 0;
}

/* At a terminal until a key is typed, as long as a session may be idle; else two samples, one view.
 */
static bool run_top(const struct console *c, const struct request *asked)
{
    static struct top top;
    char bytes[2048];
    bool live = isatty(STDIN_FILENO);
    int rounds = live ? c->idle_s * 1000 / TOP_PERIOD_MS : 2;
    struct request request = {.count = 1, .word = {"status"}};
    (void)asked;
    if (c->json) /* what the view is drawn from */
        return run_single(c, SERVERS[TARGET_ENGINE].name, c->path[TARGET_ENGINE], &request);
    memset(&top, 0, sizeof top);
    for (int i = 0; i < rounds; i++) {
        struct text t = text_over(bytes, sizeof bytes);
        enum client_result result = ask(c, &client, c->path[TARGET_ENGINE], &request);
        if (result != CLIENT_ANSWERED && !live)
            return print_answer(c, SERVERS[TARGET_ENGINE].name, result);
        if (result == CLIENT_ANSWERED && client.answer.data != NULL)
            top_add(&top, client.answer.data, client.answer.data_len, clock_ms());
        top_draw(&top, &t);
        if (live) /* home, and nothing below: the view takes the place of the one before */
            printf("\x1b[H\x1b[J%s",
                   result == CLIENT_ANSWERED ? "" : "the engine does not answer\n");
        if (live || i + 1 == rounds)
            print_text(c, t.data, t.len);
        fflush(stdout);
        if (live ? key_typed() : (i + 1 < rounds && usleep(TOP_PERIOD_MS * 1000) != 0))
            break;
    }
    return true;
}

static bool run_nothing(const struct console *c, const struct request *asked)
{
    (void)c, (void)asked;
    return true;
}

static bool run_local(const struct console *c, const struct command *command,
                      const struct request *request)
{
    static const struct {
        const char *name;
        bool (*run)(const struct console *c, const struct request *request);
    } LOCAL[] = {
        {"top", run_top}, {"support", run_support}, {"help", run_help}, {"exit", run_nothing}};
    size_t i = 0;
    while (strcmp(LOCAL[i].name, command->name) != 0)
        assert(++i < sizeof LOCAL / sizeof LOCAL[0]);
    return LOCAL[i].run(c, request);
}

static bool pass_on(const struct console *asked, const struct command *command,
                    struct request *request)
{
    struct console own = *asked;
    const struct console *c = &own;
    enum target target = command->target;
    own.json = take_json(request) || own.json;
    if (target == TARGET_BOTH && c->path[TARGET_INIT] == NULL)
        target = TARGET_ENGINE;
    if (target == TARGET_BOTH && c->path[TARGET_ENGINE] == NULL)
        target = TARGET_INIT;
    if (target == TARGET_BOTH)
        return run_both(c, request);
    if (target == TARGET_LOCAL)
        return run_local(c, command, request);
    const char *who = SERVERS[target].name, *path = c->path[target];
    if (path == NULL) {
        print_failure(c, who, "no socket given");
        return false;
    }
    if (target == TARGET_UPDATER || target == TARGET_TLS || target == TARGET_MODELS ||
        sends_file(command, request))
        return run_stream(c, command, who, path, request);
    return run_single(c, who, path, request);
}

/* A change is recorded before it is asked for: what ends the machine would not come to it later. */
static bool run_command(const struct console *c, const struct command *command,
                        struct request *request)
{
    bool changes = command_changes(command, request);
    if (changes)
        record(c, "", request);
    bool good = pass_on(c, command, request);
    if (changes && !good)
        record(c, "failed: ", request);
    return good;
}

_Static_assert(1 + CONTROL_ARGS_MAX == 16, "parse() tells the number");

/* The command a line names; a failure is printed and NULL returned. */
static const struct command *parse(const struct console *c, const char *line, size_t n,
                                   struct request *request)
{
    if (n > CONSOLE_LINE_BYTES || !request_from_line(request, line, n)) {
        print_failure(c, "console", "a command is at most 16 printable words; try help");
        return NULL;
    }
    const struct command *command = command_find(request->word[0]);
    if (command == NULL) {
        print_failure(c, request->word[0], "unknown command, try help");
        return NULL;
    }
    command_complete(command, request);
    if (command_allowed(command, request, c->role))
        return command;
    char why[CONSOLE_LINE_BYTES];
    snprintf(why, sizeof why, "not for a %s; it takes the role %s", role_name(c->role),
             role_name(command->role));
    print_failure(c, command->name, why);
    return NULL;
}

static bool run_line(const struct console *c, const char *line, size_t n)
{
    struct request request;
    const struct command *command = parse(c, line, n, &request);
    bool good = command != NULL && run_command(c, command, &request);
    fflush(stdout);
    return good;
}

/* ---- at a terminal ------------------------------------------------------------------------------
 */

struct terminal {
    struct line_editor editor;
    const struct console *console;
    const struct command *asked; /* waits for its `yes`, or NULL */
    struct request request;      /* of that command */
};

/* The list ends with NULL. */
struct phrases {
    size_t count;
    const char *list[CONSOLE_PHRASES_MAX + 1];
    char bytes[CONSOLE_PHRASES_MAX][CONSOLE_PHRASE_BYTES];
};

static void show(const struct text *screen)
{
    print_bytes(screen->data, screen->len);
    fflush(stdout);
}

/* Handles a finished line; false: leave. */
static bool take_line(struct terminal *t)
{
    const char *line = t->editor.line;
    if (t->asked != NULL) {
        if (strcmp(line, "yes") == 0)
            run_command(t->console, t->asked, &t->request);
        else
            printf("not done\n");
        t->asked = NULL;
        t->editor.prompt = PROMPT;
        return true;
    }
    if (strspn(line, " ") == strlen(line))
        return true;
    const struct command *command = parse(t->console, line, strlen(line), &t->request);
    if (command == NULL)
        return true;
    if (command->confirm) {
        t->asked = command;
        t->editor.prompt = "type yes to do it: ";
        return true;
    }
    run_command(t->console, command, &t->request);
    return strcmp(command->name, "exit") != 0;
}

/* One byte from the terminal; false: leave. */
static bool take_byte(struct terminal *t, char byte)
{
    char bytes[SCREEN_BYTES];
    struct text screen = text_over(bytes, sizeof bytes);
    enum edit_event event = line_editor_feed(&t->editor, byte, &screen);
    show(&screen);
    if (event == EDIT_NONE)
        return true;
    if (event == EDIT_END)
        return false;
    if (event == EDIT_INTERRUPT) {
        t->asked = NULL;
        t->editor.prompt = PROMPT;
    } else if (!take_line(t)) {
        return false;
    }
    screen = text_over(bytes, sizeof bytes);
    line_editor_next(&t->editor, &screen);
    show(&screen);
    return true;
}

/* Adds "NAME VERB", or the name alone; what does not fit is not completed. */
static void add_phrase(struct phrases *p, const char *name, const char *verb, size_t n)
{
    if (p->count == CONSOLE_PHRASES_MAX)
        return;
    char *phrase = p->bytes[p->count];
    int length = snprintf(phrase, CONSOLE_PHRASE_BYTES, "%s%s%.*s", name, n > 0 ? " " : "", (int)n,
                          n > 0 ? verb : "");
    if (length < CONSOLE_PHRASE_BYTES)
        p->list[p->count++] = phrase;
}

/* Everything that a tab completes: commands, what may follow them, and `help` of each. */
static const char *const *make_phrases(void)
{
    static struct phrases p;
    const char *verb;
    for (size_t i = 0; command_at(i) != NULL; i++) {
        const struct command *command = command_at(i);
        add_phrase(&p, command->name, NULL, 0);
        for (size_t k = 0; command_way(command, k, &(size_t){0}) != NULL; k++) {
            size_t n = command_verb(command, k, &verb);
            if (n > 0)
                add_phrase(&p, command->name, verb, n);
        }
    }
    for (size_t i = 0; command_at(i) != NULL; i++)
        add_phrase(&p, "help", command_at(i)->name, strlen(command_at(i)->name));
    return p.list;
}

static void run_terminal(const struct console *c)
{
    static struct terminal terminal;
    struct termios cooked, raw;
    char bytes[SCREEN_BYTES], input[64];
    terminal.console = c;
    line_editor_init(&terminal.editor, PROMPT, make_phrases());
    tcgetattr(STDIN_FILENO, &cooked);
    raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(IXON | ICRNL | INLCR);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    printf("\nv4box %s; help lists the commands\n", V4BOX_VERSION);
    struct text screen = text_over(bytes, sizeof bytes);
    line_editor_next(&terminal.editor, &screen);
    show(&screen);
    bool stay = true;
    while (stay) {
        struct pollfd typed = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&typed, 1, c->idle_s * 1000);
        if (ready == 0)
            printf("\nnothing typed for %d s, the session ends\n", c->idle_s);
        if (ready == 0 || (ready < 0 && errno != EINTR))
            break;
        ssize_t n = ready > 0 ? read(STDIN_FILENO, input, sizeof input) : -1;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n && stay; i++)
            stay = take_byte(&terminal, input[i]);
    }
    tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
}

/* Reads a line of any bytes; what does not fit is read and left out.  False at the end of input. */
static bool read_line(char *line, size_t cap, size_t *n)
{
    int byte;
    *n = 0;
    while ((byte = getc(stdin)) != EOF && byte != '\n')
        if (*n < cap)
            line[(*n)++] = (char)byte;
    if (*n > 0 && line[*n - 1] == '\r')
        (*n)--;
    return byte != EOF || *n > 0;
}

/* Commands from a pipe, one a line, no prompt; any failure decides the exit code. */
static bool run_pipe(const struct console *c)
{
    char line[CONSOLE_LINE_BYTES + 2]; /* more than parse() takes, so that it refuses */
    size_t n;
    bool good = true;
    while (read_line(line, sizeof line, &n)) {
        bool blank = true;
        for (size_t i = 0; i < n; i++)
            blank = blank && line[i] == ' ';
        if (!blank)
            good = run_line(c, line, n) && good;
    }
    return good;
}

/* ---- start --------------------------------------------------------------------------------------
 */

static bool confine(void)
{
    return confine_process() == 0 && confine_capabilities() == 0 && confine_no_files() == 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: console [--socket PATH] [--init PATH] [--updater PATH] [--tls PATH] "
                    "[--clock PATH] [--models PATH] [--wait SECONDS] [--json] "
                    "[--who NAME] [--idle SECONDS] [-c 'COMMAND']\n"
                    "exit codes: 0 good, 1 the command failed, 2 usage\n");
    return 2;
}

/* A number of seconds, or what was there when nothing is said.  False: neither. */
static bool take_seconds(const char *word, int max, int *seconds)
{
    char *end;
    if (word == NULL)
        return true;
    long number = strtol(word, &end, 10);
    *seconds = (int)number;
    return end != word && *end == '\0' && number >= 0 && number <= max;
}

/* What dropbear runs for a key with a role, whatever its owner asked for: "as ROLE NAME". */
static bool take_forced(struct console *c, const char *command, char who[CONSOLE_WHO_BYTES + 1])
{
    struct request words;
    if (command == NULL || !request_from_line(&words, command, strlen(command)) ||
        words.count != 3 || strcmp(words.word[0], "as") != 0 ||
        !role_parse(words.word[1], &c->role))
        return false;
    snprintf(who, CONSOLE_WHO_BYTES + 1, "%.*s", CONSOLE_WHO_BYTES, words.word[2]);
    c->who = who;
    return true;
}

static int run(struct console *c, const char *command)
{
    if (!confine()) {
        fprintf(stderr, "console: cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    c->alone = command != NULL;
    if (command != NULL)
        return run_line(c, command, strlen(command)) ? 0 : 1;
    if (isatty(STDIN_FILENO)) {
        run_terminal(c);
        return 0;
    }
    return run_pipe(c) ? 0 : 1;
}

/* Where the value of an option goes; NULL: there is no such option. */
static const char **option(struct console *c, const char *name, const char *(*others)[3])
{
    static const char *const NAMES[] = {"--wait", "--idle", "-c"};
    if (strcmp(name, "--who") == 0)
        return &c->who;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(NAMES[i], name) == 0)
            return &(*others)[i];
    for (int i = 0; i < TARGET_COUNT; i++)
        if (SERVERS[i].option != NULL && strcmp(SERVERS[i].option, name) == 0)
            return &c->path[i];
    return NULL;
}

/* The box's own sockets, unless one was named. */
static void take_paths(struct console *c)
{
    for (int i = 0; i < TARGET_COUNT; i++)
        if (c->path[i] != NULL)
            return;
    for (int i = 0; i < TARGET_COUNT; i++)
        c->path[i] = SERVERS[i].path;
}

int main(int argc, char **argv)
{
    struct console c = {.role = ROLE_ADMIN, .who = "ssh", .idle_s = CONSOLE_IDLE_S};
    const char *others[3] = {NULL}; /* wait, idle, command */
    char who[CONSOLE_WHO_BYTES + 1];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            c.json = true;
            continue;
        }
        const char **value = option(&c, argv[i], &others);
        if (value == NULL || i + 1 == argc)
            return usage();
        *value = argv[++i];
    }
    if (!take_seconds(others[0], CONSOLE_WAIT_S_MAX, &c.wait_s) ||
        !take_seconds(others[1], CONSOLE_IDLE_S_MAX, &c.idle_s))
        return usage();
    take_paths(&c);
    const char *command = others[2];
    if (take_forced(&c, command, who)) {
        command = getenv("SSH_ORIGINAL_COMMAND"); /* dropbear's way to say what was asked for */
        if (command != NULL && command[0] == '\0')
            command = NULL;
    }
    return run(&c, command);
}
