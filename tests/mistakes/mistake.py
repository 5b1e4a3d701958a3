"""A seeded mistake: a small change of one source file that somebody is likely to make."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    part: str     # "02 bucketed", "emu rows", "optimizer": what the table calls the place
    file: str     # from the root of the project
    train: str    # a chapter with options of `train`, "02_data_parallel --variant bucketed", or ""
    tests: str    # tests, with a filter or devices: "mixture_test slots*, proof_test@1", or ""
    name: str     # "mean-for-sum": unique
    text: str     # what stands in the file once: no more of it than finds the place
    instead: str  # what stands there after the mistake
    story: str    # who makes it, and how
    curve: str    # how it would show in a training curve
    survives: str = ""  # why no test needs to notice it


def of(part, file, train, tests, *rows):
    """The mistakes of a file that the same run and the same tests should notice: a row each, from its name on."""
    return [Mistake(part, file, train, tests, *row) for row in rows]
