"""The tables of the catalogue, as Markdown, rated by detection, line, cause and noise, as in MPI-BugBench."""
import re
from pathlib import Path

import tables
from mistake import DOES_NOT_COMPILE


def table(heads, rows):
    return tables.table(heads, map(tables.line_of, rows))


def by(key, items):
    """Items that have the same key, in the order in which keys come first."""
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def of_wrong_programs(verdicts):
    wrong = [v for v in verdicts if v.program["code"] or v.program["says"]]
    rows = [[name, *rated(some)] for name, some in by(lambda v: v.program["class"], wrong).items()]
    heads = ["mistake", "programs", "detected", "right lines", "right devices and cause", "lines too many"]
    return table(heads, [*rows, ["**all**", *rated(wrong)]])


def rated(verdicts):
    return [len(verdicts), sum(v.detected for v in verdicts), sum(v.line for v in verdicts),
            sum(v.cause for v in verdicts), sum(len(v.noise) for v in verdicts)]


def of_right_programs(verdicts):
    right = [v for v in verdicts if not v.program["code"] and not v.program["says"]]
    def row(name, some):
        return [name, len(some), sum(not v.is_right for v in some)]
    rows = [row(name, some) for name, some in by(lambda v: v.program["class"], right).items()]
    return table(["what looks suspicious", "programs", "accused"], [*rows, row("**all**", right)])


def of_engines(outcomes):
    def row(name, some):
        return [name, len(some), sum(o.mistake.says.ends_in(o.code) for o in some), sum(o.names_line for o in some),
                sum(not o.mistake.says.names_line for o in some), sum(o.is_right for o in some)]
    chapters = by(lambda o: o.mistake.chapter, sorted(outcomes, key=lambda o: o.mistake.chapter))
    rows = [row(f"`{name}`", some) for name, some in chapters.items()]
    heads = ["chapter", "mistakes", "detected", "line named", "a result differs, at no line", "right cause"]
    return table(heads, [*rows, row("**all**", outcomes)])


def of_fifteen(outcomes):
    rows = [[o.mistake.says.of_student, o.mistake.says.what, o.mistake.says.code, essence(o), len(explaining(o)),
             len(o.lines) + o.excerpts, "yes" if o.is_right else "no"] for o in outcomes]
    heads = ["", "mistake", "code", "what is said", "lines of it", "lines printed", "right cause"]
    return table(heads, rows)


def explaining(outcome):
    """The lines that explain, without the compiler's list of includes."""
    return [line for line in outcome.lines if not re.match(r"In file included from|\s+from |cc1plus: ", line)]


def essence(outcome):
    """The compiler's sentence that names the cause, with its line; all lines of a run."""
    text, says = "\n".join(outcome.lines), outcome.mistake.says
    if says.code == DOES_NOT_COMPILE:
        said = says.words if says.words in text else outcome.lines[0]
        place = re.search(rf"{re.escape(Path(outcome.mistake.file).name)}:\d+", text)
        return f"`{place[0] if place else '?'}: {said}`"
    lines = [re.sub(r"^error: (device \d+: )?", "", line) for line in outcome.lines]
    return "<br>".join(f"`{line.strip()}`" for line in lines)
