"""One run of llama.cpp on given ids, by the library that npm's @node-llama-cpp/linux-x64 carries:
    run.py LIBRARY_FOLDER GGUF THREADS packed|plain IDS PREFILL time
        times the first PREFILL ids in one call, and the rest one by one
    run.py LIBRARY_FOLDER GGUF THREADS packed|plain IDS PREFILL rows FILE
        writes the logits behind every id as floats: the first PREFILL in one call, the rest one by one
`packed` lets it lay matrices out anew for the processor, which is its default; `plain` does not.
Knows the part of llama.h of that version that it calls; the lengths of its two structures are checked against the defaults."""
import ctypes, glob, json, os, resource, sys, time
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int32, c_int8, c_size_t, c_uint32, c_void_p


class ModelParams(Structure):
    _fields_ = [("devices", c_void_p), ("overrides", c_void_p), ("n_gpu_layers", c_int32), ("split_mode", c_int32),
                ("load_mode", c_int32), ("lazy_mode", c_int32), ("main_gpu", c_int32), ("tensor_split", c_void_p),
                ("progress", c_void_p), ("progress_user", c_void_p), ("kv_overrides", c_void_p), ("vocab_only", c_bool),
                ("check_tensors", c_bool), ("use_extra_bufts", c_bool), ("no_host", c_bool), ("no_alloc", c_bool),
                ("load_mtp", c_bool)]


class ContextParams(Structure):
    _fields_ = [("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_ubatch", c_uint32), ("n_seq_max", c_uint32),
                ("n_rs_seq", c_uint32), ("n_outputs_max", c_uint32), ("n_outputs_max_per_seq", c_uint32),
                ("n_threads", c_int32), ("n_threads_batch", c_int32), ("ctx_type", c_int32), ("rope_scaling", c_int32),
                ("pooling", c_int32), ("attention", c_int32), ("flash_attn", c_int32), ("rope_freq_base", c_float),
                ("rope_freq_scale", c_float), ("yarn_ext_factor", c_float), ("yarn_attn_factor", c_float),
                ("yarn_beta_fast", c_float), ("yarn_beta_slow", c_float), ("yarn_orig_ctx", c_uint32),
                ("defrag_thold", c_float), ("cb_eval", c_void_p), ("cb_eval_user", c_void_p), ("type_k", c_int32),
                ("type_v", c_int32), ("abort", c_void_p), ("abort_user", c_void_p), ("embeddings", c_bool),
                ("offload_kqv", c_bool), ("no_perf", c_bool), ("op_offload", c_bool), ("swa_full", c_bool),
                ("kv_unified", c_bool), ("samplers", c_void_p), ("n_samplers", c_size_t), ("ctx_other", c_void_p)]


class Batch(Structure):
    _fields_ = [("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", c_void_p), ("pos", POINTER(c_int32)),
                ("n_seq_id", POINTER(c_int32)), ("seq_id", POINTER(POINTER(c_int32))), ("logits", POINTER(c_int8))]


LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
PHYSICAL_BATCH = 512  # llama.cpp's default
F16 = 1  # its default for what it keeps of a context


class Llama:
    """A context that is fed ids."""

    def __init__(self, folder, gguf, threads, packed, ids):
        base, self.lib = (ctypes.CDLL(glob.glob(os.path.join(folder, f"lib{n}.v*.so"))[0], ctypes.RTLD_GLOBAL)
                          for n in ("ggml", "llama"))
        self.words = []
        self.log = LOG(lambda level, words, _: self.words.append(words.decode(errors="replace")))
        base.ggml_backend_load_all_from_path(folder.encode())
        lib = self.lib
        for name, result in (("llama_model_default_params", ModelParams), ("llama_context_default_params", ContextParams),
                             ("llama_model_load_from_file", c_void_p), ("llama_init_from_model", c_void_p),
                             ("llama_get_memory", c_void_p), ("llama_batch_init", Batch),
                             ("llama_get_logits_ith", POINTER(c_float))):
            getattr(lib, name).restype = result
        lib.llama_log_set(self.log, None)
        lib.llama_backend_init()
        options = lib.llama_context_default_params()
        # another version of the library would show here
        assert (options.n_ubatch, options.type_k, options.type_v, options.ctx_other) == (PHYSICAL_BATCH, F16, F16, None)
        options.n_ctx, options.n_batch = len(ids), len(ids)
        options.n_threads = options.n_threads_batch = threads
        model_options = lib.llama_model_default_params()
        assert model_options.use_extra_bufts and not model_options.vocab_only and not model_options.no_alloc
        model_options.use_extra_bufts = packed
        model = lib.llama_model_load_from_file(gguf.encode(), model_options)
        self.context = model and lib.llama_init_from_model(c_void_p(model), options)
        if not self.context:
            sys.exit("llama.cpp refuses it: " + "".join(self.words[-5:]))
        self.ids, self.batch = ids, lib.llama_batch_init(len(ids), 0, 1)

    def forget(self):
        self.lib.llama_memory_clear(c_void_p(self.lib.llama_get_memory(c_void_p(self.context))), c_bool(True))

    def feed(self, from_, to, all_rows):
        """Ids from_ to `to`; the logits of the last one, or of all, can be had then."""
        b = self.batch
        b.n_tokens = to - from_
        for i in range(b.n_tokens):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0] = self.ids[from_ + i], from_ + i, 1, 0
            b.logits[i] = all_rows or i + 1 == b.n_tokens
        assert self.lib.llama_decode(c_void_p(self.context), b) == 0, "".join(self.words[-5:])

    def row(self, i, vocab):
        return bytes(ctypes.cast(self.lib.llama_get_logits_ith(c_void_p(self.context), c_int32(i)),
                                 POINTER(c_float * vocab)).contents)


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime


def timed(llama, prefill):
    """@return seconds on the clock and on the processors, of prompt and answer"""
    marks = [(time.perf_counter(), cpu_s())]
    llama.feed(0, prefill, False)
    marks.append((time.perf_counter(), cpu_s()))
    for i in range(prefill, len(llama.ids)):
        llama.feed(i, i + 1, False)
    marks.append((time.perf_counter(), cpu_s()))
    return {f"{phase}_{kind}_s": to[i] - from_[i] for phase, from_, to in zip(("prefill", "decode"), marks, marks[1:])
            for i, kind in enumerate(("wall", "cpu"))}


def write_rows(llama, prefill, path, vocab):
    with open(path, "wb") as f:
        llama.feed(0, prefill, True)
        for i in range(prefill):
            f.write(llama.row(i, vocab))
        for i in range(prefill, len(llama.ids)):
            llama.feed(i, i + 1, True)
            f.write(llama.row(0, vocab))


def main():
    folder, gguf, threads, layout, ids_path, prefill, what = sys.argv[1:8]
    request = json.load(open(ids_path))
    llama = Llama(folder, gguf, int(threads), layout == "packed", request["ids"])
    if what == "rows":
        write_rows(llama, int(prefill), sys.argv[8], request["vocab"])
        return
    first = timed(llama, int(prefill))
    llama.forget()
    second = timed(llama, int(prefill))
    print(json.dumps({key: min(first[key], second[key]) for key in first}))  # the best of two, as bench_model


main()
