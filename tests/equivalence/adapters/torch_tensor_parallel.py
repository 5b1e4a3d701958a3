#!/usr/bin/env python3
"""PyTorch's DTensor tensor parallel over Gloo: torch_tensor_parallel.py PROBLEM OUT_DIR DEVICES.
It cannot cut widths that the devices do not divide."""
import json
import sys
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb


def device_program(device, problem, folder, out, n):
    distributed.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=device, world_size=n)
    read = {k: torch.tensor(v.values, dtype=torch.float32) for f in ("params", "batch") for k, v in
            sb.read(folder / problem[f]).items()}
    model, plan = nn.Sequential(), {}
    for layer in range(problem["layers"]):
        w = read[f"layer_{layer}/weights"]
        if layer % 2 == 1:
            model.append(nn.ReLU())
        plan[str(len(model))] = RowwiseParallel() if layer % 2 else ColwiseParallel()
        model.append(nn.Linear(*w.shape, bias=False))
        model[-1].weight = nn.Parameter(w.T.contiguous())  # PyTorch has (out, in)
    parallelize_module(model, distributed.device_mesh.init_device_mesh("cpu", (n,)), plan)
    x, is_training = read["input"].requires_grad_(), "target" in read
    wanted = read["target" if is_training else "output_grad"]
    adam = partial(torch.optim.Adam, betas=problem["betas"], eps=problem["epsilon"])
    make = adam if problem["kind"] == "adam" else torch.optim.SGD
    optimizer = make(model.parameters(), problem["learning_rate"])
    for _ in range(problem["steps"]):
        optimizer.zero_grad()
        y = model(x)
        (((y - wanted)**2).mean() if is_training else (y * wanted).sum()).backward()
        if problem["clip_norm"]:
            nn.utils.clip_grad_norm_(model.parameters(), problem["clip_norm"])
        optimizer.step()
    result = {} if is_training else {"output": y.detach(), "input_grad": x.grad}
    for layer, module in enumerate(m for m in model if isinstance(m, nn.Linear)):
        w = module.weight if is_training else module.weight.grad
        result[f"layer_{layer}/weights"] = w.to_local().detach().T
    sb.write(out / f"device_{device}.safetensors", result)
    distributed.destroy_process_group()


if __name__ == "__main__":
    problem, n = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[3])
    if problem["workload"] != "mlp" or problem["has_row_weights"] or problem["widths"][1] % n:
        sys.exit(77)
    folder, out = Path(sys.argv[1]).parent, Path(sys.argv[2])
    torch.multiprocessing.spawn(device_program, (problem, folder, out, n), n)
