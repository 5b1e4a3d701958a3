"""Causes that a simulated program shows: the whole step with one thing done otherwise (problems/simulated.py); and
numbers, as how often each row counts, that are fitted to what is given."""
from fractions import Fraction

import numpy as np

from .causes_of_sharding import axis_names
from .evidence import explains, is_nearly
from .problems.kinds import Problem
from .problems.programs import as_text, programs
from .problems.simulated import Program, run, simulated

LEAST = 4  # elements that must differ: among so many programs, one explains fewer by chance


def can_be_simulated(e):
    p = e.problem
    return isinstance(p, Problem) and p.workload == "mlp" and p.layers % 2 == 0 < p.layers and e.given.size > LEAST


def here(e, results):
    """This piece of a simulated program's results."""
    whole = e.as_arranged(e.name, results[e.name])
    return whole[e.slices[e.device]]


def at_program(e, program):
    return here(e, simulated(e.problem, program))


def never_updated(e):
    """A parameter as it was before the first step."""
    if e.problem.is_training and e.name in getattr(e.problem, "params", ()):
        first = e.as_arranged(e.name, e.problem.params[e.name])[e.slices[e.device]]
        if explains(e, first):
            return "as before the first step: never updated, or not gathered after a step?"
    return None


def another_program(e):
    """The program that explains this piece, and most of the pieces before it; of two that are as good, both are named."""
    if not can_be_simulated(e):
        return None
    fits = {}
    for text, program in programs(e.problem, tuple(axes(e)), e.device):
        other = at_program(e, program)
        if other.shape == e.given.shape and np.count_nonzero(np.abs(other - e.want) > 4 * e.limit) >= LEAST and \
                (is_explained(e, other) or is_rounding(program) and is_nearly(e, other)):
            fits[text] = max(fits.get(text, 0), pieces_like(e, program))
    best = [text for text in fits if fits[text] == max(fits.values())]
    return " or ".join(text.rstrip("?") for text in best) + "?" if 0 < len(best) <= 2 else None


def is_explained(e, other):
    """Within the bounds, and all but a 16th of the difference: bounds of training are wide."""
    return explains(e, other) and np.linalg.norm(e.given - other) <= np.linalg.norm(e.given - e.want) / 16


def is_rounding(program):
    return program.bits or program.keeps or program.sums in ("BF16", "F16")


def pieces_like(e, program):
    """How many of the pieces of the devices that compute the same, of the results so far, the program explains."""
    results, count = simulated(e.problem, program), 0
    for name, (pieces, slices, bound) in e.results.items():
        whole = e.as_arranged(name, results[name])
        for device, (piece, at) in enumerate(zip(pieces, slices)):
            if piece is not None and (device == e.device or not program.sums) and piece.shape == whole[at].shape:
                slack = 8 * bound[at] + (2.0**-7 if is_rounding(program) else 2.0**-20) * np.abs(piece)
                count += bool((np.abs(piece - whole[at]) <= slack).all())
    return count


def axes(e):
    """(number of devices, this one's place, name) of the mesh's axes, and of all devices."""
    found = {e.devices: (e.device, "all devices")}
    if len(e.mesh) > 1:
        places = map(int, np.unravel_index(e.device, tuple(e.mesh)))
        found.update((size, (place, name)) for size, place, name in zip(e.mesh, places, axis_names(e)))
    return [(size, *of) for size, of in found.items() if size > 1]


# ---- Numbers that are fitted ------------------------------------------------------------------------------------------
def other_numbers(e):
    """Another factor of every gradient, another value of the optimizer, or a factor of each layer's gradient. Of those
    that fit, all are named."""
    if not can_be_simulated(e):
        return None
    best = []
    for text, right, program in scalars(e.problem) if e.problem.is_training else ():
        if (found := of_one(e, right, program)) is not None:
            best.append(text.format(as_text(found) if right == 1 else f"{found:.4g} for {right:.4g}"))
    if best:
        return " or ".join(best) + "?" if len(best) <= 3 else None
    if e.problem.is_training and (found := fitted(e, np.ones(e.problem.layers), layers_times)) is not None:
        if np.ptp(found) <= 1e-3:
            return f"every gradient times {as_text(found[0])}?"
        factors = [f"layer {layer} times {as_text(c)}" for layer, c in enumerate(found) if abs(c - 1) > 1e-3]
        return "the gradient of " + " and of ".join(factors) + "?"
    return None


def rows_that_count_otherwise(e):
    if not can_be_simulated(e):
        return None
    found = fitted(e, np.ones(e.problem.batch_size), rows_times) if is_sum_of_rows(e) else None
    return None if found is None or np.ptp(found) <= 1e-3 else rows_text(found)


def layers_times(factors):
    return Program(layers=tuple(factors))


def rows_times(factors):
    return Program(rows=tuple(factors))


def is_sum_of_rows(e):
    return e.problem.is_training or e.addend((0, 1)) is not None


def scalars(problem):
    """(text, the right value, program of a value)"""
    yield "every gradient times {}", 1.0, lambda s: Program(layers=(s,) * problem.layers)
    def of_setting(name):
        return lambda s: Program(settings=((name, s),))
    yield "the learning rate {}", problem.learning_rate, of_setting("learning_rate")
    yield "weight decay {}", 0.0, lambda s: Program(decay=s)
    if problem.clip_norm:
        yield "clipped gradients {} times: another limit, or another norm", 1.0, \
            lambda s: Program(settings=(("clip_norm", s * problem.clip_norm),))
    if problem.kind == "adam":
        yield "Adam's epsilon {}", problem.epsilon, of_setting("epsilon")
        first, second = problem.betas
        yield "Adam's first beta {}", first, lambda s: Program(settings=(("betas", (s, second)),))
        yield "Adam's second beta {}", second, lambda s: Program(settings=(("betas", (first, s)),))


STARTS = (1.0, 0.5, 2.0, 0.25, 4.0, 0.0)  # times the right value


def of_one(e, right, program):
    def off(start):
        other = here(e, run(e.problem, program(start)))
        return np.abs(e.given - other).sum() if np.isfinite(other).all() else np.inf
    for start in sorted((right * times if right else times / 32 for times in STARTS), key=off)[:2]:
        if (found := fitted(e, [start], lambda values: program(float(values[0])), right)) is not None:
            return float(found[0])
    return None


def fitted(e, start, program, right=1.0):
    """The numbers with which the program makes this piece: Gauss-Newton. None if it does not, or if they are not
    determined by more elements than there are numbers."""
    values, last = np.array(start, float), np.inf
    if np.count_nonzero(e.want) < len(values) + 8:
        return None
    with np.errstate(all="ignore"):
        for _ in range(10):
            at = here(e, run(e.problem, program(values)))
            if not np.isfinite(at).all() or at.shape != e.given.shape:
                return None
            if agrees(e, at):
                break
            if np.linalg.norm(e.given - at) > 0.8 * last:
                return None
            last = np.linalg.norm(e.given - at)
            steps = 1e-5 * np.maximum(np.abs(values), 1e-2)
            slopes = [(here(e, run(e.problem, program(values + h * one))) - at).ravel() / h
                      for h, one in zip(steps, np.eye(len(values)))]
            change, _, rank, sizes = np.linalg.lstsq(np.stack(slopes, 1), (e.given - at).ravel(), rcond=1e-9)
            if rank < len(values) or not np.isfinite(change).all():
                return None
            values = values + change * longest(e, values, change, program)
    nice = np.array([snapped(v) for v in values])
    values = nice if agrees(e, here(e, run(e.problem, program(nice)))) else values
    found = here(e, run(e.problem, program(values)))
    is_other = (np.abs(values - right) > 1e-3 * max(abs(right), 0.1)).any()
    return values if is_other and agrees(e, found) and is_explained(e, found) else None


def agrees(e, other):
    """Up to some roundings: bounds are wide, and numbers that are free reach into them."""
    largest = max(np.abs(e.want).max(initial=0), np.abs(other).max(initial=0))
    return (np.abs(e.given - other) <= 2.0**-21 * largest).all()


def longest(e, values, change, program):
    """The share of a step that brings the program nearer."""
    def off(share):
        other = here(e, run(e.problem, program(values + share * change)))
        return np.linalg.norm(e.given - other) if np.isfinite(other).all() else np.inf
    return next((share for share in (1, 0.5, 0.25, 0.125) if off(share) < off(0)), 1)


def snapped(value):
    near = Fraction(value).limit_denominator(64)
    return float(near) if abs(near - value) < 1e-4 * max(1, abs(value)) else value


def rows_text(counts):
    """In how many ways rows count; None if there are too many to be said."""
    groups = {}
    for row, count in enumerate(counts):
        groups.setdefault(snapped(count), []).append(row)
    words = [which(of) + {0: " never", 2: " twice"}.get(value, f" {as_text(value)} times")
             for value, of in groups.items() if abs(value - 1) > 1e-3]
    return "rows of the batch count otherwise: " + ", ".join(words) if len(words) <= 4 else None


def which(rows):
    if rows == list(range(rows[0], rows[-1] + 1)):
        return f"rows {rows[0]} to {rows[-1]}" if len(rows) > 1 else f"row {rows[0]}"
    return "rows " + ", ".join(map(str, rows[:-1])) + f" and {rows[-1]}"
