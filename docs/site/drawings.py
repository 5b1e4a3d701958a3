"""Drawings as SVG: matrices cut over devices, and figures of runs against N, B and steps."""
import html
import json
import math
import re

COLOURS = ["#3b6fb6", "#d97a1f", "#3f9a4b", "#b0479a", "#8a6d3b"]
PALE = ["#9db8dc", "#efc190", "#a3d0a8", "#dba8d0"]
SIZES = {"B": 72, "T": 72, "D": 48, "F": 96, "Hd": 64}


def svg(width, height, parts, what):
    """A drawing that shrinks with its column."""
    return (f'<svg viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img" '
            f'font-family="sans-serif" font-size="12"><title>{html.escape(what)}</title>'
            f'{"".join(parts)}</svg>\n')


def text(x, y, words, anchor="middle", colour="#333"):
    """Words at a place."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'


def box(x, y, width, height, colour):
    """A part of a matrix, in the colour of the device that holds it."""
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" '
            'stroke="#333" stroke-width="0.8"/>')


def matrix(x, y, height, width, cut):
    """A matrix at (x, y), by its layout: `rows`, `columns`, `partial` (an addend on each device), `whole`."""
    parts = []
    devices = len(PALE)
    for i, colour in enumerate(PALE):
        if cut == "rows":
            parts.append(box(x, y + i * height / devices, width, height / devices, colour))
        elif cut == "columns":
            parts.append(box(x + i * width / devices, y, width / devices, height, colour))
        elif cut == "partial":
            parts.append(box(x + 4 * i, y - 4 * i, width, height, colour))
    return parts or [box(x, y, width, height, "#ccc")]


def picture(*words):
    """Matrices in a row: "x:BxD:rows · W0:DxF:whole = h:BxF:rows". The letters are sizes."""
    x, parts = 8, []
    for word in words:
        name, *shape = word.split(":")
        if not shape:
            parts.append(text(x + 2 + 3.5 * len(name), 80, name))
            x += 16 + 7 * len(name)
            continue
        rows, columns = (SIZES[letter] for letter in shape[0].split("x"))
        width = max(columns, 100)
        parts += matrix(x + (width - columns) / 2, 76 - rows / 2, rows, columns, shape[1])
        size = f"{shape[0].replace('x', '×')}, {shape[1]}"
        parts += [text(x + width / 2, 142, name), text(x + width / 2, 157, size)]
        x += width + (12 if shape[1] == "partial" else 0)
    return (f'<div class="wide drawing">{svg(x + 8, 166, parts, " ".join(words))}'
            "<small>One colour is one device; grey is the same on every device.</small></div>\n")


def owned_matrix(x, y, height, width, scale, parts):
    """A parameter at (x, y), as `owns` says of each device: whole, rows 0-17, columns 0-15, elements 0-11, –."""
    if set(parts) == {"whole"}:
        return [box(x, y, width, height, "#ccc")]
    drawn = []
    for i, part in enumerate(parts):
        colour, range_of = PALE[i % len(PALE)], re.match(r"(\w+) (\d+)-(\d+)", part)
        if part == "whole":
            shift = 4 * parts[:i].count("whole")
            drawn.append(box(x + shift, y - shift, width, height, colour))
        elif range_of:
            first, size = int(range_of[2]) * scale, (int(range_of[3]) + 1 - int(range_of[2])) * scale
            drawn.append(box(x, y + first, width, size, colour) if range_of[1] == "rows"
                         else box(x + first, y, size, height, colour))
    return drawn


def owned(output):
    """The parameters that the output of `owns` names, each cut as it says."""
    rows = re.findall(r"^(\S+) +\((\d+),(?: (\d+))?\) +(.*)$", output, re.MULTILINE)
    scale = 84 / max(int(size) for row in rows for size in row[1:3] if size)
    x, y, parts = 8, 20, []
    for name, first, second, of_devices in rows:
        height, width = (int(first) * scale, int(second) * scale) if second else (8, int(first) * scale)
        room = max(width, 7 * len(name.rpartition("/")[2])) + 22
        if x + room > 720:
            x, y = 8, y + 140
        devices = re.findall(r"–|whole|\w+ \d+-\d+", of_devices)
        parts += owned_matrix(x + (room - 22 - width) / 2, y + (84 - height) / 2, height, width, scale, devices)
        parts += [text(x + (room - 22) / 2, y + 100, name.rpartition("/")[2]),
                  text(x + (room - 22) / 2, y + 115, f"{first}×{second}" if second else first)]
        x += room
    return (f'<div class="wide drawing">{svg(728, y + 122, parts, "parameters by device")}'
            "<small>One colour is one device; grey is whole on every device.</small></div>\n")


def bars(output):
    """What the output of `costs` says that each variant holds, as one bar for each."""
    numbers = re.findall(r"^(\S+)" + r" +([\d,.]+)" * 5 + " ", output, re.MULTILINE)
    unit = re.search(r"^In (\w+)", output, re.MULTILINE)[1]
    rows = [(name, [float(n.replace(",", "")) for n in columns]) for name, *columns in numbers]
    scale, parts = 420 / max(columns[-1] for _, columns in rows), []
    for i, (name, (*columns, most)) in enumerate(rows):
        x, y = 120, 8 + 26 * i
        parts.append(text(x - 8, y + 14, name, "end"))
        for size, colour in zip(columns, COLOURS):
            parts.append(box(x, y, size * scale, 18, colour))
            x += size * scale
        parts.append(text(x + 6, y + 14, f"{most:,.1f} {unit}" if unit == "GiB" else f"{most:,.0f}", "start"))
    names = ["parameters", "gradients", "the optimizer's state", "the rest at the fullest moment"]
    return drawing(names, [svg(640, 14 + 26 * len(rows), parts, "what each variant holds")])


def ring(balance):
    """Which device computes which part of causal attention in which step of a ring of four devices."""
    devices = len(PALE)
    pieces = devices if balance == "contiguous" else 2 * devices
    def device_of(piece):
        return min(piece, pieces - 1 - piece) if balance == "zigzag" else piece
    size, parts = 240 / pieces, [text(150, 14, f"keys, {balance}"), text(2, 146, "queries", "start")]
    for q in range(pieces):
        for k in range(pieces):
            step = (device_of(q) - device_of(k)) % devices
            x, y = 60 + k * size, 22 + q * size
            parts.append(box(x, y, size, size, PALE[device_of(q)] if k <= q else "#fff"))
            if k <= q:
                parts.append(text(x + size / 2, y + size / 2 + 4, str(step)))
    return ('<div class="drawing">' + svg(310, 270, parts, f"the ring's steps, {balance}") +
            "<small>A colour is the device that has the queries. A number is the step in which the keys are "
            "there. White is not seen.</small></div>\n")


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
    """Lines over linear axes that begin at 0. `series`: name: [(x, y)...]."""
    width, height, left, top, bottom = 330, 220, 46, 30, 34
    every = [point for points in series.values() for point in points]
    most_x, most_y = -(-max(x for x, _ in every) // 4) * 4, end_of_axis(max(y for _, y in every))
    def place(x, y):
        return (left + x / most_x * (width - left - 18),
                height - bottom - y / most_y * (height - top - bottom))
    parts = [text(width / 2, 16, title), text(width / 2, height - 4, x_name)]
    for i in range(5):
        (x, y), (_, zero) = place(most_x * i / 4, most_y * i / 4), place(0, 0)
        parts += [f'<path d="M{left} {y:.1f}H{width - 18}" stroke="#ccc" stroke-width="0.7"/>',
                  text(left - 5, y + 4, short(most_y * i / 4), "end"),
                  text(x, zero + 15, f"{most_x * i // 4}")]
    for (name, points), colour in zip(series.items(), COLOURS):
        places = [place(*point) for point in points]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" '
                     f'stroke="{colour}" stroke-width="2"><title>{html.escape(name)}</title></polyline>')
        if len(points) < 20:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return svg(width, height, parts, title)


def plots(file, chapter):
    """A chapter's loss, and what it sends and holds against N and B, as docs/site/measure has found."""
    figures = json.loads(file.read_text("utf-8"))[chapter]
    losses = [(step * figures["every"] + 1, loss) for step, loss in enumerate(figures["losses"])]
    drawn = [plot(f"loss, {next(iter(figures['runs']))}", "step", {"loss": losses})]
    for axis, x_name in (("N", "devices N, with B = 64"), ("B", "batch B, with N = 4")):
        for i, what in ((1, "bytes sent a step"), (2, "bytes held at most")):
            drawn.append(plot(what, x_name, {name: [(run[0], run[i]) for run in runs[axis]]
                                             for name, runs in figures["runs"].items()}))
    return drawing(figures["runs"], drawn)


def exhibit(file, name):
    """The losses of a wrong variant and of the right one, as ./tests/mistakes/museum has recorded them."""
    records = json.loads(file.read_text("utf-8"))
    series = {kind: list(zip(records["steps"], records[name][kind])) for kind in ("right", "wrong")}
    return drawing(series, [plot("loss", "step", series)])


def drawing(names, drawn):
    """Plots, below the names of their lines."""
    legend = "".join(f'<span style="color:{colour}">● {name}</span> ' for name, colour in zip(names, COLOURS))
    return f'<div class="drawing"><p>{legend}</p>{"".join(drawn)}</div>\n'
