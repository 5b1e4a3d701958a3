"""What the decoders in NumPy share. Here a device has every token and every parameter; a program that divides them
overrides the first functions, and says which tokens see which (`at`, `sees`, `key_of`). Of an exact problem, all that
is not linear is computed by layers.OnGrid."""
import numpy as np

import shardbook_check as sb
from real_layers import RealLayers
from shardbook_check.problems.layers import OnGrid


def transposed(t):
    return t.swapaxes(-1, -2)


def read(problem, folder):
    """Parameters and batch."""
    return ({name: t.values.astype("f4") for name, t in sb.read(folder / problem[file]).items()}
            for file in ("params", "batch"))


class Decoder:
    def __init__(self, group, problem, w):
        self.group, self.p, self.w, self.g = group, problem, w, {}
        self.a = OnGrid(problem["grid"], problem["norm_epsilon"]) if problem["kind"] == "exact" else \
            RealLayers(problem)
        self.tokens, self.vocabulary = problem["length"], (0, problem["vocabulary"])

    # ---- What depends on how a network is divided --------------------------------------------------------
    def summed(self, t):
        """The sum of what devices with slices of a matrix add to rows."""
        return t

    def of_all_tokens(self, t):
        """Keys or values of all tokens."""
        return t

    def of_my_keys(self, t):
        """The gradient of this device's keys or values, from what each device's queries add to it."""
        return t

    def summed_projections(self, of_queries, of_keys):
        return self.summed(of_queries + of_keys)

    # ---- Layers ------------------------------------------------------------------------------------------
    def in_slice(self, tokens):
        """1 at each token of this device's slice of the vocabulary, (T, v)."""
        return (tokens.reshape(-1, 1) == np.arange(*self.vocabulary)).astype("f4")

    def product(self, x, name):
        return x @ self.w[name]

    def product_backward(self, x, d, name):
        self.g[name] = transposed(x) @ d
        return d @ transposed(self.w[name])

    def norm_backward(self, name, dy, kept):
        dx, self.g[name] = self.a.norm_backward(dy, self.w[name], kept)
        return dx

    def heads_of(self, t):
        d = self.p["head_dim"]
        return t.reshape(self.p["batch_size"], self.tokens, t.shape[1] // d, d).swapaxes(1, 2)

    def rows_of(self, t):
        sequences, heads, tokens, d = t.shape
        return t.swapaxes(1, 2).reshape(sequences * tokens, heads * d)

    def attend(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "attention_norm"])
        q, k, v = (self.heads_of(self.product(n, b + name)) for name in ("query", "key", "value"))
        q, k = self.a.turned(q, self.at), self.a.turned(k, self.at)
        k, v = (self.of_all_tokens(t)[:, self.key_of] for t in (k, v))
        out, p = self.a.attend(q, k, v, self.sees)
        return x + self.summed(self.product(self.rows_of(out), b + "output")), (n, norm, out, p, q, k, v)

    def attend_backward(self, b, d, kept):
        n, norm, out, p, q, k, v = kept
        dout = self.product_backward(self.rows_of(out), d, b + "output")
        dq, *dkv, _ = self.a.attend_backward(self.heads_of(dout), out, p, q, k, v)
        dk, dv = (self.of_my_keys(self.by_key_heads(t)) for t in dkv)
        dq, dk, dv = (self.product_backward(n, self.rows_of(t), b + name) for name, t in (
            ("query", self.a.turned(dq, self.at, -1)), ("key", self.a.turned(dk, self.at, -1)), ("value", dv)))
        return d + self.norm_backward(b + "attention_norm", self.summed_projections(dq, dk + dv), norm)

    def by_key_heads(self, t):
        heads = self.w["block_0/key"].shape[1] // self.p["head_dim"]
        sums = np.zeros((len(t), heads, *t.shape[2:]), t.dtype)
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

    experts, experts_backward = expert, expert_backward

    def feed_forward(self, b, x):
        n, norm = self.a.norm(x, self.w[b + "feed_forward_norm"])
        y, kept = self.experts(b, n)
        return x + self.summed(y), (norm, kept)

    def feed_forward_backward(self, b, d, kept):
        norm, kept = kept
        dn = self.summed(self.experts_backward(b, d, kept))
        return d + self.norm_backward(b + "feed_forward_norm", dn, norm)

    def step(self, ids, labels, dlosses):
        """Logits of this device's tokens and slice of the vocabulary, and losses of these tokens."""
        head, kept, lookup = "embedding" if self.p["is_tied"] else "head", [], self.in_slice(ids)
        x = self.summed(lookup @ self.w["embedding"])
        for b in range(self.p["blocks"]):
            x, attention = self.attend(f"block_{b}/", x)
            x, feed_forward = self.feed_forward(f"block_{b}/", x)
            kept.append((attention, feed_forward))
        n, norm = self.a.norm(x, self.w["final_norm"])
        z = self.a.scaled_logits(n @ transposed(self.w[head]))
        counted = (labels >= 0).ravel()
        losses, dz = self.a.losses(z, self.in_slice(labels), dlosses.ravel() * counted, self.summed)
        dz = self.a.scaled_logits(dz)
        d = self.norm_backward("final_norm", self.summed(dz @ self.w[head]), norm)
        for b, (attention, feed_forward) in reversed(list(enumerate(kept))):
            d = self.feed_forward_backward(f"block_{b}/", d, feed_forward)
            d = self.attend_backward(f"block_{b}/", d, attention)
        self.g["embedding"] = transposed(lookup) @ d
        self.g[head] = transposed(dz) @ n + (self.g["embedding"] if self.p["is_tied"] else 0)
        return z, losses * counted
