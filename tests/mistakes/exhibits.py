"""docs/museum*.md: the parts that follow from a mistake, its record and its row in docs/mistakes.md. The text
around these parts is written by hand."""
import difflib
import json
import re

import page
import tables
from of_museum import ALL, THREADS
from workshop import ROOT, replaced

PAGES = [ROOT / "docs/museum.md", ROOT / "docs/museum_of_decoders.md", ROOT / "docs/museum_of_groups.md"]
RECORDS = ROOT / "docs/site/drawings/museum.json"
STEPS = [1, *range(4, 201, 4)]  # steps whose losses are recorded
SHOWN = [1, 20, 100, 200]       # steps in the table
SAID = re.compile(r"  (?:differs: .* on device 0 |a claim of layout|device 0, step |loss curve: )")
SUMMARY = re.compile(r"(<!-- exhibits -->\n).*?(?=\n\n)", re.S)
PART = re.compile(r"(<!-- exhibit ([\w-]+) -->\n).*?(?=\n<!-- end of the exhibit -->)", re.S)


def record_of(right, wrong, ended):
    """The record of two runs: their losses, and how the wrong one ended, in device 0's words."""
    kept = [[round(losses[step - 1], 4) for step in STEPS] for losses in (right, wrong)]
    said = [line for line in ended.out.splitlines() if SAID.match(line)]
    return {"right": kept[0], "wrong": kept[1], "code": ended.code, "said": said}


def read_records():
    return json.loads(RECORDS.read_text()) if RECORDS.exists() else {"steps": STEPS}


def write(records):
    """Writes the records, in the order of the exhibits, and the pages' parts."""
    names = [name for name in ["steps", *(m.name for m in ALL)] if name in records]
    lines = (f"{json.dumps(name)}: {json.dumps(records[name], ensure_ascii=False)}" for name in names)
    RECORDS.write_text("{" + ",\n ".join(lines) + "}\n")
    for page in PAGES:
        page.write_text(filled(page.read_text(), records))


def changed_lines(mistake):
    """The lines of the file before and after the mistake, with one unchanged line on each side."""
    old, new = (ROOT / mistake.file).read_text(), replaced(mistake.file, mistake.text, mistake.instead)
    lines = [*difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm="")][3:]
    indent = min(len(line) - len(line[1:].lstrip()) for line in lines if line[1:].strip() and line[0] != "@")
    return "\n".join("@@" if line[0] == "@" else (line[0] + " " + line[indent:]).rstrip() for line in lines)


def table(record):
    def losses(name):
        return [name, *(f"{record[name][STEPS.index(step)]:.4f}" for step in SHOWN)]
    return tables.table(["loss at step", *map(str, SHOWN)], [tables.line_of(losses(name)) for name in ("right", "wrong")])


def link(thread):
    name, number = thread.split("#")
    return f"[{name.split('/')[1]} #{number}](https://github.com/{name}/issues/{number})"


def part(mistake, record, row):
    """The text between an exhibit's two marks."""
    noticed, curve, on_two = tables.cells_of(row)[3:]
    command = " ".join([mistake.chapter, "train", *mistake.options])
    said = "\n".join(record["said"])
    return f"""![The losses of 200 steps with the mistake, and without](pictures/museum_{mistake.name}.svg)

Threads: {", ".join(map(link, THREADS[mistake.name]))}.
The mistake, in `{mistake.file}`:

```diff
{changed_lines(mistake)}
```

{table(record)}

Noticed by: {noticed}.
Would a comparison of loss curves over 50 steps have seen it? {curve}. A test on two devices? {on_two}.

`./tests/mistakes/museum {mistake.name}` runs `{command}` with the mistake,
on three devices. The run ends with code {record["code"]} and says:

```text
{said}
```"""


def summary(mistakes, records):
    """A row for each exhibit: the last losses."""
    def row(m):
        right, wrong = (records[m.name][name][-1] for name in ("right", "wrong"))
        return tables.line_of([f"`{m.name}`", link(THREADS[m.name][0]), f"{right:.4f}", f"{wrong:.4f}",
                             f"{wrong / right:.2f}"])
    heads = ["exhibit", "thread", f"right, step {STEPS[-1]}", "wrong", "wrong / right"]
    return tables.table(heads, map(row, mistakes))


def filled(text, records):
    """The page with its parts written again. An exhibit without a record or a row is not changed."""
    rows = page.rows_of((ROOT / "docs/mistakes.md").read_text())
    mistakes = {m.name: m for m in ALL if m.name in records and m.name in rows}
    def made(found):
        name = found[2]
        return found[1] + part(mistakes[name], records[name], rows[name]) if name in mistakes else found[0]
    text = PART.sub(made, text)
    return SUMMARY.sub(lambda found: found[1] + summary(mistakes.values(), records), text)


def complaints():
    """Exhibits that are missing on the page, and parts that are out of date. Runs nothing."""
    text, records = "".join(page.read_text() for page in PAGES), read_records()
    shown = [found[2] for found in PART.finditer(text)]
    if shown != [m.name for m in ALL] or [*records] != ["steps", *shown]:
        yield "docs/museum*.md: other exhibits than tests/mistakes/of_museum.py, or than docs/site/drawings/museum.json"
    elif filled(text, records) != text:
        yield "docs/museum*.md: they show another mistake, record or row: ./tests/mistakes/museum --write"
