"""The rows of mistakes, and the parts of docs/mistakes.md that show them: the last full run's summary, some rows."""
import re
import shutil
import textwrap

from tables import cells_of, line_of, table

HEADS = ["mistake", "who makes it, and how", "in a training curve", "noticed by", "loss curve alone", "two devices"]
COUNTS = ["part", "mistakes", "compiler", "an error", "another result", "closed form", "a unit test", "nobody",
          "loss curve alone", "two devices"]
TOO_FAR = 1e-3  # visible in a loss curve
ERROR = r".*\(\d\d\)|no end|a crash|a false claim|a dropped future|exit code"
ROW = re.compile(r"^\| `([\w-]+)`<br>.*$", re.M)
SUMMARY = re.compile(r"(<!-- mistakes -->\n).*?(?=\n\n)", re.S)


def row_of(verdict):
    m = verdict.mistake
    nobody = f"nobody: {m.survives}" if m.survives else "**nobody**"
    curve = "–"
    if verdict.curve is not None:
        curve = f"{'yes' if verdict.curve > TOO_FAR else 'no'}, {verdict.curve:.0e}"
    on_two = {None: "–", "": "no"}.get(verdict.on_two, f"yes: {verdict.on_two}")
    return line_of([f"`{m.name}`<br>{m.part}", m.story, m.curve, "; ".join(verdict.noticed) or nobody, curve, on_two])


def lines_of(verdict):
    """A row for a person at a terminal: each cell behind its head, in lines that fit."""
    name, *cells = cells_of(row_of(verdict))
    room = shutil.get_terminal_size().columns - 1
    told = [textwrap.fill(f"{head}: {cell}", room, initial_indent="  ", subsequent_indent="    ")
            for head, cell in zip(HEADS[1:], cells)]
    return "\n".join([re.sub(r"[`*]", "", line) for line in (name.replace("<br>", ", "), *told)])


def rows_of(text):
    """{mistake: row} of the rows that a page has."""
    return {found[1]: found[0] for found in ROW.finditer(text)}


def filled(text, groups, rows):
    """The page with these rows, by name, in place of its own; with a summary, if these are all rows."""
    text = ROW.sub(lambda found: rows.get(found[1], found[0]), text)
    if any(m.name not in rows for group in groups.values() for m in group):
        return text
    counts = [counted(name.replace("_", " "), [rows[m.name] for m in group]) for name, group in groups.items()]
    counts.append(["**all**", *(summed(column) for column in list(zip(*counts))[1:])])
    return SUMMARY.sub(lambda found: found[1] + table(COUNTS, map(line_of, counts)), text)


def kind_of(noticed):
    """The kind of test that noticed a mistake first, for the summary."""
    kinds = {"compiler": "compiler:", "an error": ERROR,
             "closed form": r"closed form|\S*equivalence\S*: “closed",
             "another result": r"exact mode|loss curve|\S*equivalence\S*: ", "nobody": r"\**nobody"}
    first = noticed.split("; ")[0]
    return next((kind for kind, pattern in kinds.items() if re.match(pattern, first)), "a unit test")


def counted(name, rows):
    cells = [cells_of(row) for row in rows]
    kinds = [kind_of(cell[3]) for cell in cells]
    def share(column):
        measured = [cell[column] for cell in cells if not cell[column].startswith("–")]
        return f"{sum(value.startswith('yes') for value in measured)} of {len(measured)}"
    return [name, len(rows), *(kinds.count(kind) for kind in COUNTS[2:8]), share(4), share(5)]


def summed(column):
    if isinstance(column[0], int):
        return sum(column)
    pairs = [value.split(" of ") for value in column]
    return f"{sum(int(a) for a, _ in pairs)} of {sum(int(b) for _, b in pairs)}"
