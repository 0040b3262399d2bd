/*
 * Every limit of the box, with its reason.  No logic.  Each room adds its own group.
 */
#ifndef V4BOX_CONFIG_LIMITS_H
#define V4BOX_CONFIG_LIMITS_H

/* ---- errors --------------------------------------------------------------------------------- */
#define ERROR_TEXT_BYTES 512 /* one line of a terminal log, path and tensor name included */

/* ---- JSON ------------------------------------------------------------------------------------ */
#define JSON_DEPTH_MAX 64 /* api.md 1.1; no client measured sends more than 20 */

/* ---- the network ----------------------------------------------------------------------------- */
#define STEP_TOKENS_MAX 256 /* tokens one forward step takes; longer prompts are cut into steps.
                               Bounds the scratch memory and how long a cancel waits. */

#endif
