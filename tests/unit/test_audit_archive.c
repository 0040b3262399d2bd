/* What a box keeps of audits: signatures, the folder of reports with its caps, and the schedule. */
#include "engine/audit/archive.h"
#include "engine/audit/report_fields.h"
#include "engine/audit/schedule.h"
#include "engine/audit/tests_common.h"
#include "engine/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/v4box-archive-XXXXXX";
static char reports[64];

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(reports, sizeof reports, "%s/audits", folder);
    return 0;
}

/* A report of audit `id` whose only test says why. */
static struct json_object *report_make(int32_t id, const char *why)
{
    struct json_object *report = json_object_new_object(), *run = json_object_new_object();
    json_set(report, "schema", json_object_new_string(REPORT_SCHEMA));
    json_set(report, "budget", json_object_new_string("quick"));
    json_set(report, "verdict", json_object_new_string("FAIL"));
    json_set(report, "spent_s", json_object_new_double(0.1));
    json_set(run, "id", json_object_new_int(id));
    json_set(run, "time_s", json_object_new_int64(1790000000 + id));
    json_set(run, "by", json_object_new_string("schedule"));
    json_set(run, "what", json_object_new_string("all"));
    json_set(run, "state", json_object_new_string("finished"));
    json_set(report, "run", run);
    struct json_object *tests = json_object_new_array();
    json_object_array_add(tests, result_new("floor", VERDICT_FAIL, why, 1, "equal"));
    json_set(report, "tests", tests);
    return report;
}

static void keep(struct archive *archive, int32_t id, const char *why, enum status wanted)
{
    struct error err;
    struct json_object *report = report_make(id, why);
    assert_int_equal(archive_put(archive, report, &err), wanted);
    json_object_put(report);
}

/* ---- signatures ------------------------------------------------------------------------------ */

/* Every byte in front of the signature is held: a changed one is noticed, or no JSON any more. */
static void signatures(void **state)
{
    const uint8_t seed[REPORT_SEED_BYTES] = {7}, other[REPORT_SEED_BYTES] = {8};
    char key[REPORT_KEY_CHARS + 1], other_key[REPORT_KEY_CHARS + 1];
    struct json_object *report = report_make(1, "Umlaute \xc3\xa4, \"quotes\", 1e-7"), *read;
    struct error err;
    struct buf text = {0};
    (void)state;
    report_key(seed, key);
    report_key(other, other_key);
    assert_int_equal(report_verify(report, key, &err), ERR_CHECK);
    report_sign(report, other);
    report_sign(report, seed); /* in place of the first one */
    assert_int_equal(report_verify(report, key, &err), OK);
    assert_int_equal(report_verify(report, other_key, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "another key"));
    assert_int_equal(report_verify(report, "", &err), ERR_INPUT);
    assert_int_equal(report_verify(report, key + 1, &err), ERR_INPUT);
    json_dump(&text, report);
    const size_t n = (size_t)(strstr(buf_cstr(&text), ", \"signature\"") - text.data);
    for (size_t i = 0; i < n; i++) {
        text.data[i] ^= 1;
        if (json_parse(text.data, text.len, &read, NULL, &err) == OK) {
            assert_int_equal(report_verify(read, key, &err), ERR_CHECK);
            json_object_put(read);
        }
        text.data[i] ^= 1;
    }
    assert_int_equal(json_parse(text.data, text.len, &read, NULL, &err), OK);
    assert_int_equal(report_verify(read, key, &err), OK);
    json_object_put(read);
    buf_free(&text);
    json_object_put(report);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void caps(void **state)
{
    struct archive *archive;
    struct archive_head heads[AUDIT_KEPT_MAX];
    struct json_object *report;
    struct error err;
    (void)state;
    assert_int_equal(archive_open(reports, &archive, &err), OK);
    assert_int_equal(archive_list(archive, heads), 0);
    assert_int_equal(archive_next_id(archive), 1);
    for (int32_t id = 1; id <= AUDIT_KEPT_MAX + 3; id++) {
        keep(archive, id, "first", OK);
        keep(archive, id, "in its place", OK);
        assert_int_equal(archive_next_id(archive), id + 1);
    }
    char *large = malloc(AUDIT_KEPT_BYTES_MAX + 1);
    assert_non_null(large);
    memset(large, 'x', AUDIT_KEPT_BYTES_MAX);
    large[AUDIT_KEPT_BYTES_MAX] = '\0';
    keep(archive, AUDIT_KEPT_MAX + 4, large, ERR_CAPACITY);
    free(large);
    for (int again = 0; again < 2; again++) { /* as it was left, and as it is found */
        assert_int_equal(archive_list(archive, heads), AUDIT_KEPT_MAX);
        assert_int_equal(heads[0].id, 4);
        assert_int_equal(heads[AUDIT_KEPT_MAX - 1].id, AUDIT_KEPT_MAX + 3);
        assert_int_equal(heads[0].time_s, 1790000004);
        assert_int_equal(heads[0].verdict, VERDICT_FAIL);
        assert_int_equal(heads[0].state, ARCHIVE_FINISHED);
        assert_true(heads[0].scheduled);
        assert_string_equal(heads[0].what, "all");
        assert_int_equal(archive_next_id(archive), AUDIT_KEPT_MAX + 4);
        assert_int_equal(archive_get(archive, 3, &report, &err), ERR_INPUT);
        assert_int_equal(archive_get(archive, 4, &report, &err), OK);
        struct json_object *test = json_object_array_get_idx(report_member(report, "tests"), 0);
        assert_string_equal(report_string(test, "why"), "in its place");
        json_object_put(report);
        archive_close(archive);
        assert_int_equal(archive_open(reports, &archive, &err), OK);
    }
    archive_close(archive);
}

/* A file cut anywhere, one of another number, one of another box, and files that are none. */
static void damage(void **state)
{
    struct archive *archive;
    struct archive_head heads[AUDIT_KEPT_MAX];
    struct json_object *report;
    struct error err;
    struct buf whole = {0};
    char path[96], alien[96];
    (void)state;
    snprintf(path, sizeof path, "%s/0000009.json", reports);
    snprintf(alien, sizeof alien, "%s/12.json", reports);
    assert_int_equal(file_read(path, AUDIT_KEPT_BYTES_MAX, &whole, &err), OK);
    assert_int_equal(file_replace(alien, &whole, &err), OK);
    assert_int_equal(archive_open(reports, &archive, &err), OK);
    for (size_t cut = 0; cut + 2 < whole.len; cut += 7) {
        struct buf part = {.data = whole.data, .len = cut};
        assert_int_equal(file_replace(path, &part, &err), OK);
        assert_int_equal(archive_get(archive, 9, &report, &err), ERR_INPUT);
    }
    archive_close(archive);
    assert_int_equal(archive_open(reports, &archive, &err), OK);
    assert_int_equal(archive_list(archive, heads), AUDIT_KEPT_MAX);
    assert_int_equal(heads[5].id, 9);
    assert_int_equal(heads[5].state, ARCHIVE_DAMAGED);
    snprintf(path, sizeof path, "%s/0000010.json", reports); /* number 9, signed */
    assert_int_equal(file_replace(path, &whole, &err), OK);
    assert_int_equal(archive_get(archive, 10, &report, &err), ERR_INPUT);
    archive_close(archive);
    snprintf(path, sizeof path, "%s/key", reports);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(archive_open(reports, &archive, &err), OK); /* with a key of its own */
    archive_list(archive, heads);
    assert_int_equal(heads[0].state, ARCHIVE_DAMAGED);
    archive_close(archive);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(archive_open(reports, &archive, &err), ERR_INPUT);
    assert_int_equal(archive_open("/nowhere/audits", &archive, &err), ERR_IO);
    buf_free(&whole);
}

/* ---- the schedule ---------------------------------------------------------------------------- */

#define DAY   86400
#define NOON  (20000 * (int64_t)DAY + DAY / 2) /* of some day */
#define THREE (20000 * (int64_t)DAY + 3 * 3600)

static void due(void **state)
{
    struct audit_schedule s = {0};
    (void)state;
    assert_false(schedule_due(&s, 0, NOON));
    assert_true(schedule_parse("03:00", "quick", THREE - 10, &s));
    assert_false(schedule_due(&s, 0, THREE - 1));
    assert_true(schedule_due(&s, 0, THREE));
    assert_true(schedule_due(&s, 0, NOON)); /* missed, and made up for */
    assert_false(schedule_due(&s, THREE, NOON));
    assert_false(schedule_due(&s, THREE + 5, THREE + DAY - 1));
    assert_true(schedule_due(&s, THREE + 5, THREE + DAY));
    assert_true(schedule_parse("03:00", "quick", NOON, &s));
    assert_false(schedule_due(&s, 0, NOON)); /* set since: tomorrow */
    assert_true(schedule_due(&s, 0, THREE + DAY));
}

static void words(void **state)
{
    static const char *const BAD[] = {"3:00",   "24:00", "03:60", "0300",
                                      "03:00 ", "-3:00", "a3:00", ""};
    struct audit_schedule s;
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_false(schedule_parse(BAD[i], "5m", 1, &s));
    assert_false(schedule_parse("03:00", "6m", 1, &s));
    assert_true(schedule_parse("23:59", "5m", 1, &s));
}

static void schedule_files(void **state)
{
    static const char *const BAD[] = {"",
                                      "\n",
                                      "daily 03:00 5m\n",
                                      "daily 03:00 5m 1",
                                      "daily 03:00 5m 1 2\n",
                                      "daily 03:00 5m 1x\n",
                                      "daily 03:00 5m 1234567890123\n",
                                      "weekly 03:00 5m 1\n",
                                      "daily 03:00 5m 1\ndaily 03:00 5m 1\n"};
    struct audit_schedule s, read;
    struct error err;
    char path[96];
    (void)state;
    snprintf(path, sizeof path, "%s/schedule", folder);
    assert_int_equal(schedule_read(path, &read, &err), OK);
    assert_null(read.budget);
    assert_true(schedule_parse("23:59", "30m", 1790000000, &s));
    assert_int_equal(schedule_write(path, &s, &err), OK);
    assert_int_equal(schedule_read(path, &read, &err), OK);
    assert_ptr_equal(read.budget, s.budget);
    assert_int_equal(read.minute, s.minute);
    assert_int_equal(read.since_s, s.since_s);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct buf text = {0};
        buf_puts(&text, BAD[i]);
        assert_int_equal(file_replace(path, &text, &err), OK);
        assert_int_equal(schedule_read(path, &read, &err), ERR_INPUT);
        assert_null(read.budget);
        buf_free(&text);
    }
    s.budget = NULL;
    assert_int_equal(schedule_write(path, &s, &err), OK);
    assert_int_equal(schedule_write(path, &s, &err), OK); /* off is off */
    assert_int_equal(access(path, F_OK), -1);
}

static int teardown(void **state)
{
    char path[128];
    (void)state;
    for (int32_t id = 1; id <= AUDIT_KEPT_MAX + 4; id++) {
        snprintf(path, sizeof path, "%s/%07d.json", reports, (int)id);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/12.json", reports);
    unlink(path);
    snprintf(path, sizeof path, "%s/key", reports);
    unlink(path);
    return rmdir(reports) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures), cmocka_unit_test(caps),  cmocka_unit_test(damage),
        cmocka_unit_test(due),        cmocka_unit_test(words), cmocka_unit_test(schedule_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
