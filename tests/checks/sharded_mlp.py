#!/usr/bin/python3
"""Sharded mlps in NumPy, all devices in one process: data parallel (its state whole, or in flat pieces), tensor parallel, and
both on a mesh; and the mistakes with which the first rules of causes were made. Nothing of shardbook_check but part() is
used here, so what a cause says of these programs is not what made it."""
import itertools
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chapters/suite"))
from shardbook_check import Letter, Stored, part
from shardbook_check.layouts import Mesh

DATA, TENSOR, MESH, BOTH = [(2, 1), (3, 1), (4, 1)], [(1, 2), (1, 3), (1, 4)], [(2, 2), (2, 3), (3, 2)], [(2, 1), (1, 3), (2, 2)]
OWN = "own rows"
NO_SUM = r"left out|addend .* alone|different copies|rows? .*alone|[12/34]+ times the addend"
# a mistake, the meshes on which it is made, and what is true of it
TABLE = [
    ("mean", DATA, r"a mean where a sum is meant"),
    ("mean", MESH, r"a mean over data"),
    ("mean, divided first", DATA, r"a mean where a sum is meant"),
    ("mean over all", MESH, r"a mean where a sum is meant"),
    ("summed twice", DATA, r"times it: summed|times it in every element: summed|a wrong scale"),
    ("summed twice", MESH, r"summed over data"),
    ("no reduction", DATA, NO_SUM),
    ("no reduction", MESH, NO_SUM),
    ("no reduction, own mean", DATA, NO_SUM),
    ("no reduction of layer 0", DATA, NO_SUM),
    ("no reduction in the last step", DATA, r"last step with|" + NO_SUM),
    ("the last device lost", DATA, r"addend is missing|without the rows? |addend of rows? .* missing|addend alone|rows? .* alone|addend of device 0's"),
    ("rest in pieces of 2", DATA, r"pieces of 2 leave over|micro-batch|without rows?|is missing|0 in every element|row \d of the batch alone|rows? [\d, and]+ never"),
    ("sampler pads", DATA, r"a sampler that pads|in the sum twice|counted twice"),
    ("own means", DATA, OWN),
    ("sum of own means", DATA, OWN + "|summed where every device"),  # the same, where the devices divide the rows
    ("own means", MESH, OWN),
    ("bf16 reduction", DATA, r"bfloat16|16 bits"),
    ("one step late", DATA, r"one step late"),
    ("one step late", TENSOR, r"one step late"),
    ("no zero_grad", DATA, r"not set to 0"),
    ("no last step", DATA, r"the step before"),
    ("not clipped", BOTH, r"not clipped"),
    ("no bias correction", BOTH, r"bias correction"),
    ("norm of own slices", TENSOR, r"own slices|norm of a device's"),
    ("norm of own slices", MESH, r"own slices|norm over data|norm of a device's"),
    ("norm over all, replicas counted", MESH, r"counts each gradient \d times"),
    ("norm of own rows", DATA, r"own slices|norm of"),
    ("replicas drift", DATA, r"different copies"),
    ("next rank's layer 1", TENSOR, r"another device's slice|device \d's slice"),
    ("next rank's layer 1", [(2, 2)], r"another device's slice|device \d's slice"),
    ("next rank's odd layers", TENSOR, r"another device's slice|device \d's slice"),
    ("shards under the next rank's number", TENSOR, r"device \d's slice|another device's slice|next device's hidden"),
    ("mask forgotten", BOTH, r"ReLU's mask"),
    ("no relu in layer 0", BOTH, r"ReLU"),
    ("output a mean", TENSOR, r"where a sum is meant"),
    ("dx not reduced", TENSOR, r"a reduction left out|not reduced"),
    ("dx not reduced", MESH, r"a reduction left out|not reduced"),
    ("dx of behind not reduced", TENSOR, r"not reduced"),
    ("dx of behind not reduced", MESH, r"not reduced"),
    ("dx reduced twice", TENSOR, r"summed where every device has the sum|a wrong scale"),
    ("over all devices", [(2, 2)], r"slices of different places"),
]
TRAINING = ("sampler pads", "one step late")  # mistakes that gradients alone do not have


class Mlp:
    """A mesh of devices (data, tensor): rows of the batch over data; columns of even layers, rows of odd ones over tensor.
    `planted` is the name of a mistake, or ""."""

    def __init__(self, problem, data, tensor, planted=""):
        if planted.startswith("next rank's") and any(width % tensor for width in problem.widths[1::2]):
            raise ValueError("slices of other sizes do not fit")
        self.p, self.data, self.tensor, self.planted = problem, data, tensor, planted
        self.f = lambda t: np.asarray(t, "f4")
        self.batch = {name: self.f(t) for name, t in problem.batch.items()}
        self.names = [f"layer_{layer}/weights" for layer in range(problem.layers)]
        self.w = {device: self.loaded(device) for device in self.devices()}

    def devices(self):
        return list(itertools.product(range(self.data), range(self.tensor)))

    def slice_of(self, layer, t):
        width = self.p.widths[layer + 1 if layer % 2 == 0 else layer]
        cut = slice(*part(width, self.tensor, t))
        return (slice(None), cut) if layer % 2 == 0 else (cut, slice(None))

    def loaded(self, device):
        found = []
        for layer, name in enumerate(self.names):
            t = device[1]
            if self.planted == "next rank's odd layers" and layer % 2 or self.planted == "next rank's layer 1" and layer == 1:
                t = (t + 1) % self.tensor
            found.append(self.f(self.p.params[name])[self.slice_of(layer, t)])
        return found

    def rows(self, d):
        if self.planted == "sampler pads":
            return np.array([(d + k * self.data) % self.p.batch_size
                             for k in range(-(-self.p.batch_size // self.data))])
        rows = np.arange(*part(self.p.batch_size, self.data, d))
        if self.planted == "rest in pieces of 2":
            rows = rows[:len(rows) // 2 * 2]
        return rows

    # ---- One forward and backward pass ------------------------------------------------------------------
    def summed(self, of, axis, skip=False):
        """{device: sum of the values of the devices along the axis}."""
        if skip:
            return of
        return {device: sum(of[other] for other in of if other[1 - axis] == device[1 - axis]) for device in of}

    def step(self):
        x = {d: self.batch["input"][self.rows(d[0])] for d in self.devices()}
        w, kept = self.w, []
        for layer in range(0, len(self.names), 2):
            before = {d: x[d] @ w[d][layer] for d in x}
            h = {d: np.maximum(t, 0) for d, t in before.items()}
            if self.planted == "no relu in layer 0" and layer == 0:
                h = before
            kept.append((x, h, before))
            x = self.summed({d: h[d] @ w[d][layer + 1] for d in h}, 1)
            if self.planted == "output a mean":
                x = {d: t / self.f(self.tensor) for d, t in x.items()}
        y = x
        if "target" in self.batch:
            counts = {d: self.f(self.p.row_weights[self.rows(d[0])])[:, None] for d in y}
            rows = {d: max(counts[d].sum(), 1) for d in y}
            size = self.p.row_weights.sum() * self.p.widths[-1]
            own = self.planted in ("own means", "sum of own means")
            scale = {d: 2 / (rows[d] * self.p.widths[-1] * (self.data if self.planted == "own means" else 1)) if own
                     else 2 / size for d in y}
            dy = {d: self.f(scale[d]) * counts[d] * (y[d] - self.batch["target"][self.rows(d[0])]) for d in y}
        else:
            dy = {d: self.batch["output_grad"][self.rows(d[0])] for d in y}
        g = {d: [None] * len(self.names) for d in y}
        for layer in reversed(range(0, len(self.names), 2)):
            x, h, before = kept[layer // 2]
            dh = {}
            for d in y:
                g[d][layer + 1] = h[d].T @ dy[d]
                mask = before[d] > 0 if self.planted != "mask forgotten" else 1
                dh[d] = (dy[d] @ w[d][layer + 1].T) * mask
                g[d][layer] = x[d].T @ dh[d]
            skip = self.planted == "dx not reduced" or self.planted == "dx of behind not reduced" and layer > 0
            dy = self.summed({d: dh[d] @ w[d][layer].T for d in dh}, 1, skip)
            if self.planted == "dx reduced twice":
                dy = self.summed(dy, 1)
        return y, dy, g

    # ---- Gradients over data ----------------------------------------------------------------------------
    def reduced(self, g, step):
        plant, n = self.planted, self.data
        last = step == self.p.steps
        found = {d: [] for d in g}
        for layer in range(len(self.names)):
            of = {d: g[d][layer] for d in g}
            if plant == "mean, divided first":
                of = {d: t / self.f(n) for d, t in of.items()}
            if plant == "bf16 reduction":
                of = {d: bf16(t) for d, t in of.items()}
            skip = plant in ("no reduction", "no reduction, own mean") or plant == "no reduction in the last step" and last \
                or plant == "no reduction of layer 0" and layer == 0
            if plant == "the last device lost":
                of = {d: t * (d[0] + 1 < n) for d, t in of.items()}
            if plant == "over all devices":
                total = sum(of.values()) if len({t.shape for t in of.values()}) == 1 else None
                of = {d: total for d in of} if total is not None else self.summed(of, 0)
            else:
                of = self.summed(of, 0, skip)
            times = {"mean": 1 / n, "summed twice": n, "no reduction, own mean": n,
                     "mean over all": 1 / (n * self.tensor)}.get(plant, 1)
            for d in of:
                t = of[d] * self.f(times)
                found[d].append(bf16(t) if plant == "bf16 reduction" else t)
        return found

    def clipped(self, g):
        most = self.p.clip_norm
        if not most or self.planted == "not clipped":
            return g
        squares = {d: sum(float((t.astype(float)**2).sum()) for t in g[d]) for d in g}
        if self.planted == "norm of own slices":
            norms = squares
        elif self.planted == "norm over all, replicas counted":
            norms = {d: sum(squares.values()) for d in squares}
        else:
            norms = self.summed(squares, 1)
        return {d: [t * self.f(min(1, most / (math.sqrt(norms[d]) + 1e-6))) for t in g[d]] for d in g}

    def zero_clipped(self, g):
        """Of rows that data cuts: each has a norm of its own."""
        rows = {d: [t[slice(*part(len(t), self.data, d[0]))] for t in g[d]] for d in g}
        squares = {d: sum(float((t.astype(float)**2).sum()) for t in rows[d]) for d in g}
        found = {d: [t.copy() for t in g[d]] for d in g}
        for d in g:
            for other in g:
                factor = min(1, self.p.clip_norm / (math.sqrt(squares[other]) + 1e-6))
                for t, mine in zip(found[d], g[d]):
                    here = slice(*part(len(t), self.data, other[0]))
                    t[here] = mine[here] * self.f(factor)
        return found

    def train(self):
        moments, late, total = {}, None, None
        for step in range(1, self.p.steps + 1):
            y, dx, g = self.step()
            g = self.reduced(g, step)
            if self.planted == "one step late":
                g, late = late or {d: [0 * t for t in of] for d, of in g.items()}, g
            if self.planted == "no zero_grad":
                total = {d: [a + b for a, b in zip(total[d], g[d])] for d in g} if total else g
                g = total
            if self.planted == "norm of own rows" and self.p.clip_norm:
                g = self.zero_clipped(g)
            else:
                g = self.clipped(g)
            if self.p.is_training and not (self.planted == "no last step" and step == self.p.steps):
                for d in g:
                    self.w[d] = [self.updated(d, i, w, t, step, moments) for i, (w, t) in enumerate(zip(self.w[d], g[d]))]
                    if self.planted == "replicas drift":
                        self.w[d] = [w + self.f(1e-3 * d[0] * np.sin(np.arange(w.size)).reshape(w.shape)) for w in self.w[d]]
        return y, dx, g

    def updated(self, d, i, w, g, step, moments):
        rate, (b1, b2) = self.p.learning_rate, self.p.betas
        if self.p.kind == "sgd":
            return w - self.f(rate) * g
        m, v = moments.get((d, i), (0 * g, 0 * g))
        m, v = moments[d, i] = self.f(b1) * m + self.f(1 - b1) * g, self.f(b2) * v + self.f(1 - b2) * g * g
        c1, c2 = (1, 1) if self.planted == "no bias correction" else (1 - b1**step, 1 - b2**step)
        return w - self.f(rate) * (m / self.f(c1)) / (np.sqrt(v / self.f(c2)) + self.f(self.p.epsilon))

    def pieces(self):
        """(pieces, layout) of check_pieces."""
        y, dx, g = self.train()
        mesh = Mesh((self.data, self.tensor))
        mesh.names = ("data", "tensor")
        whole, rows = Letter("R"), Letter("S", 0)
        letters = {name: (whole, Letter("S", 1 - layer % 2)) for layer, name in enumerate(self.names)}
        pieces = []
        for d in self.devices():
            of = self.w[d] if self.p.is_training else g[d]
            mine = dict(zip(self.names, of))
            if not self.p.is_training:
                mine |= {"output": y[d], "input_grad": dx[d]}
            pieces.append({n: Stored(np.asarray(t, float), "F32") for n, t in mine.items()})
        if self.planted == "shards under the next rank's number":
            pieces = pieces[1:] + pieces[:1]
        return pieces, (mesh, {**letters, "output": (rows, whole), "input_grad": (rows, whole)})


def bf16(t):
    bits = np.ascontiguousarray(t, "f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype("u4").view("f4")


if __name__ == "__main__":
    from judging import measure_mlps
    measure_mlps(TABLE, Mlp, TRAINING)
