/* Models on their way in: refused when a bit is wrong, resumed after every cut, in place only when
 * whole.  The calls that change a disk are replaced here, so that each of them can be the last one,
 * or fail. */
#include "init/store.h"

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
#include <sodium.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAF     LEAF_BYTES
#define BIG      (2 * LEAF + 700)
#define CUT_CODE 99

/* ---- the calls that change a disk ------------------------------------------------------------ */

static int calls, cut_at, fail_at; /* 0: never */

static bool fails(void)
{
    calls++;
    if (calls == cut_at)
        _exit(CUT_CODE);
    errno = EIO;
    return calls == fail_at;
}

/* A process that ends takes nothing back of what the kernel has: no disk has to be waited for. */
int fdatasync(int fd)
{
    (void)fd;
    return fails() ? -1 : 0;
}

int fsync(int fd)
{
    (void)fd;
    return fails() ? -1 : 0;
}

int rename(const char *from, const char *to)
{
    return fails() ? -1 : (int)syscall(SYS_rename, from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return fails() ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return fails() ? -1 : syscall(SYS_pwrite64, fd, bytes, n, at);
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    return fails() ? ENOSPC : (int)syscall(SYS_fallocate, fd, 0, at, n);
}

/* ---- a model -----------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    size_t bytes;
} FILES[] = {{"big", BIG}, {"empty", 0}, {"small", 5}};

static uint8_t big[BIG + 1];
static char text[4096];
static size_t text_n, manifest_n;
static struct store store;
static char root[64];

static const uint8_t *bytes_of(const char *name)
{
    return strcmp(name, "big") == 0 ? big : (const uint8_t *)"12345";
}

static void add_hash(struct text *t, const uint8_t *bytes, size_t n)
{
    uint8_t hash[32];
    char hex[65];
    crypto_hash_sha256(hash, bytes, n);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    text_printf(t, "%s", hex);
}

/* As tools/manifest.sh writes them. */
static void make_text(void)
{
    char leaves_bytes[1024];
    struct text t = text_over(text, sizeof text),
                leaves = text_over(leaves_bytes, sizeof leaves_bytes);
    for (size_t f = 0; f < 3; f++) {
        for (size_t at = 0; at < FILES[f].bytes; at += LEAF) {
            size_t left = FILES[f].bytes - at;
            add_hash(&leaves, bytes_of(FILES[f].name) + at, left < LEAF ? left : LEAF);
            text_printf(&leaves, "\n");
        }
    }
    for (size_t f = 0; f < 3; f++) {
        add_hash(&t, bytes_of(FILES[f].name), FILES[f].bytes);
        text_printf(&t, "  %zu  %s\n", FILES[f].bytes, FILES[f].name);
        if (f != 1)
            continue;
        add_hash(&t, (uint8_t *)leaves.data, leaves.len);
        text_printf(&t, "  %zu  leaves.sha256\n", leaves.len);
    }
    manifest_n = t.len;
    text_add(&t, leaves.data, leaves.len);
    text_n = t.len;
}

static int prepare(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_init_store.XXXXXX");
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 31 + i / 257 + i / LEAF);
    make_text();
    umask(0177); /* as the program has it, whose socket is its own */
    return sodium_init() < 0 || mkdtemp(root) == NULL;
}

static int clear(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s/* %s/.incoming", root, root);
    store = (struct store){.root = root, .lock = -1};
    calls = cut_at = fail_at = 0;
    return system(command);
}

static int finish(void **state)
{
    return clear(state) != 0 ? 1 : rmdir(root);
}

/* ---- a sender ----------------------------------------------------------------------------------
 */

static char answer[SERVANT_TEXT_BYTES];
static struct text said;

static struct text *ask(void)
{
    said = text_over(answer, sizeof answer);
    return &said;
}

static void says(const char *what)
{
    if (strstr(answer, what) == NULL)
        fail_msg("'%s' lacks '%s'", answer, what);
}

static bool begins(const char *name)
{
    memcpy(store.text, text, text_n);
    return store_begin(&store, name, text_n, ask());
}

struct stream {
    const uint8_t *bytes;
    size_t left;
};

static size_t give(void *context, void *bytes, size_t n)
{
    struct stream *s = context;
    n = n < s->left ? n : s->left;
    memcpy(bytes, s->bytes, n);
    s->bytes += n;
    s->left -= n;
    return n;
}

static bool sends(const char *file, uint32_t first, const uint8_t *bytes, size_t n)
{
    struct stream s = {bytes, n};
    return store_take(&store, "m", file, first, give, &s, ask());
}

/* What tools/send_model.py does: asks what is missing until nothing is. */
static void send_all(void)
{
    for (int round = 0; round < 8; round++) {
        char name[128];
        unsigned first, count;
        if (!begins("m")) {
            says("here already");
            return;
        }
        assert_true(store_missing(&store, "m", ask()));
        if (sscanf(answer, "%127s %u %u", name, &first, &count) != 3) {
            says("nothing is missing");
            assert_true(store_finish(&store, "m", ask()));
            return;
        }
        size_t from = (size_t)first * LEAF, end = from + (size_t)count * LEAF;
        size_t bytes = strcmp(name, "big") == 0 ? BIG : 5;
        assert_true(sends(name, first, bytes_of(name) + from, (end < bytes ? end : bytes) - from));
    }
    fail_msg("no end; still missing: %s", answer);
}

static void is_whole(void)
{
    char path[256];
    static uint8_t read_back[BIG + 1];
    for (size_t f = 0; f < 3; f++) {
        snprintf(path, sizeof path, "%s/m/%s", root, FILES[f].name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(read_back, 1, sizeof read_back, file), FILES[f].bytes);
        fclose(file);
        assert_memory_equal(read_back, bytes_of(FILES[f].name), FILES[f].bytes);
    }
    assert_true(store_is_whole(&store, "m", ask()));
    assert_true(store_verify(&store, "m", ask()));
    says("all of it");
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void comes_in_and_is_whole(void **state)
{
    (void)state;
    struct stat st;
    char path[256];
    assert_true(begins("m"));
    says("m begins: 3 files, 4 MiB");
    assert_true(store_missing(&store, "m", ask()));
    assert_string_equal(answer, "big 0 3\nsmall 0 1\n");
    assert_false(store_finish(&store, "m", ask()));
    says("not everything is here");
    store_list(&store, "", "", ask());
    says("on its way: 4 of 4 MiB are missing");
    send_all();
    says("m is complete: 3 files");
    is_whole();
    snprintf(path, sizeof path, "%s/m/big", root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    snprintf(path, sizeof path, "%s/m", root); /* whatever the mask of the program */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    store_list(&store, "m", " <", ask());
    says("m                                    0.002 GB  manifest ");
    says(" <\n");
    assert_false(begins("m"));
    says("here already");
    assert_true(store_delete(&store, "m", ask()));
    store_list(&store, "m", " <", ask());
    assert_string_equal(answer, "");
    assert_false(store_delete(&store, "m", ask()));
}

/* Every leaf, its first and its last bit. */
static void a_wrong_bit_is_refused_at_once(void **state)
{
    (void)state;
    static uint8_t wrong[BIG];
    for (uint32_t leaf = 0; leaf < 3; leaf++) {
        for (int last = 0; last < 2; last++) {
            char expected[64];
            size_t end = (leaf + 1) * (size_t)LEAF < BIG ? (leaf + 1) * (size_t)LEAF : BIG;
            clear(NULL);
            assert_true(begins("m"));
            memcpy(wrong, big, BIG);
            wrong[last ? end - 1 : (size_t)leaf * LEAF] ^= last ? 0x80 : 1;
            assert_false(sends("big", 0, wrong, BIG));
            snprintf(expected, sizeof expected, "MiB %u is not what the manifest says", leaf);
            says(expected);
            assert_true(store_missing(&store, "m", ask()));
            snprintf(expected, sizeof expected, "big %u %u\nsmall 0 1\n", leaf, 3 - leaf);
            assert_string_equal(answer, expected);
        }
    }
    send_all();
    is_whole();
}

static void a_stream_may_end_anywhere(void **state)
{
    (void)state;
    static const size_t ENDS[] = {0, 1, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF, BIG - 1, BIG};
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        clear(NULL);
        assert_true(begins("m"));
        bool whole = ENDS[i] % LEAF == 0 || ENDS[i] == BIG;
        assert_int_equal(sends("big", 0, big, ENDS[i]), whole);
        if (!whole)
            says("came in part");
        send_all();
        is_whole();
    }
    clear(NULL);
    assert_true(begins("m"));
    assert_false(sends("big", 0, big, BIG + 1));
    says("more bytes came");
    assert_false(sends("big", 3, big, 1));
    says("not so many");
    assert_false(sends("other", 0, big, 1));
    says("no such file");
    assert_false(sends("../x", 0, big, 1));
    send_all();
    is_whole();
}

/* The process ends at each call that changes the disk, once; then the sender goes on. */
static void goes_on_after_every_cut(void **state)
{
    (void)state;
    int cuts = 0;
    for (int n = 1; n < 200; n++) {
        clear(NULL);
        pid_t pid = fork();
        int status;
        assert_true(pid >= 0);
        if (pid == 0) {
            cut_at = n;
            send_all();
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 0)
            break;
        assert_int_equal(WEXITSTATUS(status), CUT_CODE);
        cuts++;
        send_all();
        is_whole();
    }
    print_message("%d cuts\n", cuts);
    assert_in_range(cuts, 20, 190);
}

/* A disk that refuses once: nothing is said to be there that is not, and the next try goes on. */
static void goes_on_after_every_refusal(void **state)
{
    (void)state;
    for (int n = 1; n < 60; n++) {
        clear(NULL);
        fail_at = n;
        if (begins("m") && sends("big", 0, big, BIG) && sends("small", 0, bytes_of("small"), 5))
            store_finish(&store, "m", ask());
        bool failed = calls >= n;
        fail_at = 0;
        send_all();
        is_whole();
        if (!failed)
            return;
    }
    fail_msg("more calls than there can be");
}

static void what_the_disk_changed_is_found(void **state)
{
    (void)state;
    char path[256];
    assert_true(begins("m"));
    assert_true(sends("big", 0, big, BIG));
    assert_true(sends("small", 0, bytes_of("small"), 5));
    snprintf(path, sizeof path, "%s/.incoming/m/big", root);
    int fd = open(path, O_WRONLY);
    assert_int_equal(syscall(SYS_pwrite64, fd, "?", 1, (off_t)LEAF + 12345), 1);
    close(fd);
    assert_false(store_finish(&store, "m", ask()));
    says("big: MiB 1 is not what the manifest says; 1 of 4");
    assert_true(store_missing(&store, "m", ask()));
    assert_string_equal(answer, "big 1 1\n");
    send_all();
    is_whole();
    snprintf(path, sizeof path, "%s/m/big", root);
    assert_int_equal(chmod(path, 0600), 0);
    fd = open(path, O_WRONLY);
    assert_int_equal(syscall(SYS_pwrite64, fd, "?", 1, (off_t)BIG - 1), 1);
    close(fd);
    assert_true(store_is_whole(&store, "m", ask()));
    assert_false(store_verify(&store, "m", ask()));
    says("big: MiB 2 is not what the manifest says");
    assert_int_equal(truncate(path, BIG - 1), 0);
    assert_false(store_is_whole(&store, "m", ask()));
    says("big: absent, or not of the size");
    store_list(&store, "", "", ask());
    says("not to be used: big: absent");
    assert_false(store_verify(&store, "m", ask()));
    says("big: MiB 0 can not be read; 3 of 4");
}

static void names_and_others_are_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", ".", "..", "a/b", "-a", "a-", ".a", "a b", "a\n"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_false(begins(BAD[i]));
        assert_false(store_missing(&store, BAD[i], ask()));
        assert_false(store_verify(&store, BAD[i], ask()));
        assert_false(store_delete(&store, BAD[i], ask()));
    }
    assert_true(begins("m"));
    text[0] = text[0] == '0' ? '1' : '0'; /* another manifest, of a file that may not come */
    assert_false(begins("m"));
    says("another model is on its way");
    make_text();
    /* Somebody else writes. */
    int fd = open(root, O_RDONLY);
    assert_int_equal(syscall(SYS_flock, fd, 2), 0);
    assert_false(sends("big", 0, big, BIG));
    says("is being written or removed");
    close(fd);
    assert_true(store_delete(&store, "m", ask()));
}

static void a_disk_too_small_is_known_before(void **state)
{
    (void)state;
    /* After two folders: room for the first file, and for the last. */
    for (int call = 3; call <= 6; call += 3) {
        clear(NULL);
        fail_at = call;
        assert_false(begins("m"));
        says("No space left");
        fail_at = 0;
        assert_false(store_delete(&store, "m", ask())); /* nothing is left of it */
    }
    assert_true(begins("m"));
}

static const char *parse(const char *manifest, size_t n, const char *leaves, size_t leaves_n)
{
    return leaves_parse(&store.leaves, manifest, n, leaves, leaves_n, NULL);
}

static void manifests_are_strict(void **state)
{
    (void)state;
    const char *leaves = text + manifest_n;
    size_t leaves_n = text_n - manifest_n;
    assert_null(parse(text, manifest_n, leaves, leaves_n));
    assert_int_equal(leaves_divide(text, text_n), manifest_n);
    for (size_t n = 0; n < manifest_n; n++)
        assert_non_null(parse(text, n, leaves, leaves_n));
    for (size_t n = 0; n < leaves_n; n++)
        assert_non_null(parse(text, manifest_n, leaves, n));
    for (size_t i = 0; i < text_n; i++) { /* a byte changed anywhere but in a hash of a file */
        char kept = text[i];
        text[i] = (char)(kept == ' ' ? '_' : ' ');
        assert_non_null(parse(text, manifest_n, leaves, leaves_n));
        text[i] = kept;
    }
    assert_null(parse(text, manifest_n, leaves, leaves_n));
    assert_int_equal(leaves_owner(&store.leaves, 3)->first, 3);
    assert_null(leaves_owner(&store.leaves, 4));
    assert_int_equal(leaves_size(leaves_find(&store.leaves, "big"), 2), 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(comes_in_and_is_whole, clear),
        cmocka_unit_test_setup(a_wrong_bit_is_refused_at_once, clear),
        cmocka_unit_test_setup(a_stream_may_end_anywhere, clear),
        cmocka_unit_test_setup(goes_on_after_every_cut, clear),
        cmocka_unit_test_setup(goes_on_after_every_refusal, clear),
        cmocka_unit_test_setup(what_the_disk_changed_is_found, clear),
        cmocka_unit_test_setup(names_and_others_are_refused, clear),
        cmocka_unit_test_setup(a_disk_too_small_is_known_before, clear),
        cmocka_unit_test_setup(manifests_are_strict, clear),
    };
    return cmocka_run_group_tests_name("store", tests, prepare, finish);
}
