"""Sharded decoders with one mistake each, on simulated devices: a thread for each. They are the adapters of
tests/equivalence, tensor parallel (heads, hidden units and vocabulary are divided) and context parallel (tokens are)."""
import sys
import threading
from pathlib import Path

import numpy as np

root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "chapters/suite"), str(root / "tests/equivalence/adapters")]
import numpy_decoder_context_parallel as context
import numpy_decoder_tensor_parallel as tensor
import shardbook_check as sb
from shardbook_check.problems.files import Stored, rounded
from shardbook_check.problems.kinds import vars_of
from shardbook_check.problems.layers import turns


class Group:
    """Collectives of threads."""
    def __init__(self, devices):
        self.devices, self.sent, self.barrier, self.mine = devices, [None] * devices, threading.Barrier(devices), threading.local()

    @property
    def device(self):
        return self.mine.device

    def all_gather(self, x):
        self.sent[self.device] = x
        self.barrier.wait()
        found = list(self.sent)
        self.barrier.wait()
        return found

    def all_reduce(self, x):
        return sum(self.all_gather(x))

    def run(self, program):
        """[program(group) of each device]."""
        found, failed = [None] * self.devices, []

        def of_device(device):
            self.mine.device = device
            try:
                found[device] = program(self)
            except threading.BrokenBarrierError:  # another device has failed
                pass
            except Exception as error:
                failed.append(error)
                self.barrier.abort()
        threads = [threading.Thread(target=of_device, args=(device,)) for device in range(self.devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return found


class Planted:
    """What both have in common. `planted`: the mistake, or ""."""
    planted = ""
    lookups = 0

    def attend(self, b, x):
        if self.planted != "residual added before the sum":
            return super().attend(b, x)
        kept = self.summed
        self.summed = lambda t: t  # x + what this device adds
        try:
            y, of = super().attend(b, x)
        finally:
            del self.summed
        return kept(y), of

    def step(self, ids, labels, dlosses):
        if self.planted == "final norm's weight forgotten in the forward pass":
            kept, whole = self.a.norm, self.w["final_norm"]
            self.a.norm = lambda x, w: kept(x, np.ones_like(w) if w is whole else w)
        return super().step(ids, labels, dlosses)

    def in_slice(self, tokens):
        self.lookups += 1
        if self.planted == "last slice of the embedding not looked up" and self.lookups == 1 and \
                self.group.device == self.group.devices - 1:
            return 0 * super().in_slice(tokens)
        if self.planted == "embedding begins at device x V // N" and self.lookups == 1:
            begin = self.group.device * (self.p["vocabulary"] // self.group.devices)
            size = self.vocabulary[1] - self.vocabulary[0]
            return (tokens.reshape(-1, 1) == np.arange(begin, begin + size)).astype("f4")
        return super().in_slice(tokens)


class FirstKept(dict):
    """A tied table whose first gradient, that of the embedding, is not added to."""
    def __setitem__(self, name, value):
        self.setdefault(name, value)


class TensorParallel(Planted, tensor.Device):
    def __init__(self, group, problem, read, planted):
        self.planted = planted
        super().__init__(group, problem, read)
        self.g = FirstKept() if planted == "tied table counted once" else {}
        at, n = np.arange(problem["length"]), group.devices
        if planted == "kv heads repeated as a tile":
            own = len(np.unique(self.key_of))
            self.key_of = np.arange(len(self.key_of)) % own + self.key_of.min(initial=0)
        if planted == "window one token wider" and problem["window"]:
            self.sees = (at <= at[:, None]) & (at >= at[:, None] - problem["window"])
        if planted == "scale by the width over own heads":
            self.a.scale = np.float32((problem["model_dim"] * n / problem["heads"])**-0.5)
        if planted == "epsilon of another default":
            self.a.epsilon = 1e-6
        if planted == "value heads of the next device":
            for name in (name for name in self.w if name.endswith("value")):
                size, width = problem["key_heads"], problem["head_dim"]
                begin, end = (width * at for at in sb.part(size, n, (group.device + 1) % n))
                if size >= n and end - begin == self.w[name].shape[1]:
                    self.w[name] = read[name][:, begin:end]
        if planted == "output weights of the next device":
            for name in (name for name in self.w if name.endswith("output")):
                begin, end = (problem["head_dim"] * at for at in sb.part(problem["heads"], n, (group.device + 1) % n))
                if end - begin == len(self.w[name]):
                    self.w[name] = read[name][begin:end]
        if planted == "gradients of gate and up exchanged":
            of_gates = self.a.gated_backward
            self.a.gated_backward = lambda *of: of_gates(*of)[::-1]
        if planted == "silu's second addend forgotten":
            self.a.gated_backward = lambda dh, g, u: (dh * u / (1 + np.exp(-g)), dh * g / (1 + np.exp(-g)))
        if planted == "softmax's backward without its sum":
            of_heads = self.a.attend_backward
            self.a.attend_backward = lambda dout, out, *of: of_heads(dout, 0 * out, *of)
        if planted == "norm's backward without its mean":
            of_norm = self.a.norm_backward
            self.a.norm_backward = lambda dy, w, kept: (dy * w * kept[1], of_norm(dy, w, kept)[1])
        if planted == "mask sees one token too many":
            self.sees = (at <= at[:, None] + 1) & (at > at[:, None] - (problem["window"] or len(at)))
        if planted == "gate and up fused, cut in one piece":
            for b in (name[:-4] for name in read if name.endswith("gate")):
                fused = np.concatenate([read[b + "gate"], read[b + "up"]], 1)
                mine = fused[:, slice(*sb.part(fused.shape[1], n, group.device))]
                self.w[b + "gate"], self.w[b + "up"] = np.split(mine, 2, 1)
        if planted in ("softmax of own slice alone", "maximum of own slice", "sum of own slice forgotten in the backward pass"):
            self.a.losses = self.losses

    def losses(self, z, picks, dlosses, all_reduce):
        label, most = all_reduce((z * picks).sum(-1)), z.max(-1)
        if self.planted == "softmax of own slice alone":
            sums = np.exp(z).sum(-1)
        elif self.planted == "maximum of own slice":  # subtracted, and not the same on all devices
            powers = np.exp(z - most[:, None])
            sums = all_reduce(powers.sum(-1))
            return np.log(sums) + most - label, (powers / sums[:, None] - picks) * dlosses[:, None]
        else:
            sums = all_reduce(np.exp(z).sum(-1))
            return np.log(sums) - label, (np.exp(z) / np.exp(z).sum(-1, keepdims=True) - picks) * dlosses[:, None]
        return np.log(sums) - label, (np.exp(z) / sums[:, None] - picks) * dlosses[:, None]

    def summed(self, t):
        if self.planted == "sums of blocks in bfloat16" and np.ndim(t) == 2:
            return rounded(sum(rounded(of, "BF16") for of in self.group.all_gather(t)), "BF16").astype("f4")
        return super().summed(t)

    def of_my_keys(self, t):
        if self.planted == "shared heads summed twice":
            return super().of_my_keys(super().of_my_keys(t))
        return super().of_my_keys(t)

    def attend(self, b, x):
        if self.planted == "attention's output not reduced":
            return self.unreduced(b, x)
        return super().attend(b, x)

    def unreduced(self, b, x):
        self.summed = lambda t: t
        try:
            return super().attend(b, x)
        finally:
            del self.summed

    def attend_backward(self, b, d, kept):
        if self.planted != "keys not turned back":
            return super().attend_backward(b, d, kept)
        turned, calls = self.a.turned, []
        self.a.turned = lambda t, at, direction=1: t if calls.append(direction) or len(calls) == 2 else turned(t, at, direction)
        try:
            return super().attend_backward(b, d, kept)
        finally:
            self.a.turned = turned

    def summed_projections(self, of_queries, of_keys):
        if self.planted == "dx of attention not reduced":
            return of_queries + of_keys
        return super().summed_projections(of_queries, of_keys)

    def results(self, batch):
        p, labels = self.p, batch["labels"]
        if self.planted == "labels one token late":
            labels = np.concatenate([np.full((len(labels), 1), -100), labels[:, :-1]], 1)
        is_exact, mean = p["kind"] == "exact", ((labels >= 0) / (labels >= 0).sum()).astype("f4")
        z, losses = self.step(batch["input_ids"], labels, batch["losses_grad"] if is_exact else mean)
        if self.planted == "gate and up fused, cut in one piece":
            for b in [name[:-4] for name in self.g if name.endswith("gate")]:
                mine = np.concatenate([self.g[b + "gate"], self.g[b + "up"]], 1)
                whole = np.split(np.concatenate(self.group.all_gather(mine), 1), 2, 1)
                here = slice(*self.part(whole[0].shape[1]))
                self.g[b + "gate"], self.g[b + "up"] = (t[:, here] for t in whole)
        of_outputs = {"losses": losses.reshape(labels.shape)} if is_exact else \
            {"logits": z.reshape(*labels.shape, -1), "loss": (losses * mean.ravel()).sum()}
        return of_outputs | self.g


class ContextParallel(Planted, context.Device):
    def __init__(self, group, problem, read, planted):
        self.planted = planted
        super().__init__(group, problem, read)
        mine, at = np.arange(self.begin, self.end)[:, None], np.arange(problem["length"])
        if planted == "rotary positions restart":
            self.at = turns(mine[:, 0] - self.begin, problem["head_dim"], problem["rope_base"])
        if planted == "rotary positions of the next device":
            begin = sb.part(problem["length"], group.devices, (group.device + 1) % group.devices)[0]
            self.at = turns(begin + mine[:, 0] - self.begin, problem["head_dim"], problem["rope_base"])
        if planted == "causal mask by places":
            places = np.concatenate([np.arange(e - b) for b, e in
                                     (sb.part(problem["length"], group.devices, d) for d in range(group.devices))])
            self.sees = places <= places[mine]
            if problem["window"]:
                self.sees &= at > mine - problem["window"]
            self.sees[~self.sees.any(1), 0] = True

    def attend(self, b, x):
        self.gathers = 0
        return super().attend(b, x)

    def of_all_tokens(self, t):
        self.gathers += 1
        if self.planted == "values gathered from the next device on" and self.gathers == 2:
            found = self.group.all_gather(t)
            return np.concatenate(found[1:] + found[:1], 2)
        if self.planted == "keys gathered in another order":
            return np.concatenate(self.group.all_gather(t)[::-1], 2)
        return super().of_all_tokens(t)

    def of_my_keys(self, t):
        if self.planted == "keys' gradient of own queries":
            return t[:, :, self.begin:self.end]
        return super().of_my_keys(t)

    def is_reduced(self, name):
        return not (self.planted == "norms not summed" and "norm" in name or
                    self.planted == "embedding not summed" and name == "embedding")

    def results(self, batch):
        p, group = self.p, self.group
        is_exact, mine = p["kind"] == "exact", {k: t[:, self.begin:self.end] for k, t in batch.items()}
        labels, counted = mine["labels"], (batch["labels"] >= 0).sum()
        if self.planted == "mean over own tokens":
            counted = (labels >= 0).sum() * group.devices
        if self.planted == "last label of each slice lost":  # shifted within the slice
            labels = np.concatenate([labels[:, :-1], np.full((len(labels), 1), -100)], 1)
            counted = group.all_reduce((labels >= 0).sum())
        mean = ((labels >= 0) / max(counted, 1)).astype("f4")
        z, losses = self.step(mine["input_ids"], labels, mine["losses_grad"] if is_exact else mean)
        losses = losses.reshape(mean.shape)
        found = {"losses": losses} if is_exact else {"logits": z.reshape(*mean.shape, z.shape[-1]),
                                                    "loss": group.all_reduce((losses * mean).sum())}
        if self.planted == "gradients a mean over devices":
            self.g = {name: g / np.float32(group.devices) for name, g in self.g.items()}
        if self.planted == "the last device's gradients left out" and group.device == group.devices - 1:
            self.g = {name: 0 * g for name, g in self.g.items()}
        return found | {name: group.all_reduce(g) if self.is_reduced(name) else g for name, g in self.g.items()}


def pieces(problem, program, devices, planted=""):
    """What each device has: as check_pieces wants it."""
    read = {name: t.astype("f4") for name, t in problem.params.items()}
    fields = vars_of(problem)
    with np.errstate(all="ignore"):
        found = Group(devices).run(lambda group: program(group, fields, read, planted).results(problem.batch))
    return [{name: Stored(np.asarray(t, float), "F32") for name, t in of.items()} for of in found]
