"""Drawings of figures of runs, as docs/site/measure and ./tests/mistakes/museum have recorded them.

Each function takes a page's text above the drawing, which it does not need, and the words of its comment.
"""
import itertools
import json
import math
from pathlib import Path

from shapes import LINES, svg, text, width_of

HERE = Path(__file__).resolve().parent
DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2"]  # lines that lie on one another can be seen


def short(number):
    """12,345,678 as 12M; 0.25 as it is."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def end_of_axis(most):
    """The smallest round number that is not below `most`."""
    size = 10 ** math.floor(math.log10(most or 1))
    return next(size * k for k in (1, 2, 4, 6, 8, 10) if size * k >= most)


def linear(values):
    """An axis from 0: marks, and where each value lies between 0 and 1."""
    return [max(values) * i / 4 for i in range(5)], lambda value: value / max(values)


def logarithmic(values):
    """An axis of powers of ten, or of two where that gives few marks."""
    base = 10 if max(values) > 300 * min(values) else 2
    low, high = math.floor(math.log(min(values), base)), math.ceil(math.log(max(values), base))
    high = max(high, low + 1)
    return ([base ** power for power in range(low, high + 1, -(-(high - low) // 6))],
            lambda value: (math.log(value, base) - low) / (high - low))


def plot(title, x_name, series, axis=linear):
    """Lines, 330 by 220. `series`: name: [(x, y)...]."""
    width, height, left, top, bottom = 330, 220, 46, 30, 34
    every = [point for points in series.values() for point in points]
    most_x, most_y = -(-max(x for x, _ in every) // 4) * 4, end_of_axis(max(y for _, y in every))
    ends = ([most_x], [most_y]) if axis is linear else zip(*every)
    (x_marks, x_share), (y_marks, y_share) = map(axis, ends)
    def place(x, y):
        return left + x_share(x) * (width - left - 18), height - bottom - y_share(y) * (height - top - bottom)
    parts = [text(width / 2, 16, title), text(width / 2, height - 4, x_name, kind="soft", size=11)]
    for x_mark, y_mark in itertools.zip_longest(x_marks, y_marks):
        if y_mark is not None:
            _, y = place(x_marks[0], y_mark)
            parts += [f'<path d="M{left} {y:.1f}H{width - 18}" class="grid" stroke-width="0.7"/>',
                      text(left - 5, y + 4, short(y_mark), "end", "soft", 11)]
        if x_mark is not None:
            x, zero = place(x_mark, y_marks[0])
            parts.append(text(x, zero + 15, short(x_mark) if x_mark > 9999 else f"{x_mark:g}", kind="soft", size=11))
    for points, colour, dash in zip(series.values(), LINES, DASHES):
        places = [place(*point) for point in points]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" '
                     f'stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}"/>')
        if len(points) < 20:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in places]
    return "".join(parts)


def side_by_side(names, drawn, what):
    """Plots, two in a row, below the names of their lines."""
    x, parts = 14, []
    for name, colour, dash in zip(names, LINES, DASHES):
        parts += [f'<path d="M{x:.0f} 18h26" stroke="{colour}" stroke-width="2.4" stroke-dasharray="{dash}"/>',
                  text(x + 32, 22, name, "start")]
        x += 54 + width_of(name)
    parts += [f'<g transform="translate({340 * (i % 2) + 5} {36 + 230 * (i // 2)})">{plot_}</g>'
              for i, plot_ in enumerate(drawn)]
    return svg(max(340 * min(len(drawn), 2) + 10, x), 46 + 230 * -(-len(drawn) // 2), parts, what)


def plots(_, chapter):
    """What a chapter sends and holds against N and B, as docs/site/measure has found."""
    runs_of = json.loads((HERE / "figures.json").read_text("utf-8"))[chapter]["runs"]
    drawn = [plot(what, x_name, {name: [(run[0], run[i]) for run in runs[axis]] for name, runs in runs_of.items()})
             for axis, x_name in (("N", "devices N, with B = 64"), ("B", "batch B, with N = 4"))
             for i, what in ((1, "bytes sent a step"), (2, "bytes held at most"))]
    return side_by_side(runs_of, drawn, "what is sent and held")


def exhibit(_, name):
    """The losses of a wrong variant and of the right one, as ./tests/mistakes/museum has recorded them."""
    records = json.loads((HERE / "museum.json").read_text("utf-8"))
    series = {kind: list(zip(records["steps"], records[name][kind])) for kind in ("right", "wrong")}
    return side_by_side(series, [plot("loss", "step", series)], f"losses, {name}")


def times(_, what):
    """Times of a step that ./tests/bench has measured: against sizes, batch, devices, or many devices."""
    tables = json.loads((HERE / "performance.json").read_text("utf-8"))["tables"]
    table = tables[{"sizes": "steps", "many": "many"}.get(what, "scaling")]
    rows = [dict(zip(table["columns"], row)) for row in table["rows"]]
    if what == "many":
        lines = {name: [(row["devices"], row[name]) for row in rows] for name in table["columns"][1:3]}
        return side_by_side(lines, [plot("milliseconds of a step", "devices", lines, logarithmic)], "many devices")
    for row in rows:
        row["network"] = [int(number) for number in row["batch × width × hidden"].split("×")]
    if what != "sizes":  # one of the two networks
        rows = [row for row in rows if (row["network"][1] == 512) == (what == "batch")]
    x_of = {"sizes": lambda row: math.prod(row["network"]), "batch": lambda row: row["network"][0],
            "devices": lambda row: row["devices"]}[what]
    names = [name for name in ("ours", "floor", "PyTorch") if name in table["columns"]]
    x_name = {"sizes": "batch · width · hidden", "batch": "batch", "devices": "devices"}[what]
    drawn = [plot(f"{strategy}: milliseconds of a step", x_name,
                  {name: [(x_of(row), row[name] / 1000) for row in rows if row["strategy"] == strategy]
                   for name in names}, logarithmic)
             for strategy in dict.fromkeys(row["strategy"] for row in rows)]
    return side_by_side(names, drawn, f"times of a step against {x_name}")
