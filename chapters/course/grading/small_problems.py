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
        if self.name == "cross entropy":
            for forgets, text in CROSS_ENTROPY.items():
                if is_same(cross_entropy(self.given, devices, forgets)[device][name]):
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
