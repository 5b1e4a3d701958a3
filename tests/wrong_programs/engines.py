"""Compiles chapters with the mistakes of engine_mistakes.py, each in a copy, and runs what compiles."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jobs
from engine_mistakes import DOES_NOT_COMPILE, Mistake

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 4
READ_IN_ADVANCE = ["engine/sharded_engine.hpp", "engine/program/registry.hpp",
                   "engine/workloads/mlp_layers.hpp"]


@dataclass
class Outcome:
    """What the compiler, or a run, says of a mistake."""
    mistake: Mistake
    code: object
    lines: list     # without the compiler's excerpts of the source
    excerpts: int   # how many lines these are
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


class Workshop:
    """Compiles and links as the project's build does (ninja says how), but for optimization."""

    def __init__(self, build, folder):
        self.build, self.folder = Path(build).resolve(), Path(folder)
        words = shlex.split(next(line for line in self.commands("02_data_parallel") if "chapter.cpp" in line))
        flags = [word for word in words if re.match("-[DIWfs]|-iquote", word) and word != "-Werror"]
        self.compiler = [next(word for word in words if re.search(r"(\+\+|clang.*)$", word)), *flags, "-O0"]
        header = self.folder / "engine.hpp"
        header.write_text("".join(f'#include "{name}"\n' for name in READ_IN_ADVANCE))
        made = subprocess.run([*self.compiler, "-x", "c++-header", header, "-o", f"{header}.gch"],
                              capture_output=True)
        if made.returncode == 0:
            self.compiler += ["-include", header]

    def commands(self, chapter):
        shown = subprocess.run(["ninja", "-C", self.build, "-t", "commands", f"emu/{chapter}"], check=True,
                               capture_output=True, text=True)
        return [line for line in shown.stdout.splitlines() if chapter in line]

    def outcome(self, mistake):
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / "chapters" / mistake.chapter
        shutil.copytree(ROOT / "chapters" / mistake.chapter, copy)
        edit(copy / mistake.file, mistake)
        compiled = subprocess.run([*self.compiler, "-c", copy / "chapter.cpp", "-o", copy / "chapter.o"],
                                  env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True)
        if compiled.returncode != 0:
            return of_compiler(mistake, compiled.stderr, copy.parent)
        self.link(mistake.chapter, copy)
        return of_run(mistake, copy / "program")

    def link(self, chapter, copy):
        line = self.commands(chapter)[-1].removeprefix(": && ").removesuffix(" && :")
        words = [copy / "chapter.o" if word.endswith(f"{chapter}/chapter.cpp.o") else word
                 for word in shlex.split(line)]
        words[words.index("-o") + 1] = copy / "program"
        subprocess.run(words, cwd=self.build, check=True)


def edit(file, mistake):
    text = file.read_text()
    if text.count(mistake.text) != 1:
        raise SystemExit(f"engine_mistakes.py: {mistake.what}: expected once in "
                         f"{mistake.chapter}/{mistake.file}, found {text.count(mistake.text)} times: "
                         f"{mistake.text}")
    file.write_text(text.replace(mistake.text, mistake.instead))


def of_compiler(mistake, text, folder):
    """The compiler's sentences, apart from its excerpts of the source; paths as in the project."""
    lines = text.replace(f"{folder}/", "chapters/").replace(f"{ROOT}/", "").splitlines()
    sentences = [line for line in lines if not re.match(r"\s*\d* \|", line)]
    place = f"chapters/{mistake.chapter}/{mistake.file}:"
    return Outcome(mistake, DOES_NOT_COMPILE, sentences, len(lines) - len(sentences),
                   any(line.startswith(place) and ("error:" in line or "required from" in line)
                       for line in sentences))


def of_run(mistake, program):
    ended = jobs.run([program, "train", "--steps", "2", *mistake.run.split()], DEVICES)
    lines = [line for line in ended.out.splitlines()
             if re.match("  differs|  and on others|  loss curve: step", line)]
    lines += ended.err.splitlines() + ([ended.left] if ended.left else [])
    place = rf"chapters/{mistake.chapter}/{re.escape(mistake.file)}:\d+"
    return Outcome(mistake, ended.code, lines, 0, bool(re.search(place, ended.err)))


def run(build, mistakes):
    """What is said of each of the mistakes."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        workshop = Workshop(build, folder)
        return list(pool.map(workshop.outcome, mistakes))
