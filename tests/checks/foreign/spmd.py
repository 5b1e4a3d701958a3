"""spmd_types (PyPI), which infers types of tensors in a forward pass: on each axis of the mesh a tensor is replicated,
invariant, varying, or a partial sum. Its users write a PyTorch program with its collectives and annotate parameters and
inputs. So these programs are written here, device 0's forward pass on a process group that sends nothing, as its guide says
for Megatron's layers. Rows and weights are those of the program in NumPy, with what is wrong about them; of mistakes in
collectives, ReLU and the loss, MISTAKES says what they are in such a program.

What a program does to gradients is the library's backward pass here, and an optimizer needs none of its types: of mistakes
there it cannot be asked."""
import os
import warnings

import numpy as np
import spmd_types as spmd
import spmd_types.checker
import torch
import torch.distributed as dist
from spmd_types import I, P, R, V
from torch.distributed.device_mesh import init_device_mesh

ROWS_AND_WEIGHTS = (
    "sampler pads", "rest in pieces of 2", "all devices read the rows of device 0", "the rest of the batch dropped",
    "next rank's layer 1", "next rank's odd layers", "slices begin one column early")
MISTAKES = (
    "no reduction", "no reduction, own mean", "no reduction of layer 0", "no reduction in the last step", "summed twice",
    "reduced over tensor", "over all devices", "mean", "mean, divided first", "mean over all", "own means", "sum of own means",
    "divided by N floor(B/N) rows", "labels of the next device's rows", "no relu in layer 0", "rows of the last product reversed",
    "last column of each slice lost", "activations sent as bf16", "output a mean", "output not reduced", "output reduced twice",
    "dx not reduced", "dx of behind not reduced", "dx reduced twice")


class Twin:
    """Device 0 of a program, in PyTorch."""

    def __init__(self, program):
        self.program, self.planted, self.n, self.tensor = program, program.planted, program.data, program.tensor
        rows = program.rows(0)
        of = {name: torch.from_numpy(np.array(t[rows], "f4")) for name, t in program.batch.items() if name != "row_weights"}
        if self.planted == "labels of the next device's rows":
            name = next(name for name in ("target", "output_grad") if name in of)
            order = np.concatenate([program.rows((d + 1) % self.n) for d in range(self.n)])
            of[name] = torch.from_numpy(program.batch[name][order][rows])
        self.batch, self.counts = of, torch.from_numpy(np.array(program.p.row_weights[rows], "f4"))[:, None]
        self.weights = [torch.from_numpy(np.array(w)).requires_grad_() for w in program.w[0, 0]]
        of["input"].requires_grad_()

    def annotate(self):
        for t in (*self.batch.values(), self.counts):
            spmd.assert_type(t, {"data": V, "tensor": I})
        for w in self.weights:
            spmd.assert_type(w, {"data": I, "tensor": V})

    def gathered(self, layer):
        """A layer's weights, whose gradient is added up over data in the backward pass."""
        w, plant = self.weights[layer], self.planted
        if plant == "last column of each slice lost" and layer == 0:
            w = torch.cat([w[:, :-1], 0 * w[:, -1:]], 1)
        if plant == "rows of the last product reversed" and layer + 1 == len(self.weights):
            w = w.flip(0)
        if plant.startswith("no reduction") and (layer == 0 or plant != "no reduction of layer 0"):
            return w
        if plant in ("reduced over tensor", "over all devices"):
            w = spmd.convert(w, "tensor", src=I, dst=R)
        if plant == "reduced over tensor":
            return w
        w = spmd.convert(w, "data", src=I, dst=R)
        return spmd.convert(w, "data", src=I, dst=R) if plant == "summed twice" else w

    def pair(self, x, layer):
        plant = self.planted
        if plant != "dx not reduced" and not (plant == "dx of behind not reduced" and layer):
            x = spmd.convert(x, "tensor", src=I, dst=R)  # backward: a sum over tensor
        if plant == "dx reduced twice":
            x = spmd.convert(x, "tensor", src=I, dst=R)
        h = x @ self.gathered(layer)
        if plant != "no relu in layer 0" or layer:
            h = torch.relu(h)
        y = h @ self.gathered(layer + 1)
        if plant == "activations sent as bf16":
            y = y.bfloat16()
        if plant != "output not reduced":
            y = spmd.all_reduce(spmd.reinterpret(y, "tensor", src=V, dst=P), "tensor", src=P, dst=I)
        if plant == "output reduced twice":
            y = spmd.all_reduce(y, "tensor", src=P, dst=I)
        return y.float() / (self.tensor if plant == "output a mean" else 1)

    def scale(self):
        """What the sum of squared differences of own rows is multiplied by."""
        p, plant = self.program.p, self.planted
        own = {"own means": self.n, "sum of own means": 1}.get(plant)
        size = max(float(self.counts.sum()), 1) * own if own else p.row_weights.sum()
        times = {"mean": 1 / self.n, "mean, divided first": 1 / self.n, "mean over all": 1 / (self.n * self.tensor),
                 "divided by N floor(B/N) rows": p.batch_size / max(p.batch_size // self.n * self.n, 1)}.get(plant, 1)
        return float(times / (size * p.widths[-1]) if "target" in self.batch else times)

    def loss(self):
        """Annotated and typed; a wrong type is an error."""
        self.annotate()
        x = self.batch["input"]
        for layer in range(0, len(self.weights), 2):
            x = self.pair(x, layer)
        if "target" in self.batch:
            own = (self.counts * (x - self.batch["target"]) ** 2).sum()
        else:
            own = (x * self.batch["output_grad"]).sum()
        whole = spmd.all_reduce(spmd.reinterpret(own * self.scale(), "data", src=V, dst=P), "data", src=P, dst=I)
        return spmd.assert_type(whole, {"data": I, "tensor": I})


def says(case):
    if case.planted and case.planted not in ROWS_AND_WEIGHTS + MISTAKES:
        return None
    twin = Twin(case.on(case.of, *case.mesh))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.simplefilter("ignore")
    dist.init_process_group(backend="fake", rank=0, world_size=int(np.prod(case.mesh)))
    try:
        mesh = init_device_mesh("cpu", case.mesh, mesh_dim_names=("data", "tensor"))
        with spmd.set_current_mesh(mesh), spmd.checker.typecheck(local=True):
            twin.loss()
        return False
    except spmd.SpmdTypeError:
        return True
    finally:
        dist.destroy_process_group()
