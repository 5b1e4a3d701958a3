"""Drawings of figures of runs, as docs/site/measure and ./tests/mistakes/museum have recorded them.

Each function takes a page's text above the drawing, which it does not need, and the words of its comment.
"""
import json
import math
from pathlib import Path

from shapes import LINES, svg, text, width_of

HERE = Path(__file__).resolve().parent
DASHES = ["", "7 4", "2 3", "9 3 2 3", "4 2"]  # lines that lie on one another can be seen


def short(number):
    """12,345,678 as 12M; 0.25 as it is."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def end_of_axis(most):
    """The smallest round number that is not below `most`."""
    size = 10 ** math.floor(math.log10(most or 1))
    return next(size * k for k in (1, 2, 4, 6, 8, 10) if size * k >= most)


def plot(title, x_name, series):
    """Lines over linear axes that begin at 0, 330 by 220. `series`: name: [(x, y)...]."""
    width, height, left, top, bottom = 330, 220, 46, 30, 34
    every = [point for points in series.values() for point in points]
    most_x, most_y = -(-max(x for x, _ in every) // 4) * 4, end_of_axis(max(y for _, y in every))
    def place(x, y):
        return (left + x / most_x * (width - left - 18),
                height - bottom - y / most_y * (height - top - bottom))
    parts = [text(width / 2, 16, title), text(width / 2, height - 4, x_name, kind="soft", size=11)]
    for i in range(5):
        (x, y), (_, zero) = place(most_x * i / 4, most_y * i / 4), place(0, 0)
        parts += [f'<path d="M{left} {y:.1f}H{width - 18}" class="grid" stroke-width="0.7"/>',
                  text(left - 5, y + 4, short(most_y * i / 4), "end", "soft", 11),
                  text(x, zero + 15, f"{most_x * i // 4}", kind="soft", size=11)]
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
