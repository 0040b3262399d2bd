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
/* Bounds the tree: a value takes at most 300 bytes beside its text.  The V4 tokenizer.json has
 * 0.4 M, the header of a full checkpoint 0.6 M, a million messages 3 M. */
#define JSON_VALUES_MAX (4 << 20)

/* ---- chat ------------------------------------------------------------------------------------ */
/* A request file of `engine render`: as large as an HTTP body can be (api.md 1.1). */
#define REQUEST_FILE_BYTES_MAX (32 << 20)
/* api.md 1.2 */
#define STOP_STRINGS_MAX 16
/* Clients stop at words and tags; bounds the text held back. */
#define STOP_STRING_BYTES_MAX 4096
/* Tools of a request and bytes of their schemas (api.md 1.2); harnesses send 9 to 24, 20 to 63 KB.
 */
#define TOOLS_MAX       512
#define TOOLS_BYTES_MAX (1 << 20)
/* Name of a tool or of a parameter; MCP names are longer than OpenAI's 64 (api.md 1.2). */
#define TOOL_NAME_BYTES_MAX 128
/* Parameters of one call that the model writes; bounds the search for a name given twice. */
#define DSML_PARAMETERS_MAX 512

/* ---- the network ----------------------------------------------------------------------------- */
/* Tokens of one sequence between which its rings are written and read again: their slots, so the
 * state of every sequence, grow with it.  Every backend takes a step of so many. */
#define SPAN_TOKENS_MAX 256
/* The most tokens that any backend takes in one step (kernels/backend.h says what each does);
 * longer prompts are cut.  Of a GPU: at 1024 an expert of flash gets 24 tokens, so that reading its
 * weights is no longer what takes the time.  Bounds the scratch memory and how long a cancel waits.
 */
#define STEP_TOKENS_MAX 1024
/* Rows of logits that one step gives, or the head computes at once: 132 MB of flash's. */
#define LOGITS_ROWS_MAX 256
/* Spans of a step: one for each sequence, and one more for each SPAN_TOKENS_MAX tokens. */
#define STEP_SPANS_MAX (SPAN_TOKENS_MAX + STEP_TOKENS_MAX / SPAN_TOKENS_MAX)
/* Rows of a step that a GPU records, to run it again without the host's launches: with more the
 * kernels take longer than those. */
#define RECORDED_TOKENS_MAX 64
/* Recorded steps kept, each some MB: a few sets of sequences at a time, each with the four places
 * that a block of four tokens has. */
#define RECORDED_STEPS_MAX 32
/* A recorded step serves all positions up to the next multiple of this. */
#define RECORDED_REACH 1024

/* ---- HTTP ------------------------------------------------------------------------------------ */
/* One may read a large request while the other keeps the streams going. */
#define HTTP_THREADS 2
/* JSON at JSON_DEPTH_MAX and file buffers; musl's default of 128 KiB is too small. */
#define HTTP_STACK_BYTES (1 << 20)
/* Open at once; beyond it new ones wait in the backlog. */
#define HTTP_CONNECTIONS_MAX 256
/* A client uses 1 to 2 (api.md 1.1); behind QEMU's or a proxy's address many share one. */
#define HTTP_CONNECTIONS_PER_IP_MAX 64
/* Memory of a connection: bounds the request head, of which real clients send less than 2 KiB, and
 * one write of a stream. */
#define HTTP_CONNECTION_BYTES (64 * 1024)
/* Header lines of a request; real clients send about 20. */
#define HTTP_HEADERS_MAX 64
/* Nothing sent or received for so long on a connection that is not waiting for the model. */
#define HTTP_IDLE_S_MAX 30
/* From accept to the complete head: against heads that come a byte at a time. */
#define HTTP_HEADER_MS_MAX 10000
/* From the head to the complete body; 32 MiB at 5 Mbit/s. */
#define HTTP_BODY_MS_MAX 60000
/* Largest body (api.md 1.1), and the share of it that a context allows. */
#define HTTP_BODY_BYTES_MAX       (32 << 20)
#define HTTP_BODY_BYTES_FIXED     (1 << 20)
#define HTTP_BODY_BYTES_PER_TOKEN 8
/* All bodies that are being collected or rendered, together. */
#define HTTP_BODIES_BYTES_MAX (64 << 20)
/* How often deadlines and hang-ups are looked at: a cancel must come within a second. */
#define HTTP_TICK_MS 200
/* After an answer that came before the body was read, the rest of the body is thrown away for so
 * long: closing at once would reset the connection and may destroy the answer on its way. */
#define HTTP_LINGER_MS_MAX 3000
#define HTTP_LINGER_MAX    32
/* A clean stop waits so long for the streams to say that they end. */
#define HTTP_STOP_MS_MAX 5000
/* Names beside localhost and addresses that a Host header may carry. */
#define HTTP_NAMES_MAX 8
/* Users of --front: what fits every file system and archive. */
#define HTTP_UID_MAX 65535

/* ---- chat completions ------------------------------------------------------------------------ */
/* Between signs of life while the model reads the prompt: clients give up after 300 s of silence,
 * proxies after 30 to 60 (api.md 0, finding 2). */
#define KEEPALIVE_MS 10000
/* Largest --keepalive-ms, for boxes behind proxies that are more or less patient. */
#define KEEPALIVE_MS_MAX 240000
/* Silence of the Messages API that pings fill; then comes an event that Claude Code counts, which
 * gives up after 300 s without one. */
#define MESSAGES_SILENCE_MS 60000
/* api.md 2.2: comments keep a client waiting for ever, so waiting itself is bounded. */
#define QUEUE_WAIT_MS_MAX (10 * 60 * 1000)
#define ANSWER_MS_MAX     (60 * 60 * 1000)
/* Longest answer; what opencode and Claude Code ask for is 32000. */
#define ANSWER_TOKENS_MAX 32768
/* Answer when the client names no limit: a model that rambles must end some day. */
#define ANSWER_TOKENS_DEFAULT 4096
/* Entries of messages, of tool_calls in one message, of content parts in one message. */
#define MESSAGES_MAX      65536
#define TOOL_CALLS_MAX    512
#define CONTENT_PARTS_MAX 65536
/* Members of a request that are looked at for unknown ones, which are only counted; clients send 5
 * to 20. */
#define REQUEST_FIELDS_MAX 256
/* One delta of a call's arguments: an event stays within one write of a stream. */
#define TOOL_FRAGMENT_BYTES 2048
/* Answers kept for the turns to come, and their bytes: about 12 a token, so that one key's share is
 * 700,000 tokens, several sessions of the largest context that the box has memory for. */
#define TURNS_MAX           4096
#define TURNS_BYTES_MAX     (32 << 20)
#define TURNS_KEY_BYTES_MAX (8 << 20)
/* Bytes of a stream that are made ahead of what the socket takes. */
#define STREAM_AHEAD_BYTES 4096
/* Tokens of a timeline unless --context says otherwise: the embedded model finds needles in 32,768
 * tokens, and an answer of the usual limit (4,096) fits behind them.  Memory is touched as it
 * fills: about 0.5 KiB a token on that model, 2 KiB under `reference`. */
#define CONTEXT_DEFAULT 36864
/* Timelines unless --sessions says otherwise: a harness opens two at once (title and turn), and one
 * more client should not evict them. */
#define SESSIONS_DEFAULT 4
/* Waiting requests: at CPU speed the last of them waits for minutes. */
#define QUEUE_DEFAULT 16

/* ---- tokenizer ------------------------------------------------------------------------------- */
/* tokenizer.json of V4 has 6,367,146 bytes. */
#define TOKENIZER_FILE_BYTES_MAX (32 << 20)
/* Words, added tokens, merges, each; V4 has 128,000, 1,283 and 127,741. */
#define TOKENIZER_VOCAB_MAX 262144
/* One token; V4's longest word has 128 bytes, its longest added token 48. */
#define TOKEN_BYTES_MAX 1024
/* Text or ids of one call of the subcommands: 30 times the largest context. */
#define TOKENIZE_INPUT_BYTES_MAX (128 << 20)

/* ---- token masks ----------------------------------------------------------------------------- */
/* Containers open at once in sampled JSON: so that json_parse takes it. */
#define MASK_DEPTH_MAX JSON_DEPTH_MAX
/* Places of all schemas of one answer that are compiled: the 24 tools of a harness have 600. */
#define MASK_NODES_MAX 16384
/* Names and enum values of all schemas, and their bytes. */
#define MASK_STRINGS_MAX      32768
#define MASK_STRING_BYTES_MAX (1 << 20)
/* One name or enum value; positions in it are 16 bits wide. */
#define MASK_STRING_LEN_MAX 4096
/* Declared properties of one object: a bit each says which were written. */
#define MASK_PROPERTIES_MAX 128
/* Values of one enum; OpenAI takes 1000 in a schema. */
#define MASK_ENUM_MAX 4096
/* Comparisons for enums that hold at one place together: a hundredth of a second. */
#define MASK_ENUM_WORK_MAX (1 << 16)
/* Readings of a text that are followed at once (anyOf), and branches of one anyOf. */
#define MASK_THREADS_MAX 32
/* Schemas that hold together at one place ($ref, allOf, anyOf beside other keywords). */
#define MASK_MEMBERS_MAX 32
/* Steps of compiling one place: bounds anyOf inside of anyOf. */
#define MASK_BRANCHES_MAX 256
/* Keywords and list elements looked at in one schema, each time that they count: a $ref makes large
 * work of small text.  A harness's largest tool has 400. */
#define MASK_WORK_MAX (1 << 20)
/* Steps of error paths; each place adds about one. */
#define MASK_PATHS_MAX (4 * MASK_NODES_MAX)
/* Keys that no schema declares, in all objects that are open at once: each is remembered, so that
 * none comes twice. */
#define MASK_EXTRA_KEYS_MAX 512
/* White space in a row inside of JSON: an indentation of 4 at depth 15; without a bound a model can
 * fill its whole answer with it. */
#define MASK_SPACES_MAX 64
/* One number: two hundred bits; without a bound a model can write digits for ever. */
#define MASK_NUMBER_BYTES_MAX 64
/* Digits of an exponent: with them no number leaves the range of a double. */
#define MASK_EXPONENT_DIGITS_MAX 2
/* A number with a minimum or maximum is written in fixed point with so many digits behind the
 * point, and so many before it, so that the bounds hold exactly. */
#define MASK_FRACTION_DIGITS_MAX 9
#define MASK_WHOLE_DIGITS_MAX    19

/* ---- log ------------------------------------------------------------------------------------- */
/* One line, newline included: below PIPE_BUF, so lines of several threads never interleave. */
#define LOG_LINE_BYTES 512

/* ---- serving --------------------------------------------------------------------------------- */
/* Timelines in flight; each one reserves addresses for its whole context in float32.  Memory is
 * planned, and touched, in the bytes that the profile of its request leaves. */
#define SESSIONS_MAX 32
/* What they may take together: 1 TiB, the memory of the largest machines. */
#define STATE_MIB_MAX (1 << 20)
/* Requests that may wait: beyond it a client is better told to come back. */
#define QUEUE_MAX 1024
/* Steps of priority above and below the usual: interactive, usual and batch work, and room. */
#define PRIORITY_MAX 4
/* Requests that go past a waiting one until it counts as one step of priority more: however many
 * more important ones come, each request starts. */
#define PRIORITY_PATIENCE 8
/* Clients that are told longer give up instead of coming back (api.md 2). */
#define RETRY_AFTER_S_MAX 30
/* Ids that end an answer; the chat format has one (eos). */
#define STOP_IDS_MAX 8
/* Alternatives told with each token of an answer: OpenAI's limit of top_logprobs. */
#define LOGPROBS_TOP_MAX 20
/* Tokens and alternatives of one answer that are told: about 100 bytes each until the answer is
 * over, so that it ends with `length` before they fill the memory. */
#define LOGPROBS_ENTRIES_MAX (1 << 17)
/* Prompt tokens in a step that also decodes: bounds how much a long prompt slows an answer. */
#define STEP_PREFILL_MIXED_MAX 64
/* Tokens guessed ahead by the draft block, at most; the published checkpoints are trained for one,
 * and the further ones are guessed from what it has made of the ones before (model.md 2.8). */
#define DRAFT_DEPTH_MAX 3
/* Guesses of all timelines in a step: beyond it a step is bound by arithmetic on every machine, and
 * a wrong guess takes the place of somebody's token. */
#define DRAFT_STEP_MAX 16
/* A guess is made while it is right at least so often, in percent: wrong ones cost a token's
 * arithmetic (0.65 of a step on the CPU, make bench-serve) and bring nothing. */
#define DRAFT_RIGHT_MIN 60
/* Guesses that the share of right ones is taken over; short enough to follow a change of subject.
 */
#define DRAFT_MEMORY 16
/* Tokens after which a timeline that stopped guessing tries again: costs it at most 1 in 32. */
#define DRAFT_RETRY 32
/* The prefix cache unless told otherwise: of the embedded model, under a profile that packs its
 * entries, 132 ends of prefixes (0.5 MiB each) and the entries of 135,000 tokens, more than three
 * full contexts, in a box of 1 GiB. */
#define PREFIX_BYTES_DEFAULT (128 << 20)
/* Key of the file that it is kept in: XChaCha20-Poly1305. */
#define PREFIX_FILE_KEY_BYTES 32
/* Blocks or tails of it; bounds the tree beside the pieces (about 40 MiB). */
#define PREFIX_PIECES_MAX 65536
/* Stack of the engine and admin threads: musl's default of 128 KiB is too small for JSON at
 * JSON_DEPTH_MAX. */
#define SERVE_STACK_BYTES (1 << 20)

/* ---- precision profiles ---------------------------------------------------------------------- */
/* The built-in ones among them: an operator compares a handful, an audit a row each. */
#define PROFILES_MAX 36
/* Profiles, and states of those that were changed, with counts of their own in /metrics. */
#define METRICS_PROFILES_MAX 64
/* Switches that are remembered: some months of a box that is tuned. */
#define SWITCH_EVENTS_MAX 64
/* 32 own profiles of 31 rows with about 25 bytes, and events of 100 bytes: 32 KB. */
#define PROFILES_FILE_BYTES_MAX (64 * 1024)
/* Results of jobs that nobody has come for yet: one for each console. */
#define CONTROL_RESULTS_MAX 8
/* A trial: from long enough to look at one answer to a day. */
#define TRIAL_S_MIN 10
#define TRIAL_S_MAX 86400
/* What a proof says about one place: a sentence with two names and two numbers. */
#define PROOF_WHY_BYTES 80
/* The proof's own requests: a prompt longer than a step of the CPU, and not a multiple of any;
 * answers long enough that guesses of every depth are right and wrong in them.  A box that can not
 * answer all of them in two minutes is too busy to prove anything with it. */
#define PROOF_PROMPT_TOKENS (SPAN_TOKENS_MAX + 9)
#define PROOF_ANSWER_TOKENS 24
#define PROOF_SERVE_MS      120000
/* Doubling the routed factor must double a contribution, whatever the roundings: applied never or
 * twice it gives 1 or 4, and roundings to FP4 stay below a tenth. */
#define FACTOR_RATIO_ERROR_MAX 0.25
/* The text of a ranking: long enough that the embedded model's indexer chooses (above 256 tokens).
 */
#define RANK_PROMPT_MAX    320
#define RANK_ANSWER_TOKENS 48
/* Logits of both sides of a comparison; a vocabulary of 129,280 gets 211 prompt tokens. */
#define RANK_LOGITS_BYTES_MAX (256u << 20)
/* Tiers of risk (fidelity.md 8.5): mean KL in nats, and share of positions whose likeliest token
 * changes. */
#define RANK_STRICT_KL          5e-4
#define RANK_STRICT_TOP1_LOSS   0.01
#define RANK_BALANCED_KL        5e-3
#define RANK_BALANCED_TOP1_LOSS 0.035
#define RANK_FAST_KL            2e-2
#define RANK_FAST_TOP1_LOSS     0.06

/* ---- API keys -------------------------------------------------------------------------------- */
/* A box serves a team; bounds the file and the look-up. */
#define KEYS_MAX 256
/* A label for people. */
#define KEY_NAME_BYTES_MAX 64
/* Life of the key that the box tests itself with, which asks for one token: HEART_TOKEN_MS, and
 * more. */
#define KEY_PASS_MS 180000
/* KEYS_MAX lines of at most 253 bytes (139 and all limits), and room for comments. */
#define KEYS_FILE_BYTES_MAX (96 * 1024)
/* Answers without a valid key that an address gets a minute, until it is told to wait: a person who
 * tries, or a harness that repeats (Claude Code: for 45 s), not a program that hammers. */
#define KEY_FAILURES_PER_MIN 30
/* Addresses that are remembered for that; the one that fails least makes room. */
#define KEY_FAILURE_ADDRESSES 1024

/* ---- admin socket ---------------------------------------------------------------------------- */
/* The protocol's bound on one request line. */
#define ADMIN_REQUEST_BYTES_MAX (64 * 1024)
/* Words of one command. */
#define ADMIN_ARGS_MAX 16
/* One word: a key's name or id, a number. */
#define ADMIN_ARG_BYTES_MAX 256
/* Consoles at once (serial, some SSH); the others wait in the backlog. */
#define ADMIN_CLIENTS_MAX 8
/* From accept to the last byte of the answer, without the time of a job. */
#define ADMIN_WAIT_MS_MAX 2000
/* The same where a file follows the request: GOLDEN_BYTES_MAX over 2 Mbit/s. */
#define ADMIN_FILE_MS_MAX 35000
/* A ranking of the embedded model under QEMU without KVM takes most of this. */
#define ADMIN_JOB_MS_MAX  3600000
#define ADMIN_JOB_LOOK_MS 100 /* how often a job is looked at that somebody waits for */

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
/* Of a file of a model, which is checked by itself, sent again when it is wrong. */
#define LEAF_BYTES 1048576
/* A line for each: 512 GiB; the largest known model has 170 GB. */
#define LEAVES_MAX (1 << 19)
/* Threads that check a model while it loads: one hashes 0.2 to 0.4 GB/s, NVMe reads 7. */
#define LEAVES_THREADS_MAX 16

/* ---- the commands that look into the network ------------------------------------------------- */
/* A million ids of up to six digits with separators. */
#define IDS_FILE_BYTES_MAX (16 << 20)
/* `engine logits --positions`: more is a matter for several calls. */
#define PROBES_MAX 256

/* Pages of a timeline begin and end where the machine's own do, so that one that is free takes no
 * memory: in size a hundredth more for the published network (450 KB), 3 % for the embedded one. */
#define PAGE_ALIGN_BYTES 4096

/* ---- the CPU backend ------------------------------------------------------------------------- */
/* A thread has a slab of scratch memory; more cores than this share memory too far apart. */
#define CPU_THREADS_MAX 128
/* About 50 microseconds of `pause`: longer than the gap between two jobs of a step, shorter than a
 * scheduler's slice, so that an idle engine sleeps. */
#define CPU_SPINS_MAX 2000
/* Multiply-adds below which handing work to another thread costs more than it saves (a hand-over
 * is about a microsecond, in which a core does 30,000). */
#define CPU_WORK_MIN 32768
/* Index scores held at once (32 MiB of doubles): 16 tokens at a million positions. */
#define CPU_INDEX_SCORES_MAX (4 << 20)

/* ---- the worker ------------------------------------------------------------------------------ */
/* Places for rows of the precision table in a step; more need another version of the link. */
#define PRECISION_ROWS_MAX 64
/* Timelines of a worker, each at most once in a step: SESSIONS_MAX, those of a proof, and room. */
#define LINK_TIMELINES 64
/* Ranks that compute one network together: eight GPUs are the largest box. */
#define RANKS_MAX 8
/* How much of a GPU's memory weights may take where nobody says how many ranks there are; the rest
 * is for timelines, prefixes, scratch and recorded steps (108.5 GiB of 139 were taken with 129
 * sequences of 8,192 tokens beside 75.2 GiB of weights).  No more ranks than that takes: two cards
 * were slower than one for one sequence, and two groups serve twice as many. */
#define RANKS_FILL_PERCENT 75
/* Groups of ranks that one engine gives requests to: each GPU of the largest box by itself. */
#define GROUPS_MAX RANKS_MAX
/* Beginnings of prompts by which a request goes to the group that has computed them: of 32 tokens,
 * less than which costs no more than a step, 64 and so on to a million. */
#define GROUP_BEGINNING      32
#define GROUP_BEGINNINGS_MAX 16
/* Of so many beginnings the group is remembered (64 KiB): those of 250 conversations. */
#define GROUP_HOMES 4096
/* Prompt tokens that cost about what a request costs those beside it. */
#define GROUP_TOKENS_WORTH 1024
/* What a group that is lost has to do, in requests: more than any other. */
#define GROUP_LOST_LOAD (1 << 20)
/* Pools of pieces of a worker: of the prefix cache, its probe, an audit, and room. */
#define LINK_POOLS 4
/* Steps on their way: one runs, one waits. */
#define LINK_STEPS 2
/* Tokens of one timeline that are sampled in one step: one, and one behind each guess. */
#define PICKS_MAX  (1 + DRAFT_DEPTH_MAX)
#define LINK_PICKS (LINK_TIMELINES * PICKS_MAX)
/* Rows of logits have room for this; flash has 129,280. */
#define LINK_VOCAB_MAX 131072
/* What a step can bring along: the streams of SPAN_TOKENS_MAX rows of flash; a piece of it is
 * smaller (12 MB). */
#define LINK_GIVEN_FLOATS (SPAN_TOKENS_MAX * 4 * 4096)
/* The name of a field or of a configuration, with the NUL. */
#define LINK_FIELD_BYTES 32
/* The published checkpoint from a disk of 200 MB/s. */
#define WORKER_LOAD_SECONDS 900
/* A step of SPAN_TOKENS_MAX takes a second on two slow cores; one that takes this long hangs. */
#define WORKER_STEP_SECONDS 120
/* How soon a dead worker is noticed: a futex does not tell. */
#define WORKER_LOOK_MS 20
/* The same while nobody asks for anything. */
#define WORKER_IDLE_LOOK_MS 250
/* Between two starts of a worker, doubled by each start that did not last: the first is at once,
 * since loading takes long enough; a machine that is broken should not load for ever. */
#define WORKER_PAUSE_MS_MIN 250
#define WORKER_PAUSE_MS_MAX 30000
/* A worker that was up so long has lasted. */
#define WORKER_LASTED_MS 60000
/* Starts in a row that fail until those who wait are told: they may find another box. */
#define WORKER_STARTS_PATIENCE 3
/* Words of the record of GPUs (kernels/gauges.h), with the NUL: a bus id of NVML has 16 characters,
 * a name at most 64; a path and a reason. */
#define GAUGE_BUS_BYTES  24
#define GAUGE_NAME_BYTES 72
#define GAUGE_NOTE_BYTES 160
/* It is written in a microsecond, so the second look finds it whole. */
#define GAUGE_LOOKS 8
/* Between two looks of a worker at its GPUs: NVML takes about a millisecond for each. */
#define GAUGE_PERIOD_MS 5000
/* The engine copies it between two steps, once a second. */
#define GAUGE_COPY_MS 1000
/* A record that is older is told with its age: the driver hangs when a GPU has fallen off the bus.
 */
#define GAUGE_STALE_MS 30000

/* ---- temperatures ---------------------------------------------------------------------------- */
/* Between two looks at the processor's; heat moves in seconds. */
#define SENSORS_PERIOD_MS 5000
/* An alarm ends this far below, or it would come and go. */
#define ALARM_SLACK_CELSIUS 3
/* A name of a chip, a number: the kernel writes at most a line. */
#define SENSORS_LINE_BYTES 64
/* Of /sys/class/hwmon: chips, and temperatures of a chip; two processors of 128 cores have 130. */
#define SENSORS_CHIPS_MAX  64
#define SENSORS_INPUTS_MAX 160

/* ---- the audit ------------------------------------------------------------------------------- */
/* Halvings of [0, 1] until two neighbouring doubles are left. */
#define AUDIT_BISECTIONS 60
/* Tests corrected together (Holm): cells of a needle grid by length, depth and residue. */
#define AUDIT_TESTS_MAX 1024
/* A sequential test that has used this many times its expected number of items is undecided. */
#define AUDIT_SPRT_CUT 4
/* Resamples of a bootstrap: the 2.5 % tail then rests on 50 of them. */
#define AUDIT_BOOTSTRAPS 2000
/* A value to be remembered, with the NUL: three letters, a dash, four digits. */
#define AUDIT_VALUE_BYTES 9
/* Words that bring a text to an exact length: less than two of its sentences. */
#define AUDIT_PADS_MAX 40
/* What a conversation from outside must be answered, with the NUL: some sentences. */
#define AUDIT_EXPECTED_BYTES 1024
/* Shorter forms of it that a search tries: 20 exchanges, halves and quarters and one by one. */
#define AUDIT_SHORTENINGS_MAX 24
/* Share of its root mean square by which a layer's streams have surely departed. */
#define AUDIT_DEPARTED 1e-2
/* Facts on the edges of one text: 128 are all edges of 32,000 tokens in the largest steps. */
#define AUDIT_EDGES_MAX 128
/* Turns and decoys of one conversation: an agent's working day is shorter. */
#define AUDIT_TURNS_MAX 64
/* Turns of a history that is only rendered, and sentences of each user's: together more tokens than
 * the longest needle has (config/audit_gates.h), so that none is asked in a longer prompt. */
#define AUDIT_HISTORY_TURNS     224
#define AUDIT_HISTORY_SENTENCES 12
/* A report file: some hundred kilobytes with all grids. */
#define AUDIT_REPORT_BYTES_MAX (16 << 20)
/* Reports that a box keeps, in its 64 MiB for settings: three weeks of daily ones; and the largest,
 * which must fit an answer of the admin socket (`all` of 3h has 60 KB). */
#define AUDIT_KEPT_MAX       24
#define AUDIT_KEPT_BYTES_MAX (192 * 1024)
/* The flight recorder: requests that can still be pinned, an operator's minute on a busy box; those
 * that are; and the longest, 4 MiB of ids, so that all of them stay below 64 MiB. */
#define RECORDER_RECENT      8
#define RECORDER_PINS_MAX    4
#define RECORDING_TOKENS_MAX (1 << 20)
#define RECORDING_ID_BYTES   32 /* 24 hex digits of a request id, and room */
/* Of the model's time that an audit may take while requests run or wait, in percent. */
#define AUDIT_SHARE_PERCENT 10
/* How often an audit that holds back looks whether requests are still there. */
#define AUDIT_LOOK_MS 20
/* An audit that was interrupted goes on so often; then it may be what interrupts. */
#define AUDIT_STARTS_MAX 3
/* A network that was lost is looked at again so often: its worker reads gigabytes first. */
#define AUDIT_AGAIN_MS 500
/* How often the clock is held against the schedule: it may be set meanwhile. */
#define AUDIT_SCHEDULE_LOOK_S 20
/* Of an answer, its reasoning included. */
#define AUDIT_ANSWER_TOKENS 160
/* Positions compared at once: 64 rows of a large vocabulary are 33 MB. */
#define AUDIT_COMPARE_ROWS 64
/* Last tokens of a text that are decoded while logits are compared. */
#define AUDIT_DECODED 48
/* Golden files (engine/audit/golden.h): how many an audit takes, their texts, the likeliest ids of
 * a row, who made them, and their bytes: 2,048 rows of 64 ids have 4 MB, with blanks as some
 * programs write them half as much again. */
#define GOLDEN_FILES_MAX  4
#define GOLDEN_TOKENS_MAX 2048
#define GOLDEN_TOP_MAX    64
#define GOLDEN_MADE_BYTES 256
#define GOLDEN_BYTES_MAX  (8 << 20)
/* What a row's probabilities may miss of 1: six digits of 64 of them. */
#define GOLDEN_SUM_OFF 1e-4
/* Mass that is no tail but what rounding leaves. */
#define GOLDEN_TAIL_NOTHING 1e-7
/* Tokens of the CPU's network beside another that computes: the text of budget 30m. */
#define AUDIT_CPU_TOKENS 4352
/* Tokens of the text on which rows are ranked before a search. */
#define AUDIT_PRIOR_TOKENS 256
/* Such texts on which a row is held against its own budget: one of the 48 tokens that are decoded
 * of each tips now and then, 5.6e-4 nats of a mean, in two of four half of that. */
#define AUDIT_BUDGET_TEXTS 4
/* Items on which a search decides: one would do for a fault that always shows. */
#define AUDIT_FAILING_MAX 3
/* Share of runs in which a flaky fault shows: at 5 % a configuration is good after 135 runs. */
#define AUDIT_PERCENT_MIN 5
/* The search for a culprit: rows are bits of a word; 48 verdicts try 24 rows one at a time both
 * ways, and are two hours for a test of two minutes; more culprits than 8 are a broken build. */
#define ISOLATE_ROWS_MAX     64
#define ISOLATE_VERDICTS_MAX 48
#define ISOLATE_CULPRITS_MAX 8

#endif
