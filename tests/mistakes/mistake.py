"""A seeded mistake: a small change of one source file that somebody is likely to make."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    name: str     # "mean-for-sum": unique
    part: str     # "02 bucketed", "emu", "optimizer": what the table calls the place
    file: str     # from the root of the project
    text: str     # what stands in the file once
    instead: str  # what stands there after the mistake
    story: str    # who makes it, and how
    curve: str    # how it would show in a training curve
    train: str = ""  # a chapter with options of `train`, "02_data_parallel --variant bucketed"
    tests: str = ""  # tests, with a filter or devices: "mixture_test slots*, proof_test@1"
    survives: str = ""  # why no test needs to notice it


def of(part, file, train="", tests=""):
    """Makes the mistakes of a part: `mistake(name, text, instead, story, curve)`."""
    def mistake(name, text, instead, story, curve, **options):
        return Mistake(name, part, file, text, instead, story, curve,
                       **{"train": train, "tests": tests, **options})
    return mistake
