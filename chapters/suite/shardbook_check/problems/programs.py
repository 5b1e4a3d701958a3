"""Programs with one mistake: each with the sentence that says it."""
import itertools
from fractions import Fraction
from functools import lru_cache

import numpy as np

from .bounded import part
from .simulated import Program


@lru_cache(maxsize=64)
def programs(problem, axes, device):
    """[(text, Program)], each program once."""
    found = {}
    for text, program in [*of_batches(problem, axes), *of_weights(problem, axes), *of_sums(problem, axes),
                          *of_blocks(problem, axes), *(of_optimizers(problem, axes) if problem.is_training else ())]:
        found.setdefault(program, text)
    return [(text, program) for program, text in found.items()]


def orders(size, axes, thing):
    """{order: words} of `size` things that are read in another order, cut as devices cut them."""
    found = {}
    def add(order, words):
        if len(order) == size and list(order) != list(range(size)):
            order = tuple(int(k) for k in order)
            both = f"{found[order]}, or {words}" if order in found else words
            found[order] = found[order] if both.count(", or ") > 1 else both
    for devices, _, _ in axes:
        parts = [np.arange(*part(size, devices, d)) for d in range(devices)]
        for shift, whose in ((1, "next"), (-1, "previous")):
            add(np.concatenate([parts[(d + shift) % devices] for d in range(devices)]), f"the {whose} device's {thing}s")
        if size >= devices:
            add(np.concatenate([parts[0][np.arange(len(of)) % len(parts[0])] for of in parts]),
                f"device 0's {thing}s on every device")
        for by, words in ((-1, "early"), (1, "late")):
            add(np.concatenate([np.clip(of + by * (d > 0), 0, size - 1) for d, of in enumerate(parts)]),
                f"slices that begin one {thing} {words}")
        add(np.concatenate([of[::-1] for of in parts]), f"the {thing}s of each device from the last to the first")
        strided = np.concatenate([np.arange(d, size, devices) for d in range(devices)])
        add(strided, f"every {devices}th {thing} for each device's block of them" if devices > 3 else
            f"every {('2nd', '3rd')[devices - 2]} {thing} for each device's block of them")
        add(np.argsort(strided), f"a block of {thing}s for each {devices}th one on a device")
    add(np.arange(size)[::-1], f"the {thing}s from the last to the first")
    add(np.roll(np.arange(size), 1), f"the {thing} before")
    add(np.roll(np.arange(size), -1), f"the {thing} behind")
    return found


def of_batches(problem, axes):
    name = "target" if problem.is_training else "output_grad"
    for order, words in orders(problem.batch_size, axes, "row").items():
        yield f"inputs and labels of different rows: {words}?", Program(read=((name, 0, order),))
        if len(set(order)) < len(order):
            yield f"inputs and labels of other rows: {words}?", Program(read=((name, 0, order), ("input", 0, order)))


def of_weights(problem, axes):
    layers = range(problem.layers)
    sets = {(k,) for k in layers} | {tuple(layers)[k::2] for k in (0, 1)} | {tuple(layers)}
    for of in sorted(sets, key=lambda of: (len(of), of)):
        for words, turned in (("reshaped where they should be transposed", False),
                              ("of which rows were taken for columns", True)):
            read = tuple((f"layer_{k}/weights", None, flat_order(problem.widths[k:k + 2], turned)) for k in of)
            yield f"weights of layer{'s' * (len(of) > 1)} {', '.join(map(str, of))} {words}?", Program(read=read)
        cut = {k: problem.widths[k + 1 - k % 2] for k in of}  # columns of even layers, rows of odd ones
        if len(set(cut.values())) > 1:
            continue
        for order, words in orders(*set(cut.values()), axes, "hidden unit").items():
            read = tuple((f"layer_{k}/weights", 1 - k % 2, order) for k in of)
            text = f"weights of layer{'s' * (len(of) > 1)} {', '.join(map(str, of))} in another order: {words}?"
            yield text, Program(read=read)
            if problem.is_training:
                yield text, Program(read=read, in_each_step=True)


def flat_order(shape, turned):
    """The places in memory of a matrix whose transposition was read in its shape, or the other way round."""
    rows, columns = shape
    places = np.arange(rows * columns)
    places = places.reshape(columns, rows).T if turned else places.reshape(rows, columns).T.reshape(rows, columns)
    return tuple(map(tuple, places.tolist()))


def of_sums(problem, axes):
    texts = {
        "largest": "the largest of the devices' addends in each element: a maximum for the sum?",
        "smallest": "the smallest of the devices' addends in each element: a minimum for the sum?",
        "own twice": "each device's own addend in its sum twice?",
        "the first alone": "the sum on device 0 alone: the others have their own addends, a reduction to one device?",
        "halves": "sums over each half of the devices alone: the reduction over the halves left out?",
        "pairs": "sums over pairs of devices alone: the reduction over the pairs left out?",
        "BF16": "the devices' addends and their sum in bfloat16?", "F16": "the devices' addends and their sum in float16?",
    }
    if problem.is_training:
        texts |= {"own": "each device's own gradients in every step: a reduction left out?",
                  "own, times their number": "each device's own mean in every step: a reduction left out?",
                  "own averaged": "each device trained by itself, and weights averaged at the end: gradients not reduced?",
                  "the first updates": "only device 0 updates its weights?"}
    for devices, place, _ in axes:
        for sums, text in texts.items():
            if not (sums == "halves" and (devices % 2 or devices < 4) or sums == "pairs" and devices < 5):
                yield text, Program(sums=sums, devices=devices, device=place)
        for places in (1, -1):
            yield f"all gradients one behind the other, whose pieces lie one place {'further' if places > 0 else 'back'}: " \
                "gathered from other ranks?", Program(rotated=places, devices=devices)
        for parts, _, name in axes:
            if parts * devices == axes[0][0] and all(width % parts == 0 for width in problem.widths[1::2]):
                yield f"gradients added up over {name}, where devices have different slices, and not over the other axis: the " \
                    "wrong group?", Program(sums="own", devices=devices, device=place, folded=parts)
        if getattr(problem, "clip_norm", 0) and problem.is_training:
            for clips in (0, 1):
                yield "clipped before the devices' gradients are added up: each by its own norm?", \
                    Program(sums="clipped", devices=devices, device=place, clips=clips)


def of_blocks(problem, axes):
    """Hidden units, and sums of each block's output."""
    hidden, blocks = set(problem.widths[1::2]), range(problem.layers // 2)
    size = hidden.pop() if len(hidden) == 1 else 0
    for of, passes in itertools.product([tuple(blocks), *([block] for block in blocks)], (False, True)):
        words = " and ".join(f"layer {2 * block}" for block in of)
        yield f"a ReLU behind {words} forgotten, in {'both passes' if passes else 'the forward pass'}?", \
            Program(linear=tuple(of), unmasked=passes)
    for devices, place, _ in axes:
        for to, name in (("BF16", "bfloat16"), ("F16", "float16")) if problem.kind != "exact" or devices > 1 else ():
            yield f"activations that devices send and add up in {name}?", Program(bits=to, devices=devices)
        yield f"{devices} times each block's output, in the forward pass alone: summed where every device has the sum?", \
            Program(outputs=float(devices))
        yield f"1/{devices} of each block's output, in the forward pass alone: a mean where a sum is meant?", \
            Program(outputs=1 / devices)
        yield "each device's hidden units alone: the sum of each block's output left out?", \
            Program(apart=True, devices=devices, device=place)
        parts = [part(size, devices, d) for d in range(devices)]
        lost = {"the last hidden unit of each device": {end - 1 for begin, end in parts if end > begin},
                "the first hidden unit of each device": {begin for begin, end in parts if end > begin},
                **{f"the hidden units of device {d}": set(range(begin, end)) for d, (begin, end) in enumerate(parts)}}
        for words, units in lost.items() if size else ():
            left = tuple(float(unit not in units) for unit in range(size))
            for of in {tuple(blocks), *((block,) for block in blocks)}:
                units = tuple(left if block in of else (1.0,) * size for block in blocks)
                yield f"{words} left out?", Program(units=units)


def of_optimizers(problem, axes):
    layers = range(problem.layers)
    factors = {-1.0: "times -1: a sign", 0.0: "0: never updated"}
    for devices, _, _ in axes:
        factors |= {devices: f"times {devices}: summed where every device has the sum",
                    1 / devices: f"times 1/{devices}: a mean where a sum is meant"}
    for factor, step in itertools.product(sorted({2, 0.5, *(f for f in factors if f > 0)}), (0, problem.steps - 1)):
        which = "last" if step else "first"
        yield f"the gradients of the {which} step times {as_text(factor)}: of another number of rows?", \
            Program(steps=tuple(factor if k == step else 1 for k in range(problem.steps)))
    for layer, (factor, words) in itertools.product(layers, factors.items()):
        yield f"the gradient of layer {layer} {words}?", \
            Program(layers=tuple(factor if k == layer else 1.0 for k in layers))
    if getattr(problem, "clip_norm", 0):
        for of in {tuple(k for k in layers if k != out) for out in layers} | {(k,) for k in layers}:
            words = ", ".join(map(str, of))
            yield f"clipped by the norm of layer{'s' * (len(of) > 1)} {words} alone?", Program(norm_of=of)
        yield "clipped by the square of the norm: its root forgotten?", Program(norms="squared")
        for devices, _, _ in axes if len(set(problem.widths[1::2])) == 1 else ():
            yield "clipped by the sum of the devices' norms: squares are to be added up?", \
                Program(norms="added", devices=devices)
    for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
        yield f"weights kept in {name} after each step?", Program(keeps=to)
    yield "gradients set to 0 in each second step alone?", Program(optimizer="every second")
    if problem.kind == "adam":
        yield "Adam's steps counted once for each parameter?", Program(optimizer="each parameter")
        yield "Adam's moments forgotten after each step?", Program(optimizer="moments")
        yield "Adam's betas exchanged?", Program(settings=(("betas", problem.betas[::-1]),))
        for text in ("a step less", "a step more", "the first step"):
            yield f"Adam's bias correction with another count of steps: {text}?", Program(optimizer=text)


def as_text(value):
    near = Fraction(value).limit_denominator(64)
    is_such = abs(float(near) - value) < 1e-9 and (near.denominator < 20 or near.numerator == 1)
    return str(near) if is_such else f"{value:.4g}"
