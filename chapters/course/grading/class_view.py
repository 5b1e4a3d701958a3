"""A class at a glance: a table for a spreadsheet, and a page with the students' progress, frequent mistakes, late
submissions, and equal answers."""
import csv
import math
import re
from collections import defaultdict
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
KINDS = [(r"is not done yet", "not done"), (r"must not use", "uses what it must not"),
         (r"it does not compile: (?:[^;]*?(?:is unavailable|static assertion failed): )?([^(;:]{1,90})",
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

    def of(self, exercise):
        """The points earned, and the points of all tests."""
        parts = [part for part in self.graded.parts if part.exercise == exercise]
        return sum(part.earned for part in parts), sum(part.points for part in parts)

    @property
    def points(self):
        return self.graded.earned + sum(self.questions.values())

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


def students_of(all_graded, table, due, keep):
    """The submissions that count: of each student the best one, or the last one."""
    found = {}
    for graded in all_graded:
        row = table.get(graded.name, {})
        exercises = [e for e in row if any(part.exercise == e for part in graded.parts)]
        known = ("submission", "student", "handed in", *exercises, None)
        one = Student(graded, row.get("student") or graded.name, row.get("handed in") and moment(row["handed in"]),
                      ids={name: text for name, text in row.items() if name not in known},
                      questions={e: float(row[e] or 0) for e in exercises})
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


def tokens(text):
    """A body as tokens, without comments, with variables numbered in the order of their first use."""
    text = HIDDEN.sub(lambda found: "" if found[0].startswith(("//", "/*")) else found[0], text)
    numbers = {}
    name = r"(?<![.:\w])[A-Za-z_]\w*(?=\s*(?:[^\s\w(<:]|:(?!:))|\s+<)"  # not of a function, a type or a member
    return tuple(numbers.setdefault(found[0], f"v{len(numbers)}") if found[1] else found[0]
                 for found in re.finditer(rf"({name})|\w+|\S", text))


def alike(students):
    """[(exercise, names, whether it is the chapter's solution)] of answers with the same tokens."""
    groups = defaultdict(list)
    for student in students:
        for exercise, bodies in student.graded.answers.items():
            groups[exercise, tuple(map(tokens, bodies.values()))].append((student.name, bodies))
    found = []
    for (exercise, text), some in groups.items():
        if len(some) > 1:
            found.append((exercise, [name for name, _ in some],
                          text == tuple(tokens(solution(hole)) for hole in some[0][1])))
    return sorted(found, key=lambda group: (group[2], group[0]))


def write_csv(students, exercises, file, due=""):
    """A table with a row for each student, and a column for each exercise."""
    ids = list(dict.fromkeys(name for student in students for name in student.ids))
    with_names = any(student.name != student.graded.name for student in students)
    questions = any(student.questions for student in students)
    with open(file, "w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["submission", *["student"] * with_names, *ids, *["late days"] * bool(due), "points", "maximum",
                        *exercises, *["questions"] * questions, "same text as"])
        for s in students:
            twins = [f"{e}: {'the chapter' if is_chapters else ', '.join(name for name in names if name != s.name)}"
                     for e, names, is_chapters in alike(students) if s.name in names]
            table.writerow([s.graded.name, *[s.name] * with_names, *(s.ids.get(name, "") for name in ids),
                            *[s.late] * bool(due), number(s.points), number(s.graded.points),
                            *(number(s.of(e)[0]) for e in exercises),
                            *[number(sum(s.questions.values()))] * questions, "; ".join(twins)])


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
             "<h2>Answers that are alike</h2><p>The same text but for comments, spaces and names of variables. This is "
             "a hint: most functions have ten lines, and types leave few ways to write them.</p>",
             html_table(["exercise", "students", ""],
                        ([e, ", ".join(map(escape, names)), "as in the chapter" * is_chapters]
                         for e, names, is_chapters in alike(students)))]
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
    heads = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    return f"<table><tr>{heads}</tr>\n" + "\n".join(lines or ["<tr><td>none</td></tr>"]) + "</table>"


def exercise_row(students, exercise, name):
    earned = [student.of(exercise)[0] for student in students]
    most = students[0].of(exercise)[1]
    steps = [0] * len(STEPS)
    for points in earned:
        share = points / most
        steps[0 if share <= 1e-9 else 5 if share >= 1 - 1e-9 else min(4, math.ceil(4 * share))] += 1
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
        hue = 120 * earned / most if most else 0
        asked = student.questions.get(exercise)
        cells.append(f"<td class=n style=\"background:hsl({hue:.0f},60%,88%)\">{number(earned)}"
                     f"{' + ' + number(asked) if asked else ''}</td>")
    why = [f"<li>{exercise} {escape(text)}</li>"
           for exercise in exercises for text in student.reasons(exercise).values()]
    return [f"{escape(student.name)}", *[str(student.late)] * bool(due),
            f"{number(student.points)}/{number(student.graded.points)}", *cells,
            f"<details><summary>reasons: {len(why)}</summary><ul>{''.join(why)}</ul></details>" if why else ""]
