"""The one rule for real numbers that a page shows and a run prints: a BLAS with other kernels rounds otherwise."""
import re

REAL = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


def alike(shown, given):
    """Texts that are equal but for their real numbers. Of these the last digit may differ by two; and a number with
    an exponent may be any other such: it is the difference that rounding makes, or its bound."""
    if REAL.sub("*", shown) != REAL.sub("*", given):
        return False
    return all(is_near(*pair) for pair in zip(REAL.findall(shown), REAL.findall(given)))


def is_near(shown, given):
    if "e" in shown or "e" in given:
        return "e" in shown and "e" in given
    digits = [len(number.partition(".")[2]) for number in (shown, given)]
    return digits[0] == digits[1] and abs(float(shown) - float(given)) < 2.5 * 10 ** -digits[0]
