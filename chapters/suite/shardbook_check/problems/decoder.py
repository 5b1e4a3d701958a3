"""A decoder as Mistral's and Mixtral's, and an encoder-decoder as T5, forward and backward, from their
definitions: whole matrices, and attention as a softmax over all keys. With a mistake, they compute what a wrong
version would."""
import math
from dataclasses import replace

import numpy as np

from .bounded import Undecided, part
from .files import rounded
from .layers import sigmoid, transposed, turns
from .other_functions import of_mistake


def shapes_of(m):
    """{name: shape} of the parameters of a decoder problem."""
    d, heads, keys = m.model_dim, m.heads * m.head_dim, m.key_heads * m.head_dim
    shapes = {"embedding": (m.vocabulary, d), "final_norm": (d,)}
    if not m.is_tied:
        shapes["head"] = (m.vocabulary, d)
    for b in range(m.blocks):
        of_block = {"attention_norm": (d,), "query": (d, heads), "key": (d, keys), "value": (d, keys),
                    "output": (heads, d), "feed_forward_norm": (d,)}
        if m.experts:
            of_block["router"] = (d, m.experts)
        for prefix in prefixes(m):
            of_block |= {f"{prefix}gate": (d, m.hidden_dim), f"{prefix}up": (d, m.hidden_dim),
                         f"{prefix}down": (m.hidden_dim, d)}
        shapes |= {f"block_{b}/{name}": shape for name, shape in of_block.items()}
    return shapes


def t5_shapes_of(m):
    d, width = m.model_dim, m.heads * m.head_dim
    shapes = {"embedding": (m.vocabulary, d), **({} if m.is_tied else {"head": (m.vocabulary, d)})}
    for side in ("encoder", "decoder"):
        shapes |= {f"{side}/position_bias": (m.buckets, m.heads), f"{side}/final_norm": (d,)}
        for b in range(m.blocks):
            of_block = {"feed_forward_norm": (d,), "up": (d, m.hidden_dim), "down": (m.hidden_dim, d)}
            for which in ("self_", "cross_")[:1 + (side == "decoder")]:
                of_block |= {f"{which}norm": (d,), f"{which}output": (width, d),
                             **{which + name: (d, width) for name in ("query", "key", "value")}}
            shapes |= {f"{side}/block_{b}/{name}": shape for name, shape in of_block.items()}
    return shapes


def prefixes(m):
    return [f"expert_{e}/" for e in range(m.experts)] if m.experts else [""]


class Network:
    """What networks of tokens share. Activations have a row for each token, sequence by sequence, behind the
    axis of samples."""
    def __init__(self, problem, layers, params, batch):
        self.m, self.mistake, self.layers = problem, problem.mistake, of_mistake(layers, problem.mistake.forgets)
        self.w, self.gradients = {name: layers.lifted(w) for name, w in params.items()}, {}
        self.labels = shifted(batch["labels"].astype(int), problem.mistake)
        self.sequences, self.length = self.labels.shape

    def parts(self, size, of_each=1):
        count = of_each * self.mistake.devices
        return [part(size, count, k) for k in range(count)]

    def in_vocabulary(self, tokens, forgets):
        """1 at each row's token, (T, V). A wrong version takes tokens for row numbers of a slice."""
        found, tokens = np.zeros((tokens.size, self.m.vocabulary)), tokens.ravel()
        size, n = self.m.vocabulary, self.mistake.devices
        begins = self.parts(size) if self.mistake.forgets in (forgets, "begins" + forgets[6:]) else [(0, size)]
        for device, (begin, end) in enumerate(begins):
            first = device * (size // n) if self.mistake.forgets.startswith("begins") else 0
            rows = np.nonzero((tokens >= first) & (tokens < first + end - begin))[0]
            found[rows, begin + tokens[rows] - first] = 1
        return found

    def rows_of_norms(self, rows):
        """The rows that count in gradients of norms."""
        if self.mistake.forgets == "rows of norms":
            return slice(*part(rows, self.mistake.devices, self.mistake.device))
        if self.mistake.forgets == "positions of norms":
            length = rows // self.sequences
            begin, end = part(length, self.mistake.devices, self.mistake.device)
            return (np.arange(self.sequences)[:, None] * length + np.arange(begin, end)).ravel()
        return slice(None)

    def passing(self, point, t):
        """A tensor where a wrong version does something otherwise."""
        mistake = self.mistake
        if mistake.point != point:
            return t
        if mistake.fault == "bf16":
            return rounded(t, "BF16")
        if mistake.fault in ("next", "reversed", "first"):  # blocks of tokens of heads (samples, B, heads, S, d), or of columns
            axis = 3 if t.ndim == 5 else t.ndim - 1
            parts = self.parts(t.shape[axis])
            of = {"next": lambda k: (k + 1) % len(parts), "reversed": lambda k: -1 - k, "first": lambda k: 0}[mistake.fault]
            order = [parts[of(k)][0] + min(i, max(parts[of(k)][1] - parts[of(k)][0] - 1, 0))
                     for k, (begin, end) in enumerate(parts) for i in range(end - begin)]
            return np.take(t, np.minimum(order, t.shape[axis] - 1), axis)
        return t * {"0": 0, "n": mistake.devices, "1/n": 1 / mistake.devices, "-1": -1}.get(mistake.fault, 1)

    def is_skipped(self, point):
        return self.mistake.point == point and self.mistake.fault == "skipped"

    def counted(self, rows, index=None):
        """Rows of tokens as they count in gradients: of a wrong version, those of a device alone, or not, or twice."""
        mistake = self.mistake
        if mistake.point not in ("positions", "sequences"):
            return rows
        found = np.zeros((self.sequences, rows.shape[1] // self.sequences if index is None else self.length))
        begin, end = part(found.shape[1 if mistake.point == "positions" else 0], mistake.devices, mistake.device)
        found[(slice(None), slice(begin, end)) if mistake.point == "positions" else slice(begin, end)] = 1
        mine = found.ravel() if index is None else found.ravel()[index]
        return rows * {"alone": mine, "missing": 1 - mine, "twice": 1 + mine}[mistake.fault][:, None]

    def head(self):
        return "embedding" if self.m.is_tied else "head"

    def put(self, name, gradient, use=""):
        """Adds the gradient of one use of a parameter. A wrong version leaves a use out, or counts it twice."""
        times = {f"the {use}": 0, f"that the {use} is one of two": 2}.get(self.mistake.forgets, 1)
        gradient = gradient * times if use and self.m.is_tied else gradient
        before = self.gradients.get(name)
        self.gradients[name] = gradient if before is None else self.layers.add(before, gradient)

    def norm(self, name, x):
        w = self.w[name][:, None]
        found, kept = self.layers.norm(x, np.ones_like(w) if self.is_skipped(name.split("/")[-1]) else w)
        return self.passing(name.split("/")[-1], found), kept

    def norm_backward(self, name, dy, kept):
        rows, role = self.rows_of_norms(dy.shape[1]), name.split("/")[-1]
        dy = self.passing(f"d {role}", dy)
        self.put(name, self.layers.norm_backward_of_weights(self.counted(dy)[:, rows], (kept[0][:, rows], None)))
        w = self.w[name][:, None]
        w = np.ones_like(w) if self.is_skipped(f"d {role}") or self.is_skipped(f"both {role}") else w
        dx = self.layers.norm_backward_of_rows(dy, w, kept)
        if self.mistake.point == "formula" and self.mistake.fault in (role, "norm"):
            dx = dy * w * kept[1]
        return self.passing(f"d before {role}", dx)

    def heads_of(self, t):
        """(T, heads · d) as (B, heads, S, d)."""
        t = t.reshape(len(t), self.sequences, t.shape[1] // self.sequences, -1, self.m.head_dim)
        return np.swapaxes(t, 2, 3)

    def rows_of(self, t):
        return np.swapaxes(t, 2, 3).reshape(len(t), self.sequences * t.shape[3], -1)

class Decoder(Network):
    def __init__(self, problem, layers, params, batch):
        super().__init__(problem, layers, params, batch)
        self.ids = batch["input_ids"].astype(int)
        base = 10000.0 if self.mistake.forgets == "rope base" else self.m.rope_base
        at = turns(self.positions(), self.m.head_dim, base)
        # Some wrong programs rotate the pairs 2j and 2j + 1 instead of j and j + d/2.
        order = np.arange(self.m.head_dim).reshape(-1, 2).T.ravel()
        self.pairs = order if self.mistake.forgets == "halves" else np.arange(self.m.head_dim)
        self.at, self.sees = at, self.seen()

    # ---- Where a wrong version differs -------------------------------------------------------------------
    def positions(self):
        """The positions of a sequence's tokens."""
        if self.mistake.forgets.startswith("rotary and zigzag"):
            parts = self.parts(self.length, of_each=2)
            around = [parts[at] for k in range(self.mistake.devices) for at in (k, -1 - k)]
            zigzag = np.concatenate([np.arange(begin, end) for begin, end in around])
            return zigzag if self.mistake.forgets.endswith("tokens in ranges") else np.argsort(zigzag)
        if self.mistake.forgets.startswith("rotary of "):
            parts = self.parts(self.length)
            of = {"next": lambda k: (k + 1) % len(parts), "before": lambda k: k - 1, "reversed": lambda k: -1 - k}
            first = of[self.mistake.forgets.split()[-1]]
            return np.concatenate([parts[first(k)][0] + np.arange(end - begin) for k, (begin, end) in enumerate(parts)])
        if self.mistake.forgets == "positions":
            return np.concatenate([np.arange(end - begin) for begin, end in self.parts(self.length)])
        return np.arange(self.length)

    def seen(self):
        """Which keys each query sees, (S, S)."""
        query, key = np.ogrid[:self.length, :self.length]
        places = np.concatenate([np.arange(end - begin) for begin, end in self.parts(self.length)])
        sees = key <= query + {"the next token": 1, "itself": -1}.get(self.mistake.forgets, 0)
        if self.mistake.forgets == "itself":
            sees[0, 0] = True
        if self.mistake.forgets == "causality":
            sees = np.ones_like(sees)
        if self.mistake.forgets == "places before":
            sees = places[key] <= places[query]
        if self.mistake.forgets == "places of queries":
            sees = key <= places[query]
        if self.mistake.forgets == "keys elsewhere":
            sees &= self.same_device()
        if self.mistake.point == "seen":
            sees &= self.on_ring()
        if self.m.window and self.mistake.forgets != "window":
            wider = {"where windows end": 1, "a token of windows": -1}.get(self.mistake.forgets, 0)
            sees &= key > query - self.m.window - wider
        if not sees.any(axis=1).all():
            raise Undecided("a token that sees nothing")
        return sees

    def devices(self):
        """The device of each token of a sequence."""
        return np.repeat(np.arange(self.mistake.devices), [end - begin for begin, end in self.parts(self.length)])

    def same_device(self):
        """Whether one device has the query and the key, (S, S)."""
        return self.devices() == self.devices()[:, None]

    def on_ring(self):
        """Whether the key's part is at one of the mistake's distances around the ring of devices from the query's, (S, S)."""
        of = self.devices()
        return np.isin((of - of[:, None]) % self.mistake.devices, self.mistake.distances)

    def seen_around(self):
        """The keys that each query sees if keys go around the ring one way, and their positions the other way."""
        starts, of = np.array(self.parts(self.length))[:, 0], self.devices()
        at, query = np.arange(self.length) - starts[of], np.arange(self.length)[:, None]
        other = (2 * of[:, None] - of) % self.mistake.devices
        key = starts[other] + at
        sees = key <= query
        return sees & (key > query - self.m.window) if self.m.window else sees

    def rescaled_otherwise(self, p):
        """Weights of ring attention, forward and backward, where sums, or weighted sums of values, are not rescaled to the
        largest score so far, or the other way. p relative to its largest so far is exp(z - m) of that step."""
        so_far, of, count = np.ones(p.shape), self.devices(), self.mistake.devices
        for device in range(count):
            rows, largest = of == device, 0
            for step in range(count):
                keys = of == (device - step) % count
                largest = np.maximum(largest, p[..., rows, :][..., keys].max(axis=-1, keepdims=True, initial=0))
                so_far[..., np.ix_(rows, keys)[0], np.ix_(rows, keys)[1]] = np.where(largest > 0, largest, 1)
        top = p.max(axis=-1, keepdims=True)
        if self.mistake.forgets == "rescaling":
            return p * top / so_far, p
        weights = p * top / so_far**2 if self.mistake.forgets == "rescaling the other way" else p / so_far
        sums = weights.sum(axis=-1, keepdims=True)
        after = p / top / sums
        return (after if self.mistake.forgets == "rescaling of sums" else weights / sums), after

    def with_own_values(self, p, v):
        """Sums of values, if each device takes its own values for those of every piece of the same length."""
        found, parts = np.zeros((*p.shape[:-1], v.shape[-1])), self.parts(self.length)
        for begin, end in parts:
            for first, last in parts:
                mine = v[..., begin:end, :] if end - begin == last - first else v[..., first:last, :]
                found[..., begin:end, :] += p[..., begin:end, first:last] @ mine
        return found

    def key_heads(self):
        """The key-value head of each query head."""
        if self.mistake.forgets == "neighbours":
            return np.arange(self.m.heads) % self.m.key_heads
        if self.mistake.forgets == "neighbours on each device":
            found, shared, n = [], self.m.heads // self.m.key_heads, self.mistake.devices
            divides_keys = self.m.key_heads >= n
            for begin, end in self.parts(self.m.key_heads if divides_keys else self.m.heads):
                if divides_keys:
                    found += [begin + h % max(end - begin, 1) for h in range((end - begin) * shared)]
                else:
                    own = np.arange(begin, end) // shared
                    found += [own.min() + h % len(np.unique(own)) for h in range(end - begin)]
            return np.array(found)
        return np.arange(self.m.heads) // (self.m.heads // self.m.key_heads)

    def queries_that_count(self):
        """1 for each query head that counts in the gradients of keys and values."""
        counted = np.ones(self.m.heads)
        if self.mistake.forgets == "other queries":
            begin, end = part(self.m.heads, self.mistake.devices, self.mistake.device)
            counted[:begin] = counted[end:] = 0
        return counted[:, None, None]

    # ---- Forward and backward ----------------------------------------------------------------------------
    def forward(self):
        """The logits, (T, V)."""
        a, self.blocks = self.layers, []
        self.lookup = self.in_vocabulary(self.ids, "offset of ids")
        x = self.passing("embedding", self.lookup @ self.w["embedding"])
        for b in range(self.m.blocks):
            kept = {}
            x = a.add(self.residual(x, "attention"), self.attend(f"block_{b}/", x, kept))
            n, kept["feed_forward_norm"] = self.norm(f"block_{b}/feed_forward_norm", x)
            x = a.add(self.residual(x, "feed-forward"), (self.mixture if self.m.experts else self.feed_forward)(f"block_{b}/", n, kept))
            self.blocks.append(kept)
        self.n, self.final_norm = self.norm("final_norm", x)
        return self.passing("logits", a.scaled_logits(a.product(self.n, transposed(self.w[self.head()]))))

    def backward(self, dz):
        """{name: gradient}."""
        a, dz = self.layers, self.passing("d logits", self.layers.scaled_logits(dz))
        self.put(self.head(), a.product(transposed(dz), self.counted(self.n)), "head")
        d = self.norm_backward("final_norm", a.product(dz, self.w[self.head()]), self.final_norm)
        for b, kept in reversed(list(enumerate(self.blocks))):
            backward = self.mixture_backward if self.m.experts else self.feed_forward_backward
            of_norm = self.norm_backward(f"block_{b}/feed_forward_norm", backward(f"block_{b}/", d, kept),
                                         kept["feed_forward_norm"])
            d = a.add(self.residual(d, "feed-forward", "both passes"), of_norm)
            d = a.add(self.residual(d, "attention", "both passes"), self.attend_backward(f"block_{b}/", d, kept))
        self.put("embedding", a.product(a.lifted(self.lookup.T), self.counted(self.passing("d embedding", d))), "table")
        return self.gradients

    def residual(self, x, of, only="residual"):
        """What a block's output is added to: of a wrong version, once on each device."""
        forgets = self.mistake.forgets
        is_counted = forgets.startswith("residual") and only in forgets and (of in forgets or "every" in forgets)
        return x * self.mistake.devices if is_counted else x

    def turned(self, t, direction=1):
        t = t[..., self.pairs]
        return self.layers.turned(t, self.at, direction)[..., np.argsort(self.pairs)]

    def turned_as(self, point, t, direction=1):
        """Turned once, or as often as a wrong version turns."""
        times = 2 if self.mistake.forgets in (point, point.removesuffix(" back")) else 1 - self.is_skipped(point)
        for _ in range(times):
            t = self.turned(t, direction)
        return t

    def of_sequences(self, t, by):
        """Keys and values (samples, B, heads, S, d): of a wrong version, those of other sequences."""
        other = {"keys of the sequence before": 1, "keys of the sequence behind": -1}.get(self.mistake.forgets, 0)
        return np.roll(t, by * other, axis=1)

    def attend(self, block, x, kept):
        a = self.layers
        n, kept["attention_norm"] = self.norm(f"{block}attention_norm", x)
        q, k, v = (self.heads_of(a.product(n, self.w[block + name])) for name in ("query", "key", "value"))
        q, k, v = self.passing("query", q), self.passing("key", k), self.passing("value", v)
        q, k = (self.turned_as(f"turning {which}", t) for t, which in ((q, "query"), (k, "key")))
        k, v = (self.of_sequences(self.passing("keys and values", t)[:, :, self.key_heads()], 1) for t in (k, v))
        out, p = a.attend(q, k, v, self.sees)
        if self.mistake.forgets.startswith("rescaling"):
            weights, p = self.rescaled_otherwise(p)
            out = weights @ v
        if self.mistake.forgets == "values elsewhere":
            out = self.with_own_values(p, v)
        out = self.passing("attention", out)
        kept["attention"] = n, q, k, v, out, p
        return self.passing("output", a.product(self.rows_of(out), self.w[block + "output"]))

    def attend_backward(self, block, d, kept):
        a, (n, q, k, v, out, p) = self.layers, kept["attention"]
        d = self.passing("d output", d)
        self.put(block + "output", a.product(transposed(self.counted(self.rows_of(out))), d))
        dout = self.passing("d attention", self.heads_of(a.product(d, transposed(self.w[block + "output"]))))
        is_sum_lost = self.mistake.point == "formula" and self.mistake.fault == "scores"
        dq, dk, dv, ds = a.attend_backward(dout, 0 * out if is_sum_lost else out, p, q, k, v)
        if self.mistake.forgets == "queries elsewhere":
            here = self.same_device()
            dk, dv = (a.product(transposed(t * here), other) for t, other in ((a.scaled(ds), q), (p, dout)))
        if self.mistake.point.startswith("ring "):  # some parts of keys alone add to some gradients
            here, of = self.on_ring(), self.mistake.point.split()[1:]
            dq = a.product(a.scaled(ds) * here, k) if "queries" in of else dq
            dk = a.product(transposed(a.scaled(ds) * here), q) if "keys" in of else dk
            dv = a.product(transposed(p * here), dout) if "values" in of else dv
        if self.mistake.forgets == "values' sums":  # the sum on the last device of the ring alone
            last = (self.devices() - 1) % self.mistake.devices == self.devices()[:, None]
            dv = a.product(transposed(p * last), dout)
        if self.mistake.forgets == "the ring's direction":
            wrong = a.weights(q, k, self.sees, self.seen_around())
            dq, dk, dv, ds = a.attend_backward(dout, out, wrong, q, k, v)
        dk, dv = (self.passing("d keys and values", self.of_sequences(t, -1)) for t in (dk, dv))
        whole = self.of_projections(dq, dk, dv)
        counted = self.of_projections(dq, *(t * self.queries_that_count() for t in (dk, dv)))
        for name, t in counted.items():
            self.put(block + name, a.product(transposed(self.counted(n)), t))
        addends = [self.passing(f"d by {name}", a.product(t, transposed(self.w[block + name]))) for name, t in whole.items()]
        dn = a.add(a.add(addends[0], addends[1]), addends[2])
        return self.norm_backward(block + "attention_norm", dn, kept["attention_norm"])

    def of_projections(self, dq, dk, dv):
        """Gradients by the products with the query, key and value weights."""
        dk, dv = self.summed_by_key_heads(dk), self.summed_by_key_heads(dv)
        dq, dk = (self.turned_as(f"turning {which} back", t, -1) for t, which in ((dq, "query"), (dk, "key")))
        return {name: self.passing(f"d {name}", self.rows_of(t)) for name, t in (("query", dq), ("key", dk), ("value", dv))}

    def summed_by_key_heads(self, t):
        groups = [np.flatnonzero(self.key_heads() == g) for g in range(self.m.key_heads)]
        return np.stack([self.layers.total(t[:, :, group], 2) for group in groups], axis=2)

    def fused(self, gate, up, back=False):
        """Gate and up as each device reads them from its piece of both, one beside the other; or back."""
        if self.mistake.forgets != "two pieces":
            return gate, up
        size, n = gate.shape[-1], self.mistake.devices
        order = np.arange(2 * size).reshape(n, 2, size // n).swapaxes(0, 1).ravel()
        return np.split(np.concatenate([gate, up], -1)[..., np.argsort(order) if back else order], 2, -1)

    def expert(self, prefix, n):
        g, u = self.fused(*(self.layers.product(n, self.w[prefix + name]) for name in ("gate", "up")))
        g, u = (u, g) if self.mistake.forgets == "gate or up" else (g, u)
        g, u = self.passing("gate", g), self.passing("up", u)
        h = self.passing("hidden", u if self.is_skipped("gate") else g if self.is_skipped("up") else self.layers.gated(g, u))
        return self.passing("down", self.layers.product(h, self.w[prefix + "down"])), (n, g, u, h)

    def expert_backward(self, prefix, dy, kept, rows=None):
        a, (n, g, u, h) = self.layers, kept
        dy = self.passing("d down", dy)
        self.put(prefix + "down", a.product(transposed(self.counted(h, rows)), dy))
        dg, du = a.gated_backward(self.passing("d hidden", a.product(dy, transposed(self.w[prefix + "down"]))), g, u)
        if self.mistake.point == "formula" and self.mistake.fault in ("exchanged", "silu", "sigmoid"):
            dh = a.product(dy, transposed(self.w[prefix + "down"]))
            s = sigmoid(g)
            dg, du = {"exchanged": (du, dg), "silu": (a.rounded(dh * u * s), du), "sigmoid": (a.rounded(dh * u * s * (1 - s)), du)}[
                self.mistake.fault]
        dg, du = self.passing("d gate", dg), self.passing("d up", du)
        dg, du = (du, dg) if self.mistake.forgets == "gate or up" else (dg, du)
        dg, du = self.fused(dg, du, back=True)
        for name, t in (("gate", dg), ("up", du)):
            self.put(prefix + name, a.product(transposed(self.counted(n, rows)), t))
        return a.add(*(a.product(t, transposed(self.w[prefix + name]))
                       for name, t in (("gate", dg), ("up", du))))

    def feed_forward(self, block, n, kept):
        y, kept["feed_forward"] = self.expert(block, n)
        return y

    def feed_forward_backward(self, block, d, kept):
        return self.expert_backward(block, d, kept["feed_forward"])

    def mixture(self, block, n, kept):
        """Each token goes to its top_k likeliest experts. Gates are the softmax of their logits."""
        a, k = self.layers, self.m.top_k
        z = a.scaled_logits(a.product(n, self.w[block + "router"]))
        chosen = a.order(z).reshape(z.shape[1:])[:, :k]
        index = np.broadcast_to(chosen, (len(z), *chosen.shape))
        if self.mistake.forgets == "chosen alone":
            gates = np.take_along_axis(a.gates(z), index, -1)
        else:
            gates = a.gates(np.take_along_axis(z, index, -1))
        answers, experts = np.zeros((*n.shape[:2], k, n.shape[2])), []
        for e, prefix in enumerate(prefixes(self.m)):
            at = np.nonzero(chosen == e)
            y, of_expert = self.expert(block + prefix, n[:, at[0]])
            answers[:, at[0], at[1]] = y
            experts.append((at, of_expert))
        kept["mixture"] = n, chosen, gates, answers, experts
        return a.total(a.times(np.ones_like(gates)[..., None] if self.mistake.forgets == "gates" else
                               gates[..., None], answers), 2)

    def mixture_backward(self, block, d, kept):
        a, (n, chosen, gates, answers, experts) = self.layers, kept["mixture"]
        by_choice, dn = np.zeros_like(answers), np.zeros_like(answers)
        by_choice[:] = d[:, :, None]
        dgates = a.total(by_choice * answers, -1)
        by_choice = a.gated_back(gates[..., None], by_choice)
        for (at, of_expert), prefix in zip(experts, prefixes(self.m)):
            dn[:, at[0], at[1]] = self.expert_backward(block + prefix, by_choice[:, at[0], at[1]], of_expert, at[0])
        of_chosen = a.gates_backward(dgates, gates)
        if self.mistake.forgets == "gate gradients":
            of_chosen = of_chosen * 0
        dz = np.zeros((len(d), d.shape[1], self.m.experts))
        np.put_along_axis(dz, np.broadcast_to(chosen, (len(d), *chosen.shape)), of_chosen, -1)
        dz = a.scaled_logits(dz)
        self.put(block + "router", a.product(transposed(self.counted(n)), dz))
        return a.add(a.total(dn, 2), a.product(dz, transposed(self.w[block + "router"])))


class T5(Network):
    """An encoder reads `input_ids`. A decoder, whose blocks also attend to the encoder's output, predicts `labels`
    from `decoder_input_ids`. Scores are not scaled, and have a bias by distance."""
    def __init__(self, problem, layers, params, batch):
        super().__init__(problem, layers, params, batch)
        names = {"encoder": "input_ids", "decoder": "decoder_input_ids"}
        self.ids = {side: batch[name].astype(int) for side, name in names.items()}
        self.lookup, self.kept, self.n, self.of_bias = {}, {}, {}, {}

    def forward(self):
        for side in ("encoder", "decoder"):
            self.kept[side] = [{} for _ in range(self.m.blocks)]
            self.lookup[side] = self.in_vocabulary(self.ids[side], "offset of ids")
            x = self.lookup[side] @ self.w["embedding"]
            for b, kept in enumerate(self.kept[side]):
                for name, part_of_block in self.parts_of_block(side):
                    x = self.layers.add(x, part_of_block(f"{side}/block_{b}/{name}", side, x, kept))
            self.n[side], self.kept[side, "norm"] = self.norm(f"{side}/final_norm", x)
        z = self.layers.product(self.n["decoder"], transposed(self.w[self.head()]))
        return self.scaled(z)

    def backward(self, dz):
        a, dz = self.layers, self.scaled(dz)
        self.put(self.head(), a.product(transposed(dz), self.n["decoder"]), "head")
        self.dn = {"decoder": a.product(dz, self.w[self.head()]), "encoder": 0 * self.n["encoder"]}
        for side in ("decoder", "encoder"):
            d = self.norm_backward(f"{side}/final_norm", self.dn[side], self.kept[side, "norm"])
            for b, kept in reversed(list(enumerate(self.kept[side]))):
                for name, _ in reversed(self.parts_of_block(side)):
                    backward = self.feed_forward_block_backward if name == "feed_forward_" else self.attend_backward
                    d = a.add(d, backward(f"{side}/block_{b}/{name}", side, d, kept))
                if self.mistake.forgets == "other blocks" and b > 0:
                    self.gradients.pop(f"{side}/position_bias")
            self.put("embedding", a.product(a.lifted(self.lookup[side].T), d), "table")
        return self.gradients

    def parts_of_block(self, side):
        cross = [("cross_", self.attend)] if side == "decoder" else []
        return [("self_", self.attend), *cross, ("feed_forward_", self.feed_forward_block)]

    def scaled(self, z):
        """Scales logits of a tied head, or their gradient."""
        is_scaled = self.m.is_tied and self.mistake.forgets != "logit scale"
        return self.layers.rounded(z * self.m.model_dim**-0.5, 3) if is_scaled else z

    def buckets(self, side):
        """The bucket of each query and key."""
        query, key = np.ogrid[:self.ids[side].shape[1], :self.ids[side].shape[1]]
        is_encoder = side == "encoder"
        count = self.m.buckets // 2 if is_encoder and self.mistake.forgets != "direction" else self.m.buckets
        distance = np.abs(key - query) if is_encoder else np.maximum(query - key, 0)
        near = count // 2
        far = np.log(np.maximum(distance, near) / near) / math.log(self.m.max_distance / near)
        beyond = np.minimum(near + far * (count - near), count - 1).astype(int)
        found = np.where(distance < near, distance, beyond)
        return found + (count * (key > query) if is_encoder and count < self.m.buckets else 0)

    def attend(self, name, side, x, kept):
        a, is_self = self.layers, name.endswith("self_")
        n, kept[name] = self.norm(f"{name}norm", x)
        source = n if is_self else self.n["encoder"]
        q, k, v = (self.heads_of(a.product(t, self.w[name + which]))
                   for t, which in ((n, "query"), (source, "key"), (source, "value")))
        length = q.shape[3]
        is_causal = is_self and side == "decoder" and self.mistake.forgets != "causality"
        sees = np.tri(length, k.shape[3], dtype=bool) if is_causal else np.ones((length, k.shape[3]), bool)
        table = self.w[f"{side}/position_bias"]
        bias = np.moveaxis(table[:, self.buckets(side)], -1, 1)[:, None]
        out, p = a.attend(q, k, v, sees, bias if is_self else None)
        kept[name, "attention"] = n, source, q, k, v, out, p
        return a.product(self.rows_of(out), self.w[name + "output"])

    def attend_backward(self, name, side, d, kept):
        a, (n, source, q, k, v, out, p) = self.layers, kept[name, "attention"]
        self.put(name + "output", a.product(transposed(self.rows_of(out)), d))
        dout = self.heads_of(a.product(d, transposed(self.w[name + "output"])))
        dq, dk, dv, ds = a.attend_backward(dout, out, p, q, k, v)
        addends = []
        for which, t, x in (("query", dq, n), ("key", dk, source), ("value", dv, source)):
            self.put(name + which, a.product(transposed(x), self.rows_of(t)))
            addends.append(a.product(self.rows_of(t), transposed(self.w[name + which])))
        of_source = a.add(addends[1], addends[2])
        if name.endswith("self_"):
            is_bucket = self.buckets(side).ravel()[:, None] == np.arange(self.m.buckets)
            of_pairs = a.total(ds, 1).reshape(len(ds), self.m.heads, -1)
            self.put(f"{side}/position_bias", transposed(a.product(of_pairs, a.lifted(is_bucket))))
            return self.norm_backward(name + "norm", a.add(addends[0], of_source), kept[name])
        is_first = name == f"decoder/block_{self.m.blocks - 1}/cross_"
        if is_first or self.mistake.forgets != "other readers":
            self.dn["encoder"] = a.add(self.dn["encoder"], of_source)
        return self.norm_backward(name + "norm", addends[0], kept[name])

    def feed_forward_block(self, name, _side, x, kept):
        a, block = self.layers, name.removesuffix("feed_forward_")
        n, kept[name] = self.norm(name + "norm", x)
        u = a.product(n, self.w[block + "up"])
        mask = a.is_positive(u)
        kept[name, "relu"] = n, mask, u * mask
        return a.product(u * mask, self.w[block + "down"])

    def feed_forward_block_backward(self, name, _side, d, kept):
        a, block, (n, mask, h) = self.layers, name.removesuffix("feed_forward_"), kept[name, "relu"]
        self.put(block + "down", a.product(transposed(h), d))
        du = a.product(d, transposed(self.w[block + "down"])) * mask
        self.put(block + "up", a.product(transposed(n), du))
        return self.norm_backward(name + "norm", a.product(du, transposed(self.w[block + "up"])), kept[name])


NETWORKS = {"decoder": Decoder, "t5": T5}


def solved(problem, layers, params, batch):
    """{name: result, with its samples}: logits and the mean loss, or the loss of each token; and gradients."""
    network = NETWORKS[problem.workload](problem, layers, params, batch)
    z, weights = network.forward(), weights_of(problem, batch)
    picks = network.in_vocabulary(network.labels, "offset of labels")
    losses, dz = layers.losses(z, picks, weights)
    if problem.mistake.forgets == "the softmax's sum":  # the scale is added to it
        sums = np.exp(z).sum(-1, keepdims=True) + problem.mistake.scale
        losses, dz = np.log(sums[..., 0]) - (z * picks).sum(-1), (np.exp(z) / sums - picks) * weights[:, None]
    if problem.mistake.forgets.startswith("softmax elsewhere"):
        losses, dz = losses_of_slices(network, z, picks, weights)
    losses = losses * (network.labels >= 0).ravel()
    shape = (len(z), *network.labels.shape)
    found = {"losses": losses.reshape(shape)} if problem.kind == "exact" else \
        {"logits": z.reshape(*shape, -1), "loss": layers.total(losses * weights_of_loss(problem, batch, weights), -1)}
    return {**found, **network.backward(dz)}


def shifted(labels, mistake):
    """Labels as a wrong version has them: of the token before, or behind, or 0 where a token has none."""
    if mistake.forgets == "no label":
        return np.where(labels < 0, 0, labels)
    if not mistake.forgets.startswith("labels of the token"):
        return labels
    by = 1 if mistake.forgets.endswith("before") else -1
    found = np.roll(labels, by, axis=1)
    found[:, 0 if by > 0 else -1] = -100
    return found


def losses_of_slices(network, z, picks, weights):
    """Losses, as the device sees them, and the gradient of softmaxes of each slice alone, or of sums whose maxima differ."""
    forgets, parts = network.mistake.forgets, network.parts(z.shape[-1])
    shifts = np.zeros_like(z)
    for begin, end in parts if "maximum" in forgets else ():
        shifts[..., begin:end] = z[..., begin:end].max(-1, keepdims=True) if end > begin else 0
    powers, sums = np.exp(z - shifts), np.zeros_like(z)
    for begin, end in [(0, z.shape[-1])] if "maximum" in forgets else parts:
        sums[..., begin:end] = powers[..., begin:end].sum(-1, keepdims=True)
    begin, end = parts[network.mistake.device]
    at = min(begin, z.shape[-1] - 1)
    of_losses = np.exp(z).sum(-1) if "backward" in forgets else sums[..., at] * np.exp(shifts[..., at])
    return np.log(of_losses) - (z * picks).sum(-1), (powers / sums - picks) * weights[:, None]


def weights_of_loss(problem, batch, weights):
    """A wrong version's loss may be another mean than that of which it has the gradients."""
    alone = problem.mistake.forgets.partition("in the loss alone: ")[2]
    return right_weights_of(replace(problem, mistake=replace(problem.mistake, forgets=alone)), batch) if alone else weights


def weights_of(problem, batch):
    """The weight of each token's loss, (T). A wrong version may count some otherwise."""
    found = right_weights_of(problem, batch)
    return found * problem.mistake.weights if problem.mistake.weights else found


def right_weights_of(problem, batch):
    labels, mistake = shifted(batch["labels"], problem.mistake), problem.mistake
    if mistake.forgets.startswith("in the loss alone"):
        mistake = replace(mistake, forgets="")
    if mistake.forgets.startswith("labels at ends"):
        ends = [end - 1 for begin, end in (part(labels.shape[1], mistake.devices, d) for d in range(mistake.devices))
                if end > begin]
        ends = [0 if "first" in mistake.forgets and end == 0 else end for end in ends]
        kept = labels.copy()
        kept[:, ends] = -100
        counted = (labels if "all" in mistake.forgets else kept) >= 0
        return ((kept >= 0) / max(counted.sum(), 1)).ravel()
    begin, end = mistake.rows or (0, len(labels))
    counted = (begin <= np.arange(len(labels))) & (np.arange(len(labels)) < end)
    is_labelled = (labels >= 0) * 1.0
    if problem.kind == "exact":
        return (batch["losses_grad"] * is_labelled * counted[:, None]).ravel()
    if "elsewhere" not in mistake.forgets or mistake.forgets.split()[-2] not in ("sequences", "positions"):
        return (is_labelled / is_labelled.sum() * counted[:, None]).ravel()
    axis = 0 if "sequences" in mistake.forgets else 1
    weights, n = np.moveaxis(is_labelled, axis, 0).copy(), mistake.devices  # the mean of the devices' means, or the sum
    means = 1 if mistake.forgets.startswith("sum of") else n
    for begin, end in (part(len(weights), n, device) for device in range(n)):
        weights[begin:end] /= means * max(weights[begin:end].sum(), 1)
    return np.moveaxis(weights, 0, axis).ravel()
