/* What goes to others: commands that change nothing, and no secret in what they say. */
#include "init/commands.h"
#include "init/support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *masked(const char *text)
{
    static char bytes[4096];
    struct text t = text_over(bytes, sizeof bytes);
    support_mask(&t, text, strlen(text));
    assert_false(t.cut);
    return bytes;
}

static void only_looks_are_collected(void **state)
{
    (void)state;
    struct request request;
    size_t i = 0;
    for (; support_command(i) != NULL; i++) {
        const char *line = support_command(i);
        assert_true(request_from_line(&request, line, strlen(line)));
        const struct command *command = command_find(request.word[0]);
        assert_non_null(command);
        assert_false(command_changes(command, &request));
        assert_true(command_allowed(command, &request, ROLE_VIEWER));
        assert_string_not_equal(command->name, "support");
    }
    assert_true(i > 10);
}

static void secrets_are_masked(void **state)
{
    (void)state;
    static const char *const PAIRS[][2] = {
        {"keys create ds_Ab3dEf9h_0123456789ABCDEFGHIJKLMNOPQRSTuv",
         "keys create ds_Ab3dEf9h_[masked]"},
        {"xds_Ab3dEf9h_0123456789ABCDEFGHIJKLMNOPQRSTuv!", "xds_Ab3dEf9h_[masked]!"},
        {"ds_Ab3dEf9h_a", "ds_Ab3dEf9h_[masked]"}, /* the start of one, cut by a line's end */
        {"token=sk0Proj9x8y7z6W5V4U3T2S1R0q", "token=[masked]"},
        {"a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\nz",
         "a\n[masked]\nz"},
        {"-----BEGIN PRIVATE KEY-----\nMC4CAQ and no end", "[masked]"},
    };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++)
        assert_string_equal(masked(PAIRS[i][0]), PAIRS[i][1]);
}

static void the_rest_is_as_it_was(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "",
        "engine: listening on unix:/run/v4box/api.sock",
        "ds_",
        "ds_Ab3dEf9h",
        "ds_Ab3dEf9h_",
        "certificate SHA-256 7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069",
        "2026-11-30T12:00:00Z anna operator: profile set fast",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "vllm:generation_tokens_total{model_name=\"deepseek-v4-demo\"} 120"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        assert_string_equal(masked(TEXTS[i]), TEXTS[i]);
}

/* A secret at any place, behind and before any byte, is never there in one piece. */
static void no_secret_comes_through(void **state)
{
    (void)state;
    static const char SECRET[] = "0123456789ABCDEFGHIJKLMNOPQRSTuv";
    char text[128];
    for (int before = 1; before < 256; before++)
        for (int behind = 1; behind < 256; behind += 17) {
            int n = 0;
            text[n++] = (char)before;
            memcpy(text + n, "ds_Ab3dEf9h_", 12);
            memcpy(text + n + 12, SECRET, sizeof SECRET);
            text[n + 12 + sizeof SECRET - 1] = (char)behind;
            text[n + 12 + sizeof SECRET] = '\0';
            assert_null(strstr(masked(text), SECRET));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_looks_are_collected),
        cmocka_unit_test(secrets_are_masked),
        cmocka_unit_test(the_rest_is_as_it_was),
        cmocka_unit_test(no_secret_comes_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
