/* Which model serves, and which is tried. */
#include "init/modelplan.h"

#include "config/slots.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ALPHANUMERIC "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

bool modelplan_name_good(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= MODEL_NAME_CHARS && strspn(name, ALPHANUMERIC "-._") == n &&
           strchr(ALPHANUMERIC, name[0]) != NULL && strchr(ALPHANUMERIC, name[n - 1]) != NULL;
}

bool modelplan_find(const char *name, char *folder, int cap)
{
    static const char *const ROOTS[] = {BOX_MODELS, BOX_ATTACHED};
    for (size_t i = 0; i < sizeof ROOTS / sizeof ROOTS[0]; i++) {
        struct stat st;
        if (snprintf(folder, (size_t)cap, "%s/%s", ROOTS[i], name) < cap &&
            lstat(folder, &st) == 0 && S_ISDIR(st.st_mode))
            return true;
    }
    return false;
}

void modelplan_init(struct modelplan *p, const char *name)
{
    *p = (struct modelplan){.trying = false};
    snprintf(p->now, sizeof p->now, "%s", name);
}

const char *modelplan_use(struct modelplan *p, const char *name, bool try)
{
    if (!modelplan_name_good(name))
        return "this is no name of a model";
    if (p->trying || p->ending)
        return "another model is being tried";
    memcpy(p->before, p->now, sizeof p->before);
    snprintf(p->now, sizeof p->now, "%s", name);
    p->trying = try;
    p->ending = true;
    return NULL;
}

enum modelplan_action modelplan_turn(struct modelplan *p, const struct modelplan_engine *engine,
                                     int64_t now_ms)
{
    if (p->ending && !engine->ended)
        return MODELPLAN_STOP;
    if (p->ending) {
        p->ending = false;
        p->since_ms = now_ms;
        return MODELPLAN_START;
    }
    if (!p->trying)
        return MODELPLAN_NOTHING;
    if (engine->beat_ms >= p->since_ms) {
        p->trying = false;
        return MODELPLAN_KEEP;
    }
    if (!engine->crashed && now_ms - p->since_ms < GATE_MS)
        return MODELPLAN_NOTHING;
    memcpy(p->now, p->before, sizeof p->now);
    p->trying = false;
    p->ending = true;
    return MODELPLAN_BACK;
}
