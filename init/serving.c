/* Lets another model serve. */
#include "init/serving.h"

#include "config/box.h"

#include <string.h>

/* In rescue there are none. */
static struct child *child_called(struct supervisor *services, const char *name)
{
    for (int i = 0; i < services->count; i++)
        if (strcmp(services->child[i].spec->name, name) == 0)
            return &services->child[i];
    return NULL;
}

static const char *remember(struct box *box, const char *name)
{
    struct settings changed = box->net.saved;
    if (box->net.trying)
        return "a change of the network is being tried: net confirm, or wait";
    const char *wrong = settings_set(&changed, "model", name);
    return wrong != NULL ? wrong : netplan_change(&box->net, &changed, 0, clock_ms());
}

const char *serving_use(struct box *box, struct supervisor *services, const struct gate *gate,
                        const char *name, bool try)
{
    char folder[sizeof box->model_folder];
    bool has_engine = child_called(services, "engine") != NULL;
    if (!modelplan_name_good(name) || !modelplan_find(name, folder, (int)sizeof folder))
        return "there is no such model";
    if (try && (!has_engine || !gate->decided))
        return "there is no engine yet that a trial could go back to";
    if (box->model.trying || box->model.ending)
        return "another model is being tried";
    const char *wrong = try ? NULL : remember(box, name);
    if (wrong != NULL)
        return wrong;
    journal_printf(&box->journal, "init", "model %s%s", name, try ? ", tried" : "");
    if (has_engine)
        return modelplan_use(&box->model, name, try);
    modelplan_init(&box->model, name);
    return NULL;
}

static void switch_both(struct supervisor *services, struct child *engine, struct child *heart,
                        bool on)
{
    supervisor_switch(services, heart, on);
    supervisor_switch(services, engine, on);
}

static void end_trial(struct box *box, bool good)
{
    const char *wrong = good ? remember(box, box->model.now) : NULL;
    if (!good)
        storage_note(&box->storage, &box->journal,
                     "the model that was tried was no good: back to %s", box->model.now);
    else
        journal_printf(
            &box->journal, "init", "model %s has given a token%s%s", box->model.now,
            wrong == NULL ? "" : ", but is not remembered: ", wrong == NULL ? "" : wrong);
}

int serving_turn(struct box *box, struct supervisor *services, const struct gate *gate)
{
    struct child *engine = child_called(services, "engine");
    struct child *heart = child_called(services, "heart");
    if (engine == NULL || heart == NULL)
        return -1;
    struct modelplan_engine now = {
        .ended = engine->life.state == SERVICE_STOPPED && heart->life.state == SERVICE_STOPPED,
        .crashed = engine->life.state == SERVICE_BACKOFF || engine->life.state == SERVICE_FAILED,
        .beat_ms = gate->beat_ms};
    switch (modelplan_turn(&box->model, &now, clock_ms())) {
    case MODELPLAN_STOP:
        switch_both(services, engine, heart, false);
        break;
    case MODELPLAN_START:
        modelplan_find(box->model.now, box->model_folder, (int)sizeof box->model_folder);
        switch_both(services, engine, heart, true);
        break;
    case MODELPLAN_KEEP:
    case MODELPLAN_BACK:
        end_trial(box, !box->model.ending);
        break;
    case MODELPLAN_NOTHING:
        break;
    }
    return box->model.trying || box->model.ending ? END_SETTLE_MS : -1;
}
