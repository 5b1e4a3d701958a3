"""The facts about a piece that differs, and when another array explains it."""
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .layouts import OF_ROWS
from .problems.bounded import part
from .problems.kinds import Problem, after


@dataclass
class Evidence:
    """The facts about a piece that differs."""
    problem: Problem
    devices: int
    name: str
    device: int
    given: np.ndarray
    want: np.ndarray
    limit: np.ndarray
    whole: np.ndarray  # the expected tensor
    slices: list  # of each device's piece in it
    results: dict  # {name: (pieces by device, their slices, bound)} of this tensor and those before it
    wrong: tuple = ()  # the results before it that differ
    micro_batches: int | None = None  # of a step, if that is known
    failed: list = field(default_factory=list)  # what is said of rules that failed
    arranged: dict = field(default_factory=dict)  # {name: Arrangement}: of slices that are made of several ranges
    lies: dict = field(default_factory=dict)  # {name: slices by device} of all results
    mesh: tuple = ()  # sizes of its axes, and their names
    letters: tuple = ()  # of this tensor on these
    precision: str = "float32"
    found: dict = field(default_factory=dict)  # what rules have found out about the verdict

    @property
    def pieces(self):
        return self.results[self.name][0]

    def after(self, **mistake):
        """This piece as a wrong version would compute it, or None."""
        found = after(self.problem, **mistake)
        return self.as_arranged(self.name, found[self.name])[self.slices[self.device]] if found else None

    def as_arranged(self, name, t):
        return self.arranged[name](t) if name in self.arranged else t

    def pieces_like(self, **mistake):
        """For each known piece of all results so far: whether a wrong version would compute it, too."""
        wholes = {name: self.as_arranged(name, t) for name, t in after(self.problem, **mistake).items()}
        return [piece.shape == wholes[name][here].shape and
                bool((np.abs(piece - wholes[name][here]) <= 8 * bound[here] + 2.0**-20 * np.abs(piece)).all())
                for name, (pieces, slices, bound) in self.results.items()
                for piece, here in zip(pieces, slices) if piece is not None]

    def addend(self, *rows):
        """The addend of these rows of the batch, [begin, end), to a parameter's gradient; None for other results, or
        training. Where a mixture's outputs are wrong, other tokens may be dropped, so its gradients are no sums of these."""
        is_sum = self.name not in OF_ROWS and not self.problem.is_training
        is_sum &= self.problem.workload != "mixture" or not set(self.wrong) & set(OUTPUTS)
        return sum(self.after(rows=r) for r in rows) if is_sum else None

    @cached_property
    def rows_by_device(self):
        """{device: its rows of the batch}, where outputs show that devices divide the rows. Of devices with the same
        rows there is one: this one, if it is among them. None if every device shows all rows: then a program may have
        divided them, and gathered what it shows."""
        name = next((name for name in OUTPUTS if name in self.results), None)
        if name is None or self.devices == 1:
            return None if self.devices > 1 else {}
        slices = self.results[name][1]
        rows = [(here[0].start, here[0].stop) if here else (0, 0) for here in slices]
        distinct = {}
        for device in sorted(range(len(rows)), key=lambda d: d != self.device):
            if rows[device][0] < rows[device][1]:
                distinct.setdefault(rows[device], device)
        if len(distinct) > 1:
            return {device: r for r, device in distinct.items()}
        return None if len(set(rows)) == 1 else {}  # one device has all: not divided

    def device_addends(self, may_be_gathered=False):
        """(device, its rows, their addend), of the devices that divide the rows, or that may have done so."""
        rows = self.rows_by_device or {}
        if may_be_gathered and self.rows_by_device is None:
            rows = {d: part(self.problem.batch_size, self.devices, d) for d in range(self.devices)}
        found = [(device, (begin, end), self.addend((begin, end))) for device, (begin, end) in rows.items()
                 if end > begin]
        return [(*known, addend) for *known, addend in found if addend is not None and np.any(addend)]

    def pieces_of(self, count):
        """The addends of `count` micro-batches, of each device's rows if devices divide them."""
        of = list((self.rows_by_device or {0: (0, self.problem.batch_size)}).values())
        cut = [[(begin + first, begin + last) for begin, end in of
                for first, last in [part(end - begin, count, k)] if last > first] for k in range(count)]
        found = [self.addend(*rows) for rows in cut if rows]
        return found if len(found) == count and all(f is not None for f in found) else []


OUTPUTS = ("output", "logits", "loss", "losses")


def is_close(e, given, other):
    """Whether two arrays are the same within the bound, and not all 0."""
    if given.shape != other.shape or not np.any(other):
        return False
    slack = e.limit if e.limit.shape == given.shape else e.limit.max(initial=0)
    largest = np.abs(e.want).max(initial=0)
    # A larger result has a larger error.
    growth = max(1, np.abs(other).max() / largest) if largest else 1
    if e.limit.any():
        rounding = 2.0**-22 * np.abs(other)
    else:  # exact, but a wrong version need not be
        is_rounded = (np.abs(other) < 1e30).all() and (other.astype("f4") != other).any()
        rounding = 2.0**-21 * np.abs(other).max() if is_rounded else 0
    return bool((np.abs(given - other) <= 4 * growth * slack + rounding).all())


def explains(e, other):
    """Whether the given piece is `other`, and not the expected one. Of many explanations, one may agree with a single
    element by chance, so they must differ in two, unless the result is a single real number."""
    return other is not None and is_close(e, e.given, other) and not is_close(e, other, e.want) and \
        np.count_nonzero(np.abs(other - e.want) > 4 * e.limit) >= needed(e)


def needed(e):
    return 1 if e.want.size == 1 and e.problem.kind != "exact" else 2


def is_nearly(e, other):
    """Whether `other` explains all but an eighth of the difference. In another order of a sum,
    some elements are rounded differently."""
    by = other - e.want
    if by.size < 4 or not np.isfinite(by).all():  # few numbers agree by chance
        return False
    return np.linalg.norm(by) > 8 * np.linalg.norm(e.limit) and np.linalg.norm(e.given - other) <= np.linalg.norm(by) / 8


def is_multiple(e, factor):
    # A third may be rounded, and so may be the addends before they are added up.
    largest = np.abs(e.whole).max(initial=0) if 0 < factor < 1 else np.abs(e.want)
    slack = 4 * max(1, abs(factor)) * e.limit + 2.0**-22 * largest
    is_other = np.abs(factor - 1) * np.abs(e.want) > slack
    return np.count_nonzero(is_other) >= needed(e) and (np.abs(e.given - factor * e.want) <= slack).all()


def is_about(e, other):
    """Whether the given piece is `other` up to some roundings of the largest element, and not the expected one."""
    slack = 2.0**-20 * np.abs(other).max(initial=0)
    return slack > 0 and (np.abs(e.given - other) <= slack).all() and \
        np.count_nonzero(np.abs(other - e.want) > slack) >= needed(e)
