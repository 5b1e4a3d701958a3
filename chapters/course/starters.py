"""Starter repositories: copies of the project with holes, and without pages or code that show their solutions."""
import functools
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import setup
from exercises import CHAPTERS, here, solution, source
from holes import outside, sum_of, with_include
from setup import fail, root

FOLDERS = ("chapters", "emu", "cuda", "docs")
FILES = ("CMakeLists.txt", "CMakePresets.json", ".clang-format", ".gitignore", "LICENSE")
# The course's own chapters, and the file that replaces their engine in a starter.
OWN_CHAPTER, SKELETON = r"^chapters/course/(\d\d_\w+)/", "skeleton.hpp"
# Pages about courses, about tests that starters lack, or with lines of engines.
LEFT_OUT = ("chapters/course/", "chapters/new", "docs/site/", "docs/museum", "docs/mistakes.md",
            "docs/diagnostics.md", "docs/writing.md", "docs/contents.md", "docs/performance",
            "docs/exercises.md", "docs/proof.md", "docs/rooms.md", "docs/questions.md", "docs/commands.md")


def write(out, some, seed):
    """Writes the folder, or nothing. Returns sentences about solutions that the starter shows."""
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        copy(part, max(e.chapter for e in some.values()), [hole for e in some.values() for hole in e.holes])
        cut(part, some)
        redact_pages(part, some)
        note_what_needs_a_hole(part, some)
        mend_links(part)
        add_own_files(part, some, seed)
        if found := leaks(part, some):
            fail(70, "\n".join(found))
        part.rename(out)
        return shown(some)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy(out, last_chapter, holes):
    """Copies the project's own files, without chapters after `last_chapter`. These must have the holes."""
    listed = subprocess.run(["git", "ls-files", "-z", *FOLDERS, *FILES], cwd=root, stdout=subprocess.PIPE)
    names = listed.stdout.decode().split("\0")[:-1]
    if listed.returncode or not names:  # an archive, not a clone
        all_paths = [p for top in (*FOLDERS, *FILES) for p in [root / top, *(root / top).rglob("*")]]
        names = [str(p.relative_to(root)) for p in all_paths if p.is_file() and "__pycache__" not in p.parts]
    if unknown := {f"chapters/{hole.file}" for hole in holes} - {re.sub(OWN_CHAPTER, r"chapters/\1/", n) for n in names}:
        fail(65, f"{sorted(unknown)[0]}: expected a file under version control, given one that git does not know: "
                 "git add it")
    for name in names:
        place = re.sub(OWN_CHAPTER, r"chapters/\1/", name)
        chapter = re.match(r"chapters/(\d\d_\w+)/", place)
        if place.startswith(LEFT_OUT) or chapter and chapter[1] > last_chapter or name.endswith(SKELETON):
            continue
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, out / place)


def cut(out, some):
    """Cuts the functions of the exercises out."""
    holes = {hole: (e.id, "left_out") for e in some.values() for hole in e.also if hole not in given(some)}
    holes |= {hole: (e.id, "not_done") for e in some.values() for hole in e.holes}  # these have priority
    for file in sorted({hole.file for hole in holes}):
        path = out / "chapters" / file
        if not path.exists():
            continue  # of a later chapter
        text = path.read_text()
        for hole, (exercise, says) in holes.items():
            text = without(hole, text, exercise, says) if hole.file == file else text
        path.write_text(text if "engine/not_done.hpp" in text else with_include(text, "engine/not_done.hpp"))


def without(hole, text, exercise, says="not_done"):
    """A file's text with a hole; of an exercise that is a whole file, what replaces that."""
    if hole.is_file:
        return source(hole.file).with_name(SKELETON).read_text()
    return hole.cut(text, exercise, says)


def given(some):
    """{function: the exercise that needs it} of needed functions that are no exercise here."""
    holes = {hole for e in some.values() for hole in e.holes}
    return {hole: e.id for e in some.values() for hole in e.needs if hole not in holes}


def shown(some):
    """Sentences about solutions that this starter shows, since another exercise needs them."""
    last = max(e.chapter for e in some.values())
    return [f"{hole.file} has {hole.name}, which {given(some)[hole]} needs: it shows much of {e.id}"
            for e in some.values() for hole in e.also if hole in given(some)] + \
           [f"chapters from {e.repeated_from} on repeat {e.id} with other types"
            for e in some.values() if e.repeated_from and e.repeated_from <= last] + \
           [f"{sentence}: it shows much of {e.id}" for e in some.values() for sentence in e.shown] + \
           [f"the tests of {e.id} call {called}, too" for e in some.values() if (called := called_too(e, some))]


def called_too(e, some):
    """The exercises of a starter whose functions the tests of this one call: "05.2 and 05.3"."""
    return " and ".join(other.id for other in some.values() if set(other.holes) & set(e.needs) and other.id != e.id)


# ---- How a solution is recognised ------------------------------------------------------------------------
def lines_of(code):
    """The lines of a text that are compared, with numbers: without comments, spaces and short lines."""
    found = []
    for number, line in enumerate(code.splitlines(), 1):
        line = re.sub(r"\s+", "", re.sub(r"//.*", "", line))
        if len(line) >= 12:
            found.append((number, line))
    return found


def solution_lines(some):
    """{exercise: the lines of each of its functions}."""
    return {e.id: [[line for _, line in lines_of(solution(hole))] for hole in e.holes] for e in some.values()}


def leaks(out, some):
    """The places with three consecutive lines of a solution, or with all lines of a shorter one. At least one of them
    must occur in fewer than four files of the chapters, unlike the end of a loop."""
    runs = {}
    for exercise, bodies in solution_lines(some).items():
        for body in bodies if not some[exercise].beats else ():  # free exercises may begin with any engine
            length = min(3, len(body))
            for i in range(len(body) - length + 1):
                runs[tuple(body[i:i + length])] = exercise
    tells, found = telling(), []
    for path in sorted(out.rglob("*")):
        if not path.is_file() or path.suffix not in (".hpp", ".cpp", ".md", ".py", ""):
            continue
        text = path.read_text(errors="replace")
        for hole in given(some):
            if path == out / "chapters" / hole.file:
                text = hole.cut(text, "")
        lines = lines_of(text)
        for i, (number, _) in enumerate(lines):
            for length in (1, 2, 3):
                run = tuple(line for _, line in lines[i:i + length])
                if run in runs and any(map(tells, run)):
                    found.append(f"{path.relative_to(out)}:{number}: expected no line of {runs[run]}'s "
                                 "solution")
    return found


@functools.cache
def telling():
    """A function: whether a line occurs in fewer than four files, unlike the end of a loop."""
    in_files = Counter(line for path in CHAPTERS.rglob("*.hpp")
                       for line in {line for _, line in lines_of(path.read_text())})
    return lambda line: in_files[line] < 4


# ---- Pages -----------------------------------------------------------------------------------------------
def redact_pages(out, some):
    """Replaces blocks of code with a solution's lines by a note, and also pieces of such lines in sentences."""
    lines = {line: exercise for exercise, bodies in solution_lines(some).items() for line in sum(bodies, [])}
    known = {line: exercise for line, exercise in lines.items() if telling()(line)}

    def instead_of_block(block):
        code = re.sub(r"^[-+]", "", block[0], flags=re.M) if "```diff" in block[0] else block[0]
        of = [known[line] for _, line in lines_of(code) if line in known]
        return f"(Exercise {of[0]}: yours to write.)" if of else block[0]

    def instead_of_span(span):
        code = re.sub(r"\s+", "", span[1])
        if re.fullmatch(r"if\([^;]*\)", code):  # a condition alone is no solution
            return span[0]
        is_call = len(code) > 15 and "(" in code and not code.endswith("()")
        of = next((exercise for line, exercise in lines.items() if is_call and code in line), "")
        return f"(the code of exercise {of})" if of else span[0]
    for path in out.rglob("*.md"):
        text = re.sub(r"^( *)```.*?^\1```", instead_of_block, path.read_text(), flags=re.M | re.S)
        path.write_text(re.sub(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", instead_of_span, text))


def note_what_needs_a_hole(out, some):
    """Marks things to try on a page whose function is a hole."""
    notes = {hole: f"`{hole.name}` is left out here" for e in some.values() for hole in e.also}
    notes |= {hole: f"After exercise {e.id}" for e in some.values() for hole in e.holes}
    for path in (out / "chapters").glob("*/README.md"):
        text = path.read_text()
        for hole, note in notes.items():
            file, name = re.escape(Path(hole.file).name), re.escape(hole.name)
            text = re.sub(rf"^(\d+\. \*\*[^*]+\*\* )(?=In `[^`]*{file}`,\s+function\s+`{name}`)",
                          rf"\1({note}.) ", text, flags=re.M)
        path.write_text(text)


def mend_links(out):
    """Turns links to missing files into plain text."""
    for path in out.rglob("*.md"):
        def shown(link):
            target = link[2].split("#")[0]
            return link[0] if not target or ":" in target or (path.parent / target).exists() else link[1]
        path.write_text(re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", shown, path.read_text()))


# ---- A starter's own files -------------------------------------------------------------------------------
def add_own_files(out, some, seed):
    own = here / "starter"
    shutil.copy(own / "not_done.hpp", out / "chapters/engine/not_done.hpp")
    for name in ("check", "AGENTS.md"):
        shutil.copy(own / name, out / name)
    for name, place in (("devcontainer.json", ".devcontainer"), ("classroom.yml", ".github/workflows")):
        (out / place).mkdir(parents=True)
        text = (own / name).read_text().replace("PACKAGES", " ".join(setup.packages + setup.recommended))
        (out / place / name).write_text(text)
    for name in ("holes.py", "named_tests.py"):
        shutil.copy(here / name, out / "chapters" / name)
    known = [known_to_students(e, seed) for e in some.values()]
    (out / "outside.json").write_text(json.dumps(outside_of_holes(out, some), indent=1) + "\n")
    (out / "exercises.json").write_text(json.dumps(known, indent=1))
    text = (own / "students.md").read_text().replace("](../../../", "](")
    (out / "README.md").write_text(text + "".join(task_of(e, some) for e in some.values()))
    (out / "answers.md").write_text("# My answers\n\n" + "".join(map(questions_of, some.values())))
    for name in ("check", "README.md", "AGENTS.md"):  # the examples in them name an exercise of the starter
        path, first = out / name, next(iter(some))
        path.write_text(path.read_text().replace("CHAPTER_ID", first[:2]).replace("EXERCISE_ID", first))


def outside_of_holes(out, some):
    """For `check`, which finds other changes: {file: [its holes, the lines outside of them]}, and the sums of other
    sources."""
    holes = {}
    for e in some.values():
        for hole in e.holes:
            if not hole.is_file:
                holes.setdefault(hole.file, []).append(hole)
    mine = {f"chapters/{hole.file}" for e in some.values() for hole in e.holes}
    sources = {str(path.relative_to(out)): path for top in ("chapters", "emu") for path in sorted((out / top).rglob("*"))
               if path.suffix in (".hpp", ".cpp", ".txt")}
    return {"files": {file: [list(map(asdict, here_are)),
                             list(outside((out / "chapters" / file).read_text(), here_are).values())]
                      for file, here_are in holes.items()},
            "others": {name: sum_of(path) for name, path in sources.items() if name not in mine}}


def known_to_students(e, seed):
    def seeded(test):
        return f"{test} --seed {seed}" if seed and " train" in test else test
    tests = list(map(seeded, e.tests))
    prints, figures = ({seeded(test): value for test, value in of.items()} for of in (e.prints, e.figures))
    return {"id": e.id, "name": e.name, "chapter": e.chapter, "points": e.points, "hints": e.hints,
            "tests": tests, "seed": int(seed or 0), "prints": prints, "figures": figures, "beats": e.beats}


def points_of(question):
    return f"{question['points']} point{'s' * (question['points'] != 1)}"


def questions_of(e):
    """An exercise's questions, with room for a student's answers."""
    return f"## {e.id} {e.name}\n\n" + "".join(f"{i}. {q['text']} ({points_of(q)})\n\n   \n\n" for i, q in enumerate(e.questions, 1))


def task_of(e, some):
    functions = "\n".join(f"- `{hole.name}` in [{Path(hole.file).name}](chapters/{hole.file})"
                          for hole in e.holes)
    questions = "\n".join(f"{i}. {q['text']} ({points_of(q)})" for i, q in enumerate(e.questions, 1))
    page = f"chapters/{e.chapter}/README.md"
    chapter = f"Chapter: [{e.chapter}]({page}). " if (root / page).exists() else ""
    called = called_too(e, some)
    first = f"Its tests call {called}, too: they pass when these are written. " if called else ""
    return (f"## {e.id} {e.name}\n\n{e.points} points, about {e.minutes} minutes, {e.how_hard}. "
            f"{chapter}{first}You need above all {e.allowed}.\n\n"
            f"{functions}\n\n{e.task.strip()}\n\nYou can then {e.goal}.\n\nQuestions:\n\n{questions}\n\n")
