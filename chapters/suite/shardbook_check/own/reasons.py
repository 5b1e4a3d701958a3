"""The likely cause of a difference from one's own reference: the first rule that fits. A rule speaks only of more
numbers than it has freedom."""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from .. import causes, evidence
from ..problems.files import rounded
from ..wrong_versions import SAYS

MOST_PARTS = 8  # of a batch
LEAST_ROWS = 6  # that a tensor must have, or all
MOST_ROWS = 64  # of a batch whose rows are tried one by one


@dataclass
class Facts:
    """A device's piece that differs."""
    case: object
    name: str
    device: int
    given: np.ndarray
    want: np.ndarray
    limit: np.ndarray
    pieces: list  # of all devices
    mesh: dict

    @property
    def devices(self):
        return len(self.pieces)

    @property
    def is_gradient(self):
        return self.name in self.case.params and not self.case.optimizer

    def here(self, results):
        """This piece of a whole tensor."""
        return results[self.name].ravel()[self.pieces[self.device].at]

    @cached_property
    def groups(self):
        """(words, number of devices): the mesh's axes, and all devices."""
        found = [(f" over {axis}" if len(self.mesh) > 1 else "", size) for axis, size in self.mesh.items() if size > 1]
        return found + [(" over all devices", self.devices)] * (len(found) > 1)

    @cached_property
    def as_evidence(self):
        """The same as the rules of problems want it."""
        rows = self.case.batch_size
        problem = SimpleNamespace(kind="real", workload="own", is_training=bool(self.case.optimizer), rows=rows,
                                  batch_size=rows, wrong_means=())
        return evidence.Evidence(problem, self.devices, self.name, self.device, self.given, self.want, self.limit,
                               self.case.results[self.name], [], {self.name: ([p and p.values for p in self.pieces], [], 0)})


def reason(facts):
    for rule in RULES:
        try:
            if text := rule(facts):
                return text
        except (ValueError, IndexError, np.linalg.LinAlgError):  # a mistake of a rule costs that rule
            continue
    return SAYS["unknown"]


def of_problems(rule):
    """A rule of causes.py that needs no network."""
    return lambda facts: rule(facts.as_evidence)


def in_16_bits(f):
    """A reduction or a tensor in 16 bits: every element is such a number, near the right one."""
    if np.count_nonzero(f.given) < 4 or f.pieces[f.device].dtype in ("BF16", "F16"):
        return None
    for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
        is_such = np.array_equal(rounded(f.given, to), f.given)
        if is_such and np.abs(f.given - f.want).max() <= 2.0**-6 * np.abs(f.want).max():
            return f"{name} numbers in every element: reduced or kept in 16 bits? (precision=\"bf16\" allows that)"
    return None


def of_axes(f):
    """A factor that the mesh explains."""
    sizes = {}
    for words, size in f.groups:
        sizes.setdefault(size, []).append(words)
    for size, words in sizes.items():
        over = "".join(words[:1]) + "".join(f", or{more}" for more in words[1:])
        if evidence.is_multiple(f.as_evidence, 1 / size):
            return f"1/{size} of it in every element: a mean{over} where a sum is meant?"
        if evidence.is_multiple(f.as_evidence, size):
            return f"{size} times it in every element: summed{over} where every device has the sum?"
    for size in sizes:
        if size > 1 and evidence.is_multiple(f.as_evidence, 1 / size**2):
            return SAYS["averaged_twice"].format(size**2, size)
    if evidence.is_multiple(f.as_evidence, -1):
        return SAYS["negated"]
    rows = f.case.batch_size
    for factor, text in ((1 / rows, SAYS["averaged_over_batch"].format(rows)),
                         (rows, f"{rows} times it in every element: not divided by the rows of the batch?")):
        if rows > 1 and evidence.is_multiple(f.as_evidence, factor):
            return text
    return None


def of_addends(f):
    """What each device's rows add, as often as it is in the given sum."""
    if not f.is_gradient:
        return None
    counts = dict.fromkeys(size for _, size in f.groups)
    for devices in counts:
        if devices > f.case.batch_size:
            continue
        for how, blocks in f.case.partitions(devices):
            if text := of_partition(f, devices, how, blocks):
                return text
    return rows_of_batch(f)


def of_partition(f, devices, how, blocks):
    """Sums of the devices' addends as wrong versions make them: nothing in them is free."""
    blocks = [(d, rows) for d, rows in enumerate(blocks) if rows]
    addends = [f.case.addend(rows) for _, rows in blocks]
    if any(addend is None for addend in addends):
        return None
    mine = [f.here(addend) for addend in addends]
    over = next(over for over, size in f.groups if size == devices)
    shares = own_shares(f.case, [rows for _, rows in blocks])
    for words, factor in (("their mean", 1 / devices), ("their sum", 1)):
        counts = [factor / share for share in shares]
        if evidence.explains(f.as_evidence, sum_of(counts, mine)):
            return explained(f, own_means(words, over, how), counts, addends)
    for k, (device, rows) in enumerate(blocks if is_of_many_rows(f) else ()):
        whose = f"device {device}'s where {devices} devices divide the rows{over}{how}"
        for cause, mine_counts, others in (("rows_of_device_alone", 1, 0), ("rows_missing", 0, 1), ("rows_twice", 2, 1)):
            counts = [mine_counts if other == k else others for other in range(len(blocks))]
            if evidence.explains(f.as_evidence, sum_of(counts, mine)):
                said = SAYS[cause].format(rows_text(rows), whose)
                return explained(f, said if cause == "rows_of_device_alone" else f"{said}: {whose}", counts, addends)
    return None


def is_of_many_rows(f):
    """Whether rows can be told apart: of an expert, which has few of them, many parts of the batch are the same. A batch
    of two rows has two parts."""
    size = f.case.batch_size
    if not 1 < size <= MOST_ROWS:
        return True
    addends = [f.case.addend([row]) for row in range(size)]
    if any(addend is None for addend in addends):
        return True
    return sum(bool(np.any(f.here(addend))) for addend in addends) >= min(size, LEAST_ROWS)


def sum_of(counts, addends):
    return sum(count * addend for count, addend in zip(counts, addends))


def explained(f, text, counts, addends):
    """Keeps what a cause makes of all gradients: few numbers may not show it, and still agree with it."""
    names = addends[0].keys()
    f.case.explained[text] = {name: sum_of(counts, [addend[name] for addend in addends]) for name in names}
    return text


def own_means(what, over, how):
    said = SAYS["own_means"].format(what)
    return said.replace(" over devices?", over + "?") + how if over.startswith(" over ") else said + how


def own_shares(case, blocks):
    """What a mean over the batch counts each device's own mean."""
    weights = [case.weight(rows) for rows in blocks]
    is_mean = abs(sum(weights) - 1) < 1e-6
    return weights if is_mean else [len(rows) / case.batch_size for rows in blocks]


def near(values, other):
    return bool(np.all(np.abs(np.subtract(values, other)) < 0.02))


def fitted(f, addends):
    """The number of times that each addend is in the given sum; None if it is no such sum, or not determined."""
    limit = 4 * f.limit.ravel() + 2.0**-22 * np.abs(f.want).max(initial=0)
    counts = limit > 0
    parts, given = np.stack([a.ravel() for a in addends], axis=1)[counts], f.given.ravel()[counts]
    if len(given) < len(addends) + 2:
        return None
    weighted = parts / limit[counts, None]
    found, _, rank, size = np.linalg.lstsq(weighted, given / limit[counts], rcond=1e-12)
    if rank < len(addends) or size[-1] < 100:  # a count is known to 1/100
        return None
    off = np.abs(given - parts @ found)
    return found if (off <= limit[counts] * (1 + np.abs(found).max())).all() else None


def rows_of_batch(f):
    """Rows that are missing, alone, or twice in the sum."""
    size = f.case.batch_size
    if not 1 < size <= MOST_ROWS or f.case.addend([0]) is None:
        return None
    addends = [f.case.addend([row]) for row in range(size)]
    found = fitted(f, [f.here(addend) for addend in addends])
    if found is None:
        return None
    for count, cause in ((0, "rows_missing"), (2, "rows_twice"), (1, "rows_alone")):
        rows = [row for row in range(size) if near([found[row]], count)]
        others = [found[row] for row in range(size) if row not in rows]
        if rows and others and near(others, 0 if cause == "rows_alone" else 1):
            return explained(f, SAYS[cause].format(rows_text(rows)), np.round(found), addends)
    return None


def rows_text(rows):
    if len(rows) == 1:
        return f"row {rows[0]}"
    if rows == list(range(rows[0], rows[-1] + 1)):
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {', '.join(map(str, rows))}"


def not_reduced(f):
    """Addends of the mesh's devices, not added up."""
    have = [piece for piece in f.pieces if piece is not None]
    if len(have) != f.devices or any(p.values.shape != f.given.shape or not np.array_equal(p.at, f.pieces[f.device].at)
                                     for p in have):
        return over_one_axis(f)
    total = sum(piece.values for piece in have)
    total = without_copies(f, total, f.devices)
    for other, text in ((total, "an addend: those of all devices add up to it: a reduction left out?"),
                        (total / f.devices, "one of those whose mean over the devices is it: a reduction to the mean "
                                            "left out?")):
        if not evidence.is_close(f.as_evidence, f.given, other) and evidence.is_close(f.as_evidence, other, f.want):
            return text
    return over_one_axis(f)


def without_copies(f, total, count):
    """A sum of addends; of outputs, each may have a parameter, as a bias, that is added behind the sum."""
    if f.name in f.case.params:
        return total
    for name, value in f.case.plain_params.items():
        if value.shape == f.given.shape[-value.ndim:] and value.ndim and \
                evidence.is_close(f.as_evidence, total - (count - 1) * value, f.want):
            return total - (count - 1) * value
    return total


def over_one_axis(f):
    """The same over one axis of a mesh."""
    sizes = tuple(f.mesh.values())
    if len(sizes) < 2:
        return None
    index = np.unravel_index(f.device, sizes)
    for k, axis in enumerate(f.mesh):
        group = [int(np.ravel_multi_index((*index[:k], i, *index[k + 1:]), sizes)) for i in range(sizes[k])]
        mine = [f.pieces[device] for device in group]
        if len(mine) < 2 or any(p is None or not np.array_equal(p.at, f.pieces[f.device].at) for p in mine):
            continue
        total = without_copies(f, sum(piece.values for piece in mine).reshape(f.given.shape), len(mine))
        for other, what in ((total, "add up to it"), (total / len(mine), "have it as their mean")):
            if not evidence.is_close(f.as_evidence, f.given, other) and evidence.is_close(f.as_evidence, other, f.want):
                return f"an addend: those over {axis} {what}: a reduction over {axis} left out?"
    return None


def other_slice(f):
    """What another device should have."""
    mine = f.pieces[f.device].at
    for device, piece in enumerate(f.pieces):
        if piece is None or piece.at.shape != mine.shape or np.array_equal(piece.at, mine):
            continue
        other, limit = (of[f.name].ravel()[piece.at] for of in (f.case.results, f.case.limits))
        is_other = np.abs(other - f.want) > 4 * (limit + f.limit)
        if np.count_nonzero(is_other) > 3 and (np.abs(f.given - other) <= 4 * limit).all():
            return SAYS["other_slice"].format(device, f.device)
    return None


def copies_differ(f):
    """Replicas that are not the same, of which one is right."""
    mine = f.pieces[f.device]
    for device, piece in enumerate(f.pieces):
        if piece is None or device == f.device or mine.sum is not None or not np.array_equal(piece.at, mine.at):
            continue
        if (np.abs(piece.values.reshape(f.given.shape) - f.want) <= f.limit).all():
            return f"devices {device} and {f.device} have different copies, and device {device}'s is right"
    return None


def all_copies_differ(f):
    """Replicas that are not the same, of which none is right."""
    mine = f.pieces[f.device]
    for device, piece in enumerate(f.pieces):
        if piece is None or device == f.device or mine.sum is not None or not np.array_equal(piece.at, mine.at):
            continue
        if (np.abs(piece.values.reshape(f.given.shape) - f.given) > 4 * f.limit + 2.0**-20 * np.abs(f.want)).any():
            return SAYS["different_copies"].format(*sorted((device, f.device)))
    return None


def of_training(f):
    """What steps with wrong gradients give."""
    if not f.case.optimizer:
        return None
    for text, results in trainings(f.case, tuple(f.groups)):
        if evidence.explains(f.as_evidence, f.here(results)):
            return text
    return None


def trainings(case, groups):
    """[(cause, results)] of wrong versions, trained once."""
    made = case.explained
    for text, wrong in wrong_gradients(case, groups):
        if text not in made:
            made[text] = case.ran(case.batches, wrong=wrong)[0]
        yield text, made[text]


def wrong_gradients(case, groups):
    def scaled(factor):
        return lambda step, grads, params, batch: {name: value * factor for name, value in grads.items()}

    def stale(step, grads, params, batch):
        before = kept.get(step - 1)
        kept[step] = grads
        return grads if before is None else before

    def summed(step, grads, params, batch):
        kept[step] = grads if step == 0 else {name: value + kept[step - 1][name] for name, value in grads.items()}
        return kept[step]

    def of_parts(coefficients, blocks):
        def gradients(step, grads, params, batch):
            found = [case.reference(params, case.of_rows(rows, batch)) for rows in blocks]
            return {name: sum(c * part[name] for c, part in zip(coefficients, found)) for name in grads}
        return gradients
    kept = {}
    yield "gradients of the step before: a stale bucket?", stale
    yield "gradients of all steps added up: not set to 0?", summed
    for (words, devices), factor in itertools.product(groups, (False, True)):
        yield (f"every gradient {devices} times it: summed{words} where every device has the sum?", scaled(devices)) if factor \
            else (f"every gradient 1/{devices} of it: a mean{words} where a sum is meant?", scaled(1 / devices))
    for words, devices in groups:
        for how, blocks in case.partitions(devices) if devices <= case.batch_size else ():
            weights = [case.weight(rows) for rows in blocks]
            if any(weight is None for weight in weights):
                continue
            shares = own_shares(case, blocks)
            if np.ptp(shares) > 1e-9:
                yield own_means("their mean", words, how), \
                    of_parts([w / share / devices for w, share in zip(weights, shares)], blocks)
            for d in range(devices):
                rest = [(w, rows) for k, (w, rows) in enumerate(zip(weights, blocks)) if k != d]
                yield f"every gradient the addend of device {d}'s rows alone: not reduced{words}?{how}", \
                    of_parts([weights[d]], [blocks[d]])
                if devices > 2:
                    yield f"device {d}'s addend is missing from every gradient{how}", of_parts(*zip(*rest))


def carried_over(case, name, cause, pieces):
    """Whether the cause of other tensors explains these pieces, too, which are too few numbers, or differ little."""
    other = case.explained.get(cause, {}).get(name)
    if other is None:
        return False
    growth = max(1, np.abs(other).max(initial=0) / (np.abs(case.results[name]).max(initial=0) or 1))
    return all((np.abs(piece.values - other.ravel()[at]) <= 4 * growth * case.limits[name].ravel()[at]).all()
               for piece, at in ((piece, piece.at if piece.at is not None else np.arange(other.size).reshape(other.shape))
                                 for piece in pieces if piece is not None)
               if piece.values.shape == at.shape)


RULES = (of_problems(causes.not_finite), of_problems(causes.zero), in_16_bits, of_training, of_axes, not_reduced, of_addends,
         other_slice, of_problems(causes.transposed), of_problems(causes.shifted), of_problems(causes.reordered),
         copies_differ, of_problems(causes.wrong_scale), all_copies_differ)
