/* The console's commands and roles. */
#include "init/commands.h"

#include "config/box.h"

#include <assert.h>
#include <string.h>

static const struct command COMMANDS[] = {
    {"status", TARGET_BOTH, ROLE_VIEWER, "*", false, NULL, NULL, "", "what runs, and how it fares"},
    {"top", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, NULL, "",
     "what the engine does, second by second; any key ends it"},
    {"gpu", TARGET_BOTH, ROLE_VIEWER, "*", false, NULL, NULL, "",
     "GPUs: link, errors, memory, heat, power, ranks"},
    {"support", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, NULL, "",
     "all that helps others to help, no secret: ssh BOX support >FILE"},
    {"log", TARGET_INIT, ROLE_VIEWER, "*", false, NULL, NULL,
     "[LINES] | changes [LINES] | stored [LINES]",
     "what the box says; who changed what; what the disk keeps"},
    {"keys", TARGET_ENGINE, ROLE_OPERATOR, "- list", false, NULL, "list",
     "list | create NAME | limit ID LIMIT VALUE|none | disable ID | enable ID | "
     "expire ID YYYY-MM-DD|never | delete ID",
     "who may use the chat API, and how much"},
    {"prefixes", TARGET_ENGINE, ROLE_OPERATOR, "- status", false, NULL, "status", "status | save",
     "what is kept of conversations, and writing it now"},
    {"profile", TARGET_ENGINE, ROLE_OPERATOR, "- list show diff history", false, NULL, "list",
     "list | show [NAME] | diff NAME NAME | history | copy FROM NAME | row NAME ROW VALUE | "
     "delete NAME | set NAME [--drain] [--try 10m] | confirm | rollback | verify [NAME] | rank",
     "which shortcuts in arithmetic are live, and changing that"},
    {"metrics", TARGET_ENGINE, ROLE_VIEWER, "*", false, NULL, NULL, "",
     "counts as Prometheus reads them"},
    {"audit", TARGET_ENGINE, ROLE_OPERATOR, "- list status history report diff pins key", false,
     "golden", "status",
     "all | soak | prove | prompt | floor | replay | logits | tools | recall | needle | rank "
     "[--budget B] [--profile P] [--seed N] [--group N] [--exclusive] | isolate --test T | status "
     "| abort | "
     "history | report N | diff N N | list | schedule daily HH:MM BUDGET | schedule off | "
     "pin REQUEST-ID|next | pins | unpin REQUEST-ID|next | key | golden <FILE | no-golden",
     "whether the profile still remembers, and which row broke it"},
    {"claim", TARGET_INIT, ROLE_ADMIN, "*", false, NULL, NULL, "",
     "whether the box is somebody's, or how it becomes so"},
    {"ssh-keys", TARGET_INIT, ROLE_ADMIN, "- list", false, NULL, "list",
     "list | add ssh-ed25519 KEY NAME [viewer|operator|admin] | delete NAME",
     "who may log in over SSH, and as what"},
    {"net", TARGET_INIT, ROLE_ADMIN, "-", false, NULL, NULL,
     "dhcp [--try SECONDS] | static ADDRESS/LENGTH [ROUTER] [--try SECONDS] | confirm",
     "the address; --try goes back by itself"},
    {"settings", TARGET_INIT, ROLE_ADMIN, "-", false, NULL, NULL, "[NAME VALUE] | NAME -",
     "what is set, and setting it; - is nothing"},
    {"time", TARGET_CLOCK, ROLE_ADMIN, "-", false, NULL, NULL, "set 2026-11-30T12:00:00Z",
     "the clock, and who is asked for it; setting it"},
    {"tls", TARGET_TLS, ROLE_ADMIN, "- status show", false, "install", "status",
     "status | show | reset [NAME ...] | install",
     "the certificate; ssh BOX tls install <FILE takes one"},
    {"model", TARGET_MODELS, ROLE_ADMIN, "- list missing verify", false, "receive", "list",
     "list | grow | receive NAME [FILE FIRST] | missing NAME | finish NAME | verify NAME | "
     "use NAME [--try] | delete NAME",
     "what may serve; tools/send_model.py sends one"},
    {"update", TARGET_UPDATER, ROLE_ADMIN, "status", false, "", NULL,
     "status | fetch http://ADDRESS/FILE | usb", "both systems; ssh BOX update <FILE sends one"},
    {"rollback", TARGET_UPDATER, ROLE_ADMIN, "", true, NULL, NULL, "",
     "restart into the system of the other slot"},
    {"secure-boot", TARGET_UPDATER, ROLE_ADMIN, "-", false, "enrol", NULL, "enrol",
     "whether it is on; ssh BOX secure-boot enrol <FILE"},
    {"factory-reset", TARGET_INIT, ROLE_ADMIN, "", true, NULL, NULL, "erase",
     "forget keys and settings, keep the models"},
    {"poweroff", TARGET_INIT, ROLE_ADMIN, "", true, NULL, NULL, "",
     "end everything and switch off"},
    {"reboot", TARGET_INIT, ROLE_OPERATOR, "", true, NULL, NULL, "",
     "end everything and start again"},
    {"help", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, NULL, "[COMMAND]",
     "this list, or how a command is written"},
    {"exit", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, NULL, "", "leave the console"},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])
static_assert(COMMAND_COUNT <= CONSOLE_COMMANDS_MAX, "the console has room for them");

static const char *const ROLES[ROLE_COUNT] = {"viewer", "operator", "admin"};

const struct command *command_at(size_t i)
{
    return i < COMMAND_COUNT ? &COMMANDS[i] : NULL;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

/* Whether `word` is one of those in `list`, which blanks divide. */
static bool is_among(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p != '\0'; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, word, n) == 0)
            return true;
        p += length;
    }
    return false;
}

const char *command_way(const struct command *command, size_t i, size_t *n)
{
    static const char BETWEEN[] = " | ";
    const char *way = command->args;
    for (;; i--) {
        const char *end = strstr(way, BETWEEN);
        *n = end == NULL ? strlen(way) : (size_t)(end - way);
        if (i == 0)
            return *n == 0 ? NULL : way;
        if (end == NULL)
            return NULL;
        way = end + sizeof BETWEEN - 1;
    }
}

size_t command_verb(const struct command *command, size_t i, const char **verb)
{
    size_t n;
    const char *way = command_way(command, i, &n);
    *verb = way;
    if (way == NULL)
        return 0;
    size_t length = strcspn(way, " |");
    /* What is to be replaced by something else is written in capitals. */
    return way[0] >= 'a' && way[0] <= 'z' ? (length < n ? length : n) : 0;
}

void command_explain(const struct command *command, struct text *out)
{
    size_t n;
    const char *way;
    text_printf(out, "%s: %s\n", command->name, command->help);
    if (is_among(command->looks, "-") || strcmp(command->looks, "*") == 0 ||
        command->args[0] == '\0')
        text_printf(out, "  %s\n", command->name);
    for (size_t i = 0; (way = command_way(command, i, &n)) != NULL; i++)
        text_printf(out, "  %s %.*s\n", command->name, (int)n, way);
    if (strcmp(command->looks, "*") != 0)
        text_printf(out, "changes take the role %s and are recorded\n", ROLES[command->role]);
}

/* A last word --json says how to answer, and is none of the command's. */
static bool asks_json(const struct request *request)
{
    return request->count > 1 && strcmp(request->word[request->count - 1], "--json") == 0;
}

void command_complete(const struct command *command, struct request *request)
{
    bool json = asks_json(request);
    if (command->alone == NULL || request->count - json != 1)
        return;
    if (json)
        strcpy(request->word[2], request->word[1]);
    strcpy(request->word[1], command->alone);
    request->count++;
}

bool command_changes(const struct command *command, const struct request *request)
{
    if (strcmp(command->looks, "*") == 0)
        return false;
    bool alone = request->count - asks_json(request) == 1;
    /* A typed "-" is a word like any other, and no look. */
    if (!alone && strcmp(request->word[1], "-") == 0)
        return true;
    return !is_among(command->looks, alone ? "-" : request->word[1]);
}

bool command_allowed(const struct command *command, const struct request *request, enum role role)
{
    return role >= command->role || !command_changes(command, request);
}

const char *role_name(enum role role)
{
    return ROLES[role];
}

bool role_parse(const char *name, enum role *out)
{
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (strcmp(ROLES[i], name) != 0)
            continue;
        *out = (enum role)i;
        return true;
    }
    return false;
}
