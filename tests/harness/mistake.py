"""A mistake on purpose: a small change of one source file that a person may make. All that is planted in sources is a row
of this type; `harness/workshop.py` builds what has it."""
from dataclasses import dataclass

DOES_NOT_COMPILE = "does not compile"


@dataclass(frozen=True)
class Said:
    """What must be said of a mistake."""
    what: str      # the mistake, as the table names it
    words: str     # name its cause
    code: object   # DOES_NOT_COMPILE, or the exit code of a run
    or_code: object = None   # the exit code at other times, where that depends on which device is late
    names_line: bool = True  # whether a line of the source is to be named: results that differ have none
    of_student: int = 0      # its number among the fifteen

    def ends_in(self, code):
        return code is not None and code in (self.code, self.or_code)


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
    says: Said | None = None  # of a reader's mistake

    @property
    def chapter(self):
        return self.train.partition(" ")[0]

    @property
    def options(self):
        return self.train.split()[1:]


def of(part, file, train, tests, *rows):
    """Mistakes of one file with the same run and the same tests. A row for each, from its name on."""
    return [Mistake(part, file, train, tests, *row) for row in rows]
