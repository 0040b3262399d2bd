/*
 * config.json of a checkpoint, compared field by field with the rows of config/model.h.
 * Knows no tensors.  The file is never a source of values for the engine: it selects a row.
 */
#ifndef V4BOX_ENGINE_MODEL_CONFIG_H
#define V4BOX_ENGINE_MODEL_CONFIG_H

#include "config/model.h"
#include "engine/base/json.h"
#include "engine/base/status.h"

#include <stddef.h>

enum config_kind {
    CONFIG_COUNT,
    CONFIG_FACTOR,
    CONFIG_RATIOS,
    CONFIG_NUMBER,
    CONFIG_TEXT,
    CONFIG_ANY
};
enum config_presence { CONFIG_REQUIRED, CONFIG_OPTIONAL, CONFIG_OR_ABOVE };

/* One line of config/checkpoint_config.def. */
struct config_field {
    const char *path;
    enum config_kind kind;
    enum config_presence presence;
    size_t member;    /* offset in struct model_config, for COUNT and FACTOR */
    double number;    /* for NUMBER */
    const char *text; /* for TEXT */
};
extern const struct config_field CONFIG_FIELDS[];
extern const size_t CONFIG_FIELD_COUNT;

/** The rows of config/model.h. */
extern const struct model_config MODEL_CONFIGS[];
extern const size_t MODEL_CONFIG_COUNT;

/**
 * Finds the row that a parsed config.json describes: the one that agrees in most fields, so that a
 * wrong field is named against the row that was meant, and compares every field with it.
 * @err  ERR_INPUT naming file, field, the expected value and the value found
 */
enum status MUST_CHECK config_match(struct json_object *json, const char *path,
                                    const struct model_config **out, struct error *err);

/** The row that DIR/config.json describes.  @err  ERR_INPUT, ERR_IO; as above */
enum status MUST_CHECK config_open(const char *dir, const struct model_config **out,
                                   struct error *err);

/** Compares with one given row. */
enum status MUST_CHECK config_compare(struct json_object *json, const char *path,
                                      const struct model_config *row, struct error *err);

/** Value of a field ("name" or "object.name"), NULL when absent. */
struct json_object *config_lookup(struct json_object *json, const char *path);

#endif
