/*
 * Models: takes them in, looks at them, removes them, and asks init to let one serve.  A child for
 * each request, in a name space of its own, where the partition that everybody else only reads can
 * be written; what reads for long goes on beside the next request.
 */
#include "config/box.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/disk.h"
#include "init/gpt.h"
#include "init/modelplan.h"
#include "init/servant.h"
#include "init/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ANSWER_MS 10000 /* of init, which never waits */
#define GB        1000000000.0
/* EXT4_IOC_RESIZE_FS, which the kernel tells nobody in a header. */
#define EXT4_RESIZE _IOW('f', 16, uint64_t)

static struct store store, attached;
static struct client client; /* large: it holds whole answers */

/* For this process alone, and not through links that somebody put on the partition. */
static bool may_write(void)
{
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW;
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(NULL, BOX_MODELS, NULL, flags, NULL) == 0;
}

static enum client_result ask_init(const char *command, const char *name, const char *option)
{
    struct request request = {.count = 0};
    const char *const words[] = {command, name, option};
    for (int i = 0; i < 3 && words[i] != NULL; i++)
        snprintf(request.word[request.count++], CONTROL_WORD_BYTES + 1, "%s", words[i]);
    return client_ask(&client, BOX_INIT_SOCK, &request, ANSWER_MS);
}

/* The name of the model that serves; "" when init does not say. */
static const char *serving(void)
{
    bool told = ask_init("model-now", NULL, NULL) == CLIENT_ANSWERED && client.answer.ok;
    return told ? client.answer.text.data : "";
}

/* ---- the commands ------------------------------------------------------------------------------
 */

/* "NAME attached"; the box's own of the same name goes first. */
static void attached_list(const char *now, struct text *said)
{
    size_t before = said->len;
    store_list(&attached, now, "  serves, if the box has none of this name", said);
    if (said->len > before)
        text_printf(said, "the last are on the attached disk\n");
}

static bool command_list(const struct asked *asked, struct text *said)
{
    (void)asked;
    struct statvfs fs;
    const char *now = serving();
    store_list(&store, now, "  serves", said);
    if (statvfs(BOX_MODELS, &fs) == 0)
        text_printf(said, "%.3f GB are free\n", (double)fs.f_bavail * (double)fs.f_frsize / GB);
    attached_list(now, said);
    return true;
}

static size_t from_sender(void *context, void *bytes, size_t n)
{
    return servant_receive(context, bytes, n);
}

static bool command_receive(const struct asked *asked, struct text *said)
{
    const char *name = asked->request.word[2];
    size_t n = servant_receive(asked, store.text, sizeof store.text);
    return store_begin(&store, name, n, said);
}

static bool command_take(const struct asked *asked, struct text *said)
{
    char *end;
    struct asked own = *asked; /* the source reads on through it */
    const char(*word)[CONTROL_WORD_BYTES + 1] = own.request.word;
    unsigned long first = strtoul(word[4], &end, 10);
    if (word[4][0] < '0' || word[4][0] > '9' || *end != '\0' || first >= LEAVES_MAX) {
        text_printf(said, "model receive NAME FILE FIRST: FIRST is a number of a MiB");
        return false;
    }
    return store_take(&store, word[2], word[3], (uint32_t)first, from_sender, &own, said);
}

static bool command_missing(const struct asked *asked, struct text *said)
{
    return store_missing(&store, asked->request.word[2], said);
}

static bool command_finish(const struct asked *asked, struct text *said)
{
    return store_finish(&store, asked->request.word[2], said);
}

/* The box's own goes first, as it does when one is to serve. */
static struct store *store_of(const char *name)
{
    char folder[sizeof BOX_ATTACHED + 1 + MODEL_NAME_CHARS];
    bool found = modelplan_name_good(name) && modelplan_find(name, folder, (int)sizeof folder);
    return found && strncmp(folder, BOX_ATTACHED, strlen(BOX_ATTACHED)) == 0 ? &attached : &store;
}

static bool command_verify(const struct asked *asked, struct text *said)
{
    const char *name = asked->request.word[2];
    return store_verify(store_of(name), name, said);
}

static bool command_use(const struct asked *asked, struct text *said)
{
    const char(*word)[CONTROL_WORD_BYTES + 1] = asked->request.word;
    bool try = asked->request.count == 4;
    if (try && strcmp(word[3], "--try") != 0) {
        text_printf(said, "model use NAME [--try]");
        return false;
    }
    if (!store_is_whole(store_of(word[2]), word[2], said))
        return false;
    enum client_result result = ask_init("model-use", word[2], try ? "--try" : NULL);
    if (result != CLIENT_ANSWERED)
        text_printf(said, "init: %s", client_result_text(result));
    else
        text_add(said, client.answer.text.data, client.answer.text.len);
    return result == CLIENT_ANSWERED && client.answer.ok;
}

static bool command_delete(const struct asked *asked, struct text *said)
{
    const char *name = asked->request.word[2];
    if (strcmp(serving(), name) == 0) {
        text_printf(said, "%s serves; `model use` takes another first", name);
        return false;
    }
    return store_delete(&store, name, said);
}

/* The kernel is told of the partition's new size, and then makes its file system larger, which goes
 * on being used. */
static const char *grow(struct disk *disk, struct gpt_part *part)
{
    char path[sizeof "/dev/" + STORAGE_NAME_BYTES];
    uint64_t bytes = 0;
    if (disk_find(disk, "/sys/class/block") != DISK_FOUND)
        return "the box has no disk of its own";
    snprintf(path, sizeof path, "/dev/%s", disk->name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) != 0)
        return strerror(errno);
    const char *wrong = gpt_grow(fd, bytes, "models", part);
    struct blkpg_partition moved = {
        .start = (long long)part->start, .length = (long long)part->bytes, .pno = part->number};
    struct blkpg_ioctl_arg order = {
        .op = BLKPG_RESIZE_PARTITION, .datalen = sizeof moved, .data = &moved};
    if (wrong == NULL && ioctl(fd, BLKPG, &order) != 0)
        wrong = strerror(errno);
    close(fd);
    int folder = open(BOX_MODELS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t blocks = part->bytes / MODEL_BLOCK_BYTES;
    if (wrong == NULL && (folder < 0 || ioctl(folder, EXT4_RESIZE, &blocks) != 0))
        wrong = strerror(errno);
    if (folder >= 0)
        close(folder);
    return wrong;
}

static bool command_grow(const struct asked *asked, struct text *said)
{
    (void)asked;
    struct disk disk;
    struct gpt_part part = {.number = 0};
    struct statvfs fs;
    const char *wrong = grow(&disk, &part);
    if (wrong == NULL && statvfs(BOX_MODELS, &fs) != 0)
        wrong = strerror(errno);
    if (wrong != NULL)
        text_printf(said, "the models' partition does not grow: %s", wrong);
    else
        text_printf(said, "the models' partition has %.3f GB; %.3f GB are free\n",
                    (double)part.bytes / GB, (double)fs.f_bavail * (double)fs.f_frsize / GB);
    return wrong == NULL;
}

static const struct {
    const char *verb;
    int count_min, count_max; /* words, the command's included */
    bool lasts;               /* minutes and more: the next request does not wait for it */
    bool rules;               /* keeps its rights over the machine, and reads nothing of a sender */
    bool (*run)(const struct asked *asked, struct text *said);
} COMMANDS[] = {
    {"list", 1, 2, false, false, command_list},    {"receive", 3, 3, false, false, command_receive},
    {"receive", 5, 5, true, false, command_take},  {"missing", 3, 3, false, false, command_missing},
    {"finish", 3, 3, true, false, command_finish}, {"verify", 3, 3, true, false, command_verify},
    {"use", 3, 4, false, false, command_use},      {"delete", 3, 3, false, false, command_delete},
    {"grow", 2, 2, true, true, command_grow},
};

static bool dispatch(const struct asked *asked, struct text *said)
{
    const struct request *request = &asked->request;
    const char *verb = request->count > 1 ? request->word[1] : "list";
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strcmp(COMMANDS[i].verb, verb) != 0 || request->count < COMMANDS[i].count_min ||
            request->count > COMMANDS[i].count_max || strcmp(request->word[0], "model") != 0)
            continue;
        /* The servant waits for its own child alone; the grandchild answers by itself, and init
         * reaps it. */
        if (COMMANDS[i].lasts && fork() != 0)
            _exit(0);
        if (!may_write() || (!COMMANDS[i].rules && confine_capabilities() != 0)) {
            text_printf(said, "the models' partition: %s", strerror(errno));
            return false;
        }
        store.root = BOX_MODELS;
        attached.root = BOX_ATTACHED;
        store.lock = attached.lock = -1;
        return COMMANDS[i].run(asked, said);
    }
    text_printf(said,
                "model list | grow | missing NAME | finish NAME | verify NAME | use NAME [--try] | "
                "delete NAME; over SSH: model receive NAME <FILE, model receive NAME FILE "
                "FIRST <FILE; tools/send_model.py does it all");
    return false;
}

int main(void)
{
    if (confine_process() != 0 || sodium_init() < 0)
        return 2;
    return servant_run(MODEL_SOCK, MODEL_MS, dispatch);
}
