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
#include "init/confine.h"
#include "init/journal.h"
#include "init/lineedit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define PROMPT       "v4box> "
#define SCREEN_BYTES (4 * CONSOLE_LINE_BYTES) /* one redraw and what came before it */

enum target { TARGET_NONE, TARGET_INIT, TARGET_ENGINE, TARGET_BOTH, TARGET_UPDATER, TARGET_TLS };

static const struct command {
    const char *name;
    enum target target;
    bool confirm;      /* asked for a `yes` when typed at the prompt */
    const char *takes; /* the word behind which a file follows, "": none, NULL: never */
    const char *args, *help;
} COMMANDS[] = {
    {"status", TARGET_BOTH, false, NULL, "", "what runs, and how it fares"},
    {"log", TARGET_INIT, false, NULL, "[LINES]", "the newest lines of init and its services"},
    {"keys", TARGET_ENGINE, false, NULL,
     "list | create NAME | limit ID LIMIT VALUE | disable|enable ID | expire ID DATE | delete ID",
     "who may use the chat API, and how much"},
    {"prefixes", TARGET_ENGINE, false, NULL, "status | save",
     "what is kept of conversations, and writing it now"},
    {"profile", TARGET_ENGINE, false, NULL,
     "list | show | diff | set | confirm | rollback | verify | rank | history | copy | row | "
     "delete",
     "which shortcuts in arithmetic are live, and changing that"},
    {"metrics", TARGET_ENGINE, false, NULL, "", "counts as Prometheus reads them"},
    {"audit", TARGET_ENGINE, false, NULL,
     "all | prove | replay | logits | recall | needle | rank | isolate .. | status | abort | "
     "history | report | diff | list | schedule | key",
     "whether the profile still remembers, and which row broke it"},
    {"ssh-keys", TARGET_INIT, false, NULL, "list | add KEY NAME | delete NAME",
     "who may log in over SSH"},
    {"net", TARGET_INIT, false, NULL, "dhcp | static ADDRESS/LEN [ROUTER] | confirm",
     "the address; --try SECONDS goes back by itself"},
    {"settings", TARGET_INIT, false, NULL, "[NAME VALUE]", "what is set, and setting it"},
    {"tls", TARGET_TLS, false, "install", "status | show | reset [NAME ...]",
     "the certificate; ssh BOX tls install <FILE takes one"},
    {"update", TARGET_UPDATER, false, "", "status", "both systems; ssh BOX update <FILE sends one"},
    {"rollback", TARGET_UPDATER, true, NULL, "", "restart into the system of the other slot"},
    {"secure-boot", TARGET_UPDATER, false, "enrol", "",
     "whether it is on; ssh BOX secure-boot enrol <FILE"},
    {"factory-reset", TARGET_INIT, true, NULL, "erase",
     "forget keys and settings, keep the models"},
    {"poweroff", TARGET_INIT, true, NULL, "", "end everything and switch off"},
    {"reboot", TARGET_INIT, true, NULL, "", "end everything and start again"},
    {"help", TARGET_NONE, false, NULL, "", "this list"},
    {"exit", TARGET_NONE, false, NULL, "", "leave the console"},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

struct console {
    const char *engine_path, *init_path, *updater_path, *tls_path; /* NULL: not asked */
    bool json;
    int wait_s; /* how long to wait for a server that is not there yet */
    bool alone; /* one command of -c: the input is its own, not more commands */
};

static struct client client, second; /* large: they hold whole answers */

static void print_bytes(const char *bytes, size_t n)
{
    fwrite(bytes, 1, n, stdout);
}

/* Answers are text from other programs: no byte of theirs may steer the terminal. */
static void print_text(const char *bytes, size_t n)
{
    static char printable[CONSOLE_ANSWER_BYTES + 1];
    struct text t = text_over(printable, sizeof printable);
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
        print_text(t.data, t.len);
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
        print_text(client.answer.text.data, client.answer.text.len);
    }
    return client.answer.ok;
}

static bool run_single(const struct console *c, const char *who, const char *path,
                       const struct request *request)
{
    return print_answer(c, who, ask(c, &client, path, request));
}

/* A file comes through the input of an SSH command: there is none that could be named in here. */
static bool run_stream(const struct console *c, const struct command *command, const char *who,
                       const char *path, const struct request *request)
{
    const char *verb = request->count == 1 ? "" : request->word[1];
    bool sends = command->takes != NULL && strcmp(command->takes, verb) == 0;
    if (sends && (!c->alone || isatty(STDIN_FILENO))) {
        print_failure(c, command->name,
                      "a file is sent from another machine, as help says: ssh BOX COMMAND <FILE");
        return false;
    }
    return print_answer(
        c, who, client_stream(&client, path, request, sends ? STDIN_FILENO : -1, UPDATE_ANSWER_MS));
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
    static const char *const NAMES[2] = {"init", "engine"};
    const char *const paths[2] = {c->init_path, c->engine_path};
    struct client *const clients[2] = {&client, &second};
    struct text text = text_over(text_bytes, sizeof text_bytes);
    struct text data = text_over(data_bytes, sizeof data_bytes);
    bool ok = true;
    text_printf(&data, "{");
    for (int i = 0; i < 2; i++) {
        enum client_result result = ask(c, clients[i], paths[i], request);
        if (result != CLIENT_ANSWERED) {
            text_printf(&text, "%s: %s\n", NAMES[i], client_result_text(result));
            ok = false;
            continue;
        }
        ok = ok && clients[i]->answer.ok;
        text_add(&text, clients[i]->answer.text.data, clients[i]->answer.text.len);
        if (text.len > 0 && text.data[text.len - 1] != '\n')
            text_printf(&text, "\n");
        add_data(&data, NAMES[i], clients[i]);
    }
    text_printf(&data, "}");
    if (!c->json) {
        print_text(text.data, text.len);
        return ok;
    }
    struct text line = text_over(line_bytes, sizeof line_bytes);
    answer_write(&line, ok, text.data, text.len, data.data, data.len);
    print_bytes(line.data, line.len);
    return ok;
}

static bool run_help(const struct console *c)
{
    char bytes[CONSOLE_ANSWER_BYTES / 64], line[CONSOLE_ANSWER_BYTES / 32];
    struct text t = text_over(bytes, sizeof bytes), answer = text_over(line, sizeof line);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        text_printf(&t, "%-13s %-42s %s\n", COMMANDS[i].name, COMMANDS[i].args, COMMANDS[i].help);
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

static const char *const SERVERS[] = {[TARGET_INIT] = "init",
                                      [TARGET_ENGINE] = "engine",
                                      [TARGET_UPDATER] = "updater",
                                      [TARGET_TLS] = "tls"};

static bool run_command(const struct console *asked, const struct command *command,
                        struct request *request)
{
    struct console own = *asked;
    const struct console *c = &own;
    enum target target = command->target;
    own.json = take_json(request) || own.json;
    if (target == TARGET_BOTH && c->init_path == NULL)
        target = TARGET_ENGINE;
    if (target == TARGET_BOTH && c->engine_path == NULL)
        target = TARGET_INIT;
    if (target == TARGET_BOTH)
        return run_both(c, request);
    if (target == TARGET_NONE)
        return strcmp(command->name, "help") != 0 || run_help(c);
    const char *const who = SERVERS[target];
    const char *const path = target == TARGET_INIT      ? c->init_path
                             : target == TARGET_UPDATER ? c->updater_path
                             : target == TARGET_TLS     ? c->tls_path
                                                        : c->engine_path;
    if (path == NULL) {
        print_failure(c, who, "no socket given");
        return false;
    }
    if (target == TARGET_UPDATER || target == TARGET_TLS)
        return run_stream(c, command, who, path, request);
    return run_single(c, who, path, request);
}

/* The command a line names; a failure is printed and NULL returned. */
static const struct command *parse(const struct console *c, const char *line, size_t n,
                                   struct request *request)
{
    if (n > CONSOLE_LINE_BYTES || !request_from_line(request, line, n)) {
        print_failure(c, "console", "a command is at most 9 printable words; try help");
        return NULL;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, request->word[0]) == 0)
            return &COMMANDS[i];
    print_failure(c, request->word[0], "unknown command, try help");
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

static void run_terminal(const struct console *c)
{
    static struct terminal terminal;
    static const char *words[COMMAND_COUNT + 1];
    struct termios cooked, raw;
    char bytes[SCREEN_BYTES], input[64];
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        words[i] = COMMANDS[i].name;
    terminal.console = c;
    line_editor_init(&terminal.editor, PROMPT, words);
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
        ssize_t n = read(STDIN_FILENO, input, sizeof input);
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

/* A kernel without Landlock is a developer's machine; the image's own kernel is tested to have it.
 */
static bool confine(void)
{
    if (confine_process() != 0 || confine_capabilities() != 0)
        return false;
    return confine_files(NULL, 0) == 0 || errno == ENOSYS || errno == EOPNOTSUPP;
}

static int usage(void)
{
    fprintf(stderr, "usage: console [--socket PATH] [--init PATH] [--updater PATH] [--tls PATH] "
                    "[--wait SECONDS] [--json] "
                    "[-c 'COMMAND']\n"
                    "exit codes: 0 good, 1 the command failed, 2 usage\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct console c = {.engine_path = NULL};
    const char *command = NULL, *wait = NULL;
    static const char *const NAMES[] = {"--socket", "--init", "--updater", "--tls", "--wait", "-c"};
    const char **values[] = {&c.engine_path, &c.init_path, &c.updater_path,
                             &c.tls_path,    &wait,        &command};
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--json") == 0) {
            c.json = true;
            continue;
        }
        while (k < sizeof NAMES / sizeof NAMES[0] && strcmp(argv[i], NAMES[k]) != 0)
            k++;
        if (k == sizeof NAMES / sizeof NAMES[0] || i + 1 == argc)
            return usage();
        *values[k] = argv[++i];
    }
    if (wait != NULL) {
        char *end;
        long seconds = strtol(wait, &end, 10);
        if (end == wait || *end != '\0' || seconds < 0 || seconds > CONSOLE_WAIT_S_MAX)
            return usage();
        c.wait_s = (int)seconds;
    }
    if (c.engine_path == NULL && c.init_path == NULL && c.updater_path == NULL &&
        c.tls_path == NULL) {
        c.engine_path = BOX_ENGINE_SOCK;
        c.init_path = BOX_INIT_SOCK;
        c.updater_path = UPDATE_SOCK;
        c.tls_path = TLS_SOCK;
    }
    if (!confine()) {
        fprintf(stderr, "console: cannot give up privileges: %s\n", strerror(errno));
        return 2;
    }
    c.alone = command != NULL;
    if (command != NULL)
        return run_line(&c, command, strlen(command)) ? 0 : 1;
    if (isatty(STDIN_FILENO)) {
        run_terminal(&c);
        return 0;
    }
    return run_pipe(&c) ? 0 : 1;
}
