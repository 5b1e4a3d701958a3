"""Compares results with those of a problem."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from .causes import diagnose
from .evidence import Evidence
from .layouts import REPLICATED, Arrangement, Letters, Placement, inferred, letter_by_strategy, owner, shape_text, \
    slices_by_rule, unflattened
from .problems.files import Stored, is_within, limit_as_stored, limit_of_sum, rounded
from .problems.listed import listed_by_name, usable
from .wrong_versions import SAYS


@dataclass
class Difference:
    tensor: str
    cause: str
    device: int | None = None
    index: tuple | None = None  # in the whole tensor
    expected: float | None = None
    given: float | None = None
    bound: float | None = None
    ratio: float | None = None  # the largest difference, in units of its bound; None if the bound is 0

    def __str__(self):
        where = self.tensor + ("" if self.device is None else f" on device {self.device}")
        if self.index is None:
            return f"{where}: {self.cause}"
        limit = f" (bound {self.bound:.2g}, at most {self.ratio:.3g} times it)" if self.ratio else ""
        index = ", ".join(map(str, self.index))
        values = f"expected {self.expected:.9g}, given {self.given:.9g}"
        return f"{where} at ({index}): {values}{limit}: {self.cause}"


@dataclass
class Verdict:
    problem: str
    devices: int
    differences: list = field(default_factory=list)
    notes: list = field(default_factory=list)  # what was inferred
    results: dict = field(default_factory=dict)  # see Evidence
    worst: float = 0.0  # the largest difference of a right result, in units of its bound
    micro_batches: int | None = None  # of a step, if that is known
    seconds: float = 0.0  # to solve and check, or to check
    arranged: dict = field(default_factory=dict)  # these: see Evidence
    lies: dict = field(default_factory=dict)
    mesh: tuple = ()
    letters: dict = field(default_factory=dict)
    precision: str = "float32"
    found: dict = field(default_factory=dict)  # by rules: see Evidence

    @property
    def is_right(self):
        return not self.differences

    @property
    def cause(self):
        """The cause that most differences have, of those that are known; "" without one."""
        known = [d.cause for d in self.differences if d.cause not in (SAYS["unknown"], SAYS["one_device"])
                 and not d.cause.startswith("expected ")]
        return max(known, key=known.count) if known else ""

    def __str__(self):
        if self.is_right:
            return f"{self.problem} on {self.devices}: right"
        most = 6
        more = len(self.differences) - most
        first = self.differences[0].cause
        lines = [f"{self.problem} on {self.devices}: {len(self.differences)} differ"
                 + f"; of most: {self.cause}" * (self.cause not in ("", first)),
                 *map(str, self.differences[:most]), *[f"and {more} more"] * (more > 0)]
        return "\n  ".join(lines)


def check(grads, problem, strategy=None, rank=0, world=1, precision="float32"):
    """Compares the results of one process of `world`, {name: array}, with a problem. `strategy` ("dp", "tp",
    "fsdp", "ep", "single") determines this rank's slice; without one, the shape does."""
    if isinstance(problem, str):
        problem = usable(listed_by_name()[problem])
    verdict = Verdict(problem.name, world)
    bounds = problem.bounds(precision)
    for name, value in grads.items():
        if name not in problem.expected:
            verdict.differences.append(unknown_name(name, problem))
            continue
        given = Stored(np.asarray(value, float), dtype_of(value))
        want = problem.expected[name]
        letter = letter_by_strategy(strategy, name)
        if letter is None:
            letter = inferred([given.values] * world, want)
            verdict.notes.append(f"{name}: inferred: {letter}")
        slices = [slices_by_rule(want.shape, letter, given.values.shape, device, world,
                                 problem.widths_of_slices(name)) for device in range(world)]
        differ = of_piece(verdict, problem, name, given, want, bounds[name], slices, rank, [None] * world)
        verdict.differences += differ
    return verdict


def dtype_of(value):
    kinds = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    return kinds.get(str(getattr(value, "dtype", "float64")).replace("torch.", ""), "F64")


def unknown_name(name, problem):
    return Difference(name, SAYS["other_name"].format(", ".join(sorted(problem.expected))))


def of_piece(verdict, problem, name, given, want, bound, slices, device, pieces):
    """The differences of one device's piece: none, or one."""
    verdict.results[name] = pieces, slices, bound
    here = slices[device]
    part_of_want, limit = want[here], bound[here]
    if given.values.shape != part_of_want.shape:
        turned = given.values.shape == part_of_want.shape[::-1]
        text = f"expected {shape_text(part_of_want.shape)}, given {shape_text(given.values.shape)}"
        return [Difference(name, text + (": " + SAYS["transposed"]) * turned, device)]
    wrong = ~is_within(given.values, part_of_want, limit, given.dtype)
    part_of_want, limit = rounded(part_of_want, given.dtype), limit_as_stored(part_of_want, limit, given.dtype)
    off = np.abs(given.values - part_of_want)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmax(np.where(limit > 0, off / limit, 0), initial=0))
    if not wrong.any():
        verdict.worst = max(verdict.worst, ratio)
        return []
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    wrong = tuple(d.tensor for d in verdict.differences)
    evidence = Evidence(problem, verdict.devices, name, device, given.values, part_of_want, limit, want, slices,
                        verdict.results, wrong, verdict.micro_batches, verdict.notes, verdict.arranged,
                        verdict.lies, verdict.mesh, verdict.letters.get(name, ()), verdict.precision, verdict.found)
    index = tuple(s.start + i for s, i in zip(here, first))
    index = verdict.arranged[name].index(index) if name in verdict.arranged else index
    return [Difference(name, diagnose(evidence), device, index,
                       float(part_of_want[first]), float(given.values[first]), float(limit[first]),
                       ratio if limit.any() else None)]


def check_pieces(problem, devices, pieces, layout=None, precision="float32"):
    """Compares the results of `devices` devices with a problem: a list with a {name: Stored} for each device, or with
    one for whole tensors. `layout`: sizes of the mesh's axes and {name: letters}, as read_layout gives them; without
    one, it is inferred."""
    verdict, owners, placed = Verdict(problem.name, devices, precision=precision), {}, []
    bounds = problem.bounds(precision)
    if layout and any(letter.kind == "F" for letters in layout[1].values() for letter in letters):
        pieces, layout, owners = unflattened(pieces, layout, problem.expected)
    given_names = {name for piece in pieces for name in piece}
    for name in sorted(given_names - problem.expected.keys()):
        verdict.differences.append(unknown_name(name, problem))
    for name, want in problem.expected.items():
        mine = [piece.get(name) for piece in pieces]
        if not any(mine):
            verdict.differences.append(Difference(name, SAYS["left_out"]))
            continue
        values = [None if p is None else p.values for p in mine]
        if layout:
            sizes, letters = layout[0], layout[1].get(name, (REPLICATED,) * len(layout[0]))
        else:
            sizes, letters = (len(pieces),), (inferred(values, want),)
            verdict.notes += [f"{name}: inferred: {letters[0]}"] * (len(pieces) > 1)
        if beyond := [letter for letter in letters if letter.kind == "S" and letter.axis >= want.ndim]:
            verdict.differences.append(Difference(name, f"{beyond[0]}, but it has {want.ndim} axes"))
            continue
        placement, arranged = Placement(values, sizes, letters), Arrangement(letters, want.shape)
        if not arranged.is_whole:
            verdict.differences.append(Difference(name, "the ranges of its slices overlap, or leave a gap"))
            continue
        whole_bound = bounds[name]
        if arranged.orders:
            verdict.arranged[name], want, whole_bound = arranged, arranged(want), arranged(whole_bound)
        if placement.shape == list(want.shape) and not placement.is_whole:
            verdict.differences.append(Difference(name, "the offsets of its slices overlap, or leave a gap"))
            continue
        if placement.shape != list(want.shape):
            verdict.differences.append(not_the_whole(name, placement, want, layout))
            continue
        slices = [placement.slices(d) if p is not None else (slice(0, 0),) * want.ndim
                  for d, p in enumerate(values)]
        verdict.lies[name], verdict.letters[name], verdict.mesh = slices, letters, sizes
        placed.append((name, want, whole_bound, mine, values, placement, slices))
        verdict.results[name] = values, slices, whole_bound  # a cause explains them all
    for name, want, whole_bound, mine, values, placement, slices in placed:
        differ = []
        for device, piece in enumerate(mine):
            if piece is None:
                is_elsewhere = any(mine[twin] is not None for twin in placement.twins(device))
                differ += [Difference(name, SAYS["left_out"], device)] * is_elsewhere
            elif placement.group(device)[0] == device:
                addends, limits, dtype = [values[other] for other in placement.group(device)], whole_bound, piece.dtype
                if len(addends) > 1 and whole_bound.any():
                    limits, dtype = whole_bound.copy(), "F64"
                    limits[slices[device]] = limit_of_sum(addends, limits[slices[device]], piece.dtype)
                differ += of_piece(verdict, problem, name, Stored(sum(addends), dtype), want, limits, slices, device, values)
        for d in differ if name in owners else ():
            start = [s.start for s in slices[d.device]]
            at = tuple(int(i - begin) for i, begin in zip(d.index, start))
            d.device = owner(d.device, at, values[d.device].shape, owners[name])
        if len(differ) > 1 and (first := first_axis(placement, want, whole_bound)):
            differ = [Difference(name, SAYS["other_order"].format(first))]
        verdict.differences += as_of_one(differ, values)
    is_rounding = all("16 bits" in d.cause or d.cause == SAYS["unknown"] and problem.expected[d.tensor].size < 4
                      for d in verdict.differences) and verdict.found.get("in 16 bits", True)
    if not is_rounding:  # rounding alone explains all, or nothing
        for d in verdict.differences:
            d.cause = SAYS["unknown"] if d.cause == SAYS["right_in_bf16"] else d.cause
    return verdict


def as_of_one(differ, pieces):
    """If one device of several differs, without a known cause, the cause says that it is the only one."""
    if len(differ) == 1 and differ[0].cause == SAYS["unknown"] and sum(p is not None for p in pieces) > 1:
        differ[0].cause = SAYS["one_device"]
    return differ


def first_axis(placement, want, bound):
    """The axis of a mesh that cuts first, if the pieces are right in another order of its axes; else None."""
    sizes, letters = placement.mesh
    names = getattr(sizes, "names", ()) or tuple(f"axis {k}" for k in range(len(sizes)))
    cut = [letter.axis for letter in letters if letter.kind == "S"]
    for order in itertools.permutations(range(len(sizes))) if len(set(cut)) < len(cut) else ():
        other = Letters(letters)
        other.order = order
        lies = Placement(placement.pieces, sizes, other)
        if all(piece is None or piece.shape == want[lies.slices(d)].shape and
               (np.abs(piece - want[lies.slices(d)]) <= bound[lies.slices(d)]).all()
               for d, piece in enumerate(placement.pieces)):
            return names[next(axis for axis in order if letters[axis].kind == "S")]
    return None


def not_the_whole(name, placement, want, layout):
    lies = ", ".join(map(str, placement.letters))
    turned = list(want.shape[::-1]) == placement.shape
    return Difference(name, f"expected {shape_text(want.shape)}, given slices that make "
                            f"{shape_text(placement.shape or ())} ({lies})"
                      + (": " + SAYS["transposed"]) * turned
                      + (": " + SAYS["no_layout"]) * (not layout and len(placement.pieces) > 3 and not turned))
