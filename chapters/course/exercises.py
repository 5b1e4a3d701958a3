"""The exercises: exercises/*.toml, one file for each chapter."""
from setup import fail, take_options  # first: it refuses a Python without tomllib

import re
import sys
import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from holes import Hole, Misplaced

here = Path(__file__).resolve().parent
CHAPTERS = here.parent


@dataclass(frozen=True)
class Exercise:
    id: str          # "03.1": the chapter's number, and the exercise's in the chapter
    chapter: str     # "03_tensor_parallel"
    name: str
    goal: str         # what a student can do afterwards: a verb and what follows
    task: str        # what to do, as Markdown
    hints: list      # three, each more detailed
    points: int
    minutes: int     # expected of a student
    difficulty: int  # of DIFFICULTIES
    allowed: str     # what may be used
    holes: list      # of Hole: the functions that the student writes
    tests: list      # arguments of the chapter's program, after the number of devices
    questions: list  # of {"text", "rubric", "points"}
    chapter_goal: str = ""  # the goal of its chapter
    also: list = ()  # of Hole: functions with the same lesson; cut, but not graded
    needs: list = ()  # of Hole: functions that its tests call; given, even if another exercise has them
    repeated_from: str = ""  # the first chapter that has the same solution with other types
    prints: dict = field(default_factory=dict)  # by test: lines that the program must print
    figures: dict = field(default_factory=dict)  # by test: bytes sent, messages, and the most bytes held
    shown: list = ()  # sentences on what shows the solution in every starter
    hidden: list = ()  # tests with sizes that the grader's seed chooses
    large: str = ""  # a test so large that the kernel's counts show what was sent and held
    beats: str = ""  # chapter and variant; a free exercise must send less than these
    weights: dict = field(default_factory=dict)  # shares of its points, where they are not WEIGHTS

    @property
    def files(self):
        return sorted({hole.file for hole in self.holes})

    @property
    def question_points(self):
        return sum(question["points"] for question in self.questions)

    @property
    def how_hard(self):
        return DIFFICULTIES[self.difficulty]


def source(file):
    """The path of a chapter's file, also of the course's own chapter."""
    return here / file if (here / file).exists() else CHAPTERS / file


def solution(hole):
    """The body that a function has in the project."""
    return hole.body_in(source(hole.file).read_text())


def read_all(folder=here / "exercises"):
    """{id: exercise} of all exercises, in their order."""
    exercises = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            fail(65, f"{path}: {error}")
        for entry in content.get("exercise", []):
            exercise = exercise_of(path, entry, content.get("goal"))
            if exercise.id in exercises:
                fail(65, f"{path}: {exercise.id}: expected one exercise of this id, given two")
            exercises[exercise.id] = exercise
    return exercises


DIFFICULTIES = {1: "easy", 2: "medium", 3: "hard"}
QUESTION_POINTS = 2  # which a person gives, beside the exercise's own
WEIGHTS = {"public": 2, "hidden": 3, "communication": 3, "memory": 2}


def exercise_of(path, entry, goal):
    """Checks an entry of a file, and makes an exercise of it."""
    def refuse(what, expected, given):
        fail(65, f"{path}: {entry.get('id', 'an exercise')}: {what}: expected {expected}, given {given}")
    kinds = {f.name: f for f in fields(Exercise) if f.name not in ("chapter", "chapter_goal")}
    if not isinstance(goal, str):
        fail(65, f"{path}: goal: expected a text, given {goal or 'nothing'}")
    for name, kind in kinds.items():
        may_lack = (kind.default, kind.default_factory) != (MISSING, MISSING)
        if not isinstance(entry.get(name), kind.type) and (name in entry or not may_lack):
            what = {str: "a text", int: "a number", list: "a list", dict: "a table"}[kind.type]
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
    texts = [file.read_text() for file in source(path.stem).glob("*.cpp")] if source(path.stem).is_dir() else []
    for name in re.findall(r"--variant ([\w-]+)", " ".join([*entry["tests"], entry.get("large", "")])):
        if not any(f'"{name}"' in text for text in texts):
            refuse("a test", f"a variant that {path.stem} has", f"--variant {name}")
    for name in ("prints", "figures"):
        if unknown := sorted(entry.get(name, {}).keys() - entry["tests"]):
            refuse(name, "a test of the exercise", unknown[0])
    for figures in entry.get("figures", {}).values():
        if not isinstance(figures, list) or [type(figure) for figure in figures] != [int] * 3:
            refuse("figures", "bytes sent, messages and bytes held", "a text" if isinstance(figures, str) else figures)
    for question in entry["questions"]:
        if set(question) - {"points"} != {"text", "rubric"}:
            refuse("a question", "a text and a rubric", ", ".join(sorted(question)))
        if not isinstance(question.setdefault("points", QUESTION_POINTS), int) or question["points"] < 0:
            refuse("a question's points", "a number", question["points"])
    named = {name: [Hole.named(hole) for hole in entry.get(name, [])] for name in ("holes", "also", "needs")}
    for hole in sum(named.values(), []):
        if not source(hole.file).is_file():
            refuse("a hole", "a file of chapters/", hole.file)
        try:
            hole.body(source(hole.file).read_text())
        except Misplaced as error:
            fail(65, f"{path}: {entry['id']}: {error}")
    return Exercise(**{**entry, **named, "chapter": path.stem, "chapter_goal": goal, "weights": WEIGHTS | entry.get("weights", {})})


def asked(words, options=(), kind="a folder", suffix=""):
    """The words of a script that makes something new: its path, of which exercises, and the options' values."""
    given, rest = take_options(words, {"--exercises": "ids of exercises, or chapters", **dict(options)})
    if len(rest) != 1 or rest[0].startswith("-") or not rest[0].endswith(suffix):
        fail(64, f"{Path(sys.argv[0]).name}: expected {kind}, given {' '.join(rest) or 'nothing'} "
                 "(--help lists the options)")
    some = chosen(read_all(), given.get("--exercises"))
    if Path(rest[0]).exists():
        fail(65, f"{rest[0]}: expected {kind.split(' that')[0]} that is new, given one that exists")
    return Path(rest[0]), some, given


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
