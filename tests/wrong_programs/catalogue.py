"""Runs the programs of the catalogue, and judges the lines that each prints."""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "harness"))
import jobs

DEVICES = 3
AT_ONCE = len(os.sched_getaffinity(0)) + 1


@dataclass
class Said:
    """The end of a program: its code, and its lines."""
    code: int
    lines: list


@dataclass
class Verdict:
    """What is right in the lines of a program."""
    program: dict
    said: Said
    detected: bool  # the right code
    line: bool      # all lines of the source that must be named
    cause: bool     # all expected lines, with the devices
    noise: list = field(default_factory=list)  # unexpected lines

    @property
    def is_right(self):
        return self.detected and self.line and self.cause and not self.noise

    def complaint(self):
        """The details of a verdict that is not right."""
        p = self.program
        wanted = "\n".join(f"    {line}" for line in p["says"])
        given = "\n".join(f"    {line}" for line in self.said.lines)
        return (f"{p['call']}, {p['class']}: code {self.said.code}, expected {p['code']}"
                f"\n  expected:\n{wanted}\n  said:\n{given}")


def pattern(line):
    """The pattern of a line: `#` stands for a number, `*` for any words; a place may be repeated. A split, and
    a call with a subject, is not counted: it stands after one that is."""
    line = re.sub(r'(of "[^"]*"|\bsplit)((?: in group [^(]*)?) \(call # at', r"\1\2 (after call #, at", line)
    text = re.escape(line).replace(r"\#", r"\d+").replace(r"\*", ".*")
    return re.sub(r"\\\(((?:after\\ )?call.*?)\\\)", r"\\((?:\1(?:, )?)+\\)", text)


def judge(program, said):
    """Compares the lines with the program's row."""
    patterns = [pattern(line) for line in program["says"]]
    text = "\n".join(said.lines)
    places = re.findall(r"tests/\S+?:\d+", "\n".join(program["says"]))
    noise = [line for line in said.lines if not any(re.fullmatch(p, line) for p in patterns)]
    return Verdict(program, said, said.code == program["code"], all(place in text for place in places),
                   all(any(re.fullmatch(p, line) for line in said.lines) for p in patterns), noise)


def run_together(programs, executable):
    """Runs all programs that need no job of their own. Returns their lines, by number."""
    ended = jobs.run([executable, "--together"], DEVICES, seconds=300)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    said = {row["number"]: heard(row["said"]) for row in rows}
    missing = Said(ended.code, ended.err.splitlines() or ["nothing"])
    return {i: said.get(i, missing) for i, program in enumerate(programs) if not program["alone"]}


def heard(by_device):
    """The lines of the devices. A line that several print counts once."""
    lines = dict.fromkeys(line for device in by_device for line in device["text"].splitlines())
    return Said(max(device["code"] for device in by_device), list(lines))


def run_alone(number, executable):
    ended = jobs.run([executable, number], DEVICES)
    lines = [line.removeprefix("error: ") for line in ended.err.splitlines()]
    return Said(ended.code, lines + ([ended.left] if ended.left else []))


def run(executable):
    """A verdict on every program of the API."""
    programs = listed(executable)
    said = run_together(programs, executable)
    alone = [i for i, program in enumerate(programs) if program["alone"]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said.update(zip(alone, pool.map(lambda number: run_alone(number, executable), alone)))
    return [judge(program, said[i]) for i, program in enumerate(programs)]


def listed(executable):
    shown = subprocess.run([executable, "--list"], check=True, capture_output=True, text=True)
    return json.loads(shown.stdout)
