"""The tables of docs/mistakes.md: a row for each mistake, which stays until its mistake is run again."""
import re

HEADS = ["mistake", "who makes it, and how", "in a training curve", "noticed by", "loss curve alone",
         "two devices"]
COUNTS = ["part", "mistakes", "compiler", "an error", "another result", "closed form", "a unit test",
          "nobody", "loss curve alone", "two devices"]
TOO_FAR = 1e-3  # a reader of loss curves looks twice
ERROR = r".*\(\d\d\)|no end|a crash|a false claim|a dropped future|exit code"


def texts_of(mistake):
    return [f"`{mistake.name}`<br>{mistake.part}", mistake.story, mistake.curve]


def row_of(verdict):
    m = verdict.mistake
    nobody = f"nobody: {m.survives}" if m.survives else "**nobody**"
    curve = "–"
    if verdict.curve is not None:
        curve = f"{'yes' if verdict.curve > TOO_FAR else 'no'}, {verdict.curve:.0e}"
    on_two = {None: "–", "": "no"}.get(verdict.on_two, f"yes: {verdict.on_two}")
    return [*texts_of(m), "; ".join(verdict.noticed) or nobody, curve, on_two]


def line_of(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(heads, lines):
    return "\n".join([line_of(heads), line_of(["---"] * len(heads)), *lines])


def section(name):
    return re.compile(rf"(<!-- mistakes: {name} -->\n)(.*?)(?=\n\n|\n?\Z)", re.S)


def rows_of(text):
    """The rows that a page has, by the mistake's name."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `([\w-]+)`<br>.*$", text, re.M)}


def filled(text, groups, verdicts):
    """The page with the rows of these verdicts. In those of other mistakes, what was measured stays."""
    old, everything = rows_of(text), sum(groups.values(), [])
    rows = {m.name: line_of(texts_of(m) + cells_of(old[m.name])[3:]) for m in everything if m.name in old}
    rows |= {v.mistake.name: line_of(row_of(v)) for v in verdicts}
    for name, mistakes in groups.items():
        lines = [rows[m.name] for m in mistakes if m.name in rows]
        text = section(name).sub(lambda found: found[1] + table(HEADS, lines), text)
    counts = [counted(name.replace("_", " "), [rows[m.name] for m in mistakes if m.name in rows])
              for name, mistakes in groups.items()]
    counts.append(["**all**", *(summed(column) for column in list(zip(*counts))[1:])])
    summary = table(COUNTS, map(line_of, counts))
    return section("all").sub(lambda found: found[1] + summary, text)


def kind_of(noticed):
    """The first that noticed, as the summary counts it."""
    kinds = {"compiler": "compiler:", "an error": ERROR,
             "closed form": r"closed form|\S*equivalence\S*: “closed",
             "another result": r"exact mode|loss curve|\S*equivalence\S*: ", "nobody": r"\**nobody"}
    first = noticed.split("; ")[0]
    return next((kind for kind, pattern in kinds.items() if re.match(pattern, first)), "a unit test")


def cells_of(row):
    return [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", row.strip("| "))]


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


def complaints(text, groups, verdicts):
    """Mistakes that the page lacks, rows of others, other texts, and what is now noticed in another way."""
    rows = rows_of(text)
    for name, mistakes in groups.items():
        shown = list(rows_of((section(name).search(text) or ["", "", ""])[2]))
        if shown != [m.name for m in mistakes]:
            yield f"docs/mistakes.md: {name} has other mistakes: ./tests/mistakes/run --write {name}"
        texts = [m.name for m in mistakes if m.name in rows and cells_of(rows[m.name])[:3] != texts_of(m)]
        if texts:
            yield f"docs/mistakes.md: another text: ./tests/mistakes/run --write {texts[0]}"
    for v in verdicts:
        if v.mistake.name in rows and kind_of(cells_of(rows[v.mistake.name])[3]) != kind_of(row_of(v)[3]):
            yield f"docs/mistakes.md: another row came out: ./tests/mistakes/run --write {v.mistake.name}"
