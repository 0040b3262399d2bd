/*
 * The file of prefixes, over the toy network: what was said before a restart is continued behind
 * it, and a file that is not to the bit what this engine wrote is as good as none.  That the state
 * of the real network survives is the matter of tests/serve.
 */
#include "tests/unit/engine_toy.h"

#include "engine/model/prefix_file.h"
#include "engine/model/prefix_tree.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (256 * 1024)
#define PIECES   16

static char path[64];
static const uint8_t KEY[PREFIX_FILE_KEY_BYTES] = "thirty-two bytes, known to a few";

static struct engine *start(uint64_t pieces, const uint8_t *key)
{
    static struct model model;
    model.alive = 1;
    toy.steps = toy.n_entries = toy.n_sequences = toy.models_closed = 0;
    toy.fail_sequence = -1;
    struct engine *engine = NULL;
    struct error err;
    struct engine_options options = {.sessions_max = 2,
                                     .context_max = CONTEXT,
                                     .queue_max = 8,
                                     .prefix_bytes = pieces * 2 * TOY_PIECE_BYTES,
                                     .prefix_path = path};
    memcpy(options.prefix_key, key, sizeof options.prefix_key);
    assert_int_equal(engine_create(&model, &options, &engine, &err), OK);
    return engine;
}

static int32_t ask(struct engine *engine, uint64_t seed, int32_t n, uint64_t name)
{
    struct engine_request r = request(prompt(seed, n), n, 9);
    r.reuse_namespace = name;
    return converse(engine, &r);
}

static void save(struct engine *engine)
{
    struct error err;
    if (engine_save(engine, &err) != OK)
        fail_msg("%s", err.text);
}

/* A file of two texts and two names. */
static void write_file(void)
{
    struct engine *engine = start(PIECES, KEY);
    ask(engine, 1, 300, NAMESPACE_A);
    ask(engine, 1, 600, NAMESPACE_A);
    ask(engine, 2, 200, NAMESPACE_B);
    save(engine);
    engine_end(engine);
}

static size_t read_file(uint8_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, FILE_MAX, file);
    fclose(file);
    assert_in_range(n, 1000, FILE_MAX - 1);
    return n;
}

static void put_file(const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static bool there(void)
{
    return access(path, F_OK) == 0;
}

/* ---- a good file ---------------------------------------------------------------------------- */

static void test_restart(void **state)
{
    (void)state;
    unlink(path);
    struct engine *engine = start(PIECES, KEY);
    assert_int_equal(ask(engine, 1, 700, NAMESPACE_A), 0);
    assert_false(there()); /* nothing is written unless asked for */
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_true(stats.prefix_file && stats.prefix_saved_s == 0);
    assert_in_range(stats.prefix_blocks, 5, stats.prefix_blocks_max);
    save(engine);
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.prefix_saved_blocks, stats.prefix_blocks);
    assert_int_not_equal(stats.prefix_saved_s, 0);
    engine_end(engine);
    for (int life = 0; life < 3; life++) {
        engine = start(PIECES, KEY);
        engine_stats_get(engine, &stats);
        assert_true(stats.prefix_blocks >= 5);
        assert_int_equal(ask(engine, 1, 600, NAMESPACE_A), 4 * 128);
        assert_int_equal(ask(engine, 1, 600, NAMESPACE_B), life == 0 ? 0 : 4 * 128);
        save(engine);
        engine_end(engine);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

/* A smaller cache takes what it has room for, and gives only that. */
static void test_smaller(void **state)
{
    (void)state;
    for (uint64_t pieces = 1; pieces < 8; pieces++) {
        write_file();
        struct engine *engine = start(pieces, KEY);
        struct engine_stats stats;
        engine_stats_get(engine, &stats);
        assert_true(stats.prefix_blocks <= (int32_t)pieces);
        assert_true(stats.prefix_tails >= 1 && stats.prefix_tails <= stats.prefix_blocks);
        ask(engine, 1, 600, NAMESPACE_A);
        ask(engine, 2, 200, NAMESPACE_B);
        engine_end(engine);
    }
}

/* No token that was said can be found in the file. */
static void test_sealed(void **state)
{
    (void)state;
    static uint8_t bytes[FILE_MAX];
    write_file();
    size_t n = read_file(bytes);
    const int32_t *said = prompt(1, 128);
    for (int32_t i = 0; i + 4 <= 128; i++)
        assert_null(memmem(bytes, n, said + i, 4 * sizeof *said));
    /* The same again is another file: the stream has a nonce. */
    static uint8_t again[FILE_MAX];
    write_file();
    assert_int_equal(read_file(again), n);
    assert_memory_not_equal(bytes + 16, again + 16, 24);
}

static void test_not_written(void **state)
{
    (void)state;
    char good[sizeof path];
    memcpy(good, path, sizeof path);
    snprintf(path, sizeof path, "/nowhere/at/all");
    struct engine *engine = start(PIECES, KEY);
    struct error err = {0};
    ask(engine, 1, 300, NAMESPACE_A);
    assert_int_equal(engine_save(engine, &err), ERR_IO);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(ask(engine, 1, 290, NAMESPACE_A), 256);
    engine_end(engine);
    memcpy(path, good, sizeof path);
    engine = engine_start_cached(1, 1, 4);
    assert_int_equal(engine_save(engine, &err), ERR_INPUT);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_true(!stats.prefix_file && stats.prefix_saved_s == 0 && stats.prefix_saved_blocks == 0);
    engine_end(engine);
}

/* ---- bad files ------------------------------------------------------------------------------ */

static struct prefix *tree(struct model *model)
{
    struct prefix *p = NULL;
    struct error err;
    assert_int_equal(prefix_create(model, PIECES * 2 * TOY_PIECE_BYTES,
                                   profile_builtin_at(PROFILE_OFFICIAL), &p, &err),
                     OK);
    assert_int_equal(prefix_probe(p, model, profile_builtin_at(PROFILE_OFFICIAL), &err), OK);
    return p;
}

static enum status read_into(struct prefix *p, struct error *err)
{
    uint64_t turn = 0;
    enum status status = prefix_read_file(p, path, KEY, &turn, err);
    struct prefix_stats stats;
    prefix_stats_get(p, &stats);
    if (status != OK)
        assert_int_equal(stats.blocks + stats.tails, 0);
    prefix_clear(p);
    return status;
}

/* Each byte changed, each length cut off, and a byte too many; in place, as disks are slow. */
static void test_damaged(void **state)
{
    (void)state;
    static uint8_t bytes[FILE_MAX];
    struct model model = {1};
    struct error err;
    write_file();
    size_t n = read_file(bytes);
    struct prefix *p = tree(&model);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read_into(p, &err), OK);
    for (size_t i = 0; i < n; i++) {
        uint8_t changed = bytes[i] ^ (uint8_t)(1 << i % 8);
        assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
        if (read_into(p, &err) != ERR_CHECK)
            fail_msg("byte %zu of %zu changed: %s", i, n, err.text);
        assert_int_equal(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
    }
    assert_int_equal(read_into(p, &err), OK);
    assert_int_equal(ftruncate(fd, (off_t)n + 1), 0);
    assert_int_equal(read_into(p, &err), ERR_CHECK);
    for (size_t cut = n - 1; cut > 0; cut -= cut > 200 ? 7 : 1) {
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
        if (read_into(p, &err) != ERR_CHECK)
            fail_msg("cut at %zu of %zu", cut, n);
    }
    close(fd);
    prefix_destroy(p);
}

/* What the engine does with a file that it can not use: it serves, and the file is gone. */
static void test_dropped(void **state)
{
    (void)state;
    static uint8_t bytes[FILE_MAX];
    uint8_t other[PREFIX_FILE_KEY_BYTES] = {1};
    for (int way = 0; way < 3; way++) {
        write_file();
        size_t n = read_file(bytes);
        bytes[n / 2] ^= way == 0;
        put_file(bytes, n);
        toy.weights = way == 1;
        struct engine *engine = start(PIECES, way == 2 ? other : KEY);
        assert_false(there());
        assert_int_equal(ask(engine, 1, 600, NAMESPACE_A), 0);
        engine_end(engine);
        toy.weights = 0;
    }
}

static void test_no_file(void **state)
{
    (void)state;
    struct model model = {1};
    struct error err;
    struct prefix *p = tree(&model);
    unlink(path);
    assert_int_equal(read_into(p, &err), ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_into(p, &err), ERR_CHECK);
    unlink(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(read_into(p, &err), ERR_IO);
    unlink(path);
    prefix_destroy(p);
}

/* ---- files of somebody who has the key ------------------------------------------------------ */

/* As prefix_file.h draws them. */
struct head {
    uint8_t probe[SNAPSHOT_PROBE_BYTES];
    uint64_t turn, block_bytes, tail_bytes;
    uint32_t n_nodes, block_tokens;
};

struct record {
    uint64_t reuse_namespace, used;
    int32_t parent;
    uint32_t has_tail;
    int32_t ids[SNAPSHOT_TOKENS];
};

static void put(FILE *file, crypto_secretstream_xchacha20poly1305_state *stream, const void *data,
                size_t len, uint8_t tag)
{
    static uint8_t sealed[TOY_PIECE_BYTES + 1000];
    crypto_secretstream_xchacha20poly1305_push(stream, sealed, NULL, data, len,
                                               (const uint8_t *)"v4box prefixes\n\2", 16, tag);
    fwrite(sealed, 1, len + crypto_secretstream_xchacha20poly1305_ABYTES, file);
}

static void forge(const struct head *head, const struct record *records, uint32_t n)
{
    uint8_t header[crypto_secretstream_xchacha20poly1305_HEADERBYTES];
    static const uint8_t piece[TOY_PIECE_BYTES];
    crypto_secretstream_xchacha20poly1305_state stream;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    crypto_secretstream_xchacha20poly1305_init_push(&stream, header, KEY);
    fwrite("v4box prefixes\n\2", 1, 16, file);
    fwrite(header, 1, sizeof header, file);
    put(file, &stream, head, sizeof *head, 0);
    for (uint32_t i = 0; i < n; i++) {
        put(file, &stream, &records[i], sizeof records[i], 0);
        put(file, &stream, piece, sizeof piece, 0);
        if (records[i].has_tail)
            put(file, &stream, piece, sizeof piece, 0);
    }
    put(file, &stream, NULL, 0, crypto_secretstream_xchacha20poly1305_TAG_FINAL);
    fclose(file);
}

static void test_forged(void **state)
{
    (void)state;
    struct model model = {1};
    struct error err;
    struct prefix *p = tree(&model);
    const struct head good = {
        .turn = 9,
        .block_bytes = TOY_PIECE_BYTES,
        .tail_bytes = TOY_PIECE_BYTES,
        .n_nodes = 2,
        .block_tokens = SNAPSHOT_TOKENS,
    };
    const struct record first = {.reuse_namespace = 7, .used = 9, .parent = -1, .has_tail = 1};
    const struct record second = {.reuse_namespace = 7, .used = 1, .parent = 0, .has_tail = 1};
    enum { N = 16 };
    struct head heads[N];
    struct record records[N][2];
    for (int i = 0; i < N; i++) {
        heads[i] = good;
        memcpy(heads[i].probe, &profile_builtin_at(PROFILE_OFFICIAL)->hash, 8);
        records[i][0] = first;
        records[i][1] = second;
    }
    heads[1].turn = 8; /* a node was used behind the last turn */
    heads[2].n_nodes = 3;
    heads[3].n_nodes = 1;
    heads[4].n_nodes = UINT32_MAX;
    heads[5].block_bytes++;
    heads[6].tail_bytes--;
    heads[7].block_tokens = 64;
    heads[8].probe[31] ^= 1;
    records[9][1].parent = 1; /* its own */
    records[10][1].parent = -2;
    records[11][1].reuse_namespace = 8;
    records[12][0].reuse_namespace = 0;
    records[13][1].parent = -1; /* twice */
    records[14][1].ids[127] = VOCAB;
    records[15][0].ids[0] = -1;
    for (int i = 0; i < N; i++) {
        forge(&heads[i], records[i], 2);
        if (read_into(p, &err) != (i == 0 ? OK : ERR_CHECK))
            fail_msg("forgery %d: %s", i, err.text);
    }
    records[0][1].has_tail = 0; /* leads nowhere: gone */
    forge(&heads[0], records[0], 2);
    uint64_t turn = 0;
    assert_int_equal(prefix_read_file(p, path, KEY, &turn, &err), OK);
    struct prefix_stats stats;
    prefix_stats_get(p, &stats);
    assert_int_equal(turn, 9);
    assert_int_equal(stats.blocks, 1);
    prefix_destroy(p);
}

static void test_options(void **state)
{
    (void)state;
    struct model model = {1};
    struct engine *engine = NULL;
    struct error err;
    const struct engine_options options = {
        .sessions_max = 1, .context_max = 64, .prefix_path = path};
    assert_int_equal(engine_create(&model, &options, &engine, &err), ERR_INPUT);
    assert_int_equal(model.alive, 0);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    snprintf(path, sizeof path, "/tmp/v4box-test-save-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart), cmocka_unit_test(test_smaller),
        cmocka_unit_test(test_sealed),  cmocka_unit_test(test_not_written),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_no_file), cmocka_unit_test(test_forged),
        cmocka_unit_test(test_options),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
