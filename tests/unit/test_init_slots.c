/* The two slots: the firmware's variables, what a start is, the record of starts, the health gate,
 * the watchdog. */
#include "init/efi.h"
#include "init/files.h"
#include "init/gate.h"
#include "init/keyfile.h"
#include "init/slots.h"
#include "init/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUID_TEXT "29d41830-2f69-8892-2272-c619a0952ca6"

static char folder[64]; /* plays efivarfs, sysfs and the config partition */

static const char *in_folder(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A variable of UTF-16 text, as the stub writes it. */
static void put_words(const char *name, const char *text)
{
    char file[96], raw[4 + 256] = {6};
    size_t n = 4;
    for (const char *p = text; *p != '\0'; p++, n += 2)
        raw[n] = *p;
    snprintf(file, sizeof file, "%s-" EFI_LOADER, name);
    put(file, raw, n + 2);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_init_slots.XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    put("partition", "1\n", 2);
    put("start", "2048\n", 5);
    put("size", "131072\n", 7);
    put_words("LoaderDevicePartUUID", GUID_TEXT);
    put_words("LoaderImageIdentifier", "\\EFI\\BOOT\\BOOTX64.EFI");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- key files --------------------------------------------------------------------------------
 */

static bool collect(void *context, const char *key, const char *value)
{
    struct text *t = context;
    text_printf(t, "%s:%s;", key, value);
    return strcmp(key, "refused") != 0;
}

static bool parse(const char *bytes, size_t n, char *seen, size_t cap)
{
    struct text t = text_over(seen, cap);
    return keyfile_parse(bytes, n, collect, &t);
}

static void key_files_are_whole_or_nothing(void **state)
{
    (void)state;
    char bytes[512], seen[512], changed[512];
    struct text t = text_over(bytes, sizeof bytes);
    keyfile_add(&t, "good", "a");
    keyfile_add(&t, "empty", "");
    keyfile_add(&t, "said", "a = b\n\x1b[2J");
    keyfile_seal(&t);
    assert_true(parse(t.data, t.len, seen, sizeof seen));
    assert_string_equal(seen, "good:a;empty:;said:a = b??[2J;");
    for (size_t n = 0; n < t.len; n++)
        assert_false(parse(t.data, n, seen, sizeof seen));
    for (size_t i = 0; i < t.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(changed, t.data, t.len);
            changed[i] = (char)(changed[i] ^ 1 << bit);
            assert_false(parse(changed, t.len, seen, sizeof seen));
        }
    }
}

static void key_files_refuse_other_shapes(void **state)
{
    (void)state;
    static const char *const BODIES[] = {"good",          "good=a\n",    " = a\n", "good = a",
                                         "refused = a\n", "good = \t\n", "\n",     "k\xc3 = a\n"};
    char bytes[512], seen[512];
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        struct text t = text_over(bytes, sizeof bytes);
        text_printf(&t, "%s", BODIES[i]);
        keyfile_seal(&t);
        assert_false(parse(t.data, t.len, seen, sizeof seen));
    }
    struct text t = text_over(bytes, sizeof bytes);
    char value[KEYFILE_VALUE_BYTES + 1], line[2 * KEYFILE_VALUE_BYTES];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    snprintf(line, sizeof line, "k = %s\n", value);
    text_printf(&t, "%s", line);
    keyfile_seal(&t);
    assert_false(parse(t.data, t.len, seen, sizeof seen));
}

/* ---- variables --------------------------------------------------------------------------------
 */

static void guids_are_read_strictly(void **state)
{
    (void)state;
    static const uint8_t WANTED[] = {0x30, 0x18, 0xd4, 0x29, 0x69, 0x2f, 0x92, 0x88,
                                     0x22, 0x72, 0xc6, 0x19, 0xa0, 0x95, 0x2c, 0xa6};
    static const char *const BAD[] = {
        "", "29d41830-2f69-8892-2272-c619a0952ca", "29d41830-2f69-8892-2272-c619a0952ca67",
        "29d41830+2f69-8892-2272-c619a0952ca6", "29d41830-2f69-8892-2272-c619a0952cax"};
    uint8_t guid[EFI_GUID_BYTES];
    assert_true(efi_guid_parse(guid, GUID_TEXT, strlen(GUID_TEXT)));
    assert_memory_equal(guid, WANTED, sizeof WANTED);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(efi_guid_parse(guid, BAD[i], strlen(BAD[i])));
}

/* Byte for byte what the firmware itself would write for this file. */
static void load_options_are_as_uefi_wants_them(void **state)
{
    (void)state;
    static const uint8_t WANTED[] = {
        1,    0,    0,    0,    0x54, 0,    'v',  0,    ' ',  0,    'b',
        0,    0,    0, /* active, 84 bytes */
        4,    1,    42,   0,    1,    0,    0,    0,    0,    8,    0,
        0,    0,    0,    0,    0, /* partition, start */
        0,    0,    2,    0,    0,    0,    0,    0,    0x30, 0x18, 0xd4,
        0x29, 0x69, 0x2f, 0x92,                                        /* size, GUID */
        0x88, 0x22, 0x72, 0xc6, 0x19, 0xa0, 0x95, 0x2c, 0xa6, 2,    2, /* GPT */
        4,    4,    0x26, 0,    '\\', 0,    'E',  0,    'F',  0,    'I',
        0,    '\\', 0,    'v',  0,    '4',  0,    'b',  0,    'o',  0,
        'x',  0,    '\\', 0,    'b',  0,    '.',  0,    'e',  0,    'f',
        0,    'i',  0,    0,    0,    0x7f, 0xff, 4,    0};
    struct efi_partition p = {.number = 1, .start = 2048, .size = 131072};
    uint8_t bytes[256];
    assert_true(efi_guid_parse(p.guid, GUID_TEXT, strlen(GUID_TEXT)));
    size_t n = efi_option_write(bytes, sizeof bytes, "v b", &p, "EFI/v4box/b.efi");
    assert_int_equal(n, sizeof WANTED);
    assert_memory_equal(bytes, WANTED, n);
    assert_true(efi_option_is(bytes, n, "v b"));
    assert_false(efi_option_is(bytes, n, "v a"));
    for (size_t short_n = 0; short_n < n; short_n++)
        assert_int_equal(efi_option_write(bytes, short_n, "v b", &p, "EFI/v4box/b.efi"), 0);
    for (size_t short_n = 0; short_n < 12; short_n++)
        assert_false(efi_option_is(WANTED, short_n, "v b"));
}

static void variables_are_bounded(void **state)
{
    (void)state;
    static char large[4 + EFI_VARIABLE_BYTES + 1];
    uint8_t bytes[EFI_VARIABLE_BYTES];
    put("Large-" EFI_OWN, large, sizeof large);
    assert_int_equal(efi_get(folder, "Large", EFI_OWN, bytes, sizeof bytes), -1);
    assert_int_equal(errno, EFBIG);
    put("Large-" EFI_OWN, large, sizeof large - 1);
    assert_int_equal(efi_get(folder, "Large", EFI_OWN, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(efi_get(folder, "Large", EFI_OWN, bytes, 8), -1);
    put("Short-" EFI_OWN, large, 3);
    assert_int_equal(efi_get(folder, "Short", EFI_OWN, bytes, sizeof bytes), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(efi_get(folder, "Absent", EFI_OWN, bytes, sizeof bytes), -1);
    assert_int_equal(errno, ENOENT);
    assert_false(efi_set(folder, "Large", EFI_OWN, bytes, sizeof bytes + 1));
    unlink(in_folder("Large-" EFI_OWN));
    unlink(in_folder("Short-" EFI_OWN));
}

/* ---- what a start is --------------------------------------------------------------------------
 */

static struct slots decided(int loaded, int first, struct slots_state state)
{
    struct slots s = {.state = state};
    slots_decide(&s, loaded, first);
    return s;
}

static void starts_are_told_apart(void **state)
{
    (void)state;
    enum { A, B, NONE = SLOT_NONE };
    static const struct {
        int loaded, first, good, tries, pending; /* before */
        int running, now_good, now_tries, now_pending;
        bool rescue;
    } CASES[] = {
        {NONE, NONE, NONE, 0, NONE, A, A, 1, NONE, false}, /* a new box, by the fallback */
        {NONE, NONE, B, 0, NONE, B, B, 1, NONE, false},    /* variables lost: the file knows */
        {NONE, A, B, 0, NONE, A, A, 1, NONE, false},       /* the firmware is the truth */
        {A, A, A, 0, NONE, A, A, 1, NONE, false},          /* an ordinary start */
        {B, A, A, 0, B, B, A, 1, B, false},                /* a trial */
        {A, A, A, 1, B, A, A, 1, NONE, false},             /* it fell back, and counts anew */
        {A, A, A, 2, NONE, A, A, 3, NONE, false},          /* the third start */
        {A, A, A, 3, NONE, A, A, 3, NONE, true},           /* one too many */
        {A, A, A, 3, B, A, A, 1, NONE, false},             /* of a trial out of rescue */
        {B, A, A, 3, NONE, B, A, 3, NONE, false},          /* the firmware itself went on to b */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct slots s = decided(CASES[i].loaded, CASES[i].first,
                                 (struct slots_state){.good = CASES[i].good,
                                                      .tries = CASES[i].tries,
                                                      .pending = CASES[i].pending,
                                                      .version = "9"});
        assert_int_equal(s.running, CASES[i].running);
        assert_int_equal(s.good, CASES[i].now_good);
        assert_int_equal(s.state.tries, CASES[i].now_tries);
        assert_int_equal(s.state.pending, CASES[i].now_pending);
        assert_int_equal(s.rescue, CASES[i].rescue);
        bool ended = CASES[i].pending != NONE && CASES[i].now_pending == NONE;
        assert_int_equal(s.state.outcome[0] != '\0', ended);
    }
}

static void the_record_keeps_everything(void **state)
{
    (void)state;
    char bytes[1024];
    struct text t = text_over(bytes, sizeof bytes);
    struct slots_state in = {.good = 1, .tries = 2, .pending = 0}, out;
    memset(in.version, 'v', sizeof in.version - 1);
    memset(in.outcome, 'o', sizeof in.outcome - 1);
    slots_state_write(&t, &in);
    assert_false(t.cut);
    assert_true(slots_state_parse(&out, t.data, t.len));
    assert_memory_equal(&in, &out, sizeof in);
    t.data[8] ^= 1;
    assert_false(slots_state_parse(&out, t.data, t.len));
    assert_int_equal(out.good, SLOT_NONE);
    assert_int_equal(out.tries, 0);
    /* The reason of a failed trial is cut, never the end of the text. */
    struct slots s = decided(0, 0, in);
    assert_int_equal(strlen(s.state.outcome), sizeof s.state.outcome - 1);
}

/* ---- a whole life -----------------------------------------------------------------------------
 */

static struct slots begin(const char *loaded, bool good)
{
    struct slots s;
    char bytes[256];
    struct text note = text_over(bytes, sizeof bytes);
    put_words("LoaderImageIdentifier", loaded);
    assert_int_equal(slots_open(&s, folder, folder, in_folder("starts"), &note), good);
    s.file = "/nowhere"; /* in_folder's memory is used again */
    return s;
}

static uint16_t next_entry(void)
{
    uint8_t bytes[2] = {0};
    assert_int_equal(efi_get(folder, "BootNext", EFI_GLOBAL, bytes, 2), 2);
    unlink(in_folder("BootNext-" EFI_GLOBAL)); /* the firmware takes it away */
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static void order_is(const uint16_t *wanted, size_t n)
{
    uint16_t order[EFI_ORDER_MAX];
    assert_int_equal(efi_order_get(folder, order), n);
    assert_memory_equal(order, wanted, n * sizeof order[0]);
}

static void an_update_and_a_way_back(void **state)
{
    (void)state;
    static const uint8_t ORDER[] = {7, 0, 0, 0, 1, 0, 2, 0};
    static char path[160];
    put("BootOrder-" EFI_GLOBAL, ORDER, sizeof ORDER);
    put("Boot0001-" EFI_GLOBAL, "\7\0\0\0\1\0\0\0\0\0x\0\0\0", 14);
    put("Boot0020-" EFI_GLOBAL, "\7\0\0\0\1\0\0\0\0\0y\0\0\0", 14); /* somebody else's */
    strcpy(path, in_folder("starts"));

    struct slots s = begin("\\EFI\\BOOT\\BOOTX64.EFI", true);
    assert_int_equal(s.running, 0);
    order_is((const uint16_t[]){0x21, 0x22, 1, 2}, 4);
    s.file = path;
    assert_true(slots_confirm(&s));
    assert_non_null(slots_try(&s, 0, "2"));
    assert_non_null(slots_try(&s, -1, "2"));
    assert_null(slots_try(&s, 1, "2"));
    assert_int_equal(next_entry(), 0x22);

    s = begin("\\EFI\\v4box\\b.efi", true);
    s.file = path;
    assert_int_equal(s.running, 1);
    assert_int_equal(s.good, 0);
    assert_non_null(slots_try(&s, 0, "3")); /* on trial itself */
    assert_true(slots_confirm(&s));
    order_is((const uint16_t[]){0x22, 0x21, 1, 2}, 4);
    assert_string_equal(s.state.outcome, "2 is good");

    assert_null(slots_try(&s, 0, "3"));
    assert_int_equal(next_entry(), 0x21);
    s = begin("/EFI/V4BOX/A.EFI", true);
    s.file = path;
    assert_true(slots_give_up(&s, "the engine crashes"));
    s = begin("\\EFI\\v4box\\b.efi", true);
    assert_int_equal(s.running, 1);
    assert_int_equal(s.good, 1);
    assert_string_equal(s.state.outcome, "3 fell back: the engine crashes");
    order_is((const uint16_t[]){0x22, 0x21, 1, 2}, 4);

    /* Starts that nothing confirms: after three the box stays up. */
    for (int i = 0; i < 2; i++)
        assert_false(begin("\\EFI\\v4box\\b.efi", true).rescue);
    s = begin("\\EFI\\v4box\\b.efi", true);
    assert_true(s.rescue);
    s.file = path;
    assert_true(slots_forget_tries(&s));
    assert_false(begin("\\EFI\\v4box\\b.efi", true).rescue);

    /* The firmware forgot our entries: they are made again, and the file knows the good slot. */
    unlink(in_folder("Boot0021-" EFI_GLOBAL));
    unlink(in_folder("Boot0022-" EFI_GLOBAL));
    unlink(in_folder("BootOrder-" EFI_GLOBAL));
    s = begin("\\EFI\\BOOT\\BOOTX64.EFI", true);
    assert_int_equal(s.running, 1);
    order_is((const uint16_t[]){0x22, 0x21}, 2);

    put("starts", "good = a\n", 9);
    s = begin("\\EFI\\v4box\\b.efi", false);
    assert_int_equal(s.good, 1); /* still the firmware's word */
}

static void without_the_stubs_words_there_are_no_slots(void **state)
{
    (void)state;
    struct slots s;
    char bytes[256];
    struct text note = text_over(bytes, sizeof bytes);
    put_words("LoaderDevicePartUUID", "no uuid");
    assert_false(slots_open(&s, folder, folder, in_folder("starts"), &note));
    assert_false(s.known);
    assert_non_null(slots_try(&s, 1, "2"));
    put_words("LoaderDevicePartUUID", GUID_TEXT);
}

/* ---- the gate ---------------------------------------------------------------------------------
 */

static void the_gate_decides_once(void **state)
{
    (void)state;
    struct gate g;
    struct gate_engine engine = {true, SERVICE_RUNNING, 0};
    gate_init(&g, 1000);
    assert_int_equal(gate_turn(&g, &engine, 1000 + GATE_MS - 1), GATE_NOTHING);
    assert_int_equal(gate_turn(&g, &engine, 1000 + GATE_MS), GATE_GIVE_UP);
    assert_int_equal(gate_turn(&g, &engine, 1000 + GATE_MS), GATE_NOTHING);
    gate_init(&g, 0);
    gate_beat(&g, 5);
    assert_int_equal(gate_turn(&g, &engine, 6), GATE_CONFIRM);
    engine.state = SERVICE_FAILED;
    assert_int_equal(gate_turn(&g, &engine, 7), GATE_NOTHING);
    gate_init(&g, 0);
    engine.state = SERVICE_BACKOFF;
    assert_int_equal(gate_turn(&g, &engine, 7), GATE_NOTHING);
    engine.state = SERVICE_FAILED;
    assert_int_equal(gate_turn(&g, &engine, 8), GATE_GIVE_UP);
    gate_init(&g, 0);
    engine.wanted = false;
    assert_int_equal(gate_turn(&g, &engine, GATE_MS), GATE_NOTHING);
}

static void a_silent_engine_is_frozen(void **state)
{
    (void)state;
    struct gate g;
    struct gate_engine engine = {true, SERVICE_RUNNING, 100};
    gate_init(&g, 0);
    assert_true(gate_is_alive(&g, &engine, 100 + GATE_MS - 1)); /* it loads */
    assert_false(gate_is_alive(&g, &engine, 100 + GATE_MS));
    gate_beat(&g, 200);
    assert_true(gate_is_alive(&g, &engine, 200 + HEART_STALE_MS - 1));
    assert_false(gate_is_alive(&g, &engine, 200 + HEART_STALE_MS));
    engine.started_ms = 300; /* another process, which loads again */
    assert_true(gate_is_alive(&g, &engine, 300 + GATE_MS - 1));
    engine.state = SERVICE_BACKOFF; /* the supervisor's, however long it takes */
    assert_true(gate_is_alive(&g, &engine, 1000 * (int64_t)GATE_MS));
    engine = (struct gate_engine){.wanted = false};
    assert_true(gate_is_alive(&g, &engine, 1000 * (int64_t)GATE_MS));
}

/* A file plays the device: what is written to it counts. */
static void the_watchdog_is_fed_in_measure(void **state)
{
    (void)state;
    struct watchdog w;
    struct stat st;
    put("watchdog", "", 0);
    assert_false(watchdog_open(&w, in_folder("watchdog"))); /* it takes no time limit */
    assert_true(w.fd >= 0);
    static const struct {
        int64_t now_ms;
        int bytes;
    } CASES[] = {{100000, 1},
                 {100001, 1},
                 {100000 + WATCHDOG_FEED_MS - 1, 1},
                 {100000 + WATCHDOG_FEED_MS, 2},
                 {900000, 3}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        watchdog_feed(&w, CASES[i].now_ms);
        assert_int_equal(stat(in_folder("watchdog"), &st), 0);
        assert_int_equal(st.st_size, CASES[i].bytes);
    }
    close(w.fd);
    assert_false(watchdog_open(&w, in_folder("none")));
    watchdog_feed(&w, 100000); /* a machine without one */
    assert_int_equal(w.fd, -1);
}

static off_t fed_bytes(void)
{
    struct stat st;
    assert_int_equal(stat(in_folder("watchdog"), &st), 0);
    return st.st_size;
}

static void a_child_feeds_the_watchdog_for_a_while(void **state)
{
    (void)state;
    struct watchdog w = {.fd = -1};
    watchdog_keep(&w, 10, 30);
    assert_int_equal(w.feeder, 0); /* a machine without one */
    watchdog_release(&w);
    put("watchdog", "", 0);
    assert_false(watchdog_open(&w, in_folder("watchdog")));
    watchdog_keep(&w, 10, 30);
    assert_int_equal(waitpid(w.feeder, NULL, 0), w.feeder); /* by its own limit */
    assert_int_equal(fed_bytes(), 3);
    watchdog_keep(&w, 1, 3600000);
    while (fed_bytes() < 10)
        usleep(1000);
    pid_t child = w.feeder;
    watchdog_release(&w);
    assert_int_equal(w.feeder, 0);
    assert_int_equal(kill(child, 0), -1); /* before its limit */
    close(w.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_files_are_whole_or_nothing),
        cmocka_unit_test(key_files_refuse_other_shapes),
        cmocka_unit_test(guids_are_read_strictly),
        cmocka_unit_test(load_options_are_as_uefi_wants_them),
        cmocka_unit_test(variables_are_bounded),
        cmocka_unit_test(starts_are_told_apart),
        cmocka_unit_test(the_record_keeps_everything),
        cmocka_unit_test(an_update_and_a_way_back),
        cmocka_unit_test(without_the_stubs_words_there_are_no_slots),
        cmocka_unit_test(the_gate_decides_once),
        cmocka_unit_test(a_silent_engine_is_frozen),
        cmocka_unit_test(the_watchdog_is_fed_in_measure),
        cmocka_unit_test(a_child_feeds_the_watchdog_for_a_while),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
