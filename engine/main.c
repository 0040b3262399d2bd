/*
 * The engine program: a table of subcommands.  Knows none of their work.
 */
#include "config/version.h"
#include "engine/commands.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} COMMANDS[] = {
    {"serve", cmd_serve,
     "--model DIR --listen ADDR:PORT|unix:PATH --keys FILE [--admin PATH] [--isa ..]\n"
     "      [--profile ..] [--threads N] [--ranks N] [--groups N] [--gpu N] [--weights "
     "synth:SEED]\n"
     "      [--context TOKENS] [--sessions N] [--host NAME]..\n"
     "      [--keepalive-ms N] [--draft N] [--metrics ADDR:PORT|unix:PATH] [--receipts N] [--front "
     "UID]\n"
     "      [--state-mib N] [--prefixes FILE --prefixes-key FILE] [--profiles FILE] [--audits DIR] "
     "[--worker "
     "PROGRAM]"},
    {"logits", cmd_logits,
     "--model DIR --ids FILE --profile NAME[,ROW=VALUE]... [--chunk N] [--positions 0,5,-1]\n"
     "      [--draft] [--trace] [--decode-from N] [--decode-profile NAME[,ROW=VALUE]...]\n"
     "      [--worker PROGRAM] [--threads N] [--ranks N] [--gpu N] [--weights synth:SEED]"},
    {"layer", cmd_layer, "--model DIR --ids FILE --layer L --profile NAME --in FILE --out FILE"},
    {"steps", cmd_steps, "--model DIR: steps of another engine, which starts it; see --worker"},
    {"tokenize", cmd_tokenize, "--tokenizer FILE [--special] < text"},
    {"detokenize", cmd_detokenize, "--tokenizer FILE < ids"},
    {"render", cmd_render, "--tokenizer FILE --request FILE [--ids]"},
    {"profile", cmd_profile,
     "table | verify --model DIR [--profile P] [--json] | rank --model DIR [--ids FILE] [--json]"},
    {"verify", cmd_verify, "--model DIR"},
    {"audit", cmd_audit,
     "TEST|all|isolate --model DIR [--profile P] [--budget 5m] [--json FILE] [--html FILE]\n"
     "      | show FILE | diff FILE FILE | verify FILE --key HEX; alone it lists the tests"},
    {"version", cmd_version, ""},
};

#define N_COMMANDS (sizeof COMMANDS / sizeof COMMANDS[0])

/** @param only one subcommand's name, or NULL for all */
static void usage(FILE *out, const char *only)
{
    fprintf(out, "v4box engine %s\nusage:\n", V4BOX_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (only == NULL || strcmp(only, COMMANDS[i].name) == 0)
            fprintf(out, "  engine %s %s\n", COMMANDS[i].name, COMMANDS[i].help);
    }
    fprintf(out, "exit codes: 0 good, 1 the check failed, 2 usage or input\n");
}

int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("v4box %s\n", V4BOX_VERSION);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        usage(stdout, NULL);
        return 0;
    }
    if (argc >= 2) {
        for (size_t i = 0; i < N_COMMANDS; i++) {
            if (strcmp(argv[1], COMMANDS[i].name) != 0)
                continue;
            if (argc == 3 && strcmp(argv[2], "--help") == 0) {
                usage(stdout, argv[1]);
                return 0;
            }
            return COMMANDS[i].run(argc - 1, argv + 1);
        }
        fprintf(stderr, "engine: unknown subcommand '%.32s'\n", argv[1]);
    }
    usage(stderr, NULL);
    return 2;
}
