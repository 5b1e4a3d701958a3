#!/usr/bin/env python3
"""A decoder by context parallelism in NumPy, a process for each device:
numpy_decoder_context_parallel.py PROBLEM OUT_DIR DEVICES. Each device has some tokens of every sequence, and
all parameters. It gathers the keys and values of all tokens. Of an exact problem, all that is not linear is
computed by shardbook_layers.OnGrid."""
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
    def __init__(self, group, problem, w):
        self.group, self.p, self.w, self.g = group, problem, w, {}
        self.a = OnGrid(problem["grid"], problem["norm_epsilon"]) if problem["kind"] == "exact" else \
            RealLayers(problem)
        self.begin, self.end = shardbook.part(problem["length"], group.devices, group.device)
        mine, at = np.arange(self.begin, self.end)[:, None], np.arange(problem["length"])
        self.at = turns(mine[:, 0], problem["head_dim"], problem["rope_base"])
        self.sees = (at <= mine) & (at > mine - (problem["window"] or len(at)))
        self.key_of = np.arange(problem["heads"]) // (problem["heads"] // problem["key_heads"])
        self.experts = [f"expert_{e}/" for e in range(problem["experts"])] or [""]

    def product(self, x, name):
        return x @ self.w[name]

    def product_backward(self, x, d, name):
        self.g[name] = transposed(x) @ d
        return d @ transposed(self.w[name])

    def heads_of(self, t):
        d = self.p["head_dim"]
        shape = (self.p["batch_size"], self.end - self.begin, t.shape[1] // d, d)
        return t.reshape(shape).swapaxes(1, 2)

    def rows_of(self, t):
        sequences, heads, tokens, d = t.shape
        return t.swapaxes(1, 2).reshape(sequences * tokens, heads * d)

    def norm_backward(self, name, dy, kept):
        dx, self.g[name] = self.a.norm_backward(dy, self.w[name], kept)
        return dx

    def attend(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "attention_norm"])
        q, k, v = (self.heads_of(self.product(n, b + name)) for name in ("query", "key", "value"))
        q, k = self.a.turned(q, self.at), self.a.turned(k, self.at)
        k, v = (np.concatenate(self.group.all_gather(t), 2)[:, self.key_of] for t in (k, v))
        out, p = self.a.attend(q, k, v, self.sees)
        return x + self.product(self.rows_of(out), b + "output"), (n, norm, out, p, q, k, v)

    def attend_backward(self, b, d, kept):
        n, norm, out, p, q, k, v = kept
        dout = self.product_backward(self.rows_of(out), d, b + "output")
        dq, *dkv, _ = self.a.attend_backward(self.heads_of(dout), out, p, q, k, v)
        dk, dv = (self.group.all_reduce(self.by_key_heads(t))[:, :, self.begin:self.end] for t in dkv)
        dn = 0
        for name, t in (("query", self.a.turned(dq, self.at, -1)), ("key", self.a.turned(dk, self.at, -1)),
                        ("value", dv)):
            dn = dn + self.product_backward(n, self.rows_of(t), b + name)
        return d + self.norm_backward(b + "attention_norm", dn, norm)

    def by_key_heads(self, t):
        sums = np.zeros((len(t), self.p["key_heads"], *t.shape[2:]), t.dtype)
        np.add.at(sums, (slice(None), self.key_of), t)
        return sums

    def expert(self, b, n):
        g, u = self.product(n, b + "gate"), self.product(n, b + "up")
        h = self.a.gated(g, u)
        return self.product(h, b + "down"), (n, g, u, h)

    def expert_backward(self, b, dy, kept):
        n, g, u, h = kept
        dg, du = self.a.gated_backward(self.product_backward(h, dy, b + "down"), g, u)
        return self.product_backward(n, dg, b + "gate") + self.product_backward(n, du, b + "up")

    def feed_forward(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "feed_forward_norm"])
        if not self.p["experts"]:
            y, kept = self.expert(b, n)
            return x + y, (n, norm, kept)
        z = self.a.scaled_logits(self.product(n, b + "router"))
        chosen = self.a.order(z)[:, :self.p["top_k"]]
        gates = self.a.gates(np.take_along_axis(z, chosen, 1))
        y, kept = np.zeros_like(x), []
        for e, name in enumerate(self.experts):
            token, rank = np.nonzero(chosen == e)
            answers, of_expert = self.expert(b + name, n[token])
            np.add.at(y, token, gates[token, rank][:, None] * answers)
            kept.append((token, rank, answers, of_expert))
        return x + y, (n, norm, (chosen, gates, kept))

    def feed_forward_backward(self, b, d, kept):
        n, norm, kept = kept
        dn = self.mixture_backward(b, d, n, *kept) if self.p["experts"] else self.expert_backward(b, d, kept)
        return d + self.norm_backward(b + "feed_forward_norm", dn, norm)

    def mixture_backward(self, b, d, n, chosen, gates, kept):
        dn, dgates = np.zeros_like(d), np.zeros_like(gates)
        dz = np.zeros((len(d), len(self.experts)), d.dtype)
        for name, (token, rank, answers, of_expert) in zip(self.experts, kept):
            dgates[token, rank] = (d[token] * answers).sum(1)
            dy = self.a.gated_back(gates[token, rank][:, None], d[token])
            np.add.at(dn, token, self.expert_backward(b + name, dy, of_expert))
        np.put_along_axis(dz, chosen, self.a.gates_backward(dgates, gates), 1)
        return dn + self.product_backward(n, self.a.scaled_logits(dz), b + "router")

    def step(self, ids, labels, dlosses):
        """Logits and losses of this device's tokens."""
        head, kept = self.w["embedding" if self.p["is_tied"] else "head"], []
        is_id, is_label = ((t.reshape(-1, 1) == np.arange(self.p["vocabulary"])).astype("f4")
                           for t in (ids, labels))
        x = is_id @ self.w["embedding"]
        for b in range(self.p["blocks"]):
            x, attention = self.attend(f"block_{b}/", x)
            x, feed_forward = self.feed_forward(f"block_{b}/", x)
            kept.append((attention, feed_forward))
        n, norm = self.a.norm(x, self.w["final_norm"])
        z = self.a.scaled_logits(n @ head.T)
        counted = (labels >= 0).ravel()
        losses, dz = self.a.losses(z, is_label, dlosses.ravel() * counted)
        dz = self.a.scaled_logits(dz)
        d = self.norm_backward("final_norm", dz @ head, norm)
        for b, (attention, feed_forward) in reversed(list(enumerate(kept))):
            d = self.feed_forward_backward(f"block_{b}/", d, feed_forward)
            d = self.attend_backward(f"block_{b}/", d, attention)
        of_table, of_head = is_id.T @ d, dz.T @ n
        self.g |= {"embedding": of_table + of_head} if self.p["is_tied"] else \
            {"embedding": of_table, "head": of_head}
        return z, losses * counted


def device_program(group, problem, folder, out):
    read, batch = ({name: t.values for name, t in shardbook.read(folder / problem[f]).items()}
                   for f in ("params", "batch"))
    device = Device(group, problem, {name: t.astype("f4") for name, t in read.items()})
    is_exact, mine = problem["kind"] == "exact", {k: t[:, device.begin:device.end] for k, t in batch.items()}
    labels = (batch["labels"] >= 0).sum()
    mean = ((mine["labels"] >= 0) / labels).astype("f4")
    dlosses = mine["losses_grad"].astype("f4") if is_exact else mean
    z, losses = device.step(mine["input_ids"], mine["labels"], dlosses)
    losses = losses.reshape(mean.shape)
    results = {"losses": losses} if is_exact else {"logits": z.reshape(*mean.shape, -1),
                                                  "loss": group.all_reduce((losses * mean).sum())}
    gradients = {name: group.all_reduce(g) for name, g in device.g.items()}
    shardbook.write(out / f"device_{group.device}.safetensors", results | gradients)


if __name__ == "__main__":
    problem, out, n = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), int(sys.argv[3])
    if problem["workload"] != "decoder":
        sys.exit(77)
    sys.exit(run(device_program, n, problem, Path(sys.argv[1]).parent, out))
