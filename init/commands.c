/* The console's commands and roles. */
#include "init/commands.h"

#include "config/box.h"

#include <assert.h>
#include <string.h>

static const struct command COMMANDS[] = {
    {"status", TARGET_BOTH, ROLE_VIEWER, "*", false, NULL, "", "what runs, and how it fares"},
    {"top", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, "",
     "what the engine does, second by second; any key ends it"},
    {"gpu", TARGET_BOTH, ROLE_VIEWER, "*", false, NULL, "",
     "GPUs: link, errors, memory, heat, power, ranks"},
    {"support", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, "",
     "all that helps others to help, without secrets: ssh BOX support >FILE"},
    {"log", TARGET_INIT, ROLE_VIEWER, "*", false, NULL, "[changes | stored] [LINES]",
     "what init, services and kernel say; who changed what; what the disk keeps"},
    {"keys", TARGET_ENGINE, ROLE_OPERATOR, "- list", false, NULL,
     "list | create NAME | limit ID LIMIT VALUE | disable|enable ID | expire ID DATE | delete ID",
     "who may use the chat API, and how much"},
    {"prefixes", TARGET_ENGINE, ROLE_OPERATOR, "- status", false, NULL, "status | save",
     "what is kept of conversations, and writing it now"},
    {"profile", TARGET_ENGINE, ROLE_OPERATOR, "- list show diff history", false, NULL,
     "list | show | diff | set | confirm | rollback | verify | rank | history | copy | row | "
     "delete",
     "which shortcuts in arithmetic are live, and changing that"},
    {"metrics", TARGET_ENGINE, ROLE_VIEWER, "*", false, NULL, "",
     "counts as Prometheus reads them"},
    {"audit", TARGET_ENGINE, ROLE_OPERATOR, "- list status history report diff key", false, NULL,
     "all | soak | prove | replay | logits | recall | needle | tools | rank | isolate .. | status "
     "| "
     "abort | history | report | diff | list | schedule | pin | pins | unpin | key",
     "whether the profile still remembers, and which row broke it"},
    {"claim", TARGET_INIT, ROLE_ADMIN, "*", false, NULL, "",
     "whether the box is somebody's, or how it becomes so"},
    {"ssh-keys", TARGET_INIT, ROLE_ADMIN, "- list", false, NULL,
     "list | add KEY NAME [viewer|operator|admin] | delete NAME",
     "who may log in over SSH, and as what"},
    {"net", TARGET_INIT, ROLE_ADMIN, "-", false, NULL,
     "dhcp | static ADDRESS/LEN [ROUTER] | confirm",
     "the address; --try SECONDS goes back by itself"},
    {"settings", TARGET_INIT, ROLE_ADMIN, "-", false, NULL, "[NAME VALUE]",
     "what is set, and setting it"},
    {"time", TARGET_CLOCK, ROLE_ADMIN, "-", false, NULL, "set 2026-11-30T12:00:00Z",
     "the clock, and who is asked for it; setting it"},
    {"tls", TARGET_TLS, ROLE_ADMIN, "- status show", false, "install",
     "status | show | reset [NAME ...]", "the certificate; ssh BOX tls install <FILE takes one"},
    {"model", TARGET_MODELS, ROLE_ADMIN, "- list missing verify", false, "receive",
     "list | grow | missing NAME | finish NAME | verify NAME | use NAME [--try] | delete NAME",
     "what may serve; tools/send_model.py sends one"},
    {"update", TARGET_UPDATER, ROLE_ADMIN, "status", false, "",
     "status | fetch http://ADDRESS/FILE | usb",
     "both systems; takes one from there; ssh BOX update <FILE sends one"},
    {"rollback", TARGET_UPDATER, ROLE_ADMIN, "", true, NULL, "",
     "restart into the system of the other slot"},
    {"secure-boot", TARGET_UPDATER, ROLE_ADMIN, "-", false, "enrol", "",
     "whether it is on; ssh BOX secure-boot enrol <FILE"},
    {"factory-reset", TARGET_INIT, ROLE_ADMIN, "", true, NULL, "erase",
     "forget keys and settings, keep the models"},
    {"poweroff", TARGET_INIT, ROLE_ADMIN, "", true, NULL, "", "end everything and switch off"},
    {"reboot", TARGET_INIT, ROLE_OPERATOR, "", true, NULL, "", "end everything and start again"},
    {"help", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, "", "this list"},
    {"exit", TARGET_LOCAL, ROLE_VIEWER, "*", false, NULL, "", "leave the console"},
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

bool command_changes(const struct command *command, const struct request *request)
{
    if (strcmp(command->looks, "*") == 0)
        return false;
    bool json = request->count > 1 && strcmp(request->word[request->count - 1], "--json") == 0;
    bool alone = request->count - json == 1;
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
