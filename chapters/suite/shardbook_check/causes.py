"""The likely cause of a difference: the first rule that fits."""
from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from .causes_of_sharding import (axes_with_copies, different_copies, factors_in_training, norms_of_some,
                                 not_reduced_along_an_axis, other_weights, reduced_in_16_bits, sums_of_slices,
                                 would_be_right_in_16_bits)
from .causes_of_programs import (another_balance, another_program, answers_of_others, at_a_point, lost_choices, never_updated,
                                 other_gates, other_numbers, rows_that_count_otherwise, tokens_that_count_otherwise)
from .evidence import Evidence, explains, is_about, is_close, is_multiple, is_nearly  # own/reasons.py takes them from here
from .problems.files import rounded
from .problems.kinds import TOKENS, after
from .wrong_versions import SAYS, mistakes, mistakes_with_rows


def diagnose(e):
    """The likely cause: the first rule that fits."""
    for rule in RULES:
        try:
            text = rule(e)
        except Exception as error:  # a mistake of a rule costs that rule, and no verdict
            e.failed.append(f"a rule failed: {rule.__name__} of {e.name}: {type(error).__name__}: {error}")
            text = None
        if text:
            return text
    return SAYS["unknown"]


def not_finite(e):
    if not np.isfinite(e.given).all():
        return SAYS["not_finite"]


def zero(e):
    """A product with 0 has the sign that the other factor had."""
    if not np.any(e.given):
        if never_reduced(e) in (SAYS["never_summed"], SAYS["never_summed_or_before"]):
            return SAYS["zero_addend"]
        has_signs = (e.want < 0).any() and np.array_equal(np.signbit(e.given), e.want < 0)
        return SAYS["times_zero" if has_signs else "zero"]


def scaled(e):
    n, rows = e.devices, e.problem.rows
    for factor, text in (*e.problem.wrong_means, *factors_of_axes(e), (-1, SAYS["negated"]), (1 / n, SAYS["averaged"].format(n)),
                         (n, SAYS["counted_n_times"].format(n, ", or a wrong scale" * (n == 2))),
                         (1 / rows, SAYS["averaged_over_batch"].format(rows)), (1 / n**2, SAYS["averaged_twice"].format(n**2, n))):
        if is_multiple(e, factor):
            return text + gates_of_a_half(e, factor)


def gates_of_a_half(e, factor):
    """All gates of exact mixtures with two choices are 1/2, so that a factor may be one."""
    if e.problem.workload != "mixture" or e.problem.kind != "exact" or e.problem.top_k != 2 or e.name == "router/weights":
        return ""
    return {2: " Or gates, 1/2, forgotten?", 0.5: " Or gates, 1/2, multiplied twice?"}.get(factor, "")


def factors_of_axes(e):
    """(factor, cause) of the axes of a mesh on which every device has this tensor."""
    for size, words in axes_with_copies(e):
        yield 1 / size, SAYS["averaged_over_axis"].format(size, words)
        yield size, SAYS["counted_over_axis"].format(size, words, ", or a wrong scale" * (size == 2))


def in_16_bits(e):
    for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
        with np.errstate(over="ignore"):
            other = rounded(e.want, to)
        if is_nearly(e, other):
            return SAYS["rounded"].format(name)


def previous_step(e):
    if e.problem.is_training and explains(e, e.after(misses_step=True)):
        return SAYS["previous_step"]


def one_addend(e):
    """The rows of one device. Only the rows are certain: they may be left out for another reason than their device."""
    return rows_of_devices(e, (("rows_alone", 0),))


def rows_of_devices(e, causes):
    """Of a mixture an expert has few tokens, so other rows may be the same: those that explain most pieces count."""
    best, most = None, 0
    for device, (begin, end), addend in e.device_addends():
        for cause, sign in causes:
            if not explains(e, e.want + sign * addend if sign else addend):
                continue
            fits = fits_of_rows(e, (begin, end), sign) if is_sparse(e) else 1
            if fits > most:
                best, most = which_of_device(cause, (begin, end), f"those of device {device}"), fits
    if best and is_sparse(e):
        rows = itertools.combinations(range(e.problem.batch_size + 1), 2)
        if any(fits_of_rows(e, of, sign) > most for of in rows for _, sign in causes):
            return None
    return best


def is_sparse(e):
    return e.problem.workload == "mixture" and e.name.startswith("expert")


def fits_of_rows(e, rows, sign):
    """How many pieces of experts are right but for these rows."""
    other, count = after(e.problem, rows=rows), 0
    for name, (pieces, slices, bound) in e.results.items() if other else ():
        if not name.startswith("expert"):
            continue
        want = e.problem.expected[name]
        whole = e.as_arranged(name, want + sign * other[name] if sign else other[name])
        count += sum(piece is not None and piece.shape == whole[here].shape and
                     bool((np.abs(piece - whole[here]) <= 8 * bound[here] + 2.0**-20 * np.abs(piece)).all())
                     for piece, here in zip(pieces, slices))
    return count


def which_of_device(cause, rows, whose):
    which = rows_words(*rows)
    return SAYS["rows_of_device_alone"].format(which, whose) if cause == "rows_alone" else f"{SAYS[cause].format(which)}: {whose}"


def rows_words(begin, end):
    return f"row {begin}" if end == begin + 1 else f"rows {begin} to {end - 1}"


def micro_batches(e):
    """One micro-batch alone, or each sum scaled before the next one is added. Where their number is not known, several
    are tried: but in rows_alone's words, as any program may have such rows."""
    if e.micro_batches is None and is_sparse(e):  # an expert's few tokens are many parts of the batch
        return None
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
    has_own = len(e.pieces) == e.devices and all(piece is not None for piece in e.pieces)
    is_same = has_own and all(np.array_equal(piece, e.pieces[0]) for piece in e.pieces)
    for device in range(e.devices) if not is_same else ():  # a reduction was left out: each device has its own
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
    """A decoder's gradient is an addend, too, where the dL/dx that it comes from is one."""
    pieces = [p for p, here in zip(e.pieces, e.slices) if here == e.slices[e.device]]  # of those that should be the same
    if len(pieces) > 1 and len(e.pieces) == len(e.slices) and all(p is not None and p.shape == e.given.shape for p in pieces):
        total = sum(pieces)
        if not is_close(e, e.given, total) and is_close(e, total, e.want):
            return SAYS["never_summed_or_before" if e.problem.workload in TOKENS else "never_summed"]
        if not is_close(e, e.given, total) and is_close(e, total / len(pieces), e.want) and \
                any((np.abs(piece - e.given) > 4 * e.limit + 2.0**-20 * np.abs(e.want)).any() for piece in pieces):
            return "one of those whose mean over the devices is it: a reduction to the mean left out?"


def averaged_over_own_rows(e):
    """The sum of the devices' addends, where each is divided by the number of the device's rows, times a factor."""
    addends = e.device_addends(may_be_gathered=True)
    if len({end - begin for _, (begin, end), _ in addends}) > 1:
        total = sum(addend / (end - begin) for _, (begin, end), addend in addends)
        if np.count_nonzero(total) < len(addends) + 2:  # one factor is free
            return
        total = total * (e.given * total).sum() / (total * total).sum()
        # Both the factors and the addends are rounded.
        if np.abs(e.given - total).max() <= 2.0**-20 * np.abs(total).max() < np.abs(e.want - total).max():
            return SAYS["averaged_over_own_rows"]


def off_by_addend(e):
    return rows_of_devices(e, (("rows_missing", -1), ("rows_twice", 1)))


def off_by_rows(e):
    rows = e.problem.batch_size
    addends = [e.addend((row, row + 1)) for row in range(rows)]
    if any(addend is None for addend in addends):
        return None
    sums = np.cumsum([np.zeros_like(e.want), *addends], axis=0)
    best, most = None, 0
    for begin, end in sorted(itertools.combinations(range(rows + 1), 2), key=lambda pair: pair[1] - pair[0]):
        if end - begin == rows:
            break
        alone = sums[end] - sums[begin]
        for other, cause, sign in ((e.want - alone, "rows_missing", -1), (alone, "rows_alone", 0),
                                   (e.want + alone, "rows_twice", 1)):
            if explains(e, other):
                said = SAYS[cause].format(rows_words(begin, end))
                if not is_sparse(e):
                    return said
                fits = fits_of_rows(e, (begin, end), sign)
                best, most = (said, fits) if fits > most else (best, most)
    return best


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


def other_of_equals(e):
    """An exact mixture in which tokens go to other ones of equally likely experts. The output shows to which."""
    if e.problem.workload != "mixture" or e.problem.kind != "exact" or "output" not in e.results or \
            e.problem.top_k > 1 or e.problem.capacity_factor != "none":
        return None
    pieces, slices, _ = e.results["output"]
    given = np.full(e.problem.expected["output"].shape, np.nan)
    for piece, here in zip(pieces, slices):
        if piece is not None and len(pieces) == len(slices):
            given[here] = piece
    logits = e.problem.batch["input"] @ e.problem.params["router/weights"]
    equal = [np.flatnonzero(row == row.max()) for row in logits]
    versions = [tuple((int(experts[min(k, len(experts) - 1)]),) for experts in equal) for k in range(max(map(len, equal)))]
    outputs = [after(e.problem, chosen=chosen)["output"] for chosen in versions]
    fits = np.array([(output == given).all(axis=1) for output in outputs])  # (versions, tokens)
    if fits.any(axis=0).all():
        chosen = tuple(versions[k][token] for token, k in enumerate(fits.argmax(axis=0)))
        if explains(e, e.after(chosen=chosen)):
            return SAYS["other_of_equals"]


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
        if abs(factor - 1) > 2.0**-10 and is_multiple(e, factor):
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
    """The wrong version that explains this piece and most of the other pieces. If several explain all, two are named."""
    likeliest_text, most, same = None, -1, []
    of_axes = [mistakes_with_rows(e.problem, size, False) for size in sorted(set(e.mesh)) if 1 < size < e.devices and
               e.problem.is_training]
    for text, mistake in itertools.chain(*of_axes, mistakes(e.problem, e.devices)):
        other = e.after(**mistake)
        if explains(e, other) or mistake.get("rounds") and other is not None and is_nearly(e, other):
            fits = e.pieces_like(**mistake)
            if all(fits) and e.problem.workload not in ("mixture", *TOKENS):
                return text
            if all(fits) and text not in same:
                same.append(text)
            if sum(fits) > most and e.given.size > 3:  # among so many versions, one explains a few elements by chance
                likeliest_text, most = text, sum(fits)
    return f"{same[0][:-1]}; or {same[1]}" if len(same) > 1 else same[0] if same else likeliest_text


RULES = (not_finite, other_of_equals, zero, scaled, in_16_bits, previous_step, never_updated, one_addend, share_of_device, never_reduced,
         off_by_addend, micro_batches, off_by_rows, transposed, other_slice, log_off, shifted, reordered,
         sums_of_slices, factors_in_training, answers_of_others, another_computation, another_balance,
         lost_choices, other_gates, at_a_point, tokens_that_count_otherwise, other_weights, norms_of_some, not_reduced_behind,
         not_reduced_along_an_axis, another_program, other_numbers, wrong_scale, averaged_over_own_rows,
         rows_that_count_otherwise, reduced_in_16_bits,
         different_copies, would_be_right_in_16_bits)
