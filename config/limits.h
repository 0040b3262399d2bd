/*
 * Every limit of the box, with its reason.  No logic.  Each room adds its own group.
 */
#ifndef V4BOX_CONFIG_LIMITS_H
#define V4BOX_CONFIG_LIMITS_H

/* ---- errors --------------------------------------------------------------------------------- */
#define ERROR_TEXT_BYTES 512 /* one line of a terminal log, path and tensor name included */

/* ---- JSON ------------------------------------------------------------------------------------ */
/* api.md 1.1; no client measured sends more than 20 */
#define JSON_DEPTH_MAX 64
/* Bounds the tree: a value takes at most 250 bytes beside its text.  The V4 tokenizer.json has
 * 0.4 M, the header of a full checkpoint 0.6 M, a million messages 3 M. */
#define JSON_VALUES_MAX (4 << 20)

/* ---- chat ------------------------------------------------------------------------------------ */
/* A request file of `engine render`: as large as an HTTP body can be (api.md 1.1). */
#define REQUEST_FILE_BYTES_MAX (32 << 20)
/* api.md 1.2 */
#define STOP_STRINGS_MAX 16
/* Clients stop at words and tags; bounds the text held back. */
#define STOP_STRING_BYTES_MAX 4096

/* ---- the network ----------------------------------------------------------------------------- */
/* Tokens one forward step takes; longer prompts are cut into steps.  Bounds the scratch memory and
 * how long a cancel waits. */
#define STEP_TOKENS_MAX 256

/* ---- log ------------------------------------------------------------------------------------- */
/* One line, newline included: below PIPE_BUF, so lines of several threads never interleave. */
#define LOG_LINE_BYTES 512

/* ---- serving --------------------------------------------------------------------------------- */
/* Timelines in flight; each one reserves its whole context. */
#define SESSIONS_MAX 32
/* Requests that may wait: beyond it a client is better told to come back. */
#define QUEUE_MAX 1024
/* Ids that end an answer; the chat format has one (eos). */
#define STOP_IDS_MAX 8
/* Prompt tokens in a step that also decodes: bounds how much a long prompt slows a running answer. */
#define STEP_PREFILL_MIXED_MAX 64
/* Stack of the engine and admin threads: musl's default of 128 KiB is too small for JSON at
 * JSON_DEPTH_MAX. */
#define SERVE_STACK_BYTES (1 << 20)

/* ---- API keys -------------------------------------------------------------------------------- */
/* A box serves a team; bounds the file and the look-up. */
#define KEYS_MAX 256
/* A label for people. */
#define KEY_NAME_BYTES_MAX 64
/* KEYS_MAX lines of at most 139 bytes, and room for comments. */
#define KEYS_FILE_BYTES_MAX (64 * 1024)

/* ---- admin socket ---------------------------------------------------------------------------- */
/* The protocol's bound on one request line. */
#define ADMIN_REQUEST_BYTES_MAX (64 * 1024)
/* Words of one command. */
#define ADMIN_ARGS_MAX 16
/* One word: a key's name or id, a number. */
#define ADMIN_ARG_BYTES_MAX 256
/* Consoles at once (serial, some SSH); the others wait in the backlog. */
#define ADMIN_CLIENTS_MAX 8
/* From accept to the last byte of the answer. */
#define ADMIN_WAIT_MS_MAX 2000

/* ---- checkpoints ----------------------------------------------------------------------------- */
/* The published one has 10 MB of headers in 46 shards; as one file it is one header. */
#define SAFETENSORS_HEADER_BYTES_MAX (16 << 20)
/* 69,187 names and shard names are 7 MB. */
#define CHECKPOINT_INDEX_BYTES_MAX (16 << 20)
/* The published one has 2 KB. */
#define CHECKPOINT_CONFIG_BYTES_MAX (64 * 1024)
/* Published: 46, or 48 with the larger draft. */
#define CHECKPOINT_SHARDS_MAX 256
/* The longest known name has 43; with the NUL. */
#define TENSOR_NAME_BYTES 128
/* A field name of config.json, with the NUL. */
#define CONFIG_NAME_BYTES 64
/* A file of a checkpoint folder, with the NUL. */
#define CHECKPOINT_FILE_NAME_BYTES 128
/* Up to here every stored value is checked at each opening (a second on one slow core); beyond it,
 * only what could index memory, and `engine verify` checks the rest. */
#define CHECKPOINT_VALUES_AT_OPEN_BYTES_MAX (256 << 20)
/* One line for each file of a folder. */
#define MANIFEST_BYTES_MAX (128 * 1024)
#define MANIFEST_FILES_MAX 512

#endif
