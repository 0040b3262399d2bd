/* Timelines, the ways into them, and greedy answers. */
#include "engine/audit/machine.h"

#include "engine/base/fnv.h"
#include "engine/model/logits.h"
#include "engine/model/snapshot.h"
#include "engine/serve/schedule.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct audit_machine {
    struct lab *lab; /* borrows */
    struct audit_text text;
    int32_t context, vocab;
    struct sequence *main, *other; /* own */
    struct snapshots *snapshots;   /* owns; one prefix of up to `context` tokens */
    float *a, *b;                  /* own; [SPAN_TOKENS_MAX, vocab], [AUDIT_COMPARE_ROWS, vocab] */
};

/* ---- work on the model ----------------------------------------------------------------------- */

/* One call of the laboratory, whatever it does. */
struct piece {
    struct audit_machine *machine;
    struct sequence *sequence;
    const struct profile *profile;
    const struct segment *segments;
    int n_segments;
    int32_t length;
    enum status status;
    struct error *err;
};

static void create_piece(void *user, struct model *model)
{
    struct piece *p = user;
    struct audit_machine *m = p->machine;
    p->status = sequence_create_mixed(model, m->context, &m->main, p->err);
    if (p->status == OK)
        p->status = sequence_create_mixed(model, m->context, &m->other, p->err);
    if (p->status == OK)
        p->status =
            snapshots_create(model, m->context / SNAPSHOT_TOKENS + 1, 1, &m->snapshots, p->err);
}

static void destroy_piece(void *user, struct model *model)
{
    struct audit_machine *m = user;
    (void)model;
    snapshots_destroy(m->snapshots);
    sequence_destroy(m->main);
    sequence_destroy(m->other);
}

/* The profile may read what another wrote: legs are told apart by that. */
static void step_piece(void *user, struct model *model)
{
    struct piece *p = user;
    for (int i = 0; i < p->n_segments; i++)
        sequence_crossover(p->segments[i].sequence, p->profile);
    model_step(model, p->profile, p->segments, p->n_segments);
}

static void step(struct audit_machine *m, const struct profile *profile,
                 const struct segment *segments, int n_segments)
{
    struct piece piece = {.profile = profile, .segments = segments, .n_segments = n_segments};
    lab_work(m->lab, step_piece, &piece);
}

static void rewind_piece(void *user, struct model *model)
{
    struct piece *p = user;
    (void)model;
    sequence_rewind(p->sequence, p->length);
}

/* Keeps the prefix of the last multiple of 128 tokens. */
static void store_piece(void *user, struct model *model)
{
    struct piece *p = user;
    struct snapshots *snapshots = p->machine->snapshots;
    (void)model;
    int32_t blocks = sequence_length(p->sequence) / SNAPSHOT_TOKENS;
    p->length = blocks * SNAPSHOT_TOKENS;
    for (int32_t i = 0; i < blocks; i++)
        snapshot_save_block(snapshots, i, p->sequence, i);
    if (blocks > 0)
        snapshot_save_tail(snapshots, 0, p->sequence, p->length);
}

/* A timeline that holds nothing but what was kept. */
static void load_piece(void *user, struct model *model)
{
    struct piece *p = user;
    struct snapshots *snapshots = p->machine->snapshots;
    (void)model;
    sequence_reset(p->sequence);
    for (int32_t i = 0; i < p->length / SNAPSHOT_TOKENS; i++)
        snapshot_load_block(snapshots, i, p->sequence, i);
    if (p->length > 0)
        snapshot_load_tail(snapshots, 0, p->sequence, p->length);
}

/* @return tokens that were kept */
static int32_t store(struct audit_machine *m, struct sequence *sequence)
{
    struct piece piece = {.machine = m, .sequence = sequence};
    lab_work(m->lab, store_piece, &piece);
    return piece.length;
}

static void load(struct audit_machine *m, struct sequence *sequence, int32_t length)
{
    struct piece piece = {.machine = m, .sequence = sequence, .length = length};
    lab_work(m->lab, load_piece, &piece);
}

/* Of a stored prefix, how many tokens another branch takes back and replaces. */
#define BRANCH_TOKENS 8

/* Back into the stored prefix, as far as the draft block has not followed. */
static void branch_piece(void *user, struct model *model)
{
    struct piece *p = user;
    int32_t drafted = sequence_draft_length(p->sequence);
    (void)model;
    p->length = p->length - BRANCH_TOKENS > drafted ? p->length - BRANCH_TOKENS : drafted;
    sequence_rewind(p->sequence, p->length);
}

/* Another branch goes on from within a stored prefix, with other tokens [2 * BRANCH_TOKENS]: it has
 * pages in common with what is stored, and must not write into them. */
static void branch_off(struct audit_machine *m, int32_t stored, const struct profile *profile,
                       const int32_t *others)
{
    struct piece piece = {.sequence = m->main, .length = stored};
    lab_work(m->lab, branch_piece, &piece);
    const struct segment segment = {
        .sequence = m->main, .ids = others, .n = 2 * BRANCH_TOKENS, .leg = LEG_PREFILL};
    step(m, profile, &segment, 1);
}

/* @return tokens that the timeline has */
static int32_t store_and_load(struct audit_machine *m, struct sequence *sequence)
{
    int32_t length = store(m, sequence);
    load(m, sequence, length);
    return length;
}

static void rewind_to(struct audit_machine *m, struct sequence *sequence, int32_t length)
{
    struct piece piece = {.sequence = sequence, .length = length};
    lab_work(m->lab, rewind_piece, &piece);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status machine_create(struct lab *lab, const struct audit_text *text, int32_t context,
                           struct audit_machine **out, struct error *err)
{
    struct audit_machine *m = calloc(1, sizeof *m);
    if (m == NULL)
        return error_set(err, ERR_CAPACITY, "out of memory");
    m->lab = lab;
    m->text = *text;
    m->context = context;
    m->vocab = lab->config->vocab_size;
    struct piece piece = {.machine = m, .err = err};
    enum status status = lab_work(lab, create_piece, &piece)
                             ? piece.status
                             : error_set(err, ERR_IO, "the model is going away");
    m->a = calloc((size_t)SPAN_TOKENS_MAX * (size_t)m->vocab, sizeof *m->a);
    m->b = calloc((size_t)AUDIT_COMPARE_ROWS * (size_t)m->vocab, sizeof *m->b);
    if (status == OK && (m->a == NULL || m->b == NULL))
        status = error_set(err, ERR_CAPACITY, "out of memory");
    if (status != OK) {
        machine_destroy(m);
        return status;
    }
    *out = m;
    return OK;
}

void machine_destroy(struct audit_machine *m)
{
    if (m == NULL)
        return;
    /* Also when the laboratory was given up; without a host there is nobody else who calls. */
    if (!m->lab->run(m->lab->host, destroy_piece, m))
        destroy_piece(m, NULL);
    free(m->a);
    free(m->b);
    free(m);
}

const struct model_config *machine_config(const struct audit_machine *m)
{
    return m->lab->config;
}

int32_t machine_step_tokens(const struct audit_machine *m)
{
    return m->lab->step_tokens;
}

int32_t machine_context(const struct audit_machine *m)
{
    return m->context;
}

/* ---- feeding --------------------------------------------------------------------------------- */

static int32_t min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* One step; the last token's logits go to `last` when that is wanted. */
static void feed(struct audit_machine *m, struct sequence *sequence, const struct profile *profile,
                 enum leg leg, const int32_t *ids, int32_t n, float *last)
{
    struct segment segment = {
        .sequence = sequence, .ids = ids, .n = n, .logits_last = last, .leg = leg};
    step(m, profile, &segment, 1);
}

/* `decode` as it can read what `prefill` wrote: rows that change both what is stored and what looks
 * for it (the rotation of index keys and queries) follow the writer, or the two would not fit. */
static struct profile reader(const struct profile *decode, const struct profile *prefill)
{
    const uint32_t both = 1u << LEG_PREFILL | 1u << LEG_STATE | 1u << LEG_DECODE;
    struct profile out = *decode;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if ((PRECISION[row].legs & both) == both &&
            !profile_set(&out, (enum precision_row)row, prefill->values[row]))
            ASSERT(false);
    }
    return out;
}

/* Prefills in steps of the profile's chunk. */
static void prefill(struct audit_machine *m, struct sequence *sequence,
                    const struct profile *profile, const int32_t *ids, int32_t n, float *last)
{
    int32_t chunk = schedule_chunk(profile, m->lab->step_tokens);
    for (int32_t at = 0; at < n; at += chunk) {
        int32_t take = min(chunk, n - at);
        feed(m, sequence, profile, LEG_PREFILL, ids + at, take, at + take == n ? last : NULL);
    }
}

static void decode(struct audit_machine *m, struct sequence *sequence,
                   const struct profile *profile, const int32_t *ids, int32_t n, float *last)
{
    for (int32_t i = 0; i < n; i++)
        feed(m, sequence, profile, LEG_DECODE, ids + i, 1, i + 1 == n ? last : NULL);
}

/* A turn whose reasoning the prompt has forgotten, as it was when it was made, and taken back.
 * Longer ones than a ring can take back are not continued by anybody.  @return tokens there */
static int32_t take_forgotten(struct audit_machine *m, const struct audit_item *item,
                              const struct audit_turn *turn, const struct audit_setting *setting)
{
    const int32_t *ids = item->forgotten.data + turn->forgotten;
    int32_t at = turn->begin - 1; /* with another token, which opens the answer */
    if (turn->n_forgotten > SLIDING_WINDOW)
        return at;
    feed(m, m->main, setting->prefill, LEG_PREFILL, ids, 1, NULL);
    decode(m, m->main, setting->decode, ids + 1, turn->n_forgotten - 1, NULL);
    rewind_to(m, m->main, at);
    return at;
}

/* Brings a prompt into the timeline, in the way of the setting. */
static void take_prompt(struct audit_machine *m, const struct audit_item *item,
                        const struct audit_setting *setting, float *last)
{
    const int32_t *ids = item->ids.data;
    int32_t n = (int32_t)item->ids.len, at = 0;
    enum audit_carry carry =
        setting->prefill->values[ROW_PREFIX_REUSE] == PREFIX_REUSE_ON ? setting->carry : CARRY_NONE;
    lab_sequence_reset(m->lab, m->main);
    for (int32_t i = 0; i < item->n_turns && carry != CARRY_NONE; i++) {
        const struct audit_turn *turn = &item->turns[i];
        int32_t n_front = turn->begin - at - (turn->n_forgotten > 0);
        prefill(m, m->main, setting->prefill, ids + at, n_front, NULL);
        if (turn->n_forgotten > 0) {
            at = take_forgotten(m, item, turn, setting);
        } else {
            decode(m, m->main, setting->decode, ids + turn->begin, turn->end - turn->begin, NULL);
            at = turn->end;
        }
        if (carry == CARRY_STORED)
            at = store_and_load(m, m->main);
    }
    if (item->n_turns == 0 && carry == CARRY_STORED && n > SNAPSHOT_TOKENS) {
        prefill(m, m->main, setting->prefill, ids, n - 1, NULL);
        at = store_and_load(m, m->main);
    }
    prefill(m, m->main, setting->prefill, ids + at, n - at, last);
}

/* ---- answers --------------------------------------------------------------------------------- */

double machine_lead(const float *row, int32_t n, int32_t id)
{
    float best = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (i != id && row[i] > best)
            best = row[i];
    }
    return (double)row[id] - best;
}

/* Follows an answer as it is sampled. */
struct following {
    struct ids all; /* with the end of sentence */
    double logprobs[AUDIT_ANSWER_TOKENS];
    struct ids wanted; /* the value's tokens */
    struct buf said;   /* behind the reasoning */
    bool answering, on_value;
    size_t n_answer;
    double margin;
};

static void follow(struct audit_machine *m, struct following *f, const float *row, int32_t id)
{
    if (f->answering && f->on_value && f->n_answer < f->wanted.len) {
        double here = machine_lead(row, m->vocab, f->wanted.data[f->n_answer]);
        f->margin = f->n_answer == 0 ? here : fmin(f->margin, here);
        f->on_value = id == f->wanted.data[f->n_answer];
    }
    size_t len;
    const char *bytes = tokenizer_token_bytes(m->text.tokenizer, id, &len);
    if (f->answering) {
        f->n_answer++;
        buf_add(&f->said, bytes, len);
    }
    if (id == m->text.tokens->think_close)
        f->answering = true;
}

/* Says what comes behind the prompt, whose last logits are there. */
static void say(struct audit_machine *m, const struct audit_item *item,
                const struct profile *profile, struct following *f)
{
    int32_t n = (int32_t)item->ids.len;
    *f = (struct following){.answering = item->ids.data[n - 1] == m->text.tokens->think_close,
                            .on_value = true,
                            .margin = NAN};
    if (item->value != NULL)
        tokenizer_encode(m->text.tokenizer, item->value, strlen(item->value), false, &f->wanted);
    for (int32_t i = 0; i < AUDIT_ANSWER_TOKENS && !m->lab->gone; i++) {
        int32_t id = logits_top(m->a, m->vocab);
        f->logprobs[f->all.len] = logits_logprob(m->a, m->vocab, id);
        ids_add(&f->all, id);
        if (id == m->text.tokens->eos)
            break;
        follow(m, f, m->a, id);
        decode(m, m->main, profile, &id, 1, m->a);
    }
    ids_free(&f->wanted);
}

static void say_and_grade(struct audit_machine *m, const struct audit_item *item,
                          const struct profile *profile, struct audit_answer *out)
{
    struct following f;
    say(m, item, profile, &f);
    out->grade = conversation_grade(item->value, f.said.len == 0 ? "" : f.said.data, f.said.len);
    out->margin = f.margin;
    ids_free(&f.all);
    buf_free(&f.said);
}

/* Brings the prompt in; its last logits are there then. */
static void hear(struct audit_machine *m, const struct audit_item *item,
                 const struct audit_setting *asked, struct profile *reading)
{
    *reading = reader(asked->decode, asked->prefill);
    const struct audit_setting setting = {asked->prefill, reading, asked->carry};
    ASSERT(item->ids.len >= 1 && (int32_t)item->ids.len <= m->context - AUDIT_ANSWER_TOKENS);
    take_prompt(m, item, &setting, m->a);
}

void machine_answer(struct audit_machine *m, const struct audit_item *item,
                    const struct audit_setting *setting, struct audit_answer *out)
{
    struct profile reading;
    hear(m, item, setting, &reading);
    say_and_grade(m, item, &reading, out);
}

void machine_say(struct audit_machine *m, const struct audit_item *item,
                 const struct audit_setting *setting, struct ids *answer, double *logprobs,
                 struct buf *said)
{
    struct profile reading;
    struct following f;
    hear(m, item, setting, &reading);
    say(m, item, &reading, &f);
    for (size_t i = 0; i < f.all.len; i++) {
        if (answer != NULL)
            ids_add(answer, f.all.data[i]);
        if (logprobs != NULL)
            logprobs[i] = f.logprobs[i];
    }
    if (said != NULL && f.said.len > 0)
        buf_add(said, f.said.data, f.said.len);
    ids_free(&f.all);
    buf_free(&f.said);
}

int32_t machine_follow(struct audit_machine *m, const int32_t *ids, int32_t n, int32_t from,
                       const struct profile *profile, double *out)
{
    int32_t likeliest = 0;
    ASSERT(from >= 1 && n <= m->context);
    lab_sequence_reset(m->lab, m->main);
    prefill(m, m->main, profile, ids, from, m->a);
    for (int32_t i = from; i < n && !m->lab->gone; i++) {
        out[i - from] = logits_logprob(m->a, m->vocab, ids[i]);
        likeliest += likeliest == i - from && logits_top(m->a, m->vocab) == ids[i];
        if (i + 1 < n)
            decode(m, m->main, profile, ids + i, 1, m->a);
    }
    return likeliest;
}

/* Tokens that all items begin with; the last one of each is left to be fed. */
static int32_t shared_tokens(const struct audit_item *items, int32_t n)
{
    int32_t shared = (int32_t)items[0].ids.len - 1;
    for (int32_t i = 1; i < n; i++) {
        int32_t same = 0, most = min(shared, (int32_t)items[i].ids.len - 1);
        while (same < most && items[i].ids.data[same] == items[0].ids.data[same])
            same++;
        shared = same;
    }
    return shared;
}

void machine_answers(struct audit_machine *m, const struct audit_item *items, int32_t n,
                     const struct audit_setting *asked, struct audit_answer *out)
{
    struct profile reading = reader(asked->decode, asked->prefill);
    lab_sequence_reset(m->lab, m->main);
    if (n == 0)
        return;
    prefill(m, m->main, asked->prefill, items[0].ids.data, shared_tokens(items, n), NULL);
    int32_t stored = store(m, m->main);
    for (int32_t i = 0; i < n && !m->lab->gone; i++) {
        const struct ids *ids = &items[i].ids;
        ASSERT((int32_t)ids->len <= m->context - AUDIT_ANSWER_TOKENS);
        load(m, m->main, stored);
        prefill(m, m->main, asked->prefill, ids->data + stored, (int32_t)ids->len - stored, m->a);
        say_and_grade(m, &items[i], &reading, &out[i]);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Where machine_compare puts what it sees. */
struct comparing {
    int32_t vocab;
    struct audit_difference *out;
};

static void note_difference(void *user, int32_t position, float *a, float *b)
{
    const struct comparing *c = user;
    c->out[position] = (struct audit_difference){
        .kl = logits_kl(a, b, c->vocab),
        .same_top = logits_top(a, c->vocab) == logits_top(b, c->vocab),
        .same_bits = memcmp(a, b, (size_t)c->vocab * sizeof *a) == 0,
    };
}

static void feed_all(struct audit_machine *m, struct sequence *sequence,
                     const struct audit_setting *s, const int32_t *ids, int32_t n, enum leg leg,
                     float *rows)
{
    struct profile reading = reader(s->decode, s->prefill);
    const struct profile *profile = leg == LEG_PREFILL ? s->prefill : &reading;
    struct segment segment = {
        .sequence = sequence, .ids = ids, .n = n, .logits_all = rows, .leg = leg};
    step(m, profile, &segment, 1);
}

/* The second network of a comparison: of this machine, or of another. */
struct second {
    struct audit_machine *machine;
    struct sequence *sequence;
    const struct audit_setting *setting;
};

static void feed_both(struct audit_machine *m, const int32_t *ids, int32_t n, int32_t decode_from,
                      const struct audit_setting *first, const struct second *second,
                      machine_see_fn *see, void *user)
{
    ASSERT(n >= 1 && n <= m->context && n <= second->machine->context);
    ASSERT(first->carry == CARRY_NONE && second->setting->carry == CARRY_NONE);
    lab_sequence_reset(m->lab, m->main);
    lab_sequence_reset(second->machine->lab, second->sequence);
    for (int32_t at = 0, take; at < n && !m->lab->gone; at += take) {
        enum leg leg = at < decode_from ? LEG_PREFILL : LEG_DECODE;
        take = leg == LEG_DECODE ? 1 : min(AUDIT_COMPARE_ROWS, min(decode_from, n) - at);
        feed_all(m, m->main, first, ids + at, take, leg, m->a);
        feed_all(second->machine, second->sequence, second->setting, ids + at, take, leg, m->b);
        for (int32_t i = 0; i < take && !m->lab->gone; i++)
            see(user, at + i, m->a + (int64_t)i * m->vocab, m->b + (int64_t)i * m->vocab);
    }
}

void machine_both(struct audit_machine *m, const int32_t *ids, int32_t n, int32_t decode_from,
                  const struct audit_setting *a, const struct audit_setting *b, machine_see_fn *see,
                  void *user)
{
    const struct second second = {m, m->other, b};
    feed_both(m, ids, n, decode_from, a, &second, see, user);
}

void machine_beside(struct audit_machine *m, struct audit_machine *beside, const int32_t *ids,
                    int32_t n, int32_t decode_from, const struct audit_setting *setting,
                    struct audit_difference *out)
{
    const struct second second = {beside, beside->main, setting};
    struct comparing comparing = {m->vocab, out};
    ASSERT(beside->vocab == m->vocab);
    feed_both(m, ids, n, decode_from, setting, &second, note_difference, &comparing);
}

void machine_compare(struct audit_machine *m, const int32_t *ids, int32_t n, int32_t decode_from,
                     const struct audit_setting *a, const struct audit_setting *b,
                     struct audit_difference *out)
{
    struct comparing comparing = {m->vocab, out};
    machine_both(m, ids, n, decode_from, a, b, note_difference, &comparing);
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* Feeding rows whose logits are hashed, and whose streams are looked at. */
struct rows {
    struct audit_machine *machine;
    const struct profile *profile;
    const int32_t *ids;
    int32_t n, layers;
    uint64_t *hashes; /* or NULL */
    double *rms;      /* or NULL */
    /* of the step that runs */
    const struct segment *segments;
    int32_t n_segments, ours, layer, row; /* ours: which segment is */
};

/* A step tells its rows layer by layer, in the order of its segments. */
static void note_trace(void *user, const struct layer_trace *trace)
{
    struct rows *r = user;
    int32_t front = r->ours > 0 ? r->segments[0].n : 0;
    r->row = trace->layer == r->layer ? r->row + 1 : 0;
    r->layer = trace->layer;
    if (r->row < front || r->row >= front + r->segments[r->ours].n)
        return;
    ASSERT(trace->layer < r->layers && trace->position < r->n);
    r->rms[(int64_t)trace->position * r->layers + trace->layer] = trace->rms;
}

/* Only our own step is traced, whoever is served between two. */
static void rows_piece(void *user, struct model *model)
{
    struct rows *r = user;
    struct piece piece = {
        .profile = r->profile, .segments = r->segments, .n_segments = r->n_segments};
    r->layer = -1;
    model_trace_set(model, r->rms != NULL ? note_trace : NULL, r);
    step_piece(&piece, model);
    model_trace_set(model, NULL, NULL);
}

static uint64_t hash_row(const float *row, int32_t n)
{
    uint64_t hash = FNV_BASIS;
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        hash = fnv_add(hash, bits);
    }
    return hash;
}

/* A step in which the first `n` rows of segment `ours` are those of positions at .. at + n. */
static void feed_step(struct rows *r, int32_t at, int32_t n, const struct segment *segments,
                      int n_segments, int ours)
{
    struct audit_machine *m = r->machine;
    r->segments = segments;
    r->n_segments = n_segments;
    r->ours = ours;
    lab_work(m->lab, rows_piece, r);
    for (int32_t i = 0; i < n && r->hashes != NULL; i++)
        r->hashes[at + i] = hash_row(m->a + (int64_t)i * m->vocab, m->vocab);
}

/* Positions at .. at + n, beside `company` rows of another timeline when that is not 0: in front of
 * it and behind it by turns, as what goes wrong between two may hurt either. */
static void feed_rows(struct rows *r, int32_t at, int32_t n, enum leg leg, int32_t company)
{
    struct audit_machine *m = r->machine;
    int32_t others[SPAN_TOKENS_MAX];
    for (int32_t i = 0; i < company; i++)
        others[i] = r->ids[r->n - 1 - at - i];
    int ours = company > 0 ? at % 2 : 0;
    struct segment segments[2] = {{0}};
    segments[ours] = (struct segment){.sequence = m->main,
                                      .ids = r->ids + at,
                                      .n = n,
                                      .logits_all = r->hashes != NULL ? m->a : NULL,
                                      .leg = leg};
    if (company > 0)
        segments[1 - ours] =
            (struct segment){.sequence = m->other, .ids = others, .n = company, .leg = leg};
    feed_step(r, at, n, segments, company > 0 ? 2 : 1, ours);
}

/* Other tokens go in and are taken back. */
static void feed_and_rewind(struct rows *r, int32_t at)
{
    struct audit_machine *m = r->machine;
    int32_t n = min(min(SLIDING_WINDOW, r->n), m->context - at);
    feed(m, m->main, r->profile, LEG_PREFILL, r->ids, n, NULL);
    rewind_to(m, m->main, at);
}

/* The draft block follows, as where somebody is served; it changes nothing. */
static void follow_piece(void *user, struct model *model)
{
    struct rows *r = user;
    struct sequence *sequence = r->machine->main;
    int32_t length = sequence_length(sequence), from = length - SLIDING_WINDOW;
    if (model_config(model)->num_nextn_predict_layers == 0)
        return;
    if (sequence_draft_length(sequence) < from)
        sequence_draft_skip(sequence, from);
    from = sequence_draft_length(sequence);
    const struct draft_segment segment = {
        .sequence = sequence, .next_ids = r->ids + from + 1, .n = length - from};
    if (segment.n > 0)
        model_draft(model, r->profile, &segment, 1);
}

/* One decoded token with guesses behind it, some of which are right: i says how many of each.
 * @return tokens that stay */
static int32_t feed_guesses(struct rows *r, int32_t at, int32_t i)
{
    struct audit_machine *m = r->machine;
    int32_t ids[DRAFT_DEPTH_MAX + 1] = {r->ids[at]}, depth = 1 + i % DRAFT_DEPTH_MAX;
    depth = min(depth, r->n - 1 - at);
    int32_t right = i % (depth + 1);
    for (int32_t j = 1; j <= depth; j++)
        ids[j] = j <= right ? r->ids[at + j] : (r->ids[at + j] + 1) % m->vocab;
    const struct segment segment = {.sequence = m->main,
                                    .ids = ids,
                                    .n = 1 + depth,
                                    .logits_all = r->hashes != NULL ? m->a : NULL,
                                    .leg = LEG_DECODE};
    lab_work(m->lab, follow_piece, r);
    feed_step(r, at, 1 + right, &segment, 1, 0);
    rewind_to(m, m->main, at + 1 + right);
    return 1 + right;
}

/* Sizes of the steps of a prompt, over and over; 0: the profile's chunk. */
static const int32_t PLANS[WAYS][5] = {
    [WAY_COLD] = {0, 0, 0, 0, 0},
    [WAY_ONES] = {1, 1, 1, 1, 1},
    [WAY_ODD] = {3, 5, 7, 11, 13},
    [WAY_EDGE] = {127, 129, 127, 129, 127},
    [WAY_STORED] = {SNAPSHOT_TOKENS + 3, SNAPSHOT_TOKENS + 1, 2, SNAPSHOT_TOKENS, 5},
    [WAY_COMPANY] = {SPAN_TOKENS_MAX / 2, 1, 2, SPAN_TOKENS_MAX / 2, 3},
    [WAY_REWOUND] = {1, 130, 64, 3, SNAPSHOT_TOKENS},
    [WAY_GUESSED] = {0, 0, 0, 0, 0},
};

/* The other timeline falls behind by so much again and again, so that the two finish other blocks
 * at other positions: side by side, one's could stand in for the other's. */
#define COMPANY_LAG 3

static int32_t company_of(int32_t take)
{
    return take > COMPANY_LAG ? take - COMPANY_LAG : take;
}

void machine_rows(struct audit_machine *m, const int32_t *ids, int32_t n, int32_t decode_from,
                  const struct profile *profile, enum audit_way way, uint64_t *hashes, double *rms)
{
    ASSERT(n >= 1 && n <= m->context && decode_from >= 1 && decode_from <= n);
    struct rows r = {.machine = m,
                     .profile = profile,
                     .ids = ids,
                     .n = n,
                     .layers = m->lab->config->num_hidden_layers,
                     .hashes = hashes,
                     .rms = rms};
    lab_sequence_reset(m->lab, m->main);
    lab_sequence_reset(m->lab, m->other);
    for (int32_t at = 0, i = 0, take; at < n && !m->lab->gone; at += take, i++) {
        int32_t size = PLANS[way][i % 5];
        enum leg leg = at < decode_from ? LEG_PREFILL : LEG_DECODE;
        if (way == WAY_STORED && at > 0 && leg == LEG_PREFILL) {
            at = store(m, m->main);
            if (at > 0 && n >= 2 * BRANCH_TOKENS && at + 2 * BRANCH_TOKENS <= m->context)
                branch_off(m, at, profile, ids);
            load(m, m->main, at);
        }
        if (way == WAY_GUESSED && leg == LEG_DECODE) {
            take = feed_guesses(&r, at, i);
            continue;
        }
        take = 1;
        if (leg == LEG_PREFILL) /* of every row something is kept: a span at most */
            take =
                min(size > 0 ? size : schedule_chunk(profile, SPAN_TOKENS_MAX), decode_from - at);
        if (way == WAY_REWOUND)
            feed_and_rewind(&r, at);
        feed_rows(&r, at, take, leg, way == WAY_COMPANY ? company_of(take) : 0);
    }
}

const char *audit_carry_name(enum audit_carry carry)
{
    static const char *const names[CARRIES] = {"fresh", "live", "stored"};
    return names[carry];
}

static const struct {
    const char *name, *leg;
} WAY_WORDS[WAYS] = {
    [WAY_COLD] = {"cold", "again"},
    [WAY_ONES] = {"one token a step", "chunk"},
    [WAY_ODD] = {"odd steps", "chunk"},
    [WAY_EDGE] = {"steps at the edges", "chunk"},
    [WAY_STORED] = {"stored prefix", "restore"},
    [WAY_COMPANY] = {"in company", "batch"},
    [WAY_REWOUND] = {"after rewinds", "rewind"},
    [WAY_GUESSED] = {"behind guesses", "draft"},
};

const char *audit_way_name(enum audit_way way)
{
    return WAY_WORDS[way].name;
}

const char *audit_way_leg(enum audit_way way)
{
    return WAY_WORDS[way].leg;
}
