"""The kinds of problems: a network, a batch, and the expected results."""
from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from . import decoder
from .bounded import EXACT, PRECISIONS, Bounded, Plain, Precision, Undecided, integers, random_bits, uniform
from .files import rounded
from .layers import OnGrid, Real
from .networks import Mistake, gradients, train


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
    has_ties: bool = True  # of an exact mixture: equally likely experts; else the router's gradient is 0
    has_row_weights: bool = False  # of a training: `row_weights`, (B), says how much each row's loss counts
    devices: tuple = (1, 2, 3, 4, 5, 8)
    mistake: Mistake = Mistake()

    @property
    def is_training(self):
        return self.kind in ("sgd", "adam")

    @property
    def row_weights(self):
        """How much the loss of each row counts, (B)."""
        return self.batch["row_weights"] if self.has_row_weights else np.ones(self.batch_size)

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
            counts = random_bits(self.seed, "row_weights", self.batch_size) >> np.uint64(32)
            weights = {"row_weights": (counts % np.uint64(3)).astype(float)} if self.has_row_weights else {}
            return {**{name: uniform(self.seed, name, shape) for name, shape in shapes.items()}, **weights}
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
            if experts.sum() in (((1, 2, 4) if self.has_ties else (1,)) if self.top_k == 1 else (self.top_k,)):
                rows_of_set.setdefault(tuple(experts), []).append(row)
        turns = itertools.zip_longest(*rows_of_set.values())
        rows = [row for turn in turns for row in turn if row is not None][:self.batch_size]
        if len(rows) < self.batch_size:
            raise Undecided("too few tokens with exact gates")
        return drawn[rows]

    def solved(self, precision):
        if self.mistake.rounds == "products":
            precision = replace(precision, rounds=lambda t: rounded(t, self.mistake.to))
        is_plain = self.is_training and self.mistake not in (Mistake(), replace(self.mistake, rounds="products"))
        params, batch = ({name: Plain.of(t) if is_plain else Bounded.exact(t, precision) for name, t in tensors.items()}
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
        found = decoder.solved(self, layers, weights_of(self), self.batch)
        for name, axis, begin, end in self.mistake.lost:
            np.moveaxis(found[name], axis + 1, 0)[begin:end] = 0
        return {name: Bounded(t[0], layers.bound(t), precision) for name, t in found.items()}


@dataclass(frozen=True)
class DecoderProblem(OfTokens):
    """A decoder as Mistral's or, with experts, Mixtral's. Kinds:

    real    logits, the mean loss of the tokens that have a label, and every gradient
    exact   the loss of each token and every gradient, on a grid (layers.OnGrid)
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
        return decoder.shapes_of(self)

    @property
    def score_scale(self):
        if self.mistake.forgets.startswith("root of "):
            return float(self.mistake.forgets.split()[2])**-0.5
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
        return decoder.t5_shapes_of(self)

    @property
    def score_scale(self):
        return self.head_dim**-0.5 if self.mistake.forgets == "no scale" else 1.0


LOGIT_STEP = 1024.0  # exp(-1024) is 0, in float64 too


@cache
def after(problem, **mistake):
    """{name: result} of a wrong version; empty if rounding may decide a result."""
    wrong = replace(problem, mistake=Mistake(**mistake))
    made = {name: problem.__dict__[name] for name in ("params", "batch") if name in problem.__dict__}
    wrong.__dict__.update(made)  # the same, so not made again
    try:
        return {name: result.value for name, result in wrong.solved(Precision(0, 0)).items()}
    except Undecided:
        return {}


def weights_of(problem):
    """Its parameters, rounded or in another order if that is the mistake."""
    mistake = problem.mistake
    params = {**problem.params, **{name: np.take(problem.params[name], order, axis) for name, axis, order in mistake.read}}
    for name, axis, begin, end in mistake.lost:
        params[name] = params[name].copy()
        np.moveaxis(params[name], axis, 0)[begin:end] = 0
    return {name: rounded(w, mistake.to) if mistake.rounds == "weights" else w for name, w in params.items()}


def vars_of(problem):
    """A problem's entry in a manifest."""
    grid = {"grid": problem.grid} if problem.workload == "decoder" and problem.kind == "exact" else {}
    return {**{name: getattr(problem, name) for name in problem.__dataclass_fields__ if name != "mistake"},
            **grid}


TOKENS = ("decoder", "t5")
