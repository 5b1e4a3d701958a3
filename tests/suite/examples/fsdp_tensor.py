"""torchrun --nproc-per-node 4 fsdp_tensor.py [mean|sum|norm]: FSDP2 over tensor parallel, trained for three steps."""
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(16, 4))


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


distributed.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
numbers = torch.Generator().manual_seed(1)
batch = {"x": torch.randn(8, 16, generator=numbers), "y": torch.randn(8, 4, generator=numbers)}
model = make_model()
for block in model[:2]:
    parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = make_optimizer(model.parameters())
x, y = (whole.chunk(2)[mesh["data"].get_local_rank()] for whole in (batch["x"], batch["y"]))
factor = 0.5 if "mean" in sys.argv else 2 if "sum" in sys.argv else 1
for _ in range(3):
    optimizer.zero_grad()
    (factor * loss_of(model, x, y)).backward()
    if "norm" in sys.argv:
        for p in model.parameters():  # as a clipping that each device does by itself
            p.grad.mul_(min(1, 0.1 / p.grad.to_local().norm().item()))
    optimizer.step()

# ----
import shardbook_check as sb
def reference(params, batch):
    one = make_model()
    one.load_state_dict(params)
    loss_of(one, batch["x"], batch["y"]).backward()
    return {name: p.grad for name, p in one.named_parameters()}
case = sb.case(reference, make_model().state_dict(), batch, optimizer=make_optimizer, steps=3)
print(sb.check(model, case, mesh, optimizer=optimizer))
# ----
distributed.destroy_process_group()
