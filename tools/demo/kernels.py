"""Attention, index scores and stream mixing for training on a GPU, each with a hand-written backward.

Owns the Triton kernels and the call into sinkhorn.cu. Scores are kept in full in bfloat16: at the lengths
and sizes of the demo model that is faster than recomputing them. Imported on machines with a GPU only.
"""
import ctypes
import os
import subprocess
import tempfile

import torch
import triton
import triton.language as tl

HERE = os.path.dirname(os.path.abspath(__file__))


@triton.jit
def sm_fwd(
    SW, SC, SINK, IDX, THR, S, n, ratio, scale, H: tl.constexpr, HASC: tl.constexpr, SEL: tl.constexpr, BN: tl.constexpr
):
    """Softmax over window and compressed scores with the sink, in place; one program a (token, head)."""
    r = tl.program_id(0).to(tl.int64)
    h = r % H
    t = r // H
    s = (t % S).to(tl.int32)
    j = tl.arange(0, 256)
    kp = (s // 128) * 128 - 128 + j
    ok = (kp >= 0) & (kp <= s) & (kp > s - 128)
    w = tl.load(SW + r * 256 + j).to(tl.float32) * scale
    w = tl.where(ok, w, float("-inf"))
    sink = tl.load(SINK + h)
    m = tl.maximum(tl.max(w, 0), sink)
    l = tl.sum(tl.exp(w - m), 0) + tl.exp(sink - m)
    vis = (s + 1) // ratio
    jc = tl.arange(0, BN)
    if HASC:
        if SEL:
            thr = tl.load(THR + t)
        for j0 in range(0, vis, BN):
            o = j0 + jc
            c = tl.load(SC + r * n + o, mask=o < vis, other=float("-inf")).to(tl.float32) * scale
            if SEL:
                i = tl.load(IDX + t * n + o, mask=o < vis, other=float("-inf"))
                c = tl.where(i >= thr, c, float("-inf"))
            m2 = tl.maximum(m, tl.max(c, 0))
            l = l * tl.exp(m - m2) + tl.sum(tl.exp(c - m2), 0)
            m = m2
        for j0 in range(0, n, BN):
            o = j0 + jc
            c = tl.load(SC + r * n + o, mask=o < vis, other=float("-inf")).to(tl.float32) * scale
            if SEL:
                i = tl.load(IDX + t * n + o, mask=o < vis, other=float("-inf"))
                c = tl.where(i >= thr, c, float("-inf"))
            tl.store(SC + r * n + o, (tl.exp(c - m) / l).to(tl.bfloat16), mask=o < n)
    tl.store(SW + r * 256 + j, (tl.exp(w - m) / l).to(tl.bfloat16))


@triton.jit
def sm_bwd(PW, PC, DW, DC, DS, S, n, ratio, scale, HASC: tl.constexpr, H: tl.constexpr, BN: tl.constexpr):
    """Gradients of the scores and of the sink, in place of the gradients of the probabilities."""
    r = tl.program_id(0).to(tl.int64)
    s = ((r // H) % S).to(tl.int32)
    j = tl.arange(0, 256)
    p = tl.load(PW + r * 256 + j).to(tl.float32)
    d = tl.load(DW + r * 256 + j).to(tl.float32)
    delta = tl.sum(p * d, 0)
    tot = tl.sum(p, 0)
    vis = (s + 1) // ratio
    jc = tl.arange(0, BN)
    if HASC:
        for j0 in range(0, vis, BN):
            o = j0 + jc
            pc = tl.load(PC + r * n + o, mask=o < vis, other=0.0).to(tl.float32)
            dc = tl.load(DC + r * n + o, mask=o < vis, other=0.0).to(tl.float32)
            delta += tl.sum(pc * dc, 0)
            tot += tl.sum(pc, 0)
        for j0 in range(0, n, BN):
            o = j0 + jc
            pc = tl.load(PC + r * n + o, mask=o < vis, other=0.0).to(tl.float32)
            dc = tl.load(DC + r * n + o, mask=o < vis, other=0.0).to(tl.float32)
            tl.store(DC + r * n + o, (pc * (dc - delta) * scale).to(tl.bfloat16), mask=o < n)
    tl.store(DW + r * 256 + j, (p * (d - delta) * scale).to(tl.bfloat16))
    tl.store(DS + r, -tl.maximum(1 - tot, 0.0) * delta)


@triton.jit
def ix_fwd(QK, W, I, S, n, H: tl.constexpr, BN: tl.constexpr):
    """Index scores of one token: heads' rectified products, weighted and summed; what is unseen is -1e30."""
    t = tl.program_id(0).to(tl.int64)
    vis = ((t % S).to(tl.int32) + 1) // 4
    jc = tl.arange(0, BN)
    for j0 in range(0, n, BN):
        o = j0 + jc
        acc = tl.zeros([BN], tl.float32)
        if j0 < vis:
            for h in tl.static_range(H):
                x = tl.load(QK + (t * H + h) * n + o, mask=o < vis, other=0.0).to(tl.float32)
                acc += tl.maximum(x, 0.0) * tl.load(W + t * H + h).to(tl.float32)
        tl.store(I + t * n + o, tl.where(o < vis, acc, -1e30), mask=o < n)


@triton.jit
def ix_bwd(QK, W, DI, DW, S, n, H: tl.constexpr, BN: tl.constexpr):
    """Gradients of the products, in place, and of the head weights; one program a (token, head)."""
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    vis = ((t % S).to(tl.int32) + 1) // 4
    w = tl.load(W + t * H + h).to(tl.float32)
    jc = tl.arange(0, BN)
    dw = tl.zeros([BN], tl.float32)
    for j0 in range(0, n, BN):
        o = j0 + jc
        x = tl.load(QK + (t * H + h) * n + o, mask=o < vis, other=0.0).to(tl.float32)
        d = tl.load(DI + t * n + o, mask=o < vis, other=0.0)
        dw += d * tl.maximum(x, 0.0)
        tl.store(QK + (t * H + h) * n + o, tl.where(x > 0, d * w, 0.0).to(tl.bfloat16), mask=o < n)
    tl.store(DW + t * H + h, tl.sum(dw, 0))


def block_size(n):
    """Columns that one step of a kernel takes."""
    return min(1024, 1 << max(4, (n - 1).bit_length()))


class Attention(torch.autograd.Function):
    """Window and compressed attention with a sink, one kernel for any mix of the two.

    @shape q [B, S, H, C], kv [B, S, C], ck [B, n, C] or None, sink [H], index [B, S, n] or None, threshold
    [B, S] or None: entries whose index score is below it are not attended. Returns the output like q and the
    probabilities over compressed entries, which take no gradient.
    """

    @staticmethod
    def forward(ctx, q, kv, ck, sink, index, threshold, ratio):
        B, S, H, C = q.shape
        blocks, scale = S // 128, C**-0.5
        k4 = kv.view(B, blocks, 128, C)
        window = torch.cat((torch.cat((torch.zeros_like(k4[:, :1]), k4[:, :-1]), 1), k4), 2).view(B * blocks, 256, C)
        pw = torch.bmm(q.view(B * blocks, 128 * H, C), window.transpose(1, 2))
        compressed, selected = ck is not None, threshold is not None
        n = ck.shape[1] if compressed else 8
        pc = torch.bmm(q.view(B, S * H, C), ck.transpose(1, 2)) if compressed else pw
        sm_fwd[(B * S * H,)](
            pw,
            pc,
            sink,
            index if selected else sink,
            threshold if selected else sink,
            S,
            n,
            max(ratio, 1),
            scale,
            H,
            compressed,
            selected,
            block_size(n),
        )
        out = torch.bmm(pw, window).view(B, S * H, C)
        if compressed:
            out = torch.baddbmm(out, pc, ck)
        ctx.save_for_backward(q, window, ck, sink, pw, pc)
        ctx.ratio = ratio
        if not compressed:
            return out.view(B, S, H, C), None
        ctx.mark_non_differentiable(pc)
        return out.view(B, S, H, C), pc

    @staticmethod
    def backward(ctx, grad, _):
        q, window, ck, sink, pw, pc = ctx.saved_tensors
        B, S, H, C = q.shape
        blocks, scale, compressed = S // 128, C**-0.5, ck is not None
        grad = grad.contiguous()
        grad_w, q_w = grad.view(B * blocks, 128 * H, C), q.view(B * blocks, 128 * H, C)
        grad_c, q_c = grad.view(B, S * H, C), q.view(B, S * H, C)
        dw = torch.bmm(grad_w, window.transpose(1, 2))
        dc = torch.bmm(grad_c, ck.transpose(1, 2)) if compressed else dw
        n = ck.shape[1] if compressed else 8
        dsink = torch.empty(B * S * H, device=q.device, dtype=torch.float32)
        dwindow = torch.bmm(pw.transpose(1, 2), grad_w)
        dck = torch.bmm(pc.transpose(1, 2), grad_c) if compressed else None
        sm_bwd[(B * S * H,)](pw, pc, dw, dc, dsink, S, n, max(ctx.ratio, 1), scale, compressed, H, block_size(n))
        dq = torch.bmm(dw, window).view(B, S * H, C)
        dwindow = torch.baddbmm(dwindow, dw.transpose(1, 2), q_w).view(B, blocks, 256, C)
        if compressed:
            dq = torch.baddbmm(dq, dc, ck)
            dck = torch.baddbmm(dck, dc.transpose(1, 2), q_c)
        dkv = dwindow[:, :, 128:].clone()
        dkv[:, :-1] += dwindow[:, 1:, :128]
        return dq.view(B, S, H, C), dkv.view(B, S, C), dck, dsink.view(-1, H).sum(0), None, None, None


class IndexScore(torch.autograd.Function):
    """@shape q [B, S, H, d], k [B, n, d], w [B*S, H] -> scores [B, S, n] float32; what cannot be seen is -1e30."""

    @staticmethod
    def forward(ctx, q, k, w):
        B, S, H, d = q.shape
        n = k.shape[1]
        qk = torch.bmm(q.view(B, S * H, d), k.transpose(1, 2))
        scores = torch.empty(B, S, n, device=q.device, dtype=torch.float32)
        ix_fwd[(B * S,)](qk, w, scores, S, n, H, block_size(n))
        ctx.save_for_backward(q, k, w, qk)
        return scores

    @staticmethod
    def backward(ctx, grad):
        q, k, w, qk = ctx.saved_tensors
        B, S, H, d = q.shape
        n = k.shape[1]
        dw = torch.empty(B * S, H, device=q.device, dtype=torch.float32)
        ix_bwd[(B * S, H)](qk, w, grad.contiguous(), dw, S, n, H, block_size(n))
        return torch.bmm(qk, k).view_as(q), torch.bmm(qk.transpose(1, 2), q.view(B, S * H, d)), dw.to(w.dtype)


class Sinkhorn(torch.autograd.Function):
    """@shape [T, 16] raw mixing -> [T, 16] doubly stochastic."""

    library = None

    @classmethod
    def load(cls):
        """Compile sinkhorn.cu once a process."""
        if cls.library is None:
            path = os.path.join(tempfile.mkdtemp(), "sinkhorn.so")
            subprocess.check_call(
                [
                    "nvcc",
                    "-O3",
                    "-arch=sm_90",
                    "-shared",
                    "-Xcompiler",
                    "-fPIC",
                    "-o",
                    path,
                    os.path.join(HERE, "sinkhorn.cu"),
                ]
            )
            cls.library = ctypes.CDLL(path)
        return cls.library

    @staticmethod
    def pointers(*tensors):
        return [ctypes.c_void_p(t.data_ptr()) for t in tensors]

    @staticmethod
    def stream():
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    @staticmethod
    def forward(ctx, raw):
        raw = raw.contiguous()
        out = torch.empty_like(raw)
        Sinkhorn.load().sink_fwd(*Sinkhorn.pointers(raw, out), raw.shape[0], Sinkhorn.stream())
        ctx.save_for_backward(raw)
        return out

    @staticmethod
    def backward(ctx, grad):
        (raw,) = ctx.saved_tensors
        grad = grad.contiguous()
        out = torch.empty_like(raw)
        Sinkhorn.load().sink_bwd(*Sinkhorn.pointers(raw, grad, out), raw.shape[0], Sinkhorn.stream())
        return out
