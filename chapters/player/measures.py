"""What is counted in a run, step by step: what its page shows of a pipeline, and what questions ask."""
import re

from reader import SENDS
from steps import length, steps_of

NETWORKS = (r"(?P<L>\d+) layers (?P<D>\d+) -> (?P<F>\d+)", r"(?P<L>\d+) blocks of (?P<D>\d+), .*hidden (?P<F>\d+)",
            r"(?P<E>\d+) experts of (?P<L>\d+) layers (?P<D>\d+) -> (?P<F>\d+)")


def letters_of(page, at):
    """What letters of formulas are: N devices, G of them in the step's group, B rows of the batch, M micro-batches, L
    layers from D to F wide, E experts, T rows and C columns of the step's tensor."""
    record, job = page.record, page.record.job
    letters = {"N": len(record.devices), "M": int(job.get("options", {}).get("--micro-batches", 1))}
    letters |= {"B": job["batch"]} if "batch" in job else {}
    for pattern in NETWORKS:
        if found := re.match(pattern, job.get("network", "")):
            letters |= {name: int(value) for name, value in found.groupdict().items()}
    event = page.steps[at].items[0].last
    operand = event.operands[0] if event.operands else event.what.get("to")
    if operand and "shape" in operand:
        letters |= {"T": record.whole(operand)[0], "C": record.whole(operand)[-1]}
    if event.kind == "call":
        letters["G"] = len(record.group(event)[0])
    return letters


def is_pipeline(record):
    return any("stage" in context for context in record.contexts)


def idle_of(record):
    """The part of its time that each device of a pipeline idles, in percent, if a product takes one unit of time
    and all else takes none."""
    def products(item):
        return length(item) if any("flops" in event.what for event in item.events) else 0
    busy, end = [0] * len(record.devices), 0
    for step in steps_of(record, products):
        for item in step.items:
            busy[item.device] += products(item)
            end = max(end, step.slots[item.device][1])
    return [round(100 * (1 - time / end), 1) if end else 0 for time in busy]


def under_way(page):
    """The micro-batches of each device, from the step of the forward pass that begins one to the step of the backward
    pass that ends it: [micro-batch, first step, last step]."""
    spans = [{} for _ in page.record.devices]
    for at, step in enumerate(page.steps):
        micro, phase = step.context.get("micro_batch"), step.context.get("phase")
        if step.kind != "compute" or micro is None or "stage" not in step.context:
            continue
        for device in step.devices:
            span = spans[device].setdefault((micro, step.context["stage"]), [micro, at, at])
            span[2] = at if phase == "backward" else span[2]
    return [list(of_device.values()) for of_device in spans]


def most_under_way(page, _, device):
    if int(device) >= len(page.record.devices):
        return None
    spans = under_way(page)[int(device)]
    most = max((sum(begin <= at <= end for _, begin, end in spans) for at in range(len(page.steps))), default=0)
    return (most, "micro-batches") if most else None


def letter(page, at, when):
    event = page.steps[at].items[0].last
    operand = (event.operands or [None])[0] if when == "before" else event.what.get("to")
    letters = page.record.letters(operand) if operand else ""
    return (letters, "") if letters else None


def item_of(page, at, device):
    return next((item for item in page.steps[at].items if item.device == int(device)), None)


def sent(rows, column):
    return sum(row[column] for row in rows)


def bytes_of_device(page, at, device):
    item = item_of(page, at, device)
    return (sent(item.last.sends, 2), "bytes") if item else None


def bytes_of_all(page, at):
    return sum(sent(item.last.sends, 2) for item in page.steps[at].items), "bytes"


def of_run(page, _, what, device):
    column = 1 if what == "messages" else 2
    return sum(sent(event.sends, column) for step in page.steps for item in step.items if item.device == int(device)
               for event in item.events), what


def most_held(page, _, device):
    return (page.peaks[int(device)][0], "bytes") if int(device) in page.peaks else None


def held(page, at, purpose, device):
    """After the step."""
    last = [item for step in page.steps[:at + 1] for item in step.items if item.device == int(device)][-1:]
    for item in last:
        section = page.record.devices[item.device][item.section]
        return list(section.bytes_held())[item.end][purpose], "bytes"
    return None


def calls(page, _, function):
    return sum(function in {event.function for event in step.items[0].events} for step in page.steps), "calls"


def idle(page, _, device):
    is_there = is_pipeline(page.record) and int(device) < len(page.record.devices)
    return (idle_of(page.record)[int(device)], "%") if is_there else None


def members(page, at):
    return " and ".join(map(str, sorted(page.steps[at].devices))), ""


def peer(page, at):
    events = [item.last for item in page.steps[at].items if item.last.function in SENDS]
    return (f"device {events[0].what.get('peer')}", "") if events else None


def shape(page, at, device):
    item = item_of(page, at, device)
    sizes = item and item.last.what.get("to", {}).get("shape")
    return (f"({', '.join(map(str, sizes))})", "") if sizes else None


def phase_of_peak(page, _):
    _, at = max(page.peaks.values())
    return page.steps[at].context.get("phase", ""), ""


# What a question of tour.txt asks, and what finds it.
ANSWERS = {
    r"letter (before|after)": letter, r"bytes of device (\d+)": bytes_of_device, r"bytes of all": bytes_of_all,
    r"(bytes|messages) of device (\d+) in the run": of_run, r"most held by device (\d+)": most_held,
    r"(parameters|gradients|optimizer|activations) held by device (\d+)": held, r"calls of (\w+)": calls,
    r"micro-batches of device (\d+)": most_under_way, r"idle of device (\d+)": idle, r"devices": members,
    r"peer": peer, r"shape on device (\d+)": shape, r"phase of the peak": phase_of_peak,
}
