"""Drawings of records: who owns what, a schedule, memory over a step, and bytes by axis.

The comment of such a picture has the command of a run, whose record is drawn."""
import os
import subprocess
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import setup
from matrices import owned_by
from shapes import LINES, box, svg, text, width_of

setup.player()
from join import run_of
from reader import PURPOSES

ROOT = setup.root
PROGRAM = Path(os.environ.get("PROGRAMS", ROOT / "build/local"), "shardbook")
COLOURS = dict(zip(PURPOSES, LINES))  # those of a run's page


def run(_, kind, *command):
    """The picture of a run: owns, schedule, memory or bytes, and `./chapters/run 04 -n 4 train ...`."""
    if kind not in KINDS:
        raise ValueError(f"expected a picture of {', '.join(KINDS)}, given {kind}")
    words = list(command)
    at = words.index("-n")
    steps = "2" if kind == "memory" else "1"  # in the first one there is no state of the optimizer yet
    return KINDS[kind](recorded(int(words[at + 1]), (words[1], *words[at + 2:]), steps))


@cache
def recorded(devices, words, steps):
    """The run of a program's words, with so many steps; "" where it has no steps."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        words = [*words, *(["--steps", steps, "--record-steps", steps] if steps else []), "--record", record]
        subprocess.run([PROGRAM, *words], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SHARDBOOK_DEVICES": str(devices)})
        return run_of(record.read_text("utf-8"), ROOT)


def of_file(kind, record, file):
    """Writes the picture of a record."""
    Path(file).write_text(KINDS[kind](setup.player().read(record)), "utf-8")


def owns(page):
    """Which part of each parameter each device has when the record begins. Of blocks that are alike, the first."""
    shapes = {}
    for device, sections in enumerate(page.record.devices):
        for one in sections[0].held:
            if one["purpose"] != "parameters" or "layout" not in one:
                continue
            layout = page.record.layouts[one["layout"]]
            name, whole = sections[0].names.get(one["tensor"], "?"), layout["whole"]
            row = shapes.setdefault(name, (name, whole[0], whole[1] if len(whole) > 1 else 0,
                                           ["–"] * len(page.record.devices)))
            row[3][device] = part_of(layout["parts"].get(str(device), []), whole)
    blocks = [name.partition("/")[0] for name in shapes if name.startswith("block_")]
    others = set(blocks) - set(blocks[:1])
    return owned_by([row for name, row in shapes.items() if name.partition("/")[0] not in others])


def part_of(ranges, whole):
    """A part as `owned_matrix` takes it: whole, rows 0-17, columns 0-3, (0-31, 0-63), –."""
    if not ranges or any(begin == end for begin, end in ranges):
        return "–"
    cut = [(begin, end) != (0, extent) for (begin, end), extent in zip(ranges, whole)]
    told = [f"{begin}-{end - 1}" for begin, end in ranges]
    if not any(cut):
        return "whole"
    if all(cut) and len(cut) == 2:
        return f"({told[0]}, {told[1]})"
    return f"{'rows' if cut[0] else 'columns'} {told[cut.index(True)]}"


def extent_of(steps):
    """Where steps begin and end in the order."""
    slots = [slot for step in steps for slot in step.slots.values()]
    return min(begin for begin, _ in slots), max(end for _, end in slots)


PHASES = {"forward": (LINES[0], "forward"), "backward": (LINES[2], "backward"),
          "of input": (LINES[2], "backward, dL/da"),
          "of weights": (LINES[1], "backward, dL/dw"), "optimizer": (LINES[4], "optimizer")}


def schedule(page):
    """What each device does, from left to right: a number is a micro-batch, a product of matrices is one unit long."""
    left, (_, last) = 80, extent_of(page.steps)
    unit = 644 / last
    parts, devices, seen = [], len(page.record.devices), {}
    for device, did in enumerate(done_by(page)):
        y = 14 + 30 * device
        parts += [text(left - 10, y + 17, f"device {device}", "end"),
                  f'<path d="M{left} {y + 12}H724" class="grid"/>']
        stages = sorted({stage for _, _, stage, *_ in did if stage is not None})
        for phase, micro, stage, begin, end in did:
            seen[phase] = PHASES[phase]
            x, wide, low = left + begin * unit, (end - begin) * unit - 1, 0 if phase == "forward" else 4
            parts.append(f'<rect x="{x:.1f}" y="{y + low}" width="{max(wide, 1):.1f}" height="20" rx="2" '
                         f'fill="{PHASES[phase][0]}"/>')
            if micro is not None and wide > 9:
                letter = "abcdefgh"[stages.index(stage)] if len(stages) > 1 else ""
                parts.append(f'<text x="{x + wide / 2:.1f}" y="{y + 14 + low}" text-anchor="middle" font-size="11" '
                             f'style="fill:#fff">{micro}{letter}</text>')
    y = 34 + 30 * devices
    note = "a number is a micro-batch"
    return svg(740, y + 12, parts + legend_of(left, y, [PHASES[phase] for phase in PHASES if phase in seen], note),
               "a schedule")


def done_by(page, in_halves=False):
    """For each device: [phase, micro-batch, stage, begin, end] of what it computes without a pause. A backward pass
    whose halves are apart has a phase for each."""
    did = [[] for _ in page.record.devices]
    for step in page.steps:
        phase = step.context.get("phase")
        if step.kind != "compute" or phase not in PHASES:
            continue
        what = [step.context.get("micro_batch"), step.context.get("stage")]
        for item in step.items:
            begin, end = step.slots[item.device]
            last = did[item.device][-1] if did[item.device] else [None] * 5
            own = phase if not in_halves or phase != "backward" else half_of(item) or last[0]
            if last[:3] == [own, *what] and begin - last[4] < 0.2:
                last[4] = end
            else:
                did[item.device].append([own, *what, begin, end])
    runs = [[tuple(one[:3]) for one in of_device if one[0] == "backward"] for of_device in did]
    return done_by(page, True) if any(len(set(run)) < len(run) for run in runs) else did


def half_of(item):
    """The half of a backward pass that an item computes, if it has products: aᵀ · d, of weights, or d · Wᵀ."""
    products = [event.operands for event in item.events if "flops" in event.what]
    return ("of weights" if products[0][0].get("transposed") else "of input") if products else None


def legend_of(x, y, kinds, note=""):
    parts = []
    for colour, name in kinds:
        parts += [f'<rect x="{x}" y="{y - 9}" width="11" height="11" rx="2" fill="{colour}"/>',
                  text(x + 16, y, name, "start", "soft", 11)]
        x += 34 + width_of(name, 11)
    return parts + ([text(x + 6, y, note, "start", "soft", 11)] if note else [])


def memory(page):
    """What each device holds over the last step of the run, by purpose, and its most."""
    left, high, parts = 80, 64, []
    number = len(page.record.devices[0]) - 1
    steps = [step for step in page.steps if step.items[0].section == number]
    begin, end = extent_of(steps)
    unit = 644 / (end - begin)
    peaks = [sections[number].peak() for sections in page.record.devices]
    most = max(peaks)
    order = ("parameters", "optimizer", "gradients", "activations", "buffers")
    seen = set()
    for device in range(len(page.record.devices)):
        base = 22 + (high + 22) * device + high
        points = held_over(page.record, steps, device)
        places = [left + (at - begin) * unit for at, _ in points]
        below = [0] * len(points)
        for purpose in order:
            above = [under + held[purpose] for under, (_, held) in zip(below, points)]
            if above != below:
                seen.add(purpose)
                parts.append(area(places, [base - high * value / most for value in below],
                                  [base - high * value / most for value in above], COLOURS[purpose]))
            below = above
        peak = peaks[device]
        y = base - high * peak / most
        parts += [text(left - 10, base - high / 2 + 4, f"device {device}", "end"),
                  f'<path d="M{left} {base}H724" class="edge" stroke-width="0.8"/>',
                  f'<path d="M{left} {y:.1f}H724" class="edge" stroke-width="0.8" stroke-dasharray="3 3"/>',
                  text(724, y - 4, f"{peak:,} bytes", "end", "soft", 11)]
    y = 22 + (high + 22) * len(page.record.devices) + 8
    kinds = [(COLOURS[purpose], purpose) for purpose in order if purpose in seen]
    note = "from left to right: a step, not the first one" if number else "from left to right: the first step"
    return svg(740, y + 12, parts + legend_of(left, y, kinds, note), "memory over a step")


def held_over(record, steps, device):
    """(place in the order, bytes by purpose) after each event of a device that changes them."""
    points, held = [], list(record.devices[device][steps[0].items[0].section].bytes_held())
    for step in steps:
        for item in (item for item in step.items if item.device == device):
            begin, end = step.slots[device]
            for event in range(item.begin, item.end + 1):
                at = begin + (end - begin) * (event - item.begin) / max(item.end - item.begin, 1)
                if not points or points[-1][1] != held[event]:
                    points.append((at, held[event]))
    return [*points, (extent_of(steps)[1], points[-1][1])]


def area(places, below, above, colour):
    """What lies between two curves that go in steps."""
    def steps(places, values):
        """The curve from its second place on."""
        return "".join(f"H{x:.1f}V{y:.1f}" for x, y, before in zip(places[1:], values[1:], values) if y != before)
    back = "".join(f"H{x:.1f}V{y:.1f}" for x, y, after in zip(places[:0:-1], below[-2::-1], below[:0:-1]) if y != after)
    return (f'<path d="M{places[0]:.1f} {above[0]:.1f}{steps(places, above)}H{places[-1]:.1f}V{below[-1]:.1f}{back}'
            f'H{places[0]:.1f}Z" fill="{colour}"/>')


def bytes_by_axis(page):
    """What all devices send along each axis, or in each group, by the function that sends it."""
    sums = defaultdict(lambda: defaultdict(int))
    for step in page.steps:
        for item in step.items:
            for event in item.events:
                size = sum(row[2] for row in event.sends)
                if size:
                    sums[page.record.group(event)[1]][event.function.removeprefix("post_")] += size
    functions = list(dict.fromkeys(function for row in sums.values() for function in row))
    if not sums:
        return svg(640, 48, [text(110, 28, "no device sends anything", "start")], "bytes by axis")
    scale = 380 / max(sum(row.values()) for row in sums.values())
    parts = legend_of(110, 22, list(zip(LINES, functions)))
    for i, (name, row) in enumerate(sums.items()):
        x, y = 110, 38 + 28 * i
        parts.append(text(x - 8, y + 14, f"along {name}" if name != "world" else "all devices", "end"))
        for function, size in row.items():
            parts.append(box(x, y, size * scale, 18, LINES[functions.index(function)]))
            x += size * scale
        parts.append(text(x + 6, y + 14, f"{sum(row.values()):,} bytes", "start"))
    return svg(640, 48 + 28 * len(sums), parts, "bytes by axis")


KINDS = {"owns": owns, "schedule": schedule, "memory": memory, "bytes": bytes_by_axis}
