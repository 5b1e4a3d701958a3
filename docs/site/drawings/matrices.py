"""Drawings of what lies where: matrices cut over devices, devices on a mesh, and pieces of attention.

Each function takes a page's text above the drawing, and the words of its comment.
"""
import re

from shapes import DEVICES, LINES, arrow, box, legend, of_device, svg, text, width_of

SIZES = {"B": 72, "T": 72, "D": 48, "F": 96, "Hd": 64}  # of a letter, as drawn


def shape_of(above, name):
    """Shape and each device's part of a parameter, from the output of `owns` on the page."""
    row_of = re.compile(rf"^{re.escape(name)} +\((\d+),(?: (\d+))?\) +(\S+) +(.*)$", re.MULTILINE)
    row = next(filter(None, map(row_of.findall, reversed(above.split("```")))), None)
    if not row:
        raise ValueError(f"expected a parameter of the output of owns above the picture, given {name}")
    rows, columns, cut, _ = row[0]
    of_devices = " ".join(line[3] for line in row)  # that have no room beside the others stand below them
    parts = re.findall(r"–|whole|\(\d+-\d+, \d+-\d+\)|(?:[a-z]+ )?\d+-\d+", of_devices)
    return int(rows), int(columns or 0), [re.sub(r"^(?=\d)", f"{cut} ", part) for part in parts]


def ranges(part, height, width):
    """Where rows, columns or a block lie in a matrix of this height and width: x, y, width, height."""
    if found := re.match(r"\((\d+)-(\d+), (\d+)-(\d+)\)", part):
        top, bottom, left, right = map(int, found.groups())
        return left, top, right + 1 - left, bottom + 1 - top
    kind, first, last = re.match(r"(\w+) (\d+)-(\d+)", part).groups()
    first, size = int(first), int(last) + 1 - int(first)
    return (0, first, width, size) if kind == "rows" else (first, 0, size, height)


def owned_matrix(x, y, height, width, scale, parts):
    """A parameter at (x, y), as `owns` says of each device: whole, rows 0-17, (0-31, 0-63), –."""
    if set(parts) == {"whole"}:
        return [box(x, y, width * scale, height * scale)]
    drawn = []
    for device, part in enumerate(parts):
        if part == "whole":
            shift = 4 * parts[:device].count("whole")
            drawn += of_device(device, x + shift, y - shift, width * scale, height * scale)
        elif part != "–":
            left, top, wide, high = (scale * size for size in ranges(part, height, width))
            drawn += of_device(device, x + left, y + top, wide, high)
    return drawn


def matrix(x, y, height, width, cut, devices=4):
    """A matrix at (x, y), by its layout: `rows`, `columns`, `partial` (an addend on each device), `whole`."""
    parts = []
    for i in range(devices):
        if cut == "rows":
            parts += of_device(i, x, y + i * height / devices, width, height / devices)
        elif cut == "columns":
            parts += of_device(i, x + i * width / devices, y, width / devices, height)
        elif cut == "partial":  # the last one behind
            at = devices - 1 - i
            parts.append(box(x + 9 * at, y - 9 * at, width, height, DEVICES[at]))
            parts.append(text(x + 9 * at + width - 4.5, y - 9 * at + height - 3, str(at), kind="on", size=8))
    return parts or [box(x, y, width, height)]


def picture(above, *words):
    """Matrices in a row: "x:BxD:rows · W0:DxF:whole = h:BxF:rows". The letters are sizes. `W0:layer_0/weights` is as
    the output of `owns` on the page says. A word of letters is an arrow: all-reduce."""
    x, y, parts, caption = 14, 78, [], ""
    for word in words:
        name, *shape = word.split(":")
        if not shape and word.startswith("("):
            caption = word.strip("()").replace("_", " ")
        elif not shape and len(word) > 1:
            width = width_of(word, 11) + 12
            parts += arrow(x, y, width, word)
            x += width + 10
        elif not shape:
            parts.append(text(x + 4, y + 6, word, size=20))
            x += 18
        else:
            if len(shape) == 1:
                rows, columns, cuts = shape_of(above, shape[0])
                scale = 96 / max(rows, columns)
                drawn = owned_matrix(0, 0, rows, columns, scale, cuts)
                size, how = f"{rows} × {columns}", f"by {cuts[0].split()[0]}"
                rows, columns = rows * scale, columns * scale
            else:
                rows, columns = (SIZES[letter] for letter in shape[0].split("x"))
                drawn = matrix(0, 0, rows, columns, shape[1])
                size = shape[0].replace("x", " × ")
                how = {"partial": "addends", "whole": "whole"}.get(shape[1], f"by {shape[1]}")
            stack = 27 if shape[-1] == "partial" else 0
            room = max(columns + stack, width_of(size), width_of(how))
            left = x + (room - columns - stack) / 2
            top = y - rows / 2 + stack / 2
            parts.append(f'<g transform="translate({left:.1f} {top:.1f})">{"".join(drawn)}</g>')
            parts += [text(x + room / 2, 148, name), text(x + room / 2, 164, size, kind="soft"),
                      text(x + room / 2, 180, how, kind="soft")]
            x += room + 12
    if caption:
        parts.append(text(x, y + 4, caption, "start", "soft"))
        x += width_of(caption) + 8
    what = " ".join(re.sub(r":[^ ]*", "", word) for word in words)
    return svg(max(x, 440), 212, parts + legend(14, 203, 4), what)


def owned_by(shapes):
    """Parameters, each cut as it is: (name, rows, columns, parts as `owned_matrix` takes them)."""
    most = max(max(rows, columns) for _, rows, columns, _ in shapes)
    scale, (x, y), parts = 100 / most, (14, 22), []
    for name, rows, columns, cuts in shapes:
        name = name.rpartition("/")[2]
        size = f"{rows} × {columns}" if columns else str(rows)
        high, wide = (rows, columns) if columns else (8 / scale, rows)  # a vector lies
        room = max(wide * scale + 10, width_of(name)) + 18
        if x + room > 740:
            x, y = 14, y + 150
        middle = x + (room - 18) / 2
        parts += owned_matrix(middle - wide * scale / 2, y + (100 - high * scale) / 2, high, wide, scale, cuts)
        parts += [text(middle, y + 118, name), text(middle, y + 133, size, kind="soft")]
        x += room
    devices = len(shapes[0][3])
    return svg(740, y + 172, parts + legend(14, y + 160, devices), "parameters by device")


def flow(_, *words):
    """What is computed one after the other: "x:whole norm:whole q,k,v:heads all-reduce +x:whole". A box is gray where
    all devices compute the same, else it has a stripe for each device. A word without `:` stands at an arrow."""
    x, y, parts, label = 14, 30, [], ""
    for i, word in enumerate(words):
        name, _, how = word.partition(":")
        if not how:
            label = word.replace("_", " ")
            continue
        room = max(width_of(name.replace("_", " ")), width_of(how, 11), 54) + 16
        gap = 0 if i == 0 else max(24, width_of(label, 11) + 14 if label else 0)
        if x + gap + room > 740:
            x, y = 14, y + 84
        if i > 0:
            parts += arrow(x + 2, y + 20, gap - 4, label)
        x, label = x + gap, ""
        parts += ([box(x, y + 28, room, 12)] if how == "whole" else
                  [box(x + d * room / 4, y + 28, room / 4, 12, DEVICES[d]) for d in range(4)])
        parts += [f'<path d="M{x:.1f} {y}h{room:.1f}v40h{-room:.1f}z" fill="none" class="edge"/>',
                  text(x + room / 2, y + 19, name.replace("_", " ")),
                  text(x + room / 2, y + 55, how, kind="soft", size=11)]
        x += room
    return svg(754, y + 92, parts + legend(14, y + 80, 4), "what is computed, one after the other")


def mesh(_, *axes):
    """Devices on a grid with two named axes, and the groups along each: data=2 tensor=3."""
    (first, rows), (last, columns) = (axis.split("=") for axis in axes)
    rows, columns, parts = int(rows), int(columns), []
    for row in range(rows):
        y = 44 + 74 * row
        parts.append(f'<rect x="104" y="{y - 8}" width="{columns * 110 - 8}" height="52" rx="9" fill="none" '
                     f'stroke="{LINES[1]}" stroke-width="2"/>')
        parts.append(text(94, y + 22, f"{first} {row}", "end", "soft"))
        for column in range(columns):
            x = 116 + 110 * column
            parts += of_device(column, x, y, 78, 36, f"device {row * columns + column}")
    for column in range(columns):
        x = 116 + 110 * column
        parts.insert(0, f'<rect x="{x - 7}" y="30" width="92" height="{74 * rows - 10}" rx="9" fill="none" '
                        f'stroke="{LINES[0]}" stroke-width="2" stroke-dasharray="6 4"/>')
        parts.append(text(x + 39, 20, f"{last} {column}", kind="soft"))
    y = 52 + 74 * rows
    parts += [f'<path d="M14 {y - 4}h24" stroke="{LINES[1]}" stroke-width="2"/>',
              text(44, y, f"a group along {last}", "start", "soft", 11),
              f'<path d="M180 {y - 4}h24" stroke="{LINES[0]}" stroke-width="2" stroke-dasharray="6 4"/>',
              text(210, y, f"a group along {first}", "start", "soft", 11)]
    return svg(max(104 + 110 * columns + 8, 350), y + 12, parts, f"a mesh, {' '.join(axes)}")


def ring(_, *balances):
    """Which device computes which part of causal attention in which step of a ring of four devices."""
    devices, parts = 4, []
    for n, balance in enumerate(balances):
        pieces = devices if balance == "contiguous" else 2 * devices
        def device_of(piece):
            return min(piece, pieces - 1 - piece) if balance == "zigzag" else piece
        size, left = 208 / pieces, 64 + 290 * n
        parts += [text(left + 104, 20, f"keys, {balance}"), text(left - 8, 136, "queries", "end", "soft")]
        for q in range(pieces):
            for k in range(pieces):
                x, y = left + k * size, 30 + q * size
                if k > q:
                    parts.append(f'<path d="M{x:.1f} {y:.1f}h{size:.1f}v{size:.1f}h{-size:.1f}z" fill="none" '
                                 'class="grid"/>')
                else:
                    step = (device_of(q) - device_of(k)) % devices
                    parts += of_device(device_of(q), x, y, size, size, str(step))
    note = "A colour is the device that has the queries, a number the step in which the keys are there."
    parts += [text(14, 258, note, "start", "soft", 11), *legend(14, 280, devices, same=False)]
    return svg(290 * len(balances) + 10, 290, parts, "the steps of ring attention")
