"""The layers of transformers, forward and backward, twice: of real numbers, and on a grid, where any cut of a
network gives the same bits. docs/equivalence.md says what both are for. Both have the same functions:

    norm(x, w)                    RMSNorm of rows: what it gives, and what its backward function keeps
    turned(t, at, direction)      pairs of a head turned by their token's position
    attend(q, k, v, sees)         of each head: what it gives, and its probabilities
    gated(g, u)                   silu(g) u
    gates(z)                      of the chosen experts
    losses(z, picks, dlosses)     of each token, and their gradient by the logits z
    product, add, total           what is linear
"""
import numpy as np

from .bounded import Precision, Undecided, random_bits, require_exact, unit_of


def turns(at, head_dim, base):
    """Cosines and sines of the angles of each position, (positions, head_dim / 2)."""
    angles = np.asarray(at)[:, None] * float(base)**(-2 * np.arange(head_dim // 2) / head_dim)
    return np.cos(angles), np.sin(angles)


def sigmoid(z):
    small = np.exp(-np.abs(z))
    return np.where(z > 0, 1, small) / (1 + small)


def transposed(t):
    return np.swapaxes(t, -1, -2)


class Layers:
    """What both have in common. `product`, `rounded` and so on differ."""
    def turned(self, t, at, direction=1):
        """Pairs j and j + d/2 of heads t (..., positions, d), forward or, with -1, back."""
        cos, sin = at
        x, y = np.split(t, 2, axis=-1)
        sin = direction * sin
        return np.concatenate([self.turn(x, cos, y, -sin), self.turn(x, sin, y, cos)], axis=-1)

    def norm_backward(self, dy, w, kept):
        """dx, and what these rows add to dw."""
        return self.norm_backward_of_rows(dy, w, kept), self.norm_backward_of_weights(dy, kept)

    def attend_backward(self, dout, out, p, q, k, v):
        """dq, dk, dv, and the gradient of what was added to scores."""
        ds = self.scores_backward(dout, out, p, v)
        scaled = self.scaled(ds)
        return (self.product(scaled, k), self.product(transposed(scaled), q),
                self.product(transposed(p), dout), ds)

    def scores_backward(self, dout, out, p, v):
        dots = self.total(dout * out, -1)[..., None]
        return self.rounded(self.held(self.product(dout, transposed(v)) - dots) * p)

    def add(self, a, b):
        return self.held(a + b)

    def times(self, a, b):
        return self.held(a * b)

    def gated(self, g, u):
        return self.rounded(self.silu(g) * u)

    def gates_backward(self, dgates, gates):
        return self.rounded(gates * self.held(dgates - self.total(dgates * gates, -1)[..., None]))


class Real(Layers):
    """Real numbers. The first axis has the number itself, and then samples with rounding errors: each operation
    changes each sample, up or down, by the bound of its error."""
    EXP, ROOT, DIVISION = 4, 4, 4  # units u of relative error that libraries and GPUs promise
    SIGMOID = EXP + 1 + DIVISION
    QUANTILE = 12.61  # of Student's distribution of 16 degrees of freedom: one in 10^9 lies outside

    def __init__(self, precision, score_scale=1.0, epsilon=0.0, samples=16):
        self.precision, self.samples, self.operations = precision, samples, 0
        self.epsilon, self.score_scale = epsilon, score_scale

    def lifted(self, values):
        return np.repeat(np.asarray(values, float)[None], self.samples + 1, axis=0)

    def bound(self, t):
        """The bound of the difference from t[0]: one in 10^9 is larger, if rounding errors are independent."""
        squares = ((t[1:] - t[0])**2).mean(axis=0) if self.samples else 0 * t[0]
        return self.QUANTILE * np.sqrt(squares)

    def moved(self, t, by):
        if not self.samples:
            return t
        self.operations += 1
        by = np.broadcast_to(by, t.shape[1:])
        bits = random_bits(0, str(self.operations), by.size).reshape(by.shape)
        which = np.arange(self.samples, dtype=np.uint64).reshape(-1, *[1] * by.ndim)
        signs = ((bits >> which) & np.uint64(1)).astype(float) * 2 - 1
        return np.concatenate([t[:1], t[1:] + signs * by])

    def rounded(self, t, units=1):
        return self.moved(t, units * self.precision.sums * np.abs(t[0]))

    def of_sum(self, t, terms, magnitude):
        return self.moved(t, self.precision.gamma(terms) * magnitude)

    def total(self, t, axis):
        return self.of_sum(t.sum(axis=axis), t.shape[axis], np.abs(t[:1]).sum(axis=axis)[0])

    def product(self, a, b):
        a, b = (self.moved(t, self.precision.operands * np.abs(t[0])) for t in (a, b))
        sizes, counts = ((np.abs(a[0]), np.abs(b[0])), ((a[0] != 0) * 1.0, (b[0] != 0) * 1.0))
        return self.of_sum(a @ b, counts[0] @ counts[1], sizes[0] @ sizes[1])

    held, gated_back = rounded, Layers.times

    def scaled(self, t):
        return t if self.score_scale == 1 else self.rounded(t * self.score_scale, 3)

    def scaled_logits(self, z):
        return z

    def norm(self, x, w):
        r = 1 / np.sqrt(self.rounded(self.rounded(self.total(x * x, -1) / x.shape[-1], 3) + self.epsilon))
        r = self.rounded(r, self.ROOT)[..., None]
        x_hat = self.rounded(x * r)
        return self.rounded(x_hat * w), (x_hat, r)

    def norm_backward_of_rows(self, dy, w, kept):
        x_hat, r = kept
        d = self.rounded(dy * w)
        mean = self.rounded(self.total(d * x_hat, -1) / x_hat.shape[-1], 2)[..., None]
        return self.rounded(self.rounded(d - self.rounded(x_hat * mean)) * r)

    def norm_backward_of_weights(self, dy, kept):
        return self.total(dy * kept[0], -2)

    def turn(self, x, a, y, b):
        """x a + y b."""
        return self.of_sum(x * a + y * b, 3, np.abs(x[0] * a) + np.abs(y[0] * b))

    def softmax(self, z, sees=True, pieces=False):
        """Of the last axis, and the logarithm of its sum. Where keys come in pieces, powers are multiplied by
        others for each piece that follows."""
        sees = np.broadcast_to(sees, z[0].shape)
        largest = np.where(sees, z[0], -np.inf).max(axis=-1, keepdims=True)
        smallest = np.where(sees, z[0], np.inf).min(axis=-1, keepdims=True)
        terms = sees.sum(axis=-1, keepdims=True)
        units = self.EXP + largest - smallest + pieces * (terms - 1) * (self.EXP + 1)
        power = self.rounded(np.where(sees, np.exp(np.where(sees, z, -np.inf) - largest), 0), units)
        sums = self.of_sum(power.sum(-1, keepdims=True), terms, power[0].sum(-1, keepdims=True))
        logarithm = self.rounded(self.rounded(np.log(sums), self.EXP) + largest)
        return self.rounded(power / sums, self.DIVISION), logarithm[..., 0]

    def attend(self, q, k, v, sees, bias=None):
        z = self.scaled(self.product(q, transposed(k)))
        p, _ = self.softmax(z if bias is None else self.rounded(z + bias), sees, pieces=True)
        return self.product(p, v), p

    def weights(self, q, k, sees, others):
        """Softmax weights of other keys than those of which the sum is."""
        z = self.scaled(self.product(q, transposed(k)))
        return np.where(others, np.exp(z - self.softmax(z, sees)[1][..., None]), 0)

    def is_positive(self, z):
        """In each sample. With coarse operands, a ReLU may turn in some."""
        is_unsure = self.samples and (np.abs(z[0]) <= self.bound(z)).any()
        if is_unsure and self.precision.if_unsure == "refused":
            raise Undecided("a ReLU's argument that can be on either side of 0")
        return z > 0

    def silu(self, z):
        return self.rounded(z * sigmoid(z), self.SIGMOID + 1)

    def gated_backward(self, dh, g, u):
        """dg and du."""
        other, units = sigmoid(-g), self.SIGMOID + 1
        slope = self.rounded(sigmoid(g) * (1 + g * other), units + 1)
        slope = self.moved(slope, self.precision.sums * units * np.abs(g * sigmoid(g) * other)[0])
        return self.rounded(self.rounded(dh * u) * slope), self.rounded(dh * self.silu(g))

    def gates(self, z):
        return self.softmax(z)[0]

    def order(self, z):
        """Experts of each row, the likeliest first. \\throws Undecided where rounding can change that"""
        order = np.argsort(-z[0], axis=-1, kind="stable")
        lead = -np.diff(np.take_along_axis(z, np.broadcast_to(order, z.shape), -1), axis=-1)
        if self.samples and (lead[0] <= self.bound(lead)).any():
            raise Undecided("two experts of which either can come first")
        return order

    def losses(self, z, picks, dlosses):
        """`picks` is 1 at each row's label."""
        p, logarithm = self.softmax(z)
        losses = self.rounded(logarithm - (z * picks).sum(-1))
        return losses, self.rounded(np.where(picks, self.rounded(p - picks), p) * dlosses[:, None])


class OnGrid(Layers):
    """float32 numbers on a grid. Each nonlinear result is rounded to a multiple of `unit`, ties to even, and
    kept within ±limit. Exponents are integers from -4 to 4, and the base is 2. Then all sums are exact.

    `is_checked`: refuses numbers that float32 errors may round to another multiple."""
    LARGEST_EXPONENT = 4
    MARGIN = 2.0**-21  # the largest relative error of a nonlinear result in float32: 8 roundings

    def __init__(self, grid, epsilon, is_checked=False):
        self.unit, self.limit, self.epsilon = grid["unit"], grid["limit"], epsilon
        self.score_scale, self.logit_scale = grid["score_scale"], grid["logit_scale"]
        self.is_checked = is_checked

    def rounded(self, t, size=None):
        """`size`: the size of the numbers from which t was computed, which bounds its error."""
        t = np.asarray(t, float)
        if self.is_checked:
            off = np.abs(t / self.unit - np.floor(t / self.unit) - 0.5) * self.unit
            inside = np.abs(t) < self.limit
            size = np.abs(t) if size is None else size
            if (inside & (off > 0) & (off < self.MARGIN * size)).any():
                raise Undecided("a number that may be rounded up or down")
        return np.clip(np.rint(t / self.unit) * self.unit, -self.limit, self.limit)

    def exponents(self, t):
        return np.clip(np.rint(t), -self.LARGEST_EXPONENT, self.LARGEST_EXPONENT)

    def held(self, t):
        """Numbers that float32 holds."""
        if self.is_checked and (np.asarray(t, "f4") != np.asarray(t, float)).any():
            raise Undecided("a sum that float32 does not hold exactly")
        return t

    def require_exact(self, magnitude, *factors):
        if self.is_checked:
            unit = np.prod([unit_of(factor) for factor in factors])
            require_exact(Precision(0, 0, is_exact=True), magnitude, unit)

    def lifted(self, values):
        return np.asarray(values, float)[None]

    def bound(self, t):
        return np.zeros_like(t[0])

    def total(self, t, axis):
        self.require_exact(np.abs(t).sum(axis=axis), t)
        return t.sum(axis=axis)

    def product(self, a, b):
        self.require_exact(np.abs(a) @ np.abs(b), a, b)
        return a @ b

    def gated_back(self, gate, d):
        """What comes back to an expert, through its gate."""
        return self.rounded(gate * d)

    def scaled(self, t):
        return t * self.score_scale

    def scaled_logits(self, z):
        return z * self.logit_scale

    def norm(self, x, w):
        r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        x_hat = self.rounded(x * r)
        return x_hat * w, (x_hat, r)

    def norm_backward_of_rows(self, dy, w, kept):
        x_hat, r = kept
        d = dy * w
        of_mean, size = (t.mean(axis=-1, keepdims=True) for t in (d * x_hat, np.abs(d * x_hat)))
        return self.rounded((d - x_hat * of_mean) * r, (np.abs(d) + np.abs(x_hat) * size) * r)

    def norm_backward_of_weights(self, dy, kept):
        self.require_exact(np.abs(dy * kept[0]).sum(axis=-2), dy, kept[0])
        return (dy * kept[0]).sum(axis=-2)

    def turn(self, x, a, y, b):
        return self.rounded(x * a + y * b, np.abs(x * a) + np.abs(y * b))

    def powers(self, z, sees=True):
        return np.where(sees, 2.0**self.exponents(z), 0)

    def attend(self, q, k, v, sees, bias=None):
        z = self.scaled(self.product(q, transposed(k)))
        powers = self.powers(z if bias is None else self.held(z + bias), sees)
        sums = powers.sum(axis=-1, keepdims=True)
        return self.rounded(self.product(powers, v) / sums), self.rounded(powers / sums)

    def weights(self, q, k, sees, others):
        """Softmax weights of other keys than those of which the sum is."""
        z = self.scaled(self.product(q, transposed(k)))
        return self.rounded(self.powers(z, others) / self.powers(z, sees).sum(axis=-1, keepdims=True))

    def silu(self, z):
        return self.rounded(z * sigmoid(z))

    def gated_backward(self, dh, g, u):
        size = np.abs(dh * u) * sigmoid(g) * (1 + np.abs(g) * sigmoid(-g))
        return self.rounded(dh * u * sigmoid(g) * (1 + g * sigmoid(-g)), size), \
            self.rounded(dh * self.silu(g))

    def gates(self, z):
        powers = self.powers(z)
        return self.rounded(powers / powers.sum(axis=-1, keepdims=True))

    def order(self, z):
        return np.argsort(-self.exponents(z), axis=-1, kind="stable")

    def losses(self, z, picks, dlosses, all_reduce=lambda t: t):
        """Where devices have slices of the logits, `all_reduce` sums over them."""
        powers = self.powers(z)
        sums, label = (all_reduce(t) for t in (powers.sum(-1), (self.exponents(z) * picks).sum(-1)))
        losses = self.rounded(np.log2(sums) - label, np.log2(sums) + np.abs(label))
        share = powers / sums[..., None]
        dz = (share - picks) * dlosses[:, None]
        return losses, self.rounded(dz, (share + picks) * np.abs(dlosses)[:, None])
