#!/usr/bin/python3
"""fourth_set.py [--all] [WORDS...]: 27 kinds, most of them reported by people, written with what is true of each when the rules
knew none of them, and judged once before any rule was made with them. Their programs are here."""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from decoders import ContextParallel, TensorParallel, rounded
from first_set import ALL, BALANCED, DATA, FULL, MESH, MIXED, REAL, SHARED, TENSOR, TOP2
from judging import measure_networks
from mixtures import Mixture, router
from own_models import CLIP, CUT, ROWS, Own
from shardbook_check import part


class TP(TensorParallel):
    def __init__(self, group, problem, read, planted):
        super().__init__(group, problem, read, planted)
        if planted == "rotary angles in bfloat16":
            self.at = tuple(rounded(of, "BF16") for of in self.at)
        if planted == "keys' gradient without the scale":
            of_heads = self.a.attend_backward
            self.a.attend_backward = lambda *of: [g / self.a.scale if k == 1 else g for k, g in enumerate(of_heads(*of))]
        if planted in ("padding in the softmax", "dx of the head not reduced"):
            self.of_losses, self.a.losses = self.a.losses, self.other_losses

    def other_losses(self, z, picks, dlosses, all_reduce):
        if self.planted == "padding in the softmax":  # rows of 0 up to a multiple of the devices
            sums, label = all_reduce(np.exp(z).sum(-1)), all_reduce((z * picks).sum(-1))
            sums = sums + np.float32(-self.p["vocabulary"] % self.group.devices)
            return np.log(sums) - label, (np.exp(z) / sums[:, None] - picks) * dlosses[:, None]
        found = self.of_losses(z, picks, dlosses, all_reduce)
        self.summed = self.once_unreduced
        return found

    def once_unreduced(self, t):
        del self.summed
        return t

    def by_key_heads(self, t):
        found = super().by_key_heads(t)
        if self.planted == "mean over the queries of a key head":
            found = found / np.maximum(np.bincount(self.key_of, minlength=found.shape[1]), 1).astype("f4")[:, None, None]
        return found


class CP(ContextParallel):
    def __init__(self, group, problem, read, planted):
        super().__init__(group, problem, read, planted)
        if planted == "ring one step short":
            self.sees = self.sees.copy()
            self.sees[:, slice(*part(problem["length"], group.devices, (group.device + 1) % group.devices))] &= group.devices == 1
            self.sees[~self.sees.any(1), 0] = True
        if planted == "queries' gradient of own keys":
            self.of_heads, self.a.attend_backward = self.a.attend_backward, self.of_own_keys

    def of_own_keys(self, dout, out, p, q, k, v):
        _, dk, dv, ds = self.of_heads(dout, out, p, q, k, v)
        here = slice(self.begin, self.end)
        return (ds * self.a.scale)[..., here] @ k[..., here, :], dk, dv, ds

    def is_reduced(self, name):
        return super().is_reduced(name) and not (self.planted == "final norm not summed" and name == "final_norm")

    def step(self, ids, labels, dlosses):
        if self.planted == "mean of each sequence":  # dlosses are 1 / all labels
            counts = self.group.all_reduce((labels >= 0).sum(1, keepdims=True))
            dlosses = ((labels >= 0) / (len(labels) * np.maximum(counts, 1))).astype("f4")
        return super().step(ids, labels, dlosses)

    def results(self, batch):
        found = super().results(batch)
        if self.planted == "gradients times N":
            found = {name: t * np.float32(self.group.devices if name in self.g else 1) for name, t in found.items()}
        return found


class EP(Mixture):
    def routed(self, logits):
        p, chosen, gates = super().routed(logits)
        if self.planted == "gates in the order of experts":
            gates = np.take_along_axis(gates, np.argsort(np.argsort(chosen, axis=1), axis=1), 1)
        return p, chosen, gates

    def room(self, chosen):
        if self.planted == "room to the last tokens first":
            return router.with_room(chosen[::-1], self.p)[::-1]
        return super().room(chosen)

    def balanced(self, device, p, chosen, gates, dgates, all_chosen):
        if self.planted == "gates' gradient of own experts alone":
            dgates = dgates * np.isin(chosen, self.owned[device])
        if self.planted == "balancing loss without its weight":
            return router.backward({**self.p, "aux_weight": 1.0}, p, chosen, gates, dgates, all_chosen)
        return super().balanced(device, p, chosen, gates, dgates, all_chosen)

    def results(self):
        found = super().results()
        if self.planted == "experts' gradients times N":
            found = [{name: t * np.float32(self.n if "expert" in name else 1) for name, t in of.items()} for of in found]
        if self.planted == "gates forgotten in the second layer's gradient":
            x, dy = self.read["input"], self.read["output_grad"]
            chosen = super().routed(x @ self.read["router/weights"])[1]
            kept = self.room(chosen)
            for of, experts in zip(found, self.owned):
                for e in experts:
                    token = np.nonzero(kept & (chosen == e))[0]
                    h = np.maximum(x[token] @ self.read[f"expert_{e}/layer_0/weights"], 0)
                    of[f"expert_{e}/layer_1/weights"] = h.T @ dy[token]
        return found


class OwnModel(Own):
    def loaded(self, d):
        found = super().loaded(d)
        if self.planted == "shift on device 0 alone" and d[1]:
            found["shift"] = 0 * found["shift"]
        if self.planted == "down's rows in reversed order of devices":
            other = self.params["down"][self.cut("down", self.tensor - 1 - d[1])]
            found["down"] = other if other.shape == found["down"].shape else found["down"]
        return found

    def rows(self, d):
        if self.planted == "sampler pads":
            each = -(-ROWS // self.data)
            return (d[0] * each + np.arange(each)) % ROWS
        return super().rows(d)

    def mine(self, d):
        found = super().mine(d)
        if self.planted == "x in bfloat16":
            found["x"] = rounded(found["x"], "BF16").astype("f4")
        return found

    def reduced(self, found, step):
        own = {d: of["loss"] for d, of in found.items()}
        if self.planted == "device 1's head lost":
            found = {d: {**of, "head": of["head"] * np.float32(d[0] != 1)} for d, of in found.items()}
        found, grads = super().reduced(found, step)
        for d, of in found.items():
            if self.planted == "loss not reduced":
                of["loss"] = own[d]
            if self.planted == "shift on device 0 alone" and d[1]:
                of["shift"] = 0 * of["shift"]
            if self.planted == "sampler pads":
                del of["hidden"], of["out"]
        return found, grads

    def clipped(self, grads):
        if self.planted not in ("norm over copies, too", "clipped before unscaled"):
            return super().clipped(grads)
        found = {}
        for d, of in grads.items():
            group = {name: self.devices if "copies" in self.planted else
                     [e for e in self.devices if e[0] == d[0]] if name in CUT else [d] for name in of}
            norm = np.sqrt(sum(float((grads[e][name].astype(float)**2).sum()) for name in of for e in group[name]))
            times = 1024 if self.planted == "clipped before unscaled" else 1
            found[d] = {name: g * np.float32(min(1, CLIP / (times * norm + 1e-6))) for name, g in of.items()}
        return found

    def updated(self, d, grads, step):
        if self.planted == "second step skipped" and step == 1:
            return self.w[d]
        if self.planted == "state lost after two steps" and step == 2:
            self.state[d].update({key: {name: 0 * t for name, t in self.state[d][key].items()} for key in ("exp_avg", "exp_avg_sq")})
        if self.planted == "steps counted anew after two" and step == 2:
            self.state[d]["step"] = 0
        return super().updated(d, grads, step)


ODD = ("decoder-real-plain", "decoder-real-window-tied")
OF_PROBLEMS = [
    ("final norm not summed", CP, ALL, (2, 3), r"not summed|left out|addend"),  # Megatron-LM#1446
    ("dx of the head not reduced", TP, ALL, (2, 3),  # SkyRL#1886
     r"(final norm|head|logits|dL/dx).*(not (reduced|summed)|left out|own|alone)"),
    ("gradients times N", CP, ALL, (2, 3), r"\d times it|summed"),  # Megatron-LM#906
    ("padding in the softmax", TP, ODD, (2, 3), r"softmax|padd"),
    ("rotary angles in bfloat16", TP, REAL, (2, 3), r"16 bits|bfloat16|rotary"),  # transformers#29285
    ("mean of each sequence", CP, REAL, (2, 3), r"mean.*sequence|sequence.*mean"),  # verl#3332
    ("keys' gradient without the scale", TP, REAL, (2, 3), r"scale|root"),
    ("mean over the queries of a key head", TP, SHARED, (2, 3), r"mean"),
    ("ring one step short", CP, ALL, (2, 3), r"keys|ring|piece|see"),
    ("queries' gradient of own keys", CP, REAL, (2, 3), r"quer|own keys"),  # Megatron-LM#1464
    ("balancing loss without its weight", EP, BALANCED, (2, 3), r"balancing loss"),  # Automodel#1408
    ("gates' gradient of own experts alone", EP, MIXED, (2, 3), r"router|gate|own experts"),  # transformers#48687
    ("experts' gradients times N", EP, MIXED, (2, 4), r"times it|summed"),  # pytorch#160285
    ("gates in the order of experts", EP, TOP2, (2, 3), r"gate"),
    ("room to the last tokens first", EP, FULL, (2, 3), r"capacity|slots|room"),
    ("gates forgotten in the second layer's gradient", EP, MIXED, (2, 3), r"gate"),
]
OF_OWN = [
    ("device 1's head lost", DATA, 0, r"missing|left out"),
    ("norm over copies, too", (*DATA, *MESH), 4, r"norm|clip"),  # Automodel#3817
    ("clipped before unscaled", (*DATA, *TENSOR), 4, r"norm|clip"),
    ("second step skipped", (*DATA[:1], *TENSOR[:1]), 4, r"step.*(skip|left out|missing|not)|skip"),
    ("state lost after two steps", (*DATA[:1], *TENSOR[:1]), 4, r"state|moment"),  # KempnerForge#115
    ("steps counted anew after two", (*DATA[:1], *TENSOR[:1]), 4, r"bias correction|count"),
    ("x in bfloat16", (*DATA, *TENSOR), 0, r"16 bits|bfloat16"),
    ("sampler pads", ((5, 1), (7, 1)), 0, r"twice|padd|counted"),
    ("loss not reduced", DATA, 0, r"left out|not reduced|addend|own rows"),  # torchtitan#547
    ("shift on device 0 alone", (*TENSOR, *MESH), 0, r"shift"),
    ("down's rows in reversed order of devices", TENSOR[1:], 0, r"slice|order"),
]
OF_DECODERS = [(planted, program, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "final norm not summed", "gradients times N", "mean over the queries of a key head", "ring one step short")]
OF_MIXTURES = [(planted, true) for planted, program, _, _, true in OF_PROBLEMS if planted in (
    "experts' gradients times N", "gates in the order of experts")]

if __name__ == "__main__":
    measure_networks(OF_PROBLEMS, OF_OWN, OF_DECODERS, OF_MIXTURES, OwnModel, EP)
