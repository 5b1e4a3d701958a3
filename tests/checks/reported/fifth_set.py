#!/usr/bin/python3
"""fifth_set.py [--all] [WORDS...]: 26 kinds more, written with what is true of each when fitted numbers had become rules, and
judged once before any rule was made with them. Their programs are here."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from decoders import ContextParallel, TensorParallel, rounded
from first_set import ALL, DATA, EVEN, FULL, MIXED, REAL, TENSOR, TOP2
from judging import measure_networks
from mixtures import Mixture, router
from own_models import CLIP, DECAY, Own, stepped
from shardbook_check import part
from shardbook_check.problems.layers import turns


def sigmoid(t):
    return 1 / (1 + np.exp(-t))


class OtherLayers:
    """The layers of a decoder, of which some compute another function."""
    def __init__(self, layers, planted):
        self.layers, self.planted, self.calls = layers, planted, 0

    def __getattr__(self, name):
        return getattr(self.layers, name)

    def norm(self, x, w):
        if self.planted == "norms' weights plus 1":
            return self.layers.norm(x, w + 1)
        if self.planted == "epsilon outside the root":
            r = 1 / (np.sqrt((x * x).mean(-1, keepdims=True)) + self.layers.epsilon)
            return x * r * w, (x * r, r)
        return self.layers.norm(x, w)

    def norm_backward(self, dy, w, kept):
        if self.planted == "norms' weights plus 1":
            return self.layers.norm_backward(dy, w + 1, kept)
        if self.planted == "epsilon outside the root":
            (x_hat, r), d = kept, dy * w
            times = 1 / (1 - r * self.layers.epsilon)
            return (d - x_hat * (d * x_hat).mean(-1, keepdims=True) * times) * r, (dy * x_hat).sum(-2)
        return self.layers.norm_backward(dy, w, kept)

    def attend(self, q, k, v, sees):
        out, p = self.layers.attend(q, k, v, sees)
        if self.planted == "softmax of scores in bfloat16":
            p = rounded(p, "BF16").astype("f4")
            return p @ v, p
        return out, p

    def turned(self, t, at, direction=1):
        self.calls += 1
        found = self.layers.turned(t, at, direction)
        return self.layers.turned(found, at, direction) if self.planted == "keys turned twice" and self.calls % 2 == 0 else found

    def gated(self, g, u):
        return g * sigmoid(np.float32(1.702) * g) * u if self.planted == "gelu for silu" else self.layers.gated(g, u)

    def gated_backward(self, dh, g, u):
        if self.planted != "gelu for silu":
            return self.layers.gated_backward(dh, g, u)
        s = sigmoid(np.float32(1.702) * g)
        return dh * u * s * (1 + np.float32(1.702) * g * (1 - s)), dh * g * s


class TP(TensorParallel):
    def __init__(self, group, problem, read, planted):
        super().__init__(group, problem, read, planted)
        self.a = OtherLayers(self.a, planted)
        for name in (name for name in self.w if name.endswith("up")):
            mine = slice(*part(read[name].shape[1], group.devices, (group.device + 1) % group.devices))
            if planted == "up's slice of the next device" and read[name][:, mine].shape == self.w[name].shape:
                self.w[name] = read[name][:, mine]

    def attend(self, b, x):
        if self.planted == "attention's sums over pairs of devices":
            self.summed = lambda t: sum(self.group.all_gather(t)[self.group.device // 2 * 2:][:2])
            try:
                return super().attend(b, x)
            finally:
                del self.summed
        return super().attend(b, x)

    def step(self, ids, labels, dlosses):
        if self.planted == "the last sequence dropped":
            labels = np.where(np.arange(len(labels))[:, None] == len(labels) - 1, -100, labels)
        return super().step(ids, labels, dlosses)

    def results(self, batch):
        if self.planted == "missing labels taken as token 0":
            batch = {**batch, "labels": np.where(batch["labels"] < 0, 0, batch["labels"])}
        return super().results(batch)


class CP(ContextParallel):
    def __init__(self, group, problem, read, planted):
        super().__init__(group, problem, read, planted)
        if planted == "positions of a zigzag, tokens in ranges":
            n, length = group.devices, problem["length"]
            mine = [np.arange(*part(length, 2 * n, k)) for k in (group.device, 2 * n - 1 - group.device)]
            self.at = turns(np.concatenate(mine), problem["head_dim"], problem["rope_base"])

    def of_all_tokens(self, t):
        found = super().of_all_tokens(t)
        return np.roll(found, 1, axis=0) if self.planted == "keys of the sequence before" else found

    def of_my_keys(self, t):
        return super().of_my_keys(np.roll(t, -1, axis=0) if self.planted == "keys of the sequence before" else t)

    def step(self, ids, labels, dlosses):
        z, losses = super().step(ids, labels, dlosses)
        self.mean = losses.sum() / max((labels >= 0).sum(), 1)
        return z, losses

    def results(self, batch):
        found = super().results(batch)
        if self.planted == "a loss that is a mean of means":
            found["loss"] = self.group.all_reduce(self.mean) / self.group.devices
        return found


class EP(Mixture):
    def routed(self, logits):
        if self.planted == "tokens sent in bfloat16":
            logits = self.tokens @ self.read["router/weights"]
        return super().routed(logits / 2 if self.planted == "router's logits halved" else logits)

    def room(self, chosen):
        found = super().room(chosen)
        if self.planted == "second choices on the first one's device lost" and chosen.shape[1] > 1:
            owner = np.repeat(np.arange(self.n), [len(of) for of in self.owned])[chosen]
            found = found & ((owner != owner[:, :1]) | (np.arange(chosen.shape[1]) == 0))
        return found

    def balanced(self, device, p, chosen, gates, dgates, all_chosen):
        dz = super().balanced(device, p, chosen, gates, dgates, all_chosen)
        if self.planted == "balancing loss of choices that are kept":
            kept = self.room(all_chosen)
            share = np.bincount(all_chosen[kept], minlength=self.p["experts"]) / all_chosen.size
            other = router.backward({**self.p, "aux_weight": 0}, p, chosen, gates, dgates, all_chosen)
            dp = np.tile(self.p["aux_weight"] * self.p["experts"] * share / len(all_chosen), (len(p), 1))
            return other + router.softmax_backward(dp, p)
        return dz / 2 if self.planted == "router's logits halved" else dz

    def results(self):
        self.tokens = self.read["input"]
        if self.planted == "tokens sent in bfloat16":
            self.read = {**self.read, "input": rounded(self.tokens, "BF16").astype("f4")}
        found = super().results()
        if self.planted == "experts' gradients of the last half of tokens":
            x, dy = self.read["input"], self.read["output_grad"]
            _, chosen, gates = self.routed(x @ self.read["router/weights"])
            kept = self.room(chosen) & (np.arange(len(x)) >= len(x) // 2)[:, None]
            for of, experts in zip(found, self.owned):
                for e in experts:
                    token, rank = np.nonzero(kept & (chosen == e))
                    w0, w1 = (self.read[f"expert_{e}/layer_{layer}/weights"] for layer in range(2))
                    h, back = np.maximum(x[token] @ w0, 0), dy[token] * gates[token, rank][:, None]
                    of[f"expert_{e}/layer_0/weights"] = x[token].T @ ((back @ w1.T) * (h > 0))
                    of[f"expert_{e}/layer_1/weights"] = h.T @ back
        return found


class OwnModel(Own):
    def mine(self, d):
        found = super().mine(d)
        if self.planted == "keep without its scale":
            found["keep"] = (found["keep"] > 0).astype("f4")
        if self.planted == "rows in another order on tensor rank 1" and d[1] == 1:
            found = {name: np.roll(value, 1, axis=0) for name, value in found.items()}
        return found

    def reduced(self, found, step):
        if self.planted == "gradients sent as float16":
            found = {d: {name: t.astype("f2").astype("f4") if name in self.params else t for name, t in of.items()}
                     for d, of in found.items()}
        found, grads = super().reduced(found, step)
        if self.planted == "a mean twice":
            found = {d: {name: t / np.float32(self.data**2 if name in self.params else 1) for name, t in of.items()}
                     for d, of in found.items()}
        if self.planted == "flat buffer one piece further":
            for d, of in found.items():
                flat = np.concatenate([of[name].ravel() for name in self.params])
                flat = np.roll(flat, -(-len(flat) // self.data))
                for name in self.params:
                    of[name], flat = flat[:of[name].size].reshape(of[name].shape), flat[of[name].size:]
        if self.planted == "no zero_grad":
            self.total = grads if not step else {d: {name: t + self.total[d][name] for name, t in of.items()} for d, of in grads.items()}
            grads = self.total
        return found, grads

    def clipped(self, grads):
        if self.planted == "clipped by value":
            return {d: {name: np.clip(g, -np.float32(CLIP), np.float32(CLIP)) for name, g in of.items()} for d, of in grads.items()}
        return super().clipped(grads)

    def updated(self, d, grads, step):
        if self.planted == "decay in the gradient":
            return stepped(self.w[d], {name: g + np.float32(DECAY) * self.w[d][name] for name, g in grads.items()}, self.state[d], decay=0)
        if self.planted == "no first moment":
            return stepped(self.w[d], grads, self.state[d], betas=(0, 0.875))
        return super().updated(d, grads, step)


OF_PROBLEMS = [
    ("softmax of scores in bfloat16", TP, REAL, (2, 3), r"16 bits|bfloat16"),
    ("epsilon outside the root", TP, REAL, (2, 3), r"epsilon|norm"),
    ("norms' weights plus 1", TP, REAL, (2, 3), r"norm"),  # transformers' Gemma in other libraries
    ("gelu for silu", TP, REAL, (2, 3), r"silu|gelu|activation|gate"),
    ("keys turned twice", TP, REAL, (2, 3), r"rotary|turned"),
    ("the last sequence dropped", TP, REAL, (2, 3), r"sequence|rows?\b.*(missing|left out)"),  # drop_last
    ("missing labels taken as token 0", TP, REAL, (2, 3), r"label"),  # an ignore_index that is lost
    ("attention's sums over pairs of devices", TP, EVEN, (4,), r"left out|not (reduced|summed)|pairs|group"),  # Megatron-LM#7452
    ("up's slice of the next device", TP, EVEN, (2, 4), r"slice|next device"),
    ("positions of a zigzag, tokens in ranges", CP, EVEN, (2, 4), r"rotary|position"),  # ring attention's balance
    ("keys of the sequence before", CP, ALL, (2, 3), r"keys|sequence|values"),
    ("a loss that is a mean of means", CP, REAL, (2, 3), r"mean.*(own|each)|own (tokens|rows)"),
    ("tokens sent in bfloat16", EP, tuple(name for name in MIXED if "real" in name), (2, 3), r"16 bits|bfloat16"),  # DeepEP
    ("router's logits halved", EP, tuple(name for name in MIXED if "real" in name), (2, 3), r"router|gate|logits|softmax"),
    ("experts' gradients of the last half of tokens", EP, MIXED, (2, 3), r"tokens|rows.*(missing|alone)"),
    ("balancing loss of choices that are kept", EP, FULL, (2, 3), r"balancing loss"),
    ("second choices on the first one's device lost", EP, TOP2, (2, 3), r"choice"),  # one send for each device
]
OF_OWN = [
    ("a mean twice", DATA, 0, r"mean|1/(4|9|16) of it"),
    ("flat buffer one piece further", DATA, 0, r"order|place|further|slice|piece"),
    ("gradients sent as float16", DATA, 0, r"16 bits|float16"),
    ("keep without its scale", (*DATA[:2], *TENSOR[:2]), 0, r"keep|0\.5|1/2"),
    ("decay in the gradient", (*DATA[:1], *TENSOR[:1]), 4, r"decay"),
    ("no first moment", (*DATA[:1], *TENSOR[:1]), 4, r"beta|moment"),
    ("no zero_grad", (*DATA, *TENSOR[:1]), 4, r"set to 0|added up"),
    ("rows in another order on tensor rank 1", TENSOR, 0, r"rows?\b|order"),  # tensor ranks with another sampler
    ("clipped by value", (*DATA[:1], *TENSOR[:1]), 4, r"clip|norm"),
]
OF_DECODERS = [(planted, program, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "keys of the sequence before", "the last sequence dropped", "missing labels taken as token 0", "norms' weights plus 1")]
OF_MIXTURES = [(planted, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "router's logits halved", "second choices on the first one's device lost")]

if __name__ == "__main__":
    measure_networks(OF_PROBLEMS, OF_OWN, OF_DECODERS, OF_MIXTURES, OwnModel, EP)
