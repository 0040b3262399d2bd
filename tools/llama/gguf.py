"""Writes a checkpoint in the official layout as GGUF, as llama.cpp reads it:  gguf.py MODEL FILE [--dense bf16|q8_0]

Knows the names and types that llama.cpp's `deepseek4` expects, and nothing of this engine.  Experts become MXFP4, which
moves bits only.  Dense FP8 matrices, with scales that are powers of two, become bf16, which holds every one of their
values; or Q8_0, as llama.cpp's own converter has it, which rounds.  What one of the two cannot hold stops the tool.
Without the draft block and without the tokenizer: who compares engines feeds ids."""
import argparse, json, os, struct
import numpy as np

F32, Q8_0, I32, BF16, MXFP4 = 0, 8, 26, 30, 39  # ggml_type
U32_KEY, F32_KEY, BOOL_KEY, TEXT_KEY, ARRAY_KEY, I32_KEY = 4, 6, 7, 8, 9, 5  # gguf_type
ALIGNMENT, BLOCK, FP8_BLOCK = 32, 32, 128
SQRT_SOFTPLUS = 4  # llama.cpp's number for the scoring function

ROOT_NAMES = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "head.weight": "output.weight",
              "hc_head_fn": "output_hc_fn.weight", "hc_head_base": "output_hc_base.weight",
              "hc_head_scale": "output_hc_scale.weight"}
LAYER_NAMES = {
    "hc_attn_fn": "hc_attn_fn", "hc_attn_base": "hc_attn_base", "hc_attn_scale": "hc_attn_scale",
    "hc_ffn_fn": "hc_ffn_fn", "hc_ffn_base": "hc_ffn_base", "hc_ffn_scale": "hc_ffn_scale",
    "attn_norm.weight": "attn_norm", "ffn_norm.weight": "ffn_norm",
    "attn.attn_sink": "attn_sinks", "attn.wq_a.weight": "attn_q_a", "attn.wq_b.weight": "attn_q_b",
    "attn.q_norm.weight": "attn_q_a_norm", "attn.wkv.weight": "attn_kv", "attn.kv_norm.weight": "attn_kv_a_norm",
    "attn.wo_a.weight": "attn_output_a", "attn.wo_b.weight": "attn_output_b",
    "attn.compressor.ape": "attn_compressor_ape", "attn.compressor.wkv.weight": "attn_compressor_kv",
    "attn.compressor.wgate.weight": "attn_compressor_gate", "attn.compressor.norm.weight": "attn_compressor_norm",
    "attn.indexer.wq_b.weight": "indexer.attn_q_b", "attn.indexer.weights_proj.weight": "indexer.proj",
    "attn.indexer.compressor.ape": "indexer_compressor_ape",
    "attn.indexer.compressor.wkv.weight": "indexer_compressor_kv",
    "attn.indexer.compressor.wgate.weight": "indexer_compressor_gate",
    "attn.indexer.compressor.norm.weight": "indexer_compressor_norm",
    "ffn.gate.weight": "ffn_gate_inp", "ffn.gate.tid2eid": "ffn_gate_tid2eid", "ffn.gate.bias": "exp_probs_b",
    "ffn.shared_experts.w1.weight": "ffn_gate_shexp", "ffn.shared_experts.w2.weight": "ffn_down_shexp",
    "ffn.shared_experts.w3.weight": "ffn_up_shexp"}
EXPERT_NAMES = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}


class Checkpoint:
    """Tensors of a folder of safetensors, by name: raw bytes in their shape."""

    def __init__(self, folder):
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.where = {}
        for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
            path = os.path.join(folder, file)
            with open(path, "rb") as f:
                n = struct.unpack("<Q", f.read(8))[0]
                for name, entry in json.loads(f.read(n)).items():
                    if name != "__metadata__":
                        self.where[name] = (path, 8 + n, entry)

    def read(self, name):
        """@return dtype, array of its stored bits"""
        path, base, entry = self.where[name]
        begin, end = entry["data_offsets"]
        kind = {"F32": "<f4", "BF16": "<u2", "I64": "<i8", "I8": "u1", "F8_E4M3": "u1", "F8_E8M0": "u1"}[entry["dtype"]]
        data = np.fromfile(path, "u1", end - begin, offset=base + begin).view(kind)
        return entry["dtype"], data.reshape(entry["shape"])


def fp8_values():
    """What each byte of E4M3 (without infinities) stands for; the two NaN stay."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, fraction / 8 * 2.0 ** -6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    value[[127, 255]] = np.nan
    return np.where(code > 127, -value, value).astype("<f4")


def float_of(dtype, bits, scale):
    """Values of a stored tensor as float."""
    if dtype == "F32":
        return bits
    if dtype == "BF16":
        return (bits.astype("<u4") << 16).view("<f4")
    assert dtype == "F8_E4M3", dtype
    grid = np.exp2(scale.astype("<f4") - 127)
    grid = grid.repeat(FP8_BLOCK, 0)[:bits.shape[0]].repeat(FP8_BLOCK, 1)[:, :bits.shape[1]]
    return fp8_values()[bits] * grid


def to_bf16(values):
    bits = values.astype("<f4").view("<u4")
    assert not (bits & 0xffff).any(), "a value that bf16 does not hold"
    return (bits >> 16).astype("<u2")


def to_q8_0(values):
    """Blocks of 32 along the rows: a half as the scale, then bytes."""
    blocks = values.reshape(-1, BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(scale > 0, np.round(blocks / scale), 0).astype("i1")
    return np.concatenate([scale.astype("<f2").view("u1"), codes.view("u1")], 1)


def to_mxfp4(packed, scale):
    """Neighbours share a byte in the checkpoint; in GGUF an element and the one half a block behind it do."""
    pairs = packed.reshape(-1, BLOCK // 2)
    codes = np.stack([pairs & 15, pairs >> 4], 2).reshape(-1, BLOCK)
    halves = codes[:, :BLOCK // 2] | codes[:, BLOCK // 2:] << 4
    return np.concatenate([scale.reshape(-1, 1), halves], 1)


def dense(checkpoint, name, kind):
    """@return type, shape, bytes"""
    dtype, bits = checkpoint.read(name)
    if dtype == "I64":
        return I32, bits.shape, bits.astype("<i4")
    scale = checkpoint.read(name.removesuffix(".weight") + ".scale")[1] if dtype == "F8_E4M3" else None
    values = float_of(dtype, bits, scale)
    if dtype == "F8_E4M3" and kind == "q8_0":
        return Q8_0, bits.shape, to_q8_0(values)
    # vectors and the gate are added and compared in float
    if dtype == "F32" or bits.ndim == 1 or name.endswith("ffn.gate.weight"):
        return F32, bits.shape, values.astype("<f4")
    return BF16, bits.shape, to_bf16(values)


def tensors(checkpoint, kind):
    """@return (name, type, shape, bytes) of every tensor of the network"""
    for name, other in ROOT_NAMES.items():
        yield other, *dense(checkpoint, name, kind)
    config = checkpoint.config
    for layer in range(config["num_hidden_layers"]):
        for name, other in LAYER_NAMES.items():
            full = f"layers.{layer}.{name}"
            if full in checkpoint.where and not (name == "ffn.gate.bias" and layer < config["num_hash_layers"]):
                suffix = ".bias" if name == "ffn.gate.bias" else ".weight"
                yield f"blk.{layer}.{other}{suffix}", *dense(checkpoint, full, kind)
        for part, other in EXPERT_NAMES.items():
            stem = [f"layers.{layer}.ffn.experts.{e}.{part}." for e in range(config["n_routed_experts"])]
            packed = np.stack([checkpoint.read(s + "weight")[1] for s in stem])
            scale = np.stack([checkpoint.read(s + "scale")[1] for s in stem])
            shape = (*packed.shape[:2], 2 * packed.shape[2])
            yield f"blk.{layer}.{other}.weight", MXFP4, shape, to_mxfp4(packed, scale)


def in_groups(rows, config):
    """The output projection is one matrix a group: told as such, llama.cpp does not pack it as a whole, which it then
    could not compute with."""
    for name, kind, shape, data in rows:
        if name.endswith("attn_output_a.weight"):
            shape = (config["o_groups"], config["o_lora_rank"], shape[1])
        yield name, kind, shape, data


def metadata(c):
    """@return (key, type, value); an array is a list"""
    layers, yarn = c["num_hidden_layers"], c["rope_scaling"]
    yield "general.architecture", TEXT_KEY, "deepseek4"
    yield "tokenizer.ggml.model", TEXT_KEY, "no_vocab"
    numbers = {
        "vocab_size": c["vocab_size"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "embedding_length_out": c["hidden_size"] * c["hc_mult"],
        "block_count": layers, "feed_forward_length": c["moe_intermediate_size"],
        "expert_feed_forward_length": c["moe_intermediate_size"], "expert_count": c["n_routed_experts"],
        "expert_used_count": c["num_experts_per_tok"], "expert_shared_count": c["n_shared_experts"],
        "expert_gating_func": SQRT_SOFTPLUS, "hash_layer_count": c["num_hash_layers"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
        "attention.q_lora_rank": c["q_lora_rank"], "attention.sliding_window": c["sliding_window"],
        "attention.indexer.head_count": c["index_n_heads"], "attention.indexer.key_length": c["index_head_dim"],
        "attention.indexer.top_k": c["index_topk"], "attention.output_group_count": c["o_groups"],
        "attention.output_lora_rank": c["o_lora_rank"], "hyper_connection.count": c["hc_mult"],
        "hyper_connection.sinkhorn_iterations": c["hc_sinkhorn_iters"],
        "rope.dimension_count": c["qk_rope_head_dim"],
        "rope.scaling.original_context_length": yarn["original_max_position_embeddings"]}
    reals = {
        "expert_weights_scale": c["routed_scaling_factor"], "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "attention.compress_rope_freq_base": c["compress_rope_theta"], "hyper_connection.epsilon": c["hc_eps"],
        "rope.freq_base": c["rope_theta"], "rope.scaling.factor": yarn["factor"],
        "rope.scaling.yarn_beta_fast": yarn["beta_fast"], "rope.scaling.yarn_beta_slow": yarn["beta_slow"]}
    for key, value in numbers.items():
        yield "deepseek4." + key, U32_KEY, value
    for key, value in reals.items():
        yield "deepseek4." + key, F32_KEY, float(value)
    yield "deepseek4.expert_weights_norm", BOOL_KEY, c["norm_topk_prob"]
    yield "deepseek4.rope.scaling.type", TEXT_KEY, yarn["type"]
    yield "deepseek4.attention.compress_ratios", I32_KEY, c["compress_ratios"][:layers]
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        yield "deepseek4." + key, F32_KEY, [float(c["swiglu_limit"])] * layers


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def encoded(key, kind, value):
    one = {U32_KEY: "<I", I32_KEY: "<i", F32_KEY: "<f", BOOL_KEY: "<?"}
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", ARRAY_KEY, kind, len(value)) + b"".join(
            struct.pack(one[kind], v) for v in value)
    return text(key) + struct.pack("<I", kind) + (text(value) if kind == TEXT_KEY else struct.pack(one[kind], value))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("file")
    ap.add_argument("--dense", choices=("bf16", "q8_0"), default="bf16")
    a = ap.parse_args()
    checkpoint = Checkpoint(a.model)
    keys = [encoded(*row) for row in metadata(checkpoint.config)]
    infos, parts, at = [], [], 0
    for name, kind, shape, data in in_groups(tensors(checkpoint, a.dense), checkpoint.config):
        part = np.ascontiguousarray(data).tobytes()
        part += bytes(-len(part) % ALIGNMENT)
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, at))
        parts.append(part)
        at += len(part)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys + infos)
    with open(a.file, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT))
        f.writelines(parts)


main()
