"""PyTorch's side of ./tests/bench: one device of a job, a process with one thread. Needs PyTorch, with Gloo.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are torch.distributed's. MARKS names a file of 8 bytes for each device, all
zero. The process reads tasks from standard input, a line of JSON each: {"call", "bytes", "seconds"} or {"strategy",
"network": [batch, width, hidden], "layers", "is_decoder", "seconds"}. Device 0 answers with the median time in
microseconds. The time of a call is that of the slowest device, from a moment that all share."""
import json
import mmap
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional

torch.set_num_threads(1)
RANK, DEVICES = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with open(os.environ["MARKS"], "r+b") as file:
    marks = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
LEAST = 5  # calls that are measured
LENGTH = 128  # tokens in a row of the decoder's batch


def start_together():
    """Returns on all devices within a microsecond where each has a core: Gloo's barrier would add to short calls."""
    marks[RANK] += 1
    while min(marks) < marks[RANK]:
        if DEVICES > len(os.sched_getaffinity(0)):
            os.sched_yield()


def median_of(call, seconds, is_alone):
    """The median of the slowest device's times, in microseconds."""
    def timed():
        if not is_alone:
            start_together()
        begin = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - begin)

    fastest = torch.tensor(min(timed() for _ in range(3)))
    if not is_alone:  # all devices call equally often
        distributed.all_reduce(fastest, op=distributed.ReduceOp.MAX)
    times = torch.tensor([timed() for _ in range(max(LEAST, min(2000, int(1e6 * seconds / fastest))))])
    if not is_alone:
        distributed.all_reduce(times, op=distributed.ReduceOp.MAX)
    return statistics.median(times.tolist())


def collective(name, size):
    """A call on a tensor of `size` bytes, of which each device has a part, or the whole."""
    whole, part = torch.randn(size // 4), torch.randn(size // 4 // DEVICES or 1)
    gathered, other = torch.empty(DEVICES * len(part)), (RANK + 1) % DEVICES

    def ping():  # from device 0 to device 1, and back
        for sender in (0, 1):
            distributed.send(whole, other) if RANK == sender else distributed.recv(whole, other)

    def to_all():  # fewer numbers than devices cannot be divided evenly
        distributed.all_to_all_single(torch.empty_like(gathered), gathered)

    return {"all_reduce": lambda: distributed.all_reduce(whole),
            "all_gather": lambda: distributed.all_gather_into_tensor(gathered, part),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, gathered),
            "all_to_all": to_all,
            "broadcast": lambda: distributed.broadcast(whole, 0),
            "send, receive": ping}[name]


class Block(nn.Module):
    """A block of Llama's: attention with rotary positions and shared keys, then a gated network."""
    HEAD = 64

    def __init__(self, width, hidden):
        super().__init__()
        heads = max(width // self.HEAD, 2)
        keys = max(heads // 4, 1) * self.HEAD
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value = linear(width, width), linear(width, keys), linear(width, keys)
        self.output, self.gate, self.up = linear(width, width), linear(width, hidden), linear(width, hidden)
        self.down = linear(hidden, width)
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, self.HEAD, 2) / self.HEAD)
        self.cos, self.sin = angles.cos(), angles.sin()

    def turned(self, x):
        """Rotary positions of (batch, heads, LENGTH, HEAD)."""
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)

    def forward(self, x):
        n = self.before(x)
        q, k, v = (t.unflatten(-1, (-1, self.HEAD)).transpose(1, 2)
                   for t in (self.query(n), self.key(n), self.value(n)))
        seen = functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True,
                                                       enable_gqa=True)
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        n = self.between(x)
        return x + self.down(functional.silu(self.gate(n)) * self.up(n))


def network_of(task):
    """The network, and a batch for it."""
    batch, width, hidden = task["network"]
    if not task["is_decoder"]:
        sizes = [(width, hidden) if layer % 2 == 0 else (hidden, width) for layer in range(task["layers"])]
        layers = [each for i, (rows, columns) in enumerate(sizes)
                  for each in ([nn.ReLU()] if i else []) + [nn.Linear(rows, columns, bias=False)]]
        return nn.Sequential(*layers), torch.randn(batch, width)
    model = nn.Sequential(nn.Embedding(8 * width, width), *(Block(width, hidden) for _ in range(task["layers"])),
                          nn.RMSNorm(width), nn.Linear(width, 8 * width, bias=False))
    return model, torch.randint(8 * width, (batch // LENGTH, LENGTH))


def divided(strategy, model, batch):
    """The network on these devices, and this device's part of the batch."""
    if strategy == "single":
        return model, batch
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (DEVICES,))
    if strategy == "tensor":
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        linears = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear)]
        plan = {name: RowwiseParallel() if name.endswith((".output", ".down")) else ColwiseParallel()
                for name, _ in linears}
        if not any(isinstance(each, Block) for each in model):
            plan = {name: (ColwiseParallel, RowwiseParallel)[i % 2]() for i, (name, _) in enumerate(linears)}
        else:
            plan["0"] = RowwiseParallel(input_layouts=Replicate())
        return parallelize_module(model, mesh, plan), batch
    mine = batch.tensor_split(DEVICES)[RANK]
    if strategy == "data":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), mine
    from torch.distributed.fsdp import fully_shard
    for each in model:
        if any(True for _ in each.parameters()):
            fully_shard(each, mesh=mesh)
    return fully_shard(model, mesh=mesh), mine


def step_of(task):
    """Forward, a loss gradient as cheap as a copy, and backward."""
    torch.manual_seed(1)
    model, batch = divided(task["strategy"], *network_of(task))

    def step():
        model.zero_grad()
        out = model(batch)
        out.backward(out.detach().clone())

    return step


def main():
    # Not bound to a core, as ours are: Gloo's own thread would share that core, and its calls take longer.
    if DEVICES > 1:
        distributed.init_process_group("gloo")
    for line in sys.stdin:
        task = json.loads(line)
        call = collective(task["call"], task["bytes"]) if "call" in task else step_of(task)
        median = median_of(call, task["seconds"], DEVICES == 1)
        if RANK == 0:
            print(median / (2 if task.get("call") == "send, receive" else 1), flush=True)
    if DEVICES > 1:
        distributed.destroy_process_group()


main()
