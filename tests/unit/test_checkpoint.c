/* A checkpoint folder: the embedded model, and sparse copies of its shape with one thing wrong. */
#include "engine/base/buf.h"
#include "engine/base/file.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/safetensors.h"
#include "engine/model/tensors.h"

#include <errno.h>
#include <fcntl.h>
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

#define DEMO         "rootfs/models/demo"
#define DEMO_TENSORS 592
#define DEMO_BYTES   24122392

static char folder[] = "/tmp/v4box-checkpoint-XXXXXX";

/* ---- a folder with the demo model's shape and zeros for values ------------------------------ */

static const char *in_folder(const char *name)
{
    static char path[sizeof folder + CHECKPOINT_FILE_NAME_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void file_write(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    struct buf config = {0};
    if (mkdtemp(folder) == NULL || file_read(DEMO "/config.json", 65536, &config, NULL) != OK)
        return 1;
    file_write("config.json", config.data, config.len);
    buf_free(&config);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"config.json", "model.safetensors", "a.safetensors",
                                        "b.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        unlink(in_folder(NAMES[i]));
    return rmdir(folder);
}

/* Every stored tensor of the demo row. */
struct list {
    struct stored_tensor tensors[DEMO_TENSORS];
    size_t count;
};

static enum status list_add(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct list *list = user;
    struct stored_tensor stored[STORED_MAX];
    int n = weight_stored(spec, stored);
    for (int i = 0; i < n; i++) {
        assert_true(list->count < DEMO_TENSORS);
        list->tensors[list->count++] = stored[i];
    }
    return OK;
}

static const struct model_config *demo_row(void)
{
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        if (strcmp(MODEL_CONFIGS[i].name, "demo") == 0)
            return &MODEL_CONFIGS[i];
    }
    fail();
    return NULL;
}

static void list_make(struct list *list)
{
    list->count = 0;
    assert_int_equal(weights_visit(demo_row(), list_add, list, NULL), OK);
    assert_int_equal(list->count, DEMO_TENSORS);
}

static struct stored_tensor *list_get(struct list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->tensors[i].name, name) == 0)
            return &list->tensors[i];
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Writes tensors [from, to) of the list as a sparse file; returns where its data begins. */
static size_t shard_write(const char *name, const struct list *list, size_t from, size_t to)
{
    struct buf image = {0};
    uint64_t at = 0, length = 0;
    buf_add(&image, &length, 8);
    buf_puts(&image, "{");
    for (size_t i = from; i < to; i++) {
        const struct stored_tensor *t = &list->tensors[i];
        buf_printf(&image, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", i == from ? "" : ",",
                   t->name, t->dtype, (long long)t->shape[0]);
        if (t->dims == 2)
            buf_printf(&image, ",%lld", (long long)t->shape[1]);
        buf_printf(&image, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                   (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    buf_puts(&image, "}");
    while (image.len % 8 != 0)
        buf_puts(&image, " ");
    length = image.len - 8;
    memcpy(image.data, &length, 8); /* the tests run on little-endian machines, as the engine */
    file_write(name, image.data, image.len);
    assert_int_equal(truncate(in_folder(name), (off_t)(image.len + at)), 0);
    size_t begin = image.len;
    buf_free(&image);
    return begin;
}

static enum status bind(struct error *err)
{
    struct checkpoint *c = NULL;
    enum status status = checkpoint_bind(folder, &c, err);
    assert_true((status == OK) == (c != NULL));
    checkpoint_close(c);
    return status;
}

static void bind_refused(const char *first, const char *second)
{
    struct error err = {0};
    enum status status = bind(&err);
    if ((status != ERR_INPUT && status != ERR_IO) || strstr(err.text, first) == NULL ||
        strstr(err.text, second) == NULL || strstr(err.text, folder) == NULL)
        fail_msg("status %d, '%s' lacks '%s' or '%s'", (int)status, err.text, first, second);
}

/* ---- the embedded model --------------------------------------------------------------------- */

static void test_demo(void **state)
{
    (void)state;
    struct checkpoint *c = NULL;
    struct error err = {0};
    if (checkpoint_open(DEMO, &c, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(checkpoint_config(c)->name, "demo");
    assert_int_equal(checkpoint_tensor_count(c), DEMO_TENSORS);
    assert_int_equal(checkpoint_tensor_bytes(c), DEMO_BYTES);
    const struct model_weights *w = checkpoint_weights(c);
    assert_int_equal(w->embed.rows, 4096);
    assert_int_equal(w->embed.cols, 256);
    assert_int_equal(w->norm.cols, 0);
    assert_null(w->layers[0].comp_ape.data);     /* window only */
    assert_null(w->layers[0].gate_bias.data);    /* hash routing */
    assert_null(w->layers[2].gate_tid2eid.data); /* score routing */
    assert_int_equal(w->layers[2].comp_ape.cols, 1024);
    assert_int_equal(w->layers[3].comp_ape.cols, 512);
    assert_null(w->layers[3].index_wq_b.data);
    assert_int_equal(w->layers[5].index_wq_b.rows, 1024);
    assert_int_equal(w->layers[5].experts[7].w2.store, STORE_FP4);
    assert_int_equal(w->layers[5].experts[7].w2.cols, 128);
    assert_non_null(w->layers[5].experts[7].w2.scale);
    assert_non_null(w->mtp[0].e_proj.data);
    assert_non_null(w->mtp[0].block.shared_w3.scale);
    checkpoint_close(c);
    checkpoint_close(NULL);
}

struct walk {
    const struct checkpoint *c;
    size_t bound, odd;
};

static enum status check_bound(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct walk *walk = user;
    struct stored_tensor stored[STORED_MAX];
    int n = weight_stored(spec, stored);
    const struct tensor *t = weight_member((struct model_weights *)checkpoint_weights(walk->c),
                                           checkpoint_config(walk->c), spec);
    assert_non_null(t->data);
    assert_int_equal(t->rows, spec->rows);
    assert_int_equal(t->cols, spec->cols);
    assert_int_equal(t->store, spec->store);
    assert_int_equal((uintptr_t)t->data % (size_t)safetensors_element_bytes(stored[0].dtype), 0);
    assert_int_equal(t->scale != NULL, n == 2);
    for (int i = 0; i < n; i++) { /* both ends are readable memory */
        const uint8_t *bytes = i == 0 ? t->data : t->scale;
        walk->odd += bytes[0] + bytes[stored[i].bytes - 1];
        walk->bound++;
    }
    return OK;
}

/* The demo's shards hold tensors off their element's boundary, so this sees copies too. */
static void test_bound(void **state)
{
    (void)state;
    struct checkpoint *c = NULL;
    assert_int_equal(checkpoint_open(DEMO, &c, NULL), OK);
    struct walk walk = {.c = c};
    assert_int_equal(weights_visit(checkpoint_config(c), check_bound, &walk, NULL), OK);
    assert_int_equal(walk.bound, DEMO_TENSORS);
    assert_true(walk.odd > 0);
    checkpoint_close(c);
}

static void test_no_folder(void **state)
{
    (void)state;
    struct checkpoint *c = NULL;
    struct error err = {0};
    assert_int_equal(checkpoint_open("/nonexistent", &c, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent/config.json"));
    assert_null(c);
}

/* ---- tensors of a single file --------------------------------------------------------------- */

static struct list list;

static void test_single(void **state)
{
    (void)state;
    struct error err = {0};
    list_make(&list);
    shard_write("model.safetensors", &list, 0, list.count);
    if (bind(&err) != OK)
        fail_msg("%s", err.text);
}

/* Every line of the list once, and experts at both ends: enough of the 592 to try each alone. */
static bool telling(const char *name)
{
    int layer, expert;
    const char *experts = strstr(name, ".experts.");
    if (experts != NULL && sscanf(experts, ".experts.%d", &expert) == 1 && expert % 7 != 0)
        return false;
    if (sscanf(name, "layers.%d.", &layer) != 1 || layer == 2)
        return true;
    return (layer == 1 && strstr(name, "tid2eid") != NULL) ||
           (layer == 3 && strstr(name, "compressor") != NULL);
}

static void test_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEMO_TENSORS; i++) {
        list_make(&list);
        if (!telling(list.tensors[i].name))
            continue;
        struct stored_tensor gone = list.tensors[i];
        memmove(&list.tensors[i], &list.tensors[i + 1],
                (DEMO_TENSORS - i - 1) * sizeof list.tensors[0]);
        shard_write("model.safetensors", &list, 0, DEMO_TENSORS - 1);
        bind_refused(gone.name, "missing");
    }
}

/* Bytes are the same each time, so that only the shape can be what is seen. */
static void test_wrong_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEMO_TENSORS; i++) {
        list_make(&list);
        if (!telling(list.tensors[i].name))
            continue;
        struct stored_tensor *t = &list.tensors[i];
        int64_t rows = t->shape[0];
        if (t->dims == 1) {
            t->dims = 2;
            t->shape[1] = 1;
        } else if (t->shape[1] == rows) {
            t->shape[0] = 1;
            t->shape[1] = rows * rows;
        } else {
            t->shape[0] = t->shape[1];
            t->shape[1] = rows;
        }
        shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
        bind_refused(t->name, "expected shape");
    }
}

/* Another type of the same width. */
static void test_wrong_dtype(void **state)
{
    (void)state;
    size_t tried = 0;
    for (size_t i = 0; i < DEMO_TENSORS; i++) {
        list_make(&list);
        if (!telling(list.tensors[i].name))
            continue;
        struct stored_tensor *t = &list.tensors[i];
        if (safetensors_element_bytes(t->dtype) != 1)
            continue;
        t->dtype = strcmp(t->dtype, "F8_E8M0") == 0 ? "F8_E4M3" : "F8_E8M0";
        shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
        bind_refused(t->name, "expected dtype");
        tried++;
    }
    assert_true(tried > 60);
    list_make(&list);
    struct stored_tensor *t = list_get(&list, "head.weight");
    t->dtype = "F32";
    t->bytes *= 2;
    shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
    bind_refused("head.weight", "expected dtype BF16, got F32");
}

static void test_unknown_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is;
    } NAMES[] = {
        {"layers.1.ffn.gate.weight", "layers.6.ffn.gate.weight"},
        {"layers.1.ffn.gate.weight", "layers.01.ffn.gate.weight"},
        {"mtp.0.norm.weight", "mtp.1.norm.weight"},
        {"layers.2.ffn.experts.7.w1.scale", "layers.2.ffn.experts.8.w1.scale"},
        {"embed.weight", "model.embed.weight"},
        {"embed.weight", "embed.weigh"},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        list_make(&list);
        strcpy(list_get(&list, NAMES[i].was)->name, NAMES[i].is);
        shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
        bind_refused(NAMES[i].was, "missing");
    }
    /* One too many: the row has no compressor in a window layer. */
    list_make(&list);
    static struct list more;
    memcpy(&more, &list, sizeof more);
    strcpy(list.tensors[DEMO_TENSORS - 1].name, "layers.0.attn.compressor.norm.weight");
    shard_write("a.safetensors", &list, 0, DEMO_TENSORS);
    struct buf index = {0};
    buf_puts(&index, "{\"weight_map\": {");
    for (size_t i = 0; i < DEMO_TENSORS; i++)
        buf_printf(&index, "\"%s\": \"a.safetensors\", ", list.tensors[i].name);
    buf_printf(&index, "\"%s\": \"b.safetensors\"}}", more.tensors[DEMO_TENSORS - 1].name);
    shard_write("b.safetensors", &more, DEMO_TENSORS - 1, DEMO_TENSORS);
    file_write("model.safetensors.index.json", index.data, index.len);
    unlink(in_folder("model.safetensors"));
    bind_refused("layers.0.attn.compressor.norm.weight", "not one of configuration demo");
    unlink(in_folder("model.safetensors.index.json"));
    buf_free(&index);
}

/* ---- shards --------------------------------------------------------------------------------- */

#define FIRST 300 /* tensors in shard a */

/* Two shards; `edit_name` gets `edit_value` (JSON text) in place of its shard, NULL leaves it out.
 */
static void index_write(const char *edit_name, const char *edit_value)
{
    struct buf index = {0};
    bool comma = false;
    buf_puts(&index, "{\"metadata\": {\"total_size\": 0}, \"weight_map\": {");
    for (size_t i = 0; i < DEMO_TENSORS; i++) {
        bool edit = edit_name != NULL && strcmp(edit_name, list.tensors[i].name) == 0;
        if (edit && edit_value == NULL)
            continue;
        buf_printf(&index, "%s\"%s\": %s", comma ? ", " : "", list.tensors[i].name,
                   edit        ? edit_value
                   : i < FIRST ? "\"a.safetensors\""
                               : "\"b.safetensors\"");
        comma = true;
    }
    buf_puts(&index, "}}");
    file_write("model.safetensors.index.json", index.data, index.len);
    buf_free(&index);
}

static void test_shards(void **state)
{
    (void)state;
    struct error err = {0};
    list_make(&list);
    unlink(in_folder("model.safetensors"));
    shard_write("a.safetensors", &list, 0, FIRST);
    shard_write("b.safetensors", &list, FIRST, DEMO_TENSORS);
    index_write(NULL, NULL);
    if (bind(&err) != OK)
        fail_msg("%s", err.text);
    /* Both forms at once: nobody can say which one is the model. */
    shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
    bind_refused("both", "model.safetensors");
    unlink(in_folder("model.safetensors"));
}

static void test_index_disagrees(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *says;
    } EDITS[] = {
        {"embed.weight", NULL, "not in weight_map"},
        {"embed.weight", "\"b.safetensors\"", "weight_map says b.safetensors"},
        {"mtp.0.norm.weight", "\"a.safetensors\"", "weight_map says a.safetensors"},
        {"embed.weight", "\"c.safetensors\"", "c.safetensors"},
        {"embed.weight", "\"../a.safetensors\"", "not a plain file name"},
        {"embed.weight", "\"/etc/passwd\"", "not a plain file name"},
        {"embed.weight", "\"x/a.safetensors\"", "not a plain file name"},
        {"embed.weight", "\"x\\\\a.safetensors\"", "not a plain file name"},
        {"embed.weight", "\".safetensors\"", "not a plain file name"},
        {"embed.weight", "\"\"", "not a plain file name"},
        {"embed.weight", "\"a.safetensors\\u0000\"", "not a plain file name"},
        {"embed.weight", "\"a.safe\\ntensors\"", "not a plain file name"},
        {"embed.weight", "3", "not a plain file name"},
        {"embed.weight", "null", "not a plain file name"},
        {"embed.weight", "[\"a.safetensors\"]", "not a plain file name"},
        {"embed.weight", "\"a.safetensors\", \"more\": \"a.safetensors\"", "in no shard"},
        {"embed.weight", "\"a.safetensors\", \"more\\u001b\": \"a.safetensors\"", "more\\u001b"},
    };
    for (size_t i = 0; i < sizeof EDITS / sizeof EDITS[0]; i++) {
        index_write(EDITS[i].name, EDITS[i].value);
        bind_refused(EDITS[i].says, "safetensors");
    }
    static const char *const TEXTS[] = {"",
                                        "[]",
                                        "{}",
                                        "null",
                                        "{\"weight_map\": []}",
                                        "{\"weight_map\": null}",
                                        "{\"weight_map\": {}}"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        file_write("model.safetensors.index.json", TEXTS[i], strlen(TEXTS[i]));
        bind_refused(i == 6 ? "missing" : "model.safetensors.index.json", "");
    }
}

static void test_tensor_twice(void **state)
{
    (void)state;
    list_make(&list);
    shard_write("b.safetensors", &list, FIRST - 1, DEMO_TENSORS);
    index_write(NULL, NULL);
    bind_refused(list.tensors[FIRST - 1].name, "stands in");
    unlink(in_folder("a.safetensors"));
    unlink(in_folder("b.safetensors"));
    unlink(in_folder("model.safetensors.index.json"));
    bind_refused("model.safetensors", "No such file");
}

static void test_too_many_shards(void **state)
{
    (void)state;
    struct buf index = {0};
    list_make(&list);
    buf_puts(&index, "{\"weight_map\": {");
    for (int i = 0; i <= CHECKPOINT_SHARDS_MAX; i++) {
        char name[64];
        snprintf(name, sizeof name, "s%d.safetensors", i);
        shard_write(name, &list, 0, 0);
        buf_printf(&index, "%s\"t%d\": \"%s\"", i == 0 ? "" : ", ", i, name);
    }
    buf_puts(&index, "}}");
    file_write("model.safetensors.index.json", index.data, index.len);
    buf_free(&index);
    bind_refused("weight_map: more than", "shards");
    for (int i = 0; i <= CHECKPOINT_SHARDS_MAX; i++) {
        char name[64];
        snprintf(name, sizeof name, "s%d.safetensors", i);
        unlink(in_folder(name));
    }
    unlink(in_folder("model.safetensors.index.json"));
}

/* ---- values --------------------------------------------------------------------------------- */

/* Writes one element, opens, and puts zeros back. */
static enum status with_element(const char *tensor, uint64_t index, uint64_t value,
                                enum value_check depth, struct error *err)
{
    list_make(&list);
    size_t at = shard_write("model.safetensors", &list, 0, DEMO_TENSORS);
    const struct stored_tensor *wanted = list_get(&list, tensor);
    for (const struct stored_tensor *t = list.tensors; t != wanted; t++)
        at += t->bytes;
    size_t bytes = (size_t)safetensors_element_bytes(wanted->dtype);
    assert_true((index + 1) * bytes <= wanted->bytes);
    int fd = open(in_folder("model.safetensors"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &value, bytes, (off_t)(at + index * bytes)), bytes);
    close(fd);
    struct checkpoint *c = NULL;
    struct error inner = {0};
    assert_int_equal(checkpoint_bind(folder, &c, &inner), OK);
    enum status status = checkpoint_check_values(c, depth, err);
    checkpoint_close(c);
    return status;
}

static const struct {
    const char *tensor;
    uint64_t last; /* index of its last element */
    uint64_t bad[4];
    int n_bad;
    uint64_t good[4];
    int n_good;
} VALUES[] = {
    {"embed.weight", 4096 * 256 - 1, {0x7F80, 0xFF80, 0x7FC0, 0xFFFF}, 4, {0x7F7F, 0xFF7F, 1}, 3},
    {"hc_head_scale",
     0,
     {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001},
     4,
     {0x7F7FFFFF, 0xFF7FFFFF, 1},
     3},
    {"layers.5.attn.wq_a.weight", 128 * 256 - 1, {0x7F, 0xFF}, 2, {0x7E, 0xFE, 0x80}, 3},
    {"layers.5.attn.wq_a.scale", 1, {0xFF}, 1, {0xFE, 0x7F}, 2},
    {"mtp.0.ffn.experts.7.w2.scale", 256 * 4 - 1, {0xFF}, 1, {0xFE}, 1},
    {"mtp.0.ffn.experts.7.w2.weight", 256 * 64 - 1, {0}, 0, {0xFF, 0x7F, 0x80}, 3},
    {"layers.1.ffn.gate.tid2eid",
     4096 * 2 - 1,
     {8, UINT64_MAX, 1ull << 32, (uint64_t)INT64_MAX + 1},
     4,
     {7, 0},
     2},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        const uint64_t places[3] = {0, VALUES[i].last / 2, VALUES[i].last};
        bool index_table = strstr(VALUES[i].tensor, "tid2eid") != NULL;
        for (int k = 0; k < VALUES[i].n_bad; k++) {
            struct error err = {0};
            char element[64];
            uint64_t at = places[k % 3];
            snprintf(element, sizeof element, "element %llu ", (unsigned long long)at);
            assert_int_equal(with_element(VALUES[i].tensor, at, VALUES[i].bad[k], VALUES_ALL, &err),
                             ERR_CHECK);
            if (strstr(err.text, VALUES[i].tensor) == NULL || strstr(err.text, element) == NULL)
                fail_msg("'%s' lacks %s or %s", err.text, VALUES[i].tensor, element);
            if (k > 0)
                continue;
            assert_int_equal(
                with_element(VALUES[i].tensor, at, VALUES[i].bad[k], VALUES_INDICES, &err),
                index_table ? ERR_CHECK : OK);
            struct checkpoint *c = NULL; /* opening it is refused as bad input */
            assert_int_equal(checkpoint_open(folder, &c, &err), ERR_INPUT);
            assert_null(c);
        }
        for (int k = 0; k < VALUES[i].n_good; k++)
            assert_int_equal(
                with_element(VALUES[i].tensor, places[k % 3], VALUES[i].good[k], VALUES_ALL, NULL),
                OK);
    }
}

/* ---- the full size -------------------------------------------------------------------------- */

struct image {
    struct buf header;
    uint64_t bytes;
};

static enum status image_add(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct image *image = user;
    struct stored_tensor stored[STORED_MAX];
    int n = weight_stored(spec, stored);
    for (int i = 0; i < n; i++) {
        const struct stored_tensor *t = &stored[i];
        buf_printf(&image->header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld",
                   image->bytes == 0 ? '{' : ',', t->name, t->dtype, (long long)t->shape[0]);
        if (t->dims == 2)
            buf_printf(&image->header, ",%lld", (long long)t->shape[1]);
        buf_printf(&image->header, "],\"data_offsets\":[%llu,%llu]}",
                   (unsigned long long)image->bytes, (unsigned long long)(image->bytes + t->bytes));
        image->bytes += t->bytes;
    }
    return OK;
}

/* All 69,187 tensors of the published checkpoint in one sparse file: no look-up may be quadratic.
 */
static void test_full_size(void **state)
{
    (void)state;
    struct buf config = {0};
    struct image image = {0};
    struct error err = {0};
    struct checkpoint *c = NULL;
    assert_int_equal(file_read("tests/data/golden/flash.json", 65536, &config, &err), OK);
    file_write("config.json", config.data, config.len);
    uint64_t length = 0;
    buf_add(&image.header, &length, 8);
    assert_int_equal(weights_visit(&MODEL_CONFIGS[0], image_add, &image, NULL), OK);
    buf_puts(&image.header, "}");
    length = image.header.len - 8;
    memcpy(image.header.data, &length, 8);
    file_write("model.safetensors", image.header.data, image.header.len);
    assert_int_equal(
        truncate(in_folder("model.safetensors"), (off_t)(image.header.len + image.bytes)), 0);
    if (checkpoint_open(folder, &c, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(checkpoint_config(c)->name, "flash");
    assert_int_equal(checkpoint_tensor_count(c), 69187);
    assert_int_equal(checkpoint_tensor_bytes(c), 159609485896);
    checkpoint_close(c);
    buf_free(&config);
    buf_free(&image.header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo),         cmocka_unit_test(test_bound),
        cmocka_unit_test(test_no_folder),    cmocka_unit_test(test_single),
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_wrong_shape),
        cmocka_unit_test(test_wrong_dtype),  cmocka_unit_test(test_unknown_tensor),
        cmocka_unit_test(test_shards),       cmocka_unit_test(test_index_disagrees),
        cmocka_unit_test(test_tensor_twice), cmocka_unit_test(test_too_many_shards),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_full_size),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
