"""Problems of chapter 00's ring and of chapter 07's layers. The staff's program computes what layers must give.
For cross entropy it also writes the inputs, so that wrong versions can be computed here."""
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "suite"))
import shardbook_check as sb
from shardbook_check.problems import bounded, kinds, networks

UNIT = 2.0**-8  # exact arithmetic rounds to multiples of it (chapters/07_layers/layer.hpp)
GIVEN = "given/"  # prefix of the names of inputs (chapters/course/programs/layers.cpp)


@dataclass(frozen=True, kw_only=True)
class SmallProblem(kinds.WithResults):
    """A problem without a network."""
    name: str
    batch_size: int
    layers: int = 0
    kind: str = "exact"
    wrong_means: tuple = ()
    mistake: networks.Mistake = networks.Mistake()

    @property
    def rows(self):
        return self.batch_size


@dataclass(frozen=True, kw_only=True)
class RingProblem(SmallProblem):
    """A sum of vectors, one of each device (a row), by chunks in the order of the ring."""
    size: int
    seed: int
    workload: str = "ring"
    is_training: bool = False

    @cached_property
    def addends(self):
        numbers = np.random.default_rng(self.seed)
        return numbers.integers(1, 10, (self.batch_size, self.size)).astype(float)

    def solved(self, precision):
        n = self.batch_size
        rows = slice(*self.mistake.rows) if self.mistake.rows else slice(None)
        total = self.addends[rows].sum(axis=0)
        found = {f"chunk {k}": total[slice(*sb.part(self.size, n, k))] for k in range(n)}
        arrived = np.array([(me - np.arange(1, 2 * n - 1) - 1) % n for me in range(n)], float).reshape(n, -1)
        found["arrived"] = arrived
        return {name: bounded.Bounded.exact(t, precision) for name, t in found.items()}


@dataclass(frozen=True, kw_only=True)
class LayerProblem(SmallProblem):
    """A layer with the known results of the whole layer."""
    workload: str = "layer"
    is_training: bool = True  # no row's addend is compared

    def solved(self, precision):
        raise sb.Undecided("only the results are known")

    @staticmethod
    def of(name, tensors):
        """From the arrays that the whole layer's program has written, {name: array}."""
        expected = {key: t for key, t in tensors.items() if not key.startswith(GIVEN)}
        problem = LayerProblem(name=name, batch_size=len(next(iter(expected.values()))))
        problem.__dict__["expected"] = expected
        problem.__dict__["given"] = {key.removeprefix(GIVEN): t for key, t in tensors.items()
                                     if key.startswith(GIVEN)}
        return problem

    @cached_property
    def given(self):
        return {}

    def cause(self, name, device, devices, is_same):
        """The wrong version that explains a device's part of a result; "" for none. `is_same` says whether a whole
        tensor of such a version was given."""
        known = {"cross entropy": (CROSS_ENTROPY, cross_entropy), "LayerNorm": (LAYER_NORM, layer_norm)}
        versions, results = known.get(self.name, ({}, None))
        for wrong, text in versions.items():
            if self.given and is_same(results(self.given, devices, wrong)[device][name]):
                return text
        return ""


# ---- Cross entropy with its vocabulary cut ---------------------------------------------------------------
CROSS_ENTROPY = {
    "largest": "each device's own largest logit: not reduced over the devices?",
    "sums": "each device's own sum of powers: not reduced over the devices?",
    "of_labels": "the label's logit on one device alone: not reduced over the devices?",
    "offset": "labels looked up in each slice of the logits without the slice's offset?",
    "first column": "labels not found in the first column of a slice?",
    "no device": "no label found on any device?",
}


def cross_entropy(given, devices, forgets=""):
    """Each device's results, [{name: array}]. Of dL/dz all columns, of which the devices have slices."""
    z, labels, dloss = given["input"], given["labels"].astype(int), given["output_grad"].item()
    columns = [slice(*sb.part(z.shape[1], devices, device)) for device in range(devices)]
    slices = [z[:, c] for c in columns]

    def over_devices(name, values, reduce):
        return values if forgets == name else [reduce(values)] * devices
    picks = [picks_of(labels, c, forgets) for c in columns]
    largest = over_devices("largest", [t.max(axis=1) for t in slices], lambda v: np.max(v, axis=0))
    powers = [np.exp2(t - m[:, None]) for t, m in zip(slices, largest)]
    sums = over_devices("sums", [t.sum(axis=1) for t in powers], lambda v: np.sum(v, axis=0))
    of_labels = over_devices("of_labels", [(t * p).sum(axis=1) for t, p in zip(slices, picks)],
                             lambda v: np.sum(v, axis=0))
    dz = np.hstack([rounded((t / s[:, None] - p) * dloss) for t, s, p in zip(powers, sums, picks)])
    losses = [rounded(m + np.log2(s) - t).sum() for m, s, t in zip(largest, sums, of_labels)]
    return [{"output": np.array([loss]), "input_grad": dz} for loss in losses]


def picks_of(labels, columns, forgets):
    """1 at the label of each row, if these columns contain it."""
    places = labels if forgets == "offset" else labels - columns.start
    picks = (places[:, None] == np.arange(columns.stop - columns.start)) * 1.0
    if forgets == "first column":
        picks[:, :1] = 0
    return 0 * picks if forgets == "no device" else picks


def rounded(t):
    return np.rint(t / UNIT) * UNIT


# ---- LayerNorm with its features cut ---------------------------------------------------------------------
LAYER_NORM = {
    "sums": "each device's own sums: not reduced over the devices?",
    "features": "sums divided by each device's own number of features?",
    "sums and features": "the means of each device's own features: not reduced over the devices?",
    "exchanged": "the mean of dx̂ and that of dx̂ x̂ exchanged?",
    "w": "dx̂ without its factor w?",
    "mean": "dL/dx without the mean of dx̂?",
    "dot": "dL/dx without x̂ times the mean of dx̂ x̂?",
    "r": "dL/dx without its factor r?",
    "rounded": "rounded otherwise than the whole layer rounds?",
}
EPSILON = np.float32(2.0**-10)


def layer_norm(given, devices, wrong=""):
    """Each device's results, [{name: array}]: all columns, of which the devices have slices."""
    x, dy, w, b = (given[name].astype(np.float32) for name in ("input", "output_grad", "weights", "bias"))
    columns = [slice(*sb.part(x.shape[1], devices, device)) for device in range(devices)]

    def means_of(one, other):
        """Of each row, in each column, as its device has it: the means of a tensor, and of its product with another."""
        sums = [np.stack([t[:, c].sum(axis=1) for c in columns]) for t in (one, one * other)]
        if "sums" not in wrong:
            sums = [np.broadcast_to(t.sum(axis=0), t.shape) for t in sums]
        sizes = [c.stop - c.start if "features" in wrong else x.shape[1] for c in columns]
        return [np.hstack([np.repeat((s * (np.float32(1) / np.float32(max(n, 1))))[:, None], c.stop - c.start, axis=1)
                           for s, n, c in zip(t, sizes, columns)]) for t in sums]
    grid = (lambda t: t) if wrong == "rounded" else rounded
    mean, square = means_of(x, x)
    with np.errstate(invalid="ignore"):  # a wrong mean may be larger than its square's
        r = rounded(1 / np.sqrt(square - mean * mean + EPSILON))
    x_hat = rounded((x - rounded(mean)) * r)
    d = dy if wrong == "w" else dy * w
    mean, dot = means_of(d, x_hat)[::-1 if wrong == "exchanged" else 1]
    dx = d - (0 if wrong == "dot" else grid(x_hat * grid(dot))) - (0 if wrong == "mean" else grid(mean))
    found = {"output": x_hat * w + b, "input_grad": dx if wrong == "r" else rounded(dx * r),
             "weights": (dy * x_hat).sum(axis=0), "bias": dy.sum(axis=0)}
    return [found] * devices
