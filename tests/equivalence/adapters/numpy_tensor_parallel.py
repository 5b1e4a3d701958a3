#!/usr/bin/env python3
"""Tensor parallel in NumPy, a process for each device: numpy_tensor_parallel.py PROBLEM OUT_DIR DEVICES.
Weights of even layers are cut by columns, of odd layers by rows. A file of results for each device."""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb
from optimizer import Optimizer
from processes import main


def device_program(group, problem, folder, out):
    device, n, all_reduce = group.device, group.devices, group.all_reduce

    def mine(w, layer):
        begin, end = sb.part(w.shape[1 - layer % 2], n, device)
        return w[:, begin:end] if layer % 2 == 0 else w[begin:end]

    read = {k: v.values.astype("f4") for f in ("params", "batch") for k, v in
            sb.read(folder / problem[f]).items()}
    names = [f"layer_{layer}/weights" for layer in range(problem["layers"])]
    w = [mine(read[name], layer) for layer, name in enumerate(names)]
    counts = read["row_weights"][:, None] if "row_weights" in read else np.ones((problem["batch_size"], 1), "f4")
    optimizer = Optimizer(problem)
    for _ in range(problem["steps"]):
        x, inputs = read["input"], []
        for layer in range(0, len(w), 2):
            h = np.maximum(x @ w[layer], 0)           # (B, F/n)   R S1 = S1
            inputs += [x, h]
            x = all_reduce(h @ w[layer + 1])          # (B, D)     S1 S0 = P, reduced
        y, g = x, [None] * len(w)
        d = read["output_grad"] if "output_grad" in read else 2 / (counts.sum() * y.shape[1]) * counts * (y - read["target"])
        for layer in range(len(w) - 2, -1, -2):
            x, h = inputs[layer:layer + 2]
            g[layer + 1] = h.T @ d                    # (F/n, D)   as the weights
            dh = (d @ w[layer + 1].T) * (h > 0)       # (B, F/n)
            g[layer] = x.T @ dh                       # (D, F/n)
            d = all_reduce(dh @ w[layer].T)           # (B, D)     S1 S0 = P, reduced
        norm = all_reduce(sum((x * x).sum() for x in g)) ** 0.5
        w = optimizer.step(w, g, norm)
    result = dict(zip(names, w)) if "target" in read else \
        {"output": y, "input_grad": d, **dict(zip(names, g))}
    sb.write(out / f"device_{device}.safetensors", result)
    on = {name: {"tensor": {"sharded": 1 - layer % 2}} for layer, name in enumerate(names)}
    on |= {"output": {}, "input_grad": {}}  # replicated
    (out / "layout.json").write_text(json.dumps({"version": 1, "mesh": {"tensor": n}, "tensors": on}))


if __name__ == "__main__":
    main(device_program, lambda problem: problem["workload"] == "mlp")
