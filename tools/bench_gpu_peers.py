"""What torch makes of the products of one layer of the published size, on the card that tools/bench_gpu.c times:
bf16 (cuBLAS) and FP8 (torch._scaled_mm), medians of graph replays over four sets of weights.  Without torch it says so."""
import sys
try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit()

SETS, TIMES = 4, 15
SHAPES = {"wq_b, indexer's": (40960, 1024), "wo_a, as one matrix": (8192, 4096), "wo_b": (4096, 8192), "one expert's w1": (2048, 4096)}


def median_us(work):
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[TIMES // 2] * 1e3 / SETS


def main():
    torch.manual_seed(5)
    print(f"{'torch':26} {'tokens':>6} {'bf16 us':>10} {'TFLOP/s':>8} {'fp8 us':>10} {'TFLOP/s':>8}")
    one = torch.ones((), device="cuda")
    for name, (rows, cols) in SHAPES.items():
        weights = [torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
        eights = [w.to(torch.float8_e4m3fn) for w in weights]
        for tokens in (1, 8, 64, 256):
            x = torch.randn(tokens, cols, device="cuda", dtype=torch.bfloat16)
            x8 = torch.randn(max(16, tokens), cols, device="cuda").to(torch.float8_e4m3fn)
            us = median_us(lambda: [x @ w.T for w in weights])
            us8 = median_us(lambda: [torch._scaled_mm(x8, w.T, one, one, out_dtype=torch.bfloat16) for w in eights])
            rate, rate8 = (2e-6 * rows * cols * tokens / t for t in (us, us8))
            print(f"{name:26} {tokens:6} {us:10.1f} {rate:8.0f} {us8:10.1f} {rate8:8.0f}")


main()
