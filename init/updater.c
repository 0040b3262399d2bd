/*
 * The updater: takes a signed update from the console, checks all of it, writes it into the slot
 * that does not run, reads it back, and asks init to try it.  A GPU payload is too large to be
 * kept: it is checked and written piece by piece.  The one program that looks at bytes of an
 * update; init never does.  A request's memory and its view of the EFI partition end with it.
 *
 *   updater serve   answers on UPDATE_SOCK: update (bytes follow), update fetch, update usb, update
 *                   status, rollback, secure-boot, secure-boot enrol (bytes follow)
 *   updater keep    after a good start: renews the fallback program and raises the floor
 */
#include "config/box.h"
#include "config/slots.h"
#include "init/bundle.h"
#include "init/client.h"
#include "init/confine.h"
#include "init/efi.h"
#include "init/esp.h"
#include "init/fetch.h"
#include "init/files.h"
#include "init/install.h"
#include "init/journal.h"
#include "init/keyfile.h"
#include "init/payload.h"
#include "init/secure.h"
#include "init/servant.h"
#include "init/stick.h"
#include "init/uki.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES  4096 /* of what `keep` complains about */
#define STATE_BYTES 1024
#define FLOOR_NAME  "V4boxFloor"

/* What init says, and what is asked by whom. */
struct job {
    const struct asked *asked; /* borrows; NULL: nobody asked */
    char esp[STORAGE_NAME_BYTES];
    char gpu[SLOT_COUNT][STORAGE_NAME_BYTES]; /* the partitions for payloads; "": none */
    int running, good;                        /* letters, '-': none */
    bool confirmed, rescue;
    char pending[2], outcome[KEYFILE_VALUE_BYTES];
    uint8_t key[BUNDLE_KEY_BYTES];
    bool key_is_published;
};

static uint8_t program[UPDATE_BYTES_MAX + 1], copy[UPDATE_BYTES_MAX + 1];
static struct payload payload;
static struct client client; /* large: it holds whole answers */

/* ---- what init says ----------------------------------------------------------------------------
 */

static bool take_state(void *context, const char *key, const char *value)
{
    struct job *job = context;
    if (strcmp(key, "esp") == 0)
        snprintf(job->esp, sizeof job->esp, "%.*s", STORAGE_NAME_BYTES - 1, value);
    else if (strcmp(key, "gpu-a") == 0 || strcmp(key, "gpu-b") == 0)
        snprintf(job->gpu[key[4] - 'a'], STORAGE_NAME_BYTES, "%.*s", STORAGE_NAME_BYTES - 1, value);
    else if (strcmp(key, "running") == 0)
        job->running = value[0];
    else if (strcmp(key, "good") == 0)
        job->good = value[0];
    else if (strcmp(key, "confirmed") == 0)
        job->confirmed = strcmp(value, "yes") == 0;
    else if (strcmp(key, "rescue") == 0)
        job->rescue = strcmp(value, "yes") == 0;
    else if (strcmp(key, "pending") == 0)
        snprintf(job->pending, sizeof job->pending, "%.1s", value);
    else if (strcmp(key, "outcome") == 0)
        snprintf(job->outcome, sizeof job->outcome, "%s", value);
    else
        return false;
    return true;
}

static const char *job_open(struct job *job)
{
    char bytes[STATE_BYTES];
    uint8_t published[BUNDLE_KEY_BYTES];
    ssize_t n = file_load(UPDATE_STATE, bytes, sizeof bytes);
    if (n < 0 || !keyfile_parse(bytes, (size_t)n, take_state, job) || job->esp[0] == '\0')
        return "init has told nothing about slots";
    n = file_load(UPDATE_KEY, bytes, sizeof bytes);
    if (n < 0 || !bundle_key_parse(job->key, bytes, (size_t)n))
        return UPDATE_KEY " is no public key";
    job->key_is_published =
        bundle_key_parse(published, UPDATE_KEY_PUBLISHED "\n", strlen(UPDATE_KEY_PUBLISHED) + 1) &&
        memcmp(published, job->key, sizeof published) == 0;
    return NULL;
}

static int other_slot(const struct job *job)
{
    return job->running == 'a' ? 'b' : 'a';
}

static uint64_t box_floor(void)
{
    uint8_t bytes[8];
    uint64_t floor = 0;
    if (efi_get(EFI_VARIABLES, FLOOR_NAME, EFI_OWN, bytes, sizeof bytes) != sizeof bytes)
        return 0;
    for (int i = 7; i >= 0; i--)
        floor = floor << 8 | bytes[i];
    return floor;
}

/* ---- slots ------------------------------------------------------------------------------------
 */

static const char *slot_path(char path[64], const char *format, int slot)
{
    snprintf(path, 64, format, slot);
    return path;
}

/* Of the mounted partition. */
static const char *slot_header(const struct job *job, int slot, struct bundle *b)
{
    char path[64];
    uint8_t header[BUNDLE_HEADER_BYTES];
    ssize_t n = esp_read(slot_path(path, SLOT_HEADER_PATH, slot), header, sizeof header);
    if (n != (ssize_t)sizeof header)
        return "it has no header";
    return bundle_check_header(b, header, sizeof header, job->key);
}

/* Its program, too, which is then in `program`. */
static const char *slot_whole(const struct job *job, int slot, struct bundle *b)
{
    char path[64];
    const char *wrong = slot_header(job, slot, b);
    if (wrong != NULL)
        return wrong;
    ssize_t n = esp_read(slot_path(path, SLOT_PROGRAM_PATH, slot), program, sizeof program);
    if (n < 0)
        return "its program can not be read";
    return bundle_check_program(b, program, (size_t)n);
}

/* Of the program in `program`: which partition has its GPU payload; -1: it names none. */
static const char *slot_payload(const struct job *job, int slot, const struct bundle *b, int *found,
                                struct verity *v)
{
    bool named;
    *found = -1;
    const char *wrong = uki_payload(v, &named, program, (size_t)b->program_bytes);
    if (wrong != NULL || !named)
        return wrong;
    if (payload_plan(&payload, v))
        *found = payload_find(&payload, job->gpu, slot - 'a');
    return *found >= 0 ? NULL : "its GPU payload is on no partition, or damaged";
}

static bool mounted(const struct job *job, bool writable, struct text *text)
{
    if (esp_mount(job->esp, writable))
        return true;
    text_printf(text, "the EFI partition %s can not be mounted: %s", job->esp, strerror(errno));
    return false;
}

/* ---- the commands ------------------------------------------------------------------------------
 */

/* Init writes the firmware's variables and ends the machine. */
static bool try_slot(int slot, const struct bundle *b, struct text *text)
{
    struct request request = {.count = 3};
    snprintf(request.word[0], sizeof request.word[0], "slot-try");
    snprintf(request.word[1], sizeof request.word[1], "%c", slot);
    snprintf(request.word[2], sizeof request.word[2], "%s", b->version);
    enum client_result result = client_ask(&client, BOX_INIT_SOCK, &request, UPDATE_ANSWER_MS);
    if (result != CLIENT_ANSWERED) {
        text_printf(text, "init: %s", client_result_text(result));
        return false;
    }
    text_add(text, client.answer.text.data, client.answer.text.len);
    return client.answer.ok;
}

/* What speaks against a release that is signed. */
static const char *too_old(const struct job *job, const struct bundle *b)
{
    struct bundle running;
    if (b->sequence < box_floor())
        return "it is below the floor of this box: a release since then must not be undone";
    if (!esp_mount(job->esp, false))
        return "the EFI partition can not be mounted";
    const char *unknown = slot_header(job, job->running, &running);
    esp_unmount();
    if (unknown == NULL && b->sequence < running.sequence)
        return "it is older than what runs; `rollback` goes back to the slot before";
    return NULL;
}

/* Everything of the system itself that there is to check, before anything is written. */
static const char *take_system(const struct job *job, struct bundle *b,
                               uint8_t header[BUNDLE_HEADER_BYTES])
{
    if (job->running != job->good)
        return "the running system is on trial itself; try again when it is confirmed";
    size_t n = servant_receive(job->asked, header, BUNDLE_HEADER_BYTES);
    const char *wrong = bundle_check_header(b, header, n, job->key);
    if (wrong == NULL)
        wrong = too_old(job, b);
    if (wrong != NULL)
        return wrong;
    /* One byte more than it may have, to see that there is none. */
    size_t beyond = b->payload_bytes == 0;
    return bundle_check_program(
        b, program, servant_receive(job->asked, program, (size_t)b->program_bytes + beyond));
}

/* What is being installed, and where. */
struct place {
    const struct job *job;
    int slot;
    int gpu; /* the partition that the payload goes to; -1: none comes */
};

static size_t receive(void *place, void *bytes, size_t n)
{
    return servant_receive(((struct place *)place)->job->asked, bytes, n);
}

/* Which payload the system needs, that it comes or is here, and the tree of its hashes. */
static const char *take_payload(struct place *place, const struct bundle *b)
{
    const struct job *job = place->job;
    struct verity v;
    bool named;
    const char *wrong = uki_payload(&v, &named, program, (size_t)b->program_bytes);
    if (wrong != NULL || (!named && b->payload_bytes == 0))
        return wrong;
    if (!named)
        return "it brings a GPU payload that its program does not name";
    if (!payload_plan(&payload, &v))
        return "its GPU payload is larger than any may be";
    if (b->payload_bytes == 0)
        return payload_find(&payload, job->gpu, place->slot - 'a') >= 0
                   ? NULL
                   : "its program names a GPU payload that it does not bring and the box does not "
                     "have";
    if (b->payload_bytes != payload_bytes(&payload))
        return "its GPU payload has not the size that its program names";
    place->gpu = payload_open(&payload, job->gpu, place->slot - 'a', &wrong);
    return wrong != NULL ? wrong : payload_take_hashes(&payload, receive, place);
}

static const char *put_file(const struct place *place, const char *format, const uint8_t *bytes,
                            size_t n)
{
    char path[64];
    if (!esp_mount(place->job->esp, true))
        return strerror(errno);
    bool good = esp_write(slot_path(path, format, place->slot), bytes, n);
    int code = errno;
    if (!esp_unmount() && good)
        return strerror(errno);
    return good ? NULL : strerror(code);
}

static const char *put_header(void *context, const uint8_t header[BUNDLE_HEADER_BYTES])
{
    return put_file(context, SLOT_HEADER_PATH, header, BUNDLE_HEADER_BYTES);
}

static const char *put_program(void *context, const uint8_t *bytes, size_t n)
{
    return put_file(context, SLOT_PROGRAM_PATH, bytes, n);
}

static const char *put_payload(void *context)
{
    struct place *place = context;
    uint64_t bad;
    uint8_t beyond;
    const char *wrong = payload_take_data(&payload, receive, place, place->gpu);
    if (wrong == NULL && receive(place, &beyond, 1) != 0)
        wrong = "there are bytes behind the GPU payload";
    if (wrong == NULL && !payload_check(&payload, place->gpu, &bad))
        wrong = "the GPU payload was written, and reads back as something else";
    return wrong;
}

static bool write_slot(struct place *place, const struct bundle *b,
                       const uint8_t header[BUNDLE_HEADER_BYTES], struct text *text)
{
    struct bundle read;
    struct install install = {.context = place,
                              .header = header,
                              .program = program,
                              .program_bytes = (size_t)b->program_bytes,
                              .put_header = put_header,
                              .put_program = put_program,
                              .put_payload = place->gpu < 0 ? NULL : put_payload};
    const char *wrong = install_run(&install);
    if (wrong != NULL) {
        text_printf(text, "slot %c could not be written, and is not to be used now: %s",
                    place->slot, wrong);
        return false;
    }
    if (!mounted(place->job, false, text))
        return false;
    wrong =
        slot_whole(place->job, place->slot, &read); /* from the disk: nothing is cached any more */
    esp_unmount();
    if (wrong != NULL)
        text_printf(text, "slot %c was written, but %s", place->slot, wrong);
    return wrong == NULL;
}

static bool command_update(const struct job *job, struct text *text)
{
    struct bundle b;
    struct place place = {.job = job, .slot = other_slot(job), .gpu = -1};
    uint8_t header[BUNDLE_HEADER_BYTES];
    const char *wrong = take_system(job, &b, header);
    if (wrong == NULL)
        wrong = take_payload(&place, &b);
    if (wrong != NULL) {
        text_printf(text, "refused, nothing was written: %s", wrong);
        return false;
    }
    fprintf(stderr, "updater: %s goes into slot %c%s\n", b.version, place.slot,
            place.gpu < 0 ? "" : ", with its GPU payload");
    if (!write_slot(&place, &b, header, text))
        return false;
    text_printf(text, "%s is in slot %c%s; ", b.version, place.slot,
                place.gpu < 0 ? "" : ", with its GPU payload");
    return try_slot(place.slot, &b, text);
}

/* The same, whose bytes come from another place than the console. */
static bool update_from(const struct job *job, int fd, struct text *text)
{
    struct asked asked = *job->asked;
    struct job own = *job;
    asked.fd = fd;
    own.asked = &asked;
    return command_update(&own, text);
}

/* Somebody else's bytes are read by a process that may do nothing but pass them on. */
_Noreturn static void fetch(const struct fetch *from, int out, int why)
{
    const char *wrong = "it can not be confined";
    if (confine_user(BOX_UID_FETCH) == 0 && confine_files(NULL, 0) == 0)
        wrong = fetch_run(from, out, BUNDLE_HEADER_BYTES + UPDATE_BYTES_MAX + PAYLOAD_BYTES_MAX);
    if (wrong != NULL)
        dprintf(why, "%s", wrong);
    _exit(0);
}

static bool command_fetch(const struct job *job, struct text *text)
{
    struct fetch from;
    char why[FETCH_WHY_BYTES];
    int bytes[2], reason[2];
    const char *wrong = fetch_parse(&from, job->asked->request.word[2]);
    if (wrong == NULL && (pipe(bytes) != 0 || pipe(reason) != 0))
        wrong = strerror(errno);
    if (wrong != NULL) {
        text_printf(text, "the address: %s", wrong);
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(job->asked->fd);
        fetch(&from, bytes[1], reason[1]);
    }
    close(bytes[1]);
    close(reason[1]);
    bool good = update_from(job, bytes[0], text);
    close(bytes[0]);
    ssize_t n = read(reason[0], why, sizeof why);
    if (!good && n > 0)
        text_printf(text, " (%.*s)", (int)n, why);
    waitpid(pid, NULL, 0);
    return good;
}

static bool command_usb(const struct job *job, struct text *text)
{
    int fd = stick_open(UPDATE_FILE);
    if (fd < 0) {
        text_printf(text, "no USB stick with a FAT has a file " UPDATE_FILE);
        return false;
    }
    bool good = update_from(job, fd, text);
    close(fd);
    return good;
}

static bool command_status(const struct job *job, struct text *text)
{
    if (!mounted(job, false, text))
        return false;
    for (int slot = 'a'; slot < 'a' + SLOT_COUNT; slot++) {
        struct bundle b;
        struct verity v;
        int gpu = -1;
        const char *wrong = slot_whole(job, slot, &b);
        if (wrong == NULL)
            wrong = slot_payload(job, slot, &b, &gpu, &v);
        text_printf(text, "slot %c: ", slot);
        if (wrong == NULL)
            text_printf(text, "%s, sequence %" PRIu64, b.version, b.sequence);
        else
            text_printf(text, "not to be used: %s", wrong);
        if (gpu >= 0)
            text_printf(text, ", driver %s on %s", v.version, job->gpu[gpu]);
        text_printf(text, "%s%s\n", slot == job->good ? ", good" : "",
                    slot != job->running ? ""
                    : job->confirmed     ? ", runs"
                                         : ", runs, unconfirmed");
    }
    esp_unmount();
    if (job->rescue)
        text_printf(text, "RESCUE: too many starts went wrong; `reboot` tries again\n");
    text_printf(text, "floor %" PRIu64 "\nlast update: %s\n", box_floor(),
                job->outcome[0] == '\0' ? "none" : job->outcome);
    if (job->key_is_published)
        text_printf(text, "the update key is the published one of the source tree: anybody who may "
                          "log in can make an update\n");
    return true;
}

static bool command_rollback(const struct job *job, struct text *text)
{
    struct bundle b;
    struct verity v;
    int slot = other_slot(job), gpu;
    if (!mounted(job, false, text))
        return false;
    const char *wrong = slot_whole(job, slot, &b);
    esp_unmount();
    if (wrong == NULL && b.sequence < box_floor())
        wrong = "it is below the floor of this box";
    if (wrong == NULL)
        wrong = slot_payload(job, slot, &b, &gpu, &v);
    if (wrong != NULL) {
        text_printf(text, "slot %c is not to be used: %s", slot, wrong);
        return false;
    }
    text_printf(text, "back to %s in slot %c; ", b.version, slot);
    return try_slot(slot, &b, text);
}

static bool command_secure(const struct job *job, struct text *text)
{
    (void)job;
    text_printf(text, "Secure Boot: %s%s\n",
                secure_flag(EFI_VARIABLES, "SecureBoot") ? "on" : "off",
                secure_flag(EFI_VARIABLES, "SetupMode") ? ", the firmware takes keys" : "");
    return true;
}

/* A box that does not start what it runs would be lost: its own system must be signed first. */
static const char *take_keys(const struct job *job, struct secure_keys *keys)
{
    struct bundle b;
    size_t n = servant_receive(job->asked, copy, sizeof copy);
    if (!secure_flag(EFI_VARIABLES, "SetupMode"))
        return "the firmware takes no keys: clear the old ones in its setup";
    if (!secure_keys_parse(keys, copy, n))
        return "this is no enrolment";
    if (!esp_mount(job->esp, false))
        return "the EFI partition can not be mounted";
    const char *wrong = slot_whole(job, job->running, &b);
    esp_unmount();
    if (wrong == NULL && memmem(program, (size_t)b.program_bytes, keys->certificate,
                                keys->certificate_bytes) == NULL)
        wrong = "the running system is not signed by this key, and would not start again";
    return wrong;
}

static bool command_enrol(const struct job *job, struct text *text)
{
    struct secure_keys keys;
    const char *wrong = take_keys(job, &keys);
    if (wrong == NULL && !secure_enrol(EFI_VARIABLES, &keys))
        wrong = strerror(errno);
    text_printf(text, "%s%s", wrong == NULL ? "" : "refused: ",
                wrong == NULL
                    ? "the firmware has the keys; Secure Boot holds from the next start on"
                    : wrong);
    return wrong == NULL;
}

static const struct {
    const char *command, *verb; /* NULL: none */
    int words;                  /* both included */
    bool (*run)(const struct job *job, struct text *text);
} COMMANDS[] = {
    {"update", NULL, 1, command_update},        {"update", "status", 2, command_status},
    {"update", "fetch", 3, command_fetch},      {"update", "usb", 2, command_usb},
    {"rollback", NULL, 1, command_rollback},    {"secure-boot", NULL, 1, command_secure},
    {"secure-boot", "enrol", 2, command_enrol},
};

static bool dispatch(const struct asked *asked, struct text *text)
{
    const struct request *request = &asked->request;
    const char *verb = request->count >= 2 ? request->word[1] : NULL;
    struct job job = {.asked = asked};
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        bool same = (verb == NULL) == (COMMANDS[i].verb == NULL) &&
                    (verb == NULL || strcmp(verb, COMMANDS[i].verb) == 0);
        if (!same || request->count != COMMANDS[i].words ||
            strcmp(COMMANDS[i].command, request->word[0]) != 0)
            continue;
        const char *wrong = job_open(&job);
        if (wrong == NULL && !esp_enter())
            wrong = strerror(errno);
        if (wrong == NULL)
            return COMMANDS[i].run(&job, text);
        text_printf(text, "%s", wrong);
        return false;
    }
    text_printf(text, "update status | update fetch http://ADDRESS[:PORT]/FILE | update usb | "
                      "rollback | secure-boot; sent over SSH: update <FILE, "
                      "secure-boot enrol <FILE");
    return false;
}

/* ---- after a good start ------------------------------------------------------------------------
 */

static bool raise_floor(uint64_t floor)
{
    uint8_t bytes[8];
    if (floor <= box_floor())
        return true;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(floor >> (8 * i));
    return efi_set(EFI_VARIABLES, FLOOR_NAME, EFI_OWN, bytes, sizeof bytes);
}

static const char *keep(void)
{
    static char said[TEXT_BYTES];
    struct text text = text_over(said, sizeof said);
    struct job job = {.asked = NULL};
    struct bundle b;
    const char *wrong = job_open(&job);
    if (wrong != NULL)
        return wrong;
    if (!esp_enter() || !mounted(&job, false, &text))
        return said;
    wrong = slot_whole(&job, job.running, &b);
    ssize_t n = wrong == NULL ? esp_read(SLOT_FALLBACK, copy, sizeof copy) : -1;
    esp_unmount();
    if (wrong != NULL) { /* a slot that nobody signed is started all the same, and copied nowhere */
        fprintf(stderr, "updater: slot %c: %s\n", job.running, wrong);
        return NULL;
    }
    if (n != (ssize_t)b.program_bytes || memcmp(copy, program, b.program_bytes) != 0) {
        if (!mounted(&job, true, &text))
            return said;
        bool good = esp_write(SLOT_FALLBACK, program, (size_t)b.program_bytes);
        if (!esp_unmount() || !good)
            return "the fallback program can not be written";
        fprintf(stderr, "updater: the fallback program is %s\n", b.version);
    }
    return raise_floor(b.floor) ? NULL : "the firmware does not keep the floor";
}

int main(int argc, char **argv)
{
    if (argc != 2 || confine_process() != 0 || sodium_init() < 0)
        return 2;
    if (strcmp(argv[1], "serve") == 0)
        return servant_run(UPDATE_SOCK, UPDATE_MS, dispatch);
    if (strcmp(argv[1], "keep") != 0)
        return 2;
    const char *wrong = keep();
    if (wrong != NULL)
        fprintf(stderr, "updater: %s\n", wrong);
    return wrong == NULL ? 0 : 1;
}
