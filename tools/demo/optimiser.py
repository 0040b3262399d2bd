"""Muon for the matrices, AdamW for the rest, and the balance of the experts.

Owns the optimiser's state. Knows the model's weights by name only to cut stacked ones into the matrices
that they are: heads, groups, experts.
"""
import torch

MOMENTUM, DECAY, MUON_RATE = 0.95, 0.02, 0.02
RATES = {"embed": 4e-3, "head": 2e-3, "rest": 3e-3}
BIAS_STEP = 2e-3  # how fast a router bias moves against the load


def orthogonal(g):
    """Newton-Schulz: the nearest half-orthogonal matrix, in bfloat16. @shape g [N, a, b]."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


def matrices(name, shape, c):
    """The shape [N, a, b] under which Muon sees a weight."""
    inter = c["moe_intermediate_size"]
    for end, cut in (
        ("attn.wq_b.weight", (c["num_attention_heads"], c["head_dim"], -1)),
        ("indexer.wq_b.weight", (c["index_n_heads"], c["index_head_dim"], -1)),
        ("wo_a.weight", (c["o_groups"], c["o_lora_rank"], -1)),
        ("ffn.w13", (2 * c["n_routed_experts"], inter, -1)),
        ("shared13", (2, inter, -1)),
        ("ffn.w2", shape),
    ):
        if name.endswith(end):
            return tuple(cut)
    if "compressor" in name and shape[0] in (2 * c["head_dim"], 2 * c["index_head_dim"]):
        return 2, shape[0] // 2, -1  # the two overlapping halves of ratio 4
    return (1, *shape)


class Optimiser:
    def __init__(self, model):
        self.model, self.groups, adam = model, {}, {k: [] for k in RATES}
        for name, x in model.params.items():
            if model.kind[name] in ("fp8", "fp4") or name.endswith(
                ("compressor.wkv.weight", "compressor.wgate.weight")
            ):
                cut = matrices(name, tuple(x.shape), model.config)
                self.groups.setdefault(tuple(x.view(cut).shape[1:]), []).append((name, cut))
            else:
                stem = name.split(".")[0]
                adam[stem if stem in RATES else "rest"].append(name)
        self.momentum = {n: torch.zeros_like(model.params[n]) for members in self.groups.values() for n, _ in members}
        self.adam_names = [n for names in adam.values() for n in names]
        self.adam = torch.optim.AdamW(
            [{"params": [model.params[n] for n in names], "lr": RATES[k], "kind": k} for k, names in adam.items()],
            betas=(0.9, 0.95),
            eps=1e-9,
            weight_decay=0.0,
            fused=model.device != "cpu",
        )

    def state(self):
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def load(self, state):
        for n, x in state["momentum"].items():
            self.momentum[n].copy_(x)
        self.adam.load_state_dict(state["adam"])

    @torch.no_grad()
    def step(self, rate):
        """One step with the gradients of model.weights; rate scales every learning rate."""
        params, weights = self.model.params, self.model.weights
        for n in self.adam_names:
            g = weights[n].grad
            params[n].grad = None if g is None else g.float()
        for group in self.adam.param_groups:
            group["lr"] = RATES[group["kind"]] * rate
        self.adam.step()
        for shape, members in self.groups.items():
            live = [(n, cut) for n, cut in members if weights[n].grad is not None]
            if live:
                self.muon(shape, live, rate)
        self.balance(rate)

    def muon(self, shape, members, rate):
        """Matrices of one shape together."""
        params = self.model.params
        grads = [self.model.weights[n].grad.float() for n, _ in members]
        moments = [self.momentum[n] for n, _ in members]
        torch._foreach_mul_(moments, MOMENTUM)
        torch._foreach_add_(moments, grads, alpha=1 - MOMENTUM)
        torch._foreach_mul_(grads, 1 - MOMENTUM)
        torch._foreach_add_(grads, moments, alpha=MOMENTUM)
        update = orthogonal(torch.cat([g.view(cut) for g, (_, cut) in zip(grads, members)])).float()
        step, at = MUON_RATE * rate * max(1.0, shape[0] / shape[1]) ** 0.5, 0
        for n, cut in members:
            k = params[n].view(cut).shape[0]
            params[n].mul_(1 - step * DECAY).add_(update[at : at + k].reshape(params[n].shape), alpha=-step)
            at += k

    def balance(self, rate):
        """Router biases move against the load of the last batch; no auxiliary loss."""
        for layer, b in self.model.bias.items():
            if layer in self.model.counts:
                load = self.model.counts[layer].float()
                b.add_(torch.sign(load.mean() - load), alpha=BIAS_STEP * min(1.0, rate + 0.05))
