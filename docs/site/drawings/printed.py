"""Drawings of what programs print: scenes of chapter 00, schedules, and what devices hold.

Each function takes a page's text above the drawing, and the words of its comment. It draws the block above it.
"""
import html
import re

from shapes import DEVICES, LINES, box, last_block, svg, text, width_of


def cell(x, y, wide, high, token):
    """A number of chapter 00's pictures. 21: device 2 began with it. ·11·: the sum of what devices 1 and 2 had."""
    from_devices = ([int(token[0])] if re.fullmatch(r"\d+", token) and len(set(token)) > 1 or len(token) == 2
                    else [device for device, digit in enumerate(token) if digit != "·"])
    width = wide / len(from_devices)
    parts = [f'<rect x="{x + i * width:.1f}" y="{y:.1f}" width="{width:.1f}" height="{high:.1f}" '
             f'fill="{DEVICES[device % len(DEVICES)]}"/>' for i, device in enumerate(from_devices)]
    return parts + [f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="none" class="edge" '
                    f'stroke-width="0.8"/>', text(x + wide / 2, y + high / 2 + 4, token, kind="on", size=11)]


def boxes(lines):
    """Rows of boxes in chapter 00's pictures: for each, its name, and what is in each box, row by row."""
    pictures = []
    for line in lines:
        edges = [match.start() for match in re.finditer("[┌└]", line)]
        if "┌" in line:
            pictures.append(["", [[] for _ in edges], edges])
        for found in re.finditer(r"│([^│]+)│", line) if pictures else ():
            device = min(range(len(pictures[-1][2])), key=lambda i: abs(pictures[-1][2][i] - found.start()))
            pictures[-1][1][device].append(re.findall(r"[\d·]+", found[1]))
        if re.match(r"\S", line) and "│" in line:
            pictures[-1][0] = pictures[-1][0] or line[:11].strip()
    return pictures


def scene(above, *steps):
    """What the scene of chapter 00 above shows: all of it, or only the steps with these names."""
    lines = last_block(above).splitlines()
    shown = [(name, cells) for name, cells, _ in boxes(lines) if not steps or name.replace(" ", "-") in steps]
    widest = max(len(row) for _, cells in shown for rows in cells for row in rows)
    wide, high = (30, 24) if widest > 1 else (54, 22)
    step, y, parts = widest * wide + 18, 34, []
    devices = len(shown[0][1])
    for device in range(devices):
        parts.append(text(96 + device * step + widest * wide / 2, 20, f"device {device}"))
    for name, cells in shown:
        height = max(map(len, cells)) * high
        parts.append(text(84, y + height / 2 + 4, name, "end", "soft"))
        for device, rows in enumerate(cells):
            for i, row in enumerate(rows):
                for j, token in enumerate(row):
                    parts += cell(96 + device * step + j * wide, y + i * high, wide, high, token)
        y += height + 14
    what = re.findall(r"──── (\w+)", lines[0])[0]
    note = "A colour is the device that a number comes from; stripes are a sum."
    parts.append(text(14, y + 10, note, "start", "soft", 11))
    return svg(max(96 + devices * step, 420), y + 22, parts, what)


def bars(above):
    """What the output of `costs` says that each variant holds, as one bar for each."""
    output = last_block(above)
    numbers = re.findall(r"^(\S+)" + r" +([\d,.]+)" * 5 + "$", output, re.MULTILINE)
    unit = re.search(r"^In (\w+)", output, re.MULTILINE)[1]
    rows = [(name, [float(n.replace(",", "")) for n in columns]) for name, *columns in numbers]
    names = ["parameters", "gradients", "the optimizer's state", "the rest at the fullest moment"]
    scale, parts, x = 420 / max(columns[-1] for _, columns in rows), [], 14
    for name, colour in zip(names, LINES):
        parts += [box(x, 12, 11, 11, colour), text(x + 16, 22, name, "start", "soft", 11)]
        x += 36 + width_of(name, 11)
    for i, (name, (*columns, most)) in enumerate(rows):
        x, y = 110, 38 + 26 * i
        parts.append(text(x - 8, y + 14, name, "end"))
        for size, colour in zip(columns, LINES):
            parts.append(box(x, y, size * scale, 18, colour))
            x += size * scale
        parts.append(text(x + 6, y + 14, f"{most:,.1f} {unit}" if unit == "GiB" else f"{most:,.0f}", "start"))
    return svg(640, 44 + 26 * len(rows), parts, "what each variant holds")


def letters(above):
    """A table of letters, each a part of what a device holds, as bars: the block above."""
    heading, *rows = last_block(above).rstrip().splitlines()
    kinds = list(dict.fromkeys(re.findall(r"\S", "".join(row[20:] for row in rows))))
    names = re.findall(r"\S+(?: \S+)*", heading)
    unit, parts, x = 15, [], 14
    for i, name in enumerate(names):
        parts += [box(x, 12, 11, 11, LINES[i]), text(x + 16, 22, name, "start", "soft", 11)]
        x += 36 + width_of(name, 11)
    for i, row in enumerate(rows):
        x, y = 140, 38 + 28 * i
        parts.append(text(x - 10, y + 15, row[:20].strip(), "end"))
        for j, kind in enumerate(kinds):
            wide = unit * row[20:].count(kind)
            parts.append(box(x, y, wide, 20, LINES[j]))
            x += wide
    return svg(140 + unit * max(len(re.findall(r"\S", row[20:])) for row in rows) + 16, 44 + 28 * len(rows), parts,
               "what a device holds")
