/* What `status` and `log` of init say. */
#include "init/status.h"

#include "config/version.h"
#include "init/ports.h"
#include "init/protocol.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROC_BYTES  8192 /* /proc/PID/status, /proc/meminfo: 1.5 KB; mounts of the box: 1 KB */
#define PORTS_BYTES (256 * 1024) /* one table: 1,700 sockets, of which the front has 512 */
#define TEXT_BYTES  8192         /* SERVICES_MAX rows, a heading, and the notes about storage */
#define DATA_BYTES  16384        /* the same as JSON, and the mounts */

static size_t read_proc(const char *path, char *bytes, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t len = 0;
    ssize_t n;
    while (len < cap && (n = read(fd, bytes + len, cap - len)) > 0)
        len += (size_t)n;
    close(fd);
    return len;
}

int64_t status_field(const char *text, size_t n, const char *name)
{
    size_t name_len = strlen(name);
    for (size_t i = 0; i < n;) {
        const char *newline = memchr(text + i, '\n', n - i);
        size_t end = newline == NULL ? n : (size_t)(newline - text);
        if (end - i > name_len && memcmp(text + i, name, name_len) == 0 &&
            text[i + name_len] == ':') {
            size_t p = i + name_len + 1;
            while (p < end && (text[p] == ' ' || text[p] == '\t'))
                p++;
            int64_t value = 0;
            size_t start = p;
            for (; p < end && text[p] >= '0' && text[p] <= '9' && p - start < 18; p++)
                value = value * 10 + (text[p] - '0');
            return p > start ? value : -1;
        }
        i = end + 1;
    }
    return -1;
}

void status_mounts(struct text *out, const char *text, size_t n)
{
    static const char *const NAMES[] = {NULL, "path", "type", "options"};
    const char *separator = "";
    text_printf(out, "[");
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && text[end] != '\n')
            end++;
        text_printf(out, "%s{", separator);
        for (int field = 0; field < 4; field++) {
            size_t length = 0;
            while (i + length < end && text[i + length] != ' ')
                length++;
            if (NAMES[field] != NULL) {
                text_printf(out, "%s\"%s\":", field > 1 ? "," : "", NAMES[field]);
                text_json_string(out, text + i, length);
            }
            i += length < end - i ? length + 1 : length;
        }
        text_printf(out, "}");
        separator = ",";
        i = end + 1;
    }
    text_printf(out, "]");
}

static void add_service(struct text *text, struct text *data, const struct child *c)
{
    char path[64], proc[PROC_BYTES];
    size_t n = 0;
    if (c->pid > 0) {
        snprintf(path, sizeof path, "/proc/%d/status", (int)c->pid);
        n = read_proc(path, proc, sizeof proc);
    }
    int64_t rss_kib = status_field(proc, n, "VmRSS");
    int64_t peak_kib = status_field(proc, n, "VmHWM");
    text_printf(text, "%-12s %-9s %6d %9u", c->spec->name, service_state_name(c->life.state),
                (int)c->pid, (unsigned)c->life.restarts);
    if (rss_kib >= 0)
        text_printf(text, " %8lld KiB", (long long)rss_kib);
    text_printf(text, "\n");
    if (c->life.state == SERVICE_BACKOFF || c->life.state == SERVICE_FAILED)
        text_printf(text, "  %s said: %s\n", c->spec->name, c->last_line);
    text_printf(data,
                "{\"name\":\"%s\",\"state\":\"%s\",\"pid\":%d,\"restarts\":%u,\"rss_kib\":%lld,"
                "\"rss_peak_kib\":%lld,\"uid\":%lld,\"no_new_privs\":%lld}",
                c->spec->name, service_state_name(c->life.state), (int)c->pid,
                (unsigned)c->life.restarts, (long long)rss_kib, (long long)peak_kib,
                (long long)status_field(proc, n, "Uid"),
                (long long)status_field(proc, n, "NoNewPrivs"));
}

/* Everything that could be reached from outside, were it not for a firewall somewhere else. */
static void add_ports(struct text *text, struct text *data)
{
    static const char *const KINDS[] = {"tcp", "tcp6", "udp", "udp6"};
    static char table[PORTS_BYTES];
    char human_bytes[1024], json_bytes[1024], path[32];
    struct text human = text_over(human_bytes, sizeof human_bytes);
    struct text json = text_over(json_bytes, sizeof json_bytes);
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        snprintf(path, sizeof path, "/proc/net/%s", KINDS[i]);
        size_t n = read_proc(path, table, sizeof table);
        ports_add(&human, ", ", KINDS[i], table, n);
        ports_add(&json, "\",\"", KINDS[i], table, n);
    }
    text_printf(text, "open: %s\n", human.len > 0 ? human.data : "nothing");
    text_printf(data, "\"open\":[%s%s%s],", json.len > 0 ? "\"" : "", json.data,
                json.len > 0 ? "\"" : "");
}

static void add_options(struct text *data, const struct options *options)
{
    static const char *const NAMES[OPTION_COUNT] = {
#define OPTION(id, name, ...) [OPTION_##id] = name,
#include "config/options.def"
#undef OPTION
    };
    text_printf(data, "\"options\":{");
    for (int i = 0; i < OPTION_COUNT; i++)
        text_printf(data, "%s\"%s\":\"%s\"", i > 0 ? "," : "", NAMES[i], options->value[i]);
    text_printf(data, "}");
}

static void add_storage(struct text *text, struct text *data, const struct storage *storage)
{
    text_printf(text, "config: %s, models: %s, log: %s\n", storage_place_name(storage->config),
                storage_place_name(storage->models), storage_place_name(storage->log));
    text_add(text, storage->notes.data, storage->notes.len);
    text_printf(data, "\"storage\":{\"config\":\"%s\",\"models\":\"%s\",\"log\":\"%s\",\"disk\":",
                storage_place_name(storage->config), storage_place_name(storage->models),
                storage_place_name(storage->log));
    text_json_string(data, storage->disk.name, strlen(storage->disk.name));
    text_printf(data, ",\"notes\":");
    text_json_string(data, storage->notes.data, storage->notes.len);
    text_printf(data, "},");
}

/* The names of slots are those of the console's `update status`. */
static void add_slots(struct text *text, struct text *data, const struct slots *slots)
{
    text_printf(data, "\"slots\":");
    if (!slots->known) {
        text_printf(data, "null,");
        return;
    }
    text_printf(text, "slot %c, %s%s%s\n", slot_letter(slots->running),
                slots->rescue      ? "RESCUE"
                : slots->confirmed ? "good"
                                   : "not confirmed yet",
                slots->state.outcome[0] == '\0' ? "" : "; last update: ", slots->state.outcome);
    text_printf(data,
                "{\"running\":\"%c\",\"good\":\"%c\",\"confirmed\":%s,\"rescue\":%s,"
                "\"tries\":%d,\"outcome\":",
                slot_letter(slots->running), slot_letter(slots->good),
                slots->confirmed ? "true" : "false", slots->rescue ? "true" : "false",
                slots->state.tries);
    text_json_string(data, slots->state.outcome, strlen(slots->state.outcome));
    text_printf(data, "},");
}

void status_answer(struct text *answer, const struct status *status)
{
    const struct supervisor *services = status->services;
    char text_bytes[TEXT_BYTES], data_bytes[DATA_BYTES], proc[PROC_BYTES];
    struct text text = text_over(text_bytes, sizeof text_bytes);
    struct text data = text_over(data_bytes, sizeof data_bytes);
    int64_t up_s = clock_ms() / 1000;
    size_t n = read_proc("/proc/meminfo", proc, sizeof proc);
    int64_t total_kib = status_field(proc, n, "MemTotal");
    int64_t free_kib = status_field(proc, n, "MemAvailable");

    text_printf(&text, "v4box %s, up %lld:%02d:%02d, memory %lld of %lld MiB available\n",
                V4BOX_VERSION, (long long)(up_s / 3600), (int)(up_s / 60 % 60), (int)(up_s % 60),
                (long long)(free_kib / 1024), (long long)(total_kib / 1024));
    text_printf(&data, "{\"version\":\"%s\",\"uptime_s\":%lld,\"boot_ms\":%lld,\"claimed\":%s,",
                V4BOX_VERSION, (long long)up_s, (long long)status->boot_ms,
                status->claimed ? "true" : "false");
    if (!status->claimed)
        text_printf(&text, "nobody's yet: `claim` says how to log in over SSH\n");
    add_storage(&text, &data, status->storage);
    add_slots(&text, &data, status->slots);
    add_ports(&text, &data);
    text_printf(&text, "%-12s %-9s %6s %9s %12s\n", "service", "state", "pid", "restarts",
                "resident");
    text_printf(&data, "\"memory\":{\"total_kib\":%lld,\"available_kib\":%lld},\"services\":[",
                (long long)total_kib, (long long)free_kib);
    for (int i = 0; i < services->count; i++) {
        text_add(&data, ",", i > 0 ? 1 : 0);
        add_service(&text, &data, &services->child[i]);
    }
    text_printf(&data, "],\"orphans\":%llu,\"log\":{\"lines\":%zu,\"dropped\":%llu},",
                (unsigned long long)services->orphans, services->journal->ring.line_count,
                (unsigned long long)services->journal->ring.dropped);
    add_options(&data, services->options);
    text_printf(&data, ",\"mounts\":");
    status_mounts(&data, proc, read_proc("/proc/self/mounts", proc, sizeof proc));
    text_printf(&data, "}");
    answer_write(answer, true, text.data, text.len, data.cut ? NULL : data.data, data.len);
}

static void add_line(void *context, const char *line, size_t n)
{
    struct text *text = context;
    if (text->cap - text->len > n + 1) {
        text_add(text, line, n);
        text_add(text, "\n", 1);
    }
}

void log_lines(struct text *out, const struct journal *journal, size_t count)
{
    ring_tail(&journal->ring, count, add_line, out);
}

void log_answer(struct text *answer, const struct journal *journal, size_t count)
{
    /* In memory of its own: the ring as text, and a newline for each of its 2-byte headers. */
    static char bytes[LOG_RING_BYTES + 1];
    struct text text = text_over(bytes, sizeof bytes);
    log_lines(&text, journal, count);
    answer_write(answer, true, text.data, text.len, NULL, 0);
}
