/*
 * The subcommands of `engine`, one function each, one file each (cmd_*.c in the room that owns the
 * work).  main.c holds the table; argv[0] is the subcommand's name.
 * Each returns the exit code: 0 good, 1 the check failed, 2 usage or input, with one line on stderr
 * naming the file and field.
 */
#ifndef V4BOX_ENGINE_COMMANDS_H
#define V4BOX_ENGINE_COMMANDS_H

int cmd_serve(int argc, char **argv);      /* engine/api/cmd_serve.c */
int cmd_logits(int argc, char **argv);     /* engine/model/cmd_logits.c */
int cmd_steps(int argc, char **argv);      /* engine/model/cmd_steps.c */
int cmd_layer(int argc, char **argv);      /* engine/model/cmd_layer.c */
int cmd_verify(int argc, char **argv);     /* engine/model/cmd_verify.c */
int cmd_profile(int argc, char **argv);    /* engine/precision/cmd_profile.c */
int cmd_tokenize(int argc, char **argv);   /* engine/text/cmd_tokenize.c */
int cmd_detokenize(int argc, char **argv); /* engine/text/cmd_tokenize.c */
int cmd_render(int argc, char **argv);     /* engine/text/cmd_render.c */
int cmd_audit(int argc, char **argv);      /* engine/audit/cmd_audit.c */
int cmd_version(int argc, char **argv);    /* engine/main.c */

#endif
