"""Causes that a simulated program shows: the whole step with one thing done otherwise (problems/simulated.py); and
numbers, as how often each row counts, that are fitted to what is given."""
import itertools
from fractions import Fraction

import numpy as np

from .causes_of_sharding import axis_names, cuts
from .evidence import explains, is_nearly
from .problems.kinds import Problem, after
from .problems.programs import as_text, programs
from .problems.simulated import Program, run, simulated

LEAST_SOUGHT = 8  # elements of a piece that decides whether a verdict has such a cause
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


# ---- Decoders and mixtures: one point of the network, slices of one role, choices of experts, a balancing loss of another size
POINTS = {
    "embedding": "the embedding's rows", "attention_norm": "what attention's norm gives", "query": "queries", "key": "keys",
    "value": "values", "keys and values": "keys and values", "attention": "what heads give", "output": "attention's sum",
    "feed_forward_norm": "what the feed-forward's norm gives", "gate": "gates of the feed-forward", "up": "the feed-forward's up",
    "hidden": "the feed-forward's hidden units", "down": "the feed-forward's sum", "final_norm": "what the final norm gives",
    "logits": "logits", "d logits": "the logits' gradient", "d final_norm": "the gradient of what the final norm gives",
    "d before final_norm": "the gradient of what comes into the final norm",
    "d down": "the gradient of the feed-forward's sum", "d hidden": "the hidden units' gradient",
    "d gate": "the gradient of the feed-forward's gates", "d up": "the gradient of the feed-forward's up",
    "d feed_forward_norm": "the gradient of what the feed-forward's norm gives",
    "d before feed_forward_norm": "the gradient of what comes into the feed-forward's norm",
    "d output": "the gradient of attention's sum", "d attention": "the gradient of what heads give",
    "d keys and values": "the gradient of keys and values", "d query": "the queries' gradient", "d key": "the keys' gradient",
    "d value": "the values' gradient", "d by query": "dL/dx by the queries", "d by key": "dL/dx by the keys",
    "d by value": "dL/dx by the values", "d attention_norm": "the gradient of what attention's norm gives",
    "d before attention_norm": "the gradient of what comes into attention's norm", "d embedding": "the gradient of the embedding's rows"}
FAULTS = {"0": "left out", "n": "counted {n} times: summed where every device has the sum", "1/n": "1/{n} of it: a mean where a sum is meant", "-1": "with the other sign",
          "bf16": "in bfloat16", "next": "of the next device's part", "reversed": "in the order of the devices from the last to the first",
          "first": "of device 0's part on every device"}
SKIPPED = {
    "attention_norm": "the weight of attention's norm forgotten in the forward pass",
    "feed_forward_norm": "the weight of the feed-forward's norm forgotten in the forward pass",
    "final_norm": "the final norm's weight forgotten in the forward pass",
    "d attention_norm": "the weight of attention's norm forgotten in the backward pass",
    "d feed_forward_norm": "the weight of the feed-forward's norm forgotten in the backward pass",
    "d final_norm": "the final norm's weight forgotten in the backward pass",
    "turning query": "queries not turned by their rotary positions", "turning key": "keys not turned by their rotary positions",
    "turning query back": "the queries' gradient not turned back by rotary positions",
    "turning key back": "the keys' gradient not turned back by rotary positions",
    "gate": "up alone: not multiplied by its gates", "up": "gates alone: not multiplied by up"}


FORMULAS = {
    "exchanged": "the gradients of gate and up in each other's place", "silu": "silu's derivative without its second addend",
    "sigmoid": "the sigmoid's derivative for silu's", "scores": "the softmax's backward pass of scores without its sum",
    "norm": "norms' backward pass without the mean", "attention_norm": "the backward pass of attention's norm without the mean",
    "feed_forward_norm": "the backward pass of the feed-forward's norm without the mean",
    "final_norm": "the backward pass of the final norm without the mean"}


def at_points(e):
    """Yields (cause, fields of a Mistake)."""
    n = e.devices
    for fault, words in FORMULAS.items():
        yield f"{words}?", {"point": "formula", "fault": fault}
    for point, words in SKIPPED.items():
        yield f"{words}?", {"point": point, "fault": "skipped"}
    for (point, words), (fault, what) in itertools.product(POINTS.items(), FAULTS.items()):
        if (n > 1 or fault in ("0", "-1", "bf16")) and not (fault == "bf16" and e.problem.kind == "exact"):
            yield f"{words}, {what.format(n=n)}?", {"point": point, "fault": fault, "devices": n}
    for (axis, words), device in itertools.product((("positions", "part of each sequence"), ("sequences", "sequences")), range(n)):
        for fault, what in (("alone", "alone in every gradient: not reduced"), ("missing", "missing from every gradient"),
                            ("twice", "twice in every gradient")) if n > 1 else ():
            yield f"what the tokens of device {device}'s {words} add, {what}?", \
                {"point": axis, "fault": fault, "devices": n, "device": device}


def around_the_ring(e):
    """Context parallelism: parts of keys at some distances from the queries' part are left out, of a pass or a gradient."""
    n = e.devices
    for count in range(1, n):
        for left in itertools.combinations(range(n), count):
            distances = tuple(d for d in range(n) if d not in left)
            where = "keys of the own part" if left == (0,) else f"keys of the part{'s' * (count > 1)} {' and '.join(map(str, left))} further around the ring"
            if distances == (0,):
                where = "keys of all parts but the own one"
            for point, words in (("seen", "not seen"), ("ring queries", "left out of the gradient of queries"),
                                 ("ring keys values", "without the gradient by these queries"), ("ring keys", "without their gradient by these queries, by scores"),
                                 ("ring values", "without the gradient of their values"), ("ring queries keys values", "left out of attention's backward pass")):
                if 0 in distances or point != "seen":
                    yield f"{where} {words}: a step of the ring, or a sum over devices, left out?", \
                        {"point": point, "distances": distances, "devices": n}


def tokens_that_count_otherwise(e):
    """How often the labels of each sequence, or of each position, are in the gradients: numbers that are fitted to one."""
    if e.problem.workload != "decoder":
        return None
    return named(e, "tokens", of_tokens(e))


def of_tokens(e):
    labels = e.problem.batch["labels"] >= 0
    known = [name for name, (pieces, slices, _) in e.results.items() if name in e.problem.params and
             len(pieces) == len(slices) and pieces[e.device] is not None]
    name = max(known, key=lambda name: e.results[name][0][e.device].size, default=None)
    for axis, word in ((0, "sequence"), (1, "position")) if name else ():
        size = labels.shape[axis]
        masks = [(np.arange(size) == k).reshape((-1, 1) if axis == 0 else (1, -1)) * np.ones(labels.shape) for k in range(size)]
        given, here = e.results[name][0][e.device], e.results[name][1][e.device]
        addends = [e.as_arranged(name, after(e.problem, weights=tuple(mask.ravel()))[name])[here].ravel() for mask in masks]
        used = [k for k in range(size) if np.any(addends[k])]
        if not used or given.size < len(used) + 8 or addends[0].shape != given.ravel().shape:
            continue
        counts, _, rank, _ = np.linalg.lstsq(np.stack([addends[k] for k in used], 1), given.ravel(), rcond=1e-7)
        if rank < len(used) or np.ptp(counts) < 1e-3:
            continue
        every = np.ones(size)
        every[used] = counts
        yield counted_text(word, every, used, labels.sum(axis=1 - axis)), \
            {"weights": tuple(sum(count * mask for count, mask in zip(every, masks)).ravel())}


def counted_text(word, counts, used, labels):
    """In words: one mean for each, or how often each counts."""
    shares = [counts[k] * labels[k] for k in used]
    if np.ptp(shares) < 1e-3 * abs(shares[0]):
        return f"a mean over the labels of each {word}, and then over {word}s?"
    groups = {}
    for k in used:
        groups.setdefault(snapped(counts[k]), []).append(k)
    words = [f"{word}{'s' * (len(of) > 1)} {', '.join(map(str, of))} {as_text(value)} times" for value, of in groups.items() if abs(value - 1) > 1e-3]
    return f"labels of {word}s count otherwise: {', '.join(words[:4])}: a mean over other ones, or a part that is left out?"


def of_sums(e):
    """A softmax's sum that is too large, or too small, by a number which the loss shows."""
    pieces = e.results.get("loss", ([], [], 0))[0]
    given = next((float(piece.ravel()[0]) for piece in pieces if piece is not None and piece.size == 1), None)
    if e.problem.kind != "real" or given is None:
        return
    low, high = 0.0, 1.0
    def loss(more):
        return float(np.ravel(after(e.problem, forgets="the softmax's sum", scale=more)["loss"])[0])
    if given <= float(np.ravel(e.problem.expected["loss"])[0]):
        return
    while loss(high) < given and high < 1e4:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < given else (low, middle)
    more = round(high) if round(high) and abs(high - round(high)) < 1e-3 * high else high
    yield f"a softmax with {more:.4g} more in its sum: columns of padding that count?", {"forgets": "the softmax's sum", "scale": float(more)}


def at_a_point(e):
    """A decoder that does one thing otherwise: it explains every result, the right ones, too. Two are named if both do."""
    if e.problem.workload != "decoder":
        return None
    return named(e, "points", itertools.chain(of_slices(e), around_the_ring(e), of_sums(e), at_points(e)))


def named(e, which, candidates):
    """What explains all results: sought once for a verdict, unless a piece has too few numbers to be explained."""
    if which not in e.found:
        texts = []
        for text, mistake in candidates:
            if text not in texts and explains(e, e.after(**mistake)) and all(e.pieces_like(**mistake)):
                texts.append(text)
            if len(texts) == 2:
                break
        if not texts:
            e.found.update({which: (None, None)} if e.given.size >= LEAST_SOUGHT else {})
            return None
        e.found[which] = texts[0] if len(texts) == 1 else f"{texts[0][:-1]}; or {texts[1]}", mistake
    text, mistake = e.found[which]
    return text


def of_slices(e):
    """The parameters of one role, in every block, have slices of other devices, or lack one."""
    roles = {}
    for name in e.problem.expected:
        if name in e.problem.params and len(e.lies.get(name, ())) == e.devices > 1 and cuts(e, name):
            roles.setdefault(name.split("/")[-1], []).append(name)
    for role, names in roles.items():
        axis, bounds = cuts(e, names[0])[0]
        distinct = sorted(set(bounds))
        for words, other in (("the next device's slice", lambda k: (k + 1) % len(distinct)),
                             ("the slice of the device before", lambda k: k - 1),
                             ("device 0's slice on every device", lambda k: 0),
                             ("slices from the last device to the first", lambda k: -1 - k)):
            order = [min(distinct[other(k)][0] + i, distinct[other(k)][1] - 1)
                     for k, (begin, end) in enumerate(distinct) for i in range(end - begin)]
            yield f"{words} of {role}, where its own is meant: read by a wrong rank?", \
                {"read": tuple((name, axis, tuple(order)) for name in names)}
        for k, (begin, end) in enumerate(distinct):
            yield f"device {k}'s slice of {role} not used: taken as 0?", \
                {"lost": tuple((name, axis, begin, end) for name in names)}


def another_balance(e):
    """The balancing loss times a number, which one gradient shows."""
    if e.problem.workload != "mixture" or not e.problem.aux_weight or e.name not in ("router/weights", "input_grad"):
        return None
    without = e.after(balance=0.0)
    if without is None or e.want.size < 8:
        return None
    by = e.want - without
    times = float(((e.given - without) * by).sum() / (by * by).sum()) if np.any(by) else 1.0
    texts = {1 / e.problem.experts: "1/E: its number of experts forgotten", 1 / e.devices: f"1/{e.devices}",
             float(e.problem.top_k): "its number of choices, k", 1 / e.problem.top_k: "1/k, its number of choices"}
    for known, words in texts.items():
        if abs(times - known) < 1e-3 * known and explains(e, e.after(balance=known)):
            return f"the balancing loss times {words}?"
    if explains(e, without + times * by):
        return f"the balancing loss times {times:.4g}: another weight of it?"
    return None


def lost_choices(e):
    """A mixture whose output lacks the answers to some choices."""
    if e.problem.workload != "mixture":
        return None
    if "choices" not in e.found:
        e.found["choices"] = None
        kept = kept_choices(e)
        if kept is not None:
            lost = [(token, rank) for token in range(e.problem.batch_size) for rank in range(e.problem.top_k)
                    if (token, rank) not in kept]
            shown = ", ".join(f"{token}'s {('first', 'second', 'third')[min(rank, 2)]}" for token, rank in lost[:4])
            more = f" and {len(lost) - 4} more" * (len(lost) > 4)
            e.found["choices"] = tuple(kept), f"choices of tokens lost: the answers to token {shown}{more}: dropped beyond another " \
                "capacity, or not sent?"
    if e.found["choices"] is None:
        return None
    kept, text = e.found["choices"]
    return text if explains(e, e.after(kept_choices=kept)) else None


def kept_choices(e):
    """The choices whose answers are in the given output; None if it is no such sum, or has all that it should have."""
    p = e.problem
    if "output" not in e.results:
        return None
    pieces, slices, bound = e.results["output"]
    given = np.full(p.expected["output"].shape, np.nan)
    for piece, here in zip(pieces, slices):
        if piece is not None and len(pieces) == len(slices):
            given[here] = piece
    (gates, chosen), answers = gates_of(p), answers_to_tokens(p)
    kept, right = [], (np.abs(given - p.expected["output"]) <= bound).all(axis=1)
    if np.isnan(given).any() or right.all() or p.capacity_factor != "none" and p.kind == "exact":
        return None
    for token in range(p.batch_size):
        fits = [of for count in range(p.top_k, -1, -1) for of in itertools.combinations(range(p.top_k), count)
                if (np.abs(sum((gates[token, rank] * answers[token, chosen[token, rank]] for rank in of), 0 * given[token])
                           - given[token]) <= 4 * bound[token] + 2.0**-20 * np.abs(given[token])).all()]
        if not fits:
            return None
        kept += [(token, rank) for rank in fits[0]]
    return kept or None


def answers_of_others(e):
    """A mixture whose outputs are those of its tokens' experts, but to other tokens."""
    if e.problem.workload != "mixture" or e.name != "output" or e.want.size < 8:
        return None
    p, k = e.problem, e.problem.top_k
    (gates, chosen), answers = gates_of(p), answers_to_tokens(p)
    rows, is_moved = range(e.slices[e.device][0].start, e.slices[e.device][0].stop), False
    for token, given, limit in zip(rows, e.given, e.limit):
        of = [[(other, gates[token, rank] * answers[other, chosen[token, rank]]) for other in range(len(chosen))
               if chosen[token, rank] in chosen[other]] for rank in range(k)]
        found = [[other for other, _ in each] for each in itertools.product(*of)
                 if (np.abs(sum(answer for _, answer in each) - given) <= 4 * limit + 2.0**-20 * np.abs(given)).all()]
        if not found:
            return None
        is_moved |= [token] * k not in found
    return "answers of experts to other tokens: not put back in the order in which they were sent?" if is_moved else None


def other_gates(e):
    """Outputs that are the right answers with other gates: those are found from the numbers."""
    p = e.problem
    if p.workload != "mixture" or e.name != "output" or p.widths[-1] < p.top_k + 2:
        return None
    (gates, chosen), answers = gates_of(p), answers_to_tokens(p)
    rows, others = range(e.slices[e.device][0].start, e.slices[e.device][0].stop), []
    for token, given, limit in zip(rows, e.given, e.limit):
        of = answers[token, chosen[token]].T  # (width, k)
        found, _, rank, _ = np.linalg.lstsq(of, given, rcond=1e-9)
        if rank < p.top_k or (np.abs(of @ found - given) > 4 * limit + 2.0**-20 * np.abs(given)).any():
            return None
        if np.abs(found - gates[token]).max() > 2.0**-6:  # less may be rounding to 16 bits
            others.append((token, found))
    if not others:
        return None
    token, found = others[0]
    shown = [", ".join(f"{gate:.4g}" for gate in of) for of in (found, gates[token])]
    return f"answers with other gates: {len(others)} of {len(rows)} tokens, as token {token}: {shown[0]}, where {shown[1]} is meant?"


def gates_of(p):
    """(tokens, k) gates and experts."""
    logits = p.batch["input"] @ p.params["router/weights"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :p.top_k]
    gates = np.take_along_axis(powers / powers.sum(axis=1, keepdims=True), chosen, 1)
    return gates / gates.sum(axis=1, keepdims=True) if p.top_k > 1 else gates, chosen


def answers_to_tokens(p):
    """Every expert's answer to every token, (tokens, experts, width)."""
    found = []
    for expert in range(p.experts):
        x = p.batch["input"]
        for layer in range(p.layers):
            x = (np.maximum(x, 0) if layer % 2 else x) @ p.params[f"expert_{expert}/layer_{layer}/weights"]
        found.append(x)
    return np.stack(found, axis=1)
