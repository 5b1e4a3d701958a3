"""A class at a glance: a table for a spreadsheet, and a page with the students' progress, frequent mistakes, late
submissions, and equal answers."""
import csv
import functools
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import escape
from pathlib import Path

from exercises import solution
from holes import HIDDEN
from judge import cause_in
from results import number
from setup import fail

# The short name of a reason why points were lost.
KINDS = [(r"is not done yet", "not done"), (r"nothing was handed in", "nothing handed in"), (r"must not use", "uses what it must not"),
         (r"it does not compile: (?:[^;]*?(?:is unavailable|static assertion failed): )?(.{1,90}?)(?= \(|; |\n|$)",
          r"does not compile: \1"), ("it does not compile", "does not compile"),
         (r"error: (?:device \d+: )?(?:[\w/]+/\w+: )?([^:,\n]{1,90})", r"ends with an error: \1"),
         (r"(time|memory|output|processes): expected", r"breaks a limit: \1"),
         (r"chapters/.*expected|expected your repository|expected one folder", "not found in what was handed in")]
STEPS = ("none", "to 25 %", "to 50 %", "to 75 %", "more", "all")
STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 0.5em 0 2em }
th, td { padding: 0.25em 0.7em; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd }
th { border-bottom: 2px solid #888; white-space: nowrap }
.n { text-align: right }
summary { cursor: pointer }
ul { margin: 0.3em 0; padding-left: 1.2em; max-width: 48em }
li { white-space: pre-wrap; overflow-wrap: anywhere }
"""


@dataclass
class Student:
    """A submission that counts."""
    graded: object
    name: str
    handed_in: object = None
    late: int = 0
    ids: dict = field(default_factory=dict)        # {column: text} of the class's table, to join with other systems
    questions: dict = field(default_factory=dict)  # {exercise: points given by a person}
    most_for_questions: dict = field(default_factory=dict)  # {exercise: the most of these points}

    def of(self, exercise):
        """The points earned, and the points of all tests."""
        parts = [part for part in self.graded.parts if part.exercise == exercise]
        return sum(part.earned for part in parts), sum(part.points for part in parts)

    @property
    def points(self):
        return self.graded.earned + sum(self.questions.values())

    @property
    def maximum(self):
        return self.graded.points + sum(self.most_for_questions.values())

    def reasons(self, exercise):
        """{kind: sentence} of each reason why points were lost."""
        found = {}
        for part in self.graded.parts:
            for text in part.why if part.exercise == exercise and part.earned < part.points else ():
                usual = {"communication": "sends something else", "memory": "holds too much"}
                kind = cause_in(text) or next((match.expand(words).rstrip() for pattern, words in KINDS
                                               if (match := re.search(pattern, text))), "")
                if not re.match(r"the results of \d+ of|not run:", text):
                    found.setdefault(kind or usual.get(part.kind, "wrong results of no known cause"), text)
        if any(kind.endswith("?") for kind in found):
            found.pop("wrong results of no known cause", None)
        return found


def read_class(file, exercises):
    """{submission: its row} of a table with a column `submission`. `student` and `handed in` are known; a column with
    the name of an exercise has points for its written questions; others are copied."""
    if not file:
        return {}
    try:
        with open(file, newline="", encoding="utf-8-sig") as table:
            rows = list(csv.DictReader(table))
        for row in rows:
            moment(row.get("handed in") or "2000-01-01")
            [float(row[e] or 0) for e in exercises if e in row]
        return {row["submission"]: row for row in rows}
    except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        fail(65, f"{file}: expected a table with a column `submission`, dates such as 2025-10-07 in `handed in`, and "
                 f"numbers in columns of exercises, given {error}")


def require_date(text):
    try:
        return moment(text) and text if text else ""
    except ValueError:
        fail(64, f"--due: expected a date such as 2025-10-07 or 2025-10-07T12:00, given {text}")


def moment(text, hours=12):
    """Parses a date and a time, or a date, to which it adds `hours` hours."""
    when = datetime.fromisoformat(text)
    when = when.astimezone().replace(tzinfo=None) if when.tzinfo else when
    return when + timedelta(hours=hours) if len(text) == len("2025-10-07") else when


def students_of(all_graded, table, due, keep, most_for_questions={}):
    """The submissions that count: of each student the best one, or the last one. `most_for_questions`: the points of
    each exercise's written questions."""
    found = {}
    for graded in all_graded:
        row = table.get(graded.name, {})
        exercises = [e for e in row if any(part.exercise == e for part in graded.parts)]
        known = ("submission", "student", "handed in", *exercises, None)
        one = Student(graded, row.get("student") or graded.name, row.get("handed in") and moment(row["handed in"]),
                      ids={name: text for name, text in row.items() if name not in known},
                      questions={e: float(row[e] or 0) for e in exercises},
                      most_for_questions={e: most_for_questions.get(e, 0) for e in exercises})
        if due and one.handed_in:
            one.late = max(0, math.ceil((one.handed_in - moment(due, 24)).total_seconds() / 86400))
        other = found.get(one.name)
        if keep == "last":
            is_kept = not other or not (one.handed_in and other.handed_in) or one.handed_in >= other.handed_in
        else:
            is_kept = not other or one.points > other.points
        if is_kept:
            found[one.name] = one
    return sorted(found.values(), key=lambda student: student.name.lower())


# ---- Answers that are alike ------------------------------------------------------------------------------
CHAPTER, LEAST = "the chapter", 0.9  # a member of each group whose answers are its own; the share from which on they are


@functools.cache
def statements(text):
    """The statements of a body and how often each is there, without comments and with one name for all variables that
    it declares. So neither other names nor another order of lines hides a copy."""
    text = HIDDEN.sub(lambda found: "" if found[0].startswith(("//", "/*")) else found[0], text)
    declared = set(re.findall(r"(?<!\breturn)(?<!\belse)[\w>&*]\s+([A-Za-z_]\w*)\s*(?=[=({;:,)]|\[)", text))
    for names in re.findall(r"\bauto\s*&{0,2}\s*\[([\w\s,]+)\]", text):
        declared |= set(re.findall(r"\w+", names))
    name = "|".join(map(re.escape, sorted(declared, key=len, reverse=True))) or "(?!)"
    text = re.sub(rf"(?<![.:\w>])({name})\b(?!\s*::)", "v", text)
    return Counter(" ".join(words) for piece in re.split("[;{}]", text) if (words := re.findall(r"\w+|\S", piece)))


@functools.cache
def share(one, other):
    """How much of two answers, each a tuple of bodies, is the same: 1 if all is."""
    one, other = (sum(map(statements, bodies), Counter()) for bodies in (one, other))
    def size(of):
        return sum(len(words.split()) * count for words, count in of.items())
    return 2 * size(one & other) / max(size(one) + size(other), 1)


def alike(students):
    """[(exercise, names, the least share)] of answers that are nearly the same. The chapter's solution is a member, by
    the name CHAPTER."""
    found = []
    for exercise in dict.fromkeys(e for student in students for e in student.graded.answers):
        answers = {s.name: s.graded.answers[exercise] for s in students if exercise in s.graded.answers}
        holes = list(next(iter(answers.values())))
        some = {CHAPTER: tuple(map(solution, holes))} | {s: tuple(bodies.values()) for s, bodies in answers.items()}
        groups = []
        for name, answer in some.items():
            near = [g for g in groups if any(share(some[other], answer) >= LEAST for other in g)]
            groups = [g for g in groups if g not in near] + [sum(near, []) + [name]]
        for group in groups:
            shares = [max(share(some[a], some[b]) for b in group if b != a) for a in group if len(group) > 1]
            found += [(exercise, group, min(shares))] if shares else []
    return sorted(found, key=lambda group: (CHAPTER in group[1], group[0]))


# ---- The table -------------------------------------------------------------------------------------------
def read_points(file):
    """The rows of a table that `write_csv` wrote; none where there is no file."""
    try:
        with open(file, newline="", encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
    except FileNotFoundError:
        return []
    except (UnicodeDecodeError, csv.Error):
        rows = [{}]
    if any("submission" not in row or "points" not in row for row in rows):
        fail(65, f"{file}: expected a table that grade wrote, given another file")
    return rows


def of_others(rows, names, table):
    """The rows of students of whom none of these submissions is."""
    mine = {table.get(name, {}).get("student") or name for name in names} | set(names)
    return [row for row in rows if not {row["submission"], row.get("student") or row["submission"]} & mine]


def write_csv(students, exercises, file, due="", before=()):
    """A table with a row for each student, and a column for each exercise. The rows in `before` stay, but for those of
    these students."""
    ids = list(dict.fromkeys(name for student in students for name in student.ids))
    names = any(student.name != student.graded.name for student in students)
    questions = any(student.questions for student in students)
    columns = ["submission", *["student"] * names, *ids, *["late days"] * bool(due), "points", "maximum",
               *exercises, *["questions"] * questions, "same text as"]
    groups = alike(students)
    rows = {}
    for s in students:
        twins = [f"{e}: {', '.join(name for name in group if name != s.name)}"
                 for e, group, _ in groups if s.name in group]
        rows[s.name] = {"submission": s.graded.name, "student": s.name, **s.ids, "late days": s.late,
                        "points": number(s.points), "maximum": number(s.maximum),
                        **{e: number(s.of(e)[0]) for e in exercises},
                        "questions": number(sum(s.questions.values())), "same text as": "; ".join(twins)}
    kept = {row.get("student") or row["submission"]: row for row in before}
    columns = list(dict.fromkeys([*(column for row in before[:1] for column in row), *columns]))
    with open(file, "w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, columns, restval="", extrasaction="ignore")
        table.writeheader()
        table.writerows((kept | rows).values())


# ---- The page --------------------------------------------------------------------------------------------
def write_html(students, exercises, file, due=""):
    """A page: exercises, frequent reasons, students, equal answers. `exercises`: {id: name}."""
    parts = [f"<h1>{len(students)} students, {len(exercises)} exercises</h1>",
             "<h2>Exercises</h2>",
             "<p>How many students have which part of the points.</p>",
             html_table(["exercise", "", "points", "mean", *STEPS],
                        (exercise_row(students, e, name) for e, name in exercises.items())),
             "<h2>Why points are lost</h2>",
             html_table(["exercise", "reason", "students", "who"], reasons(students, exercises)),
             "<h2>Students</h2>",
             html_table(["student", *["days late"] * bool(due), "points", *exercises, "why"],
                        (student_row(s, exercises, due) for s in students)),
             "<h2>Answers that are alike</h2><p>The same statements but for comments, spaces, names of variables and the "
             f"order of lines, to {LEAST:.0%} or more. This is a hint: most functions have ten lines, and types leave few "
             "ways to write them.</p>",
             html_table(["exercise", "who", "the same"],
                        ([e, ", ".join(map(escape, names)), f"{least:.0%}"] for e, names, least in alike(students)))]
    head = f"<meta charset=\"utf-8\"><title>{len(students)} students</title><style>{STYLE}</style>"
    Path(file).write_text(f"<!DOCTYPE html>\n<html lang=\"en\"><head>{head}</head><body>\n" + "\n".join(parts) +
                          "\n</body></html>\n", encoding="utf-8", errors="replace")


def html_table(head, rows):
    """A table whose cells are HTML. Cells that begin with a number are aligned to the right."""
    def cell(text):
        text = str(text)
        return text if text.startswith("<td") else \
            f"<td{' class=n' if re.fullmatch(r'[0-9.]+(/[0-9.]+)?', text) else ''}>{text}</td>"
    lines = ["<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows]
    heads = "".join(f"<th scope=col>{escape(str(name))}</th>" for name in head)
    return f"<table><tr>{heads}</tr>\n" + "\n".join(lines or ["<tr><td>none</td></tr>"]) + "</table>"


def exercise_row(students, exercise, name):
    earned = [student.of(exercise)[0] for student in students]
    most = students[0].of(exercise)[1]
    steps = [0] * len(STEPS)
    for points in earned:
        steps[5 if points == most else min(4, math.ceil(4 * points / most))] += 1
    return [exercise, escape(name), number(most), number(sum(earned) / len(earned)), *steps]


def reasons(students, exercises):
    """A table of reasons, the most frequent ones of each exercise first."""
    rows = []
    for exercise in exercises:
        who = defaultdict(list)
        for student in students:
            for kind in student.reasons(exercise):
                who[kind].append(student.name)
        rows += [[exercise, escape(kind), len(names), ", ".join(map(escape, names))]
                 for kind, names in sorted(who.items(), key=lambda pair: -len(pair[1]))]
    return rows


def student_row(student, exercises, due):
    cells = []
    for exercise in exercises:
        earned, most = student.of(exercise)
        hue = float(120 * earned / most) if most else 0
        asked = student.questions.get(exercise)
        cells.append(f"<td class=n style=\"background:hsl({hue:.0f},60%,88%)\">{number(earned)}"
                     f"{' + ' + number(asked) if asked else ''}</td>")
    why = [f"<li>{exercise} {escape(text)}</li>"
           for exercise in exercises for text in student.reasons(exercise).values()]
    return [f"{escape(student.name)}", *[str(student.late)] * bool(due),
            f"{number(student.points)}/{number(student.maximum)}", *cells,
            f"<details><summary>reasons: {len(why)}</summary><ul>{''.join(why)}</ul></details>" if why else ""]
