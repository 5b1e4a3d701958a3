"""Compiles chapters with the mistakes of readers, and judges what is said of each; runs what compiles."""
import re
from dataclasses import dataclass

import jobs
from mistake import DOES_NOT_COMPILE, Mistake
from workshop import ROOT, each, opened

DEVICES = 4


@dataclass
class Outcome:
    """The message of the compiler, or of a run, about a mistake."""
    mistake: Mistake
    code: object
    lines: list     # without the compiler's excerpts of the source
    excerpts: int   # the number of its lines
    names_line: bool

    @property
    def is_right(self):
        says = self.mistake.says
        return says.ends_in(self.code) and says.words in "\n".join(self.lines) and (self.names_line or not says.names_line)

    def complaint(self):
        m = self.mistake
        said = "\n".join(f"    {line}" for line in self.lines)
        return (f"{m.chapter}, {m.says.what}: code {self.code}, expected {m.says.code}; "
                f"a line is {'' if self.names_line else 'not '}named\n  expected: {m.says.words}\n  said:\n{said}")


def outcome(workshop, mistake):
    made = workshop.with_mistake(mistake)
    if said := made.compile(f"emu/{mistake.chapter}"):
        return of_compiler(mistake, said, made.tree)
    return of_run(mistake, made.program(f"emu/{mistake.chapter}"))


def of_compiler(mistake, text, folder):
    """The compiler's sentences, apart from its excerpts of the source; paths as in the project."""
    lines = text.replace(f"{folder}/", "").replace(f"{ROOT}/", "").splitlines()
    sentences = [line for line in lines if not re.match(r"\s*\d* \|", line)]
    place = f"{mistake.file}:"
    return Outcome(mistake, DOES_NOT_COMPILE, sentences, len(lines) - len(sentences),
                   any(line.startswith(place) and ("error:" in line or "required from" in line)
                       for line in sentences))


def of_run(mistake, program):
    ended = jobs.run([program, "train", "--steps", "2", *mistake.options], DEVICES)
    lines = [line for line in ended.out.splitlines()
             if re.match("  differs|  and on other devices|  loss curve: step", line)]
    lines += ended.err.splitlines() + ([ended.left] if ended.left else [])
    return Outcome(mistake, ended.code, lines, 0, bool(re.search(rf"{re.escape(mistake.file)}:\d+", ended.err)))


def run(build, mistakes):
    """The messages about each mistake."""
    with opened(build) as workshop:
        return each(lambda mistake: outcome(workshop, mistake), mistakes)
