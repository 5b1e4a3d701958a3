"""The exercises: exercises/*.toml, one file for each chapter."""
from setup import fail  # first: it refuses a Python without tomllib

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from holes import Hole, Misplaced

here = Path(__file__).resolve().parent
CHAPTERS = here.parent


@dataclass(frozen=True)
class Exercise:
    id: str          # "03.1": the chapter's number, and the exercise's in the chapter
    chapter: str     # "03_tensor_parallel"
    name: str
    task: str        # what to do, as Markdown
    hints: list      # three, each more detailed
    points: int
    minutes: int     # expected of a student
    difficulty: int  # of DIFFICULTIES
    allowed: str     # what may be used
    holes: list      # of Hole: the functions that the student writes
    also: list       # of Hole: functions with the same lesson; cut, but not graded
    needs: list      # of Hole: functions that its tests call; given, even if another exercise has them
    repeated_from: str  # the first chapter that has the same solution with other types
    prints: dict     # by test: text that the program must print
    tests: list      # arguments of the chapter's program, after the number of devices
    questions: list  # of {"text", "rubric"}
    hidden: list     # tests with sizes that the grader's seed chooses
    large: str       # a test so large that the kernel's counts show what was sent and held
    beats: str       # chapter and variant; a free exercise must send less than these
    weights: dict    # shares of an exercise's points: "public", "hidden", "communication", "memory"

    @property
    def files(self):
        return sorted({hole.file for hole in self.holes})

    @property
    def how_hard(self):
        return DIFFICULTIES[self.difficulty]


def source(file):
    """The path of a chapter's file, also of the course's own chapter."""
    return here / file if (here / file).exists() else CHAPTERS / file


def read_all(folder=here / "exercises"):
    """{id: exercise} of all exercises, in their order."""
    exercises = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            fail(65, f"{path}: {error}")
        for entry in content.get("exercise", []):
            exercise = exercise_of(path, entry)
            if exercise.id in exercises:
                fail(65, f"{path}: {exercise.id}: expected one exercise of this id, given two")
            exercises[exercise.id] = exercise
    return exercises


DIFFICULTIES = {1: "easy", 2: "medium", 3: "hard"}
WEIGHTS = {"public": 2, "hidden": 3, "communication": 3, "memory": 2}


def exercise_of(path, entry):
    """Checks an entry of a file, and makes an exercise of it."""
    usual = {"also": [], "needs": [], "repeated_from": "", "hidden": [], "large": "", "beats": "", "weights": {},
             "prints": {}}

    def refuse(what, expected, given):
        fail(65, f"{path}: {entry.get('id', 'an exercise')}: {what}: expected {expected}, given {given}")
    kinds = {"id": str, "name": str, "task": str, "hints": list, "points": int, "minutes": int,
             "difficulty": int, "allowed": str, "holes": list, "also": list, "needs": list, "repeated_from": str,
             "tests": list, "questions": list, "hidden": list, "large": str, "beats": str, "weights": dict,
             "prints": dict}
    for name, kind in kinds.items():
        if name in usual and name not in entry:
            continue
        if not isinstance(entry.get(name), kind):
            what = {str: "a text", int: "a number", list: "a list", dict: "a table"}[kind]
            refuse(name, what, entry.get(name, "nothing"))
    if unknown := sorted(entry.keys() - kinds):
        refuse("a field", ", ".join(kinds), unknown[0])
    if not re.fullmatch(path.stem[:2] + r"\.[1-9]\d?", entry["id"]):
        refuse("id", f"{path.stem[:2]}.1 or another number", entry["id"])
    for name, count in (("hints", 3), ("holes", None), ("tests", None), ("questions", None)):
        if not entry[name] or count and len(entry[name]) != count:
            refuse(name, f"{count or 'at least one'}", len(entry[name]))
    for name in ("points", "minutes"):
        if entry[name] < 1:
            refuse(name, "a number above 0", entry[name])
    if entry["difficulty"] not in DIFFICULTIES:
        refuse("difficulty", "1, 2 or 3", entry["difficulty"])
    for test in entry["tests"]:
        if not re.match(r"[1-9]\d*( ([\w.,=-]+|'[\w ]+'))*$", test):
            refuse("a test", "a number of devices, and words for the chapter's program", test)
    if unknown := sorted(entry.get("prints", {}).keys() - entry["tests"]):
        refuse("prints", "a test of the exercise", unknown[0])
    for question in entry["questions"]:
        if set(question) != {"text", "rubric"}:
            refuse("a question", "a text and a rubric", ", ".join(sorted(question)))
    named = {name: [Hole.named(hole) for hole in entry.get(name, [])] for name in ("holes", "also", "needs")}
    for hole in sum(named.values(), []):
        if not source(hole.file).is_file():
            refuse("a hole", "a file of chapters/", hole.file)
        try:
            hole.body(source(hole.file).read_text())
        except Misplaced as error:
            fail(65, f"{path}: {entry['id']}: {error}")
    fields = {name: entry.get(name, usual.get(name)) for name in kinds
              if name not in (*named, "weights")}
    weights = WEIGHTS | entry.get("weights", {})
    return Exercise(chapter=path.stem, **named, weights=weights, **fields)


def chosen(exercises, text):
    """The exercises that a list names: "03", "03.1", or both, with commas."""
    if not text:
        return exercises
    found = {}
    for word in text.split(","):
        some = {i: e for i, e in exercises.items() if word in (i, i.split(".")[0], e.chapter)}
        if not some:
            fail(64, f"--exercises: expected ids such as {next(iter(exercises))}, or a chapter's number, "
                     f"given {word}")
        found |= some
    return dict(sorted(found.items()))
