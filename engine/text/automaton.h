/*
 * A pushdown automaton over bytes and the DSML mark: follows a text through a compiled grammar, as
 * JSON or as a block of tool calls (model.md 5.2).  No recursion; no allocation after the start.
 *
 *   thread   one reading of the text so far: its innermost frame, which leads to the ones around
 *            it.  anyOf makes several.
 *   pool     the frames around; never changed once they are there, so that threads share them and a
 *            trial (a walk over tokens) forgets what it added by setting n_pool back
 *
 * A thread exists only where it can be completed: every step looks whether the rest can still be
 * written (heights of the grammar, names and values that are left, numbers that still reach their
 * range).  So while there is a thread there is a next byte, unless the text may end here.
 */
#ifndef V4BOX_ENGINE_TEXT_AUTOMATON_H
#define V4BOX_ENGINE_TEXT_AUTOMATON_H

#include "engine/text/grammar.h"

/* Symbols above the bytes. */
#define AUTOMATON_MARK 256

/* Whose frames carry `object` stand first. */
enum automaton_state {
    STATE_OBJECT_FIRST, /* behind '{' */
    STATE_OBJECT_COLON, /* behind a key */
    STATE_OBJECT_NEXT,  /* behind a value */
    STATE_OBJECT_KEY,   /* behind ',' */
    STATE_CALL_CHOICE,  /* in a block of calls: one of several texts begins */
    STATE_CALL_TEXT,    /* inside of a fixed text */
    STATE_CALL_END,     /* behind the block */
    STATES_WITH_OBJECT,
    STATE_ARRAY_FIRST = STATES_WITH_OBJECT, /* behind '[' */
    STATE_ARRAY_NEXT,                       /* behind an item */
    STATE_VALUE,                            /* in front of a value */
    STATE_NUMBER,
    STATE_WORD,     /* true, false, null */
    STATE_WORD_SET, /* one of the words of a node */
    STATE_STRING,   /* a string or key, behind '"' */
    STATE_ESCAPE,   /* behind '\' */
    STATE_HEX,      /* inside of \u0000 */
    STATE_LOW,      /* between the halves of a surrogate pair */
    STATE_NAME,     /* the name of a tool or parameter, behind '"' */
    STATE_RAW,      /* the text of a string parameter */
    STATE_ROOT,     /* behind the whole JSON text */
    STATE_EXTRA,    /* no state: remembers a key that no schema declares */
    N_STATES,
};

enum automaton_flag {
    FLAG_KEY = 1,        /* a string is a key */
    FLAG_FREE = 2,       /* a string, name or key need not be one of the set */
    FLAG_SET = 4,        /* but there is a set */
    FLAG_TOOL = 8,       /* a name is that of a tool */
    FLAG_NO_STRING = 16, /* a value is no string, and nothing stands in front of it */
};

struct automaton_frame {
    int32_t parent; /* in the pool; -1: none */
    uint16_t node;
    uint16_t n_extras; /* keys remembered in this and all outer objects */
    uint16_t at;       /* bytes into a set's strings or a fixed text */
    uint8_t state, depth, flags;
    uint8_t spaces; /* white space in a row */
    uint8_t utf8;   /* what is missing of a character: see automaton_utf8 */
    uint8_t row;    /* CALL_CHOICE: site; CALL_TEXT, WORD: which text */
    union {
        struct {
            uint64_t seen[MASK_PROPERTIES_MAX / 64]; /* declared properties that were written */
            int32_t extras;                          /* list of EXTRA frames in the pool, or -1 */
            uint16_t key;                            /* node of the value to come */
            uint16_t calls;                          /* CALL states: calls begun */
        } object;
        struct {
            uint32_t count; /* items begun */
        } array;
        struct {
            uint64_t whole;
            uint32_t fraction;
            uint8_t phase, negative, bytes, digits, fraction_digits, exponent_digits;
        } number;
        struct {
            uint64_t hash;       /* of what was written: keys and names */
            uint32_t length;     /* code points */
            uint16_t lo, hi;     /* strings of the set that it may become */
            uint16_t unit, high; /* HEX: digits so far; first half of a surrogate pair */
            uint8_t digits;      /* HEX: how many; RAW: 1 behind "<", 2 behind "</" */
        } text;
    };
};

struct automaton {
    const struct grammar *grammar; /* borrows */
    int32_t calls_max;
    struct automaton_frame *pool; /* owns [pool_max] */
    int32_t n_pool, pool_max;
    int32_t *moves; /* owns [pool_max]: scratch of a compaction */
    struct automaton_frame threads[MASK_THREADS_MAX];
    int32_t n_threads;
    /* During a step: */
    struct automaton_frame *out; /* borrows [MASK_THREADS_MAX] */
    int32_t n_out;
    bool popped, retrying;
    struct automaton_frame retry; /* takes the same symbol again */
};

/**
 * An automaton without threads.  `ahead`: symbols that a trial goes beyond the last compaction.
 * @own automaton_free
 */
void automaton_init(struct automaton *a, const struct grammar *grammar, int32_t calls_max,
                    size_t ahead);
void automaton_free(struct automaton *a);

/** Forgets everything: no threads. */
void automaton_reset(struct automaton *a);
/** Adds a reading: a JSON text by `node`; a block of calls from its beginning, or from behind the
 *  first mark. */
void automaton_add_json(struct automaton *a, int32_t node);
void automaton_add_block(struct automaton *a, bool behind_mark);

/** Where `n` threads get by one symbol: fills out [MASK_THREADS_MAX].  The pool only grows. */
int32_t automaton_step(struct automaton *a, const struct automaton_frame *from, int32_t n,
                       unsigned symbol, struct automaton_frame *out);

/** Moves the threads by one symbol.  @return false: no reading is left */
bool automaton_push(struct automaton *a, unsigned symbol);
/** Drops frames of the pool that no thread needs; call it once a token. */
void automaton_compact(struct automaton *a);
/** Whether the text may end here. */
bool automaton_may_end(const struct automaton *a);

enum automaton_room_kind {
    ROOM_NONE,   /* not inside of free text */
    ROOM_STRING, /* of a JSON string */
    ROOM_RAW,    /* of a string parameter */
};
/** Whether any `*room` further characters keep this thread where it is: free text, between two
 *  characters.  Of a JSON string these are all that need no escape. */
enum automaton_room_kind automaton_room(const struct automaton *a,
                                        const struct automaton_frame *thread, uint32_t *room);

/** What is missing after one more byte of UTF-8 (0: nothing), or -1: ill-formed. */
int automaton_utf8(uint8_t missing, uint8_t byte);

#endif
