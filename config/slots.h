/*
 * The two slots of the system, updates and the health gate: names, paths and limits, each with its
 * reason.  No logic.
 */
#ifndef V4BOX_CONFIG_SLOTS_H
#define V4BOX_CONFIG_SLOTS_H

#include <stdint.h>

/* ---- the EFI partition ----------------------------------------------------------------------- */
#define SLOT_COUNT        2
#define SLOT_PROGRAM_PATH "EFI/v4box/%c.efi"     /* 'a', 'b': the whole system in one EFI program */
#define SLOT_HEADER_PATH  "EFI/v4box/%c.hdr"     /* the signed header that it came with */
#define SLOT_FALLBACK     "EFI/BOOT/BOOTX64.EFI" /* what firmware without entries starts */
#define SLOT_MOUNT        "/run/esp"             /* in a name space of its own, while it is used */

/* ---- variables of the firmware --------------------------------------------------------------- */
#define EFI_VARIABLES      "/sys/firmware/efi/efivars"
#define EFI_VARIABLE_BYTES 1024 /* ours take 106; longer ones are not ours */
#define EFI_SIGNED_BYTES   8192 /* of one signed variable: a list of one certificate takes 2 KB */
#define EFI_ORDER_MAX      64   /* boot entries; servers come with about ten */
#define EFI_SCAN_MAX       4096 /* variables looked at; servers have some hundreds */
#define EFI_FIRST_ENTRY    0x20 /* where our entries go: firmware counts its own from 0 */

/* ---- the health gate ------------------------------------------------------------------------- */
/* From the start of the services to the first token.  150 GB from one NVMe disk take 60 s, from a
   slow one ten times as long; an engine that ends by itself is noticed sooner, by its crashes. */
#define GATE_MS        900000
#define BOOT_TRIES_MAX 3 /* starts in a row that ended before the gate; then the box stays up */
/* In rescue, with nobody near, the box tries again by itself: a power grid may have caused it. */
#define RESCUE_MS 3600000

/* ---- the heartbeat --------------------------------------------------------------------------- */
#define HEART_PERIOD_MS    5000
#define HEART_ANSWER_MS    15000 /* one step of the engine under emulation takes below a second */
#define HEART_TOKEN_MS     120000
#define HEART_STALE_MS     90000 /* without a beat: the engine is frozen and the machine is reset */
#define HEART_ANSWER_BYTES 65536
#define HEART_FRONT_PATH   "/alive" /* of config/front.cfg */

/* ---- the hardware watchdog ------------------------------------------------------------------- */
#define WATCHDOG_DEVICE  "/dev/watchdog"
#define WATCHDOG_S       30   /* servers' chips allow at least 2 minutes, QEMU's i6300esb as well */
#define WATCHDOG_FEED_MS 5000 /* PID 1 is busy for at most a second at a time */
/* Of a boot: two payloads of 0.5 GB from a stick of 20 MB/s are 50 s, eight GPUs' driver some 30 s,
 * keys, disks and network 75 s. */
#define WATCHDOG_BOOT_MS 300000

/* ---- updates --------------------------------------------------------------------------------- */
#define UPDATE_SOCK      "/run/v4box/update.sock"
#define UPDATE_STATE     "/run/v4box/slots" /* what init tells the updater */
#define UPDATE_KEY       "/etc/update.pub"
#define UPDATE_BYTES_MAX (16 * 1024 * 1024) /* of one program; tools/uki.sh has the same limit */
/* Of a GPU payload with its hashes: libcuda, its compiler, firmware and modules take 260 MB, NCCL
   as much again; the partitions of config/disk.txt have this size. */
#define PAYLOAD_BYTES_MAX (UINT64_C(1024) * 1024 * 1024)
/* For all of it: 16 MB over 64 kbit/s take 34 minutes, 260 MB over 1 Mbit/s as long. */
#define UPDATE_MS        3600000
#define UPDATE_ANSWER_MS 120000 /* writing and reading back up to 280 MB; the firmware */
#define UPDATE_BOARD     "v4box-x86_64"
#define UPDATE_FILE      "v4box.update" /* of a USB stick */
#define FETCH_STALL_MS   30000          /* a server that says nothing for so long has gone */
#define FETCH_WHY_BYTES  128
#define FETCH_HEAD_BYTES 8192 /* of an answer: what common servers allow */
/* The public half of tests/data/update/development.key, which anybody has: a box that trusts it
   says so. */
#define UPDATE_KEY_PUBLISHED "42b656326e97149aa1c76539f5f98d547dc417d27b8308889dec02b951d67786"

#endif
