"""Numbers of problems, the same on every machine, and values with bounds of their rounding errors."""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


# ---- Numbers: the same on every machine ------------------------------------------------------------------
def random_bits(seed, name, count):
    """64 random bits for each of `count` indices: splitmix64 (Steele, Lea, Flood 2014) of index and name."""
    start = 0xCBF29CE484222325  # FNV-1a of the text "SEED/NAME"
    for byte in f"{seed}/{name}".encode():
        start = (start ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def integers(seed, name, shape, most):
    """Integers from -most to most."""
    bits = random_bits(seed, name, math.prod(shape)) >> np.uint64(32)
    return (bits % np.uint64(2 * most + 1)).astype(float).reshape(shape) - most


def uniform(seed, name, shape, scale=1.0):
    """Multiples of 2^-23 in [-1, 1), times `scale`, a power of two: float32 holds them."""
    bits = random_bits(seed, name, math.prod(shape)) >> np.uint64(40)
    return (bits.astype(float) * 2.0**-23 - 1).reshape(shape) * scale


def part(size, parts, index):
    """[begin, end) of part `index` of `size` elements: the first (size mod parts) parts have one more."""
    least, more = divmod(size, parts)
    begin = index * least + min(index, more)
    return begin, begin + least + (index < more)


# ---- Bounds: values with bounds of their errors ----------------------------------------------------------
@dataclass(frozen=True)
class Precision:
    """How products are computed: unit roundoff of their operands, of sums, and of everything else."""
    operands: float
    sums: float = 2.0**-24
    if_unsure: str = "counts"  # a ReLU whose sign rounding can change: as an error; "refused" or "ignored"
    is_exact: bool = False  # whether every sum must be exact in float32, in any order
    is_probable: bool = False  # whether a sum's rounding errors count as independent
    rounds: object = None  # what is done to operands of products, where something is

    def gamma(self, k):
        """The bound of the error of a sum of k products, in any order, divided by the sum of their absolute values:
        k u / (1 - k u) (Higham 2002, section 3.1). If rounding errors are independent, 6 sqrt(k) takes the place
        of k, and one sum in ten million exceeds the bound (Higham and Mary 2019, theorem 2.4)."""
        k = np.minimum(k, 6 * np.sqrt(k)) if self.is_probable else k
        return k * self.sums / (1 - k * self.sums)


EXACT = Precision(0, 0, is_exact=True)
PRECISIONS = {"float64": Precision(0, 2.0**-53), "float32": Precision(0), "tf32": Precision(2.0**-11),
              "bf16": Precision(2.0**-8)}


class Undecided(Exception):
    """Rounding can change the result of a comparison, such as a ReLU's sign. The problem cannot be used."""


def unit_of(values):
    """The largest power of two of which all elements are multiples; infinite if all are 0."""
    mantissa, exponent = np.frexp(values[values != 0])
    whole = (mantissa * 2.0**53).astype(np.int64)
    return np.ldexp((whole & -whole).astype(float), exponent - 53).min(initial=np.inf)


def require_exact(precision, magnitude, unit):
    """In an exact problem, a sum must be exact in float32 in any order. Its addends are multiples of `unit`, a power
    of two, and their absolute values add up to `magnitude`."""
    if precision.is_exact and not np.max(magnitude, initial=0) <= 2**24 * unit:
        raise Undecided("a sum that float32 does not hold exactly")


@dataclass
class Bounded:
    """A result in real arithmetic, and the bound of each element's error in floating point, in any order of
    summation, on any number of devices (Higham 2002, sections 3.1 and 3.5)."""
    value: np.ndarray
    error: np.ndarray
    precision: Precision

    @classmethod
    def exact(cls, value, precision):
        value = np.asarray(value, float)
        return cls(value, np.zeros_like(value), precision)

    def rounded_once(self, value, error):
        """A result with this error from its operands, and one more rounding."""
        u = self.precision.sums
        if self.precision.is_exact:  # 4: p (d - s) may be p d - p s
            require_exact(self.precision, 4 * np.abs(value), unit_of(value))
        return Bounded(value, error * (1 + u) + u * np.abs(value), self.precision)

    def bounded(self, other):
        return other if isinstance(other, Bounded) else Bounded.exact(other, self.precision)

    def __matmul__(self, other):
        gamma = self.precision.gamma(self.value.shape[1])
        operand = 2 * self.precision.operands + self.precision.operands**2
        mine, others = np.abs(self.value) + self.error, np.abs(other.value) + other.error
        largest = mine @ others
        require_exact(self.precision, largest, unit_of(self.value) * unit_of(other.value))
        a, b = map(self.precision.rounds or (lambda t: t), (self.value, other.value))
        operands = np.maximum(largest - np.abs(self.value) @ np.abs(other.value), 0)
        rounding = (gamma + operand * (1 + gamma)) * largest
        # A sum of zeros is not rounded. (Differences of equal numbers are 0.)
        error = np.where(largest > 0, operands + rounding, 0)
        return Bounded(a @ b, error, self.precision)

    @property
    def T(self):
        return Bounded(self.value.T, self.error.T, self.precision)

    def __getitem__(self, index):
        return Bounded(self.value[index], self.error[index], self.precision)

    def __mul__(self, other):
        other = self.bounded(other)
        error = (np.abs(self.value) + self.error) * (np.abs(other.value) + other.error) \
            - np.abs(self.value * other.value)
        return self.rounded_once(self.value * other.value, error)

    def __add__(self, other):
        other = self.bounded(other)
        return self.rounded_once(self.value + other.value, self.error + other.error)

    def __sub__(self, other):
        other = self.bounded(other)
        return self.rounded_once(self.value - other.value, self.error + other.error)

    def __truediv__(self, other):
        other = self.bounded(other)
        least = np.abs(other.value) - other.error
        if (least <= 0).any():
            raise Undecided("a divisor that can be 0")
        error = (self.error + np.abs(self.value / other.value) * other.error) / least
        return self.rounded_once(self.value / other.value, error)

    def spread(self, rows, count):
        """These rows of `count` rows; the others are 0."""
        value, error = (np.zeros((count, *self.value.shape[1:])) for _ in range(2))
        value[rows], error[rows] = self.value, self.error
        return Bounded(value, error, self.precision)

    def sum(self):
        """The sum of all elements."""
        gamma = self.precision.gamma(self.value.size)
        return Bounded(self.value.sum(), self.error.sum() + gamma * (np.abs(self.value) + self.error).sum(),
                       self.precision)

    def sqrt(self):
        least, root, most = (np.sqrt(np.maximum(self.value + sign * self.error, 0)) for sign in (-1, 0, 1))
        return self.rounded_once(root, np.maximum(root - least, most - root))

    def is_positive(self):
        """Masks of the elements above 0, and of those for which rounding can change that."""
        unsure = (np.abs(self.value) <= self.error) & (self.error > 0)
        if self.precision.if_unsure == "refused" and unsure.any():
            raise Undecided("a ReLU's argument that can be on either side of 0")
        return self.value > 0, unsure & (self.precision.if_unsure == "counts")

    def masked(self, mask, unsure=False):
        at_most = np.where(unsure, np.abs(self.value) + self.error, self.error * mask)
        return Bounded(self.value * mask, at_most, self.precision)


class Plain(Bounded):
    """A value alone, as a wrong version computes it: without a bound, many of them are tried in a second."""
    @classmethod
    def of(cls, value):
        return cls(np.asarray(value, float), np.float64(0), PRECISIONS["float64"])

    def __matmul__(self, other):
        return Plain.of(self.value @ other.value)

    @property
    def T(self):
        return Plain.of(self.value.T)

    def __getitem__(self, index):
        return Plain.of(self.value[index])

    def __mul__(self, other):
        return Plain.of(self.value * getattr(other, "value", other))

    def __add__(self, other):
        return Plain.of(self.value + getattr(other, "value", other))

    def __sub__(self, other):
        return Plain.of(self.value - getattr(other, "value", other))

    def __truediv__(self, other):
        return Plain.of(self.value / getattr(other, "value", other))

    def sum(self):
        return Plain.of(self.value.sum())

    def sqrt(self):
        return Plain.of(np.sqrt(self.value))

    def is_positive(self):
        return self.value > 0, False

    def masked(self, mask, unsure=False):
        return Plain.of(self.value * mask)
