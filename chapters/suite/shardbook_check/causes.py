"""The likely cause of a difference: the first rule that fits."""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .layouts import OF_ROWS
from .problems.bounded import part
from .problems.files import rounded
from .problems.kinds import TOKENS, Problem, after
from .wrong_versions import SAYS, mistakes


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

    @property
    def pieces(self):
        return self.results[self.name][0]

    def after(self, **mistake):
        """This piece as a wrong version would compute it, or None."""
        found = after(self.problem, **mistake)
        return found[self.name][self.slices[self.device]] if found else None

    def pieces_like(self, **mistake):
        """For each known piece of all results so far: whether a wrong version would compute it, too."""
        wholes = after(self.problem, **mistake)
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
        """(device, number of its rows, their addend), of the devices that divide the rows, or that may have done so."""
        rows = self.rows_by_device or {}
        if may_be_gathered and self.rows_by_device is None:
            rows = {d: part(self.problem.batch_size, self.devices, d) for d in range(self.devices)}
        found = [(device, end - begin, self.addend((begin, end))) for device, (begin, end) in rows.items()
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


def diagnose(e):
    """The likely cause: the first rule that fits."""
    for rule in RULES:
        if text := rule(e):
            return text
    return SAYS["unknown"]


def is_close(e, given, other):
    """Whether two arrays are the same within the bound, and not all 0."""
    if given.shape != other.shape or not np.any(other):
        return False
    slack = e.limit if e.limit.shape == given.shape else e.limit.max(initial=0)
    largest = np.abs(e.want).max(initial=0)
    # A larger result has a larger error.
    growth = max(1, np.abs(other).max() / largest) if largest else 1
    rounding = 2.0**-22 * np.abs(other) if e.limit.any() else 0
    return bool((np.abs(given - other) <= 4 * growth * slack + rounding).all())


def explains(e, other):
    """Whether the given piece is `other`, and not the expected one. Of many explanations, one may agree with a single
    element by chance, so they must differ in two, unless the result is a single real number."""
    return other is not None and is_close(e, e.given, other) and not is_close(e, other, e.want) and \
        np.count_nonzero(np.abs(other - e.want) > 4 * e.limit) >= needed(e)


def needed(e):
    return 1 if e.want.size == 1 and e.problem.kind != "exact" else 2


def not_finite(e):
    if not np.isfinite(e.given).all():
        return SAYS["not_finite"]


def zero(e):
    """A product with 0 has the sign that the other factor had."""
    if not np.any(e.given):
        has_signs = (e.want < 0).any() and np.array_equal(np.signbit(e.given), e.want < 0)
        return SAYS["times_zero" if has_signs else "zero"]


def scaled(e):
    n, rows = e.devices, e.problem.rows
    for factor, text in (*e.problem.wrong_means, (-1, SAYS["negated"]), (1 / n, SAYS["averaged"].format(n)),
                         (n, SAYS["counted_n_times"].format(n, ", or a wrong scale" * (n == 2))),
                         (1 / rows, SAYS["averaged_over_batch"].format(rows))):
        if is_multiple(e, factor):
            return text


def in_16_bits(e):
    for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
        with np.errstate(over="ignore"):
            other = rounded(e.want, to)
        if is_nearly(e, other):
            return SAYS["rounded"].format(name)


def is_nearly(e, other):
    """Whether `other` explains all but an eighth of the difference. In another order of a sum,
    some elements are rounded differently."""
    by = other - e.want
    if by.size < 4 or not np.isfinite(by).all():  # few numbers agree by chance
        return False
    return np.linalg.norm(by) > 8 * np.linalg.norm(e.limit) and np.linalg.norm(e.given - other) <= np.linalg.norm(by) / 8


def is_multiple(e, factor):
    slack = 4 * max(1, abs(factor)) * e.limit + 2.0**-22 * np.abs(e.want)  # a third of it may be rounded
    is_other = np.abs(factor - 1) * np.abs(e.want) > slack
    return np.count_nonzero(is_other) >= needed(e) and (np.abs(e.given - factor * e.want) <= slack).all()


def previous_step(e):
    if e.problem.is_training and explains(e, e.after(misses_step=True)):
        return SAYS["previous_step"]


def one_addend(e):
    for device, _, addend in e.device_addends():
        if explains(e, addend):
            return SAYS["one_addend"].format(device)


def micro_batches(e):
    """One micro-batch alone, or each sum scaled before the next one is added. Where their number is not known, several
    are tried: but in rows_alone's words, as any program may have such rows."""
    each = " of each device" * bool(e.rows_by_device)
    counts = range(2, min(e.problem.rows, MOST_PIECES) + 1) if e.micro_batches is None else [e.micro_batches]
    for count in counts:
        if count < 2 or not (pieces := e.pieces_of(count)):
            continue
        for cause, sign in (("one_piece", 0), ("piece_missing", -1), ("piece_twice", 1)):
            for k, addend in enumerate(pieces if e.micro_batches or each else ()):
                if explains(e, e.want + sign * addend if sign else addend):
                    return SAYS[cause].format(ordinal(k, count), each)
        for n in {e.devices, count} - {1}:
            for factor, last in ((n, 1), (1 / n, 1), (1 / n, 1 / n)):
                if (factor < 1 or n == e.devices) and any(is_about(e, last * with_factor(order, factor))
                                                          for order in (pieces, pieces[::-1])):
                    return SAYS["multiplied_with_each_piece" if factor > 1 else "divided_with_each_piece"].format(n)


MOST_PIECES = 6


def ordinal(k, count):
    return "first" if k == 0 else "last" if k + 1 == count else f"{k + 1}{({2: 'nd', 3: 'rd'}).get(k + 1, 'th')}"


def is_about(e, other):
    """Whether the given piece is `other` up to some roundings of the largest element, and not the expected one."""
    slack = 2.0**-20 * np.abs(other).max(initial=0)
    return slack > 0 and (np.abs(e.given - other) <= slack).all() and \
        np.count_nonzero(np.abs(other - e.want) > slack) >= needed(e)


def with_factor(pieces, factor):
    """A sum that is multiplied by a factor before each next addend."""
    total = 0
    for piece in pieces:
        total = factor * total + piece
    return total


def share_of_device(e):
    """A decoder's parameter that every device has: its gradient is the share of one device."""
    if e.problem.workload not in TOKENS or e.devices == 1:
        return None
    last = e.name.split("/")[-1]
    for device in range(e.devices):
        mine = {"devices": e.devices, "device": device}
        may_be_shared = last in ("key", "value") and e.problem.workload == "decoder"
        if may_be_shared and explains(e, e.after(forgets="other queries", **mine)):
            return f"what the query heads of device {device} add to it: key-value heads that devices " \
                   "share, not summed over these?"
        if "norm" in last and any(explains(e, e.after(forgets=f"{which} of norms", **mine))
                                  for which in ("rows", "positions")):
            return f"what the tokens of device {device} add to it: a norm's gradient not summed over " \
                   "devices that divide the tokens?"


def never_reduced(e):
    if len(e.pieces) > 1 and all(p is not None and p.shape == e.given.shape for p in e.pieces):
        total = sum(e.pieces)
        if not is_close(e, e.given, total) and is_close(e, total, e.want):
            return "an addend: those of all devices add up to it: a reduction left out?"
        if not is_close(e, e.given, total) and is_close(e, total / len(e.pieces), e.want):
            return "one of those whose mean over the devices is it: a reduction to the mean left out?"


def averaged_over_own_rows(e):
    """The sum of the devices' addends, where each is divided by the number of the device's rows, times a factor."""
    addends = e.device_addends(may_be_gathered=True)
    if len({rows for _, rows, _ in addends}) > 1:
        total = sum(addend / rows for _, rows, addend in addends)
        if np.count_nonzero(total) < len(addends) + 2:  # one factor is free
            return
        total = total * (e.given * total).sum() / (total * total).sum()
        # Both the factors and the addends are rounded.
        if np.abs(e.given - total).max() <= 2.0**-20 * np.abs(total).max() < np.abs(e.want - total).max():
            return SAYS["averaged_over_own_rows"]


def off_by_addend(e):
    for device, _, addend in e.device_addends():
        for sign, cause in ((-1, "addend_missing"), (1, "addend_twice")):
            if explains(e, e.want + sign * addend):
                return SAYS[cause].format(device)


def off_by_rows(e):
    rows = e.problem.batch_size
    addends = [e.addend((row, row + 1)) for row in range(rows)]
    if any(addend is None for addend in addends):
        return None
    sums = np.cumsum([np.zeros_like(e.want), *addends], axis=0)
    for begin, end in sorted(itertools.combinations(range(rows + 1), 2), key=lambda pair: pair[1] - pair[0]):
        which = f"row {begin}" if end == begin + 1 else f"rows {begin} to {end - 1}"
        if end - begin == rows:
            return None
        alone = sums[end] - sums[begin]
        for other, cause in ((e.want - alone, "rows_missing"), (alone, "rows_alone"),
                             (e.want + alone, "rows_twice")):
            if explains(e, other):
                return SAYS[cause].format(which)


def transposed(e):
    if e.given.ndim == 2 and (explains(e, e.want.T) or explains(e, e.whole.T)):
        return SAYS["transposed"]


def other_slice(e):
    """Slices may have different lengths: as many indices as are given, from where the other slice begins."""
    for device, here in enumerate(e.slices):
        if device == e.device or len(here) != e.given.ndim or here == e.slices[e.device]:
            continue
        other = e.whole[tuple(slice(s.start, s.start + n) for s, n in zip(here, e.given.shape))]
        common = tuple(slice(0, n) for n in other.shape)
        if 2 * other.size > e.given.size and other.size and \
                explains(replace(e, given=e.given[common], want=e.want[common], limit=e.limit[common]), other):
            return SAYS["other_slice"].format(device, e.device)


def log_off(e):
    """Losses that differ by the logarithm of a number of devices, as if a softmax's sum were counted so often. Those of
    an exact problem are logarithms to base 2, rounded to the grid."""
    if e.name not in ("loss", "losses") or e.devices == 1:
        return None
    is_exact, off = e.problem.kind == "exact", e.given - e.want
    counts = (e.given != 0) | (e.want != 0)
    slack = e.problem.grid["unit"] if is_exact else 4 * e.limit[counts] + 2.0**-22 * np.abs(e.want[counts])
    if np.count_nonzero(counts) < (3 if is_exact else 1):
        return None
    for n in (n for n in range(2, e.devices + 1) if e.devices % n == 0):
        log = math.log2(n) if is_exact else math.log(n)
        for cause, by in (("log_more", log), ("log_less", -log)):
            if (np.abs(off[counts] - by) <= slack).all():
                return SAYS[cause].format(n)


def shifted(e):
    for axis, words in enumerate((("row", "down", "up"), ("column", "right", "left"))[:e.given.ndim]):
        size = e.given.shape[axis]
        for shift in (s for k in range(1, size // 2 + 1) for s in (k, -k)):
            given = np.take(e.given, range(max(shift, 0), size + min(shift, 0)), axis)
            want = np.take(e.want, range(max(-shift, 0), size + min(-shift, 0)), axis)
            slack = e.limit.max(initial=0)
            if np.any(want) and (np.abs(given - want) <= 4 * slack).all():
                k = abs(shift)
                return SAYS["shifted"].format(k, words[0] + "s" * (k != 1), words[1 if shift > 0 else 2])


def reordered(e):
    for axis, words in enumerate(("rows", "columns")[:e.given.ndim]):
        given, want = np.moveaxis(e.given, axis, 0), np.moveaxis(e.want, axis, 0)
        off = np.abs(given[:, None] - want[None]).reshape(len(given), len(given), -1).max(axis=2, initial=0)
        is_same = off <= 4 * e.limit.max(initial=0)
        is_noise = is_same.diagonal().all()  # every row is near its expected one
        is_other = is_same.any(axis=0).all() and is_same.any(axis=1).all() and not is_noise
        differing = np.count_nonzero(~(np.abs(given - want) <= e.limit.max(initial=0)))
        if is_other and len(np.unique(want, axis=0)) > 1 and differing > 3:
            return SAYS["reordered"].format(words)


def wrong_scale(e):
    if np.count_nonzero(e.want) > 3:  # fewer elements agree by chance
        factor = (e.given * e.want).sum() / (e.want * e.want).sum()
        if is_multiple(e, factor):
            return SAYS["scaled"].format(f"{factor:.4g}")


def not_reduced_behind(e):
    """A tensor parallel mlp: dL/dx of a block behind is that of the device's own hidden units, not reduced."""
    if e.problem.workload != "mlp" or e.problem.is_training or e.devices == 1 or e.problem.layers < 3:
        return None
    mine = {"forgets": "dx_not_reduced", "devices": e.devices}
    if e.name != "input_grad":
        other = e.after(**mine, device=e.device)
    else:
        other = sum(e.after(**mine, device=device) for device in range(e.devices))
    if explains(e, other):
        return SAYS["dx_not_reduced"]


def another_computation(e):
    """The wrong version that explains this piece and most of the other pieces."""
    likeliest_text, most = None, -1
    for text, mistake in mistakes(e.problem, e.devices):
        other = e.after(**mistake)
        if explains(e, other) or mistake.get("rounds") and other is not None and is_nearly(e, other):
            fits = e.pieces_like(**mistake)
            if all(fits):
                return text
            if sum(fits) > most:
                likeliest_text, most = text, sum(fits)
    return likeliest_text


RULES = (not_finite, zero, scaled, in_16_bits, previous_step, one_addend, share_of_device, never_reduced,
         off_by_addend, micro_batches, off_by_rows, transposed, other_slice, log_off, shifted, reordered,
         another_computation, not_reduced_behind, wrong_scale, averaged_over_own_rows)
