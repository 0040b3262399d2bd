/*
 * `profile ...`: the operator's side of precision profiles, a table of verbs.  What takes seconds
 * becomes a job, whose result is the answer.
 */
#include "engine/admin/call.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/precision/control.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool refuse(struct call *call, const struct error *err)
{
    buf_puts(&call->text, err->text);
    return false;
}

/* The profile of an argument.  @return false: there is none, said in the text */
static bool profile_of(struct call *call, const char *name, struct profile *out)
{
    if (store_find(call->scope->profiles, name, out))
        return true;
    buf_printf(&call->text, "no profile is named %s; `profile list` shows them", name);
    return false;
}

/* ---- looking -------------------------------------------------------------------------------- */

static bool run_list(struct call *call)
{
    struct profile list[PROFILES_MAX];
    struct control_status s;
    int n = store_list(call->scope->profiles, list);
    control_status_get(call->scope->control, &s);
    buf_printf(&call->data, "{\"serves\": \"%s\", \"profiles\": [", s.current.name);
    for (int i = 0; i < n; i++) {
        char hash[PROFILE_HASH_BYTES];
        profile_hash_text(&list[i], hash);
        bool own = profile_builtin(list[i].name) == NULL;
        buf_printf(&call->text, "%c %-31s %s  %s\n",
                   strcmp(list[i].name, s.current.name) == 0 ? '*' : ' ', list[i].name, hash,
                   own ? "own" : "built in");
        buf_printf(&call->data, "%s{\"name\": \"%s\", \"hash\": \"%s\", \"own\": %s}",
                   i == 0 ? "" : ", ", list[i].name, hash, own ? "true" : "false");
    }
    buf_puts(&call->data, "]}");
    return true;
}

static void dump_status(struct call *call, const struct control_status *s)
{
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&s->current, hash);
    buf_printf(&call->text, "%s (%s) serves, %s; before it %s\n", s->current.name, hash,
               s->proven          ? "proven"
               : s->proven_s != 0 ? "NOT PROVEN"
                                  : "not proven since the start",
               s->previous.name);
    if (s->phase == CONTROL_TRIAL)
        buf_printf(&call->text, "on trial: goes back in %lld s without `profile confirm`\n",
                   (long long)s->trial_s);
    if (s->job[0] != '\0')
        buf_printf(&call->text, "%s runs\n", s->job);
    if (s->alarm[0] != '\0')
        buf_printf(&call->text, "ALARM: a profile %s\n", s->alarm);
}

static bool run_show(struct call *call)
{
    struct profile p;
    struct control_status s;
    control_status_get(call->scope->control, &s);
    p = s.current;
    if (call->n_args == 2 && !profile_of(call, call->args[1], &p))
        return false;
    if (call->n_args == 1)
        dump_status(call, &s);
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&p, hash);
    buf_printf(&call->data, "{\"name\": \"%s\", \"hash\": \"%s\", \"values\": {", p.name, hash);
    for (int row = 0; row < PRECISION_ROWS; row++) {
        const struct precision_switch *r = &PRECISION[row];
        buf_printf(&call->text, "%-14s %-13s %s: %s\n", r->name, r->values[p.values[row]].name,
                   r->changes, r->values[p.values[row]].meaning);
        buf_printf(&call->data, "%s\"%s\": \"%s\"", row == 0 ? "" : ", ", r->name,
                   r->values[p.values[row]].name);
    }
    buf_puts(&call->data, "}}");
    return true;
}

static bool run_diff(struct call *call)
{
    struct profile a, b;
    if (!profile_of(call, call->args[1], &a) || !profile_of(call, call->args[2], &b))
        return false;
    list_begin(call, "rows");
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if (a.values[row] == b.values[row])
            continue;
        const char *left = profile_value_name(&a, (enum precision_row)row);
        const char *right = profile_value_name(&b, (enum precision_row)row);
        buf_printf(&call->text, "%-14s %-13s %s\n", PRECISION[row].name, left, right);
        list_next(call);
        buf_printf(&call->data, "\"row\": \"%s\", \"values\": [\"%s\", \"%s\"]}",
                   PRECISION[row].name, left, right);
    }
    list_end(call, "no difference\n");
    return true;
}

static bool run_history(struct call *call)
{
    struct switch_event events[SWITCH_EVENTS_MAX];
    int n = store_history(call->scope->profiles, events);
    list_begin(call, "events");
    for (int i = 0; i < n; i++) {
        char when[CALL_TIME_BYTES];
        list_next(call);
        buf_printf(&call->text, "%s  %-11s %s -> %s\n", call_time(events[i].time_s, when),
                   switch_kind_name(events[i].kind), events[i].from, events[i].to);
        buf_printf(&call->data,
                   "\"time\": %lld, \"kind\": \"%s\", \"from\": \"%s\", \"to\": \"%s\"}",
                   (long long)events[i].time_s, switch_kind_name(events[i].kind), events[i].from,
                   events[i].to);
    }
    list_end(call, "nothing was switched yet\n");
    return true;
}

/* ---- the operator's own --------------------------------------------------------------------- */

/* Answers with the profile as it is now. */
static bool changed(struct call *call, const char *name, enum status status,
                    const struct error *err)
{
    struct profile p;
    char hash[PROFILE_HASH_BYTES];
    if (status != OK)
        return refuse(call, err);
    if (!profile_of(call, name, &p))
        return false;
    profile_hash_text(&p, hash);
    buf_printf(&call->text, "%s (%s) is stored\n", p.name, hash);
    buf_printf(&call->data, "{\"name\": \"%s\", \"hash\": \"%s\"}", p.name, hash);
    log_line(LOG_LEVEL_INFO, "profile", "%s (%s) was stored", p.name, hash);
    return true;
}

static bool run_copy(struct call *call)
{
    struct error err;
    enum status status = store_copy(call->scope->profiles, call->args[1], call->args[2], &err);
    return changed(call, call->args[2], status, &err);
}

static bool run_row(struct call *call)
{
    struct error err;
    enum status status =
        store_row(call->scope->profiles, call->args[1], call->args[2], call->args[3], &err);
    return changed(call, call->args[1], status, &err);
}

static bool run_delete(struct call *call)
{
    struct error err;
    if (store_delete(call->scope->profiles, call->args[1], &err) != OK)
        return refuse(call, &err);
    buf_puts(&call->text, "deleted\n");
    buf_printf(&call->data, "{\"name\": \"%s\"}", call->args[1]); /* a valid name by now */
    log_line(LOG_LEVEL_INFO, "profile", "%s was deleted", call->args[1]);
    return true;
}

/* ---- switching ------------------------------------------------------------------------------ */

/* "90", "90s", "10m" or "2h".  @return seconds, or -1 */
static int32_t duration_parse(const char *text)
{
    static const struct {
        const char *unit;
        int32_t seconds;
    } UNITS[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5)
        return -1;
    for (size_t i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (strcmp(text + digits, UNITS[i].unit) == 0) {
            int64_t seconds = strtoll(text, NULL, 10) * UNITS[i].seconds;
            return seconds >= TRIAL_S_MIN && seconds <= TRIAL_S_MAX ? (int32_t)seconds : -1;
        }
    }
    return -1;
}

static bool run_set(struct call *call)
{
    struct error err;
    struct control_set set = {.name = call->args[1]};
    bool when = false;
    for (int i = 2; i < call->n_args; i++) {
        const char *arg = call->args[i];
        bool now = strcmp(arg, "--now") == 0, drain = strcmp(arg, "--drain") == 0;
        bool try = strcmp(arg, "--try") == 0 && set.try_s == 0 && i + 1 < call->n_args;
        if (try)
            set.try_s = duration_parse(call->args[++i]);
        if (set.try_s < 0) {
            buf_printf(&call->text, "--try: want a time from %ds to %dh, as in 90s, 10m, 2h",
                       TRIAL_S_MIN, TRIAL_S_MAX / 3600);
            return false;
        }
        if (!try && (when || !(now || drain))) {
            buf_puts(&call->text, "usage: profile set NAME [--drain | --now] [--try TIME]");
            return false;
        }
        when = when || now || drain;
        set.drain = set.drain || drain;
    }
    return control_set(call->scope->control, &set, &call->job, &err) == OK || refuse(call, &err);
}

static bool run_verify(struct call *call)
{
    struct error err;
    struct control_status s;
    control_status_get(call->scope->control, &s);
    const char *name = call->n_args == 2 ? call->args[1] : s.current.name;
    return control_verify(call->scope->control, name, &call->job, &err) == OK || refuse(call, &err);
}

static bool run_rank(struct call *call)
{
    struct error err;
    return control_rank(call->scope->control, &call->job, &err) == OK || refuse(call, &err);
}

/* Answers with what serves now. */
static bool serving(struct call *call, enum status status, const struct error *err)
{
    struct control_status s;
    if (status != OK)
        return refuse(call, err);
    control_status_get(call->scope->control, &s);
    dump_status(call, &s);
    buf_printf(&call->data, "{\"serves\": \"%s\"}", s.current.name);
    return true;
}

static bool run_confirm(struct call *call)
{
    struct error err;
    return serving(call, control_confirm(call->scope->control, &err), &err);
}

static bool run_rollback(struct call *call)
{
    struct error err;
    return serving(call, control_rollback(call->scope->control, &err), &err);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const struct {
    const char *verb, *args;
    int n_min, n_max; /* words behind the verb */
    bool (*run)(struct call *call);
} VERBS[] = {
    {"list", "", 0, 0, run_list},
    {"show", " [NAME]", 0, 1, run_show},
    {"diff", " NAME NAME", 2, 2, run_diff},
    {"set", " NAME [--drain | --now] [--try TIME]", 1, 4, run_set},
    {"confirm", "", 0, 0, run_confirm},
    {"rollback", "", 0, 0, run_rollback},
    {"verify", " [NAME]", 0, 1, run_verify},
    {"rank", "", 0, 0, run_rank},
    {"history", "", 0, 0, run_history},
    {"copy", " FROM NAME", 2, 2, run_copy},
    {"row", " NAME ROW VALUE", 3, 3, run_row},
    {"delete", " NAME", 1, 1, run_delete},
};

bool run_profile(struct call *call)
{
    const char *verb = call->n_args > 0 ? call->args[0] : "";
    for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
        int n = call->n_args - 1;
        if (strcmp(VERBS[i].verb, verb) == 0 && n >= VERBS[i].n_min && n <= VERBS[i].n_max)
            return VERBS[i].run(call);
    }
    buf_puts(&call->text, "usage: ");
    for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++)
        buf_printf(&call->text, "%sprofile %s%s", i == 0 ? "" : " | ", VERBS[i].verb,
                   VERBS[i].args);
    return false;
}
