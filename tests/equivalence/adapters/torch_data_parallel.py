#!/usr/bin/env python3
"""PyTorch's data parallel over Gloo: torch_data_parallel.py ddp|fsdp PROBLEM OUT_DIR DEVICES. fsdp: FSDP2.
Both average gradients over the devices. The loss of a device's rows is a part of a sum, so it is scaled."""
import json
import sys
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb


def device_program(device, strategy, problem, folder, out, n):
    distributed.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=device, world_size=n)
    read = {k: torch.tensor(v.values, dtype=torch.float32) for f in ("params", "batch") for k, v in
            sb.read(folder / problem[f]).items()}
    linear = []
    for layer in range(problem["layers"]):
        w = read[f"layer_{layer}/weights"]
        linear.append(nn.Linear(*w.shape, bias=False))
        linear[-1].weight = nn.Parameter(w.T.contiguous())  # PyTorch has (out, in)
    modules = [m for layer, module in enumerate(linear) for m in [nn.ReLU()] * (layer % 2) + [module]]
    model = nn.Sequential(*modules)
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        for module in (*linear, model):
            fully_shard(module, mesh=distributed.device_mesh.init_device_mesh("cpu", (n,)))
    rows = slice(*sb.part(problem["batch_size"], n, device))
    x, is_training = read["input"][rows].requires_grad_(), "target" in read
    wanted = read["target" if is_training else "output_grad"]
    counts = read.get("row_weights", torch.ones(problem["batch_size"]))[:, None]
    adam = partial(torch.optim.Adam, betas=problem["betas"], eps=problem["epsilon"])
    make = adam if problem["kind"] == "adam" else torch.optim.SGD
    optimizer = make(model.parameters(), problem["learning_rate"])
    for _ in range(problem["steps"]):
        optimizer.zero_grad()
        y = model(x)
        loss = (counts[rows] * (y - wanted[rows])**2).sum() / (counts.sum() * y.shape[1]) if is_training else \
            (y * wanted[rows]).sum()
        (n * loss).backward()
        if problem["clip_norm"]:
            nn.utils.clip_grad_norm_(model.parameters(), problem["clip_norm"])
        optimizer.step()
    result = {} if is_training else {"output": y.detach(), "input_grad": x.grad / n}
    for layer, module in enumerate(linear):
        w = module.weight if is_training else module.weight.grad
        result[f"layer_{layer}/weights"] = (w.to_local() if strategy == "fsdp" else w).detach().T
    sb.write(out / f"device_{device}.safetensors", result)
    distributed.destroy_process_group()


if __name__ == "__main__":
    strategy, problem, n = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[4])
    if problem["workload"] != "mlp":
        sys.exit(77)
    folder, out = Path(sys.argv[2]).parent, Path(sys.argv[3])
    torch.multiprocessing.spawn(device_program, (strategy, problem, folder, out, n), n)
