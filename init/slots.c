/* Which of the two systems runs, and what comes next. */
#include "init/slots.h"

#include "config/box.h"
#include "init/files.h"
#include "init/keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define STATE_BYTES 1024
#define PATH_BYTES  256
#define TRIES_LIMIT 99 /* of the file; only BOOT_TRIES_MAX matters */

static const char NO_START[] = "it did not come up: panic, hang or power cut";

char slot_letter(int slot)
{
    return slot == SLOT_NONE ? '-' : (char)('a' + slot);
}

static int slot_of(const char *letter)
{
    return letter[0] >= 'a' && letter[0] < 'a' + SLOT_COUNT && letter[1] == '\0' ? letter[0] - 'a'
                                                                                 : SLOT_NONE;
}

static void copy(char *to, size_t cap, const char *text)
{
    snprintf(to, cap, "%s", text);
}

/* ---- the state --------------------------------------------------------------------------------
 */

static struct slots_state state_of_a_new_box(void)
{
    return (struct slots_state){.good = SLOT_NONE, .pending = SLOT_NONE};
}

static bool take(void *context, const char *key, const char *value)
{
    struct slots_state *state = context;
    if (strcmp(key, "good") == 0) {
        state->good = slot_of(value);
    } else if (strcmp(key, "pending") == 0) {
        state->pending = slot_of(value);
    } else if (strcmp(key, "version") == 0) {
        copy(state->version, sizeof state->version, value);
    } else if (strcmp(key, "outcome") == 0) {
        copy(state->outcome, sizeof state->outcome, value);
    } else if (strcmp(key, "tries") == 0) {
        char *end;
        long tries = strtol(value, &end, 10);
        state->tries = (int)tries;
        return end != value && *end == '\0' && tries >= 0 && tries <= TRIES_LIMIT;
    } else {
        return false;
    }
    return true;
}

bool slots_state_parse(struct slots_state *state, const char *bytes, size_t n)
{
    struct slots_state read = state_of_a_new_box();
    bool good = keyfile_parse(bytes, n, take, &read);
    *state = good ? read : state_of_a_new_box();
    return good;
}

static void add_slot(struct text *t, const char *key, int slot)
{
    const char letter[2] = {slot_letter(slot), '\0'};
    keyfile_add(t, key, letter);
}

static void add_number(struct text *t, const char *key, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    keyfile_add(t, key, digits);
}

void slots_state_write(struct text *t, const struct slots_state *state)
{
    add_slot(t, "good", state->good);
    add_number(t, "tries", (uint64_t)state->tries);
    add_slot(t, "pending", state->pending);
    keyfile_add(t, "version", state->version);
    keyfile_add(t, "outcome", state->outcome);
    keyfile_seal(t);
}

static bool save(const struct slots *s)
{
    char bytes[STATE_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    slots_state_write(&t, &s->state);
    return file_save(s->file, t.data, t.len, BOX_UID_ROOT);
}

static bool load(struct slots *s)
{
    char bytes[STATE_BYTES];
    ssize_t n = file_load(s->file, bytes, sizeof bytes);
    s->state = state_of_a_new_box();
    return n < 0 ? errno == ENOENT : slots_state_parse(&s->state, bytes, (size_t)n);
}

/* ---- what this start is -----------------------------------------------------------------------
 */

static void end_trial(struct slots_state *state)
{
    char reason[SLOT_OUTCOME_BYTES];
    copy(reason, sizeof reason, state->outcome[0] != '\0' ? state->outcome : NO_START);
    snprintf(state->outcome, sizeof state->outcome, "%.*s fell back: %.*s", SLOT_VERSION_BYTES - 1,
             state->version, (int)(sizeof state->outcome - SLOT_VERSION_BYTES - 12), reason);
    state->pending = SLOT_NONE;
    state->tries = 0;
}

void slots_decide(struct slots *s, int loaded, int first)
{
    struct slots_state *state = &s->state;
    /* The fallback program is a copy of the good slot. */
    s->good = first != SLOT_NONE ? first : state->good != SLOT_NONE ? state->good : loaded;
    s->good = s->good == SLOT_NONE ? 0 : s->good;
    s->running = loaded == SLOT_NONE ? s->good : loaded;
    if (state->pending != SLOT_NONE && s->running != state->pending)
        end_trial(state);
    s->rescue = s->running == s->good && state->tries >= BOOT_TRIES_MAX;
    if (state->tries < BOOT_TRIES_MAX)
        state->tries++;
}

/* ---- the firmware -----------------------------------------------------------------------------
 */

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char path[PATH_BYTES], text[32], *end;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    *out = strtoull(text, &end, 10);
    return end != text && (*end == '\n' || *end == '\0');
}

static bool read_partition(struct efi_partition *p, const char *variables, const char *esp_folder)
{
    uint8_t bytes[EFI_VARIABLE_BYTES];
    char text[64];
    uint64_t number = 0;
    ssize_t n = efi_get(variables, "LoaderDevicePartUUID", EFI_LOADER, bytes, sizeof bytes);
    if (n < 0 || !efi_text(text, sizeof text, bytes, (size_t)n) ||
        !efi_guid_parse(p->guid, text, strlen(text)))
        return false;
    if (!read_number(esp_folder, "partition", &number) || number > UINT32_MAX ||
        !read_number(esp_folder, "start", &p->start) || !read_number(esp_folder, "size", &p->size))
        return false;
    p->number = (uint32_t)number;
    return true;
}

static void program_path(char path[PATH_BYTES], int slot)
{
    snprintf(path, PATH_BYTES, SLOT_PROGRAM_PATH, slot_letter(slot));
}

/* The slot whose program the firmware says it started. */
static int loaded_slot(const char *variables)
{
    uint8_t bytes[EFI_VARIABLE_BYTES];
    char text[PATH_BYTES], path[PATH_BYTES];
    ssize_t n = efi_get(variables, "LoaderImageIdentifier", EFI_LOADER, bytes, sizeof bytes);
    if (n < 0 || !efi_text(text, sizeof text, bytes, (size_t)n))
        return SLOT_NONE;
    for (char *p = text; *p != '\0'; p++)
        if (*p == '\\')
            *p = '/';
    const char *name = text + strspn(text, "/");
    for (int i = 0; i < SLOT_COUNT; i++) {
        program_path(path, i);
        if (strcasecmp(path, name) == 0)
            return i;
    }
    return SLOT_NONE;
}

static void describe(char description[16], int slot)
{
    snprintf(description, 16, "v4box %c", slot_letter(slot));
}

/* The first of the BootOrder that is ours and lies where ours lie, before anything is mended. */
static int first_slot(const struct slots *s)
{
    uint16_t order[EFI_ORDER_MAX];
    uint8_t bytes[EFI_VARIABLE_BYTES];
    char name[9], description[16];
    size_t count = efi_order_get(s->variables, order);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "Boot%04X", order[i]);
        ssize_t n = efi_get(s->variables, name, EFI_GLOBAL, bytes, sizeof bytes);
        for (int slot = 0; n > 0 && slot < SLOT_COUNT; slot++) {
            describe(description, slot);
            if (efi_option_is(bytes, (size_t)n, description))
                return slot;
        }
    }
    return SLOT_NONE;
}

/* Firmware prunes and reorders entries: at each start they are what they should be. */
static bool keep_entries(struct slots *s)
{
    for (int i = 0; i < SLOT_COUNT; i++) {
        uint8_t option[EFI_VARIABLE_BYTES];
        char description[16], path[PATH_BYTES];
        describe(description, i);
        program_path(path, i);
        size_t n = efi_option_write(option, sizeof option, description, &s->esp, path);
        int entry = n == 0 ? -1 : efi_entry_keep(s->variables, description, option, n);
        if (entry < 0)
            return false;
        s->entry[i] = (uint16_t)entry;
    }
    return true;
}

/* The good slot first, then the other. */
static bool lead(const struct slots *s)
{
    const uint16_t order[SLOT_COUNT] = {s->entry[s->good], s->entry[1 - s->good]};
    return efi_order_lead(s->variables, order, SLOT_COUNT);
}

bool slots_open(struct slots *s, const char *variables, const char *esp_folder, const char *file,
                struct text *note)
{
    *s = (struct slots){.variables = variables, .file = file};
    s->known = read_partition(&s->esp, variables, esp_folder);
    if (!s->known)
        return false;
    if (!load(s))
        text_printf(note, "the record of starts was damaged and begins anew\n");
    slots_decide(s, loaded_slot(variables), first_slot(s));
    if (!save(s))
        text_printf(note, "starts can not be counted: %s\n", strerror(errno));
    if (!keep_entries(s) || !lead(s))
        text_printf(note, "the firmware takes no boot entry: %s\n", strerror(errno));
    return note->len == 0;
}

/* ---- what comes next --------------------------------------------------------------------------
 */

bool slots_confirm(struct slots *s)
{
    bool trial = s->state.pending == s->running;
    s->good = s->state.good = s->running;
    s->confirmed = true;
    s->state.tries = 0;
    if (trial) {
        snprintf(s->state.outcome, sizeof s->state.outcome, "%s is good", s->state.version);
        s->state.pending = SLOT_NONE;
    }
    bool saved = save(s);
    return lead(s) && saved;
}

bool slots_give_up(struct slots *s, const char *reason)
{
    if (s->state.pending == s->running)
        copy(s->state.outcome, sizeof s->state.outcome, reason);
    return save(s);
}

const char *slots_try(struct slots *s, int slot, const char *version)
{
    if (!s->known)
        return "the firmware did not start this system from a slot";
    if (slot < 0 || slot >= SLOT_COUNT || slot == s->running)
        return "that slot is not the other one";
    if (s->running != s->good)
        return "the running system is on trial itself";
    s->state.pending = slot;
    s->state.tries = 0;
    copy(s->state.version, sizeof s->state.version, version);
    s->state.outcome[0] = '\0';
    if (!save(s))
        return "the trial can not be recorded on the config partition";
    if (!efi_next_set(s->variables, s->entry[slot]))
        return "the firmware does not take BootNext";
    return NULL;
}

bool slots_forget_tries(struct slots *s)
{
    s->state.tries = 0;
    return save(s);
}

void slots_tell(const struct slots *s, const char *esp, const char *gpu_a, const char *gpu_b,
                struct text *t)
{
    keyfile_add(t, "esp", esp);
    keyfile_add(t, "gpu-a", gpu_a);
    keyfile_add(t, "gpu-b", gpu_b);
    add_slot(t, "running", s->running);
    add_slot(t, "good", s->good);
    keyfile_add(t, "confirmed", s->confirmed ? "yes" : "no");
    keyfile_add(t, "rescue", s->rescue ? "yes" : "no");
    add_slot(t, "pending", s->state.pending);
    keyfile_add(t, "outcome", s->state.outcome);
    keyfile_seal(t);
}
