#!/usr/bin/python3
"""solves.py session FOLDER DEVICES|all [MISTAKE] | one PROBLEM OUT: data parallel of a mlp whose devices are a loop."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chapters/suite"))
import shardbook_check as sb


def gradients(params, x, dout, layers):
    kept = []
    for layer in range(layers):
        x = np.maximum(x, 0) if layer % 2 else x
        kept.append(x)
        x = x @ params[f"layer_{layer}/weights"]
    found = {"output": x}
    for layer in reversed(range(layers)):
        found[f"layer_{layer}/weights"] = kept[layer].T @ dout
        dout = dout @ params[f"layer_{layer}/weights"].T * ((kept[layer] > 0) if layer % 2 else 1)
    return {**found, "input_grad": dout}


def solved(problem, devices, mistake):
    parts = [slice(*sb.part(problem.batch_size, devices, d)) for d in range(devices)]
    mine = [gradients(problem.params, problem.batch["input"][p], problem.batch["output_grad"][p], problem.layers)
            for p in parts]
    total = {name: sum(each[name] for each in mine) / (devices if mistake == "mean" else 1) for name in problem.params}
    return [{**each, **total} for each in mine]


if __name__ == "__main__":
    _, how, folder, devices, *mistake = sys.argv
    for problem, results in sb.session(folder, int(devices) if devices != "all" else None):
        devices = int(results.name)
        if mistake in (["ends"], [f"ends on {devices}"]):
            raise ValueError("no more of it")
        if problem.kind not in ("exact", "real") or problem.workload != "mlp":
            (results / "refused").write_text("it does not train\n")
            continue
        for device, found in enumerate(solved(problem, devices, *(mistake or [""]))):
            sb.write(results / f"device_{device}.safetensors", found)
