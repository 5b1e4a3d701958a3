#!/usr/bin/env python3
"""session.py FOLDER ddp|fsdp: DistributedDataParallel or FSDP2 solves all mlps of `shardbook-check run --session`."""
import sys
from pathlib import Path

import torch
from torch import distributed as dist, nn
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "chapters/suite"))
import shardbook_check as sb


def solve(problem, strategy, rank, world):
    """The results of this process. Both strategies divide the sum over the devices, so the loss is scaled."""
    read = {name: torch.tensor(v, dtype=torch.float32) for of in (problem.params, problem.batch) for name, v in of.items()}
    linear = []
    for layer in range(problem.layers):
        w = read[f"layer_{layer}/weights"]
        linear.append(nn.Linear(*w.shape, bias=False))
        linear[-1].weight = nn.Parameter(w.T.contiguous())  # PyTorch has (out, in)
    model = nn.Sequential(*(m for layer, module in enumerate(linear) for m in [nn.ReLU()] * (layer % 2) + [module]))
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        for module in (*linear, model):
            fully_shard(module, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))
    rows = slice(*sb.part(problem.batch_size, world, rank))
    x, wanted = read["input"][rows].requires_grad_(), read["target" if problem.is_training else "output_grad"]
    counts = read.get("row_weights", torch.ones(problem.batch_size))[:, None]
    lr = problem.learning_rate
    optimizer = torch.optim.Adam(model.parameters(), lr, problem.betas, problem.epsilon) if problem.kind == "adam" else \
        torch.optim.SGD(model.parameters(), lr)
    for _ in range(problem.steps):
        optimizer.zero_grad()
        y = model(x)
        loss = (counts[rows] * (y - wanted[rows])**2).sum() / (counts.sum() * y.shape[1]) if problem.is_training else \
            (y * wanted[rows]).sum()
        (world * loss).backward()
        if problem.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), problem.clip_norm)
        optimizer.step()
    found = {} if problem.is_training else {"output": y.detach(), "input_grad": x.grad / world}
    for layer, module in enumerate(linear):
        w = module.weight if problem.is_training else module.weight.grad
        found[f"layer_{layer}/weights"] = (w.to_local() if strategy == "fsdp" else w).detach().T
    return found


if __name__ == "__main__":
    for problem, results in sb.session(sys.argv[1], backend="gloo"):
        rank = dist.get_rank()
        found = solve(problem, sys.argv[2], rank, dist.get_world_size())
        sb.write(results / f"device_{rank}.safetensors", found)
