"""A test of a DistributedDataParallel program, as package_test.py lets pytest run it."""
import torch
from torch import nn

import shardbook_check as sb


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


def data():
    numbers = torch.Generator().manual_seed(1)
    return {"x": torch.randn(10, 16, generator=numbers), "y": torch.randn(10, 4, generator=numbers)}


def reference(params, batch):
    one = make_model()
    one.load_state_dict(params)
    ((one(batch["x"]) - batch["y"]) ** 2).mean().backward()
    return {name: p.grad for name, p in one.named_parameters()}


@sb.ranks([3], backend="gloo", seconds=300)
def test_ddp(mesh):
    model = nn.parallel.DistributedDataParallel(make_model())
    batch, devices, rank = data(), mesh.size(), mesh.get_rank()
    for scale in (1, 2):
        model.zero_grad()
        x, y = (of.tensor_split(devices)[rank] for of in (batch["x"], batch["y"]))
        (((model(x) - y) ** 2).sum() * devices * scale / batch["y"].numel() / 2).backward()
    sb.check(model, sb.case(reference, make_model().state_dict(), batch), mesh)


@sb.mutants()
@sb.ranks([2], backend="gloo", seconds=300)
def test_of_the_test(mesh):
    test_ddp.on_one_rank(mesh)


@sb.ranks([2])
@sb.problems("mlp-exact-*", session=True)
def test_all_problems_in_one_session(mesh, problem):
    assert mesh == {"devices": 2} and problem.kind == "exact"


@sb.ranks([1])
@sb.problems("mlp-*", even=True)
def test_even_problems(mesh, problem):
    assert problem.widths[0] % 8 == 0
