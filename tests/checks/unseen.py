#!/usr/bin/python3
"""Wrong versions of sharded mlps that people have reported. They were written before the rules of simulated programs, with
what is true of each, and judged when these stood; later rules, and two of these words, were made with them."""
import numpy as np

from held_out import HeldOut
from judging import measure_mlps
from sharded_mlp import bf16
from shardbook_check import part

DATA, TENSOR, MESH, BOTH = [(2, 1), (3, 1), (4, 1)], [(1, 2), (1, 3), (1, 4)], [(2, 2), (2, 3), (3, 2)], [(2, 1), (1, 2)]
SOME = [(2, 1), (3, 1)]
# a mistake, the meshes on which it is made, what is true of it
TABLE = [
    ("a mean of each micro-batch of 2", SOME, r"micro-batch|pieces of 2|own rows|mean of"),  # transformers#34242
    ("divided by the micro-batches so far", SOME, r"micro-batch|rows? .*(twice|more)"),  # nanoGPT#605
    ("last step divided by a whole window", BOTH, r"last step.*(1/2|0\.5|half)"),  # transformers#38837
    ("layer 0 not in the optimizer", BOTH, r"not updated|never updated|unchanged|first weights"),
    ("last bucket never reduced", DATA, r"left out|not reduced|bucket|addend"),
    ("weights of device 0 not broadcast", SOME, r"weights of|first weights|begin|missing|others' addends"),  # torchtitan#1777
    ("slice 0 loaded on every device", [(1, 2), (1, 4), (2, 2)], r"slice|on every device"),
    ("reduced in pairs", [(4, 1), (6, 1)], r"left out|missing|alone|pairs|groups|without the rows"),  # Megatron-LM#7186
    ("weight decay left on", BOTH, r"decay"),
    ("epsilon of another default", BOTH, r"epsilon"),
    ("step counted for each parameter", BOTH, r"bias correction|count"),
    ("clipped by value", BOTH, r"clipp|value"),
    ("norms added, not squares", [(1, 2), (1, 3), (2, 2)], r"norm"),  # pytorch#159856, fastmoe#65
    ("root of the norm forgotten", BOTH, r"norm"),
    ("devices numbered along the other axis", MESH, r"order|slice|axis|axes|place"),
    ("rows strided, labels contiguous", DATA, r"label|order|other rows|target"),
    ("gather's backward adds up", TENSOR, r"times it|summed|a wrong scale"),
    ("gradients sent as float16", DATA, r"16 bits|float16"),
    ("reduced before the last micro-batch", SOME, r"micro-batch|not reduced|left out"),  # InfiniTrain#213
    ("zero_grad in every second step", BOTH, r"set to 0|added up"),
    ("reduced to device 0 alone", SOME, r"left out|not reduced|addend"),
    ("flat pieces gathered one place further", DATA, r"order|place|further|slice|piece"),
    ("layer 1 reshaped for transposed", SOME, r"transpos|reshap|order of|other weights"),
    ("weights kept in bfloat16", BOTH, r"16 bits|bfloat16"),
    ("clipped before unscaled", BOTH, r"norm|clipped"),  # lightning#9599
]
TRAINING = ("a mean of each micro-batch of 2", "last step divided by a whole window", "zero_grad in every second step")


class Unseen(HeldOut):
    def __init__(self, problem, data, tensor, planted=""):
        if planted == "slice 0 loaded on every device" and any(w % tensor for w in problem.widths[1::2]):
            raise ValueError("slices of other sizes do not fit")
        super().__init__(problem, data, tensor, planted)

    def loaded(self, device):
        plant = self.planted
        found = super().loaded((device[0], 0) if plant == "slice 0 loaded on every device" else device)
        if plant == "weights of device 0 not broadcast" and device[0]:
            found = [0 * w for w in found]
        if plant == "layer 1 reshaped for transposed":
            found[1] = np.ascontiguousarray(found[1].T).reshape(found[1].shape)
        return found

    def contiguous(self, d):
        return np.arange(*part(self.p.batch_size, self.data, d))

    def rows(self, d):
        if self.planted == "rows strided, labels contiguous":
            return np.arange(d, self.p.batch_size, self.data)
        return super().rows(d)

    def factors(self):
        """How often each row of the batch counts, beside its weight."""
        found = np.ones(self.p.batch_size)
        for d in range(self.data):
            rows = self.contiguous(d)
            if self.planted == "divided by the micro-batches so far":
                for k in range(3):
                    found[rows[slice(*part(len(rows), 3, k))]] = 3 / (k + 1)
            if self.planted == "a mean of each micro-batch of 2":
                weights, pieces = self.p.row_weights, [rows[k:k + 2] for k in range(0, len(rows), 2)]
                for of in pieces:
                    found[of] = weights.sum() / (self.data * len(pieces) * max(weights[of].sum(), 1))
        return found

    def with_factors(self, factors):
        problem, batch = self.p, self.batch
        if "target" in batch:
            self.p = problem.__class__(**{**{name: getattr(problem, name) for name in problem.__dataclass_fields__},
                                          "has_row_weights": True})
            weights = problem.row_weights * factors
            self.p.__dict__.update(params=problem.params, batch={**problem.batch, "row_weights": weights})
            times = np.float32(weights.sum() / problem.row_weights.sum())
        else:
            times, self.batch = 1, {**batch, "output_grad": self.f(batch["output_grad"] * factors[:, None])}
        y, dx, g = super().step()
        self.p, self.batch = problem, batch
        return y, {d: t * times for d, t in dx.items()}, {d: [t * times for t in of] for d, of in g.items()}

    def step(self):
        plant = self.planted
        if plant in ("a mean of each micro-batch of 2", "divided by the micro-batches so far"):
            return self.with_factors(self.factors())
        if plant == "reduced before the last micro-batch":
            first = np.concatenate([(np.arange(len(rows)) < (len(rows) + 1) // 2) * 1.0
                                    for rows in map(self.contiguous, range(self.data))])
            self.first = self.with_factors(first)[2]
        if plant == "rows strided, labels contiguous":
            name = "target" if "target" in self.batch else "output_grad"
            kept, self.batch[name] = self.batch[name], self.batch[name].copy()
            for d in range(self.data):
                self.batch[name][self.rows(d)] = kept[self.contiguous(d)]
            found = super().step()
            self.batch[name] = kept
            return found
        y, dx, g = super().step()
        if plant == "gather's backward adds up":
            n, blocks = np.float32(self.tensor), len(self.names) // 2
            dx = {d: t * n**blocks for d, t in dx.items()}
            g = {d: [t * n**(blocks - 1 - i // 2 + (i % 2 == 0)) for i, t in enumerate(of)] for d, of in g.items()}
        return y, dx, g

    def reduced(self, g, step):
        plant, count = self.planted, range(len(self.names))
        if plant == "reduced before the last micro-batch":
            total = super().reduced(self.first, step)
            return {d: [total[d][i] + g[d][i] - self.first[d][i] for i in count] for d in g}
        if plant == "reduced in pairs":
            return {d: [sum(g[e][i] for e in g if e[0] // 2 == d[0] // 2 and e[1] == d[1]) for i in count] for d in g}
        if plant == "gradients sent as float16":
            half = lambda t: t.astype("f2").astype("f4")
            found = super().reduced({d: [half(t) for t in of] for d, of in g.items()}, step)
            return {d: [half(t) for t in of] for d, of in found.items()}
        found = super().reduced(g, step)
        if plant == "reduced to device 0 alone":
            found = {d: g[d] if d[0] else of for d, of in found.items()}
        if plant == "last step divided by a whole window" and step == self.p.steps and self.p.is_training:
            found = {d: [t / 2 for t in of] for d, of in found.items()}
        if plant == "zero_grad in every second step" and self.p.is_training:
            before = getattr(self, "before", None)
            found = {d: [a + b for a, b in zip(of, before[d])] for d, of in found.items()} if step % 2 == 0 else found
            self.before = found
        if plant == "last bucket never reduced":  # buckets of 64 elements, from the last layer to the first
            for d in found:
                flat, own = (np.concatenate([of[i].reshape(-1) for i in reversed(count)]) for of in (found[d], g[d]))
                rest = len(flat) // 64 * 64
                flat[rest:] = own[rest:]
                found[d] = self.unflattened(flat, found[d], reversed(count))
        if plant == "flat pieces gathered one place further":
            for d in found:
                flat = np.concatenate([t.reshape(-1) for t in found[d]])
                length = -(-len(flat) // self.data)
                flat = np.roll(np.concatenate([flat, np.zeros(length * self.data - len(flat), "f4")]), length)
                found[d] = self.unflattened(flat, found[d], count)
        return found

    @staticmethod
    def unflattened(flat, like, order):
        found, begin = list(like), 0
        for i in order:
            found[i] = flat[begin:begin + like[i].size].reshape(like[i].shape)
            begin += like[i].size
        return found

    def clipped(self, g):
        most, plant = self.p.clip_norm, self.planted
        if not most or plant not in ("clipped by value", "norms added, not squares", "root of the norm forgotten",
                                     "clipped before unscaled"):
            return super().clipped(g)
        if plant == "clipped by value":
            return {d: [np.clip(t, -self.f(most), self.f(most)) for t in of] for d, of in g.items()}
        squares = {d: sum(float((t.astype(float)**2).sum()) for t in of) for d, of in g.items()}
        if plant == "norms added, not squares":
            norms = self.summed({d: np.sqrt(of) for d, of in squares.items()}, 1)
        else:
            norms = {d: np.sqrt(of) * 1024 if plant == "clipped before unscaled" else of
                     for d, of in self.summed(squares, 1).items()}
        return {d: [t * self.f(min(1, most / (norms[d] + 1e-6))) for t in of] for d, of in g.items()}

    def updated(self, d, i, w, g, step, moments):
        plant, problem = self.planted, self.p
        if plant == "layer 0 not in the optimizer" and i == 0:
            return w
        if plant == "weight decay left on" and problem.kind == "adam":
            w = w * self.f(1 - problem.learning_rate * 0.01)
        if plant == "step counted for each parameter":
            step = (step - 1) * len(self.names) + i + 1
        if plant == "epsilon of another default" and problem.kind == "adam":
            self.p = problem.__class__(**{**{name: getattr(problem, name) for name in problem.__dataclass_fields__},
                                          "epsilon": 1e-8})
        found = super().updated(d, i, w, g, step, moments)
        self.p = problem
        return bf16(found) if plant == "weights kept in bfloat16" else found

    def pieces(self):
        pieces, layout = super().pieces()
        if self.planted == "devices numbered along the other axis":
            pieces = [pieces[d * self.tensor + t] for t in range(self.tensor) for d in range(self.data)]
        return pieces, layout


if __name__ == "__main__":
    measure_mlps(TABLE, Unseen, TRAINING)
