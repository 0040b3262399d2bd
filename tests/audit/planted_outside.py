"""Faults that somebody from outside planted, who did not write the audit: one kind of mistake each of what real patches
bring.  Knows the kinds of planted_kinds.py, and no result."""
from planted_kinds import *  # noqa: F403

TEXT_TURNS = "engine/text/chat_turns.c"
DENOMINATOR = "heads->denominator[h] = all[h].sum + exp((double)heads->sink[h] - all[h].most)"
SCALE = ".scale = p->q_scaled ? 1.0f : (float)SOFTMAX_SCALE};"
CHOSEN = "p->n_selected[token] = n < p->topk ? n : p->topk;"


def beyond(token):
    """Three times the scale of the logits for prompt tokens from there on."""
    return [(ATTENTION, SCALE, SCALE + "\n    heads.scale *= p->math == ATTN_BF16 && p->place.n_decode == 0 && "
             f"*p->at + t >= {token} ? 3 : 1;")]


OUTSIDE = {
    # ---- rows
    "sink in every split": Row([["attn.decode"]], [
        (ATTENTION, DENOMINATOR, DENOMINATOR + " * (split == ATTN_SPLIT ? (n + split - 1) / split : 1)")], legs="decode"),
    "sink forgotten behind the window": Row([["attn.prefill"]], [
        (ATTENTION, DENOMINATOR, DENOMINATOR + " * (split == ATTENDED_MAX && n > 160 ? 0 : 1)")], legs="prefill"),
    "scale of logits for long prompts": Row([["attn.prefill"]], beyond(320)),
    "half of the choice": Row([["index.topk"]], [
        (COMPRESSOR, CHOSEN, CHOSEN + "\n        if (p->choice == INDEX_TOPK_APPROXIMATE && n > p->topk / 2)\n"
         "            p->n_selected[token] = p->topk / 2;")], "needle", rows=CHOICE),
    "two rounds of sinkhorn": Row([["hc.mix"]], [
        (STREAMS, "static void sinkhorn(double k[HC_MULT][HC_MULT])", "static void sinkhorn(double k[HC_MULT][HC_MULT], int rounds)"),
        (STREAMS, "round < HC_SINKHORN", "round < rounds"),
        (STREAMS, "sinkhorn(k);", "sinkhorn(k, p->mix == HC_MIX_BF16 ? 2 : HC_SINKHORN);")]),
    "bias of the router in the weights": Row([["moe.route"]], [
        (EXPERTS, "sum += score[chosen[i]];", "sum += score[chosen[i]] += p->round == ROUND_BF16 && p->bias.data != NULL "
         "? ((const float *)p->bias.data)[chosen[i]] : 0;")], rows={**ROWS, "moe.route": "bf16"}),
    "routed factor for the shared expert": Row([["moe.scale"]], [
        (EXPERTS, "weight[from] = (float)p->scaling;",
         "weight[from] = (float)p->scaling;\n            for (int32_t i = p->top; i < job->width; i++)\n"
         "                weight[i] = (float)p->scaling;")]),
    "groups of entries in the range of the one before": Row([["kv.entry"]], [
        (ATTENTION, "cpu_saw_entry(&b->threads[0], all, b->v->round(p->round_nope, entry, NOPE, entry));",
         "float most[NOPE / 64];\n        for (int g = 0; g < NOPE / 64; g++) {\n            most[g] = 0;\n"
         "            for (int i = 0; i < 64; i++) most[g] = fmaxf(most[g], fabsf(entry[g * 64 + i]));\n        }\n"
         "        for (int i = 64; i < NOPE && p->round_nope != ROUND_NONE; i++)\n"
         "            entry[i] = fmaxf(fminf(entry[i], most[i / 64 - 1]), -most[i / 64 - 1]);\n"
         "        cpu_saw_entry(&b->threads[0], all, b->v->round(p->round_nope, entry, NOPE, entry));")]),
    "compressed entries turned as the block before": Row([["kv.entry"]], [
        (COMPRESSOR, "p->rope + i * ROPE_ROW, p->round, false);",
         "p->rope + (i - (i > 0 && p->round_nope != ROUND_NONE)) * ROPE_ROW, p->round, false);")]),
    "a norm and a scale that hide each other": Hidden({"attn.qnorm": "bf16", "attn.query": "bf16-scaled"}, [
        (ATTENTION, "v->round(ROUND_BF16, q, HEAD_DIM, q);\n}", "v->round(ROUND_BF16, q, HEAD_DIM, q);\n"
         "    v->scale_norm(q, NULL, 4, HEAD_DIM, q);\n}"),
        (ATTENTION, "v->scale_norm(q, NULL, SOFTMAX_SCALE, HEAD_DIM, q);",
         "v->scale_norm(q, NULL, SOFTMAX_SCALE / 4, HEAD_DIM, q);")]),
    "index weights without their scale": Harmless("index.score", "bf16", edits=[
        (COMPRESSOR, "double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * heads);\n    float sum",
         "double scale = 1.0;\n    float sum")]),
    # ---- the same in every profile
    "overlap from the other half": Anchored("golden", [
        (COMPRESSOR, "(overlap && at >= first ? p->dim : 0)", "(overlap && at < first ? p->dim : 0)")]),
    "YaRN the wrong way round": Anchored("golden", [
        ("engine/model/model.c", "plain * (1 - ramp) + plain / YARN_FACTOR * ramp", "plain * ramp + plain / YARN_FACTOR * (1 - ramp)")]),
    "a window one token short": Anchored("golden", [
        (ATTENTION, "position - SLIDING_WINDOW + 1 : 0", "position - SLIDING_WINDOW + 2 : 0")]),
    "an expert's exponents off by one": Anchored("golden", [
        (EXPERTS, "weight[i] = 1.0f;", "weight[i] = i < p->top && p->chosen[t * p->top + i] == 3 ? 2.0f : 1.0f;")]),
    "weights of hashed experts that do not sum to one": Anchored("golden", [
        (EXPERTS, "if (p->scale == MOE_SCALE_GATE) {", "if (p->tid2eid.data != NULL)\n            sum = 1;\n        if (p->scale == MOE_SCALE_GATE) {")]),
    "values of long blocks not turned back": Anchored("golden", [
        (ATTENTION, "cpu_rope_row(b->v, out + NOPE, p->rope + t * ROPE_ROW, p->round, true);",
         "if (p->ratio != RATIO_HCA)\n            cpu_rope_row(b->v, out + NOPE, p->rope + t * ROPE_ROW, p->round, true);")]),
    # ---- carried state
    "index rings that are not restored": State(["restore"], [
        (SNAPSHOT, "            walk_rows(walk, &(struct rows){indexes[i],",
         "            if (walk->way == LOAD)\n                walk->used += RATIO_CSA * index_half;\n            else\n"
         "            walk_rows(walk, &(struct rows){indexes[i],")]),
    "blocks of the second timeline turned as the first's": State(["batch"], [
        (FORWARD, "&span->csa_row : &span->hca_row) = n;", "&span->csa_row : &span->hca_row) = i > 0 ? 0 : n;")]),
    "a block of the indexer that is not there yet": State(["chunk", "batch", "rewind", "draft"], [
        (COMPRESSOR, "(((int64_t)*p->at + token + 1) / RATIO_CSA)", "(((int64_t)*p->at + token + 2) / RATIO_CSA)")]),
    # ---- what serves
    "the third guess is taken unseen": Served(["draft.depth"], [
        (STEP, "id == fed[i + 1] && !is_stop", "(id == fed[i + 1] || i == 2) && !is_stop")], {"draft.depth": "3"}),
    "a timeline is continued whose last token is another": Served(["prefix.reuse"], [
        ("engine/serve/timeline.c", "(size_t)t->n_ids * sizeof *t->ids) == 0 ?", "(size_t)(t->n_ids - 1) * sizeof *t->ids) == 0 ?")]),
    "stored blocks found by their first half": Served(["prefix.reuse"], [
        ("engine/model/prefix.c", "memcmp(p->nodes[at].ids, ids, sizeof p->nodes[at].ids) != 0",
         "memcmp(p->nodes[at].ids, ids, sizeof p->nodes[at].ids / 2) != 0")]),
    "temperature 0 draws in long answers": Served(["draft.depth", "prefill.chunk", "prefix.reuse"], [
        (SAMPLER, "p->temperature == 0)\n", "(p->temperature == 0 && position < 150))\n"),
        (SAMPLER, "pick_scale(p->temperature)", "pick_scale(p->temperature + 0.3)")]),
    # ---- prompt
    "a later system message is dropped": Prompt("not as the published encoder writes it", [
        (CHAT, "    case ROLE_SYSTEM:\n        add_content(w, message->content);", "    case ROLE_SYSTEM:\n        if (i > 0)\n            return;\n        add_content(w, message->content);")]),
    "a long history loses its middle": Prompt("history", [
        (CHAT, "    ASSERT(!open);\n", "    ASSERT(!open);\n    if (w->ids != NULL && w->ids->len > 8192 && spans == NULL) {\n"
         "        memmove(w->ids->data + 4096, w->ids->data + w->ids->len - 4096, 4096 * sizeof *w->ids->data);\n"
         "        w->ids->len = 8192;\n    }\n")]),
    "no thinking from the sixth turn on": Prompt("history", [
        (CHAT, "bool think = thinking && (", "bool think = thinking && turns->n_turns < 12 && (")]),
    "sentences begin anew with every question": Prompt("multi-turn-chat", [
        (CHAT, "    add_control(w, CONTROL_USER);\n    for", "    if (w->ids != NULL && w->ids->len > 1)\n        add_control(w, CONTROL_BOS);\n    add_control(w, CONTROL_USER);\n    for")]),
    "the third result of a tool before the second": Prompt("not as the published encoder writes it", [
        (TEXT_TURNS, "return found ? order->calls[low].index : 0;", "return found ? order->calls[low].index % 2 : 0;")]),
}
