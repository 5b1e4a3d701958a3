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
from shardbook_check.wrong_versions import SAYS

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
        found["steps"] = np.tile(np.arange(1.0, 2 * n - 1), (n, 1))
        return {name: bounded.Bounded.exact(t, precision) for name, t in found.items()}


# What a ring tells after each step: its rows are no parts of a tensor.
TOLD = {"arrived": "the number of the chunk that has just come: another one is told, or has another one left first?",
        "steps": "the number of the step, which counts from 1: counted otherwise?"}


@dataclass(frozen=True, kw_only=True)
class LayerProblem(SmallProblem):
    """A layer with the known results of the whole layer."""
    workload: str = "layer"
    is_training: bool = True  # no row's addend is compared

    def solved(self, precision):
        raise sb.Undecided("only the results are known")

    @staticmethod
    def of(name, tensors, given=()):
        """From the arrays that the whole layer's program has written, {name: array}. `given`: more of what went in."""
        expected = {key: t for key, t in tensors.items() if not key.startswith(GIVEN)}
        problem = LayerProblem(name=name, batch_size=len(next(iter(expected.values()))))
        problem.__dict__["expected"] = expected
        problem.__dict__["given"] = {key.removeprefix(GIVEN): t for key, t in tensors.items()
                                     if key.startswith(GIVEN)} | dict(given)
        return problem

    @cached_property
    def given(self):
        return {}

    def cause(self, device, devices, has):
        """The wrong version that explains a device's results; "" for none. `has` says whether the device has its parts of
        such results, {name: whole tensor}. A split's results are numbers of files: no other rule is asked about them."""
        versions, results = {"cross entropy": (CROSS_ENTROPY, cross_entropy), "LayerNorm": (LAYER_NORM, layer_norm),
                             "split": (SPLIT, split)}[self.name]
        return next((text for wrong, text in versions.items()
                     if self.given and has(results(self.given, devices, wrong)[device])),
                    SAYS["unknown"] if self.name == "split" else "")


# ---- Cross entropy with its vocabulary cut ---------------------------------------------------------------
CROSS_ENTROPY = {wrong: SAYS[cause] for wrong, cause in {
    "largest": "loss_own_largest", "sums": "loss_own_sums", "of_labels": "loss_own_labels", "offset": "loss_no_offset",
    "first column": "loss_no_first_column", "no device": "loss_no_labels", "divided": "loss_not_divided"}.items()}


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
    shares = [t if forgets == "divided" else t / s[:, None] for t, s in zip(powers, sums)]
    dz = np.hstack([rounded((t - p) * dloss) for t, p in zip(shares, picks)])
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
LAYER_NORM = {wrong: SAYS[cause] for wrong, cause in {
    "sums": "norm_own_sums", "features": "norm_own_count", "sums and features": "norm_own_means",
    "exchanged": "norm_exchanged", "w": "norm_no_weights", "mean": "norm_no_mean", "dot": "norm_no_dot",
    "r": "norm_no_root", "rounded": "norm_rounded"}.items()}
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


# ---- Tensors divided among files -------------------------------------------------------------------------
SPLIT = {
    "full": "a file that is filled to its last byte, taken for one that is too full?",
    "over": "a file that is ended only when it has too many bytes?",
    "ends": "the file that is being filled ended where a larger tensor gets a file of its own?",
    "last": "the last file left out?",
    "empty": "a file without tensors at the end?",
    "own": "a file of its own for a tensor that just fits into one?",
    "one each": "a file for each tensor?",
}


def split(given, devices, wrong=""):
    """The device's results, [{name: array}]: of each tensor its file and its place there, and the number of files."""
    files, filling, filled, most = [], [], 0, given["most"]

    def end():
        nonlocal filling, filled
        files.append(filling)
        filling, filled = [], 0
    for tensor, size in enumerate(given["bytes"]):
        if size > most or wrong == "own" and size == most or wrong == "one each":
            if wrong == "ends" and filling:
                end()
            files.append([tensor])
            continue
        if (filled if wrong == "over" else filled + size + (wrong == "full")) > most:
            end()
        filling.append(tensor)
        filled += size
    if wrong == "empty" or filling and wrong != "last":
        end()
    found = {name: np.full(len(given["bytes"]), -1.0) for name in ("file", "place")} | {"files": np.array([len(files)], float)}
    for number, tensors in enumerate(files):
        found["file"][tensors], found["place"][tensors] = number, np.arange(len(tensors))
    return [found] * devices
