#!/usr/bin/env python3
"""PyTorch's pipelining over Gloo, a micro-batch for each row: torch_pipeline.py PROBLEM OUT_DIR DEVICES."""
import json
import sys
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb


def device_program(device, problem, folder, out, n):
    distributed.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=device, world_size=n)
    read = {k: torch.tensor(v.values, dtype=torch.float32) for f in ("params", "batch") for k, v in
            sb.read(folder / problem[f]).items()}
    model, layers = nn.Sequential(), range(*sb.part(problem["layers"], n, device))
    for layer in layers:
        w = read[f"layer_{layer}/weights"]
        if layer % 2 == 1:
            model.append(nn.ReLU())
        model.append(nn.Linear(*w.shape, bias=False))
        model[-1].weight = nn.Parameter(w.T.contiguous())  # PyTorch has (out, in)
    linear = [m for m in model if isinstance(m, nn.Linear)]
    x, is_training = read["input"].requires_grad_(), "target" in read
    wanted = read["target" if is_training else "output_grad"]
    def loss(y, t):
        return ((y - t)**2).sum() / wanted.numel() if is_training else (y * t).sum()
    stage = PipelineStage(model, device, n, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, problem["batch_size"], loss_fn=loss, scale_grads=False)
    adam = partial(torch.optim.Adam, betas=problem["betas"], eps=problem["epsilon"])
    make = adam if problem["kind"] == "adam" else torch.optim.SGD
    optimizer = make(model.parameters(), problem["learning_rate"])
    for _ in range(problem["steps"]):
        optimizer.zero_grad()
        y = schedule.step(*[x] * (device == 0), **({"target": wanted} if device == n - 1 else {}))
        if problem["clip_norm"]:  # the norm is of all stages
            squares = sum((m.weight.grad**2).sum() for m in linear)
            distributed.all_reduce(squares)
            for m in linear:
                m.weight.grad *= min(1, problem["clip_norm"] / (squares.sqrt() + 1e-6))
        optimizer.step()
    result = {f"layer_{layer}/weights": (m.weight if is_training else m.weight.grad).detach().T
              for layer, m in zip(layers, linear)}
    if not is_training:
        result |= {"output": y.detach()} if device == n - 1 else {}
        result |= {"input_grad": x.grad} if device == 0 else {}
    sb.write(out / f"device_{device}.safetensors", result)
    distributed.destroy_process_group()


if __name__ == "__main__":
    problem, n = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[3])
    if problem["workload"] != "mlp" or problem["has_row_weights"] or n > problem["layers"]:
        sys.exit(77)
    folder, out = Path(sys.argv[1]).parent, Path(sys.argv[2])
    torch.multiprocessing.spawn(device_program, (problem, folder, out, n), n)
