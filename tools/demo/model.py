"""The demo model as a trainable network: DeepSeek-V4's layers over whole sequences, T = B*S flattened tokens.

Owns the weights and the forward pass. Master weights are float32 (Model.params); shadow() makes the tensors
that the forward pass uses: FP8 and FP4 values held in bfloat16 (exact), bfloat16 copies, or float32. Their
gradients are copied to the masters (straight-through). Rounding is in numerics.py, GPU kernels in kernels.py.
"""
import math

import torch

import numerics as N
from numerics import BF16, F32

if torch.cuda.is_available():
    import kernels as K


def shapes(c):
    """(name, shape, kind) of every weight; experts are stacked as ffn.w13 [E, 2I, D] and ffn.w2 [E, D, I]."""
    d, hc, layers = c["hidden_size"], c["hc_mult"], c["num_hidden_layers"]
    yield "embed.weight", (c["vocab_size"], d), "bf16"
    yield "head.weight", (c["vocab_size"], d), "bf16"
    yield "norm.weight", (d,), "bf16"
    for p in ("", "mtp.0."):
        yield p + "hc_head_fn", (hc, hc * d), "f32"
        yield p + "hc_head_base", (hc,), "f32"
        yield p + "hc_head_scale", (1,), "f32"
    yield "mtp.0.e_proj.weight", (d, d), "fp8"
    yield "mtp.0.h_proj.weight", (d, d), "fp8"
    for n in ("enorm", "hnorm", "norm"):
        yield f"mtp.0.{n}.weight", (d,), "bf16"
    for layer in range(layers + 1):
        p = f"layers.{layer}." if layer < layers else "mtp.0."
        yield from layer_shapes(c, p, c["compress_ratios"][layer])


def layer_shapes(c, p, ratio):
    """The weights of one layer."""
    d, hc = c["hidden_size"], c["hc_mult"]
    H, hd, ql, g, ol = (c[k] for k in ("num_attention_heads", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank"))
    ih, idim, inter, E = (
        c[k] for k in ("index_n_heads", "index_head_dim", "moe_intermediate_size", "n_routed_experts")
    )
    mix = (2 + hc) * hc
    yield p + "attn_norm.weight", (d,), "bf16"
    yield p + "ffn_norm.weight", (d,), "bf16"
    for s in ("attn", "ffn"):
        yield p + f"hc_{s}_fn", (mix, hc * d), "f32"
        yield p + f"hc_{s}_base", (mix,), "f32"
        yield p + f"hc_{s}_scale", (3,), "f32"
    a = p + "attn."
    yield a + "attn_sink", (H,), "f32"
    yield a + "wq_a.weight", (ql, d), "fp8"
    yield a + "q_norm.weight", (ql,), "bf16"
    yield a + "wq_b.weight", (H * hd, ql), "fp8"
    yield a + "wkv.weight", (hd, d), "fp8"
    yield a + "kv_norm.weight", (hd,), "bf16"
    yield a + "wo_a.weight", (g * ol, H * hd // g), "fp8"
    yield a + "wo_b.weight", (d, g * ol), "fp8"
    for q, dim, on in (("compressor.", hd, ratio), ("indexer.compressor.", idim, ratio == 4)):
        if on:
            w = dim * (2 if ratio == 4 else 1)
            yield a + q + "ape", (ratio, w), "f32"
            yield a + q + "wkv.weight", (w, d), "bf16"
            yield a + q + "wgate.weight", (w, d), "bf16"
            yield a + q + "norm.weight", (dim,), "bf16"
    if ratio == 4:
        yield a + "indexer.wq_b.weight", (ih * idim, ql), "fp8"
        yield a + "indexer.weights_proj.weight", (ih, d), "bf16"
    f = p + "ffn."
    yield f + "gate.weight", (E, d), "bf16"
    yield f + "w13", (E, 2 * inter, d), "fp4"
    yield f + "w2", (E, d, inter), "fp4"
    yield f + "shared13", (2 * inter, d), "fp8"
    yield f + "shared2", (d, inter), "fp8"


def initial(name, shape, layers, streams):
    """The first value of a weight."""
    leaf = name.split(".")[-1]
    if "norm" in name:
        return torch.ones(shape)
    if leaf.endswith("_scale"):
        return torch.full(shape, 0.1)
    if leaf == "hc_head_base":
        return torch.full(shape, -math.log(3.0))
    if leaf.endswith("_base"):  # every sublayer reads mainly one stream, in turn; streams stay apart
        layer = layers if name.startswith("mtp") else int(name.split(".")[1])
        x = torch.zeros(shape)
        x[:streams] = math.log(0.1 / 0.9)
        x[(2 * layer + ("ffn" in leaf)) % streams] = math.log(0.7 / 0.3)
        x[2 * streams :] = (torch.eye(streams) * 4.0).flatten()
        return x
    if leaf == "attn_sink":
        return torch.zeros(shape)
    if leaf == "ape" or name == "embed.weight":
        return torch.randn(shape) * 0.5
    if name == "head.weight":
        return torch.randn(shape) * 0.02
    small = "wo_b" in name or leaf in ("w2", "shared2") or ("gate.weight" in name and "compressor" not in name)
    return torch.randn(shape) * shape[-1] ** -0.5 * (0.5 if small else 1.0)


def hash_table(c):
    """Distinct experts for every token id: [V, K]."""
    E, k, V = c["n_routed_experts"], c["num_experts_per_tok"], c["vocab_size"]
    t = torch.arange(V)
    start = (t * 2654435761 >> 7) % E
    step = ((t * 40503 >> 5) % (E // 2)) * 2 + 1
    return (start[:, None] + torch.arange(k)[None] * step[:, None]) % E


class Pairs(torch.autograd.Function):
    """Rows gathered so that they are sorted by expert; every token occurs exactly k times."""

    @staticmethod
    def forward(ctx, x, order, inverse, k):
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x[order // k]

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad[inverse].view(-1, ctx.k, grad.shape[-1]).sum(1), None, None, None


class Permute(torch.autograd.Function):
    """Rows in another order: forward by `order`, gradients by its inverse."""

    @staticmethod
    def forward(ctx, y, inverse, order):
        ctx.save_for_backward(inverse)
        return y[order]

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad[inverse], None, None


def grouped(x, w, ends):
    """x [N, K] sorted by expert, w [E, O, K] -> [N, O]; ends [E] where each expert's rows end."""
    if x.is_cuda:
        return torch._grouped_mm(x, w.transpose(-2, -1), offs=ends)
    out, a = [], 0
    for e, b in enumerate(ends.tolist()):
        out.append(N.linear(x[a:b], w[e]))
        a = b
    return torch.cat(out)


def sinkhorn(raw, iterations=20):
    """Raw mixing [T, 16] -> doubly stochastic, columns last."""
    if raw.is_cuda:
        return K.Sinkhorn.apply(raw)
    k = torch.softmax(raw.view(-1, 4, 4), -1) + N.EPS
    k = k / (k.sum(-2, keepdim=True) + N.EPS)
    for _ in range(iterations - 1):
        k = k / (k.sum(-1, keepdim=True) + N.EPS)
        k = k / (k.sum(-2, keepdim=True) + N.EPS)
    return k.reshape(-1, 16)


def attend(q, kv, ck, sink, index, ratio, topk, step=256):
    """Attention in float32 with real top-k, query chunks at a time: evaluation, on any device.

    @shape as kernels.Attention; index (queries, keys, head weights) of the indexer or None.
    """
    B, S, H, C = q.shape
    out, step, dev = [], min(step, S), q.device
    kv, ck = kv.float(), ck.float() if ck is not None else None
    for a in range(0, S, step):
        b = min(a + step, S)
        low, pos = max(0, a - 127), torch.arange(a, b, device=dev)[:, None]
        at = torch.arange(low, b, device=dev)[None]
        qf, keys = q[:, a:b].float(), kv[:, low:b]
        s = torch.einsum("bqhd,bkd->bqhk", qf, keys) * C**-0.5
        s = torch.where(((at <= pos) & (at > pos - 128))[None, :, None], s, -1e30)
        n = b // ratio if ck is not None else 0
        if n:
            seen = (torch.arange(n, device=dev)[None] < (pos + 1) // ratio)[None].expand(B, -1, -1)
            if ratio == 4 and n > topk:
                iq, ik, w = index
                x = torch.einsum("bqhd,bkd->bqhk", iq[:, a:b].float(), ik[:, :n].float()).clamp(min=0)
                x = torch.where(seen, (x * w.view(B, S, -1)[:, a:b, :, None]).sum(2), -1e30)
                seen = seen & torch.zeros_like(seen).scatter(2, torch.topk(x, topk, -1).indices, True)
            more = torch.einsum("bqhd,bkd->bqhk", qf, ck[:, :n]) * C**-0.5
            s = torch.cat((s, torch.where(seen[:, :, None], more, -1e30)), -1)
            keys = torch.cat((keys, ck[:, :n]), 1)
        top = torch.maximum(s.amax(-1, keepdim=True), sink.view(1, 1, H, 1))
        e = torch.exp(s - top)
        total = e.sum(-1, keepdim=True) + torch.exp(sink.view(1, 1, H, 1) - top)
        out.append(torch.einsum("bqhk,bkd->bqhd", e / total, keys))
    return torch.cat(out, 1).to(BF16)


class Model:
    """@own params: float32 masters. weights: what the forward pass uses, made by shadow()."""

    def __init__(self, config, device="cpu", seed=0):
        self.config, self.device = config, device
        torch.manual_seed(seed)
        self.kind, self.params, self.weights = {}, {}, {}
        layers = config["num_hidden_layers"]
        for name, shape, kind in shapes(config):
            self.kind[name] = kind
            self.params[name] = initial(name, shape, layers, config["hc_mult"]).to(device).float()
        self.bias = {
            l: torch.zeros(config["n_routed_experts"], device=device)
            for l in range(config["num_hash_layers"], layers + 1)
        }
        self.hash = hash_table(config).to(device)
        self.hadamard = N.sylvester(config["index_head_dim"]).to(device)
        self.training = False  # GPU kernels with gradients; else attend()
        self.compiled = False  # pointwise blocks through torch.compile
        self.select = False  # training with top-k on
        self.counts, self.index_losses, self.tables, self.functions = {}, [], {}, {}

    def block_function(self, fn):
        """The pointwise block, compiled in training."""
        if not (self.compiled and self.training):
            return fn
        if fn not in self.functions:
            self.functions[fn] = torch.compile(fn, dynamic=False)
        return self.functions[fn]

    # ---- weights
    @torch.no_grad()
    def shadow(self, grad=True):
        """Quantise the masters into the tensors of the forward pass."""
        of = {k: [n for n in self.params if self.kind[n] == k] for k in ("fp8", "fp4", "bf16", "f32")}
        blocks = torch.cat(
            [
                self.params[n].view(self.params[n].shape[0] // 128, 128, -1, 128).transpose(1, 2).reshape(-1, 16384)
                for n in of["fp8"]
            ]
        )
        s = N.fp8_scale(blocks.abs().amax(1, keepdim=True))
        blocks = (N.e4m3((blocks / s).clamp_(-N.FP8_MAX, N.FP8_MAX)) * s).to(BF16)
        at = 0
        for n in of["fp8"]:
            o, i = self.params[n].shape
            k = o * i // 16384
            w = blocks[at : at + k].view(o // 128, i // 128, 128, 128).transpose(1, 2).reshape(o, i)
            self.weights[n], at = w.requires_grad_(grad), at + k
        flat, at = N.fp4_groups(torch.cat([self.params[n].reshape(-1) for n in of["fp4"]])).to(BF16), 0
        for n in of["fp4"]:
            k = self.params[n].numel()
            self.weights[n], at = flat[at : at + k].view(self.params[n].shape).clone().requires_grad_(grad), at + k
        for n in of["bf16"]:
            self.weights[n] = self.params[n].to(BF16).requires_grad_(grad)
        for n in of["f32"]:
            self.weights[n] = self.params[n].detach().clone().requires_grad_(grad)

    # ---- tables
    def table(self, S, B, compressed, step=1):
        """cos and sin [B*S/step, 32] of the positions 0, step, 2*step, ..."""
        key = (S, B, compressed, step)
        if key not in self.tables:
            c, rd = self.config, self.config["qk_rope_head_dim"]
            base = c["compress_rope_theta"] if compressed else c["rope_theta"]
            f = 1.0 / base ** (torch.arange(0, rd, 2, dtype=torch.float64) / rd)
            if compressed:
                y = c["rope_scaling"]

                def dimension(turns):
                    return (
                        rd
                        * math.log(y["original_max_position_embeddings"] / (turns * 2 * math.pi))
                        / (2 * math.log(base))
                    )

                low, high = max(math.floor(dimension(y["beta_fast"])), 0), min(
                    math.ceil(dimension(y["beta_slow"])), rd - 1
                )
                ramp = ((torch.arange(rd // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
                f = f / y["factor"] * ramp + f * (1 - ramp)
            a = torch.arange(0, S // step * step, step, dtype=torch.float64)[:, None] * f
            self.tables[key] = tuple(t.float().to(self.device).repeat(B, 1) for t in (a.cos(), a.sin()))
        return self.tables[key]

    def first_blocks(self, S, B, ratio):
        """[B*S/ratio, 1, 1]: the blocks that begin a sequence."""
        key = ("first", S, B, ratio)
        if key not in self.tables:
            self.tables[key] = (torch.arange(B * (S // ratio), device=self.device) % (S // ratio) == 0)[:, None, None]
        return self.tables[key]

    # ---- layers
    def compress(self, x, p, ratio, B, S, index=False):
        """[T, D] -> compressed keys [B, S/ratio, width]."""
        W, n = self.weights, S // ratio
        if self.training:
            pair = (N.linear(x, W[p + "wkv.weight"]), N.linear(x, W[p + "wgate.weight"]))
        else:
            pair = (x.float() @ W[p + "wkv.weight"].float().t(), x.float() @ W[p + "wgate.weight"].float().t())
        kv, gate = (t.view(B, S, -1)[:, : n * ratio].reshape(B * n, ratio, -1) for t in pair)
        args = (
            kv,
            gate,
            W[p + "ape"],
            self.first_blocks(S, B, ratio),
            W[p + "norm.weight"],
            *self.table(S, B, True, ratio),
        )
        y = (
            self.block_function(N.index_key)(*args, self.hadamard)
            if index
            else self.block_function(N.compressed_kv)(*args)
        )
        y = y.view(B, n, -1)
        if self.training and n % 8:
            y = torch.nn.functional.pad(y, (0, 0, 0, 8 - n % 8))
        return y

    def index(self, p, x, qr8, cos, sin, B, S):
        """Queries, keys and head weights of the indexer; gradients stay inside of it."""
        c, W, x, qr8 = self.config, self.weights, x.detach(), qr8.detach()
        heads, d = c["index_n_heads"], c["index_head_dim"]
        q = self.block_function(N.index_query)(
            N.linear(qr8, W[p + "wq_b.weight"]).view(B * S, heads, d), cos, sin, self.hadamard
        )
        k = self.compress(x, p + "compressor.", 4, B, S, True)
        w = N.linear(x, W[p + "weights_proj.weight"]).float() * (d**-0.5 * heads**-0.5)
        return q.view(B, S, heads, d), k, w

    def attention(self, p, x, x8, B, S, ratio):
        c, W, f = self.config, self.weights, self.block_function
        H, hd, G = c["num_attention_heads"], c["head_dim"], c["o_groups"]
        cos, sin = self.table(S, B, bool(ratio))
        _, qr8 = f(N.norm8)(N.linear(x8, W[p + "wq_a.weight"]), W[p + "q_norm.weight"])
        q = f(N.query)(N.linear(qr8, W[p + "wq_b.weight"]).view(B * S, H, hd), cos, sin).view(B, S, H, hd)
        kv = f(N.window_kv)(N.linear(x8, W[p + "wkv.weight"]), W[p + "kv_norm.weight"], cos, sin).view(B, S, hd)
        ck = self.compress(x, p + "compressor.", ratio, B, S) if ratio else None
        index = self.index(p + "indexer.", x, qr8, cos, sin, B, S) if ratio == 4 else None
        if self.training:
            o = self.attend_training(q, kv, ck, W[p + "attn_sink"], index, ratio)
        else:
            o = attend(q, kv, ck, W[p + "attn_sink"], index, ratio, c["index_topk"])
        o = f(N.inverse_rope)(o.reshape(B * S, H, hd), cos, sin)
        wa, og = W[p + "wo_a.weight"].view(G, -1, H * hd // G), o.view(B * S, G, -1).transpose(0, 1)
        z = (
            torch.bmm(og, wa.transpose(1, 2))
            if o.is_cuda
            else torch.bmm(og.float(), wa.float().transpose(1, 2)).to(BF16)
        )
        return N.linear(f(N.activation8)(z.transpose(0, 1).reshape(B * S, -1)), W[p + "wo_b.weight"])

    def attend_training(self, q, kv, ck, sink, index, ratio):
        """Attention with gradients; adds the indexer's loss."""
        scores = threshold = None
        if index:
            scores, k = K.IndexScore.apply(*index), self.config["index_topk"]
            if self.select and scores.shape[-1] > k:
                threshold = torch.topk(scores.detach(), k, -1, sorted=True).values[..., -1].contiguous()
        o, p = K.Attention.apply(q, kv, ck, sink, scores, threshold, ratio)
        if index:
            self.index_losses.append(index_loss(p.view(*q.shape[:3], -1), scores, threshold))
        return o

    def experts(self, layer, p, x, x8, ids):
        c, W, f = self.config, self.weights, self.block_function
        k, E = c["num_experts_per_tok"], c["n_routed_experts"]
        s = f(N.gate_scores)(x, W[p + "gate.weight"])
        chosen = (
            self.hash[ids] if layer < c["num_hash_layers"] else torch.topk(s.detach() + self.bias[layer], k, -1).indices
        )
        weight = s.gather(1, chosen)
        weight = weight / weight.sum(-1, keepdim=True) * c["routed_scaling_factor"]
        flat = chosen.flatten()
        order = torch.argsort(flat)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=order.device)
        self.counts[layer] = torch.zeros(E, device=x.device, dtype=torch.int32).scatter_add_(
            0, flat, torch.ones_like(flat, dtype=torch.int32)
        )
        ends = self.counts[layer].cumsum(0).to(torch.int32)
        h = f(N.swiglu)(
            grouped(Pairs.apply(x8, order, inverse, k), W[p + "w13"], ends),
            Permute.apply(weight.reshape(-1, 1), inverse, order),
        )
        y = Permute.apply(grouped(h, W[p + "w2"], ends), order, inverse).view(-1, k, x.shape[-1])
        shared = N.linear(f(N.swiglu_shared)(N.linear(x8, W[p + "shared13"])), W[p + "shared2"])
        return (y.float().sum(1) + shared.float()).to(BF16)

    def block(self, layer, p, streams, ids, B, S):
        W, f = self.weights, self.block_function

        def mixing(s):
            return W[p + f"hc_{s}_fn"], W[p + f"hc_{s}_scale"], W[p + f"hc_{s}_base"], W[p + f"{s}_norm.weight"]

        x, x8, post, raw = f(N.stream_in)(streams, *mixing("attn"))
        y = self.attention(p + "attn.", x, x8, B, S, self.config["compress_ratios"][layer])
        streams = f(N.stream_out)(streams, y, post, sinkhorn(raw))
        x, x8, post, raw = f(N.stream_in)(streams, *mixing("ffn"))
        return f(N.stream_out)(streams, self.experts(layer, p + "ffn.", x, x8, ids), post, sinkhorn(raw))

    def trunk(self, ids):
        """ids [B, S] -> streams [T, M, D] after the last layer."""
        B, S = ids.shape
        flat = ids.reshape(-1)
        self.index_losses = []
        x = self.weights["embed.weight"][flat][:, None].expand(-1, self.config["hc_mult"], -1).contiguous()
        for layer in range(self.config["num_hidden_layers"]):
            x = self.block(layer, f"layers.{layer}.", x, flat, B, S)
        return x

    def head(self, streams, p=""):
        """Streams -> normed hidden [T, D]; p: "" or "mtp.0." of the draft block."""
        W = self.weights
        return self.block_function(N.stream_head)(
            streams, W[p + "hc_head_fn"], W[p + "hc_head_scale"], W[p + "hc_head_base"], W[p + "norm.weight"]
        )

    def draft(self, streams, following):
        """Streams at position i and token i+1 -> the draft block's streams, from which head("mtp.0.") predicts
        token i+2; put in again with token i+2 they give those for token i+3."""
        B, S = following.shape
        W, flat, p = self.weights, following.reshape(-1), "mtp.0."
        e, h = self.block_function(N.draft_in)(
            W["embed.weight"][flat], streams, W[p + "enorm.weight"], W[p + "hnorm.weight"]
        )
        back = N.linear(h.reshape(-1, h.shape[-1]), W[p + "h_proj.weight"]).float().view(B * S, -1, h.shape[-1])
        z = (N.linear(e, W[p + "e_proj.weight"]).float()[:, None] + back).to(BF16)
        return self.block(self.config["num_hidden_layers"], p, z, flat, B, S)

    def logits(self, hidden):
        return hidden.float() @ self.weights["head.weight"].float().t()


def index_loss(p, scores, threshold):
    """KL of the indexer from the attention over compressed entries, weighted by its mass; every fourth position."""
    # Which of four is drawn on the device: a number of the host would be the same in every replay of a captured pass.
    at = torch.arange(0, p.shape[1], 4, device=p.device) + torch.randint(0, 4, (1,), device=p.device)
    target, scores = p.index_select(1, at).float().sum(2), scores.index_select(1, at)
    if threshold is not None:
        scores = torch.where(scores >= threshold[:, at, None], scores, -1e30)
    mass = target.sum(-1, keepdim=True)
    share = target / mass.clamp(min=1e-6)
    log = torch.log_softmax(scores, -1).clamp(min=-60)
    return ((share * ((share + 1e-9).log() - log)).sum(-1) * mass[..., 0].clamp(max=1.0)).mean()


__all__ = ["F32", "Model", "shapes"]
