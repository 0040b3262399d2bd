/* What init keeps on a disk: files, their copies, partitions by label, the empty file system, SSH
 * keys. */
#include "config/box.h"
#include "init/disk.h"
#include "init/files.h"
#include "init/format.h"
#include "init/sshkeys.h"
#include "init/stored.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_A "aB3dE6gH 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef somebody\n"
#define KEY_LIMITED(limits)                                                                        \
    "aB3dE6gH 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef somebody " limits   \
    "\n"
#define SSH_REST "IGo9WjIbIYIGblrDEF2iVxi227CC7l5eOoHR9eAuRAA"
#define SSH_KEY  "AAAAC3NzaC1lZDI1NTE5AAAAI" SSH_REST
#define SSH_A    "ssh-ed25519 " SSH_KEY " somebody\n"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][128]; /* as many as one call needs at once */
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_init_storage.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void put(const char *name, const char *bytes, size_t n)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void holds(const char *name, const char *text)
{
    char bytes[4096];
    ssize_t n = file_load(in_folder(name), bytes, sizeof bytes);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void files_are_loaded_bounded(void **state)
{
    (void)state;
    char bytes[8];
    errno = 0;
    assert_int_equal(file_load(in_folder("none"), bytes, sizeof bytes), -1);
    assert_int_equal(errno, ENOENT);
    put("eight", "12345678", 8);
    assert_int_equal(file_load(in_folder("eight"), bytes, 8), 8);
    assert_int_equal(file_load(in_folder("eight"), bytes, 7), -1);
    assert_int_equal(errno, EFBIG);
    put("empty", "", 0);
    assert_int_equal(file_load(in_folder("empty"), bytes, 8), 0);
    assert_int_equal(symlink(in_folder("eight"), in_folder("link")), 0);
    assert_int_equal(file_load(in_folder("link"), bytes, 8), -1);
    assert_int_equal(errno, ELOOP);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(file_load(in_folder("fifo"), bytes, 8), -1);
    assert_int_equal(file_load(folder, bytes, 8), -1);
    assert_int_equal(errno, EINVAL);
}

static void files_are_replaced_whole(void **state)
{
    (void)state;
    struct stat st;
    assert_true(file_save(in_folder("file"), "one", 3, getuid()));
    holds("file", "one");
    assert_int_equal(stat(in_folder("file"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* What a power cut left beside it, and a link that somebody put there. */
    put("file.new", "half", 4);
    assert_true(file_save(in_folder("file"), "two", 3, getuid()));
    put("victim", "victim", 6);
    assert_int_equal(symlink(in_folder("victim"), in_folder("file.new")), 0);
    assert_true(file_save(in_folder("file"), "three", 5, getuid()));
    holds("file", "three");
    holds("victim", "victim");
    assert_int_equal(access(in_folder("file.new"), F_OK), -1);
    /* A disk that is full in the middle of the new one: the old one stays, nothing is left over. */
    struct rlimit old, two = {2, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    two.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &two), 0);
    bool saved = file_save(in_folder("file"), "four", 4, getuid());
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_false(saved);
    holds("file", "three");
    assert_int_equal(access(in_folder("file.new"), F_OK), -1);
}

static void folders_are_folders(void **state)
{
    (void)state;
    struct stat st;
    assert_true(folder_make(in_folder("dir"), 0700, getuid()));
    assert_int_equal(chmod(in_folder("dir"), 0777), 0);
    assert_true(folder_make(in_folder("dir"), 0700, getuid()));
    assert_int_equal(stat(in_folder("dir"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    put("nodir", "x", 1);
    assert_false(folder_make(in_folder("nodir"), 0700, getuid()));
    assert_int_equal(symlink(in_folder("dir"), in_folder("dirlink")), 0);
    assert_false(folder_make(in_folder("dirlink"), 0755, getuid()));
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void shapes_are_strict(void **state)
{
    (void)state;
    static const char HOST_KEY[] =
        "\0\0\0\x0bssh-ed25519\0\0\0\x40"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        bool (*good)(const char *bytes, size_t n);
        const char *bytes;
        size_t n; /* 0: strlen */
        bool result;
    } CASES[] = {
        {stored_keys_good, "", 0, true},
        {stored_keys_good, "# comment\n\n" KEY_A, 0, true},
        {stored_keys_good, KEY_A KEY_A, 0, true},
        {stored_keys_good, KEY_A, sizeof KEY_A - 2, false},
        {stored_keys_good, KEY_A "x\n", 0, false},
        {stored_keys_good, KEY_LIMITED("rate=60 expires=2027-12-31"), 0, true},
        {stored_keys_good, KEY_LIMITED("rate=60 "), 0, false},
        {stored_keys_good, KEY_LIMITED("rate"), 0, false},
        {stored_keys_good, KEY_LIMITED("rate="), 0, false},
        {stored_keys_good, KEY_LIMITED("=60"), 0, false},
        {stored_keys_good, "\n\0\n", 3, false},
        {stored_keys_good, " " KEY_A, 0, false},
        {stored_keys_good, "# \x80\n", 0, false},
        {stored_authorized_good, "", 0, false},
        {stored_authorized_good, SSH_A, 0, true},
        {stored_authorized_good, SSH_A, sizeof SSH_A - 2, false},
        {stored_authorized_good, "# only a comment about ssh-ed25519\n", 0, false},
        {stored_authorized_good, "ssh-ed25519 " SSH_KEY "\n", 0, true},
        {stored_authorized_good, "ssh-ed25519 " SSH_KEY "A somebody\n", 0, false},
        {stored_authorized_good, "restrict ssh-ed25519 " SSH_KEY " somebody\n", 0, true},
        {stored_authorized_good, "ssh-rsa AAAA somebody\n" SSH_A, 0, true},
        {stored_authorized_good, "ssh-rsa AAAA somebody\n", 0, false},
        {stored_host_key_good, HOST_KEY, sizeof HOST_KEY - 1, true},
        {stored_host_key_good, HOST_KEY, sizeof HOST_KEY - 2, false},
        {stored_host_key_good, HOST_KEY, sizeof HOST_KEY, false},
        {stored_host_key_good, HOST_KEY + 1, sizeof HOST_KEY - 2, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        size_t n = CASES[i].n == 0 ? strlen(CASES[i].bytes) : CASES[i].n;
        if (CASES[i].good(CASES[i].bytes, n) != CASES[i].result)
            fail_msg("case %zu", i);
    }
}

/* Every byte of a line, made any other: the shape holds for few of them, and nothing is overrun. */
static void keys_notice_changed_bytes(void **state)
{
    (void)state;
    size_t n = strlen(KEY_A);
    int unnoticed = 0;
    for (size_t at = 0; at < n; at++) {
        for (int byte = 0; byte < 256; byte++) {
            char *copy = malloc(n); /* exactly as long, for the sanitizer */
            assert_non_null(copy);
            memcpy(copy, KEY_A, n);
            copy[at] = (char)byte;
            unnoticed += byte != KEY_A[at] && stored_keys_good(copy, n);
            free(copy);
        }
    }
    /* Letters of the id and digits of the hash for each other, any printable byte in the name, and
     * a comment sign in front. */
    assert_in_range(unnoticed, 1, 8 * 61 + 64 * 15 + 8 * 93 + 2);
    for (size_t cut = 1; cut < n; cut++)
        assert_false(stored_keys_good(KEY_A, cut));
}

static void damage_brings_back_the_copy(void **state)
{
    (void)state;
    char path[128], copies[128];
    const struct stored file = {"keys", path, getuid(), stored_keys_good};
    snprintf(path, sizeof path, "%s", in_folder("keys"));
    assert_true(folder_make(in_folder("good"), 0700, getuid()));
    snprintf(copies, sizeof copies, "%s", in_folder("good"));
    assert_int_equal(stored_check(&file, copies), STORED_ABSENT);
    put("keys", "dam\x01ge\n", 7);
    assert_int_equal(stored_check(&file, copies), STORED_LOST);
    holds("keys.bad", "dam\x01ge\n");
    assert_int_equal(access(file.path, F_OK), -1);
    put("keys", KEY_A, strlen(KEY_A));
    assert_int_equal(stored_check(&file, copies), STORED_GOOD);
    holds("good/keys", KEY_A);
    put("keys", "", 0);
    put("keys", KEY_A "# more\n", strlen(KEY_A "# more\n"));
    assert_int_equal(stored_check(&file, copies), STORED_GOOD);
    holds("good/keys", KEY_A "# more\n");
    put("keys", KEY_A, strlen(KEY_A) - 1);
    assert_int_equal(stored_check(&file, copies), STORED_RESTORED);
    holds("keys", KEY_A "# more\n");
    assert_int_equal(unlink(file.path), 0);
    assert_int_equal(stored_check(&file, copies), STORED_RESTORED);
    /* A copy that is damaged too is no help, and is never used. */
    put("good/keys", "x", 1);
    put("keys", "y", 1);
    assert_int_equal(stored_check(&file, copies), STORED_LOST);
}

/* ---- partitions ------------------------------------------------------------------------------ */

static void partition(const char *disk, const char *device, const char *label)
{
    char path[256], target[256], text[256];
    snprintf(path, sizeof path, "%s/devices/%s/%s", folder, disk, device);
    char command[512];
    snprintf(command, sizeof command, "mkdir -p %s %s/class", path, folder);
    assert_int_equal(system(command), 0);
    snprintf(target, sizeof target, "../devices/%s/%s", disk, device);
    snprintf(path, sizeof path, "class/%s", device);
    assert_int_equal(symlink(target, in_folder(path)), 0);
    snprintf(path, sizeof path, "devices/%s/%s/uevent", disk, device);
    int n = snprintf(text, sizeof text,
                     "MAJOR=254\nMINOR=1\nDEVNAME=%s\nDEVTYPE=partition\nPARTN=1\n%s%s\n", device,
                     label[0] == '\0' ? "" : "PARTNAME=", label);
    put(path, text, (size_t)n);
}

static void disks_are_found_by_all_labels(void **state)
{
    (void)state;
    struct disk disk;
    char class[128];
    snprintf(class, sizeof class, "%s", in_folder("class"));
    assert_int_equal(disk_find(&disk, class), DISK_ABSENT);
    partition("sda", "sda1", "config");
    partition("vda", "vda1", "esp");
    partition("vda", "vda4", "config");
    partition("vda", "vda5", "log");
    partition("vda", "vda3", "");
    assert_int_equal(disk_find(&disk, class), DISK_ABSENT);
    partition("vda", "vda6", "models");
    /* A stick with a partition called config is not the box's disk. */
    assert_int_equal(disk_find(&disk, class), DISK_FOUND);
    assert_string_equal(disk.name, "vda");
    assert_string_equal(disk.device[DISK_ESP], "vda1");
    assert_string_equal(disk.device[DISK_CONFIG], "vda4");
    assert_string_equal(disk.device[DISK_MODELS], "vda6");
    /* One disk with models beside it is attached, wherever it is; of two neither. */
    assert_string_equal(disk.device[DISK_ATTACHED], "");
    partition("sdb", "sdb1", "v4box-models");
    assert_int_equal(disk_find(&disk, class), DISK_FOUND);
    assert_string_equal(disk.device[DISK_ATTACHED], "sdb1");
    partition("vda", "vda8", "v4box-models");
    assert_int_equal(disk_find(&disk, class), DISK_FOUND);
    assert_string_equal(disk.device[DISK_ATTACHED], "");
    partition("sda", "sda2", "esp");
    partition("sda", "sda3", "log");
    partition("sda", "sda4", "models");
    assert_int_equal(disk_find(&disk, class), DISK_AMBIGUOUS);
    assert_int_equal(unlink(in_folder("class/sda4")), 0);
    partition("vda", "vda7", "models");
    assert_int_equal(disk_find(&disk, class), DISK_AMBIGUOUS);
}

static void partitions_are_parsed_strictly(void **state)
{
    (void)state;
    static const char GOOD[] = "DEVNAME=vda4\nDEVTYPE=partition\nPARTNAME=config\n";
    static const struct {
        const char *uevent, *link;
    } BAD[] = {
        {"", "a/vda/vda4"},
        {"DEVNAME=vda\nDEVTYPE=disk\n", "a/block/vda"},
        {"DEVNAME=vda4\nDEVTYPE=disk\nPARTNAME=config\n", "a/vda/vda4"},
        {"DEVNAME=vda4\nDEVTYPE=partition\nPARTNAME=\n", "a/vda/vda4"},
        {"DEVNAME=vda4\nDEVTYPE=partition\nPARTNAME=configX\n", "a/vda/vda4"},
        {"DEVNAME=../x\nDEVTYPE=partition\nPARTNAME=config\n", "a/vda/vda4"},
        {"DEVNAME=a/b\nDEVTYPE=partition\nPARTNAME=config\n", "a/vda/vda4"},
        {"DEVNAME=vda4\nDEVTYPE=partition\nPARTNAME=config\n", "vda4"},
        {"DEVNAME=vda4\nDEVTYPE=partition\nPARTNAME=config\n", "/vda4"},
        {"DEVNAME=0123456789012345678901234567890123456789\nDEVTYPE=partition\nPARTNAME=config\n",
         "a/vda/vda4"},
    };
    struct disk_partition p;
    assert_true(disk_partition_parse(&p, GOOD, strlen(GOOD), "../x/block/vda/vda4"));
    assert_string_equal(p.disk, "vda");
    assert_int_equal(p.part, DISK_CONFIG);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        if (disk_partition_parse(&p, BAD[i].uevent, strlen(BAD[i].uevent), BAD[i].link))
            fail_msg("case %zu", i);
    for (size_t n = 0; n < sizeof GOOD - 2; n++) {
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, GOOD, n);
        assert_false(disk_partition_parse(&p, copy, n, "a/vda/vda4"));
        free(copy);
    }
}

/* ---- the empty file system ------------------------------------------------------------------- */

struct record {
    uint32_t block;
    char fill;
};

static void put_template(const char *name, uint32_t blocks, const struct record *records, int n)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    uint32_t numbers[2] = {blocks, (uint32_t)n};
    fwrite("V4BOXFS1", 1, 8, f);
    fwrite(numbers, 4, 2, f);
    for (int i = 0; i < n; i++) {
        fwrite(&records[i].block, 4, 1, f);
        for (int k = 0; k < STORAGE_BLOCK_BYTES; k++)
            putc(records[i].fill, f);
    }
    assert_int_equal(fclose(f), 0);
}

static void put_device(char fill, int blocks)
{
    FILE *f = fopen(in_folder("device"), "wb");
    assert_non_null(f);
    for (int i = 0; i < blocks * STORAGE_BLOCK_BYTES; i++)
        putc(fill, f);
    assert_int_equal(fclose(f), 0);
}

static char byte_of(int block, int at)
{
    char byte = '?';
    int fd = open(in_folder("device"), O_RDONLY);
    assert_int_equal(pread(fd, &byte, 1, (off_t)block * STORAGE_BLOCK_BYTES + at), 1);
    close(fd);
    return byte;
}

static void formatting_overwrites_everything(void **state)
{
    (void)state;
    static const struct record RECORDS[] = {{0, 'a'}, {2, 'b'}, {5, 'c'}};
    put_template("template", 7, RECORDS, 3);
    put_device('x', 8);
    assert_false(format_is_blank(in_folder("device")));
    assert_true(format_device(in_folder("device"), in_folder("template")));
    static const char WANTED[] = {'a', 0, 'b', 0, 0, 'c', 0, 'x'};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(byte_of(i, 0), WANTED[i]);
        assert_int_equal(byte_of(i, STORAGE_BLOCK_BYTES - 1), WANTED[i]);
    }
    put_device('\0', 1);
    assert_true(format_is_blank(in_folder("device")));
    assert_false(format_is_blank(in_folder("none")));
    put("short", "\0\0\0\0", 4);
    assert_false(format_is_blank(in_folder("short")));
}

static void a_cut_off_format_is_blank(void **state)
{
    (void)state;
    static const struct record RECORDS[] = {{0, 'a'}, {2, 'b'}, {5, 'c'}};
    put_template("whole", 7, RECORDS, 3);
    struct stat st;
    assert_int_equal(stat(in_folder("whole"), &st), 0);
    put_device('x', 8);
    assert_int_equal(truncate(in_folder("whole"), st.st_size - 1), 0);
    assert_false(format_device(in_folder("device"), in_folder("whole")));
    assert_int_equal(errno, EINVAL);
    assert_true(format_is_blank(in_folder("device")));
}

static void bad_templates_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t blocks;
        struct record records[2];
        int n;
    } CASES[] = {
        {7, {{0, 'a'}, {7, 'b'}}, 2},
        {7, {{1, 'a'}, {2, 'b'}}, 2},
        {7, {{0, 'a'}, {0, 'b'}}, 2},
        {7, {{0, 'a'}}, 0},
        {STORAGE_BLOCKS_MAX + 1, {{0, 'a'}}, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        put_device('x', 8);
        put_template("bad", CASES[i].blocks, CASES[i].records, CASES[i].n);
        if (format_device(in_folder("device"), in_folder("bad")))
            fail_msg("case %zu", i);
    }
    put("magic", "V4BOXFS2\1\0\0\0\1\0\0\0", 16);
    put_device('x', 8);
    assert_false(format_device(in_folder("device"), in_folder("magic")));
    assert_int_equal(byte_of(0, 0), 'x');
    assert_false(format_device(in_folder("none"), in_folder("magic")));
    assert_false(format_device(in_folder("device"), in_folder("none")));
}

/* ---- SSH keys -------------------------------------------------------------------------------- */

static void ssh_keys_come_and_go(void **state)
{
    (void)state;
    char bytes[1024], path[128];
    struct text t = text_over(bytes, sizeof bytes);
    snprintf(path, sizeof path, "%s", in_folder("authorized_keys"));
    assert_null(ssh_keys_list(path, &t));
    assert_int_equal(t.len, 0);
    assert_non_null(ssh_keys_delete(path, "anna"));
    assert_null(ssh_keys_add(path, "ssh-ed25519", SSH_KEY, "anna", ROLE_VIEWER));
    assert_null(ssh_keys_add(path, "ssh-ed25519", SSH_KEY, "ann", ROLE_ADMIN));
    static const char *const BAD[][3] = {
        {"ssh-ed25519", SSH_KEY, "anna"}, {"ssh-rsa", SSH_KEY, "bert"},
        {"ssh-ed25519", "AAAA", "bert"},  {"ssh-ed25519", SSH_KEY, ""},
        {"ssh-ed25519", SSH_KEY, "b\n"},  {"ssh-ed25519", SSH_KEY, "b\" ssh-ed25519"},
        {"ssh-ed25519", SSH_KEY, "a b"},  {"ssh-ed25519", SSH_KEY, "b\\"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_non_null(ssh_keys_add(path, BAD[i][0], BAD[i][1], BAD[i][2], ROLE_ADMIN));
    holds("authorized_keys", "command=\"as viewer anna\" ssh-ed25519 " SSH_KEY " anna\n"
                             "command=\"as admin ann\" ssh-ed25519 " SSH_KEY " ann\n");
    assert_null(ssh_keys_delete(path, "anna"));
    assert_non_null(ssh_keys_delete(path, "anna"));
    assert_non_null(ssh_keys_delete(path, "nn"));
    holds("authorized_keys", "command=\"as admin ann\" ssh-ed25519 " SSH_KEY " ann\n");
    assert_null(ssh_keys_list(path, &t));
    assert_string_equal(bytes, "admin    ssh-ed25519 " SSH_KEY " ann\n");
}

/* Lines that somebody else wrote are an admin's; ours show their role. */
static void ssh_keys_list_their_roles(void **state)
{
    (void)state;
    static const char LINES[] = "# note\n\nssh-ed25519 " SSH_KEY " anna\n"
                                "command=\"as operator bert\" ssh-ed25519 " SSH_KEY " bert\n"
                                "command=\"as nobody carl\" ssh-ed25519 " SSH_KEY " carl\n"
                                "command=\"as viewer";
    char bytes[1024];
    struct text t = text_over(bytes, sizeof bytes);
    put("authorized_keys", LINES, sizeof LINES - 1);
    assert_null(ssh_keys_list(in_folder("authorized_keys"), &t));
    assert_string_equal(bytes, "admin    ssh-ed25519 " SSH_KEY " anna\n"
                               "operator ssh-ed25519 " SSH_KEY " bert\n"
                               "admin    command=\"as nobody carl\" ssh-ed25519 " SSH_KEY " carl\n"
                               "admin    command=\"as viewer\n");
}

static void ssh_keys_stop_at_the_limit(void **state)
{
    (void)state;
    char path[128], name[32];
    snprintf(path, sizeof path, "%s", in_folder("authorized_keys"));
    int added = 0;
    const char *wrong = NULL;
    for (; wrong == NULL && added < 2000; added++) {
        snprintf(name, sizeof name, "n%d", added);
        wrong = ssh_keys_add(path, "ssh-ed25519", SSH_KEY, name, ROLE_ADMIN);
    }
    assert_string_equal(wrong, "the file is full");
    assert_in_range(added, 500, 700);
    assert_null(ssh_keys_delete(path, "n0"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that grows over its limit is an error, not the end */
    const struct CMUnitTest tests[] = {
        TEST(files_are_loaded_bounded),
        TEST(files_are_replaced_whole),
        TEST(folders_are_folders),
        TEST(shapes_are_strict),
        TEST(keys_notice_changed_bytes),
        TEST(damage_brings_back_the_copy),
        TEST(disks_are_found_by_all_labels),
        TEST(partitions_are_parsed_strictly),
        TEST(formatting_overwrites_everything),
        TEST(a_cut_off_format_is_blank),
        TEST(bad_templates_are_refused),
        TEST(ssh_keys_come_and_go),
        TEST(ssh_keys_list_their_roles),
        TEST(ssh_keys_stop_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
