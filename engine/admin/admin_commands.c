/* The engine's admin commands: a table of {name, arguments, help, handler} and the frame around it.
 */
#include "engine/admin/admin_commands.h"

#include "config/version.h"
#include "engine/admin/call.h"
#include "engine/base/json.h"
#include "engine/base/log.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *call_time(int64_t seconds, char out[CALL_TIME_BYTES])
{
    struct tm tm;
    time_t when = (time_t)seconds;
    gmtime_r(&when, &tm);
    strftime(out, CALL_TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &tm);
    return out;
}

void list_begin(struct call *call, const char *name)
{
    buf_printf(&call->data, "{\"%s\": [", name);
    call->listed = 0;
}

void list_next(struct call *call)
{
    buf_puts(&call->data, call->listed++ == 0 ? "{" : ", {");
}

void list_end(struct call *call, const char *none)
{
    buf_puts(&call->data, "]}");
    if (call->listed == 0)
        buf_puts(&call->text, none);
}

/* ---- status --------------------------------------------------------------------------------- */

/* Resident memory of this process, 0 when the system does not say. */
static unsigned long long resident_bytes(void)
{
    unsigned long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static void member_string(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "\"%s\": ", name);
    json_dump_string(out, value, strlen(value));
    buf_puts(out, ", ");
}

/* Who computes, and how that fares. */
static void say_worker(const struct engine_stats *stats, char *out, size_t cap)
{
    if (stats->worker == 0 && !stats->lost)
        snprintf(out, cap, "none, the engine computes");
    else
        snprintf(out, cap, "%s, process %d, lost %llu times",
                 stats->lost ? "LOST, starts again" : "runs", (int)stats->worker,
                 (unsigned long long)stats->losses);
}

/* What the newest audit that came to its end says, and whether one runs. */
static void say_audit(struct auditor *auditor, char *out, size_t cap)
{
    struct auditor_status s;
    char when[CALL_TIME_BYTES];
    if (auditor == NULL) {
        snprintf(out, cap, "no place for reports");
        return;
    }
    auditor_status_get(auditor, &s);
    if (s.last.id == 0)
        snprintf(out, cap, "none yet%s", s.id != 0 ? "; one runs" : "");
    else
        snprintf(out, cap, "%s: %s of %s, %s%s", audit_verdict_name(s.last.verdict), s.last.what,
                 s.last.profile, call_time(s.last.time_s, when), s.id != 0 ? "; one runs" : "");
}

/* "cpu 54 C, gpu 91 C TOO HOT" */
static void say_heat(const struct sensors_view *view, char *out, size_t cap)
{
    size_t n = 0;
    snprintf(out, cap, "no sensor tells one");
    for (int i = 0; i < SENSORS; i++) {
        if (view->celsius[i] != GAUGE_UNKNOWN && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s %d C%s", n > 0 ? ", " : "",
                                  sensor_name((enum sensor)i), view->celsius[i],
                                  view->alarm[i] ? " TOO HOT" : "");
    }
}

/* For who draws it; what is not known is not there. */
static void dump_heat(const struct sensors_view *view, struct buf *data)
{
    for (int i = 0; i < SENSORS; i++) {
        if (view->celsius[i] != GAUGE_UNKNOWN)
            buf_printf(data, ", \"%s_celsius\": %d", sensor_name((enum sensor)i), view->celsius[i]);
    }
}

static bool run_status(struct call *call)
{
    const struct admin_scope *scope = call->scope;
    struct engine_stats stats;
    struct turns_stats turns;
    struct control_status profile;
    struct sensors_view heat;
    char hash[PROFILE_HASH_BYTES], worker[CALL_SAID_BYTES], audit[CALL_SAID_BYTES];
    char hot[CALL_SAID_BYTES];
    control_status_get(scope->control, &profile);
    profile_hash_text(&profile.current, hash);
    engine_stats_get(scope->engine, &stats);
    turns_stats_get(scope->turns, &turns);
    say_worker(&stats, worker, sizeof worker);
    say_audit(scope->auditor, audit, sizeof audit);
    sensors_get(scope->sensors, &heat);
    say_heat(&heat, hot, sizeof hot);
    const struct {
        const char *name;
        unsigned long long value;
    } NUMBERS[] = {
        {"context_max", (unsigned long long)engine_context_max(scope->engine)},
        {"running", (unsigned long long)stats.running},
        {"waiting", (unsigned long long)stats.waiting},
        {"requests", stats.requests},
        {"prompt_tokens", stats.prompt_tokens},
        {"reused_tokens", stats.reused_tokens},
        {"answer_tokens", stats.answer_tokens},
        {"steps", stats.steps},
        {"prefix_blocks", (unsigned long long)stats.prefix_blocks},
        {"prefix_blocks_max", (unsigned long long)stats.prefix_blocks_max},
        {"prefix_tails", (unsigned long long)stats.prefix_tails},
        {"prefix_evicted", stats.prefix_evicted},
        {"prefix_bytes", stats.prefix_bytes},
        {"prefix_bytes_max", stats.prefix_bytes_max},
        {"session_bytes", stats.session_bytes},
        {"state_bytes", stats.state_bytes},
        {"state_bytes_max", stats.state_bytes_max},
        {"state_pages_own", (unsigned long long)stats.state_pages_own},
        {"state_pages_shared", (unsigned long long)stats.state_pages_shared},
        {"state_pages_free", (unsigned long long)stats.state_pages_free},
        {"drafts", stats.drafts},
        {"drafts_right", stats.drafts_right},
        {"turns_kept", (unsigned long long)turns.kept},
        {"turns_bytes", (unsigned long long)turns.bytes},
        {"rss_bytes", resident_bytes()},
        {"uptime_seconds", (unsigned long long)call->uptime_s},
    };
    const struct {
        const char *name, *value;
    } NAMES[] = {
        {"version", V4BOX_VERSION},
        {"model", scope->model},
        {"isa", scope->isa},
        {"profile", profile.current.name},
        {"profile_hash", hash},
        {"profile_proof", profile.proven          ? "proven"
                          : profile.proven_s != 0 ? "NOT PROVEN"
                                                  : "none since the start"},
        {"profile_alarm", profile.alarm},
        {"worker", worker},
        {"audit", audit},
        {"temperatures", hot},
        {"listening", scope->listening},
    };
    buf_puts(&call->data, "{");
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        member_string(&call->data, NAMES[i].name, NAMES[i].value);
        buf_printf(&call->text, "%-15s %s\n", NAMES[i].name, NAMES[i].value);
    }
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        buf_printf(&call->data, "%s\"%s\": %llu", i == 0 ? "" : ", ", NUMBERS[i].name,
                   NUMBERS[i].value);
        buf_printf(&call->text, "%-15s %llu\n", NUMBERS[i].name, NUMBERS[i].value);
    }
    dump_heat(&heat, &call->data);
    buf_puts(&call->data, "}");
    return true;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* A key as it is listed: "id", "name", LIMIT: VALUE ...} */
static void dump_key(struct call *call, const struct key *key)
{
    struct buf value = {0};
    buf_printf(&call->text, "%s  %s", key->id, key->name);
    key_limits_print(&key->limits, &call->text);
    buf_puts(&call->text, "\n");
    buf_printf(&call->data, "\"id\": \"%s\", \"name\": ", key->id);
    json_dump_string(&call->data, key->name, strlen(key->name)); /* plain ASCII, quotes perhaps */
    for (int i = 0; i < KEY_LIMITS; i++) {
        if (key->limits.values[i] == 0)
            continue;
        value.len = 0;
        key_limit_print((enum key_limit)i, key->limits.values[i], &value);
        buf_printf(&call->data, ", \"%s\": \"%s\"", key_limit_word((enum key_limit)i),
                   buf_cstr(&value));
    }
    buf_puts(&call->data, "}");
    buf_free(&value);
}

static bool run_keys_list(struct call *call)
{
    struct key list[KEYS_MAX];
    int n = keys_list(call->scope->keys, list);
    list_begin(call, "keys");
    for (int i = 0; i < n; i++) {
        list_next(call);
        dump_key(call, &list[i]);
    }
    list_end(call, "no keys: the API is closed\n");
    return true;
}

/* What limits there are, for who named none. */
static void help_limits(struct call *call)
{
    buf_puts(&call->text, "; limits are:");
    for (int i = 0; i < KEY_LIMITS; i++)
        buf_printf(&call->text, "\n  %-11s %s", key_limit_word((enum key_limit)i),
                   key_limit_help((enum key_limit)i));
}

static bool set_limit(struct call *call, const char *word, const char *value)
{
    struct error err;
    const char *id = call->args[1];
    if (keys_limit(call->scope->keys, id, word, value, &err) != OK) {
        buf_puts(&call->text, err.text);
        if (key_limit_find(word, strlen(word)) < 0)
            help_limits(call);
        return false;
    }
    buf_printf(&call->text, "%s %s\n", word, value == NULL ? "has no limit" : value);
    buf_printf(&call->data, "{\"id\": \"%s\"}", id); /* 8 base62 characters by now */
    log_line(LOG_LEVEL_INFO, "admin", "key %s %s=%s", id, word, value == NULL ? "none" : value);
    return true;
}

static bool run_keys_limit(struct call *call)
{
    const char *value = call->args[3];
    return set_limit(call, call->args[2], strcmp(value, "none") == 0 ? NULL : value);
}

static bool run_keys_disable(struct call *call)
{
    return set_limit(call, key_limit_word(KEY_DISABLED), "yes");
}

static bool run_keys_enable(struct call *call)
{
    return set_limit(call, key_limit_word(KEY_DISABLED), NULL);
}

static bool run_keys_expire(struct call *call)
{
    const char *value = call->args[2];
    return set_limit(call, key_limit_word(KEY_EXPIRES), strcmp(value, "never") == 0 ? NULL : value);
}

static bool run_keys_create(struct call *call)
{
    struct key key;
    char secret[KEY_SECRET_CHARS + 1];
    struct error err;
    if (keys_create(call->scope->keys, call->args[1], &key, secret, &err) != OK) {
        buf_puts(&call->text, err.text);
        return false;
    }
    buf_printf(&call->text, "%s\nid %s, name %s; the key is shown only this once\n", secret, key.id,
               key.name);
    buf_printf(&call->data, "{\"id\": \"%s\", \"secret\": \"%s\", \"name\": ", key.id, secret);
    json_dump_string(&call->data, key.name, strlen(key.name));
    buf_puts(&call->data, "}");
    sodium_memzero(secret, sizeof secret);
    log_line(LOG_LEVEL_INFO, "admin", "key %s created", key.id);
    return true;
}

/* For the box's own test of itself. */
static bool run_keys_pass(struct call *call)
{
    char secret[KEY_SECRET_CHARS + 1];
    keys_pass(call->scope->keys, secret);
    buf_printf(&call->text, "%s\n", secret);
    buf_printf(&call->data, "{\"secret\": \"%s\"}", secret);
    sodium_memzero(secret, sizeof secret);
    return true;
}

static bool run_keys_delete(struct call *call)
{
    struct error err;
    if (keys_delete(call->scope->keys, call->args[1], &err) != OK) {
        buf_puts(&call->text, err.text);
        return false;
    }
    buf_puts(&call->text, "deleted\n");
    buf_printf(&call->data, "{\"id\": \"%s\"}", call->args[1]); /* 8 base62 characters by now */
    log_line(LOG_LEVEL_INFO, "admin", "key %s deleted", call->args[1]);
    return true;
}

/* ---- prefixes ------------------------------------------------------------------------------- */

static bool run_prefixes_status(struct call *call)
{
    struct engine_stats s;
    char when[CALL_TIME_BYTES];
    engine_stats_get(call->scope->engine, &s);
    buf_printf(&call->text, "%d of %d blocks and %d of %d ends of prefixes are held\n",
               (int)s.prefix_blocks, (int)s.prefix_blocks_max, (int)s.prefix_tails,
               (int)s.prefix_tails_max);
    buf_printf(&call->text, "%llu made room for others\n", (unsigned long long)s.prefix_evicted);
    if (!s.prefix_file)
        buf_puts(&call->text, "they end with the engine: no file was named at its start\n");
    else if (s.prefix_saved_s == 0)
        buf_puts(&call->text, "not saved since the start\n");
    else
        buf_printf(&call->text, "%d blocks were saved on %s\n", (int)s.prefix_saved_blocks,
                   call_time(s.prefix_saved_s, when));
    buf_printf(&call->data,
               "{\"blocks\": %d, \"blocks_max\": %d, \"ends\": %d, \"ends_max\": %d, "
               "\"evicted\": %llu, \"file\": %s, \"saved_blocks\": %d, \"saved_s\": %lld}",
               (int)s.prefix_blocks, (int)s.prefix_blocks_max, (int)s.prefix_tails,
               (int)s.prefix_tails_max, (unsigned long long)s.prefix_evicted,
               s.prefix_file ? "true" : "false", (int)s.prefix_saved_blocks,
               (long long)s.prefix_saved_s);
    return true;
}

/* A job: a hundred megabytes are sealed and written, and `status` is asked for meanwhile. */
static bool run_prefixes_save(struct call *call)
{
    struct error err;
    if (control_save(call->scope->control, &call->job, &err) == OK)
        return true;
    buf_puts(&call->text, err.text);
    return false;
}

/* ---- metrics -------------------------------------------------------------------------------- */

/* The page is the text: a scraper that comes over SSH takes it as it is. */
static bool run_metrics(struct call *call)
{
    call->scope->metrics(call->scope->metrics_user, &call->text);
    buf_puts(&call->data, "{}");
    return true;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* A row matches by command and first argument (NULL: none is looked at). */
static const struct {
    const char *command, *verb, *help;
    int n_args; /* -1: any number */
    bool (*run)(struct call *call);
} COMMANDS[] = {
    {"status", NULL, "status", 0, run_status},
    {"keys", "list", "keys list", 1, run_keys_list},
    {"keys", "create", "keys create NAME", 2, run_keys_create},
    {"keys", "limit", "keys limit ID LIMIT VALUE|none", 4, run_keys_limit},
    {"keys", "disable", "keys disable ID", 2, run_keys_disable},
    {"keys", "enable", "keys enable ID", 2, run_keys_enable},
    {"keys", "expire", "keys expire ID YYYY-MM-DD|never", 3, run_keys_expire},
    {"keys", "pass", "keys pass", 1, run_keys_pass},
    {"keys", "delete", "keys delete ID", 2, run_keys_delete},
    {"prefixes", "status", "prefixes status", 1, run_prefixes_status},
    {"prefixes", "save", "prefixes save", 1, run_prefixes_save},
    {"profile", NULL, "profile VERB ..", -1, run_profile},
    {"metrics", NULL, "metrics", 0, run_metrics},
    {"gpu", NULL, "gpu", 0, run_gpu},
    {"audit", NULL, "audit VERB ..", -1, run_audit},
};

#define N_COMMANDS (sizeof COMMANDS / sizeof COMMANDS[0])

static bool run_command(struct call *call, const char *command)
{
    bool known = false;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(COMMANDS[i].command, command) != 0)
            continue;
        known = true;
        const char *verb = COMMANDS[i].verb;
        bool fits = COMMANDS[i].n_args < 0 || call->n_args == COMMANDS[i].n_args;
        if (fits && (verb == NULL || strcmp(verb, call->args[0]) == 0))
            return COMMANDS[i].run(call);
    }
    buf_puts(&call->text, known ? "usage: " : "unknown command; known are: ");
    const char *between = "";
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (known && strcmp(COMMANDS[i].command, command) != 0)
            continue;
        buf_printf(&call->text, "%s%s", between, COMMANDS[i].help);
        between = " | ";
    }
    return false;
}

/* ---- the frame ------------------------------------------------------------------------------ */

/* A string of plain text: no NUL, no control characters, bounded.  @return NULL: it is none */
static const char *plain_string(struct json_object *value)
{
    if (!json_object_is_type(value, json_type_string))
        return NULL;
    const char *text = json_object_get_string(value);
    size_t len = (size_t)json_object_get_string_len(value);
    if (len > ADMIN_ARG_BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return NULL;
    }
    return text;
}

/* Takes a request apart; strings are borrowed from it.  @return NULL, or what is wrong */
static const char *take_apart(struct json_object *request, const char **command, struct call *call)
{
    if (!json_object_is_type(request, json_type_object))
        return "the request must be an object";
    *command = NULL;
    json_object_object_foreach(request, name, value)
    {
        if (strcmp(name, "command") == 0) {
            *command = plain_string(value);
            if (*command == NULL)
                return "command: must be a short string";
            continue;
        }
        if (strcmp(name, "args") != 0)
            return "the request has a field other than command and args";
        if (!json_object_is_type(value, json_type_array))
            return "args: must be an array";
        size_t n = json_object_array_length(value);
        if (n > ADMIN_ARGS_MAX)
            return "args: too many";
        for (size_t i = 0; i < n; i++) {
            call->args[i] = plain_string(json_object_array_get_idx(value, i));
            if (call->args[i] == NULL)
                return "args: must be short strings";
        }
        call->n_args = (int)n;
    }
    return *command == NULL ? "command: is missing" : NULL;
}

size_t admin_file_max(const char *line, size_t len)
{
    struct json_object *request = NULL;
    struct error err;
    struct call call = {0};
    const char *command;
    size_t most = 0;
    if (json_parse(line, len, &request, NULL, &err) == OK &&
        take_apart(request, &command, &call) == NULL && strcmp(command, "audit") == 0)
        most = audit_file_max(&call);
    json_object_put(request);
    return most;
}

void admin_refuse(struct buf *out, const char *reason)
{
    buf_puts(out, "{\"ok\": false, \"text\": ");
    json_dump_string(out, reason, strlen(reason));
    buf_puts(out, "}\n");
}

static void answer_dump(struct buf *out, bool ok, struct buf *text, const struct buf *data)
{
    if (!ok) {
        admin_refuse(out, buf_cstr(text));
        return;
    }
    buf_puts(out, "{\"ok\": true, \"text\": ");
    json_dump_string(out, text->data, text->len);
    buf_puts(out, ", \"data\": ");
    buf_add(out, data->data, data->len);
    buf_puts(out, "}\n");
}

uint64_t admin_answer(const struct admin_scope *scope, long long uptime_s, const char *line,
                      size_t len, const struct buf *file, struct buf *out)
{
    struct json_object *request = NULL;
    struct error err;
    if (json_parse(line, len, &request, NULL, &err) != OK) {
        admin_refuse(out, err.text);
        return 0;
    }
    struct call call = {.scope = scope, .uptime_s = uptime_s, .file = file};
    const char *command;
    const char *wrong = take_apart(request, &command, &call);
    bool ok = wrong == NULL && run_command(&call, command);
    if (wrong != NULL)
        admin_refuse(out, wrong);
    else if (call.job == 0)
        answer_dump(out, ok, &call.text, &call.data);
    json_object_put(request);
    /* A new key's secret was among them. */
    if (call.text.cap > 0)
        sodium_memzero(call.text.data, call.text.cap);
    if (call.data.cap > 0)
        sodium_memzero(call.data.data, call.data.cap);
    buf_free(&call.text);
    buf_free(&call.data);
    return call.job;
}

bool admin_answer_job(const struct admin_scope *scope, uint64_t job, struct buf *out)
{
    struct control_result result;
    if (!control_take(scope->control, job, &result))
        return false;
    answer_dump(out, result.good, &result.text, &result.data);
    buf_free(&result.text);
    buf_free(&result.data);
    return true;
}
