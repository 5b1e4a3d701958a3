"""Holds results of a sharded program against a case."""
from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..layouts import letters_of, read_layout, shape_text, unflattened
from ..problems.files import Refused, is_within, limit_as_stored, limit_of_sum, rounded
from ..verdicts import Difference, Verdict
from ..wrong_versions import SAYS
from .pieces import Piece, located, pieces_of, results_of
from .reasons import Facts, carried_over, reason
from .wrong_versions import explain, is_weak


class Differs(AssertionError):
    """Results that are not the reference's; `verdict` says what differs."""
    def __init__(self, verdict):
        super().__init__(f"\n{verdict}")
        self.verdict = verdict


@dataclass
class OwnVerdict(Verdict):
    """A verdict whose differences are in the order in which a step computes them."""
    right: list = field(default_factory=list)  # names of right results
    order: str = ""
    remarks: list = field(default_factory=list)

    @property
    def cause(self):
        """As of other verdicts; one that only holds of results counts where no other is known."""
        known = [d.cause for d in self.differences if not is_weak(d.cause) and not d.cause.startswith("expected ")]
        return max(known, key=known.count) if known else super().cause

    def __str__(self):
        if self.is_right:
            notes = "".join(f"\n  {note}" for note in self.remarks)
            return f"{self.problem} on {self.devices}: {len(self.right)} results are right{notes}"
        wrong = list(dict.fromkeys(d.tensor for d in self.differences))
        causes = Counter(d.cause for d in {d.tensor: d for d in reversed(self.differences)}.values())
        cause, count = causes.most_common(1)[0]
        lines = [f"{self.problem} on {self.devices}: {len(wrong)} of {len(wrong) + len(self.right)} results differ",
                 f"first wrong ({self.order}): {self.differences[0]}"]
        if len(wrong) > 1:
            lines.append(f"one cause in {count} of {len(wrong)}: {cause}")
        shown, first = {self.differences[0].tensor}, []
        for d in self.differences[1:]:
            if d.tensor not in shown and len(first) < 4:
                shown.add(d.tensor)
                first.append(str(d))
        more = len(wrong) - 1 - len(first)
        return "\n  ".join([*lines, *first, *[f"and {more} more"] * (more > 0), *self.remarks])


def check(results, case, mesh=None, layout=None, comm=None, optimizer=None, **more):
    """Raises Differs if the results of a sharded program are not the case's. Returns the verdict.

    `results`: {name: this process's value}, or a torch module, whose gradients are taken; `more`: other results, as
    loss=loss. Where it lies: a DTensor and a JAX array say it; else `layout`, as in layout.json, or its shape. `mesh`:
    sizes of the axes, {"data": 2, "tensor": 2}, or a DeviceMesh. Every process calls this: torch.distributed, or `comm`
    (mpi4py's), brings the pieces to the first one. In one process: a list of each device's results."""
    found = verdict(results, case, mesh, layout, comm, optimizer, **more)
    if not found.is_right:
        raise Differs(found)
    return found


def verdict(results, case, mesh=None, layout=None, comm=None, optimizer=None, **more):
    """As check, but a wrong verdict is returned."""
    if isinstance(results, list):
        devices = [of_one(mine_of(each, case, None, more)) for each in results]
        return held(case, devices, mesh_of(mesh, len(devices)), layout)
    mine, comm = mine_of(results, case, optimizer, more), comm or communicator()
    if comm is None:
        return held(case, devices_of(mine), mesh_of(mesh, len(devices_of(mine))), layout)
    gathered = comm.gather(mine, 0)
    answer = None
    if comm.rank == 0:
        try:
            devices = [of_one(each) for each in gathered]
            answer = held(case, devices, mesh_of(mesh, len(devices)), layout)
            if not answer.is_right:  # a launcher may end all processes when the first one fails
                print(answer, file=sys.stderr, flush=True)
        except Exception as error:  # the others wait for an answer
            answer = error
    answer = comm.bcast(answer, 0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def mine_of(results, case, optimizer, more):
    values = results_of(results, bool(case.optimizer), **more)
    if optimizer is not None:
        names = {id(p): name for name, p in results_of(dict(results.named_parameters())).items()}
        for p, state in optimizer.state.items():
            values.update({f"{names[id(p)]}/{key}": part for key, part in state.items() if getattr(part, "dim", int)()})
    return {name: pieces_of(value) for name, value in values.items()}


def of_one(mine):
    return {name: pieces[0][1] for name, pieces in mine.items()}


def devices_of(mine):
    """The pieces of each device of one process's results: of JAX arrays, all devices'."""
    count = max((len(pieces) for pieces in mine.values()), default=1)
    return [{name: pieces[d if len(pieces) == count else 0][1] for name, pieces in mine.items()} for d in range(count)]


def communicator():
    if "torch" not in sys.modules:
        return None
    distributed = sys.modules["torch"].distributed
    is_alone = not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1
    return None if is_alone else TorchGroup(distributed)


class TorchGroup:
    """torch.distributed with mpi4py's words."""
    def __init__(self, distributed):
        self.distributed, self.rank = distributed, distributed.get_rank()

    def gather(self, value, root):
        found = [None] * self.distributed.get_world_size() if self.rank == root else None
        self.distributed.gather_object(value, found, dst=root)
        return found

    def bcast(self, value, root):
        of = [value]
        self.distributed.broadcast_object_list(of, src=root)
        return of[0]


def mesh_of(mesh, devices):
    """{axis: size} of a mesh in any of its forms."""
    if mesh is None:
        found = {"devices": devices}
    elif hasattr(mesh, "mesh_dim_names"):
        names = mesh.mesh_dim_names or [f"axis {k}" for k in range(mesh.ndim)]
        found = dict(zip(names, mesh.mesh.shape))
    elif hasattr(mesh, "axis_names"):  # JAX
        found = dict(zip(mesh.axis_names, mesh.devices.shape))
    else:
        found = dict(mesh) if isinstance(mesh, dict) else {f"axis {k}": size for k, size in enumerate(np.atleast_1d(mesh))}
    if math.prod(found.values()) != devices:
        raise Refused(f"check: mesh: expected {devices} devices, given {found}")
    return {str(name): int(size) for name, size in found.items()}


def letters_by_name(layout, mesh):
    """{name: a letter for each axis} of layout.json, as read_layout gives it, or of its entry "tensors"."""
    if isinstance(layout, (str, Path)):
        layout = read_layout(layout)
    if isinstance(layout, tuple):
        return layout[1]
    try:
        return {name: letters_of(on, mesh) for name, on in (layout or {}).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(f"check: layout: {json.dumps(layout)[:80]}: {error}") from None


def held(case, devices, mesh, layout=None):
    """The verdict on the pieces of all devices, a {name: Piece} for each."""
    names = " ".join(f"{name} {size}" for name, size in mesh.items()) if len(mesh) > 1 else ""
    found = OwnVerdict(case.name + (f" ({names})" if names else ""), len(devices))
    letters = letters_by_name(layout, mesh)
    if any(letter.kind == "F" for of in letters.values() for letter in of):
        devices, (_, letters), _ = unflattened(devices, (tuple(mesh.values()), letters), case.results)
        devices = [{name: Piece(of.values, of.dtype) for name, of in pieces.items()} for pieces in devices]
    given = {name for pieces in devices for name in pieces}
    found.order = "in the order of the program" if case.optimizer else "outputs first, then as the backward pass computes"
    found.differences += [Difference(name, SAYS["other_name"].format(", ".join(list(case.results)[:8])))
                          for name in sorted(given - case.results.keys())]
    wrong, placed = [], {}
    for name in case.in_order():
        pieces = [of.get(name) for of in devices]
        if any(piece is not None for piece in pieces):
            wrong += of_tensor(found, case, name, pieces, mesh, letters.get(name), placed)
        elif name in case.params:
            found.differences.append(Difference(name, SAYS["left_out"]))
    carry_over(found, case, devices)
    if case.reference and len(wrong) == len(found.differences):  # no result is left out, or has another shape
        try:
            explain(found, case, wrong, placed, mesh)
        except Exception as error:  # a mistake of a rule costs that rule, and no verdict
            found.remarks.append(f"a rule failed: {type(error).__name__}: {error}")
    wide = [name for name in found.right if name in case.params and
            np.median(case.limits[name]) > np.abs(case.results[name]).max(initial=0) / 4 > 0]
    if wide:
        found.remarks.append(f"undecided: rounding to {case.precision} can change {', '.join(wide[:4])} by more than a "
                           "quarter of its largest element")
    return found


def carry_over(found, case, devices):
    """Gives the commonest cause to tensors without one, where it explains them, too."""
    known = Counter(d.cause for d in found.differences if d.cause != SAYS["unknown"])
    for d in found.differences if known else ():
        cause = known.most_common(1)[0][0]
        if d.cause == SAYS["unknown"] and carried_over(case, d.tensor, cause, [of.get(d.tensor) for of in devices]):
            d.cause = cause


def of_tensor(found, case, name, pieces, mesh, letters, placed_by_name):
    """The differences, each with its facts."""
    want, sizes = case.results[name], tuple(mesh.values())
    if len(pieces) == 1 and len(mesh) == 1 and pieces[0].at is None and pieces[0].values.shape != want.shape:
        found.differences.append(wrong_shape(name, pieces, want))
        return []
    ways = located(pieces, want.shape, sizes, letters)
    if not ways:
        found.differences.append(wrong_shape(name, pieces, want))
        return []
    best = None
    for lies, placed in ways:
        differ, worst, off = differences(case, name, placed, mesh, len(ways) == 1)
        if best is None or off < best[2]:
            best = differ, worst, off, placed
        if not differ:
            break
    differ, worst, _, placed = best
    if differ and len(ways) > 1:
        differ = differences(case, name, placed, mesh)[0]
    placed_by_name[name] = placed
    if not differ:
        found.worst = max(found.worst, worst)
        found.right.append(name)
    found.differences += [d for d, _ in differ]
    return [(d, facts) for d, facts in differ if facts]


def wrong_shape(name, pieces, want):
    shapes = sorted({shape_text(piece.values.shape) for piece in pieces if piece is not None})
    return Difference(name, f"expected {shape_text(want.shape)}, given pieces {', '.join(shapes)}, which do not make it: "
                            "say with layout= how they lie")


def differences(case, name, pieces, mesh, with_causes=True):
    """(differences, at most one a device, with their facts; the largest share of the bound; the sum of what is off)."""
    want, bound = case.results[name].ravel(), case.limits[name].ravel()
    found, worst, sum_off, covered = [], 0.0, 0.0, np.zeros(want.size, bool)
    for device, piece in enumerate(pieces):
        if piece is None:
            continue
        covered[piece.at.ravel()] = True
        total, dtype, addends = piece.values, piece.dtype, []
        if piece.sum is not None:
            group = [d for d, other in enumerate(pieces) if other is not None and other.sum == piece.sum]
            if group[0] != device:
                continue
            addends = [pieces[d].values for d in group]
            total, dtype = sum(addends), "F64"
        if total.size != piece.at.size:
            found.append((Difference(name, f"expected {piece.at.size} elements, given {total.size}", device), None))
            continue
        part, limit = want[piece.at], bound[piece.at]
        limit, total = limit_of_sum([t.reshape(part.shape) for t in addends], limit, piece.dtype), total.reshape(part.shape)
        wrong = ~is_within(total, part, limit, dtype)
        part, limit = rounded(part, dtype), limit_as_stored(part, limit, dtype)
        off = np.abs(total - part)
        sum_off += off.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = float(np.nanmax(np.where(limit > 0, off / limit, 0), initial=0))
        worst = max(worst, ratio)
        if wrong.any():
            first = tuple(np.argwhere(wrong)[0])
            facts = Facts(case, name, device, total, part, limit, pieces, mesh)
            index = tuple(int(i) for i in np.unravel_index(piece.at[first], case.results[name].shape))
            found.append((Difference(name, reason(facts) if with_causes else "", device if len(pieces) > 1 else None, index,
                                     float(part[first]), float(total[first]), float(limit[first]), ratio or None), facts))
    if not covered.all() and not found:
        index = tuple(int(i) for i in np.unravel_index(int(np.argmin(covered)), case.results[name].shape))
        found.append((Difference(name, f"no device has the element at {index}: its slices leave a gap"), None))
    return found, worst, sum_off
