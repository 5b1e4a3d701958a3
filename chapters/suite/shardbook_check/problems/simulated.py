"""Mlps on devices that do one thing otherwise, in plain float64: what a wrong version of a sharded program computes."""
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from .bounded import part
from .files import rounded


@dataclass(frozen=True)
class Program:
    """What is done otherwise."""
    read: tuple = ()  # (name, axis, order): the order in which a tensor of the batch, or a parameter, is read
    in_each_step: bool = False  # parameters are read so in each step, and updated in their own order
    rows: tuple = ()  # how often each row counts
    units: tuple = ()  # for each block, the factors of its hidden units
    apart: bool = False  # each of `devices` computes with its own hidden units alone
    folded: int = 1  # so many parts of each gradient, along its hidden units, are added up as if they were addends
    linear: tuple = ()  # blocks without their ReLU, in the forward pass
    unmasked: bool = False  # and in the backward pass
    outputs: float = 1.0  # of each block, in the forward pass
    layers: tuple = ()  # factors of each layer's gradient
    steps: tuple = ()  # factors of each step's gradients
    rotated: int = 0  # places by which the pieces of `devices` of all gradients, one behind the other, lie further
    decay: float = 0.0  # of weights, in each step
    keeps: str = ""  # "BF16": weights after each step
    norms: str = ""  # "added", of the hidden units of each of `devices`, or "squared"
    norm_of: tuple = ()  # the layers whose gradients make the norm
    optimizer: str = ""  # see updated()
    settings: tuple = ()  # (name, value) of the optimizer, as `learning_rate`
    devices: int = 1  # that divide the rows and have copies of the parameters; of `bits`, the hidden units
    device: int = 0  # the one whose results these are
    sums: str = ""  # how the devices' gradients become one: see SUMS
    clips: int = 0  # the sum of clipped gradients is not clipped again
    bits: str = ""  # "BF16": of addends of each block, and of their sum


def rounded_sum(of, to):
    return rounded(sum(rounded(g, to) for g in of), to)


SUMS = {  # of the gradients of all devices, and a device
    "own": lambda of, d: of[d],
    "own, times their number": lambda of, d: of[d] * len(of),
    "own averaged": lambda of, d: of[d],
    "clipped": lambda of, d: sum(of),
    "largest": lambda of, d: np.maximum.reduce(of),
    "smallest": lambda of, d: np.minimum.reduce(of),
    "own twice": lambda of, d: sum(of) + of[d],
    "the first alone": lambda of, d: sum(of) if d == 0 else of[d],
    "the first updates": lambda of, d: sum(of) * (d == 0),
    "halves": lambda of, d: sum(of[:len(of) // 2] if d < len(of) // 2 else of[len(of) // 2:]),
    "pairs": lambda of, d: sum(of[d // 2 * 2:d // 2 * 2 + 2]),
    "BF16": lambda of, d: rounded_sum(of, "BF16"),
    "F16": lambda of, d: rounded_sum(of, "F16"),
}


@cache
def simulated(problem, program):
    """{name: result}, as Problem.expected."""
    return run(problem, program)


@np.errstate(all="ignore")
def run(problem, program):
    names = [f"layer_{layer}/weights" for layer in range(problem.layers)]
    tensors = {**problem.params, **problem.batch}
    for name, axis, order in program.read:
        if name not in names or not program.in_each_step:
            tensors[name] = np.take(tensors[name], order, axis)
    count = program.devices if program.sums else 1
    mine = program.device if program.sums else 0
    copies, moments, last = [[tensors[name] for name in names] for _ in range(count)], [{} for _ in range(count)], ()
    for step in range(1, problem.steps + 1 if problem.is_training else 2):
        found = [of_device(problem, program, dict(zip(names, w)), tensors, d) for d, w in enumerate(copies)]
        of = summed(problem, program, [g for _, _, g in found], step)
        if program.optimizer == "every second" and step % 2 == 0:  # gradients are set to 0 before each second step
            of = [[a + b for a, b in zip(*both)] for both in zip(of, last)]
        last = of
        if not problem.is_training:
            return {"output": found[0][0], "input_grad": found[0][1], **dict(zip(names, of[mine]))}
        of = [g if program.clips else clipped(problem, program, g) for g in of]
        for d, g in enumerate(of):
            if program.sums != "the first updates" or d == 0:
                copies[d] = [updated(problem, program, w, t, moments[d], layer, step)
                             for layer, (w, t) in enumerate(zip(copies[d], g))]
    if program.sums == "own averaged":
        copies = [[sum(of) / count for of in zip(*copies)]] * count
    return dict(zip(names, copies[mine]))


def of_device(problem, program, w, tensors, device):
    """The output, dL/dx and gradients of a device: of its rows, if gradients are added up otherwise."""
    counts = np.array(program.rows or np.ones(problem.batch_size))
    if program.sums:
        begin, end = part(problem.batch_size, program.devices, device)
        counts = counts * ((begin <= np.arange(len(counts))) & (np.arange(len(counts)) < end))
    for name, axis, order in program.read if program.in_each_step else ():
        if name in w:
            w[name] = np.take(w[name], order, axis)
    if not program.apart:
        return passes(problem, program, list(w.values()), tensors, counts)
    each = [passes(problem, replace(program, units=own_units(problem, program.devices, d)), list(w.values()), tensors, counts)
            for d in range(program.devices)]
    return each[program.device][0], sum(dx for _, dx, _ in each), [sum(of) for of in zip(*(g for _, _, g in each))]


def summed(problem, program, of, step):
    """The gradients that each device updates with, of those that each has computed."""
    of = [[folded(t, 1 - layer % 2, program.folded) for layer, t in enumerate(g)] for g in of]
    if program.sums == "clipped":
        of = [clipped(problem, program, g) for g in of]
    if program.sums:
        of = [[SUMS[program.sums](layer, d) for layer in zip(*of)] for d in range(len(of))]
    factors = np.array(program.layers or np.ones(problem.layers)) * (program.steps[step - 1] if program.steps else 1)
    of = [[t * factor for t, factor in zip(g, factors)] for g in of]
    return [rotated(g, program) for g in of] if program.rotated else of


def passes(problem, program, w, tensors, counts):
    """The output, dL/dx, and each layer's gradient."""
    x, kept = tensors["input"], []
    for layer in range(0, len(w), 2):
        before = x @ w[layer]
        units = np.array(program.units[layer // 2]) if program.units else 1.0
        is_linear = layer // 2 in program.linear
        h = (before if is_linear else np.maximum(before, 0)) * units
        kept.append((x, h, ((before > 0) | (is_linear and program.unmasked)) * units))
        x = product(program, h, w[layer + 1]) * program.outputs
    y = x
    if problem.is_training:
        weights = problem.row_weights
        d = (y - tensors["target"]) * (2 / (weights.sum() * y.shape[1]) * weights * counts)[:, None]
    else:
        d = tensors["output_grad"] * counts[:, None]
    found = []
    for layer in reversed(range(0, len(w), 2)):
        x, h, mask = kept.pop()
        of_hidden = (d @ w[layer + 1].T) * mask
        found[:0] = [x.T @ of_hidden, h.T @ d]
        d = product(program, of_hidden, w[layer].T)
    return y, d, found


def own_units(problem, devices, device):
    """1 for the hidden units of a device, in each block."""
    found = []
    for width in problem.widths[1::2]:
        begin, end = part(width, devices, device)
        found.append(tuple(float(begin <= unit < end) for unit in range(width)))
    return tuple(found)


def folded(g, axis, parts):
    return g if parts == 1 else np.concatenate([sum(np.split(g, parts, axis))] * parts, axis)


def rotated(g, program):
    flat = np.concatenate([t.ravel() for t in g])
    length = -(-len(flat) // program.devices)
    flat = np.roll(np.pad(flat, (0, length * program.devices - len(flat))), program.rotated * length)
    return [t.reshape(like.shape) for t, like in zip(np.split(flat, np.cumsum([t.size for t in g])), g)]


def product(program, h, w):
    """h w; where devices send addends in 16 bits, their sum."""
    if not program.bits:
        return h @ w
    parts = [slice(*part(len(w), program.devices, d)) for d in range(program.devices)]
    return rounded_sum([h[:, of] @ w[of] for of in parts], program.bits)


def setting(problem, program, name):
    return dict(program.settings).get(name, getattr(problem, name, 0))


def clipped(problem, program, g):
    most = setting(problem, program, "clip_norm")
    squares = [g[i]**2 for i in program.norm_of or range(len(g))]
    norm = np.sqrt(sum(of.sum() for of in squares))
    if program.norms == "squared":
        norm = norm**2
    if program.norms == "added":
        units = [np.array(own_units(problem, program.devices, d)[0]) for d in range(program.devices)]
        norm = sum(np.sqrt(sum((of * (own if i % 2 == 0 else own[:, None])).sum() for i, of in enumerate(squares)))
                   for own in units)
    return [t * min(1, most / (norm + 1e-6)) for t in g] if problem.clip_norm else g


def updated(problem, program, w, g, moments, layer, step):
    rate = setting(problem, program, "learning_rate")
    if program.keeps:
        return rounded(updated(problem, replace(program, keeps=""), w, g, moments, layer, step), program.keeps)
    w = w * (1 - rate * program.decay)
    if problem.kind == "sgd":
        return w - rate * g
    beta1, beta2 = np.array(setting(problem, program, "betas"), float)
    m, v = moments.get(layer, (0.0, 0.0)) if program.optimizer != "moments" else (0.0, 0.0)
    moments[layer] = m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    count = {"a step less": max(step - 1, 1), "a step more": step + 1, "the first step": 1,
             "each parameter": (step - 1) * problem.layers + layer + 1}.get(program.optimizer, step)
    root = np.sqrt(v / (1 - beta2**count)) + setting(problem, program, "epsilon")
    return w - rate * m / (1 - beta1**count) / root
