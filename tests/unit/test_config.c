/* config.json against the rows: every field changed, left out and made another type. */
#include "engine/model/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *path, *row;
} FILES[] = {
    {"tests/data/golden/flash.json", "flash"},
    {"rootfs/models/demo/config.json", "demo"},
    {"tests/data/golden/nano.json", "golden-nano"},
    {"tests/data/golden/wide.json", "golden-wide"},
    {"tests/data/precision/tiny.json", "precision-tiny"},
};

static struct json_object *load(const char *path)
{
    struct json_object *json = NULL;
    struct error err = {0};
    if (json_parse_file(path, CHECKPOINT_CONFIG_BYTES_MAX, &json, &err) != OK)
        fail_msg("%s", err.text);
    return json;
}

/* The object that holds a field, and the field's own name. */
static struct json_object *holder(struct json_object *json, const char *path, const char **name)
{
    const char *dot = strchr(path, '.');
    *name = dot == NULL ? path : dot + 1;
    if (dot == NULL)
        return json;
    char outer[CONFIG_NAME_BYTES];
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - path), path);
    struct json_object *inner = json_member(json, outer, NULL);
    assert_non_null(inner);
    return inner;
}

/* Takes the new value over; NULL is JSON's null. */
static void set(struct json_object *json, const char *path, struct json_object *value)
{
    const char *name;
    struct json_object *object = holder(json, path, &name);
    assert_int_equal(json_object_object_add(object, name, value), 0);
}

static void refused(struct json_object *json, const char *path, const char *says)
{
    const struct model_config *row = NULL;
    struct error err = {0};
    enum status status = config_match(json, "F/config.json", &row, &err);
    if (status != ERR_INPUT || strstr(err.text, path) == NULL || strstr(err.text, says) == NULL ||
        strstr(err.text, "F/config.json") == NULL)
        fail_msg("%s: status %d, '%s' lacks '%s'", path, (int)status, err.text, says);
    assert_null(row);
}

static void accepted(struct json_object *json, const char *name)
{
    const struct model_config *row = NULL;
    struct error err = {0};
    if (config_match(json, "F/config.json", &row, &err) != OK)
        fail_msg("%s: %s", name, err.text);
    assert_string_equal(row->name, name);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        struct json_object *json = load(FILES[i].path);
        accepted(json, FILES[i].row);
        json_object_put(json);
    }
}

/* The rows must respect the bounds that static tables are made with. */
static void test_row_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        const struct model_config *c = &MODEL_CONFIGS[i];
        assert_true(c->num_hidden_layers + c->num_nextn_predict_layers <= LAYERS_MAX);
        assert_true(c->num_nextn_predict_layers <= 1);
        assert_true(c->n_routed_experts <= EXPERTS_MAX &&
                    c->num_experts_per_tok <= TOP_EXPERTS_MAX);
        assert_true(c->num_attention_heads <= HEADS_MAX && c->index_n_heads <= INDEX_HEADS_MAX);
        assert_true(c->index_topk <= INDEX_TOPK_MAX);
        assert_int_equal(c->num_attention_heads % c->o_groups, 0);
        assert_int_equal(c->hidden_size % FP4_GROUP, 0);
        assert_int_equal(c->moe_intermediate_size % FP4_GROUP, 0);
        for (int32_t l = 0; l < c->num_hidden_layers + c->num_nextn_predict_layers; l++)
            assert_true(c->compress_ratios[l] == 0 || c->compress_ratios[l] == RATIO_CSA ||
                        c->compress_ratios[l] == RATIO_HCA);
    }
}

static struct json_object *other_value(struct json_object *value)
{
    if (json_object_is_type(value, json_type_int))
        return json_object_new_int64(json_object_get_int64(value) + 1);
    if (json_object_is_type(value, json_type_double))
        return json_object_new_double(json_object_get_double(value) * 1.0000001 + 1e-9);
    if (json_object_is_type(value, json_type_boolean))
        return json_object_new_boolean(!json_object_get_boolean(value));
    return json_object_new_string("another");
}

static void test_every_field(void **state)
{
    (void)state;
    size_t checked = 0;
    for (size_t f = 0; f < sizeof FILES / sizeof FILES[0]; f++) {
        for (size_t i = 0; i < CONFIG_FIELD_COUNT; i++) {
            const struct config_field *field = &CONFIG_FIELDS[i];
            struct json_object *json = load(FILES[f].path);
            struct json_object *value = config_lookup(json, field->path);
            if (value != NULL && field->kind != CONFIG_ANY) {
                set(json, field->path, other_value(value));
                refused(json, field->path, "expected");
                set(json, field->path, json_object_new_object());
                refused(json, field->path, "expected");
                const char *name;
                struct json_object *object = holder(json, field->path, &name);
                json_object_object_del(object, name);
                if (field->presence == CONFIG_REQUIRED)
                    refused(json, field->path, "missing");
                checked++;
            }
            json_object_put(json);
        }
    }
    assert_true(checked > 4 * 45);
}

static void test_messages(void **state)
{
    (void)state;
    struct json_object *json = load(FILES[0].path);
    set(json, "hidden_size", json_object_new_int64(5120));
    refused(json, "hidden_size", "expected 4096 (configuration flash), got 5120");
    set(json, "hidden_size", json_object_new_double(4096.0)); /* not an integer */
    refused(json, "hidden_size", "expected 4096");
    set(json, "hidden_size", json_object_new_int64(4096));
    set(json, "rms_norm_eps", json_object_new_double(1e-5));
    refused(json, "rms_norm_eps", "expected 9.9999999999999995e-07");
    set(json, "rms_norm_eps", json_object_new_double(1e-6));
    set(json, "rope_theta", json_object_new_double(10000.0)); /* the same number */
    accepted(json, "flash");
    set(json, "rope_theta", NULL);
    refused(json, "rope_theta", "missing");
    json_object_put(json);
}

static void test_ratios(void **state)
{
    (void)state;
    struct json_object *json = load(FILES[1].path);
    struct json_object *ratios = json_member(json, "compress_ratios", NULL);
    json_object_array_put_idx(ratios, 3, json_object_new_int64(4));
    refused(json, "compress_ratios", "expected [0, 0, 4, 128, 4, 4, 0] (configuration demo)");
    json_object_array_put_idx(ratios, 3, json_object_new_int64(128));
    accepted(json, "demo");
    json_object_array_add(ratios, json_object_new_int64(0));
    refused(json, "compress_ratios", "expected");
    json_object_array_del_idx(ratios, 6, 2);
    refused(json, "compress_ratios", "expected");
    json_object_put(json);
}

/* Optional fields: absent is fine, a wrong value is not; the type may go by either name. */
static void test_optional(void **state)
{
    (void)state;
    struct json_object *json = load(FILES[2].path);
    json_object_object_del(json, "expert_dtype");
    json_object_object_del(json, "attention_dropout");
    json_object_object_del(json, "torch_dtype");
    accepted(json, "golden-nano");
    set(json, "dtype", json_object_new_string("float16"));
    refused(json, "dtype", "bfloat16");
    set(json, "dtype", json_object_new_string("bfloat16"));
    struct json_object *rope = json_member(json, "rope_scaling", NULL);
    json_object_object_del(rope, "type");
    refused(json, "rope_scaling.rope_type", "missing");
    set(json, "rope_scaling.rope_type", json_object_new_string("yarn"));
    accepted(json, "golden-nano");
    set(json, "rope_scaling.type", json_object_new_string("linear"));
    refused(json, "rope_scaling.type", "yarn");
    json_object_put(json);
}

static void test_unknown(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "dspark_block_size", "Vocab_size",       "rope", "", "vocab_size ",
        "head_dim\x1b[2J",   "rope_scaling.type"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        struct json_object *json = load(FILES[0].path);
        json_object_object_add(json, NAMES[i], json_object_new_int64(5));
        refused(json, "unknown field", "\"");
        json_object_put(json);
    }
    struct json_object *json = load(FILES[0].path);
    json_object_object_add(json_member(json, "rope_scaling", NULL), "mscale",
                           json_object_new_double(1.0));
    refused(json, "unknown field \"rope_scaling.mscale\"", "");
    json_object_put(json);
    json = load(FILES[0].path);
    json_object_object_add(json, "head_dim\n", json_object_new_int64(5));
    refused(json, "unknown field \"head_dim\\n\"", ""); /* no control character reaches the log */
    json_object_put(json);
}

static void test_not_an_object(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"[]", "1", "null", "\"x\"", "{}", "{\"rope_scaling\": 3}"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        struct json_object *json = NULL;
        assert_int_equal(json_parse(TEXTS[i], strlen(TEXTS[i]), &json, NULL, NULL), OK);
        refused(json, "F/config.json", i < 4 ? "not a JSON object" : "missing");
        json_object_put(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_row_bounds),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_ratios),   cmocka_unit_test(test_optional),
        cmocka_unit_test(test_unknown),  cmocka_unit_test(test_not_an_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
