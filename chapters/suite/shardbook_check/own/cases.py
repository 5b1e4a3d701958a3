"""A program on one device as the reference: its results, their bounds, and the addends of some rows of the batch."""
from __future__ import annotations

import importlib
import sys
import time
from functools import cached_property

import numpy as np

from ..problems.bounded import part
from ..problems.files import Refused
from . import in_numpy, training
from .moves import PRECISIONS, RUNS, limits

FRAMEWORKS = {"torch": "in_torch", "jax": "in_jax"}


def case(reference, params, batch, rows=None, precision="float32", optimizer=None, steps=1, clip=None, name=None):
    """A program on one device, for `check` to hold a sharded one against.

    `reference(params, batch)` is given {name: array} twice, in float64, and returns {name: array}: each parameter's
    gradient under the parameter's name, and what else is to be held: "loss", layers' outputs in their order. Nothing
    runs before it is needed. `rows`: the entries of the batch whose first axis is its rows (by default all of the
    longest common length). `precision`: how the sharded program computes. With `optimizer`, results are parameters
    after `steps` steps, its state and losses: see training.py."""
    return Case(reference, dict(params), batch, rows, precision, optimizer, steps, clip,
                name or getattr(reference, "__name__", "reference"))


def framework_of(values):
    """The module that runs programs of these arrays."""
    for name, module in FRAMEWORKS.items():
        if name in sys.modules:
            of = importlib.import_module(f".{module}", __package__)
            if any(of.is_mine(value) for value in values):
                return of
    return in_numpy


class Case:
    def __init__(self, reference, params, batch, rows, precision, optimizer, steps, clip, name):
        if precision not in PRECISIONS:
            raise Refused(f"case: precision: expected one of {', '.join(PRECISIONS)}, given {precision}")
        self.reference, self.precision, self.name = reference, precision, name
        self.optimizer, self.steps, self.clip = optimizer, steps if optimizer else 0, clip
        batches = batch if isinstance(batch, (list, tuple)) else [batch]
        self.framework = framework_of([*params.values(), *batches[0].values()])
        self.params = {name: kept(value) for name, value in params.items()}
        self.batches = [{name: kept(value) for name, value in each.items()} for each in batches]
        self.rows = list(rows) if rows is not None else rows_of(self.batch)
        if unknown := [name for name in self.rows if name not in self.batch]:
            raise Refused(f"case: rows: expected entries of the batch ({', '.join(self.batch)}), given {unknown[0]}")
        self.runs, self.explained = {}, {}  # results on some rows; those of wrong versions, by cause

    @property
    def batch(self):
        return self.batches[0]

    @property
    def batch_size(self):
        return len(self.batch[self.rows[0]]) if self.rows else 1

    def ran(self, batches, rounding=None, seed=0, wrong=None):
        if not self.optimizer:
            return self.framework.run(self.reference, self.params, batches[0], rounding, seed)
        return self.ran_on(batches, lambda params, given: training.trained(self, params, given, wrong), rounding, seed)

    def ran_on(self, batches, program, rounding=None, seed=0):
        """What program(params, batches) gives, where all batches are as the framework has them: in float64, and moved."""
        def of_all(params, given):
            return program(params, [{name: given[k, name] for name in each} for k, each in enumerate(batches)])
        every = {(k, name): value for k, each in enumerate(batches) for name, value in each.items()}
        return self.framework.run(of_all, self.params, every, rounding, seed)

    @cached_property
    def results(self):
        """{name: float64 array} in the best precision."""
        begin = time.monotonic()
        first, second = self.ran(self.batches)[0], self.ran(self.batches)[0]
        self.seconds = (time.monotonic() - begin) / 2
        for name, value in first.items():
            if not np.array_equal(value, second[name], equal_nan=True):
                raise Refused(f"case: {name}: expected the same in two runs of the reference, given others: switch off "
                              "dropout, or seed it in the reference")
            if not np.isfinite(value).all():
                raise Refused(f"case: {name}: expected finite numbers from the reference, given others")
        if not self.optimizer and not set(first) & set(self.params):
            raise Refused(f"case: expected gradients under the parameters' names ({', '.join(self.params)}), "
                          f"given {', '.join(first)}")
        return first

    @cached_property
    def plain_params(self):
        """{name: float64 array}."""
        return self.framework.run(lambda params, _: params, self.params, {})[0]

    @cached_property
    def limits(self):
        return self.limits_of(self.precision)

    def limits_of(self, precision):
        """{name: the bound of each element}."""
        rounding, samples = PRECISIONS[precision], []
        for seed in range(RUNS):
            sample, seen = self.ran(self.batches, rounding, seed)
            samples.append(sample)
            if not seen:
                raise Refused("case: expected a reference whose operations are NumPy's, torch's or JAX's, given one in "
                              "which none was seen: use the arrays that it is given")
        return limits(self.results, samples, rounding)

    def in_order(self):
        """Names in the order in which a step computes them: outputs, then gradients from the last to the first."""
        of_params = {of: [] for of in self.params}
        rest = []
        for name in self.results:
            of = name if name in of_params else name.rpartition("/")[0]
            of_params.get(of, rest).append(name)
        for names in of_params.values():
            names.sort(key=lambda name: name in of_params)  # the optimizer's state, then the parameter
        return rest + [name for names in reversed(of_params.values()) for name in names]

    # ---- rows of the batch
    def of_rows(self, rows, batch=None):
        batch = self.batch if batch is None else batch
        return {name: value[rows] if name in self.rows else value for name, value in batch.items()}

    def on_rows(self, rows):
        """What the reference gives on these rows alone."""
        key = tuple(rows)
        if key not in self.runs:
            self.runs[key] = self.framework.run(self.reference, self.params, self.of_rows(list(rows)))[0]
        return self.runs[key]

    def weight(self, rows):
        """What the results of these rows count in those of the batch: 1 where the reference adds up, their share where
        it takes a mean. None: the batch's gradient is no such sum."""
        rest = [row for row in range(self.batch_size) if row not in set(rows)]
        if not rest or not len(rows):
            return 1.0 if len(rows) else None
        mine, other = (flat(self.on_rows(of), self.params) for of in (rows, rest))
        whole = flat(self.whole, self.params)
        pair = np.stack([mine, other], axis=1)
        scale = np.abs(whole).max() or 1.0
        found, _, rank, _ = np.linalg.lstsq(pair / scale, whole / scale, rcond=1e-9)
        if rank < 2 or np.abs(pair @ found - whole).max() > 1e-6 * scale:
            return None
        return found[0]

    @cached_property
    def whole(self):
        """The gradients of the first step."""
        if not self.optimizer:
            return self.results
        return self.framework.run(self.reference, self.params, self.batch)[0]

    def addend(self, rows):
        """{parameter: what these rows add to its gradient}, or None."""
        weight = self.weight(rows)
        if weight is None:
            return None
        return {name: weight * value for name, value in self.on_rows(rows).items() if name in self.params}

    def partitions(self, devices):
        """(how, the rows of each device): rows as strategies divide them."""
        size = self.batch_size
        blocks = [list(range(*part(size, devices, d))) for d in range(devices)]
        piece = -(-size // devices)
        found = [("", blocks), ("", [list(range(min(d * piece, size), min((d + 1) * piece, size))) for d in range(devices)]),
                 (" (rows r, r + N, ...)", [list(range(d, size, devices)) for d in range(devices)])]
        return [found[k] for k in range(3) if found[k][1] not in [other for _, other in found[:k]]]


def kept(value):
    """A copy: the sharded program may train in place."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    return np.array(value) if isinstance(value, np.ndarray) else value


def rows_of(batch):
    lengths = [value.shape[0] for value in batch.values() if getattr(value, "ndim", 0)]
    size = max(set(lengths), key=lengths.count, default=0)
    return [name for name, value in batch.items() if getattr(value, "ndim", 0) and value.shape[0] == size]


def flat(results, names):
    return np.concatenate([results[name].ravel() for name in names if name in results] or [np.zeros(0)])
