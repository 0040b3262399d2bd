/*
 * Which of the two systems runs, which one counts as good, and what comes next.  The firmware's
 * BootOrder is the truth: its first entry of ours is the good slot, BootNext tries the other one
 * once.  A small file on the config partition adds what the firmware can not say: how many starts
 * in a row went wrong, and how the last update ended.  Writes no system and parses no update.
 */
#ifndef V4BOX_INIT_SLOTS_H
#define V4BOX_INIT_SLOTS_H

#include "config/slots.h"
#include "init/efi.h"
#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOT_NONE          (-1)
#define SLOT_VERSION_BYTES 32
#define SLOT_OUTCOME_BYTES 128

/* What outlives a reboot beside the firmware's variables. */
struct slots_state {
    int good;                         /* slot, or SLOT_NONE: never heard of */
    int tries;                        /* starts in a row that no gate confirmed */
    int pending;                      /* the slot that an update put on trial, or SLOT_NONE */
    char version[SLOT_VERSION_BYTES]; /* of that update */
    char outcome[SLOT_OUTCOME_BYTES]; /* how the last trial ended; empty: there was none */
};

struct slots {
    bool known; /* this system was started by the firmware, from a slot of the box's disk */
    int running, good;
    bool rescue;    /* too many starts went wrong: network and SSH, no engine */
    bool confirmed; /* the gate was passed */
    struct slots_state state;
    struct efi_partition esp;
    uint16_t entry[SLOT_COUNT];   /* of the firmware */
    const char *variables, *file; /* borrows: the folder of variables, the path of the state */
};

/** The letter of a slot, for people and in paths. */
char slot_letter(int slot);

/** The state as its file, and back.  @err false: damaged; *state is then that of a new box */
bool slots_state_parse(struct slots_state *state, const char *bytes, size_t n);
void slots_state_write(struct text *t, const struct slots_state *state);

/**
 * What this start is.  `loaded` is the slot that the firmware's words name, `first` the first of
 * ours in its BootOrder; SLOT_NONE where they say nothing.  Fills running, good, rescue and the
 * state to be kept.
 */
void slots_decide(struct slots *s, int loaded, int first);

/**
 * Finds out what runs, mends the firmware's entries and counts this start.  `esp_uevent` is the
 * folder of the ESP in /sys/class/block.
 * @err false: no slots here (known is false), or something could not be written: see `note`
 */
bool slots_open(struct slots *s, const char *variables, const char *esp_folder, const char *file,
                struct text *note);

/** The gate was passed: the running slot is the good one from now on.  @err false with errno */
bool slots_confirm(struct slots *s);

/** The gate was not passed: keeps the reason for the next start.  @err false with errno */
bool slots_give_up(struct slots *s, const char *reason);

/** The next start tries `slot`.  @err NULL: done; else why not, for people */
const char *slots_try(struct slots *s, int slot, const char *version);

/** An operator's reboot is no failed start.  @err false with errno */
bool slots_forget_tries(struct slots *s);

/** What the updater has to know, as a file; with the devices of the EFI partition and of the two
 * for GPU payloads ("": none). */
void slots_tell(const struct slots *s, const char *esp, const char *gpu_a, const char *gpu_b,
                struct text *t);

#endif
