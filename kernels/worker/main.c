/*
 * The worker program: the engine's own network on a GPU.  The engine is a static musl program and
 * cannot load the GPU's driver, a shared glibc library; this one can, and is otherwise the same
 * code with another backend linked (backend_cuda.c).  It looks into the network, or runs
 * the steps of an engine that has started it.
 */
#include "config/version.h"
#include "engine/commands.h"

#include <stdio.h>
#include <string.h>

static int cmd_worker_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("v4box worker %s\n", V4BOX_VERSION);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} COMMANDS[] = {
    {"logits", cmd_logits, "as of the engine, without --isa and --threads"},
    {"layer", cmd_layer, "as of the engine, without --isa and --threads"},
    {"steps", cmd_steps, "--model DIR: steps of an engine, which starts it; see its --worker"},
    {"version", cmd_worker_version, ""},
};

#define N_COMMANDS (sizeof COMMANDS / sizeof COMMANDS[0])

static void usage(FILE *out)
{
    fprintf(out, "v4box worker %s\nusage:\n", V4BOX_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  worker %s %s\n", COMMANDS[i].name, COMMANDS[i].help);
    fprintf(out, "exit codes: 0 good, 1 the check or the GPU failed, 2 usage or input\n");
}

int main(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        usage(stdout);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < N_COMMANDS; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1);
    }
    usage(stderr);
    return 2;
}
