"""A seeded mistake: a small change of one source file that a person may make."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    part: str     # the place in the table: "02 bucketed", "emu rows", "optimizer"
    file: str     # from the root of the project
    train: str    # a chapter with options of `train`, "02_data_parallel --variant bucketed", or ""
    tests: str    # tests, with a filter or devices: "mixture_test slots*, proof_test@1", or ""
    name: str     # unique: "mean-for-sum"
    text: str     # occurs once in the file, and is no longer than needed for that
    instead: str  # replaces the text
    story: str    # who makes the mistake, and how
    curve: str    # its effect on a training curve
    survives: str = ""  # why no test needs to notice it; empty: one must


def of(part, file, train, tests, *rows):
    """Mistakes of one file with the same run and the same tests. A row for each, from its name on."""
    return [Mistake(part, file, train, tests, *row) for row in rows]
