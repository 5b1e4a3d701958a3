"""One sentence for each step of a run, with the record's numbers."""
import html
import re

from reader import RECEIVES, SENDS

VERBS = {"all_reduce": "reduce", "reduce_scatter": "reduce and scatter", "all_gather": "gather",
         "all_to_all": "exchange pieces of", "broadcast": "broadcast", "barrier": "stop at a barrier",
         "split": "form smaller groups", "synchronize": "wait for each other"}


def number(value):
    return f"{value:,}"


def counted(value, noun):
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def listed(words):
    """a; a and b; a, b and c"""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def devices(which):
    """Device 2; Devices 0–3; Devices 0, 1 and 5"""
    which = sorted(which)
    if len(which) == 1:
        return f"Device {which[0]}"
    if len(which) > 2 and which == list(range(which[0], which[-1] + 1)):
        return f"Devices {which[0]}–{which[-1]}"
    return f"Devices {listed(map(str, which))}"


def of_devices(which):
    """device 2; devices 1, 2 and 0, in this order"""
    which = list(dict.fromkeys(which))
    return f"device{'s' if len(which) > 1 else ''} {html.escape(listed(map(str, which)))}"


def shape(sizes):
    return f"({', '.join(map(number, sizes))}{',' if len(sizes) == 1 else ''})"


def code(name):
    return f"<code>{html.escape(name)}</code>"


def link(at):
    return f'<a href="#step={at}">step {at}</a>'


def made_by(name, function, it):
    """What a step has made, as a later one speaks of it."""
    if name:
        return f"{code(name)} of"
    return f"what {it} received in" if function in RECEIVES else f"the result of {code(function)} in"


class Sentences:
    """Makes the sentences. They are HTML: names are code, and a step that made something is a link."""

    def __init__(self, record, steps):
        self.record, self.steps = record, steps
        self.step_of = {id(event): at for at, step in enumerate(steps)
                        for item in step.items for event in item.events}

    def of(self, at):
        step = self.steps[at]
        text = {"compute": self.computes, "wait": self.waits, "call": self.calls}[step.kind](step)
        it = "it" if step.is_of_one else "they"
        uses = [f"{made_by(*what, it)} {link(made)}" for what, made in step.uses.items()]
        uses = uses if len(uses) < 5 else [*uses[:3], f"{len(uses) - 3} more"]
        return text + (f" {it.capitalize()} use{'s' if step.is_of_one else ''} {listed(uses)}." if uses else "")

    def of_group(self, begin, end):
        """All steps from `begin` to before `end`: their own sentences, if they are few."""
        steps = self.steps[begin:end]
        if len(steps) <= 3:
            return " ".join(self.of(at) for at in range(begin, end))
        who = {device for step in steps for device in step.devices}
        calls = sum(step.kind == "call" for step in steps)
        sent = sum(row[2] for step in steps for item in step.items
                   for event in item.events for row in event.sends)
        traffic = f", which send {counted(sent, 'byte')} in all" if sent else ""
        verb = "does" if len(who) == 1 else "do"
        return f"{devices(who)} {verb} {counted(len(steps), 'step')}, {counted(calls, 'call')} among them{traffic}."

    def name(self, item, event, tensor, operand=None):
        """A tensor as the source calls it, with the shape of the whole."""
        section = self.record.devices[item.device][item.section]
        name = section.names.get(tensor) or self.record.assigned.get(event.line, "")
        is_parameter = any(one["tensor"] == tensor and one["purpose"] == "parameters"
                           for one in section.held)
        is_gradient = tensor in section.names and not is_parameter
        told = f"{'the gradient of ' if is_gradient else ''}{code(name)}" if name else "a tensor"
        return f"{told} {shape(self.record.whole(operand))}" if operand and "shape" in operand else told

    def name_before(self, item, event):
        """What a call is given, as the line that made it calls it."""
        tensor, operand = event.tensors[0], event.operands[0] if event.operands else None
        section = self.record.devices[item.device][item.section]
        before = [one for one in section.events[:item.end] if one.to == tensor and one is not event]
        return self.name(item, before[-1] if before else event, tensor, operand)

    def computes(self, step):
        item = step.items[0]
        results, operations = {}, {}
        for event in item.events:
            operations[event.function] = operations.get(event.function, 0) + 1
            if event.to is not None:
                results[event.to] = event
        told = list(dict.fromkeys(self.result(item, event) for event in results.values()))
        if len(told) > 3:
            told = [f"{len(results)} tensors, the last one {told[-1].removeprefix('a tensor ')},"]
        how = [f"{f'{count} × ' if count > 1 else ''}{code(name)}" for name, count in operations.items()]
        how = listed(how if len(how) < 5 else [*how[:3], f"{len(how) - 3} more"])
        verb = "update" if step.context.get("phase") == "optimizer" and told else "compute"
        does = f"{verb}{'s' if len(step.items) == 1 else ''}"
        what = f"{listed(told)} with " if told else ""
        return f"{devices(step.devices)} {self.awaited(step, ', and ')}{does} {what}{how}."

    def result(self, item, event):
        """What an operation computes: h (64, 256) in S1"""
        letters = html.escape(self.record.letters(event.what["to"]))
        return self.name(item, event, event.to, event.what["to"]) + (f" in {letters}" if letters else "")

    def awaited(self, step, behind=""):
        """What a step waits for, or receives: "receives out (8, 64) from device 0"."""
        item, received, told = step.items[0], [], []
        for number, event in enumerate(item.waits):
            at = self.step_of.get(id(event))
            if event.function in RECEIVES:
                peers = [one.waits[number].what.get("peer") for one in step.items]
                what = self.name(item, event, event.to, event.what.get("to"))
                received.append(f"{what} from {of_devices(peers)}")
            elif event.function not in SENDS:
                told.append(f"the {code(event.function)}{f' of {link(at)}' if at is not None else ''}")
        s = "s" if step.is_of_one else ""
        parts = [f"receive{s} {listed(dict.fromkeys(received))}"] if received else []
        parts += [f"wait{s} for {listed(dict.fromkeys(told))}"] if told else []
        return f"{' and '.join(parts)}{behind}" if parts else ""

    def waits(self, step):
        never = ", which never comes" if step.is_open else ""
        verb = "waits" if len(step.items) == 1 else "wait"
        return f"{devices(step.devices)} {self.awaited(step) or f'{verb} until all messages are sent'}{never}."

    def calls(self, step):
        event, item = step.first, step.items[0]
        if step.is_open:
            return self.stands_alone(step)
        if event.function in SENDS + RECEIVES:
            return self.message(step)
        verb = VERBS.get(event.function, "exchange")
        if step.is_of_one:
            verb = re.sub(r"\w+", lambda found: found[0] + ("es" if found[0].endswith("ch") else "s"), verb, count=1)
        what = f" {self.name_before(item, event)}" if event.tensors else ""
        if event.what.get("what"):
            what = f" control messages: {html.escape(event.what['what'])}"
        becomes = ""
        if event.operands and "to" in event.what:
            before, after = (html.escape(self.record.letters(one)) for one in (event.operands[0], event.what["to"]))
            becomes = f"; {before} becomes {after}" if before and after and before != after else ""
        return f"{devices(step.devices)} {self.awaited(step, ', and ')}{verb}{what}{self.traffic(step)}{becomes}."

    def stands_alone(self, step):
        """A call that the others of its group do not make."""
        event, item = step.first, step.items[0]
        what = f" of {self.name_before(item, event)}" if event.tensors else ""
        what = f" of {html.escape(event.what['what'])}" if event.what.get("what") else what
        name = html.escape(event.function) if " " in event.function else code(event.function)
        return (f"{devices(step.devices)} call{'s' if step.is_of_one else ''} {name}{what}, "
                "which the others of its group do not.")

    def traffic(self, step):
        """How much the members send: ": each sends 4,096 bytes in 2 messages"."""
        sums = [(sum(row[2] for row in item.last.sends), sum(row[1] for row in item.last.sends))
                for item in step.items if item.last.function not in RECEIVES]
        if not any(count for _, count in sums):
            return ""
        if len(sums) == 1:
            return f": {counted(sums[0][0], 'byte')} in {counted(sums[0][1], 'message')}"
        if len(set(sums)) == 1:
            return f": each sends {counted(sums[0][0], 'byte')} in {counted(sums[0][1], 'message')}"
        all_bytes = [size for size, _ in sums]
        return (f": each sends {number(min(all_bytes))} to {counted(max(all_bytes), 'byte')}, "
                f"{number(sum(all_bytes))} in all")

    def message(self, step):
        """What is sent. A receive has what it receives from a step before."""
        event, item = step.first, step.items[0]
        s, waits = "s" if step.is_of_one else "", self.awaited(step, ", and ")
        peers = of_devices(one.last.what.get("peer") for one in step.items if one.last.function == event.function)
        if event.function in RECEIVES:
            what = self.name(item, event, event.to, event.what.get("to"))
            return f"{devices(step.devices)} {waits}receive{s} {what} from {peers}."
        what = self.name_before(item, event) if event.tensors else "a message"
        who = [one.device for one in step.items if one.last.function in SENDS]
        return f"{devices(who)} {waits}send{s} {what} to {peers}{self.traffic(step)}."
