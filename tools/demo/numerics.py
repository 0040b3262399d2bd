"""The rounding points of the official numerics, as differentiable PyTorch.

Owns FP8 and FP4 fake quantisation (values on the grid, kept in wider types) with straight-through
gradients, RMSNorm, RoPE and the small pointwise blocks between matrix products. Knows no weights.
"""
import torch
import torch.nn.functional as F

BF16, F32 = torch.bfloat16, torch.float32
EPS = 1e-6
FP8_MAX, FP4_MAX = 448.0, 6.0
ROPE = 64  # rotated dimensions at the end of a head


def pow2_ceil(a):
    """2^ceil(log2 a) of positive normal float32, exact."""
    bits = a.view(torch.int32)
    exponent = ((bits >> 23) & 255) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (exponent << 23).view(F32)


def e4m3(x):
    """Nearest value of the FP8 grid."""
    if hasattr(torch, "float8_e4m3fn"):
        return x.to(torch.float8_e4m3fn).to(F32)
    _, e = torch.frexp(x)
    step = torch.exp2(torch.clamp(e - 1, min=-6).float() - 3)
    return torch.round(x / step) * step


def e2m1(x):
    """Nearest value of the FP4 grid, ties to even."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.round(x / step) * step


def fp8_scale(amax):
    return pow2_ceil(amax.clamp(min=1e-4) * (1.0 / FP8_MAX))


def fp4_scale(amax):
    return pow2_ceil(amax.clamp(min=6 * 2.0**-126) * (1.0 / FP4_MAX))


def fp8_groups(x, group):
    """FP8 rounding of float32 x in groups along the last axis."""
    y = x.unflatten(-1, (-1, group))
    s = fp8_scale(y.abs().amax(-1, keepdim=True))
    return (e4m3((y / s).clamp(-FP8_MAX, FP8_MAX)) * s).flatten(-2)


def fp4_groups(x, group=32):
    """FP4 rounding of float32 x in groups along the last axis."""
    y = x.unflatten(-1, (-1, group))
    s = fp4_scale(y.abs().amax(-1, keepdim=True))
    return (e2m1((y / s).clamp(-FP4_MAX, FP4_MAX)) * s).flatten(-2)


def fp8_blocks(x):
    """A weight [o, i] in blocks of 128 x 128: (codes as float32 [o, i], scales [o/128, i/128])."""
    o, i = x.shape
    y = x.view(o // 128, 128, i // 128, 128)
    s = fp8_scale(y.abs().amax((1, 3), keepdim=True))
    return e4m3((y / s).clamp(-FP8_MAX, FP8_MAX)), s


def straight_through(x, quantise):
    return x + (quantise(x.detach()) - x.detach())


def rounded(x):
    """Round to bfloat16 and go on in float32."""
    return x.to(BF16).float()


def activation8(x):
    """The input of an FP8 or FP4 product."""
    return straight_through(x.float(), lambda t: fp8_groups(t, 128)).to(BF16)


def linear(x, w):
    if x.is_cuda:
        return x @ w.t()
    return (x.float() @ w.float().t()).to(BF16)


def rms(x, w):
    x = x.float()
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * w.float()).to(BF16)


def rope(x, cos, sin):
    """Rotate the last ROPE dimensions, adjacent pairs."""
    a, b = x[..., -ROPE:].unflatten(-1, (ROPE // 2, 2)).unbind(-1)
    y = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((x[..., :-ROPE], rounded(y)), -1)


# ---- pointwise blocks: each is compiled as one kernel in training ---------------------------------
def mixing(x, fn):
    """Mixing scores of the streams: x [T, M, D] -> (streams as float32 [T, M, D], scores)."""
    v = x.float().flatten(1)
    return v.view(x.shape), (v @ fn.t()) * torch.rsqrt((v * v).mean(-1, keepdim=True) + EPS)


def stream_in(x, fn, scale, base, norm):
    """Streams -> (input of the sublayer, the same in FP8, post gates, raw mixing matrix)."""
    n = x.shape[1]
    v, m = mixing(x, fn)
    pre = torch.sigmoid(m[:, :n] * scale[0] + base[:n]) + EPS
    post = 2 * torch.sigmoid(m[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    raw = m[:, 2 * n :] * scale[2] + base[2 * n :]
    y = rms((pre[:, :, None] * v).sum(1).to(BF16), norm)
    return y, activation8(y), post, raw


def stream_out(x, y, post, comb):
    """Streams after the sublayer; the first index of comb is the source."""
    n = x.shape[1]
    c, v = comb.view(-1, n, n), x.float()
    out = post[:, :, None] * y.float()[:, None, :]
    for j in range(n):
        out = out + c[:, j, :, None] * v[:, j : j + 1, :]
    return out.to(BF16)


def stream_head(x, fn, scale, base, norm):
    v, m = mixing(x, fn)
    pre = torch.sigmoid(m * scale + base) + EPS
    return rms((pre[:, :, None] * v).sum(1).to(BF16), norm)


def norm8(x, w):
    y = rms(x, w)
    return y, activation8(y)


def query(q, cos, sin):
    x = q.float()
    x = rounded(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS))
    return rope(x, cos[:, None], sin[:, None]).to(BF16)


def kv8(x):
    """FP8 of what is kept of a key: groups of 64, the rotated part stays."""
    return torch.cat((straight_through(x[..., :-ROPE], lambda t: fp8_groups(t, 64)), x[..., -ROPE:]), -1).to(BF16)


def window_kv(x, w, cos, sin):
    return kv8(rope(rms(x, w).float(), cos, sin))


def inverse_rope(o, cos, sin):
    return rope(rounded(o.float()), cos[:, None], -sin[:, None]).to(BF16)


def pool(kv, gate, ape, first, width):
    """[N, r, w] -> [N, width]: gated pooling; ratio 4 overlaps with the block before, unless it is the first."""
    g, kv = gate.float() + ape, kv.float()
    if ape.shape[0] == 4:
        before = torch.cat((kv[:1] * 0, kv[:-1]), 0)[..., :width]
        gate_before = torch.cat((g[:1] * 0, g[:-1]), 0)[..., :width]
        gate_before = torch.where(first, -1e30, gate_before)
        kv, g = torch.cat((before, kv[..., width:]), 1), torch.cat((gate_before, g[..., width:]), 1)
    return (kv * torch.softmax(g, 1)).sum(1).to(BF16)


def compressed_kv(kv, gate, ape, first, norm, cos, sin):
    return kv8(rope(rms(pool(kv, gate, ape, first, norm.shape[0]), norm).float(), cos, sin))


def index4(x, hadamard):
    """Hadamard and FP4 of an index vector."""
    y = rounded((x @ hadamard) * (x.shape[-1] ** -0.5))
    return straight_through(y, fp4_groups).to(BF16)


def index_key(kv, gate, ape, first, norm, cos, sin, hadamard):
    return index4(rope(rms(pool(kv, gate, ape, first, norm.shape[0]), norm).float(), cos, sin), hadamard)


def index_query(q, cos, sin, hadamard):
    return index4(rope(q.float(), cos[:, None], sin[:, None]), hadamard)


def swiglu(ab, weight):
    """[N, 2I] -> [N, I] in FP8; weight [N, 1] of the route."""
    a, b = ab.float().chunk(2, -1)
    return activation8((F.silu(a.clamp(max=10)) * b.clamp(-10, 10) * weight).to(BF16))


def swiglu_shared(ab):
    a, b = ab.float().chunk(2, -1)
    return activation8((F.silu(a.clamp(max=10)) * b.clamp(-10, 10)).to(BF16))


def gate_scores(x, w):
    return torch.sqrt(F.softplus(x.float() @ w.float().t()))


def draft_in(e, h, e_norm, h_norm):
    return activation8(rms(e, e_norm)), activation8(rms(h, h_norm))


def sylvester(n):
    """The Hadamard matrix in natural order."""
    h = torch.ones(1, 1)
    while h.shape[0] < n:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)), 0)
    return h
