/*
 * What a request means when it says nothing, and the words it may say.  No logic.
 */
#ifndef V4BOX_CONFIG_DEFAULTS_H
#define V4BOX_CONFIG_DEFAULTS_H

/* Model card (generation_config.json) of every model here. */
#define TEMPERATURE_DEFAULT 1.0
#define TOP_P_DEFAULT       1.0

/* The profile that serves until an operator chooses one.  `balanced` is what tensor cores are fast
 * in; on the CPU its bf16 attention and tf32 mixing are imitated, so it is neither nearer (`engine
 * audit logits` on the embedded model, mean KL against `reference` [95 %]: official 4.8e-3 [4.3e-3,
 * 5.4e-3], balanced 5.3e-3 [5.1e-3, 5.6e-3], fast 2.7e-2, outside its gate) nor quicker (0.7 times
 * as fast, 1,500 tokens on one core with AVX-512). */
#define PROFILE_DEFAULT "official"

/* Messages of a prompt whose hashes stand in the usage of its answer, the newest, unless --receipts
 * says so: none, since they are 150 bytes each in every answer and POST /v1/receipt tells them all.
 */
#define RECEIPT_MESSAGES_DEFAULT 0

/* clang-format off */
/*
 * Thinking when a request does not ask: row of config/model.h, on or off.  Rows not named: off.
 *   flash  on, as the hosted API (api.md 2.1)
 *   demo   off: its README measures recall higher without (1.00 against .953)
 */
#define THINKING_DEFAULT_ROWS \
    {"flash", true},          \
    {"demo", false}

/*
 * reasoning_effort: word, thinking on or off, effort of the chat encoding.  Preview checkpoints have
 * a text for "max" alone; the others render nothing (model.md 5.4).  No automatic max (api.md 2.1).
 */
#define EFFORT_ROWS          \
    {"none", false, NULL},   \
    {"minimal", true, NULL}, \
    {"low", true, NULL},     \
    {"medium", true, "high"},\
    {"high", true, "high"},  \
    {"xhigh", true, "high"}, \
    {"max", true, "max"},    \
    {"ultra", true, "max"}

/* thinking.type: word, thinking on or off. */
#define THINKING_ROWS    \
    {"enabled", true},   \
    {"adaptive", true},  \
    {"disabled", false}

/*
 * Names that harnesses have built in for the hosted API, taken for the model that serves, and
 * thinking where the request says nothing about it.  Answers carry the model's own name.
 */
#define MODEL_ALIAS_ROWS       \
    {"deepseek-chat", false},  \
    {"deepseek-reasoner", true}
/* clang-format on */

#endif
