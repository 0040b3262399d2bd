/*
 * What the serving core was seen doing, for the model in queue.pml: random clients over the toy
 * network, driven from the engine's own thread alone, so that the order of events is exact.
 *   trace SEED EVENTS [FAULT]     prints trace.h: TRACE_N, TRACE_EVENTS, TRACE_PATIENCE
 * FAULT changes one event, so that no engine could have done it: "start" lets another client start,
 * "end" forgets an end, "refuse" takes a request as refused.
 */
#include "tests/unit/engine_toy.h"

#define CLIENTS 3 /* these and the next three as in queue.pml */
#define STEPS   2

enum kind { SUBMIT, REFUSE, CANCEL, START, TOKEN, END };

static const int32_t PRIORITY[CLIENTS] = {0, 1, 1};

static struct talker {
    struct engine *engine;
    uint64_t random;
    int32_t n, n_max;
    struct {
        enum kind kind;
        int who;
    } events[4096];
    struct {
        bool asked, started, cancelled;
        uint64_t number;
    } clients[CLIENTS];
} talk;

static void saw(enum kind kind, int who)
{
    ASSERT(talk.n < (int32_t)(sizeof talk.events / sizeof talk.events[0]));
    talk.events[talk.n].kind = kind;
    talk.events[talk.n++].who = who;
}

static bool one_in(uint64_t n)
{
    talk.random = mix(talk.random + 1);
    return talk.random % n == 0;
}

static void on_talk(void *user, const struct engine_event *event);

static void ask(int who)
{
    struct engine_request r = request(prompt((uint64_t)who + 1, 5), 5, STEPS);
    struct error err;
    r.priority = PRIORITY[who];
    int32_t at = talk.n;
    saw(SUBMIT, who);
    enum status status = engine_submit(talk.engine, &r, on_talk, (void *)(intptr_t)who,
                                       &talk.clients[who].number, &err);
    ASSERT(status == OK || status == ERR_CAPACITY);
    if (status != OK)
        talk.events[at].kind = REFUSE;
    talk.clients[who].asked = status == OK;
    talk.clients[who].started = talk.clients[who].cancelled = false;
}

/* Anybody may do something now. */
static void stir(void)
{
    for (int who = 0; who < CLIENTS && talk.n < talk.n_max; who++) {
        if (!talk.clients[who].asked && one_in(2)) {
            ask(who);
        } else if (talk.clients[who].asked && !talk.clients[who].cancelled && one_in(6)) {
            saw(CANCEL, who);
            talk.clients[who].cancelled = true;
            engine_cancel(talk.engine, talk.clients[who].number);
        }
    }
}

static void on_talk(void *user, const struct engine_event *event)
{
    int who = (int)(intptr_t)user;
    bool first = event->kind == EVENT_PREFILL && !talk.clients[who].started;
    if (event->kind == EVENT_PREFILL && !first)
        return; /* progress is no change of state */
    talk.clients[who].started |= first;
    if (event->kind == EVENT_END)
        talk.clients[who].asked = false;
    saw(first ? START : event->kind == EVENT_TOKEN ? TOKEN : END, who);
    stir();
}

static void stir_between(void *user, struct model *model)
{
    (void)user;
    (void)model;
    stir();
}

static void spoil(const char *fault)
{
    static const struct {
        const char *name;
        enum kind kind, to;
        int who_step;
    } FAULTS[] = {{"start", START, START, 1}, {"end", END, END, 0}, {"refuse", SUBMIT, REFUSE, 0}};
    for (size_t f = 0; f < sizeof FAULTS / sizeof FAULTS[0]; f++) {
        for (int32_t i = talk.n / 2; strcmp(FAULTS[f].name, fault) == 0 && i < talk.n; i++) {
            if (talk.events[i].kind != FAULTS[f].kind)
                continue;
            talk.events[i].kind = FAULTS[f].to;
            talk.events[i].who = (talk.events[i].who + FAULTS[f].who_step) % CLIENTS;
            if (FAULTS[f].kind == END)
                memmove(&talk.events[i], &talk.events[i + 1],
                        (size_t)(--talk.n - i) * sizeof talk.events[0]);
            return;
        }
    }
    ASSERT(!"a fault of this name, and an event to spoil");
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: trace SEED EVENTS [start|end|refuse]\n");
        return 2;
    }
    talk.random = strtoull(argv[1], NULL, 10);
    talk.n_max = (int32_t)strtol(argv[2], NULL, 10);
    talk.engine = engine_start(1, 1);
    while (talk.n < talk.n_max)
        ASSERT(engine_between_steps(talk.engine, stir_between, NULL));
    engine_end(talk.engine);
    if (argc == 4)
        spoil(argv[3]);
    printf("#define TRACE_PATIENCE %d\n#define TRACE_N %d\n#define TRACE_EVENTS {",
           PRIORITY_PATIENCE, talk.n);
    for (int32_t i = 0; i < talk.n; i++)
        printf("%s%d", i > 0 ? "," : "", (int)talk.events[i].kind * CLIENTS + talk.events[i].who);
    printf("}\n");
    return 0;
}
