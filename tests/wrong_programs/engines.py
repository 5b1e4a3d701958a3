"""Compiles chapters with the mistakes of engine_mistakes.py, each in a copy, and runs what compiles."""
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jobs
from engine_mistakes import DOES_NOT_COMPILE, Mistake
from workshop import ROOT, Change, Made, Workshop, replaced

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
        says_why = self.mistake.says in "\n".join(self.lines)
        return (self.mistake.ends_in(self.code) and says_why
                and (self.names_line or not self.mistake.names_line))

    def complaint(self):
        m = self.mistake
        said = "\n".join(f"    {line}" for line in self.lines)
        return (f"{m.chapter}, {m.what}: code {self.code}, expected {m.code}; "
                f"a line is {'' if self.names_line else 'not '}named\n  expected: {m.says}\n  said:\n{said}")


def outcome(workshop, mistake):
    file = f"chapters/{mistake.chapter}/{mistake.file}"
    folder = Path(tempfile.mkdtemp(dir=workshop.folder))
    contents = replaced(file, mistake.text, mistake.instead)
    made = Made(workshop, Change(file, contents, folder / "tree"), folder)
    if said := made.compile(f"emu/{mistake.chapter}"):
        return of_compiler(mistake, said, folder / "tree")
    return of_run(mistake, made.program(f"emu/{mistake.chapter}"))


def of_compiler(mistake, text, folder):
    """The compiler's sentences, apart from its excerpts of the source; paths as in the project."""
    lines = text.replace(f"{folder}/", "").replace(f"{ROOT}/", "").splitlines()
    sentences = [line for line in lines if not re.match(r"\s*\d* \|", line)]
    place = f"chapters/{mistake.chapter}/{mistake.file}:"
    return Outcome(mistake, DOES_NOT_COMPILE, sentences, len(lines) - len(sentences),
                   any(line.startswith(place) and ("error:" in line or "required from" in line)
                       for line in sentences))


def of_run(mistake, program):
    ended = jobs.run([program, "train", "--steps", "2", *mistake.run.split()], DEVICES)
    lines = [line for line in ended.out.splitlines()
             if re.match("  differs|  and on other devices|  loss curve: step", line)]
    lines += ended.err.splitlines() + ([ended.left] if ended.left else [])
    place = rf"chapters/{mistake.chapter}/{re.escape(mistake.file)}:\d+"
    return Outcome(mistake, ended.code, lines, 0, bool(re.search(place, ended.err)))


def run(build, mistakes):
    """The messages about each mistake."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        workshop = Workshop(build, folder)
        return list(pool.map(lambda mistake: outcome(workshop, mistake), mistakes))
