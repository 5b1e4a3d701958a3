#!/usr/bin/env python3
"""A decoder without experts by tensor parallelism in NumPy, a process for each device:
numpy_decoder_tensor_parallel.py PROBLEM OUT_DIR DEVICES. Heads, hidden units and the vocabulary are divided.
Of an exact problem, all that is not linear is computed by shardbook_layers.OnGrid."""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import shardbook
from processes import run
from real_layers import RealLayers
from shardbook_layers import OnGrid, turns


def transposed(t):
    return t.swapaxes(-1, -2)


class Device:
    def __init__(self, group, problem, read):
        self.group, self.p, self.g = group, problem, {}
        self.a = OnGrid(problem["grid"], problem["norm_epsilon"]) if problem["kind"] == "exact" else \
            RealLayers(problem)
        heads, key_heads, n = problem["heads"], problem["key_heads"], group.devices
        self.shares_keys = key_heads < n  # then each device has all of them
        self.keys = (0, key_heads) if self.shares_keys else shardbook.part(key_heads, n, group.device)
        shared = heads // key_heads
        self.heads = shardbook.part(heads, n, group.device) if self.shares_keys else \
            tuple(shared * key for key in self.keys)
        self.key_of = np.arange(*self.heads) // shared - self.keys[0]
        self.w = {name: self.mine(name, t) for name, t in read.items()}
        at = np.arange(problem["length"])
        self.at = turns(at, problem["head_dim"], problem["rope_base"])
        self.sees = (at <= at[:, None]) & (at > at[:, None] - (problem["window"] or len(at)))

    def mine(self, name, t):
        """This device's slice."""
        last, d = name.split("/")[-1], self.p["head_dim"]
        if last in ("query", "key", "value", "output"):
            begin, end = (d * at for at in (self.keys if last in ("key", "value") else self.heads))
            return t[begin:end] if last == "output" else t[:, begin:end]
        if last in ("gate", "up"):
            return t[:, slice(*self.part(t.shape[1]))]
        return t[slice(*self.part(len(t)))] if last in ("down", "embedding", "head") else t

    def part(self, size):
        return shardbook.part(size, self.group.devices, self.group.device)

    def in_slice(self, tokens):
        """1 at each token of this device's slice of the vocabulary, (T, v)."""
        begin, end = self.part(self.p["vocabulary"])
        return (tokens.ravel()[:, None] == np.arange(begin, end)).astype("f4")

    def heads_of(self, t):
        return t.reshape(self.p["batch_size"], self.p["length"], -1, self.p["head_dim"]).swapaxes(1, 2)

    def rows_of(self, t):
        return t.swapaxes(1, 2).reshape(self.p["batch_size"] * self.p["length"], -1)

    def attend(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "attention_norm"])
        q, k, v = (self.heads_of(n @ self.w[b + name]) for name in ("query", "key", "value"))
        q, k = self.a.turned(q, self.at), self.a.turned(k, self.at)
        k, v = k[:, self.key_of], v[:, self.key_of]
        out, probabilities = self.a.attend(q, k, v, self.sees)
        return x + self.group.all_reduce(self.rows_of(out) @ self.w[b + "output"]), \
            (n, norm, out, probabilities, q, k, v)

    def attend_backward(self, b, d, kept):
        n, norm, out, p, q, k, v = kept
        self.g[b + "output"] = transposed(self.rows_of(out)) @ d
        dout = self.heads_of(d @ transposed(self.w[b + "output"]))
        dq, dk, dv, _ = self.a.attend_backward(dout, out, p, q, k, v)
        dk, dv = (self.by_key_heads(t) for t in (dk, dv))
        if self.shares_keys:
            dk, dv = self.group.all_reduce(dk), self.group.all_reduce(dv)
        grads = {"query": self.a.turned(dq, self.at, -1), "key": self.a.turned(dk, self.at, -1), "value": dv}
        dn = {}
        for name, t in grads.items():
            self.g[b + name] = transposed(n) @ self.rows_of(t)
            dn[name] = self.rows_of(t) @ transposed(self.w[b + name])
        of_keys = dn["key"] + dn["value"]
        dn = self.group.all_reduce(dn["query"]) + of_keys if self.shares_keys else \
            self.group.all_reduce(dn["query"] + of_keys)
        dx, self.g[b + "attention_norm"] = self.a.norm_backward(dn, self.w[b + "attention_norm"], norm)
        return d + dx

    def by_key_heads(self, t):
        sums = np.zeros((len(t), self.keys[1] - self.keys[0], *t.shape[2:]), t.dtype)
        np.add.at(sums, (slice(None), self.key_of), t)
        return sums

    def feed_forward(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "feed_forward_norm"])
        g, u = n @ self.w[b + "gate"], n @ self.w[b + "up"]
        h = self.a.gated(g, u)
        return x + self.group.all_reduce(h @ self.w[b + "down"]), (n, norm, g, u, h)

    def feed_forward_backward(self, b, d, kept):
        n, norm, g, u, h = kept
        self.g[b + "down"] = transposed(h) @ d
        dg, du = self.a.gated_backward(d @ transposed(self.w[b + "down"]), g, u)
        self.g[b + "gate"], self.g[b + "up"] = transposed(n) @ dg, transposed(n) @ du
        dn = self.group.all_reduce(dg @ transposed(self.w[b + "gate"]) + du @ transposed(self.w[b + "up"]))
        dx, self.g[b + "feed_forward_norm"] = self.a.norm_backward(dn, self.w[b + "feed_forward_norm"], norm)
        return d + dx

    def step(self, ids, labels, dlosses):
        """Logits of this device's slice, and losses of all tokens."""
        head, kept, lookup = "embedding" if self.p["is_tied"] else "head", [], self.in_slice(ids)
        x = self.group.all_reduce(lookup @ self.w["embedding"])
        for b in range(self.p["blocks"]):
            x, attention = self.attend(f"block_{b}/", x)
            x, feed_forward = self.feed_forward(f"block_{b}/", x)
            kept.append((attention, feed_forward))
        n, norm = self.a.norm(x, self.w["final_norm"])
        z = self.a.scaled_logits(n @ transposed(self.w[head]))
        counted = (labels >= 0).ravel()
        losses, dz = self.a.losses(z, self.in_slice(labels), dlosses.ravel() * counted, self.group.all_reduce)
        dz = self.a.scaled_logits(dz)
        dn = self.group.all_reduce(dz @ self.w[head])
        d, self.g["final_norm"] = self.a.norm_backward(dn, self.w["final_norm"], norm)
        for b, (attention, feed_forward) in reversed(list(enumerate(kept))):
            d = self.feed_forward_backward(f"block_{b}/", d, feed_forward)
            d = self.attend_backward(f"block_{b}/", d, attention)
        self.g["embedding"] = transposed(lookup) @ d
        self.g[head] = transposed(dz) @ n + (self.g["embedding"] if self.p["is_tied"] else 0)
        return z, losses * counted


def device_program(group, problem, folder, out):
    read, batch = ({name: t.values for name, t in shardbook.read(folder / problem[f]).items()}
                   for f in ("params", "batch"))
    device = Device(group, problem, {name: t.astype("f4") for name, t in read.items()})
    ids, labels = batch["input_ids"], batch["labels"]
    is_exact, mean = problem["kind"] == "exact", ((labels >= 0) / (labels >= 0).sum()).astype("f4")
    z, losses = device.step(ids, labels, batch["losses_grad"].astype("f4") if is_exact else mean)
    results = {"losses": losses.reshape(ids.shape)} if is_exact else \
        {"logits": z.reshape(*ids.shape, -1), "loss": (losses * mean.ravel()).sum()}
    shardbook.write(out / f"device_{group.device}.safetensors", results | device.g)


if __name__ == "__main__":
    problem, out, n = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), int(sys.argv[3])
    if problem["workload"] != "decoder" or problem["experts"]:
        sys.exit(77)
    sys.exit(run(device_program, n, problem, Path(sys.argv[1]).parent, out))
