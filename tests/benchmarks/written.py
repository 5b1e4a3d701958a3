"""Figures of ./tests/bench as text: on a terminal, and in docs/performance*.md."""
import json
import re
from pathlib import Path

from setup import fail

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/site/drawings/performance.json"
PAGES = [ROOT / "docs/performance.md", ROOT / "docs/performance_of_variants.md"]


def read(file):
    """The figures that an earlier run has written."""
    try:
        figures = json.loads(Path(file).read_text())
        if figures["tables"]:
            return figures
    except (OSError, ValueError, KeyError, TypeError):
        pass
    fail(65, f"{file}: expected the figures of a run of ./tests/bench, given none")


def cell(value):
    """"1,234", "12.3", "0.123"; a column has one unit, so no number has one."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
    return str(value)


def headline(figures):
    """The machine, the libraries, and what is missing."""
    torch = f"PyTorch {figures['torch']}" if figures["torch"] else \
        "no Python with PyTorch (--torch names one): its columns are left out"
    quick = "; few repetitions (--quick)" if figures["quick"] else ""
    return f"{figures['machine']}; {torch}\nload average at the start {figures['load']:.2f}{quick}"


def numeric(table):
    """Which columns have numbers alone."""
    return [all(isinstance(value, (int, float, type(None))) for value in column) for column in zip(*table["rows"])]


def plain(table):
    """A table of a terminal."""
    rows = [table["columns"], *([cell(value) for value in row] for row in table["rows"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(text.rjust(width) if right else text.ljust(width)
                       for text, width, right in zip(row, widths, numeric(table))).rstrip() for row in rows]
    return "\n" + "\n".join([table["says"], *lines]) + "\n"


def markdown(table):
    """A table of a page. What misses its bar is bold."""
    rows = [[f"**{cell(v)}**" if isinstance(v, str) and ": missed" in v else cell(v) for v in row]
            for row in table["rows"]]
    lines = [table["columns"], ["---:" if right else "---" for right in numeric(table)], *rows]
    return table["says"] + ":\n\n" + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def filled(figures):
    """The texts of the pages, with the tables between their comments."""
    texts = {"machine": headline(figures) + "\n", **{name: markdown(t) for name, t in figures["tables"].items()}}
    pages = [page.read_text("utf-8") for page in PAGES]
    for name, text in texts.items():
        place = re.compile(f"(<!-- figures {name} -->\n).*?(<!-- end of figures -->)", re.S)
        done = [place.subn(lambda found: f"{found[1]}\n{text}\n{found[2]}", page) for page in pages]
        if (count := sum(times for _, times in done)) != 1:
            fail(65, f"docs/performance*.md: expected one place <!-- figures {name} -->, given {count}")
        pages = [page for page, _ in done]
    return pages


def write_pages(figures):
    for page, text in zip(PAGES, filled(figures)):
        page.write_text(text, "utf-8")
