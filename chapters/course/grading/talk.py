"""Three questions on a run, for a talk with the student who wrote a part of it: what comes out of a line, what it
sends, and who waits there or where memory is largest. The answers are counted in the run's record, as those of its
page are."""
import html
import random
import re
import zlib
from functools import cached_property

from measures import bytes_of_device, item_of, letter, sent, shape
from reader import RECEIVES, SENDS
from sentences import counted, devices
from steps import words_of

RING = "a ring: each of the {n} devices passes on {times} parts, each an n-th of {what}"
WHY = {"all_reduce": RING.format(n="n", times="2 (n − 1)", what="the tensor"),
       "reduce_scatter": RING.format(n="n", times="n − 1", what="the addend"),
       "all_gather": RING.format(n="n", times="n − 1", what="the whole tensor"),
       "all_to_all": "each device sends all of its rows but those that stay",
       **dict.fromkeys(SENDS, "one message, the tensor")}


def number_of(student):
    """A student's number: a number as it is, another word by its sum."""
    return int(student) if student.isdecimal() else zlib.crc32(student.encode()) % 1_000_000


class Talk:
    """The questions for one student. `lines`: {file: {a line of the student's functions: its number in the student's
    own file}}. Raises ValueError: the record has nothing to ask about."""

    def __init__(self, page, student, lines=None):
        self.page, self.record, self.lines = page, page.record, lines or {}
        self.random = random.Random(f"{number_of(student)}/talk")
        steps = [at for at, step in enumerate(page.steps)
                 if not step.is_open and all(item.last.line is not None for item in step.items)]
        if not steps:
            raise ValueError("expected calls or operations with a line, given none in the record")
        at = self.chosen(steps, lambda at: (bool(self.bytes(at)), self.changes_letter(at),
                                            bool(letter(page, at, "after"))))
        device = self.random.choice(page.steps[at].devices)
        self.asked = [self.what_comes_out(at, device), self.what_is_sent(at, device), self.third(steps)]

    def chosen(self, steps, rank):
        """One of the steps that are best, by the student's own lines first and then by this rank; each line is as
        likely as another one."""
        best = max((self.nearness(at), *rank(at)) for at in steps)
        left = [at for at in steps if (self.nearness(at), *rank(at)) == best]
        lines = sorted({self.event(at).line for at in left})
        line = self.random.choice(lines)
        return self.random.choice([at for at in left if self.event(at).line == line])

    def nearness(self, at):
        """Whether the line is of the student's chapter; if it sends, also of their file and functions: 0 to 4."""
        file, line = self.record.place(self.event(at).line).rsplit(":", 1)
        is_own, sends = int(line) in self.lines.get(file, ()), bool(self.bytes(at))
        is_near = is_own or file.startswith(f"chapters/{self.record.job.get('folder', '')}/")
        return is_near + (sends and is_near + (file in self.lines) + is_own)

    def event(self, at):
        return self.page.steps[at].items[0].last

    def bytes(self, at):
        return sum(sent(item.last.sends, 2) for item in self.page.steps[at].items)

    def changes_letter(self, at):
        return letter(self.page, at, "before") != letter(self.page, at, "after")

    # ---- Words -------------------------------------------------------------------------------------------
    def place(self, event):
        """Line 38 of chapters/03_tensor_parallel/tensor_parallel.hpp, `Replicated out = all_reduce(...)`"""
        file, line = self.record.place(event.line).rsplit(":", 1)
        text = "".join(self.record.sources[file][int(line) - 1:int(line)]).split("//")[0].strip()
        number = self.lines.get(file, {}).get(int(line), line)
        return f"line {number} of {file}" + (f", `{text}`" if text else "")

    def where(self, at, device):
        """A step's place in the source, and in the run where the line runs more than once on this device."""
        event = item_of(self.page, at, device).last
        did = {other: item_of(self.page, other, device).last for other, step in enumerate(self.page.steps)
               if device in step.devices}
        same = [other for other, one in did.items()
                if (one.line, one.function) == (event.line, event.function)]
        when = words_of(event.context) if len(same) > 1 else ""
        same = [other for other in same if words_of(did[other].context) == when] if when else same
        often = f"the {ordinal(same.index(at) + 1)} of {len(same)} times" if len(same) > 1 else ""
        when = ", ".join(filter(None, (when, often)))
        return f"{self.place(event)}{f' ({when})' if when else ''}"

    def sentence(self, at):
        """What the page says of a step, without its links to other steps."""
        return html.unescape(re.sub(r"<[^>]*>| (It uses|They use) .*", "", self.page.sentences.of(at)))

    # ---- Questions: (question, answer) -------------------------------------------------------------------
    def what_comes_out(self, at, device):
        after, before = letter(self.page, at, "after"), letter(self.page, at, "before")
        event = item_of(self.page, at, device).last
        if event.function in SENDS:  # what comes out is on another device
            whole = part = f"the tensor that device {device} sends"
            sizes = (event.operands or [{}])[0].get("shape")
            found, size = before, sizes and (f"({', '.join(map(str, sizes))})", "")
        else:
            whole, part = "the result", f"the part of device {device}"
            found, size = after, shape(self.page, at, device)
        parts = (("letter", whole, found), ("shape", part, size))
        asks = [f"which {what} has {whose}" for what, whose, one in parts if one]
        was = f" Before it: {before[0]}." if found is after and before and after and before != after else ""
        told = ", ".join(one[0] for one in (found, size) if one)
        return (f"Look at {self.where(at, device)}: {' and '.join(asks) or 'what does it do'}?",
                f"{told}.{was} {self.sentence(at)}".removeprefix(". "))

    def what_is_sent(self, at, device):
        event = item_of(self.page, at, device).last
        if not self.bytes(at):
            flops = event.what.get("flops")
            return (f"How many bytes does device {device} send there, and how many operations does the line take?",
                    f"0 bytes; {flops:,} operations." if flops else "0 bytes, and no product: none is counted.")
        own, messages = bytes_of_device(self.page, at, device)[0], sent(event.sends, 1)
        why = f" ({WHY[event.function]}.)" if event.function in WHY else ""
        return (f"How many bytes does device {device} send there, and in how many messages?",
                f"{counted(own, 'byte')} in {counted(messages, 'message')}; all devices of the step together "
                f"{self.bytes(at):,}.{why}")

    def third(self, steps):
        """Who waits, of a run that sends something; or where the memory is largest."""
        received = [at for at in steps if any(self.received(item) for item in self.page.steps[at].items)]
        met = [at for at in steps if self.page.steps[at].kind == "call" and len(self.page.steps[at].devices) > 1
               and self.event(at).function not in SENDS + RECEIVES and self.bytes(at)]
        kinds = [(self.who_sends, received)] * bool(received) + [(self.left_out, met)] * bool(met) + \
            [(self.peak, steps)] * bool(self.page.peaks)
        if not kinds:
            raise ValueError("expected calls or memory, given neither in the record")
        ask, some = self.random.choice(kinds)
        return ask(self.chosen(some, lambda at: ()))

    @staticmethod
    def received(item):
        """The receives that an item waits for, with what they meet."""
        own = [(item.last, item.key)] if item.last.function == "receive" else []
        return own + [(event, key) for event, key in zip(item.waits, item.needs) if event.function in RECEIVES]

    @cached_property
    def senders(self):
        """{what a message meets: the event that sends it}."""
        return {item.key: item.last for step in self.page.steps for item in step.items
                if item.key and item.last.function in SENDS}

    def who_sends(self, at):
        item = self.random.choice([item for item in self.page.steps[at].items if self.received(item)])
        event, key = self.random.choice(self.received(item))
        sender = self.senders.get(key)
        which = f" with {self.place(sender)}" if sender and sender.line is not None else ""
        when = f", in {words_of(sender.context)}" if sender and sender.context else ""
        return (f"At {self.where(at, item.device)} device {item.device} waits for a message. Who sends it, and with "
                "which line?",
                f"Device {event.what.get('peer')}{which}{when}. {self.sentence(at)}")

    def left_out(self, at):
        step = self.page.steps[at]
        device = self.random.choice(step.devices)
        event = item_of(self.page, at, device).last
        later = next((one for one in range(at + 1, len(self.page.steps)) if device in self.page.steps[one].devices and
                      self.page.steps[one].kind == "call" and self.event(one).what["group"] == event.what["group"] and
                      self.event(one).line is not None and self.event(one).function not in SENDS + RECEIVES), None)
        others = [other for other in step.devices if other != device]
        goes_on = f"They meet its next call of this group, at {self.where(later, device)}" if later is not None else \
            f"The step has no later call of this group, so device {device} goes on without them"
        fault = f"--fault device={device},call={event.number},kind=skip"
        return (f"Suppose that device {device} leaves out the call at {self.where(at, device)}. Who waits there, and "
                f"which call of device {device} do they meet instead?",
                f"{devices(others)} in this call, for device {device}. {goes_on}. Try it, and read what is said: the "
                f"same command with `{fault}`.")

    def peak(self, _):
        device = self.random.choice(sorted(self.page.peaks))
        most, at = self.page.peaks[device]
        item = item_of(self.page, at, device)
        held = list(self.record.devices[device][item.section].bytes_held())[item.begin:item.end + 1]
        largest = max(held, key=lambda one: sum(one.values()))
        parts = sorted(((size, name) for name, size in largest.items() if size), reverse=True)
        told = ", ".join(f"{name} {size:,}" for size, name in parts)
        return (f"Where in the step does device {device} hold the most, and what is the largest part of it?",
                f"{most:,} bytes in the step of {self.where(at, device)}: {told}. {self.sentence(at)}")


def ordinal(number):
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10 if number not in (11, 12, 13) else 0, 'th')}"
