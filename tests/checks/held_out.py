#!/usr/bin/python3
"""Wrong versions of sharded mlps, written after the first rules of causes; the rules of simulated programs were made with
them. What is true of each stands beside it. held_out.py prints how often the true cause is first."""
import numpy as np

from sharded_mlp import Mlp, bf16
from judging import measure_mlps

DATA, TENSOR, MESH = [(2, 1), (3, 1), (4, 1)], [(1, 2), (1, 3), (1, 4)], [(2, 2), (3, 2)]
SCALE, ROWS = r"times it|every gradient times|/\d+ of it|a wrong scale|wrong mean|batch's", r"rows?|sampler|padding|micro-batch"
# a mistake, the meshes on which it is made, what is true of it
TABLE = [
    ("divided by N floor(B/N) rows", [(3, 1), (4, 1)], SCALE + "|" + ROWS),
    ("own addend added once more", DATA, r"in (the|its) sum twice|counted twice|times"),
    ("device 0 left out of the sum", DATA, r"missing|alone|without"),
    ("labels of the next device's rows", [(2, 1), (4, 1)], r"labels|other rows|order of rows|target"),
    ("maximum for the sum", DATA, r"maxim|left out|addend"),
    ("weights averaged, not gradients", DATA, r"means? over|mean of|left out|averaged|own rows|a mean where a sum"),
    ("rate times N", DATA, r"times it|a wrong scale|rate"),
    ("clipped before the sum", DATA, r"before|own|each device"),
    ("norm without the last layer", DATA, r"norm"),
    ("norm of layer by layer", [(2, 1), (1, 2)], r"norm of|each (layer|parameter)|layers alone"),
    ("rows of the last product reversed", TENSOR, r"order|another device's slice|device \d's slice|place"),
    ("activations sent as bf16", TENSOR, r"bfloat16|16 bits"),
    ("output not reduced", TENSOR, r"left out|not reduced|addend|alone"),
    ("output reduced twice", TENSOR, r"times it|summed where every"),
    ("slices begin one column early", [(1, 2), (1, 3)], r"slice|columns?|range|further|hidden units on every"),
    ("last column of each slice lost", TENSOR, r"missing|columns?|left out|0 in every|slice|hidden unit"),
    ("only device 0 updates", DATA, r"different copies|not updated|never updated|only device 0|last step"),
    ("all devices read the rows of device 0", [(2, 1), (4, 1)], r"rows? .*(alone|missing|twice|times|never)|0's rows on|own rows|addend|sampler"),
    ("the rest of the batch dropped", [(3, 1), (4, 1)], r"rows?|missing|drop"),
    ("reduced over tensor", MESH, r"over data|left out|slices of different places|wrong group"),
    ("betas exchanged", [(2, 1), (1, 2)], r"beta"),
    ("bias corrected by the step before", [(2, 1), (1, 2)], r"bias correction"),
    ("moments forgotten", [(2, 1), (1, 2)], r"state|moment"),
    ("gradients of layer 0 for layer 1's sign", [(2, 1), (1, 2)], r"-1 times|sign|times -1"),
]


class HeldOut(Mlp):
    def slice_of(self, layer, t):
        axis = 1 - layer % 2
        cut = super().slice_of(layer, t)[axis]
        if self.planted == "slices begin one column early" and cut.start:
            cut = slice(cut.start - 1, cut.stop - 1)
        return (slice(None), cut) if axis else (cut, slice(None))

    def rows(self, d):
        most, n = self.p.batch_size, self.data
        if self.planted == "all devices read the rows of device 0":
            return super().rows(0)
        if self.planted == "the rest of the batch dropped":
            return np.arange(d * (most // n), (d + 1) * (most // n))
        return super().rows(d)

    def summed(self, of, axis, skip=False):
        plant = self.planted
        if axis == 1 and not skip:
            if plant == "output not reduced" and self.is_forward:
                return of
            if plant == "output reduced twice" and self.is_forward:
                return super().summed(super().summed(of, 1), 1)
            if plant == "activations sent as bf16":
                return {d: bf16(t) for d, t in super().summed({d: bf16(t) for d, t in of.items()}, 1).items()} \
                    if all(isinstance(t, np.ndarray) for t in of.values()) else super().summed(of, 1)
        return super().summed(of, axis, skip)

    def step(self):
        w, target = self.w, self.batch.get("target")
        if self.planted == "rows of the last product reversed":
            self.w = {d: [*of[:-1], of[-1][::-1]] for d, of in w.items()}
        if self.planted == "last column of each slice lost":
            self.w = {d: [np.concatenate([of[0][:, :-1], 0 * of[0][:, -1:]], 1), *of[1:]] for d, of in w.items()}
        other = "target" if target is not None else "output_grad"
        kept = self.batch[other]
        if self.planted == "labels of the next device's rows":
            order = np.concatenate([self.rows((d + 1) % self.data) for d in range(self.data)])
            self.batch[other] = kept[order]
        self.is_forward = True
        found = self.step_of_both()
        self.batch[other], self.w = kept, w
        return found

    def step_of_both(self):
        """Forward sums come first: as many as there are pairs of layers."""
        count, whole = len(self.names) // 2, self.summed
        def counting(of, axis, skip=False):
            result = whole(of, axis, skip)
            self.sums += axis == 1
            self.is_forward = self.sums < count
            return result
        self.sums, self.summed = 0, counting
        try:
            return super().step()
        finally:
            del self.summed

    def reduced(self, g, step):
        plant, n = self.planted, self.data
        self.is_forward = False
        if plant == "clipped before the sum":
            g = self.clipped(g)
        if plant == "device 0 left out of the sum":
            g = {d: [t * np.float32(d[0] > 0) for t in of] for d, of in g.items()}
        if plant == "reduced over tensor":
            same = {t.shape for of in g.values() for t in of[:1]}
            return {d: [self.summed({e: g[e][i] for e in g}, 1)[d] for i in range(len(self.names))] for d in g} \
                if len(same) == 1 else g
        if plant == "maximum for the sum":
            return {d: [np.maximum.reduce([g[e][i] for e in g if e[1] == d[1]]) for i in range(len(self.names))] for d in g}
        if plant == "weights averaged, not gradients":
            return g
        found = super().reduced(g, step)
        times = {"divided by N floor(B/N) rows": self.p.batch_size / max(self.p.batch_size // n * n, 1),
                 "rate times N": n if self.p.is_training else 1}.get(plant, 1)
        found = {d: [t * np.float32(times) for t in of] for d, of in found.items()}
        if plant == "own addend added once more":
            found = {d: [a + b for a, b in zip(of, g[d])] for d, of in found.items()}
        if plant == "gradients of layer 0 for layer 1's sign":
            found = {d: [of[0], -of[1], *of[2:]] for d, of in found.items()}
        return found

    def clipped(self, g):
        most = self.p.clip_norm
        if not most or self.planted not in ("norm without the last layer", "norm of layer by layer"):
            return super().clipped(g)
        squares = {d: [float((t.astype(float)**2).sum()) for t in of] for d, of in g.items()}
        each = [self.summed({d: squares[d][i] for d in g}, 1) for i in range(len(self.names))]
        def factor(d, i):
            total = each[i][d] if self.planted == "norm of layer by layer" else sum(of[d] for of in each[:-1])
            return np.float32(min(1, most / (np.sqrt(total) + 1e-6)))
        return {d: [t * factor(d, i) for i, t in enumerate(of)] for d, of in g.items()}

    def updated(self, d, i, w, g, step, moments):
        plant = self.planted
        if plant == "only device 0 updates" and d[0]:
            return w
        if plant == "moments forgotten":
            moments = {}
        if plant == "bias corrected by the step before":
            step = max(1, step - 1)
        if plant == "betas exchanged" and self.p.kind == "adam":
            (b1, b2), p = self.p.betas, self.p
            self.p = self.p.__class__(**{**vars_of(p), "betas": (b2, b1)})
            result = super().updated(d, i, w, g, step, moments)
            self.p = p
            return result
        return super().updated(d, i, w, g, step, moments)

    def train(self):
        if self.planted != "weights averaged, not gradients" or not self.p.is_training:
            return super().train()
        found = super().train()  # each device its own way, and an average at the end
        for t in range(self.tensor):
            mine = [d for d in self.w if d[1] == t]
            mean = [sum(self.w[d][i] for d in mine) / np.float32(self.data) for i in range(len(self.names))]
            for d in mine:
                self.w[d] = mean
        return found


def vars_of(problem):
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__}


TRAINING = ("weights averaged, not gradients",)  # mistakes that gradients alone do not have
if __name__ == "__main__":
    measure_mlps(TABLE, HeldOut, TRAINING)
