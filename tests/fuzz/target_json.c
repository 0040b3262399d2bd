/* Any bytes as JSON: what is taken is printed, read again, and printed the same. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/json.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

/* Prints with `dump`, reads that, and prints it again. */
static void round_trip(struct json_object *value, void (*dump)(struct buf *, struct json_object *))
{
    struct buf first = {0}, second = {0};
    struct json_object *again = NULL;
    dump(&first, value);
    if (dump == json_dump_normal && memmem(first.data, first.len, "Infinity", 8) != NULL) {
        buf_free(&first); /* so Python prints numbers beyond a double; they are not read */
        return;
    }
    ASSERT(json_parse(first.data, first.len, &again, NULL, NULL) == OK);
    dump(&second, again);
    ASSERT(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    json_object_put(again);
    buf_free(&first);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_object *value = NULL;
    struct error err = {0};
    size_t offset = 0;
    /* a copy of exactly this size, so that one byte too many is seen */
    char *text = malloc(n + (n == 0));
    ASSERT(text != NULL);
    memcpy(text, data, n);
    enum status status = json_parse(text, n, &value, &offset, &err);
    if (status == OK) {
        round_trip(value, json_dump);
        round_trip(value, json_dump_normal);
    } else {
        ASSERT(status == ERR_INPUT && offset <= n && err.text[0] != '\0');
    }
    json_object_put(value);
    free(text);
    return 0;
}
