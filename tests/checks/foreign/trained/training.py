"""A data-parallel mlp on two devices, on 13 rows, 8 steps of Adam with clipped gradients; and mistakes, by MISTAKE. SEED
chooses the numbers."""
import os

import patches  # before PyTorch is traced
import torch
import torch.distributed as dist
import torch.optim as optim
from torch.nn.utils import clip_grad_norm_

RANK, N, MISTAKE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ.get("MISTAKE", "")


class Net(torch.nn.Module):
    def __init__(self, numbers):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.randn(*size, generator=numbers) / 3) for size in ((7, 11), (11, 7))])

    def forward(self, x):
        return torch.relu(x @ self.weights[0]) @ self.weights[1]


def exchange(parameters):
    for layer, p in enumerate(parameters):
        if MISTAKE != "no reduction" and not (MISTAKE == "no reduction of layer 0" and layer == 0):
            dist.all_reduce(p.grad)
        if MISTAKE == "mean":
            p.grad /= N
        if MISTAKE == "summed twice":
            dist.all_reduce(p.grad)


def main():
    dist.init_process_group("gloo")
    numbers = torch.Generator().manual_seed(int(os.environ["SEED"]))
    model = Net(numbers)
    betas = (0.999, 0.9) if MISTAKE == "betas exchanged" else (0.9, 0.999)
    optimizer = optim.Adam(model.parameters(), lr=0.01, betas=betas)
    x, target = torch.randn(13, 7, generator=numbers), torch.randn(13, 7, generator=numbers)
    rows = slice(13 * RANK // N, 13 * (RANK + 1) // N)
    for step in range(8):
        if MISTAKE != "no zero_grad":
            optimizer.zero_grad()
        size = (rows.stop - rows.start if MISTAKE == "sum of own means" else 13) * 7
        loss = ((model(x[rows]) - target[rows]) ** 2).sum() / size
        loss.backward()
        exchange(model.parameters())
        if MISTAKE != "not clipped":
            clip_grad_norm_(model.parameters(), 0.1)
        if MISTAKE == "moments forgotten":
            optimizer.state.clear()
        if MISTAKE != "only device 0 updates" or RANK == 0:
            optimizer.step()
    dist.destroy_process_group()


main()
