"""Judges a test: results against expected ones, and figures against closed forms. Of the program's own process, only
its files count, and what the kernel has counted."""
import itertools
import json
import re
from dataclasses import dataclass, field, replace

import numpy as np

from small_problems import TOLD, LayerProblem, RingProblem
import shardbook_check as sb
from shardbook_check import Difference, Refused, Stored, Verdict
from shardbook_check.layouts import shape_text
from shardbook_check.verdicts import as_of_one, of_piece
from shardbook_check.wrong_versions import SAYS

# Bytes that depend on timing: sent beside tensors, and held by processes.
SLACK_SENT, SLACK_HELD = 64 << 10, 4 << 20


@dataclass
class Device:
    """The results that a device has written."""
    tensors: dict  # of Stored
    begin: dict    # {name: [index along each axis]}
    figures: dict  # {name: number}


@dataclass
class Outcome:
    """The outcome of a test. Each member is a list of sentences; empty: passed."""
    results: list = field(default_factory=list)
    communication: list = field(default_factory=list)
    memory: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)
    broke: str = ""  # the limit that was exceeded
    has_figures: bool = False  # it ran to its end; what it sent and held is judged even if its results are wrong

    @staticmethod
    def not_run(broke):
        return Outcome(*[[f"not run: an earlier test broke a limit: {broke}"] for _ in range(3)])


def cause_in(sentence):
    """The likely cause at the end of a sentence, without this test's numbers; or nothing."""
    words = sentence.rsplit(": ", 1)[-1]
    return words if words.endswith("?") and "\n" not in words else ""


def read_device(folder, device):
    """\\throws Refused"""
    try:
        said = json.loads((folder / f"device_{device}.json").read_text())
        begin, figures, described = said["begin"], said["figures"], str(said.get("described"))
        if not all(isinstance(v, int) for v in figures.values()) or not isinstance(begin, dict):
            raise ValueError("figures that are no whole numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"device {device}: expected what it holds, given nothing that can be read: {error}") \
            from None
    if idle := re.search(r"devices idle ([\d.]+) %", described):  # a pipeline's schedule says so
        figures["idle"] = float(idle[1])
        figures["order"] = [list(dict.fromkeys(row.split())) for row in re.findall(r"(?m)^device \d+ +(.*)$", described)]
    return Device(sb.read(folder / f"device_{device}.safetensors"), begin, figures)


def results_of(asked, folder, forms):
    """The devices' results, with a verdict."""
    verdict = Verdict(asked.problem.name, asked.test.devices, micro_batches=asked.test.size("--micro-batches", 1))
    try:
        found = [read_device(folder, device) for device in range(asked.test.devices)]
    except Refused as error:
        verdict.differences.append(Difference("the program", str(error)))
        return [], verdict
    for name in asked.expected:
        if name != "input_grad" or asked.wants_input_grad:
            has = [name in form.get("names", ()) for form in forms]
            verdict.differences += differences(verdict, asked, name, found, has)
    return found, verdict


def differences(verdict, asked, name, found, has):
    """The differences in a tensor on each device with a part of it. `has`: whether a device must have one."""
    want, bound = asked.expected[name], asked.bounds[name]
    slices, pieces = [], []
    for number, device in enumerate(found):
        piece = device.tensors.get(name)
        here = None if piece is None else place_of(device.begin.get(name), piece.values, want)
        if piece is not None and here is None:
            given = piece.values.shape
            turned = ": " + SAYS["reversed_shape"] if given == want.shape[::-1] and want.ndim == 2 else ""
            text = f"expected a part of {shape_text(want.shape)}, given " \
                   f"{shape_text(given)} at {device.begin.get(name)}{turned}"
            return [Difference(name, text, number)]
        slices.append(here or (slice(0, 0),) * want.ndim)
        pieces.append(None if piece is None else piece.values)
    is_there = np.zeros(want.shape, bool)
    for here, piece in zip(slices, pieces):
        if piece is not None:
            is_there[here] = True
    if not is_there.all():
        first = tuple(map(int, np.argwhere(~is_there)[0]))
        return [Difference(name, f"expected on some device at {first}, given on none" if is_there.any() else
                           SAYS["left_out"])]
    differ = []
    for number, piece in enumerate(pieces):
        if piece is None:
            differ += [Difference(name, SAYS["left_out"], number)] * any(has[number:number + 1])
            continue
        if asked.test.kind == "large":  # the rules of likely causes would take minutes
            if not (np.abs(piece - want[slices[number]]) <= bound[slices[number]]).all():
                differ.append(Difference(name, f"differs in a large network: {asked.test.text}", number))
        elif more := of_piece(verdict, asked.problem, name, Stored(piece, "F32"), want, bound, slices,
                                      number, pieces):
            if more[0].cause == SAYS["unknown"]:
                more[0].cause = cause_of_later_step(asked, name, number, piece, slices[number]) or more[0].cause
            # A wrong version of the layer has all of these numbers, so it goes before every rule.
            more[0].cause = cause_of_small(asked, name, number, found[number]) or more[0].cause
            differ += more
    return as_of_one(differ, pieces)


def cause_of_later_step(asked, name, device, piece, here):
    """For a test with several steps: whether weights are those of the step before."""
    if not (before := asked.before()):
        return ""
    if np.array_equal(piece, before.expected[name][here]):
        return SAYS["previous_step"]
    layers, now = sorted(before.params), asked.problem.params
    for count in range(1, len(layers) + 1):
        for stale in itertools.combinations(layers, count):
            for text, is_old in old_rows(asked.test.devices, device):
                params = {layer: np.where(is_old(len(w))[:, None] & (layer in stale), before.params[layer], w)
                          for layer, w in now.items()}
                if np.array_equal(piece, asked.problem.with_params(params)[name][here]):
                    return text.format(", ".join(stale))
    return ""


def old_rows(devices, device):
    """Yields (sentence, rows of a tensor that are old) for weights that were not updated."""
    def of(number, count):
        begin, end = sb.part(count, devices, number)
        return (begin <= np.arange(count)) & (np.arange(count) < end)
    yield SAYS["stale"], lambda count: np.ones(count, bool)
    yield SAYS["stale_elsewhere"], lambda count: ~of(device, count)
    for other in range(devices):
        yield SAYS["stale_on"].format("{}", other), lambda count, other=other: of(other, count)


def cause_of_small(asked, name, number, device):
    """For a layer of chapter 07: the wrong version that has all results of a device, those that are right, too. For a ring:
    of what it tells after its steps."""
    def has(version):
        places = {n: place_of(device.begin.get(n), t.values, version[n]) for n, t in device.tensors.items() if n in version}
        return len(places) == len(device.tensors) and all(
            here and np.array_equal(device.tensors[n].values, version[n][here], equal_nan=True) for n, here in places.items())
    if isinstance(asked.problem, RingProblem):
        return TOLD.get(name, "")
    return asked.problem.cause(number, asked.test.devices, has) if isinstance(asked.problem, LayerProblem) else ""


def place_of(begin, values, whole):
    """The slices of a part in the whole tensor; None for an impossible begin."""
    is_place = isinstance(begin, list) and len(begin) == values.ndim == whole.ndim and \
        all(isinstance(b, int) and b >= 0 for b in begin)
    if not is_place or any(b + s > w for b, s, w in zip(begin, values.shape, whole.shape)):
        return None
    return tuple(slice(b, b + s) for b, s in zip(begin, values.shape))


def judge(asked, ended, folder, forms, counted=None):
    """The outcome of a test. `forms`: the figures expected of each device. `counted`: the kernel's counts, and those
    of the staff's program."""
    outcome = Outcome()
    if ended.broke:
        outcome.broke = ended.broke
        outcome.results.append(f"{ended.broke}; the job was ended")
    elif ended.code != 0:
        outcome.results += words_of(ended)
    else:
        found, verdict = results_of(asked, folder, forms)
        rounded = [d for d in verdict.differences if d.cause == SAYS["right_in_bf16"]]
        for d in rounded if len(rounded) < len(verdict.differences) else ():  # then it is no matter of 16 bits
            d.cause = SAYS["unknown"]
        unknown_last = sorted(verdict.differences, key=lambda d: d.cause in (SAYS["unknown"], SAYS["one_device"]))
        outcome.results += [str(d) for d in unknown_last[:6]]
        if found:
            outcome.has_figures = True
            hold_figures(outcome, found, of_fullest(forms) if asked.knows_fullest else forms)
            if not asked.wants_input_grad and not asked.knows_fullest:
                hold_operations(outcome, found, forms)
            if counted:
                hold_counted(outcome, *counted)
    if outcome.results:  # wrong results have no figures
        outcome.figures = {}
    return outcome


def words_of(ended):
    """The last output of a program, from its first error on, without parts for a reader of the terminal."""
    lines = ended.output.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
    return ["\n".join(lines[first:first + 12]) or f"ended with code {ended.code} and said nothing"]


def of_fullest(forms):
    """Each device may hold as much as the one that holds most: ./check knows no more of a test with `figures`."""
    return [form | {"held": max(other.get("held", 0) for other in forms)} for form in forms]


def hold_figures(outcome, found, forms):
    """Compares each device's own counts with the closed forms, which are the staff's."""
    for number, (device, form) in enumerate(zip(found, forms)):
        f = device.figures
        for name, words in (("bytes", "bytes"), ("messages", "messages")):
            if name in form and f.get(name) != form[name]:
                outcome.communication.append(f"device {number} sent {f.get(name, 0):,} {words}; the closed form "
                                             f"says {form[name]:,}")
        if number == 0 and f.get("idle", 0) > form.get("idle", 0):
            outcome.communication.append(f"devices idle {f['idle']} % of the time, by the schedule; expected "
                                         f"{form['idle']} %")
        if "bytes below" in form:
            hold_bounds(outcome, number, f, form)
            continue
        if f.get("held", 0) > form.get("held", 0):
            outcome.memory.append(f"device {number} held {f['held']:,} bytes at its fullest; the closed form "
                                  f"says {form['held']:,}{what_is_more(f, form)}")
        for name, words in (("held by the update", "at most in the optimizer's step"), ("kept", "after the step")):
            if f.get(name, 0) > form.get(name, 0):
                outcome.memory.append(f"device {number} held {f[name]:,} bytes {words}; expected {form[name]:,} or less")
    given, wanted = (of.get("order", []) for of in (found[0].figures, forms[0]))
    if outcome.memory and (place := first_unlike(given, wanted)):
        outcome.memory[0] += f". The order of work is another one, too: {place}"
    for name in ("bytes", "held"):
        outcome.figures[name] = max(device.figures.get(name, 0) for device in found)


def hold_operations(outcome, found, forms):
    """In a step that does not want dL/dx, nobody computes it. ./check sees that by its closed form of operations."""
    for number, (device, form) in enumerate(zip(found, forms)):
        if "operations" in form and device.figures.get("operations", 0) > form["operations"]:
            outcome.communication.append(f"device {number} computed {device.figures['operations']:,} operations; expected "
                                         f"{form['operations']:,}: dL/dx, which this step does not want?")


def first_unlike(given, wanted):
    """Where the lists of what devices do differ first; or nothing."""
    for device, (mine, theirs) in enumerate(zip(given, wanted)):
        both = ([work for work in row if work != "."] for row in (mine, theirs))
        for place, (one, other) in enumerate(itertools.zip_longest(*both), 1):
            if one != other:
                return f"device {device}'s piece of work {place}: expected {other or 'none'}, given {one or 'none'}"
    return ""


def what_is_more(figures, form):
    """What a device held in addition to the solution, if this is known."""
    more = {name.removeprefix("held as "): figures.get(name, 0) - form[name]
            for name in form if name.startswith("held as ")}
    most = max(more, key=more.get, default="")
    if not most or more[most] <= 0:
        return ""
    given, expected = (of[f"held as {most}"] for of in (figures, form))
    return f". Of {most} it held at most {given:,}, the solution {expected:,}"


def hold_bounds(outcome, number, f, form):
    """Judges a free exercise. On one device nothing must be sent, and nothing can be divided."""
    if f.get("bytes", 0) >= max(form["bytes below"], 1):
        outcome.communication.append(f"device {number} sent {f['bytes']:,} bytes; expected less than the "
                                     f"{form['bytes below']:,} of what is to be beaten")
    if f.get("operations", 0) > form["operations at most"]:
        outcome.communication.append(f"device {number} computed {f['operations']:,} operations; expected at "
                                     f"most {form['operations at most']:,}, 1.5 times an even share")


@dataclass
class Counted:
    """The kernel's counts of a job: bytes through the loopback and, for each device, the bytes written and the most
    bytes held."""
    sent: int
    written: list
    held: list
    seconds: float
    is_bound: bool = False  # the counts are bounds for a free exercise

    def with_most_of(self, other):
        """The larger one of each device's counts. A device that ends between two looks is counted too low."""
        return replace(self, written=[max(pair) for pair in zip(sorted(self.written), sorted(other.written))],
                       held=[max(pair) for pair in zip(sorted(self.held), sorted(other.held))])

    def misses_some(self, staff):
        """Whether a device was not seen to its end: it wrote too little, and yet as much was sent as the staff's."""
        slack = max(SLACK_SENT, staff.sent // 20)
        return self.sent >= staff.sent - slack and len(self.written) == len(staff.written) and \
            any(mine < theirs - max(SLACK_SENT, theirs // 20)
                for mine, theirs in zip(sorted(self.written), sorted(staff.written)))


def hold_counted(outcome, given, staff):
    """Compares the kernel's counts with those of the staff's program."""
    outcome.figures |= {"kernel_bytes": given.sent, "kernel_held": max(given.held, default=0),
                        "time_ratio": given.seconds / staff.seconds}
    if staff.is_bound:
        if given.sent >= staff.sent:
            outcome.communication.append(f"{given.sent:,} bytes went between the devices, by the kernel's "
                                         f"count; expected less than the {staff.sent:,} of what is to be beaten")
        return
    slack = max(SLACK_SENT, staff.sent // 20)
    if not staff.sent - slack <= given.sent <= staff.sent + slack:
        outcome.communication.append(f"{given.sent:,} bytes went between the devices, by the kernel's count; "
                                     f"expected {staff.sent:,}, give or take {slack:,}")
    for number, (mine, theirs) in enumerate(zip(sorted(given.written), sorted(staff.written))):
        slack = max(SLACK_SENT, theirs // 20)
        if abs(mine - theirs) > slack and not outcome.communication:
            outcome.communication.append(f"a device wrote {mine:,} bytes, by the kernel's count; expected "
                                         f"{theirs:,}, give or take {slack:,}")
    most, allowed = max(given.held, default=0), max(staff.held, default=0) + SLACK_HELD
    if most > allowed:
        outcome.memory.append(f"a device held {most:,} bytes in memory, by the kernel's count; expected at most "
                              f"{allowed:,}")
