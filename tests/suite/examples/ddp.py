"""torchrun --nproc-per-node 3 ddp.py [mean|own]: DistributedDataParallel, held against one device."""
import sys

import torch
from torch import distributed, nn


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


distributed.init_process_group("gloo")
rank, devices = distributed.get_rank(), distributed.get_world_size()
numbers = torch.Generator().manual_seed(1)
batch = {"x": torch.randn(10, 16, generator=numbers), "y": torch.randn(10, 4, generator=numbers)}
model = nn.parallel.DistributedDataParallel(make_model())
x, y = (whole.tensor_split(devices)[rank] for whole in (batch["x"], batch["y"]))
share = 1 if "own" in sys.argv else len(x) / len(batch["x"]) * (1 if "mean" in sys.argv else devices)
(share * loss_of(model, x, y)).backward()

# ----
import shardbook_check as sb
def reference(params, batch):
    one = make_model()
    one.load_state_dict(params)
    loss_of(one, batch["x"], batch["y"]).backward()
    return {name: p.grad for name, p in one.named_parameters()}
case = sb.case(reference, make_model().state_dict(), batch)
print(sb.check(model, case))
# ----
distributed.destroy_process_group()
