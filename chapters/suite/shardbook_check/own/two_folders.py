"""The results of two programs in folders of safetensors: of one device, and sharded."""
from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..folders import read_results
from ..layouts import read_layout
from ..problems.files import Refused, read, write
from .held import held
from .moves import PRECISIONS, RUNS, limits
from .pieces import Piece


def diff(single, sharded, layout=None, precision="float32"):
    """The verdict on the results in `sharded` (results.safetensors, or a file for each device with a layout.json) against
    those in `single`."""
    case = FolderCase(Path(single), precision)
    sharded = Path(sharded)
    devices = len(list(sharded.glob("device_*.safetensors"))) or 1
    pieces, of_file = read_results(sharded, devices, {})
    if pieces is None:
        raise Refused(f"{sharded}: expected results.safetensors or device_0.safetensors and so on, given none")
    given = read_layout(layout) if layout else of_file
    mesh = dict(zip(given[0].names, given[0])) if given else {"devices": devices}
    if math.prod(mesh.values()) != devices:
        raise Refused(f"{layout}: expected a mesh of {devices} devices, given {mesh}")
    pieces = [{name: Piece(of.values, of.dtype) for name, of in each.items()} for each in pieces]
    found = held(case, pieces, mesh, given)
    found.remarks += case.remarks
    return found


class FolderCase:
    """What `held` asks of a case, from files: results.safetensors, and moved_0.safetensors to moved_15.safetensors where
    the program has also run on the parameters of `moved`."""
    reference, optimizer, batch_size, plain_params = None, None, 1, {}

    def __init__(self, folder, precision):
        file = next((file for file in (folder, folder / "results.safetensors") if file.is_file()), None)
        if file is None:
            raise Refused(f"{folder / 'results.safetensors'}: expected the results on one device, given no such file")
        self.name, self.precision, self.remarks, self.explained = folder.name or str(folder), precision, [], {}
        self.results = self.params = {name: of.values for name, of in read(file).items()}
        rounding, moved = PRECISIONS[precision], sorted(folder.glob("moved_*.safetensors"))
        if moved and len(moved) != RUNS:
            raise Refused(f"{folder}: expected {RUNS} files moved_*.safetensors or none, given {len(moved)}")
        if moved:
            samples = [{name: of.values for name, of in read(file).items()} for file in moved]
            self.limits = limits(self.results, samples, rounding)
            return
        longest = max((size for value in self.results.values() for size in value.shape), default=1)
        unit = 6 * math.sqrt(longest) * rounding.sums + 4 * rounding.results + 2 * rounding.operands
        self.limits = {name: np.full(value.shape, unit * np.abs(value).max(initial=0)) for name, value in
                       self.results.items()}
        self.remarks.append(f"bounds are assumed, {unit:.1e} of each tensor's largest element: for derived ones, "
                          "shardbook-check move")

    def in_order(self):
        return list(self.results)

    def weight(self, rows):
        return None

    def addend(self, rows):
        return None

    def partitions(self, devices):
        return []


def move(params, folder, precision="float32", length=None):
    """Writes params_0.safetensors to params_15.safetensors: parameters moved, up or down at random, by the roundings of
    sums of `length` addends (by default the longest axis)."""
    given, rounding, random = read(params), PRECISIONS[precision], np.random.default_rng(0)
    length = length or max((size for of in given.values() for size in of.values.shape), default=1)
    unit = math.sqrt(length) * rounding.sums + rounding.operands + 2 * rounding.results
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(RUNS):
        signs = {name: random.integers(0, 2, of.values.shape) * 2 - 1 for name, of in given.items()}
        write(folder / f"params_{k}.safetensors", {name: of.values * (1 + unit * signs[name]) for name, of in given.items()},
              "F64")
