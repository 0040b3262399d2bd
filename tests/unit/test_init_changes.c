/* Who may change what, and the log of it: roles by the table of commands, lines that stay. */
#include "config/box.h"
#include "init/changes.h"
#include "init/commands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96], older[96];
static char told[2 * CHANGES_FILE_BYTES + 1];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_init_changes.XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/changes", folder);
    snprintf(older, sizeof older, "%s/changes.1", folder);
    return 0;
}

/* Where root runs the tests on ext4 the files are append-only; turning over takes that off. */
static int remove_folder(void **state)
{
    (void)state;
    char command[192];
    snprintf(command, sizeof command, "chattr -a %s/* 2>/dev/null; rm -rf %s", folder, folder);
    return system(command);
}

static const char *tail(size_t count)
{
    struct text t = text_over(told, sizeof told);
    return changes_tail(path, count, &t) ? told : NULL;
}

/* What stands behind the time, which is 21 characters long. */
static const char *behind_time(const char *line)
{
    assert_true(strlen(line) > 21);
    assert_memory_equal(line + 4, "-", 1);
    assert_memory_equal(line + 19, "Z ", 2);
    return line + 21;
}

static void lines_are_appended(void **state)
{
    (void)state;
    assert_null(tail(1));
    assert_true(changes_add(path, "anna", "operator", "profile set fast"));
    assert_string_equal(behind_time(tail(9)), "anna operator: profile set fast\n");
    assert_true(changes_add(path, "serial", "admin", "a\nb\x1b[2J"));
    assert_string_equal(behind_time(tail(1)), "serial admin: a?b?[2J\n");
    char longest[2 * CHANGES_LINE_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_true(changes_add(path, longest, longest, longest));
    size_t n = strlen(tail(1));
    assert_true(n < CHANGES_LINE_BYTES && told[n - 1] == '\n');
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* A power cut leaves half a line: it stays, and the next one begins on its own. */
static void a_cut_line_ends(void **state)
{
    (void)state;
    FILE *f = fopen(path, "w");
    fputs("2026-01-01T00:00:00Z an", f);
    fclose(f);
    assert_true(changes_add(path, "anna", "admin", "reboot"));
    assert_memory_equal(tail(2), "2026-01-01T00:00:00Z an\n", 24);
    assert_string_equal(behind_time(told + 24), "anna admin: reboot\n");
}

static void a_full_file_turns_over(void **state)
{
    (void)state;
    struct stat st;
    char what[64];
    int added = 0;
    for (int turns = 0; turns < 2; added++) {
        snprintf(what, sizeof what, "keys create k%d", added);
        assert_true(changes_add(path, "anna", "operator", what));
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_size <= CHANGES_FILE_BYTES);
        turns += added > 0 && st.st_size < 2 * (off_t)strlen(what) + 64;
        assert_true(added < 20000);
    }
    assert_int_equal(stat(older, &st), 0);
    assert_true(st.st_size > CHANGES_FILE_BYTES - CHANGES_LINE_BYTES);
    snprintf(what, sizeof what, "keys create k%d\n", added - 1);
    assert_non_null(strstr(tail(5), what)); /* the newest, and four of the older file */
    int lines = 0;
    for (const char *p = told; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    assert_int_equal(lines, 5);
}

static void no_link_is_followed(void **state)
{
    (void)state;
    char other[96];
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(symlink(other, path), 0);
    assert_false(changes_add(path, "anna", "admin", "reboot"));
    assert_int_not_equal(access(other, F_OK), 0);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(changes_add(path, "anna", "admin", "reboot"));
}

/* ---- roles --------------------------------------------------------------------------------------
 */

static const struct {
    const char *line;
    enum role least; /* that may */
    bool changes;
} ROWS[] = {
    {"status", ROLE_VIEWER, false},
    {"status --json", ROLE_VIEWER, false},
    {"log 5", ROLE_VIEWER, false},
    {"log changes", ROLE_VIEWER, false},
    {"metrics", ROLE_VIEWER, false},
    {"help", ROLE_VIEWER, false},
    {"keys list", ROLE_VIEWER, false},
    {"keys list --json", ROLE_VIEWER, false},
    {"keys create anna", ROLE_OPERATOR, true},
    {"keys pass", ROLE_OPERATOR, true},
    {"profile show", ROLE_VIEWER, false},
    {"profile set fast", ROLE_OPERATOR, true},
    {"profile sho", ROLE_OPERATOR, true},
    {"audit report 3 --html", ROLE_VIEWER, false},
    {"audit all", ROLE_OPERATOR, true},
    {"reboot", ROLE_OPERATOR, true},
    {"net", ROLE_VIEWER, false},
    {"net --json", ROLE_VIEWER, false},
    {"net -", ROLE_ADMIN, true},
    {"net dhcp", ROLE_ADMIN, true},
    {"settings hostname x", ROLE_ADMIN, true},
    {"claim", ROLE_VIEWER, false}, /* over SSH there is no code to see any more */
    {"top", ROLE_VIEWER, false},
    {"gpu", ROLE_VIEWER, false},
    {"gpu --json", ROLE_VIEWER, false},
    {"keys", ROLE_VIEWER, false},
    {"audit", ROLE_VIEWER, false},
    {"audit pins", ROLE_VIEWER, false},
    {"audit pin next", ROLE_OPERATOR, true},
    {"support", ROLE_VIEWER, false},
    {"time", ROLE_VIEWER, false},
    {"time set 2026-11-30T12:00:00Z", ROLE_ADMIN, true},
    {"model list", ROLE_VIEWER, false},
    {"model verify demo", ROLE_VIEWER, false},
    {"model use demo --try", ROLE_ADMIN, true},
    {"model receive demo", ROLE_ADMIN, true},
    {"model delete demo", ROLE_ADMIN, true},
    {"ssh-keys list", ROLE_VIEWER, false},
    {"ssh-keys delete anna", ROLE_ADMIN, true},
    {"tls", ROLE_VIEWER, false},
    {"tls show", ROLE_VIEWER, false},
    {"tls install", ROLE_ADMIN, true},
    {"update", ROLE_ADMIN, true},
    {"update status", ROLE_VIEWER, false},
    {"rollback", ROLE_ADMIN, true},
    {"secure-boot", ROLE_VIEWER, false},
    {"secure-boot enrol", ROLE_ADMIN, true},
    {"factory-reset", ROLE_ADMIN, true},
    {"poweroff", ROLE_ADMIN, true},
};

static void roles_may_what_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct request request;
        assert_true(request_from_line(&request, ROWS[i].line, strlen(ROWS[i].line)));
        const struct command *command = command_find(request.word[0]);
        assert_non_null(command);
        assert_int_equal(command_changes(command, &request), ROWS[i].changes);
        for (int role = 0; role < ROLE_COUNT; role++)
            assert_int_equal(command_allowed(command, &request, (enum role)role),
                             role >= (int)ROWS[i].least);
    }
}

/* No command is missing above: one that is added has to be thought about. */
static void every_command_is_tested(void **state)
{
    (void)state;
    for (size_t k = 0; command_at(k) != NULL; k++) {
        const char *name = command_at(k)->name;
        bool found = strcmp(name, "prefixes") == 0 || strcmp(name, "exit") == 0;
        for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
            found = found || strncmp(ROWS[i].line, name, strlen(name)) == 0;
        if (!found)
            fail_msg("no row for %s", name);
    }
}

static void role_names_are_read(void **state)
{
    (void)state;
    enum role role;
    for (int i = 0; i < ROLE_COUNT; i++) {
        assert_true(role_parse(role_name((enum role)i), &role));
        assert_int_equal(role, i);
    }
    assert_false(role_parse("root", &role));
    assert_false(role_parse("", &role));
    assert_false(role_parse("adminx", &role));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_are_appended),
        TEST(a_cut_line_ends),
        TEST(a_full_file_turns_over),
        TEST(no_link_is_followed),
        cmocka_unit_test(roles_may_what_the_table_says),
        cmocka_unit_test(every_command_is_tested),
        cmocka_unit_test(role_names_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
