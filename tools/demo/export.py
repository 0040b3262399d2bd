"""Checkpoints in the official layout: FP8 dense, FP4 experts, the rest bfloat16 or float32, in shards.

Owns writing a Model as safetensors and reading it back. Knows nothing of training.
"""
import json
import os
import struct

import numpy as np
import torch

import numerics as N
from model import Model

SHARD_BYTES = 14 << 20  # below the 16 MiB at which files are too large for many tools
FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
TYPES = {
    "BF16": np.uint16,
    "F32": np.float32,
    "F8_E4M3": np.uint8,
    "F8_E8M0": np.uint8,
    "I8": np.uint8,
    "I64": np.int64,
}


def bf16_bits(x):
    u = x.detach().cpu().float().numpy().view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def e4m3_bits(q):
    """Values on the grid -> bytes."""
    q = q.cpu().numpy().astype(np.float64)
    sign, a = np.signbit(q).astype(np.uint8) << 7, np.abs(q)
    e = np.maximum(np.frexp(a)[1] - 1, -6)
    mantissa = np.round(a / np.exp2(e - 3.0)).astype(np.int64)  # 8..15 normal, 0..7 subnormal at e = -6
    return (sign | np.where(mantissa >= 8, ((e + 7) << 3) + mantissa - 8, mantissa).astype(np.uint8)).astype(np.uint8)


def e8m0_bits(s):
    return ((s.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8).cpu().numpy()


def fp8(x):
    """(codes, scales) of a dense weight."""
    codes, s = N.fp8_blocks(x)
    return e4m3_bits(codes.reshape(x.shape)), e8m0_bits(s.view(x.shape[0] // 128, x.shape[1] // 128))


def fp4(x):
    """(two codes a byte, scales) of an expert's weight."""
    o, i = x.shape
    y = x.view(o, i // 32, 32)
    s = N.fp4_scale(y.abs().amax(-1, keepdim=True))
    q = N.e2m1((y / s).clamp(-N.FP4_MAX, N.FP4_MAX)).view(o, i).cpu().numpy()
    nibble = np.searchsorted(FP4_VALUES, np.abs(q)).astype(np.uint8) | (np.signbit(q).astype(np.uint8) << 3)
    return (nibble[:, 0::2] | (nibble[:, 1::2] << 4)).astype(np.uint8), e8m0_bits(s[..., 0])


def quantised(name, pair, dtype):
    yield name + ".weight", dtype, pair[0]
    yield name + ".scale", "F8_E8M0", pair[1]


@torch.no_grad()
def tensors(model):
    """(official name, dtype, bits) of every tensor."""
    c = model.config
    layers, inter = c["num_hidden_layers"], c["moe_intermediate_size"]
    for name, x in model.params.items():
        x, kind = x.detach().cpu(), model.kind[name]
        stem, leaf = name.rsplit(".", 1) if "." in name else ("", name)
        if leaf in ("w13", "w2"):
            for e in range(x.shape[0]):
                parts = (("w1", x[e, :inter]), ("w3", x[e, inter:])) if leaf == "w13" else (("w2", x[e]),)
                for n, y in parts:
                    yield from quantised(f"{stem}.experts.{e}.{n}", fp4(y.contiguous()), "I8")
        elif leaf == "shared13":
            yield from quantised(stem + ".shared_experts.w1", fp8(x[:inter].contiguous()), "F8_E4M3")
            yield from quantised(stem + ".shared_experts.w3", fp8(x[inter:].contiguous()), "F8_E4M3")
        elif leaf == "shared2":
            yield from quantised(stem + ".shared_experts.w2", fp8(x), "F8_E4M3")
        elif kind == "fp8":
            yield from quantised(stem, fp8(x), "F8_E4M3")
        elif kind == "bf16":
            yield name, "BF16", bf16_bits(x)
        else:
            yield name, "F32", x.float().numpy()
    for layer in range(layers + 1):
        p = f"layers.{layer}.ffn." if layer < layers else "mtp.0.ffn."
        if layer < c["num_hash_layers"]:
            yield p + "gate.tid2eid", "I64", model.hash.cpu().numpy().astype(np.int64)
        else:
            yield p + "gate.bias", "F32", model.bias[layer].cpu().float().numpy()


def write_file(path, items):
    """One safetensors file; returns its tensor bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, a in items:
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, a in items:
            f.write(np.ascontiguousarray(a).tobytes())
    return offset


def write_json(path, value, indent):
    with open(path, "w") as f:
        json.dump(value, f, indent=indent)


def order(item):
    """Embedding and head first, then the layers, the draft block last."""
    part = item[0].split(".")
    return {"layers": 1, "mtp": 2}.get(part[0], 0), int(part[1]) if part[0] == "layers" else 0


def export(model, folder):
    """Write config.json, generation_config.json, the shards and their index; returns the tensor bytes."""
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"), model.config, 1)
    write_json(
        os.path.join(folder, "generation_config.json"),
        {
            "_from_model_config": True,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "do_sample": True,
            "temperature": 1.0,
            "top_p": 1.0,
        },
        1,
    )
    shards, size = [[]], 0
    for item in sorted(tensors(model), key=order):
        if size + item[2].nbytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item[2].nbytes
    where, total = {}, 0
    for i, items in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        total += write_file(os.path.join(folder, name), items)
        where |= {n: name for n, _, _ in items}
    write_json(
        os.path.join(folder, "model.safetensors.index.json"),
        {"metadata": {"total_size": total}, "weight_map": where},
        0,
    )
    return total


def read_folder(folder):
    """All tensors of a checkpoint: name -> (dtype, bits)."""
    out = {}
    for name in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        for key, t in json.loads(data[8 : 8 + n]).items():
            if key != "__metadata__":
                a, b = t["data_offsets"]
                out[key] = (
                    t["dtype"],
                    np.frombuffer(data[8 + n + a : 8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"]),
                )
    return out


def e4m3_values():
    b = np.arange(256)
    s, e, m = b >> 7, (b >> 3) & 15, b & 7
    return np.where(e == 0, m / 8 * 2.0**-6, (1 + m / 8) * 2.0 ** (e - 7.0)) * np.where(s, -1, 1)


def dequantise(tensors_, name):
    """A tensor of read_folder() as float32."""
    dtype, a = tensors_[name]
    if dtype == "BF16":
        return (a.astype(np.uint32) << 16).view(np.float32)
    if dtype not in ("F8_E4M3", "I8"):
        return a
    scale = np.exp2(tensors_[name.replace(".weight", ".scale")][1].astype(np.float32) - 127)
    if dtype == "F8_E4M3":
        return (e4m3_values()[a] * scale.repeat(128, 0).repeat(128, 1)).astype(np.float32)
    signed = np.concatenate((FP4_VALUES, -FP4_VALUES))
    w = np.empty((a.shape[0], a.shape[1] * 2), np.float32)
    w[:, 0::2], w[:, 1::2] = signed[a & 15], signed[a >> 4]
    return w * scale.repeat(32, 1)


def load(folder, device="cpu"):
    """The Model of an exported folder; quantising it again gives the same values."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    t, model = read_folder(folder), Model(config, device)
    experts = range(config["n_routed_experts"])
    for name, x in model.params.items():
        stem, leaf = name.rsplit(".", 1) if "." in name else ("", name)
        if leaf == "w13":
            a = np.stack(
                [
                    np.concatenate([dequantise(t, f"{stem}.experts.{e}.{w}.weight") for w in ("w1", "w3")])
                    for e in experts
                ]
            )
        elif leaf == "w2":
            a = np.stack([dequantise(t, f"{stem}.experts.{e}.w2.weight") for e in experts])
        elif leaf == "shared13":
            a = np.concatenate([dequantise(t, f"{stem}.shared_experts.{w}.weight") for w in ("w1", "w3")])
        elif leaf == "shared2":
            a = dequantise(t, stem + ".shared_experts.w2.weight")
        else:
            a = dequantise(t, name)
        x.copy_(torch.from_numpy(np.array(a)))
    for layer, b in model.bias.items():
        p = f"layers.{layer}." if layer < config["num_hidden_layers"] else "mtp.0."
        b.copy_(torch.from_numpy(dequantise(t, p + "ffn.gate.bias").copy()))
    return model
