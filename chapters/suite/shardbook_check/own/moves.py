"""Runs in which every operation is moved, up or down at random, by the most that its precision can be wrong there.

fl(a.b) = sum a_i b_i (1 + t_i), |t_i| <= k u for a sum of k products in any order (Higham 2002, section 3.1), and
about sqrt(k) u if roundings are independent (Higham and Mary 2019). So an operand of a product or a sum is moved by
sqrt(k) u, and each result by u. The spread of 16 such runs estimates the error of each element; 12.6 times their root
mean square is exceeded by one result in 10^9 (Student's distribution of 16 degrees of freedom)."""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

RUNS = 16
LIMIT = 12.6  # times the root mean square of 16 runs


@dataclass(frozen=True)
class Rounding:
    """Unit roundoffs of a program: of operands of products, of every result, and of sums."""
    operands: float
    results: float
    sums: float


PRECISIONS = {"float64": Rounding(0, 2.0**-53, 2.0**-53), "float32": Rounding(0, 2.0**-24, 2.0**-24),
              "tf32": Rounding(2.0**-11, 2.0**-24, 2.0**-24), "float16": Rounding(2.0**-11, 2.0**-11, 2.0**-24),
              "bf16": Rounding(2.0**-8, 2.0**-8, 2.0**-24)}


class Moves:
    """The moves of one run. `signs(like)` draws -1 or 1 for each element of a framework's array."""
    def __init__(self, rounding, signs):
        self.rounding, self.signs, self.seen = rounding, signs, 0

    def of_result(self, value):
        """A result, rounded; functions such as exp may be wrong by two units."""
        self.seen += 1
        return value * (1 + 2 * self.rounding.results * self.signs(value))

    def of_addends(self, value, length):
        """An operand of sums of `length` addends, of products or not."""
        return value * (1 + (math.sqrt(length) * self.rounding.sums + self.rounding.operands) * self.signs(value))

    def of_input(self, value):
        """A parameter or an input, as the program stores it."""
        return value * (1 + self.rounding.results * self.signs(value))


def limits(exact, samples, rounding):
    """{name: the bound of each element} of samples of results."""
    found = {}
    for name, value in exact.items():
        spread = np.sqrt(np.mean([np.square(sample[name] - value) for sample in samples], axis=0))
        found[name] = LIMIT * spread + 2 * rounding.results * np.abs(value)
    return found
