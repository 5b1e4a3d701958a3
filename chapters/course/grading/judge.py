"""What comes of a test: results against what must come out, and figures against closed forms. The program's own
process says nothing here but its files, and what a kernel has counted."""
import json
from dataclasses import dataclass, field

import numpy as np

import shardbook
from shardbook import Difference, Refused, Stored, Verdict

# What a job sends beside its tensors depends a little on timing; and so does what its processes hold.
SLACK_SENT, SLACK_HELD = 64 << 10, 4 << 20


@dataclass
class Device:
    """What a device has written."""
    tensors: dict  # of Stored
    begin: dict    # {name: [index along each axis]}
    figures: dict  # {name: number}


@dataclass
class Outcome:
    """Of a test. Each is a list of sentences; empty: passed."""
    results: list = field(default_factory=list)
    communication: list = field(default_factory=list)
    memory: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)


def read_device(folder, device):
    """\\throws Refused"""
    try:
        said = json.loads((folder / f"device_{device}.json").read_text())
        begin, figures = said["begin"], said["figures"]
        if not all(isinstance(v, int) for v in figures.values()) or not isinstance(begin, dict):
            raise ValueError("figures that are no whole numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"device {device}: expected what it holds, given nothing that can be read: {error}") from None
    return Device(shardbook.read(folder / f"device_{device}.safetensors"), begin, figures)


def results_of(asked, folder):
    """The devices' results, and a verdict on them."""
    verdict = Verdict(asked.problem.name, asked.test.devices)
    try:
        found = [read_device(folder, device) for device in range(asked.test.devices)]
    except Refused as error:
        verdict.differences.append(Difference("the program", str(error)))
        return [], verdict
    for name in asked.expected:
        if name != "input_grad" or asked.wants_input_grad:
            verdict.differences += differences(verdict, asked, name, found)
    return found, verdict


def differences(verdict, asked, name, found):
    """What differs in a tensor, on each device that holds a part of it."""
    want, bound = asked.expected[name], asked.bounds[name]
    slices, pieces = [], []
    for number, device in enumerate(found):
        piece = device.tensors.get(name)
        here = None if piece is None else place_of(device.begin.get(name), piece.values, want)
        if piece is not None and here is None:
            given = piece.values.shape
            turned = ": the transposed matrix?" if given == want.shape[::-1] and want.ndim == 2 else ""
            return [Difference(name, f"expected a part of {shardbook.shape_text(want.shape)}, given "
                                     f"{shardbook.shape_text(given)} at {device.begin.get(name)}{turned}", number)]
        slices.append(here or (slice(0, 0),) * want.ndim)
        pieces.append(None if piece is None else piece.values)
    is_there = np.zeros(want.shape, bool)
    for here, piece in zip(slices, pieces):
        if piece is not None:
            is_there[here] = True
    if not is_there.all():
        return [Difference(name, "expected in the results, given nothing" if not is_there.any() else
                           f"expected on some device at {tuple(map(int, np.argwhere(~is_there)[0]))}, given on none")]
    differ = []
    for number, piece in enumerate(pieces):
        if piece is None:
            continue
        if more := shardbook.of_piece(verdict, asked.problem, name, Stored(piece, "F32"), want, bound, slices,
                                      number, pieces):
            before = asked.before()
            if name in before and np.array_equal(piece, before[name][slices[number]]):
                more[0].cause = "the result of the step before: weights not updated, or not gathered after the step?"
            differ += more
    return differ


def place_of(begin, values, whole):
    """Where a part lies in the whole; None where it cannot."""
    is_place = isinstance(begin, list) and len(begin) == values.ndim == whole.ndim and \
        all(isinstance(b, int) and b >= 0 for b in begin)
    if not is_place or any(b + s > w for b, s, w in zip(begin, values.shape, whole.shape)):
        return None
    return tuple(slice(b, b + s) for b, s in zip(begin, values.shape))


def judge(asked, ended, folder, counted=None):
    """The outcome of a test. `counted`: what the kernel counted, and the same of the staff's program."""
    outcome = Outcome()
    if ended.broke:
        outcome.results.append(f"{ended.broke}; the job was ended")
    elif ended.code != 0:
        outcome.results += words_of(ended)
    else:
        found, verdict = results_of(asked, folder)
        outcome.results += [str(d) for d in verdict.differences[:6]]
        if found and not outcome.results:
            hold_figures(outcome, found)
    if outcome.results:  # nothing that computes something else has communication or memory to judge
        outcome.communication = outcome.memory = ["the results are not right"]
    elif counted:
        hold_counted(outcome, *counted)
    return outcome


def words_of(ended):
    """What a program said of its end: from its first error on, without what only the terminal's reader needs."""
    lines = ended.output.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
    return ["\n".join(lines[first:first + 12]) or f"ended with code {ended.code} and said nothing"]


def hold_figures(outcome, found):
    """What each device's own books say against the closed forms."""
    for number, device in enumerate(found):
        f = device.figures
        for name, unit in (("bytes", "bytes"), ("messages", "messages")):
            form = f.get(f"{name}.form")
            if form is not None and f.get(name) != form:
                outcome.communication.append(f"device {number} sent {f.get(name, 0):,} {unit}; the closed form says "
                                             f"{form:,}")
        if f.get("held", 0) > f.get("held.form", f.get("held", 0)):
            outcome.memory.append(f"device {number} held {f['held']:,} bytes at its fullest; the closed form says "
                                  f"{f['held.form']:,}")
    for name in ("bytes", "held"):
        outcome.figures[name] = max(device.figures.get(name, 0) for device in found)


@dataclass
class Counted:
    """What the kernel counted of a job: bytes through the loopback, and of each device those that it wrote and the
    most that it held. `forms` are of the staff's program."""
    sent: int
    written: list
    held: list
    seconds: float


def hold_counted(outcome, given, staff):
    """What the kernel has counted, against the same with the staff's program."""
    outcome.figures |= {"kernel_bytes": given.sent, "kernel_held": max(given.held, default=0),
                        "time_ratio": given.seconds / staff.seconds}
    slack = max(SLACK_SENT, staff.sent // 20)
    if not staff.sent - slack <= given.sent <= staff.sent + slack:
        outcome.communication.append(f"{given.sent:,} bytes went between the devices, by the kernel's count; "
                                     f"expected {staff.sent:,}, give or take {slack:,}")
    for number, (mine, theirs) in enumerate(zip(sorted(given.written), sorted(staff.written))):
        slack = max(SLACK_SENT, theirs // 20)
        if abs(mine - theirs) > slack and not outcome.communication:
            outcome.communication.append(f"a device wrote {mine:,} bytes, by the kernel's count; expected {theirs:,}, "
                                         f"give or take {slack:,}")
    most, allowed = max(given.held, default=0), max(staff.held, default=0) + SLACK_HELD
    if most > allowed:
        outcome.memory.append(f"a device held {most:,} bytes in memory, by the kernel's count; expected at most "
                              f"{allowed:,}")
