#!/usr/bin/env python3
"""beside_pytorch.py FILE...: the same steps by PyTorch, on the same GPU. A FILE is what a benchmark of chapter 01 or 08
wrote with --json: forward, a loss gradient as cheap as a copy, and backward, of a network that torch_peer.py has, too.
Both sides wait for the GPU after each step. PyTorch computes eagerly; for bf16 it runs under autocast."""
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

marks = tempfile.NamedTemporaryFile()
marks.write(bytes(8))
marks.flush()
os.environ.update(RANK="0", WORLD_SIZE="1", MARKS=marks.name)
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "benchmarks")]
import torch_peer

STEPS = 10


def median_of(step):
    """The median time of a step, in microseconds."""
    times = []
    for _ in range(STEPS + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times[3:])


def step_of(case):
    """A step of PyTorch's, of the network and in the precision of this case of the benchmark."""
    torch.backends.cuda.matmul.allow_tf32 = case["precision"] == "tf32"
    torch.manual_seed(1)
    model, batch = torch_peer.network_of({"network": [int(n) for n in case["network"].split("x")],
                                          "layers": case["layers"], "is_decoder": case["chapter"] == "08"})
    for block in model.modules():  # not in the network's state, so that `to` leaves them
        if isinstance(block, torch_peer.Block):
            block.cos, block.sin = block.cos.cuda(), block.sin.cuda()
    model, batch = model.cuda(), batch.cuda()

    def step():
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=case["precision"] == "bf16"):
            out = model(batch)
        out.backward(out.detach().clone())

    return step


def main(files):
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: milliseconds a step, forward and backward")
    print(f"{'':<12} {'network':<16} {'layers':>6} {'':<8} {'ours':>8} {'PyTorch':>8} {'ratio':>6} {'TFLOP/s':>8}")
    for file in files:
        for case in json.loads(Path(file).read_text())["chapters"]:
            ours, theirs = case["times"]["ours_us"]["median"], median_of(step_of(case))
            print(f"{case['chapter']} {case['variant']:<9} {case['network']:<16} {case['layers']:>6} "
                  f"{case['precision']:<8} {ours / 1e3:>8.2f} {theirs / 1e3:>8.2f} {ours / theirs:>6.2f} "
                  f"{case['flops'] / ours / 1e6:>8.1f}", flush=True)


main(sys.argv[1:])
