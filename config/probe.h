/*
 * What a box shows itself: two conversations that are sensitive to every prompt row of
 * config/precision.def.  Bodies of chat completions, "%s" is the served model.  The second is the
 * first with thinking on; both have reasoning of an earlier turn.  Together they are long enough
 * that the embedded model's indexer has to choose.
 */
#ifndef V4BOX_CONFIG_PROBE_H
#define V4BOX_CONFIG_PROBE_H

#define PROBE_MESSAGES                                                                             \
    "\"model\":\"%s\",\"messages\":["                                                              \
    "{\"role\":\"system\",\"content\":\"You are a helpful assistant. You remember everything "     \
    "that was said, and answer briefly.\"},"                                                       \
    "{\"role\":\"user\",\"content\":\"My name is Nadia Keller and I live in Oslo. I work as a "    \
    "geologist. The code of the blue locker is 7342. Please remember this, and tell me what you "  \
    "can do with a list of files.\"},"                                                             \
    "{\"role\":\"assistant\",\"reasoning_content\":\"The user gave a name, a city, a job and a "   \
    "code. I keep all four of them.\",\"content\":\"I remember it, Nadia. I can read files, "      \
    "compare them, and write new ones.\"},"                                                        \
    "{\"role\":\"user\",\"content\":\"Good. Here is the list: notes.txt, report.md, data.csv, "    \
    "run.sh, config.yaml, main.c, index.html. What was the code of the locker, and in which city " \
    "do I live?\"}]"

#define PROBE_BODIES                                                                               \
    "{" PROBE_MESSAGES "}", "{" PROBE_MESSAGES ",\"thinking\":{\"type\":\"enabled\"}}"

#endif
