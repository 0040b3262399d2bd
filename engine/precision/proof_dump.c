/* A proof for people and for programs. */
#include "engine/base/json.h"
#include "engine/precision/proof.h"

#include <string.h>

const char *proof_state_name(enum proof_state state)
{
    static const char *const NAMES[PROOF_STATES] = {"none", "live", "unproven", "inert", "wrong"};
    return NAMES[state];
}

const char *proof_kind_name(int kind)
{
    return kind == KIND_BOX ? "box" : layer_kind_name((enum layer_kind)kind);
}

/* Calls `fn` for every cell in which a row acts, in the table's order. */
typedef void cell_fn(void *user, int row, int kind, enum leg leg, const struct proof_cell *cell);

static void cells_walk(const struct proof *p, int row, cell_fn *fn, void *user)
{
    for (int kind = 0; kind < PROOF_KINDS; kind++) {
        for (int leg = 0; leg < LEGS; leg++) {
            const struct proof_cell *cell = &p->cells[row][kind][leg];
            if (cell->state != PROOF_NONE)
                fn(user, row, kind, (enum leg)leg, cell);
        }
    }
}

static bool cell_bad(const struct proof_cell *cell)
{
    return cell->missing || cell->state >= PROOF_INERT;
}

static void dump_bad(void *user, int row, int kind, enum leg leg, const struct proof_cell *cell)
{
    if (cell_bad(cell))
        buf_printf(user, "  %-8s %s, %s layers, %s: %s\n", proof_state_name(cell->state),
                   PRECISION[row].name, proof_kind_name(kind), leg_name(leg), cell->why);
}

void proof_summary(const struct proof *p, struct buf *out)
{
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&p->profile, hash);
    if (!p->complete) {
        buf_printf(out, "%s (%s): the proof was not finished\n", p->profile.name, hash);
        return;
    }
    buf_printf(out, "%s (%s): %s in %.1f s of a core; %d live, %d unproven, %d inert, %d wrong\n",
               p->profile.name, hash, p->good ? "proven" : "NOT PROVEN", p->seconds,
               p->counts[PROOF_LIVE], p->counts[PROOF_UNPROVEN], p->counts[PROOF_INERT],
               p->counts[PROOF_WRONG]);
    for (int row = 0; row < PRECISION_ROWS; row++)
        cells_walk(p, row, dump_bad, out);
}

struct worst {
    int counts[PROOF_STATES];
    uint64_t rows;
    const char *why; /* of what is not live */
};

static void find_worst(void *user, int row, int kind, enum leg leg, const struct proof_cell *cell)
{
    struct worst *w = user;
    (void)row, (void)kind, (void)leg;
    w->counts[cell->state]++;
    w->rows += cell->rows;
    if (cell->state != PROOF_LIVE && w->why == NULL)
        w->why = cell->why;
}

void proof_text(const struct proof *p, struct buf *out)
{
    proof_summary(p, out);
    if (!p->complete)
        return;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        struct worst w = {0};
        cells_walk(p, row, find_worst, &w);
        enum proof_state state = PROOF_STATES - 1;
        while (state > PROOF_NONE && w.counts[state] == 0)
            state--;
        if (state == PROOF_NONE)
            continue;
        buf_printf(out, "%-14s %-13s %-9s %d of %d places", PRECISION[row].name,
                   profile_value_name(&p->profile, (enum precision_row)row),
                   proof_state_name(state), w.counts[PROOF_LIVE],
                   w.counts[PROOF_LIVE] + w.counts[PROOF_UNPROVEN] + w.counts[PROOF_INERT] +
                       w.counts[PROOF_WRONG]);
        if (state == PROOF_LIVE)
            buf_printf(out, ", %llu rows\n", (unsigned long long)w.rows);
        else
            buf_printf(out, ": %s\n", w.why);
    }
}

struct json {
    struct buf *out;
    bool more;
};

static void dump_cell(void *user, int row, int kind, enum leg leg, const struct proof_cell *cell)
{
    struct json *json = user;
    (void)row;
    buf_printf(json->out, "%s{\"kind\": \"%s\", \"leg\": \"%s\", \"state\": \"%s\", \"rows\": %llu",
               json->more ? ", " : "", proof_kind_name(kind), leg_name(leg),
               proof_state_name(cell->state), (unsigned long long)cell->rows);
    if (cell->why[0] != '\0') {
        buf_puts(json->out, ", \"why\": ");
        json_dump_string(json->out, cell->why, strlen(cell->why));
    }
    buf_puts(json->out, "}");
    json->more = true;
}

void proof_json(const struct proof *p, struct buf *out)
{
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&p->profile, hash);
    buf_printf(out,
               "{\"profile\": \"%s\", \"hash\": \"%s\", \"time\": %lld, \"seconds\": %.3f, "
               "\"complete\": %s, \"proven\": %s, \"rows\": [",
               p->profile.name, hash, (long long)p->time_s, p->seconds,
               p->complete ? "true" : "false", p->good ? "true" : "false");
    for (int row = 0; row < PRECISION_ROWS; row++) {
        struct json json = {out, false};
        buf_printf(out, "%s{\"row\": \"%s\", \"value\": \"%s\", \"places\": [",
                   row == 0 ? "" : ", ", PRECISION[row].name,
                   profile_value_name(&p->profile, (enum precision_row)row));
        cells_walk(p, row, dump_cell, &json);
        buf_puts(out, "]}");
    }
    buf_puts(out, "]}");
}
