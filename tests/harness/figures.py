"""Compares real numbers on a page with those of a run: a BLAS with other kernels rounds differently."""
import re

REAL = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


def alike(shown, given):
    """Whether texts are equal except for real numbers. The last digit of these may differ by two. A number with an
    exponent is a rounding error or its bound, and may be any other such number."""
    if REAL.sub("*", shown) != REAL.sub("*", given):
        return False
    return all(is_near(*pair) for pair in zip(REAL.findall(shown), REAL.findall(given)))


def is_near(shown, given):
    if "e" in shown or "e" in given:
        return "e" in shown and "e" in given
    digits = [len(number.partition(".")[2]) for number in (shown, given)]
    return digits[0] == digits[1] and abs(float(shown) - float(given)) < 2.5 * 10 ** -digits[0]
