/*
 * The serving core over a real network, on random schedules:
 *   schedules MODEL PROFILE SEED COUNT [WORKER]     WORKER: a program that computes for the engine
 *
 * Requests of several keys and two profiles arrive, share steps, branch, continue, repeat and are
 * cancelled, with a prefix cache that is always too small and memory that sometimes is.  Now and
 * then the engine ends and another one reads what it left in its file of prefixes, which sometimes
 * is damaged.  The engine runs on this thread, turn by turn, so a seed says everything.  Every row
 * of logits that the network gave on the way is compared, bit for bit, with one cold timeline that
 * was fed the same tokens alone in steps of another size; every token of an answer is what the
 * sampler makes of the cold row.  Prints TAP.
 */
#include "config/limits.h"
#include "engine/base/fnv.h"
#include "engine/model/network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The engine with its insides open, and every step of the network observed. */
static void spied_step(struct model *model, const struct profile *profile,
                       const struct segment *segments, int n_segments);
static void spied_draft(struct model *model, const struct profile *profile,
                        const struct draft_segment *segments, int n_segments);
#define model_step  spied_step
#define model_draft spied_draft
#include "engine/serve/engine.c"
#include "engine/serve/step.c"
#include "engine/serve/timeline.c"
#undef model_step
#undef model_draft

#define CONTEXT      640
#define ANSWER_MAX   24
#define SESSIONS     3
#define IN_FLIGHT    5 /* more than sessions: some wait */
#define TAILS        6 /* of the prefix cache */
#define RESTART      25
#define DAMAGE_EVERY 3 /* lives: the file that one of them finds is damaged */
#define NAMES        3 /* 0 is nobody's */
#define PROFILES     2
#define COUNT_MAX    100000
#define ROOMY        2  /* of four lives: memory is no reason to wait or to give timelines up */
#define BUSY_MIN     60 /* fewer requests may miss some kind of event */
#define WRONG_BYTES  (ERROR_TEXT_BYTES + 128)
#define ENGINE_QUEUE 8

/* One request, what it asked and what became of it. */
struct job {
    uint64_t name, number;
    int profile;
    int32_t ids[CONTEXT]; /* the prompt, then the answer */
    int32_t n_prompt, n_answer, reused, kind;
    struct sampling sampling;
    bool started, over;
    enum end_reason reason;
    uint64_t hash[CONTEXT]; /* of the logits behind this position */
    int32_t fed[CONTEXT];   /* the token that was fed there; -1: none */
    int32_t step[CONTEXT];  /* position of the first token of its step */
    float logprobs[ANSWER_MAX];
};

static struct {
    struct profile profiles[PROFILES]; /* of the command line, and another one */
    struct model *cold_model;
    struct sequence *cold;
    struct engine *engine;
    struct sampler sampler;
    struct job *jobs; /* owns; [count], as they were submitted */
    int32_t n_jobs;
    const char *worker; /* NULL: this process computes */
    float *rows;        /* owns; [SPAN_TOKENS_MAX, vocab] */
    uint64_t random;
    char path[64];           /* of the file of prefixes */
    int32_t life_from;       /* first request of this engine */
    bool blank;              /* it found no good file */
    char wrong[WRONG_BYTES]; /* the first difference */
    int64_t compared, reused, cached, cancelled, evicted, restarts, drafts, drafts_right, restored;
    int64_t shared; /* pages, at the ends of the engines */
    int64_t spared; /* pages that one timeline more has, at the ends of the turns */
    bool *seen;     /* owns; [n_seen] of the pages of the engine's network; false between turns */
    int32_t n_seen;
} test;

static void wrong(const struct job *job, const char *what, int32_t at)
{
    if (test.wrong[0] == '\0')
        snprintf(test.wrong, sizeof test.wrong, "request %d (kind %d, %d prompt, %d reused): %s %d",
                 (int)(job - test.jobs), job->kind, job->n_prompt, job->reused, what, at);
}

static uint32_t roll(uint32_t n)
{
    test.random = test.random * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)((test.random >> 33) % n);
}

static int32_t vocab(void)
{
    return model_config(test.cold_model)->vocab_size;
}

/* FNV-1a over the bits of a row. */
static uint64_t hash_row(const float *row)
{
    uint64_t hash = FNV_BASIS;
    for (int32_t i = 0; i < vocab(); i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        hash = fnv_add(hash, bits);
    }
    return hash;
}

/* ---- observing the engine ------------------------------------------------------------------- */

static const struct timeline *timeline_of(const struct sequence *sequence)
{
    const struct timeline *t = test.engine->timelines;
    while (t->sequence != sequence)
        t++;
    return t;
}

static void spied_step(struct model *model, const struct profile *profile,
                       const struct segment *segments, int n_segments)
{
    struct segment all[SESSIONS];
    float *rows = test.rows;
    ASSERT(n_segments <= SESSIONS);
    for (int i = 0; i < n_segments; i++) {
        all[i] = segments[i];
        all[i].logits_all = rows;
        rows += (int64_t)segments[i].n * vocab();
    }
    model_step(model, profile, all, n_segments);
    for (int i = 0; i < n_segments; i++) {
        const struct timeline *t = timeline_of(all[i].sequence);
        struct job *job = t->request->user;
        for (int32_t j = 0; j < all[i].n; j++) {
            int32_t at = t->n_ids + j;
            job->hash[at] = hash_row(all[i].logits_all + (int64_t)j * vocab());
            job->fed[at] = all[i].ids[j];
            job->step[at] = t->n_ids;
        }
    }
}

/* What the same request was answered before: the token at `at`, or -1. */
static int32_t answered_before(const struct job *job, int32_t at)
{
    for (const struct job *other = test.jobs; other < job; other++) {
        if (other->n_prompt == job->n_prompt && other->sampling.seed == job->sampling.seed &&
            at < other->n_prompt + other->n_answer &&
            memcmp(other->ids, job->ids, (size_t)at * sizeof *job->ids) == 0)
            return other->ids[at];
    }
    return -1;
}

/* Random networks rarely guess right: of a request that is asked again the guesses are. */
static void spied_draft(struct model *model, const struct profile *profile,
                        const struct draft_segment *segments, int n_segments)
{
    ASSERT(n_segments == 1);
    model_draft(model, profile, segments, 1);
    const struct timeline *t = timeline_of(segments->sequence);
    int32_t id = answered_before(t->request->user, t->n_ids + 1 + segments->beyond);
    if (id >= 0)
        segments->pick->id = id;
}

static void on_event(void *user, const struct engine_event *event)
{
    struct job *job = user;
    if (job->over)
        wrong(job, "an event after the end:", (int32_t)event->kind);
    if (event->kind == EVENT_PREFILL && !job->started) {
        job->started = true;
        job->reused = event->reused;
    } else if (event->kind == EVENT_TOKEN) {
        job->logprobs[job->n_answer] = event->logprobs->chosen;
        job->ids[job->n_prompt + job->n_answer++] = event->id;
    } else if (event->kind == EVENT_END) {
        job->over = true;
        job->reason = event->reason;
    }
}

/* ---- making requests ------------------------------------------------------------------------ */

static void say(struct job *job, int32_t n)
{
    for (int32_t i = 0; i < n && job->n_prompt < CONTEXT - ANSWER_MAX; i++)
        job->ids[job->n_prompt++] = (int32_t)roll((uint32_t)vocab());
}

/* Any length, mostly one around which something happens: both ratios, the window, the steps and
 * the selection of the nano network (32 blocks) and of the embedded one (64). */
static int32_t any_length(void)
{
    static const int32_t EDGES[] = {0, 4, 8, 128, 132, 256, 260, 384, 512};
    if (roll(3) == 0)
        return 1 + (int32_t)roll(500);
    int32_t n = EDGES[roll(sizeof EDGES / sizeof EDGES[0])] + (int32_t)roll(7) - 3;
    return n < 1 ? 1 : n;
}

/* Starts with the first n tokens of another request's, or of nothing when there is none. */
static void start_like(struct job *job, const struct job *other, int32_t n)
{
    int32_t all = other == NULL ? 0 : other->n_prompt + other->n_answer;
    n = n < all ? n : all;
    n = n < CONTEXT - ANSWER_MAX - 8 ? n : CONTEXT - ANSWER_MAX - 8;
    if (n > 0)
        memcpy(job->ids, other->ids, (size_t)n * sizeof *job->ids);
    job->n_prompt = n;
}

static const struct job *any_job(uint64_t name, bool of_others)
{
    for (int tries = 0; tries < 50 && test.n_jobs > 0; tries++) {
        int32_t recent = test.n_jobs < 20 ? test.n_jobs : 20;
        const struct job *job = &test.jobs[test.n_jobs - 1 - (int32_t)roll((uint32_t)recent)];
        if ((job->name != name) == of_others)
            return job;
    }
    return NULL;
}

static void write_prompt(struct job *job)
{
    const struct job *other;
    static const int KIND_OF[] = {0, 1, 1, 2, 2, 2, 2, 3, 3, 4};
    job->kind = KIND_OF[roll(sizeof KIND_OF / sizeof KIND_OF[0])];
    switch (job->kind) {
    case 0: /* new */
        say(job, any_length());
        break;
    case 1: /* the next turn */
        start_like(job, any_job(job->name, false), CONTEXT);
        say(job, 1 + (int32_t)roll(20));
        break;
    case 2: /* a branch */
        start_like(job, any_job(job->name, false), any_length());
        say(job, 1 + (int32_t)roll(roll(2) == 0 ? 9 : 150));
        break;
    case 3: /* the same again */
        other = any_job(job->name, false);
        start_like(job, other, other == NULL ? 0 : other->n_prompt);
        if (other != NULL)
            job->sampling = other->sampling;
        break;
    default: /* what somebody else said */
        start_like(job, any_job(job->name, true), any_length());
        say(job, 1 + (int32_t)roll(9));
    }
    if (job->n_prompt == 0)
        say(job, any_length());
}

static void submit_one(void)
{
    struct job *job = &test.jobs[test.n_jobs];
    *job = (struct job){.name = roll(8) == 0 ? 0 : 1 + roll(NAMES - 1), .profile = roll(5) == 0};
    for (int32_t i = 0; i < CONTEXT; i++)
        job->fed[i] = -1;
    job->sampling = (struct sampling){
        .temperature = roll(3) == 0 ? 0 : 1, .top_p = 1, .seed = roll(UINT32_MAX)};
    if (roll(3) == 0)
        job->sampling.presence_penalty = job->sampling.frequency_penalty = 1;
    if (roll(6) == 0)
        job->sampling.repetition_penalty = 1.5;
    write_prompt(job);
    test.n_jobs++;
    struct engine_request r = {
        .ids = job->ids,
        .n_ids = job->n_prompt,
        .tokens_max = 1 + (int32_t)roll(ANSWER_MAX),
        .sampling = job->sampling,
        .logprobs = true,
        .top_logprobs = 1,
        .reuse_namespace = job->name,
        .profile = job->profile == 0 ? NULL : &test.profiles[job->profile],
    };
    struct error err;
    if (engine_submit(test.engine, &r, on_event, job, &job->number, &err) != OK) {
        wrong(job, err.text, 0);
        job->over = true;
    }
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Tokens at the start that both have. */
static int32_t common(const struct job *a, const struct job *b)
{
    int32_t n = a->n_prompt < b->n_prompt + b->n_answer ? a->n_prompt : b->n_prompt + b->n_answer;
    int32_t i = 0;
    while (i < n && a->ids[i] == b->ids[i])
        i++;
    return i;
}

/* Tokens of its prompt that one of these requests said under the same name. */
static int32_t said_before(const struct job *job, int32_t from)
{
    int32_t most = 0;
    for (const struct job *other = test.jobs + from; other < job; other++) {
        if (other->name == job->name && job->name != 0 && other->profile == job->profile &&
            common(job, other) > most)
            most = common(job, other);
    }
    return most;
}

/* What was reused must have been said before: to this engine, or to one that left a good file. */
static void check_reuse(const struct job *job)
{
    int32_t most = said_before(job, test.blank ? test.life_from : 0);
    if (job->reused > most)
        wrong(job, "more was reused than this name ever said:", most);
    if (job->reused >= job->n_prompt)
        wrong(job, "all was reused:", job->reused);
    test.reused += job->reused;
    test.restored += job->reused > said_before(job, test.life_from);
    test.cached += job->reused > 0 && job->reused % SNAPSHOT_TOKENS == 0;
}

/* True when the row at this position was computed behind the tokens that the timeline has. */
static bool counts(const struct job *job, int32_t at)
{
    for (int32_t i = at; i >= 0 && job->fed[at] >= 0; i--) {
        if (job->fed[i] != job->ids[i])
            return false; /* behind a rejected draft */
        if (i == job->step[at])
            return true;
    }
    return false;
}

/* `cold`: the row of the cold timeline, changed. */
static void check_row(struct job *job, int32_t at, float *cold)
{
    if (counts(job, at)) {
        test.compared++;
        if (job->hash[at] != hash_row(cold))
            wrong(job, "other logits at position", at);
    }
    int32_t next = at + 1 - job->n_prompt;
    if (next < 0 || next >= job->n_answer)
        return;
    struct token_logprobs logprobs;
    sampler_logprobs(cold, vocab(), job->ids[at + 1], 1, &logprobs);
    if (memcmp(&logprobs.chosen, &job->logprobs[next], sizeof logprobs.chosen) != 0)
        wrong(job, "another logprob at position", at + 1);
    sampler_penalise(&test.sampler, cold, &job->sampling, job->ids, job->n_prompt, next);
    if (sampler_pick(&test.sampler, cold, &job->sampling, (uint64_t)at + 1) != job->ids[at + 1])
        wrong(job, "another token at position", at + 1);
}

/* Feeds everything to the cold timeline, alone, in pieces of one size, and compares. */
static void check_job(struct job *job)
{
    static const int32_t PIECES[] = {256, 256, 256, 129, 128, 127, 64, 7, 3, 1};
    if (job->started)
        check_reuse(job);
    if (!job->started || test.wrong[0] != '\0')
        return;
    int32_t n = job->n_prompt + job->n_answer;
    int32_t size = n > 200 ? 7 : 10; /* small pieces of long texts take too long */
    int32_t piece = PIECES[roll((uint32_t)size)];
    sequence_reset(test.cold);
    for (int32_t at = 0; at < n; at += piece) {
        struct segment s = {.sequence = test.cold,
                            .ids = job->ids + at,
                            .n = n - at < piece ? n - at : piece,
                            .logits_all = test.rows,
                            .leg = LEG_PREFILL};
        model_step(test.cold_model, &test.profiles[job->profile], &s, 1);
        for (int32_t j = 0; j < s.n; j++)
            check_row(job, at + j, test.rows + (int64_t)j * vocab());
    }
}

/* Pages that somebody still has, of timelines that are emptied now and a cache that is empty. */
static int32_t pages_left(struct engine *e)
{
    struct pages_stats pages;
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        timeline_empty(&e->timelines[i]);
    if (test.worker != NULL)
        return 0; /* they are not here */
    pages_stats_get(e->model->pages, &pages);
    return pages.all - pages.free;
}

/* Marks the pages that a timeline has, or takes the marks away.
 * @return those that another one had marked, and that this one may share */
static int32_t pages_mark(const struct timeline *t, bool mark)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->sequence->n_pages; i++) {
        int32_t page = t->sequence->pages[i];
        if (page == PAGE_NONE)
            continue;
        ASSERT(page < test.n_seen);
        n += mark && test.seen[page];
        test.seen[page] = mark;
    }
    return n;
}

/* What timelines take is what each may come to, less the pages that others have already: counted
 * here by the numbers of the pages, whoever came first; and it is never more than there is. */
static void check_memory(void)
{
    struct engine *e = test.engine;
    struct pages_stats pages;
    if (test.worker != NULL || !model_pages(e->model, &pages))
        return; /* they are not here */
    if (test.n_seen < pages.all) {
        free(test.seen);
        test.seen = take_memory(pages.all, sizeof *test.seen);
        test.n_seen = pages.all;
    }
    uint64_t sum = 0;
    for (int32_t i = 0; i < SESSIONS; i++) {
        const struct timeline *t = &e->timelines[i];
        int32_t shared = pages_mark(t, true);
        sum += t->planned - (uint64_t)shared * t->sequence->page_bytes;
        test.spared += shared;
    }
    for (int32_t i = 0; i < SESSIONS; i++)
        pages_mark(&e->timelines[i], false);
    if (sum != e->stats.state_bytes || sum > e->state_bytes_max)
        wrong(test.jobs + test.n_jobs - 1,
              "memory is counted otherwise; bytes:", (int32_t)(e->stats.state_bytes - sum));
}

/* Nothing runs, and nothing is left of what did. */
static void check_baseline(void)
{
    struct engine *e = test.engine;
    bool good = e->stats.running == 0 && e->stats.waiting == 0;
    for (int32_t i = 0; i < e->n_requests; i++)
        good = good && e->requests[i].state == REQUEST_FREE;
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        good = good && e->timelines[i].request == NULL;
    good = good && e->stats.state_bytes <= e->state_bytes_max;
    struct prefix_stats stats;
    prefix_stats_get(e->prefix, &stats);
    test.evicted += (int64_t)stats.evicted;
    test.drafts += (int64_t)e->stats.drafts;
    test.drafts_right += (int64_t)e->stats.drafts_right;
    struct pages_stats pages = {0};
    if (test.worker == NULL)
        pages_stats_get(e->model->pages, &pages);
    test.shared += pages.shared;
    for (uint64_t name = 1; name < NAMES; name++)
        prefix_forget(e->prefix, name);
    prefix_stats_get(e->prefix, &stats);
    if (!good || stats.blocks != 0 || stats.tails != 0)
        wrong(test.jobs + test.n_jobs - 1, "not everything came back; blocks:", stats.blocks);
    int32_t left = pages_left(e);
    if (left != 0)
        wrong(test.jobs + test.n_jobs - 1, "not everything came back; pages:", left);
}

/* ---- running -------------------------------------------------------------------------------- */

static struct model *open_model(const char *dir, const char *worker)
{
    struct model_options options = {.threads = 1, .worker = worker};
    struct model *model = NULL;
    struct error err;
    if (model_open(dir, &options, &model, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    return model;
}

/* Of an end of a prefix, under whichever profile makes the larger. */
static uint64_t tail_bytes(const struct model *model)
{
    uint64_t most = 0;
    for (int i = 0; i < PROFILES; i++) {
        uint64_t bytes = snapshot_tail_bytes(model, &test.profiles[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* As engine_create, without the thread. */
static void engine_open(const char *dir)
{
    struct engine *e = take_memory(1, sizeof *e);
    struct error err;
    e->model = open_model(dir, test.worker);
    e->options = (struct engine_options){
        .sessions_max = SESSIONS,
        .context_max = CONTEXT,
        .queue_max = ENGINE_QUEUE,
        .state_bytes = test.restarts % 4 < ROOMY ? SESSIONS * sequence_bytes(test.cold) : 0,
        .prefix_bytes = 2 * TAILS * tail_bytes(e->model),
        .prefix_path = test.path,
        .prefix_key = "any key of thirty-two bytes....",
    };
    e->profile = test.profiles[0];
    e->next_number = 1;
    ASSERT(pthread_mutex_init(&e->lock, NULL) == 0 && pthread_cond_init(&e->work, NULL) == 0);
    ASSERT(engine_plan(e, &err) == OK);
    test.engine = e;
}

/* Leaves the file of prefixes for the next engine; or one with a changed bit in it. */
static void engine_leave(void)
{
    struct error err;
    struct save save = {.engine = test.engine, .err = &err};
    save_run(&save, test.engine->model);
    ASSERT(save.status == OK);
    test.blank = (test.restarts + 1) % DAMAGE_EVERY == 0;
    if (!test.blank)
        return;
    FILE *file = fopen(test.path, "r+b");
    ASSERT(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long at = (long)roll((uint32_t)ftell(file));
    ASSERT(fseek(file, at, SEEK_SET) == 0);
    int byte = fgetc(file);
    ASSERT(fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
}

static int32_t in_flight(int32_t from)
{
    int32_t n = 0;
    for (int32_t i = from; i < test.n_jobs; i++)
        n += !test.jobs[i].over;
    return n;
}

/* Requests `from`.. of one life of the engine. */
static void live(int32_t from, int32_t to)
{
    int32_t checked = from;
    while ((test.n_jobs < to || checked < to) && test.wrong[0] == '\0') {
        int32_t running = in_flight(checked);
        if (test.n_jobs < to && running < IN_FLIGHT && roll(running + 1 > 3 ? 8 : 2) == 0)
            submit_one();
        if (test.n_jobs > from && roll(25) == 0) {
            struct job *job = &test.jobs[test.n_jobs - 1 - (int32_t)roll(3) % (test.n_jobs - from)];
            engine_cancel(test.engine, job->number);
            test.cancelled += !job->over;
        }
        end_some(test.engine);
        admit(test.engine);
        step_run(test.engine);
        check_memory();
        while (checked < test.n_jobs && test.jobs[checked].over)
            check_job(&test.jobs[checked++]);
    }
}

static void report(int number, bool good, const char *what)
{
    printf("%sok %d - %s\n", good ? "" : "not ", number, what);
}

int main(int argc, char **argv)
{
    bool complete = argc == 5 || argc == 6;
    int32_t count = complete ? (int32_t)strtol(argv[4], NULL, 10) : 0;
    const struct profile *profile = complete ? profile_builtin(argv[2]) : NULL;
    if (profile == NULL || count < 1 || count > COUNT_MAX) {
        fprintf(stderr, "usage: schedules MODEL PROFILE SEED COUNT [WORKER]\n");
        return 2;
    }
    struct error err;
    bool reference = profile == profile_builtin_at(PROFILE_REFERENCE);
    test.profiles[0] = *profile;
    test.profiles[1] = *profile_builtin_at(reference ? PROFILE_OFFICIAL : PROFILE_REFERENCE);
    snprintf(test.path, sizeof test.path, "build/serve/prefixes-%d", (int)getpid());
    test.random = strtoull(argv[3], NULL, 10);
    test.worker = argc == 6 ? argv[5] : NULL;
    test.cold_model = open_model(argv[1], NULL);
    ASSERT(sequence_create_mixed(test.cold_model, CONTEXT, &test.cold, &err) == OK);
    sampler_init(&test.sampler, vocab());
    test.jobs = take_memory(count, sizeof *test.jobs);
    test.rows = take_memory((int64_t)SPAN_TOKENS_MAX * vocab(), sizeof *test.rows);
    for (int32_t from = 0; from < count && test.wrong[0] == '\0';
         from += RESTART, test.restarts++) {
        for (int i = 0; i < PROFILES; i++)
            ASSERT(profile_set(&test.profiles[i], ROW_PREFIX_REUSE, PREFIX_REUSE_ON) &&
                   profile_set(&test.profiles[i], ROW_DRAFT_DEPTH,
                               test.restarts % 2 == 0 ? DRAFT_DEPTH_MAX : 0));
        engine_open(argv[1]);
        test.life_from = from;
        live(from, count - from < RESTART ? count : from + RESTART);
        engine_leave();
        if (test.wrong[0] == '\0')
            check_baseline();
        engine_free(test.engine);
    }
    printf("# %s, %s, seed %s: %lld rows compared, %lld tokens reused, %lld requests from the "
           "cache, %lld from before a restart, %lld evictions, %lld pages shared, %lld counted "
           "once, %lld cancels, "
           "%lld engines, %lld of %lld guesses right\n",
           argv[1], argv[2], argv[3], (long long)test.compared, (long long)test.reused,
           (long long)test.cached, (long long)test.restored, (long long)test.evicted,
           (long long)test.shared, (long long)test.spared, (long long)test.cancelled,
           (long long)test.restarts, (long long)test.drafts_right, (long long)test.drafts);
    if (test.wrong[0] != '\0')
        printf("# %s\n", test.wrong);
    bool equal = test.wrong[0] == '\0';
    bool busy = test.cached > 0 && test.restored > 0 && test.evicted > 0 && test.cancelled > 0 &&
                test.shared > 0 && test.drafts > 0 && test.drafts_right > 0 &&
                test.drafts_right < test.drafts;
    bool long_enough = count >= BUSY_MIN;
    report(1, equal, "every schedule gives the bits of a cold timeline alone");
    if (long_enough)
        report(
            2, busy,
            "prefixes reused, shared, evicted and restored, requests cancelled, guesses right and "
            "wrong");
    printf("1..%d\n", long_enough ? 2 : 1);
    unlink(test.path);
    sequence_destroy(test.cold);
    model_close(test.cold_model);
    sampler_clear(&test.sampler);
    free(test.jobs);
    free(test.rows);
    free(test.seen);
    return !(equal && (busy || !long_enough));
}
