"""Compares a sharded implementation, in any framework, with the same network on one device. Needs NumPy.

Inside your own test, on every process:

    import shardbook
    problem = shardbook.problem("mlp-exact-13x7x11x7")
    ...                                 # load problem.params, run problem.batch through your network
    verdict = shardbook.check(grads, problem, strategy="tp", rank=rank, world=world)
    assert verdict.is_right, verdict    # says which tensor, which device, where, and the likely cause

Or without a line of Python: ./tests/equivalence/run -- COMMAND..., or export and check. docs/equivalence.md
has the formats, the problems, and where the bounds come from.
"""
from __future__ import annotations

import itertools
import json
import math
import re
import struct
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

import shardbook_decoder
from shardbook_decoder import part
from shardbook_layers import OnGrid, Real
from shardbook_numbers import (EXACT, PRECISIONS, Bounded, Precision, Undecided, integers, random_bits,
                               require_exact, uniform, unit_of)

VERSION = 1
# Likely causes, and what is said of each: the same that the chapters' programs say.
SAYS = dict(re.findall(r'^CAUSE\((\w+), "(.*)"\)$', (Path(__file__).resolve().parents[2] /
                                                    "chapters/engine/proof/causes.inc").read_text(), re.M))


class Refused(Exception):
    """A file or an argument that cannot be read: what, where, expected, given."""


# ---- Files: safetensors ----------------------------------------------------------------------------------
# https://github.com/huggingface/safetensors#format: 8 bytes, the header's length; the header, JSON; values.
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}


@dataclass
class Stored:
    """A tensor of a file: its values as float64, and how it was stored."""
    values: np.ndarray
    dtype: str


def read(path):
    """{name: Stored} of a safetensors file."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    try:
        start = 8 + struct.unpack_from("<Q", raw)[0]
        header = json.loads(raw[8:start])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: Stored(*values_of(raw[start:], entry)) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise Refused(f"{path}: expected a safetensors file of {', '.join(TYPES)}, given another: {error}") \
            from None


def values_of(data, entry):
    begin, end = entry["data_offsets"]
    values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    return values.astype(float).reshape(entry["shape"]), entry["dtype"]


def write(path, tensors, dtype="F32"):
    """Writes {name: array} as float32, or as F64, F16 or BF16 (rounded to nearest, ties to even). Integers
    stay integers."""
    header, data = {}, []
    begin = 0
    for name in sorted(tensors):
        kind = "I64" if np.asarray(tensors[name]).dtype == np.int64 else dtype
        raw = stored(np.asarray(tensors[name]), kind).tobytes()
        header[name] = {"dtype": kind, "shape": np.shape(tensors[name]),
                        "data_offsets": [begin, begin + len(raw)]}
        data.append(raw)
        begin += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def stored(values, dtype):
    if dtype != "BF16":
        return np.ascontiguousarray(values, TYPES[dtype])
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def rounded(values, dtype):
    """Values as a file of this type holds them."""
    if dtype == "BF16":
        return (stored(values, dtype).astype("<u4") << 16).view("<f4").astype(float)
    return values.astype(TYPES[dtype]).astype(float) if dtype in ("F32", "F16") else values


# ---- Problems --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mistake:
    """What a wrong version does differently. Its results may explain a result that differs."""
    forgets: str = ""  # "mask_forgotten", "gates", "capacity", "clipping" ...: see mistakes()
    rounds: str = ""  # "weights" or "products": what is rounded to `to`
    to: str = ""  # "BF16" or "F16"
    scale: float = 1.0  # of all gradients of a step of training
    rows: tuple = ()  # [begin, end): only these rows of the batch count
    layers: tuple = ()  # the order in which layers are applied
    taken: tuple = ()  # the layer whose weights the backward pass takes for each layer
    kept: tuple = ()  # the layer whose activations it takes
    misses_step: bool = False  # makes no last step of training
    stages: int = 1  # parts of the layers that each clip gradients by their own norm
    devices: int = 1  # that divide something
    device: int = 0  # the one whose share alone counts


class WithResults:
    """The expected results of a problem."""
    @cached_property
    def expected(self):
        """{name: expected result}, in float64."""
        return {name: result.value for name, result in self.results("float32").items()}

    def bounds(self, precision="float32"):
        """{name: bound of each element's error}, with sums in this precision."""
        return {name: result.error for name, result in self.results(precision).items()}

    def results(self, precision, **more):
        as_computed = EXACT if self.kind == "exact" else replace(PRECISIONS[precision], **more)
        return self.solved(as_computed)


@dataclass(frozen=True)
class Problem(WithResults):
    """A network, a batch, and the expected results. Kinds:

    exact   output, dL/dx (`input_grad`) and every gradient; small integers, and gates that are powers of two,
            so that float32 makes no error
    real    the same of real numbers, within a bound
    sgd     the parameters after `steps` steps on the mean squared error to `target`
    adam    the same with Adam, after the gradients' global norm was clipped
    """
    name: str
    workload: str  # "mlp" or "mixture"
    kind: str
    batch_size: int
    widths: tuple  # of the input, and of each layer's output; in a mixture, of each expert
    seed: int = 0
    steps: int = 1
    learning_rate: float = 0.0
    clip_norm: float = 0.0
    betas: tuple = (0.9, 0.999)
    epsilon: float = 2.0**-10
    experts: int = 0
    top_k: int = 0
    capacity_factor: float | str = "none"
    aux_weight: float = 0.0
    devices: tuple = (1, 2, 3, 4, 5, 8)
    mistake: Mistake = Mistake()

    @property
    def is_training(self):
        return self.kind in ("sgd", "adam")

    wrong_means = ()

    @property
    def layers(self):
        return len(self.widths) - 1

    @property
    def rows(self):
        return self.batch_size

    def widths_of_slices(self, _name):
        return 1

    @cached_property
    def params(self):
        """{name: float32 values as float64}."""
        if self.workload == "mlp":
            return self.stack("")
        stacks = [self.stack(f"expert_{expert}/") for expert in range(self.experts)]
        shape = (self.widths[0], self.experts)
        router = integers(self.seed, "router/weights", shape, 1) * LOGIT_STEP if self.kind == "exact" else \
            uniform(self.seed, "router/weights", shape)
        return {"router/weights": router, **{name: w for stack in stacks for name, w in stack.items()}}

    def stack(self, prefix):
        names = [f"{prefix}layer_{layer}/weights" for layer in range(self.layers)]
        shapes = list(zip(self.widths[:-1], self.widths[1:]))
        if self.kind == "exact":
            return {name: integers(self.seed, name, shape, 2) for name, shape in zip(names, shapes)}
        scales = [2.0 ** round(math.log2(6 / max(shape[0], 1)) / 2) for shape in shapes]
        return {name: uniform(self.seed, name, *how) for name, *how in zip(names, shapes, scales)}

    @cached_property
    def batch(self):
        """`input`, and `output_grad` or, where it trains, `target`."""
        last = "target" if self.is_training else "output_grad"
        shapes = {"input": (self.batch_size, self.widths[0]), last: (self.batch_size, self.widths[-1])}
        if self.kind != "exact":
            return {name: uniform(self.seed, name, shape) for name, shape in shapes.items()}
        found = {name: integers(self.seed, name, shape, 2) for name, shape in shapes.items()}
        return {**found, "input": self.tied_tokens()} if self.workload == "mixture" else found

    def tied_tokens(self):
        """Rows for which some experts are equally likely, a power of two, and the others have probability 0:
        then probabilities and gates are exact. If two experts are chosen, just two tie, so it is clear which.
        Sets of equal experts take turns."""
        drawn = np.unique(integers(self.seed, "input", (64 * self.batch_size, self.widths[0]), 2), axis=0)
        drawn = drawn[np.argsort(random_bits(self.seed, "order", len(drawn)), kind="stable")]
        logits = drawn @ self.params["router/weights"]
        is_likeliest = logits == logits.max(axis=1, keepdims=True)
        rows_of_set = {}
        for row, experts in enumerate(is_likeliest):
            if experts.sum() in ((1, 2, 4) if self.top_k == 1 else (self.top_k,)):
                rows_of_set.setdefault(tuple(experts), []).append(row)
        turns = itertools.zip_longest(*rows_of_set.values())
        rows = [row for turn in turns for row in turn if row is not None][:self.batch_size]
        if len(rows) < self.batch_size:
            raise Undecided("too few tokens with exact gates")
        return drawn[rows]

    def solved(self, precision):
        if self.mistake.rounds == "products":
            precision = replace(precision, rounds=lambda t: rounded(t, self.mistake.to))
        params, batch = ({name: Bounded.exact(t, precision) for name, t in tensors.items()}
                         for tensors in (weights_of(self), self.batch))
        return (train if self.is_training else gradients)(self, params, batch)


class OfTokens(WithResults):
    """A network of tokens, and a batch of sequences."""
    is_training = False
    steps = 1
    batch_of = ("input_ids",)  # beside `labels`, of which -100 is none

    @property
    def layers(self):
        return self.blocks

    @property
    def rows(self):
        return self.batch_size * self.length

    @property
    def wrong_means(self):
        """(factor, cause) of means over a wrong number."""
        labels = int((self.batch["labels"] >= 0).sum())
        if self.kind == "exact":
            return ()
        return ((float(labels), f"{labels} times it in every element: a sum over tokens where a mean is "
                                "meant?"),
                (labels / self.rows, f"{labels}/{self.rows} of it in every element: a mean over all tokens, "
                                     "those without a label too?"))

    def widths_of_slices(self, name):
        is_of_heads = re.search("(query|key|value|output)$", name)
        return self.head_dim if is_of_heads else 1

    @cached_property
    def params(self):
        """{name: float32 values as float64}."""
        found = {}
        for name, shape in self.shapes().items():
            if self.kind == "exact":
                w = integers(self.seed, name, shape, 2)
                found[name] = np.where(w == 0, 1, w) if len(shape) == 1 else w
            elif len(shape) == 1:
                found[name] = (1 + uniform(self.seed, name, shape, 0.5)).astype("f4").astype(float)
            else:
                width = {"embedding": 3, "head": shape[1]}.get(name, shape[0])
                found[name] = uniform(self.seed, name, shape, 2.0**round(math.log2(3 / width) / 2))
        return found

    @cached_property
    def batch(self):
        """Ids and labels, and `losses_grad` of an exact problem."""
        lengths = {name: self.length for name in ("labels", *self.batch_of)}
        if "decoder_input_ids" in lengths:
            lengths["input_ids"] = self.source_length
        tokens = {name: (self.bits(name, length) % np.uint64(self.vocabulary)).astype(np.int64)
                  for name, length in lengths.items()}
        is_missing = self.bits("missing", self.length) % np.uint64(7) == 0
        grad = 16 * integers(self.seed, "losses_grad", is_missing.shape, 4)
        return {**tokens, "labels": np.where(is_missing, -100, tokens["labels"]),
                **({"losses_grad": grad} if self.kind == "exact" else {})}

    def bits(self, name, length):
        bits = random_bits(self.seed, name, self.batch_size * length) >> np.uint64(32)
        return bits.reshape(self.batch_size, length)

    def solved(self, precision):
        is_checked = self.mistake == Mistake()
        if self.kind == "exact":
            layers = OnGrid(self.grid, self.norm_epsilon, is_checked)
        else:
            layers = Real(precision, self.score_scale, self.norm_epsilon, 16 if is_checked else 0)
        if self.mistake.forgets == "epsilon":
            layers.epsilon = 0
        found = shardbook_decoder.solved(self, layers, weights_of(self), self.batch)
        return {name: Bounded(t[0], layers.bound(t), precision) for name, t in found.items()}


@dataclass(frozen=True)
class DecoderProblem(OfTokens):
    """A decoder as Mistral's or, with experts, Mixtral's. Kinds:

    real    logits, the mean loss of the tokens that have a label, and every gradient
    exact   the loss of each token and every gradient, on a grid (shardbook_layers.OnGrid)
    """
    name: str
    kind: str
    batch_size: int  # sequences
    length: int  # tokens of each
    model_dim: int
    heads: int
    key_heads: int
    head_dim: int
    hidden_dim: int  # of each expert
    vocabulary: int
    workload: str = "decoder"
    blocks: int = 1
    experts: int = 0
    top_k: int = 1
    window: int = 0  # tokens that a token sees, itself included; 0: all before it
    is_tied: bool = False  # the head is the embedding
    rope_base: float = 10000.0
    norm_epsilon: float = 2.0**-7  # so large that another one shows
    seed: int = 0
    devices: tuple = (1, 2, 3, 5)
    mistake: Mistake = Mistake()

    def shapes(self):
        return shardbook_decoder.shapes_of(self)

    @property
    def score_scale(self):
        return 1.0 if self.mistake.forgets == "scale" else self.head_dim**-0.5

    @property
    def grid(self):
        """The arithmetic of an exact problem. Scores and logits are scaled to a few units."""
        size = math.sqrt(5 * self.model_dim)  # of products of a row, weights from -2 to 2
        scales = {"score_scale": size * size * math.sqrt(self.head_dim) / 2, "logit_scale": size / 2}
        return {"unit": 2.0**-3, "limit": 64.0,
                **{name: 2.0**-round(math.log2(scale)) for name, scale in scales.items()}}


@dataclass(frozen=True)
class T5Problem(OfTokens):
    """An encoder-decoder as T5. Kind real: logits, the mean loss, and every gradient."""
    name: str
    kind: str
    batch_size: int
    source_length: int  # tokens that the encoder reads
    length: int
    model_dim: int
    heads: int
    head_dim: int
    hidden_dim: int
    vocabulary: int
    workload: str = "t5"
    blocks: int = 2  # of the encoder, and of the decoder
    buckets: int = 8
    max_distance: int = 7
    is_tied: bool = True
    norm_epsilon: float = 2.0**-7
    seed: int = 0
    devices: tuple = (1, 2, 3, 5)
    mistake: Mistake = Mistake()
    batch_of = ("input_ids", "decoder_input_ids")

    def shapes(self):
        return shardbook_decoder.t5_shapes_of(self)

    @property
    def score_scale(self):
        return self.head_dim**-0.5 if self.mistake.forgets == "no scale" else 1.0


LOGIT_STEP = 1024.0  # exp(-1024) is 0, in float64 too


@cache
def after(problem, **mistake):
    """{name: result} of a wrong version; empty if rounding may decide a result."""
    wrong = replace(problem, mistake=Mistake(**mistake))
    try:
        return {name: result.value for name, result in wrong.solved(Precision(0, 0)).items()}
    except Undecided:
        return {}


def weights_of(problem):
    """Its parameters, rounded if that is the mistake."""
    mistake = problem.mistake
    return {name: rounded(w, mistake.to) if mistake.rounds == "weights" else w for name, w in problem.params.items()}


def vars_of(problem):
    """A problem's entry in a manifest."""
    grid = {"grid": problem.grid} if problem.workload == "decoder" and problem.kind == "exact" else {}
    return {**{name: getattr(problem, name) for name in problem.__dataclass_fields__ if name != "mistake"},
            **grid}


def counted(problem):
    """Whether each row counts, (B, 1): all do, unless a mistake says otherwise."""
    begin, end = problem.mistake.rows or (0, problem.batch_size)
    rows = np.arange(problem.batch_size)[:, None]
    return (begin <= rows) & (rows < end)


def layer_names(problem):
    """The parameters in the order in which they are applied."""
    return [f"layer_{layer}/weights" for layer in problem.mistake.layers or range(problem.layers)]


def gradients(problem, params, batch):
    batch = {**batch, "output_grad": batch["output_grad"].masked(counted(problem))}
    return (mixture_gradients if problem.workload == "mixture" else mlp_gradients)(problem, params, batch)


def mlp_gradients(problem, params, batch):
    names = layer_names(problem)
    weights = [params[name] for name in names]
    kept = forward(weights, batch["input"], problem.mistake)
    input_grad, of_weights = backward(problem, weights, kept, batch["output_grad"])
    return {"output": kept.inputs[-1], "input_grad": input_grad, **dict(zip(names, of_weights))}


@dataclass
class Kept:
    """For each layer, and behind the last one: the input, the same before a ReLU, and the ReLU's mask, if any."""
    inputs: list = field(default_factory=list)
    before: list = field(default_factory=list)
    masks: list = field(default_factory=list)


def has_relu(layer, layers, mistake):
    """Whether a ReLU comes before a layer, or behind the last one. Without a mistake: before each odd layer."""
    return {"relus_forgotten": False, "relu_before_each": layer < layers, "relu_behind_each": layer > 0,
            "relu_between": 0 < layer < layers}.get(mistake.forgets, layer % 2 == 1 and layer < layers)


def forward(weights, x, mistake=Mistake()):
    """x w0, ReLU, w1, w2, ReLU, w3 ... The output is the last input."""
    kept = Kept()
    for layer in range(len(weights) + 1):
        mask = x.is_positive() if has_relu(layer, len(weights), mistake) else None
        kept.before.append(x)
        kept.masks.append(mask)
        kept.inputs.append(x if mask is None else x.masked(*mask))
        if layer < len(weights):
            inner = weights[layer].value.shape[0]
            first = part(inner, mistake.devices, mistake.devices - 1)[0] if mistake.forgets == "panels before" else 0
            x = kept.inputs[layer].masked(np.arange(inner) >= first) @ weights[layer]
    return kept


def backward(problem, weights, kept, d):
    """dL/dx and each dL/dw. The derivative of ReLU at 0 is 0."""
    mistake, layers, found = problem.mistake, len(weights), []
    other, of_block = mistake.kept or range(layers), d
    for layer in reversed(range(layers + 1)):
        if kept.masks[layer] is not None and mistake.forgets != "mask_forgotten":
            mask = kept.masks[other[layer - 1] + 1] if layer else None
            d = d.masked(*(mask or kept.masks[layer]))
        if layer == 0:
            break
        of_block = d if layer == 2 else of_block
        w = weights[mistake.taken[layer - 1] if mistake.taken else layer - 1]
        found.insert(0, input_kept(kept, other[layer - 1], mistake).T @ d)
        if mistake.forgets == "dx_not_reduced" and layer % 2 == 1:
            begin, end = part(w.value.shape[1], mistake.devices, mistake.device)
            d = d.masked((begin <= np.arange(w.value.shape[1])) & (np.arange(w.value.shape[1]) < end))
        d = d @ w.T
    return of_block if mistake.forgets == "block_left_out" else d, found


def input_kept(kept, layer, mistake):
    begins_block = layer % 2 == 0 and layer + 2 < len(kept.inputs)
    if mistake.forgets == "kept_before_relu":
        return kept.before[layer]
    if begins_block and mistake.forgets in ("kept_output", "kept_first"):
        return kept.inputs[layer + 2 if mistake.forgets == "kept_output" else 0]
    return kept.inputs[layer]


def softmax(z):
    """The softmax of each row. Bounds take a power at one end of its interval, and all others at the other end."""
    largest = z.value.max(axis=1, keepdims=True)
    low, middle, high = (np.exp(z.value - largest + sign * z.error) for sign in (-1, 0, 1))
    p = middle / middle.sum(axis=1, keepdims=True)
    require_exact(z.precision, p, unit_of(p))
    upper = high / (high + low.sum(axis=1, keepdims=True) - low)
    lower = low / (low + high.sum(axis=1, keepdims=True) - high)
    u = z.precision.sums * (z.value.shape[1] + 8)  # exp to 4 ulp, the sum, the division
    return Bounded(p, np.maximum(upper - p, p - lower) + u * upper, z.precision)


def mixture_gradients(problem, params, batch):
    """Each token goes to its top_k likeliest experts, with their softmax as gates: for top_k > 1 divided by
    their sum. An expert takes at most ceil(capacity_factor top_k B / E) choices. All tokens' first choices
    come before any second one, and the rest is dropped. The gradients have those of the balancing
    loss, aux_weight E sum_e f_e P_e: f_e is the share of choices that went to expert e, dropped ones too, and
    P_e the mean of its probability (Fedus et al. 2021, section 2.2)."""
    x, tokens, experts = batch["input"], problem.batch_size, problem.experts
    logits = x @ params["router/weights"]
    p = softmax(logits)
    chosen = likeliest(logits, problem.top_k)
    total = row_sums(p[np.arange(tokens)[:, None], chosen])
    gates = p / total[:, None] if problem.top_k > 1 else p
    output, input_grads, d_gates, found = through_experts(problem, params, batch, gates, chosen)
    if problem.mistake.forgets == "gate gradients":
        d_gates = d_gates * 0
    of_gates = d_gates
    if problem.top_k > 1:  # gate = p / total
        is_chosen = np.zeros((tokens, experts), bool)
        np.put_along_axis(is_chosen, chosen, True, axis=1)
        d_gates = ((d_gates - row_sums(d_gates * gates)[:, None]) / total[:, None]).masked(is_chosen)
    share = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    times = {"balance": 0, "balance n times": problem.mistake.devices}.get(problem.mistake.forgets, 1)
    weight = times * problem.aux_weight
    balance = counted(problem) * (weight * experts * share / tokens)
    d_p = d_gates + x.rounded_once(balance, 3 * x.precision.sums * balance)
    if problem.mistake.forgets == "softmax of gates" and problem.top_k > 1:
        d_p = Bounded.exact(balance, x.precision)
    d_logits = p * (d_p - row_sums(d_p * p)[:, None])
    if problem.mistake.forgets == "softmax of gates" and problem.top_k > 1:
        d_logits = d_logits + of_gates.masked(is_chosen)
    found["router/weights"] = x.T @ d_logits
    input_grad = sum_of([*input_grads, d_logits @ params["router/weights"].T])
    return {"output": output, "input_grad": input_grad, **found}


def likeliest(logits, k):
    """The k likeliest experts of each token, (tokens, k). Of equal ones the first comes first."""
    order = np.argsort(-logits.value, axis=1, kind="stable")
    sorted_logits = logits[np.arange(len(order))[:, None], order]
    here, beside = sorted_logits[:, :-1][:, :k], sorted_logits[:, 1:][:, :k]
    errors = here.error + beside.error
    if ((here.value - beside.value <= errors) & (errors > 0)).any():
        raise Undecided("two experts of which either can come first")
    return order[:, :k]


def through_experts(problem, params, batch, gates, chosen):
    """Output, each expert's part of the gradient by the input, and gradients by each gate (tokens, experts)
    and by the experts' weights."""
    x, d_out = batch["input"], batch["output_grad"]
    kept, found = within_capacity(chosen, problem.experts, problem.capacity_factor, problem.mistake), {}
    outputs, input_grads, by_gate = [], [], []
    for expert in range(problem.experts):
        mine = np.nonzero(((chosen == expert) & kept).any(axis=1))[0]
        gate = 1 if problem.mistake.forgets == "gates" else gates[mine, expert][:, None]
        names = [f"expert_{expert}/layer_{layer}/weights" for layer in range(problem.layers)]
        weights = [params[name] for name in names]
        trace = forward(weights, x[mine], problem.mistake)
        y = trace.inputs[-1]
        d, of_weights = backward(problem, weights, trace, d_out[mine] * gate)
        found.update(zip(names, of_weights))
        of_gate = row_sums(d_out[mine] * y)[:, None]
        for wholes, some in ((outputs, y * gate), (input_grads, d), (by_gate, of_gate)):
            wholes.append(some.spread(mine, problem.batch_size))
    d_gates = Bounded(*(np.hstack([getattr(d, part) for d in by_gate]) for part in ("value", "error")),
                      x.precision)
    return sum_of(outputs), input_grads, d_gates, found


def within_capacity(chosen, experts, factor, mistake=Mistake()):
    """Which choices, (tokens, k), find room in their expert."""
    if factor == "none" or mistake.forgets == "capacity":
        return np.ones(chosen.shape, bool)
    slots = math.ceil(factor * chosen.size / experts)
    slots += {"a slot": -1, "where slots end": 1}.get(mistake.forgets, 0)
    if mistake.forgets == "rows elsewhere":
        begin, end = part(len(chosen), mistake.devices, mistake.device)
        slots = math.ceil(factor * (end - begin) * chosen.shape[1] / experts)
    used, kept = np.zeros(experts, int), np.zeros(chosen.shape, bool)
    for token, rank in in_turn(chosen.shape, mistake):
        kept[token, rank] = used[chosen[token, rank]] < slots
        used[chosen[token, rank]] += 1
    return kept


def in_turn(shape, mistake):
    """(token, rank) of all choices: all tokens' first ones, in order, then the second ones."""
    tokens, ranks = range(shape[0]), range(shape[1])
    if mistake.forgets == "ranks":
        return [(token, rank) for token in tokens for rank in ranks]
    if mistake.forgets == "ranks elsewhere":
        return [(token, rank) for device in range(mistake.devices) for rank in ranks
                for token in range(*part(len(tokens), mistake.devices, device))]
    return [(token, rank) for rank in ranks for token in tokens]


def row_sums(t):
    return sum_of([t[:, column] for column in range(t.value.shape[1])])


def sum_of(addends):
    """Of tensors of one shape, added in any order."""
    precision = addends[0].precision
    values, errors = (np.array([getattr(a, part) for a in addends]) for part in ("value", "error"))
    sizes = np.abs(values) + errors
    require_exact(precision, sizes.sum(axis=0), unit_of(values))
    gamma = precision.gamma((sizes > 0).sum(axis=0))
    return Bounded(values.sum(axis=0), errors.sum(axis=0) + gamma * sizes.sum(axis=0), precision)


def train(problem, params, batch):
    """The parameters after each step's forward, backward, clipping and update."""
    mistake, names = problem.mistake, layer_names(problem)
    moments = {name: (w * 0.0, w * 0.0) for name, w in params.items()}
    before = {}
    for step in range(1, problem.steps + 1 - mistake.misses_step):
        weights = [params[name] for name in names]
        kept = forward(weights, batch["input"], mistake)
        output = kept.inputs[-1]
        of_mean = 2.0 / output.value.size  # of all squares
        d = (output - batch["target"]) * (of_mean * weights_of_rows(problem))
        _, found = backward(problem, weights, kept, d)
        of = dict(zip(names, found))
        if mistake.scale != 1 or before:
            of = {name: g * mistake.scale + before.get(name, 0.0) for name, g in of.items()}
        if problem.clip_norm and mistake.forgets != "clipping":
            stages = [part(len(names), mistake.stages, stage) for stage in range(mistake.stages)]
            groups = [{name: of[name] for name in names[begin:end]} for begin, end in stages if end > begin]
            of = {name: g for group in groups for name, g in clipped(group, problem.clip_norm).items()}
        before = of if mistake.forgets == "zeroing" else {}
        for name in names:
            if problem.kind == "sgd":
                params[name] = params[name] - of[name] * problem.learning_rate
            else:
                params[name], moments[name] = adam(problem, params[name], of[name], *moments[name], step)
    return {name: params[name] for name in names}


def weights_of_rows(problem):
    """1 for each row; of a wrong version, rows / (own rows), for each device's mean over its own rows."""
    if problem.mistake.forgets not in ("own means", "means of own means"):
        return np.ones((problem.batch_size, 1))
    n = problem.mistake.devices
    shares = [end - begin for begin, end in (part(problem.batch_size, n, d) for d in range(n))]
    means = n if problem.mistake.forgets == "means of own means" else 1
    return np.concatenate([[problem.batch_size / (means * own)] * own for own in shares if own])[:, None]


def clipped(of, most):
    """All gradients times min(1, most / (norm + 1e-6)), as PyTorch's clip_grad_norm_."""
    squares = [(g * g).sum() for g in of.values()]
    norm = sum(squares[1:], squares[0]).sqrt()
    if abs(norm.value - most) <= norm.error + 1e-5:
        raise Undecided("a norm that is clipped or not")
    if norm.value < most:
        return of
    factor = Bounded.exact(most, norm.precision) / (norm + 1e-6)
    return {name: g * factor for name, g in of.items()}


def adam(problem, w, g, m, v, step):
    """Kingma and Ba 2015, algorithm 1; epsilon outside the root, as in PyTorch."""
    beta1, beta2 = problem.betas
    m = m * beta1 + g * (1 - beta1)
    v = v * beta2 + g * g * (1 - beta2)
    first, second = (1 if problem.mistake.forgets == "bias_not_corrected" else 1 / (1 - beta**step)
                     for beta in problem.betas)
    is_inside = problem.mistake.forgets == "epsilon_inside"
    root = (v * second + is_inside * problem.epsilon).sqrt() + (not is_inside) * problem.epsilon
    update = m * first / root
    return w - update * problem.learning_rate, (m, v)


# ---- Where a device's results belong ---------------------------------------------------------------------
@dataclass(frozen=True)
class Letter:
    """How a tensor lies on one axis of a mesh: replicated (R), sharded along an axis of its own (S), partial
    (P), or owned by one device (O)."""
    kind: str
    axis: int = 0  # S: the tensor's axis; O: the owner's index on the mesh's axis
    offsets: tuple = ()  # where each slice begins; empty: where the one before ends

    def __str__(self):
        return {"R": "replicated", "P": "partial", "S": f"sharded along axis {self.axis}",
                "O": f"owned by device {self.axis}"}[self.kind]


REPLICATED = Letter("R")


def read_layout(path):
    """Sizes of the mesh's axes, and {tensor: a Letter for each axis}, of a layout.json."""
    try:
        content = json.loads(Path(path).read_text())
        mesh, tensors = content["mesh"], content["tensors"]
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}")
        return tuple(mesh.values()), {name: letters_of(on, mesh) for name, on in tensors.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: expected a layout of version {VERSION}, given another: {error}") from None


def letters_of(on, mesh):
    """The letter on each axis of a mesh."""
    if unknown := [axis for axis in on if axis not in mesh]:
        raise ValueError(f"{unknown[0]}, which is no axis of the mesh {', '.join(mesh)}")
    letters = tuple(letter_of(on.get(axis, "replicated")) for axis in mesh)
    for (axis, size), letter in zip(mesh.items(), letters):
        if letter.offsets and len(letter.offsets) != size:
            raise ValueError(f"{len(letter.offsets)} offsets on the axis {axis} of size {size}")
    return letters


def letter_of(word):
    if word in ("replicated", "partial"):
        return Letter(word[0].upper())
    kind = next((kind for kind in ("sharded", "owned") if isinstance(word, dict) and kind in word), None)
    if kind is None:
        raise ValueError(f"{word}, which is not replicated, partial, sharded or owned")
    return Letter(kind[0].upper(), int(word[kind]), tuple(word.get("offsets", ())))


class Placement:
    """The pieces of a tensor on a mesh: one for each device, or None."""
    def __init__(self, pieces, sizes, letters):
        self.pieces, self.sizes, self.letters = pieces, sizes, letters
        self.starts, self.is_whole = [None] * len(pieces), True
        self.shape = self.extent(())
        self.place((), [0] * len(self.shape or ()))

    def device(self, prefix):
        number = 0
        for index, size in zip(prefix, self.sizes):
            number = number * size + index
        return number

    def children(self, prefix):
        letter = self.letters[len(prefix)]
        indices = [letter.axis] if letter.kind == "O" else range(self.sizes[len(prefix)])
        return letter, [(*prefix, index) for index in indices]

    def extent(self, prefix):
        """The shape of the joined pieces of the devices whose indices begin with `prefix`; None without pieces."""
        if len(prefix) == len(self.sizes):
            piece = self.pieces[self.device(prefix)]
            return None if piece is None else list(piece.shape)
        letter, children = self.children(prefix)
        shapes = [shape for shape in map(self.extent, children) if shape is not None]
        if not shapes:
            return None
        shape = list(shapes[0])
        if letter.kind == "S" and letter.axis < len(shape):
            shape[letter.axis] = sum(each[letter.axis] for each in shapes)
        return shape

    def place(self, prefix, start):
        if len(prefix) == len(self.sizes):
            self.starts[self.device(prefix)] = start
            return
        letter, children = self.children(prefix)
        begin, spans = list(start), []
        for index, child in enumerate(children):
            if letter.kind == "S" and letter.offsets:
                begin[letter.axis] = start[letter.axis] + letter.offsets[index]
            self.place(child, list(begin))
            shape = self.extent(child)
            if letter.kind == "S" and shape is not None and letter.axis < len(shape):
                spans.append((begin[letter.axis], shape[letter.axis]))
                begin[letter.axis] += shape[letter.axis]
        spans.sort()
        ends = [first + length for first, length in spans]
        self.is_whole &= all(first == end for (first, _), end in zip(spans[1:], ends))

    def slices(self, device):
        """Where this device's piece lies in the whole."""
        shape = self.pieces[device].shape
        return tuple(slice(begin, begin + size) for begin, size in zip(self.starts[device], shape))

    def twins(self, device):
        """The devices that hold the same, or an addend of the same sum."""
        indices = list(np.ndindex(*self.sizes))
        return [other for other, at in enumerate(indices)
                if all(letter.kind in "RP" or a == b for letter, a, b in zip(self.letters, at, indices[device]))]

    def group(self, device):
        """The devices whose addends make one sum with this one's; itself alone if nothing is partial."""
        indices = list(np.ndindex(*self.sizes))
        mine = indices[device]
        return [other for other, at in enumerate(indices)
                if all(letter.kind == "P" or a == b for letter, a, b in zip(self.letters, at, mine))]


def inferred(pieces, expected):
    """The letter that fits the pieces of devices on one axis."""
    have = [device for device, piece in enumerate(pieces) if piece is not None]
    shapes = {pieces[device].shape for device in have}
    if len(have) == 1 and len(pieces) > 1 and shapes == {expected.shape}:
        return Letter("O", have[0])
    if shapes == {expected.shape}:
        return REPLICATED
    axes = [axis for axis in range(expected.ndim)
            if all(len(shape) == expected.ndim and shape[:axis] + shape[axis + 1:] ==
                   expected.shape[:axis] + expected.shape[axis + 1:] for shape in shapes)]
    return Letter("S", axes[0]) if axes else REPLICATED


STRATEGIES = {"dp": "data", "ddp": "data", "data": "data", "fsdp": "zero3", "fsdp2": "zero3",
              "zero3": "zero3", "tp": "tensor", "tensor": "tensor", "ep": "data", "single": "single"}


# Of a decoder: heads, hidden units and the vocabulary are cut.
TENSOR_AXES = {**{name: Letter("S", 1) for name in ("query", "key", "value", "gate", "up")},
               **{name: Letter("S", 0) for name in ("output", "down", "embedding", "head")},
               **{name: REPLICATED for name in ("attention_norm", "feed_forward_norm", "final_norm", "norm",
                                                "router", "loss", "losses")},
               "position_bias": Letter("S", 1), "logits": Letter("S", 2)}


def letter_by_strategy(strategy, name):
    """The letter of a result in a strategy; None if the strategy does not determine it."""
    kind = STRATEGIES.get(strategy)
    is_whole = name in ("output", "input_grad") if kind == "tensor" else name not in OF_ROWS
    if kind == "single" or kind in ("data", "tensor") and is_whole:
        return REPLICATED
    if kind in ("data", "zero3"):
        return Letter("S", 0)
    if kind == "tensor":
        last = name.split("/")[-1].removeprefix("self_").removeprefix("cross_")
        if last in TENSOR_AXES:
            return TENSOR_AXES[last]
        if layer := re.search(r"layer_(\d+)/", name):
            return Letter("S", 1 - int(layer[1]) % 2)
    return None


# ---- What differs, and why -------------------------------------------------------------------------------
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
OF_ROWS = ("output", "input_grad", "logits", "losses")  # results with a row for each row of the batch


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


OF_RELUS = ("mask_forgotten", "relus_forgotten", "relu_between", "relu_before_each", "relu_behind_each",
            "kept_before_relu", "kept_output", "kept_first", "block_left_out")


def mistakes(problem, devices):
    """Yields (cause, fields of a Mistake) of possible wrong versions."""
    if problem.workload in TOKENS:
        yield from mistakes_with_tokens(problem, devices)
        return
    for cause in OF_RELUS:
        yield SAYS[cause], {"forgets": cause}
    for rounds in ("weights", "products") if problem.kind != "exact" else ():
        for to, name in (("BF16", "bfloat16"), ("F16", "float16")):
            yield SAYS[f"{rounds}_rounded"].format(name), {"rounds": rounds, "to": to}
    if problem.workload == "mixture":
        if problem.capacity_factor != "none":
            yield "choices that an expert has no room for not dropped?", {"forgets": "capacity"}
            yield "an expert's capacity one less than it is?", {"forgets": "a slot"}
            yield "an expert's capacity one more than it is?", {"forgets": "where slots end"}
            yield "slots given to all choices of a device before those of the next?", \
                {"forgets": "ranks elsewhere", "devices": devices}
            yield "slots given to all choices of a token before those of the next?", {"forgets": "ranks"}
            yield "a capacity that counts a device's own rows alone?", \
                {"forgets": "rows elsewhere", "devices": devices}
        yield "answers not multiplied by their gates?", {"forgets": "gates"}
        yield "the gates' gradient forgotten?", {"forgets": "gate gradients"}
        yield SAYS["balance_forgotten"], {"forgets": "balance"}
        if devices > 1 and problem.aux_weight:
            yield SAYS["balance_n_times"].format(devices), {"forgets": "balance n times", "devices": devices}
        if problem.top_k > 1:
            yield "the gates' gradient taken for the logits': without the softmax?", \
                {"forgets": "softmax of gates"}
        return
    for words, taken in other_layers(problem):
        yield f"a backward pass with {words.format('weights')}?", {"taken": taken}
        yield f"a backward pass with {words.format('activations')}?", {"kept": taken}
    for first in range(devices):
        for other in range(first + 1, devices):
            if layers := with_swapped_stages(problem, devices, first, other):
                yield f"the layers of devices {first} and {other} in each other's place?", {"layers": layers}
    for panels in range(2, devices + 1):
        yield "products of the last panel alone, written over those of the panels before?", \
            {"forgets": "panels before", "devices": panels}
    if problem.kind == "adam":
        for cause in ("bias_not_corrected", "epsilon_inside"):
            yield SAYS[cause], {"forgets": cause}
    if problem.is_training:
        yield "gradients of all steps added up: not set to 0?", {"forgets": "zeroing"}
        yield "gradients not clipped?", {"forgets": "clipping"}
        if devices > 1:
            for words, forgets in (("their mean", "means of own means"), ("their sum", "own means")):
                if problem.batch_size % devices:
                    yield SAYS["own_means"].format(words), {"forgets": forgets, "devices": devices}
            yield "clipped by the norm of a device's layers alone?", {"stages": devices}
            yield f"every gradient 1/{devices} of it: a mean where a sum is meant?", {"scale": 1 / devices}
            yield f"every gradient {devices} times it: summed where every device has the sum?", \
                {"scale": float(devices)}


ON_ONE_DEVICE = {
    "causality": "tokens that see later ones: no causal mask?",
    "window": "tokens that see beyond their window?",
    "halves": "rotary pairs of neighbours, 2j and 2j + 1, where j and j + d/2 are meant?",
    "rope base": "rotary angles with the base 10000?",
    "scale": "scores not divided by the root of a head's width?",
    "neighbours": "query heads h, h + G, ... share key-value head h, where neighbours are meant?",
    "epsilon": "norms without their epsilon?",
    "gate or up": "gate and up in each other's place?",
    "the head": "a tied table with the gradient of the embedding alone?",
    "the table": "a tied table with the gradient of the head alone?",
    "that the head is one of two": "a tied table that has its gradient through the head twice?",
    "that the table is one of two": "a tied table that has its gradient through the embedding twice?",
    "gates": "answers not multiplied by their gates?",
    "gate gradients": "the gates' gradient forgotten?",
    "chosen alone": "gates that are a softmax over all experts, not over the chosen ones?",
}
ON_SOME_DEVICES = {
    "positions": "rotary positions that begin at 0 on each device?",
    "keys elsewhere": "tokens that see the keys of their own device alone?",
    "queries elsewhere": "keys and values with the gradient of their own device's queries alone?",
    "places before": "a causal mask that compares places within a device, not positions?",
    "offset of ids": "ids looked up in each slice of the embedding without the slice's offset?",
    "offset of labels": "labels looked up in each slice of the logits without the slice's offset?",
    "sequences elsewhere": "a mean over the labels of each device's sequences, and then over devices?",
    "positions elsewhere":
        "a mean over the labels of each device's part of sequences, and then over devices?",
    "sum of sequences elsewhere": "a mean over the labels of each device's sequences, and then their sum?",
    "sum of positions elsewhere": "a mean over the labels of each device's part of sequences, and then their sum?",
    "places of queries": "a causal mask in which the queries of each device begin at 0?",
    "rescaling": "pieces of keys around a ring, added up without rescaling to the largest score?",
    "values elsewhere": "a device's own values for those that come around the ring?",
    "the ring's direction": "a backward pass with the positions of the keys of another piece on the ring?",
    "values' sums": "the gradient of values from the last device of the ring alone: sums overwritten?",
}


OF_T5 = {
    "causality": "tokens that see later ones: no causal mask?",
    "no scale": "scores divided by the root of a head's width, which T5 does not do?",
    "logit scale": "logits of a tied table not divided by the root of the model's width?",
    "direction": "an encoder's buckets of distances that do not tell keys behind from keys before?",
    "other blocks": "a position table with the gradient of the first block alone?",
    "other readers": "the encoder's gradient from the last block of the decoder alone?",
    "epsilon": "norms without their epsilon?",
    **{use: ON_ONE_DEVICE[use] for use in ("the head", "the table", "that the head is one of two")},
}
TOKENS = ("decoder", "t5")


def mistakes_with_tokens(problem, devices):
    is_t5 = problem.workload == "t5"
    for forgets, text in (OF_T5 if is_t5 else ON_ONE_DEVICE).items():
        yield text, {"forgets": forgets}
    for forgets, text in ON_SOME_DEVICES.items() if devices > 1 else ():
        if not is_t5 or "offset" in forgets or "sequences" in forgets:
            yield text, {"forgets": forgets, "devices": devices}


def other_layers(problem):
    """Yields (words, layers): for each layer, a layer of the same shape whose weights or activations are taken."""
    if not problem.layers:
        return
    shapes, layers = list(zip(problem.widths, problem.widths[1:])), range(problem.layers)

    def fitting(wanted):
        return tuple(other if 0 <= other < len(layers) and shapes[other] == shapes[layer] else layer
                     for layer, other in zip(layers, wanted))
    for words, wanted in (("the {} of the block before", [layer - 2 for layer in layers]),
                          ("the {} of the block behind", [layer + 2 for layer in layers]),
                          ("the first block's {} in every block", [layer % 2 for layer in layers]),
                          ("the last block's {} in every block",
                           [len(layers) - 2 + layer % 2 for layer in layers]),
                          ("the layers' {} from the other end", list(reversed(layers)))):
        if (taken := fitting(wanted)) != tuple(layers):
            yield words, taken
    for layer, other in itertools.permutations(layers, 2):
        if shapes[layer] == shapes[other]:
            yield f"layer {other}'s {{}} for layer {layer}", tuple(other if k == layer else k for k in layers)


def with_swapped_stages(problem, devices, first, other):
    """The layers in the order of stages, if two devices exchange their stages; empty if widths do not fit."""
    stages = [range(*part(problem.layers, devices, device)) for device in range(devices)]
    stages[first], stages[other] = stages[other], stages[first]
    layers = tuple(layer for stage in stages for layer in stage)
    if not layers:
        return ()
    widths = problem.widths
    fits = [widths[a + 1] == widths[b] for a, b in zip(layers, layers[1:])]
    is_whole = widths[layers[0]] == widths[0] and widths[layers[-1] + 1] == widths[-1]
    return layers if all(fits) and is_whole and list(layers) != sorted(layers) else ()


RULES = (not_finite, zero, scaled, in_16_bits, previous_step, one_addend, share_of_device, never_reduced,
         off_by_addend, micro_batches, off_by_rows, transposed, other_slice, log_off, shifted, reordered,
         another_computation, not_reduced_behind, wrong_scale, averaged_over_own_rows)


# ---- The check -------------------------------------------------------------------------------------------
@dataclass
class Verdict:
    problem: str
    devices: int
    differences: list = field(default_factory=list)
    notes: list = field(default_factory=list)  # what was inferred
    results: dict = field(default_factory=dict)  # see Evidence
    worst: float = 0.0  # the largest difference of a right result, in units of its bound
    micro_batches: int | None = None  # of a step, if that is known

    @property
    def is_right(self):
        return not self.differences

    def __str__(self):
        if self.is_right:
            return f"{self.problem} on {self.devices}: right"
        most = 6
        more = len(self.differences) - most
        lines = [f"{self.problem} on {self.devices}: {len(self.differences)} differ",
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


def slices_by_rule(shape, letter, given, device, world, width=1):
    """A device's slice: as part() divides, or as torch.chunk does, if the given length is that one. `width`: of a
    head, if heads are divided. A device may have all key-value heads."""
    slices = [slice(0, size) for size in shape]
    if width > 1 and given == shape:
        return tuple(slices)
    if letter.kind == "S" and letter.axis < len(shape):
        size = shape[letter.axis]
        begin, end = (width * bound for bound in part(size // width, world, device))
        if len(given) == len(shape) and end - begin != given[letter.axis]:
            piece = -(-size // world)
            chunk = min(device * piece, size), min((device + 1) * piece, size)
            begin, end = chunk if chunk[1] - chunk[0] == given[letter.axis] else (begin, end)
        slices[letter.axis] = slice(begin, end)
    return tuple(slices)


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
    part_of_want = rounded(part_of_want, given.dtype)
    if given.dtype in ("F16", "BF16") and bound.any():
        unit = 2.0**-11 if given.dtype == "F16" else 2.0**-9
        limit = limit + unit * (np.abs(part_of_want) + limit) + 2.0**-25
    off = np.abs(given.values - part_of_want)
    wrong = ~(off <= limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmax(np.where(limit > 0, off / limit, 0), initial=0))
    if not wrong.any():
        verdict.worst = max(verdict.worst, ratio)
        return []
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    wrong = tuple(d.tensor for d in verdict.differences)
    evidence = Evidence(problem, verdict.devices, name, device, given.values, part_of_want, limit, want, slices,
                        verdict.results, wrong, verdict.micro_batches)
    return [Difference(name, diagnose(evidence), device, tuple(s.start + i for s, i in zip(here, first)),
                       float(part_of_want[first]), float(given.values[first]), float(limit[first]),
                       ratio if limit.any() else None)]


def shape_text(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def check_pieces(problem, devices, pieces, layout=None, precision="float32"):
    """Compares the results of `devices` devices with a problem: a list with a {name: Stored} for each device, or with
    one for whole tensors. `layout`: sizes of the mesh's axes and {name: letters}, as read_layout gives them; without
    one, it is inferred."""
    verdict = Verdict(problem.name, devices)
    bounds = problem.bounds(precision)
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
        placement = Placement(values, sizes, letters)
        if placement.shape == list(want.shape) and not placement.is_whole:
            verdict.differences.append(Difference(name, "the offsets of its slices overlap, or leave a gap"))
            continue
        if placement.shape != list(want.shape):
            verdict.differences.append(not_the_whole(name, placement, want))
            continue
        slices = [placement.slices(d) if p is not None else (slice(0, 0),) * want.ndim
                  for d, p in enumerate(values)]
        differ = []
        for device, piece in enumerate(mine):
            if piece is None:
                is_elsewhere = any(mine[twin] is not None for twin in placement.twins(device))
                differ += [Difference(name, SAYS["left_out"], device)] * is_elsewhere
            elif placement.group(device)[0] == device:
                total = sum(values[other] for other in placement.group(device))
                differ += of_piece(verdict, problem, name, Stored(total, piece.dtype), want, bounds[name], slices, device,
                                   values)
        verdict.differences += as_of_one(differ, values)
    return verdict


def as_of_one(differ, pieces):
    """If one device of several differs, without a known cause, the cause says that it is the only one."""
    if len(differ) == 1 and differ[0].cause == SAYS["unknown"] and sum(p is not None for p in pieces) > 1:
        differ[0].cause = SAYS["one_device"]
    return differ


def not_the_whole(name, placement, want):
    lies = ", ".join(map(str, placement.letters))
    turned = list(want.shape[::-1]) == placement.shape
    return Difference(name, f"expected {shape_text(want.shape)}, given slices that make "
                            f"{shape_text(placement.shape or ())} ({lies})"
                      + (": " + SAYS["transposed"]) * turned)


# ---- Names -----------------------------------------------------------------------------------------------
def read_map(texts):
    """{theirs: (ours, is_transposed)} of 'fc1.weight=layer_0/weights^T', or of a JSON file of such pairs."""
    found = {}
    for text in texts:
        pairs = json.loads(Path(text).read_text()).items() if text.endswith(".json") else [text.split("=", 1)]
        for pair in pairs:
            if len(pair) != 2:
                raise Refused(f"--map: expected THEIRS=OURS, or a file that ends in .json, given {text}")
            theirs, ours = pair
            found[theirs] = (ours.removesuffix("^T"), ours.endswith("^T"))
    return found


def to_ours(tensors, names):
    """Results under our names: {name: Stored}."""
    found = {}
    for name, t in tensors.items():
        ours, is_transposed = names.get(name, (name, False))
        found[ours] = Stored(t.values.T, t.dtype) if is_transposed else t
    return found


def to_theirs(tensors, names):
    """Parameters under their names: {name: array}."""
    theirs = {ours: (name, is_transposed) for name, (ours, is_transposed) in names.items()}
    found = {}
    for name, t in tensors.items():
        other, is_transposed = theirs.get(name, (name, False))
        found[other] = t.T if is_transposed else t
    return found


# ---- The list --------------------------------------------------------------------------------------------
def mlp(kind, batch, *widths, **more):
    name = f"mlp-{kind}-{batch}x{'x'.join(map(str, widths))}"
    return Problem(name, "mlp", kind, batch, widths, **more)


def mixture(kind, batch, experts, top_k, *widths, **more):
    room = "-full" if "capacity_factor" in more else ""
    name = f"mixture-{kind}-{batch}x{'x'.join(map(str, widths))}-{experts}-top{top_k}{room}"
    return Problem(name, "mixture", kind, batch, widths, experts=experts, top_k=top_k, **more)


def decoder(kind, text, batch_size, length, *sizes, **more):
    return DecoderProblem(f"decoder-{kind}-{text}", kind, batch_size, length, *sizes, **more)


def t5(text, *sizes, **more):
    return T5Problem(f"t5-real-{text}", "real", *sizes, **more)


@cache
def usable(problem):
    """The problem with the first seed for which rounding decides nothing; in an exact problem, at least half of each
    result is also not 0."""
    for seed in range(problem.seed, 1000):
        candidate = replace(problem, seed=seed)
        try:
            coarsest = "tf32" if problem.kind == "real" and problem.workload != "t5" else "float32"
            results = candidate.results(coarsest, if_unsure="refused")
        except Undecided:
            continue
        if problem.kind == "exact" and any((r.value != 0).mean() < 0.5 for r in results.values()):
            continue
        return candidate
    raise Refused(f"{problem.name}: no seed makes it decided")


def listed():
    """Every problem, with the seed at which `usable` begins. Few numbers of devices divide the shapes, and one shape
    has fewer rows and columns than devices."""
    training = {"steps": 5, "learning_rate": 2.0**-4}
    # Some steps are clipped and some are not, and epsilon matters: otherwise, Adam would hide a wrong scale.
    adam = {"steps": 5, "learning_rate": 2.0**-5, "epsilon": 2.0**-4}
    return [mlp("exact", 13, 7, 11, 7), mlp("exact", 13, 7, 11, 7, 11, 7), mlp("exact", 3, 5, 2, 5),
            mlp("exact", 16, 8, 24, 8, 24, 8), mlp("real", 13, 7, 11, 7), mlp("real", 16, 8, 24, 8),
            mlp("real", 5, 3, 2, 3, 2, 3), mlp("sgd", 13, 7, 11, 7, **training),
            mlp("sgd", 16, 8, 24, 8, **training),
            mlp("adam", 13, 7, 11, 7, **adam, clip_norm=1.0),
            mlp("adam", 16, 8, 24, 8, **adam, clip_norm=0.625),
            mixture("exact", 23, 5, 1, 5, 7, 5), mixture("exact", 11, 3, 2, 5, 7, 5),
            # The balancing loss is divided by top_k and twice by the batch size, so these are powers of two.
            mixture("exact", 16, 7, 2, 5, 7, 5, aux_weight=128.0, capacity_factor=0.75),
            mixture("real", 13, 3, 1, 5, 7, 5, aux_weight=2.0**-6), mixture("real", 11, 5, 2, 5, 7, 5),
            mixture("real", 13, 7, 2, 5, 7, 5, aux_weight=2.0**-6, capacity_factor=1.25),
            *decoders()]


def decoders():
    """Decoders with more key-value heads than devices, and with fewer; with a window, a tied head, and experts. Given
    seeds are the first usable ones."""
    plain, even = {"blocks": 2}, {"devices": (1, 2, 4, 8)}
    tied = {"window": 3, "is_tied": True, "blocks": 2, "rope_base": 100.0}
    experts = {"experts": 5, "top_k": 2, "blocks": 2}
    return [decoder("real", "plain", 3, 7, 7, 6, 3, 2, 5, 11, **plain),
            decoder("real", "even", 4, 8, 8, 8, 8, 2, 16, 16, **even),
            decoder("real", "window-tied", 2, 9, 6, 4, 2, 4, 7, 13, **tied),
            decoder("real", "experts", 3, 5, 5, 3, 1, 2, 5, 7, **experts, seed=158),
            t5("tied", 3, 7, 5, 6, 3, 2, 7, 11), t5("own-head", 2, 5, 6, 8, 4, 2, 8, 16, is_tied=False),
            decoder("exact", "plain", 3, 5, 6, 3, 3, 2, 5, 11),
            decoder("exact", "window-tied", 2, 7, 10, 6, 2, 2, 7, 13, **tied),
            decoder("exact", "experts", 5, 3, 8, 4, 2, 4, 5, 7, **experts, seed=64)]


def problems():
    """All problems. Finding their seeds takes a second."""
    return [usable(problem) for problem in listed()]


def listed_by_name():
    return {problem.name: problem for problem in listed()}


def problem(name):
    """A problem by its name. \\throws KeyError"""
    return usable(listed_by_name()[name])
