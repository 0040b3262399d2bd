/*
 * `engine verify --model DIR`: everything that can be said about a model folder without computing
 * with it: hashes first, so that nothing unproven is parsed when a manifest exists, then
 * config.json, headers and every stored value.
 */
#include "common/leaves.h"
#include "engine/commands.h"
#include "engine/model/checkpoint.h"
#include "engine/model/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum status verify(const char *dir, struct error *err)
{
    struct manifest_result manifest;
    struct checkpoint *checkpoint = NULL;
    enum status status = manifest_verify(dir, &manifest, err);
    if (status == OK)
        status = checkpoint_bind(dir, &checkpoint, err);
    if (status == OK)
        status = checkpoint_check_values(checkpoint, VALUES_ALL, err);
    if (status == OK) {
        printf("%s: %s, %zu tensors, %" PRIu64 " bytes, values finite, ", dir,
               checkpoint_config(checkpoint)->name, checkpoint_tensor_count(checkpoint),
               checkpoint_tensor_bytes(checkpoint));
        if (manifest.present)
            printf("%zu files match %s\n", manifest.files, LEAVES_MANIFEST);
        else
            printf("no %s: hashes not checked\n", LEAVES_MANIFEST);
    }
    checkpoint_close(checkpoint);
    return status;
}

int cmd_verify(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[1], "--model") != 0) {
        fprintf(stderr, "usage: engine verify --model DIR\n");
        return 2;
    }
    struct error err = {0};
    enum status status = verify(argv[2], &err);
    if (status != OK)
        fprintf(stderr, "engine verify: %s\n", err.text);
    return status_exit_code(status);
}
