/*
 * What the booted box is made of: paths, users, and every limit of init and the console, each with
 * its reason.  No logic.
 */
#ifndef V4BOX_CONFIG_BOX_H
#define V4BOX_CONFIG_BOX_H

/* ---- paths ----------------------------------------------------------------------------------- */
#define BOX_RUN         "/run/v4box"
#define BOX_INIT_SOCK   "/run/v4box/init.sock"
#define BOX_ENGINE_SOCK "/run/v4box/engine.sock"
#define CLOCK_SOCK      "/run/clock.sock"
#define BOX_CLAIM_SOCK  "/run/claim.sock" /* of its user alone; gone once the box is claimed */
#define BOX_METRICS     "unix:/run/v4box/metrics.sock"
#define BOX_METRICS_NET "0.0.0.0:9464" /* where exporters of OpenTelemetry are scraped */
#define BOX_MODELS      "/models"
#define BOX_GPU         "/gpu" /* the payload of a system with a driver */
#define BOX_GPU_ROOT    "/etc/gpu.root"
#define BOX_GPU_MODULES "/gpu/modules/list"
#define BOX_GPU_WORKER  "/gpu/bin/worker"
#define BOX_GPUS_MAX    8           /* of a box */
#define BOX_ATTACHED    "/attached" /* models on another disk, read only */
#define BOX_MODEL_NAME  "demo"      /* that came with the box */
#define BOX_MODEL       BOX_MODELS "/" BOX_MODEL_NAME
#define BOX_MODULES     "/etc/modules.list" /* a path a line, dependencies first; from the build */
#define BOX_FW_CFG      "/sys/firmware/qemu_fw_cfg/by_name/opt/v4box"
#define BOX_SERIAL      "/dev/ttyS0"
#define BOX_INTERFACE   "eth0" /* the kernel's first; choosing among several needs a config disk */
#define BOX_API_SOCK    "/run/v4box/api.sock" /* the front's way to the engine; TLS is on 443 */
#define BOX_SSH_PORT    "22"

/* What outlives a reboot, when there is a disk; without one, a file system in memory lies here. */
#define BOX_LOG           "/log" /* the log of this and earlier starts, capped */
#define BOX_CONFIG        "/config"
#define BOX_CONFIG_ENGINE "/config/engine" /* the engine's own, to rename in */
#define BOX_KEYS          "/config/engine/keys"
#define BOX_PROFILES      "/config/engine/profiles"
#define BOX_AUDITS                                                                                 \
    "/config/engine/audits" /* its reports, the key of their signatures, a schedule */
#define BOX_ADMIN_HOME    "/config/admin"
#define BOX_ADMIN_SSH     "/config/admin/.ssh"
#define BOX_AUTHORIZED    "/config/admin/.ssh/authorized_keys"
#define BOX_HOST_KEY      "/config/ssh_host_key"
#define BOX_TLS           "/config/tls" /* the front's own */
#define BOX_SETTINGS      "/config/settings"
#define BOX_CHANGES       "/config/changes" /* who changed what */
#define BOX_STARTS        "/config/starts"  /* what init remembers of the last starts */
#define BOX_CONFIG_GOOD   "/config/good" /* copies of the files above, each found good at a boot */
#define BOX_CONFIG_FORMAT "/etc/config.fs" /* the empty file system, from the build */
#define BOX_STAGE         "/run/stage"     /* a partition is mounted here before it counts */

/* ---- users ----------------------------------------------------------------------------------- */
#define BOX_UID_ROOT 0
#define BOX_UID_ENGINE                                                                             \
    100 /* first free id of rootfs/etc/passwd; owns its sockets and the keys file */

#define BOX_UID_FRONT     101 /* the TLS front; alone reads the private key */
#define BOX_UID_KERNEL    102 /* reads the kernel's messages, and nothing else */
#define BOX_UID_CLAIM     103 /* who logs in without a key to claim a box that is nobody's */
#define BOX_UID_CLOCK     104 /* reads what time servers say, and may set the clock */
#define BOX_TEXT_OF(x)    #x
#define BOX_UID_FETCH     105              /* reads what a server sends as an update */
#define BOX_UID_TEXT(uid) BOX_TEXT_OF(uid) /* for an argument */

/* ---- the TLS front (config/front.cfg has its own limits) --------------------------------------
 */
#define FRONT_RUN       "/run/front"            /* of its user alone */
#define FRONT_ADMIN     "/run/front/admin.sock" /* HAProxy's own commands */
#define FRONT_HEART     "/run/front/heart.sock" /* a way through it without TLS, for the heart */
#define FRONT_ANSWER_MS 5000
#define TLS_SOCK        "/run/front/tls.sock"
#define TLS_SERVED      "/run/front/certificate.pem" /* what the front reads: key and chain */
#define TLS_STORED      "/config/tls/certificate.pem"
#define TLS_COPY        "/config/tls/good.pem" /* of TLS_STORED, when a boot found it good */
/* HAProxy takes a new one through a buffer of 16 KiB.  An RSA key of 4096 bits and a chain of four
   take 11,000. */
#define TLS_FILE_BYTES   12288
#define TLS_CHAIN_MAX    4    /* public chains have two or three */
#define TLS_SERIAL_BYTES 16   /* RFC 5280 allows 20 */
#define TLS_NAME_BYTES   253  /* RFC 1035 */
#define TLS_NAMES_BYTES  2048 /* CONTROL_ARGS_MAX of them */
#define TLS_REQUEST_MS   120000

/* ---- supervision ----------------------------------------------------------------------------- */
#define SERVICE_STABLE_MS      10000 /* alive this long = the start was good, failures are forgotten */
#define SERVICE_BACKOFF_MS     1000   /* first wait before a restart, doubled each time */
#define SERVICE_BACKOFF_MAX_MS 16000  /* longer waits only lengthen an outage */
#define SERVICE_CRASHES_MAX    5      /* failed starts in a row: 31 s of trying, then `failed` */
#define SERVICE_FAILED_MS      300000 /* a failed service is tried again: no operator may be near */
#define SERVICE_STOP_MS        5000   /* SIGTERM to SIGKILL; a decode step under TCG takes < 1 s */
#define SERVICE_SAID_BYTES     160    /* a path and a reason */
#define SERVICE_ARGS_MAX       28
#define SERVICE_PATHS_MAX      19 /* the engine has 9, two nodes, and BOX_GPUS_MAX cards */
#define SERVICES_MAX           20

/* ---- log of the services --------------------------------------------------------------------- */
#define LOG_RING_BYTES    (256 * 1024) /* about 3,000 lines; lives in PID 1, so it must stay small */
#define LOG_LINE_BYTES    512 /* longer lines are cut: a service can not fill the ring alone */
#define LOG_LINES_DEFAULT 40  /* what fits on a terminal */
#define LOG_LINES_MAX     2000

/* The kernel's levels go from 0, an emergency, to 7; 5 is a notice.  What is worth less fills a
   ring of this size at boot. */
#define KERNEL_LEVEL_MAX    5
#define KERNEL_RECORD_BYTES 8192 /* CONSOLE_EXT_LOG_MAX: the kernel hands over no longer one */

/* On the partition, which has 64 MiB: 44 at most, beside its journal and tables. */
#define KEEPLOG_FILE_BYTES (1024 * 1024)
#define KEEPLOG_FILES      43
#define KEEPLOG_TAIL_BYTES (256 * 1024) /* what is read of it at once, more than LOG_LINES_MAX */
#define KEEPLOG_PERIOD_MS  2000         /* lines that a power cut may take */
#define KEEPLOG_RETRY_MS   60000        /* after a refusal of the disk */

/* ---- log of changes ----------------------------------------------------------------------------
 */
#define CHANGES_LINE_BYTES 400 /* a time, who, and CONSOLE_LINE_BYTES */
/* About 2,000 changes, and as many before them; both together fit an answer. */
#define CHANGES_FILE_BYTES (128 * 1024)

/* ---- control sockets --------------------------------------------------------------------------
 */
#define CONTROL_REQUEST_BYTES (64 * 1024)  /* of the protocol; a request is one line */
#define CONTROL_ANSWER_BYTES  (512 * 1024) /* LOG_RING_BYTES with every second byte escaped */
#define CONTROL_CLIENTS_MAX   4            /* one console each on serial and SSH, and two spare */
#define CONTROL_CLIENT_MS     3000         /* a silent or slow client is dropped after this */
#define CONTROL_ARGS_MAX      15           /* as ADMIN_ARGS_MAX: an audit has seven flags */
#define CONTROL_WORD_BYTES    128          /* one command word; names of keys are shorter */
#define CONTROL_DEPTH_MAX     16           /* nesting of an answer's data */
#define SERVANT_STALL_MS      30000        /* a sender who says nothing for so long has gone */
#define SERVANT_TEXT_BYTES    (32 * 1024)  /* a chain of certificates is the longest answer */

/* ---- the clock ---------------------------------------------------------------------------------
 */
#define CLOCK_PORT         123
#define CLOCK_PAUSE_MS     4000  /* between questions as long as there is no good answer, doubled */
#define CLOCK_SETTLED_MS   64000 /* at most, and the least when there is one */
#define CLOCK_PAUSE_MAX_MS 1024000 /* a crystal drifts 0.1 s in it, at 100 ppm */
#define CLOCK_ANSWER_MS    5000
#define CLOCK_DELAY_MAX_US 1000000 /* half of it is the error of the offset */
#define CLOCK_GRAIN_US                                                                             \
    10000 /* a server whose clock ticks may seem to answer before it was asked                     \
           */
#define CLOCK_ERROR_MAX_US 1000000 /* of the server itself, as it says */
#define CLOCK_STEP_US      500000  /* less is made up slowly: 0.5 s in 1,000 */
#define CLOCK_STEP_MAX_US                                                                          \
    INT64_C(1000000000)                     /* of a clock that was right: 1,000 s, as ntpd has it */
#define CLOCK_FLOOR_S   INT64_C(1793491200) /* 2026-11-01: this was written later */
#define CLOCK_CEILING_S (CLOCK_FLOOR_S + INT64_C(30) * 365 * 86400)

/* ---- the log over the network ------------------------------------------------------------------
 */
#define SYSLOG_MESSAGE_BYTES                                                                       \
    (LOG_LINE_BYTES + 256) /* a head: a time, names of 63 and 48 characters */
#define SYSLOG_PERIOD_MS    1000
#define SYSLOG_RETRY_MAX_MS 60000 /* between attempts to reach somebody who is not there */
#define SYSLOG_SEND_MS      5000  /* a collector that takes nothing for so long is not there */
#define SYSLOG_IGNORED_MAX  16    /* pieces of what a collector says, at once */
#define HOST_NAME_BYTES     63

/* ---- the claim of a new box -------------------------------------------------------------------
 */
#define CLAIM_CODE_CHARS   12   /* 60 bits; typed by hand from a screen */
#define CLAIM_GROUP_CHARS  4    /* between hyphens */
#define CLAIM_GUESSES      5    /* slips of a hand */
#define CLAIM_GUESS_MS     2000 /* then one so often: all codes take 73 thousand million years */
#define KEYSTICK_FILE      "authorized_keys" /* on a stick with a FAT */
#define KEYSTICK_MS        300000 /* after power-on; later ones are for a box with an owner */
#define KEYSTICK_PERIOD_MS 2000
#define CLAIM_IDLE_TEXT    "30" /* seconds: a login that says nothing makes room for others */

/* ---- console ----------------------------------------------------------------------------------
 */
#define CONSOLE_LINE_BYTES   256 /* three command words of CONTROL_WORD_BYTES would not be typed */
#define CONSOLE_HISTORY      32  /* lines kept */
#define CONSOLE_COMMANDS_MAX 32
#define CONSOLE_PHRASES_MAX  160 /* that a tab completes: a command, and what may follow it */
#define CONSOLE_PHRASE_BYTES 32
#define CONSOLE_IDLE_S       900 /* without a key typed, the session ends; at most an hour */
#define CONSOLE_IDLE_S_MAX   3600
#define CONSOLE_WHO_BYTES    64      /* names of SSH keys */
#define CONSOLE_ANSWER_MS    15000   /* the engine answers between two steps, slow under TCG */
#define CONSOLE_JOB_MS       3600000 /* a ranking under TCG; an operator may end the console */
#define CONSOLE_CONNECT_MS   500     /* between two attempts of --wait */
#define CONSOLE_WAIT_S_MAX   600
#define CONSOLE_ANSWER_BYTES CONTROL_ANSWER_BYTES

/* ---- the live view, and what is sent to others -------------------------------------------------
 */
#define TOP_PERIOD_MS 1000
#define TOP_SAMPLES   48 /* a minute, nearly, within a line of 80 */

/* ---- GPUs on the PCI bus -----------------------------------------------------------------------
 */
#define PCI_BUS_BYTES   16   /* "10000:e1:00.0" and a NUL */
#define PCI_NAME_BYTES  64   /* of config/pci_gpus.def */
#define PCI_WORD_BYTES  32   /* of /sys: "32.0 GT/s PCIe", a version, a driver */
#define PCI_DEVICES_MAX 1024 /* a server of two sockets and eight GPUs has 300 */
#define GPU_TEXT_BYTES  4096 /* BOX_GPUS_MAX of three lines each, and as much as JSON */

/* ---- storage --------------------------------------------------------------------------------- */
#define STORAGE_WAIT_MS     15000 /* a disk behind a slow controller; QEMU's takes 50 ms */
#define STORAGE_POLL_MS     50
#define STORAGE_MOUNT_MS    60000 /* replaying 4 MiB, or 64 MiB written once at 2 MB/s */
#define STORAGE_NAME_BYTES  40    /* of devices, and of labels: GPT allows 36 characters */
#define STORAGE_DISKS_MAX   64
#define STORAGE_NOTES_BYTES 1024         /* what status says about them */
#define STORAGE_BLOCK_BYTES 4096         /* of the config file system */
#define STORAGE_BLOCKS_MAX  65536        /* 256 MiB: a template that asks for more is damaged */
#define STORED_BYTES_MAX    (256 * 1024) /* KEYS_FILE_BYTES_MAX, the largest file that is kept */

/* ---- models ---------------------------------------------------------------------------------- */
#define MODEL_SOCK        "/run/v4box/models.sock"
#define MODEL_NAME_CHARS  63            /* what a setting holds */
#define MODEL_BLOCK_BYTES 4096          /* of its file system, as tools/disk.sh makes it */
#define MODEL_SPARE_BYTES (1024 * 1024) /* of tables, beside what the files take */
#define MODEL_SYNC_LEAVES 64            /* what a power cut may take: 64 MiB */
#define MODEL_RUNS_MAX    64            /* of an answer: a sender asks again behind them */
#define MODEL_LIST_MAX    64            /* models of a folder that are listed */
#define MODEL_MS          86400000      /* of one request: 170 GB take 4 hours over 100 Mbit/s */
#define READBACK_THREADS_MAX                                                                       \
    16 /* 0.4 GB/s each without the processor's help; NVMe reads 7 GB/s                            \
        */

/* ---- boot and end ------------------------------------------------------------------------------
 */
#define BOOT_SITE_BYTES_MAX    (64 * 1024) /* keys, authorized_keys: hundreds of lines */
#define BOOT_NOTE_BYTES        512         /* of one step */
#define BOOT_CMDLINE_BYTES     4096        /* COMMAND_LINE_SIZE of x86 is 2048 */
#define BOOT_MODULES_MAX       256
#define BOOT_HOST_KEY_MS       30000 /* an ed25519 key takes 0.1 s under TCG; entropy may be late */
#define BOOT_HOST_KEY_BYTES    256   /* an ed25519 key takes 83 */
#define BOOT_INTERFACE_WAIT_MS 5000  /* a driver probes its card after its module is loaded */
#define END_SETTLE_MS          200   /* lets the answer to `poweroff` reach its reader */
#define NET_TRY_S_MAX          3600  /* of `net ... --try`: longer is no trial */
#define END_TRY_MS             5000 /* the updater passes the answer on, over SSH, before the restart */
#define GIVE_UP_MS             5000 /* after a start that is no good: the keeper keeps why, every 2 s */
#define SSH_KEY_LINE_BYTES     320 /* type, 68 characters, a role, and CONSOLE_WHO_BYTES twice */
#define PANIC_DELAY_S          10 /* long enough to read the console, short enough for a remote box */

#endif
