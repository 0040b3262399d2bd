/* Replay: one text brought into a timeline in every way that a conversation can, and where carried
 * state changes a bit. */
#include "engine/audit/report_fields.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Five blocks of 128 and a rest: every border lies inside, every length up to it is compared. */
#define REPLAY_TOKENS 643

/* Ways of one leg stand together.  Decoded: the last tokens are, by other kernels than those of a
 * prompt; each is compared with the cold way of its kind. */
static const struct {
    enum audit_way way;
    bool decoded;
} REPLAYS[] = {
    {WAY_COLD, false},    {WAY_ONES, false},   {WAY_ODD, false},     {WAY_EDGE, false},
    {WAY_STORED, false},  {WAY_STORED, true},  {WAY_COMPANY, false}, {WAY_COMPANY, true},
    {WAY_REWOUND, false}, {WAY_REWOUND, true}, {WAY_GUESSED, true},
};
#define REPLAYS_N ((int)(sizeof REPLAYS / sizeof *REPLAYS))

/* Positions at which each way gives other bits than one cold prompt, and the first of them. */
struct replayed {
    struct audit_item item; /* owns; empty: no text fits */
    int32_t n, differ[REPLAYS_N], first[REPLAYS_N], all;
    int dropped; /* ways for which no time was left */
};

static int32_t decode_from(const struct replayed *r, bool decoded)
{
    return decoded ? r->n - AUDIT_DECODED : r->n;
}

static void feed(const struct audit_run *run, const struct profile *profile,
                 const struct replayed *r, bool decoded, enum audit_way way, uint64_t *hashes,
                 double *rms)
{
    machine_rows(run->machine, r->item.ids.data, r->n, decode_from(r, decoded), profile, way,
                 hashes, rms);
}

static void count_differences(struct replayed *r, int replay, const uint64_t *cold,
                              const uint64_t *other)
{
    int32_t from = REPLAYS[replay].decoded ? decode_from(r, true) : 0;
    r->first[replay] = r->n;
    for (int32_t i = r->n - 1; i >= from; i--) {
        if (cold[i] == other[i])
            continue;
        r->differ[replay]++;
        r->all++;
        r->first[replay] = i;
    }
}

/* `enough`: one way that differs says enough.  @own audit_item_free of its item */
static struct replayed replay(const struct audit_run *run, const struct profile *profile,
                              bool enough)
{
    uint64_t cold[2][REPLAY_TOKENS], other[REPLAY_TOKENS];
    bool there[2] = {false, false};
    struct replayed out = {0};
    if (!audit_text_of(run, REPLAY_TOKENS, &out.item))
        return out;
    out.n = (int32_t)out.item.ids.len;
    for (int i = 0; i < REPLAYS_N && !audit_cancelled(run) && !(enough && out.all > 0); i++) {
        bool decoded = REPLAYS[i].decoded;
        if (run->until_ms != 0 && clock_ms() >= run->until_ms) {
            out.dropped = REPLAYS_N - i;
            break;
        }
        if (!there[decoded])
            feed(run, profile, &out, decoded, WAY_COLD, cold[decoded], NULL);
        there[decoded] = true;
        feed(run, profile, &out, decoded, REPLAYS[i].way, other, NULL);
        count_differences(&out, i, cold[decoded], other);
    }
    return out;
}

/* ---- where ----------------------------------------------------------------------------------- */

/* "stored prefix, decoded" */
static void replay_name(int replay, struct buf *out)
{
    buf_printf(out, "%s%s", audit_way_name(REPLAYS[replay].way),
               REPLAYS[replay].decoded ? ", decoded" : "");
}

static bool of_leg(int replay, const char *leg)
{
    return strcmp(audit_way_leg(REPLAYS[replay].way), leg) == 0;
}

/* The first layer whose streams this way changes, and where in it. */
static void put_layer(const struct audit_run *run, const struct profile *profile,
                      const struct replayed *r, int replay, struct json_object *place)
{
    int32_t layers = machine_config(run->machine)->num_hidden_layers, layer, at;
    double *cold = calloc((size_t)r->n * (size_t)layers, sizeof *cold);
    double *other = calloc((size_t)r->n * (size_t)layers, sizeof *other);
    ASSERT(cold != NULL && other != NULL);
    feed(run, profile, r, REPLAYS[replay].decoded, WAY_COLD, NULL, cold);
    feed(run, profile, r, REPLAYS[replay].decoded, REPLAYS[replay].way, NULL, other);
    if (locate_layer(cold, other, r->n, layers, 0, &layer, &at)) {
        json_set(place, "layer", json_object_new_int(layer));
        json_set(place, "position_in_layer", json_object_new_int(at));
    }
    free(cold);
    free(other);
}

/* What one leg does, from the first of its ways that differs on; NULL: it holds. */
static struct json_object *leg_json(const struct audit_run *run, const struct profile *profile,
                                    const struct replayed *r, int from)
{
    const char *leg = audit_way_leg(REPLAYS[from].way);
    struct json_object *out = json_object_new_object(), *ways = json_object_new_array();
    int first = -1;
    for (int i = from; i < REPLAYS_N && of_leg(i, leg); i++) {
        if (r->differ[i] == 0)
            continue;
        struct buf name = {0};
        replay_name(i, &name);
        json_object_array_add(ways, json_object_new_string(buf_cstr(&name)));
        buf_free(&name);
        first = first < 0 ? i : first;
    }
    json_set(out, "leg", json_object_new_string(leg));
    json_set(out, "ways", ways);
    if (first < 0) {
        json_object_put(out);
        return NULL;
    }
    json_set(out, "differ", json_object_new_int(r->differ[first]));
    json_set(out, "position", json_object_new_int(r->first[first]));
    put_layer(run, profile, r, first, out);
    return out;
}

static struct json_object *state_json(const struct audit_run *run, const struct profile *profile,
                                      const struct replayed *r)
{
    struct json_object *out = json_object_new_array();
    for (int i = 0; i < REPLAYS_N; i++) {
        struct json_object *leg = i > 0 && of_leg(i - 1, audit_way_leg(REPLAYS[i].way))
                                      ? NULL
                                      : leg_json(run, profile, r, i);
        if (leg != NULL)
            json_object_array_add(out, leg);
    }
    return out;
}

struct json_object *audit_replay_state(const struct audit_run *run, const struct profile *profile)
{
    struct replayed r = replay(run, profile, false);
    struct json_object *out = state_json(run, profile, &r);
    audit_item_free(&r.item);
    return out;
}

int audit_replay_failures(const struct audit_run *run, const struct profile *profile)
{
    struct replayed r = replay(run, profile, true);
    audit_item_free(&r.item);
    return r.all;
}

/* ---- the test -------------------------------------------------------------------------------- */

/* Positions that were compared, in all ways together. */
static int64_t compared(const struct replayed *r)
{
    int64_t out = 0;
    for (int i = 0; i < REPLAYS_N - r->dropped; i++)
        out += r->n - (REPLAYS[i].decoded ? decode_from(r, true) : 0);
    return r->n == 0 ? 0 : out;
}

struct json_object *test_replay(const struct audit_run *run, enum audit_verdict *verdict)
{
    struct replayed r = replay(run, run->profile, false);
    struct json_object *state = state_json(run, run->profile, &r);
    struct buf why = {0};
    buf_puts(&why, r.n == 0    ? "no text fits the context"
                   : r.all > 0 ? "differs: "
                               : "no way into a timeline changes a bit");
    report_put_state(state, &why);
    if (r.dropped > 0)
        buf_printf(&why, "; no time was left for %d of %d ways", r.dropped, REPLAYS_N);
    *verdict = r.all > 0                   ? VERDICT_FAIL
               : r.n == 0 || r.dropped > 0 ? VERDICT_UNDECIDED
                                           : VERDICT_PASS;
    int64_t n = compared(&r);
    struct json_object *out = result_new(audit_test_name(TEST_REPLAY), *verdict, buf_cstr(&why), n,
                                         "every logit of every position equal");
    result_estimate(out, n == 0 ? NAN : (double)r.all / (double)n,
                    stats_rate(r.all, n, AUDIT_CONFIDENCE));
    struct json_object *numbers = result_part(out, "numbers", false);
    if (r.dropped > 0)
        result_number(numbers, RESULT_DROPPED, r.dropped);
    for (int i = 0; i < REPLAYS_N - r.dropped; i++) {
        why.len = 0;
        replay_name(i, &why);
        result_number(numbers, buf_cstr(&why), r.differ[i]);
    }
    json_set(out, "state", state);
    buf_free(&why);
    audit_item_free(&r.item);
    return out;
}
