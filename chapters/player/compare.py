"""The first step in which two runs differ. A run is a Page of join.py: a record with steps and sentences."""
import html
import math
import re

SAME = 1e-5  # of a tensor's largest element: more than float32's rounding


def words_of_step(run, at):
    """What happens in a step, without the steps that it names. None where there is none."""
    if at >= len(run.steps):
        return None
    text = html.unescape(re.sub("<[^>]+>", "", run.sentences.of(at)))
    return re.sub(r" (It|They) uses? .*", "", text)


def place_of_step(run, at):
    """FILE:LINE of a step in brackets, if it is known."""
    line = run.steps[at].items[0].last.line if at < len(run.steps) else None
    return f" ({run.record.place(line)})" if line is not None else ""


def done_in_step(run, at):
    """What devices do in a step: functions, groups, shapes and letters of what they take and make, bytes to whom. Where
    that stands in the source, and what it is called there, is no difference."""
    if at >= len(run.steps):
        return None
    record = run.record
    def told(operand):
        return operand and (operand.get("shape"), record.letters(operand), record.whole(operand))
    def did(event):
        group = record.group(event)[0] if event.kind == "call" else None
        subject = [event.what.get(name) for name in ("peer", "what", "op")]
        return event.function, group, subject, list(map(told, event.operands)), told(event.what.get("to")), event.sends
    return run.steps[at].is_open, [(item.device, list(map(did, item.waits + item.events)))
                                   for item in run.steps[at].items]


def values_in_step(run, at, kind):
    """The numbers of the tensors that a step writes, in order: of small ones, or sketches of larger ones. Of each the
    device, the event, and the tensor's number."""
    numbers_of = {}
    for item in run.steps[at].items if at < len(run.steps) else []:
        first = -1 if item.begin == 0 else item.begin  # -1: what is there before the first event
        for event, tensor, numbers in run.values(item.device, item.section, kind):
            if first <= event < item.end:
                numbers_of[item.device, event, tensor] = numbers
    return numbers_of


def pairs_in_step(right, wrong, at, kind):
    """(device, numbers, those of the wrong run) of the tensors that a step writes in both runs."""
    of_right, of_wrong = (values_in_step(run, at, kind) for run in (right, wrong))
    return [(place[0], numbers, of_wrong[place]) for place, numbers in of_right.items() if place in of_wrong]


def different_values(right, wrong, at):
    """Of the first numbers that differ in a step that else is the same: the device, and how, in words."""
    for device, numbers, others in pairs_in_step(right, wrong, at, "values"):
        largest = max((abs(number) for number in numbers if number is not None), default=0)
        for a, b in zip(numbers, others):
            if differ(a, b, SAME * largest):
                return device, f"a number is {in_words(a)} in the right run, and {in_words(b)} in the wrong one"
    for device, numbers, others in pairs_in_step(right, wrong, at, "sketches"):
        if any(differ(a, b, SAME * (numbers[-1] or 0)) for a, b in zip(numbers, others)):
            return device, f"a tensor has other numbers: {apart(numbers, others)}"
    return None


def differ(a, b, most):
    """Whether two numbers are more than `most` apart. None is a number that is not finite."""
    return (a is None) != (b is None) or (a is not None and abs(a - b) > most)


def in_words(number):
    return "a number that is not finite" if number is None else f"{number:.6g}"


def apart(numbers, others):
    """How far two tensors are apart, by their sketches."""
    if None in numbers + others:
        return "one is not finite"
    squares = [(a - b) ** 2 for a, b in zip(numbers[:-1], others)]
    return f"the norm of their difference is about {math.sqrt(sum(squares) / len(squares)):.2g}, and that of the right " \
           f"ones {numbers[-1]:.3g}"


def held_in_steps(run):
    """For each step the bytes by purpose that its devices hold in the end."""
    held = {}  # by section and device, after each event
    for step in run.steps:
        for item in step.items:
            if (item.section, item.device) not in held:
                section = run.record.devices[item.device][item.section]
                held[item.section, item.device] = [dict(by_purpose) for by_purpose in section.bytes_held()]
    return [{item.device: held[item.section, item.device][item.end] for item in step.items} for step in run.steps]


def first_difference(right, wrong):
    """The number of the first step that is not the same in both: in what is done, or else, if none is, in what is held.
    None if all are."""
    numbers = range(max(len(right.steps), len(wrong.steps)))
    done = next((at for at in numbers if done_in_step(right, at) != done_in_step(wrong, at)
                 or different_values(right, wrong, at)), None)
    if done is not None:
        return done
    pairs = zip(held_in_steps(right), held_in_steps(wrong))
    return next((at for at, (held, other) in enumerate(pairs) if held != other), None)


def difference_in_words(right, wrong):
    """Which step differs first, and what each run does there: a line each."""
    at = first_difference(right, wrong)
    if at is None:
        return [f"No step of {len(right.steps)} differs.", *difference_of_ends(right, wrong)]
    words = [words_of_step(run, at) or "The run has ended." for run in (right, wrong)]
    lines = [f"Step {at} is the first that differs."] + [
        f"{name}: {told}{place_of_step(run, at)}" for name, told, run in zip(("right", "wrong"), words, (right, wrong))]
    if words[0] == words[1]:
        lines.append(detail(right, wrong, at))
    return lines


def difference_of_ends(right, wrong):
    """How two runs end, if they do not end in the same way: the wrong one may differ behind the steps that are recorded."""
    ends = [run.record.end for run in (right, wrong)]
    if ends[0] == ends[1]:
        return []
    return [f"{name}: ends with code {end['code']}{', ' * bool(end.get('report'))}{end.get('report', '').partition(chr(10))[0]}"
            for name, end in zip(("right", "wrong"), ends)]


def detail_of_memory(right, wrong):
    """The first purpose of which a device holds something else."""
    for device, held in right.items():
        for purpose, size in held.items():
            if size != wrong[device][purpose]:
                return f"Device {device} holds {size:,} bytes of {purpose} in the right run, and " \
                       f"{wrong[device][purpose]:,} in the wrong one."
    return ""


def detail(right, wrong, at):
    """What differs in a step that one sentence tells for both runs."""
    steps = [done_in_step(run, at) for run in (right, wrong)]
    if steps[0] == steps[1]:
        if not (values := different_values(right, wrong, at)):
            return detail_of_memory(*(held_in_steps(run)[at] for run in (right, wrong)))
        return f"On device {values[0]} {values[1]}."
    devices = [device for (device, did), (_, other) in zip(steps[0][1], steps[1][1]) if did != other]
    return f"Device {devices[0]} sends, takes or makes something else." if devices else "Other devices take part."
